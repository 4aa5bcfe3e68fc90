"""Sinks for experiment trackers: `tensorboard`, `wandb` and `trackio`. Numbers go there, and how the run is set up.

    sinks = ["jsonl", "parquet", "terminal", "wandb"]      in a recipe

The run's folder stays the record: rollouts and notes are the other sinks'. A tracker is opened at the first step, for
its number says whether a run begins or goes on. Needs: pip install 'rlvr[track]', or the one package.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr.registry import register
from rlvr.report.store import RowRecord, RunInfo, finite


class TrackerMissing(ValueError):
    """A recipe names a sink whose package is not installed; the message says what to install."""


@register("sink", "tensorboard")
class TensorBoardSink:
    """Curves for TensorBoard in the run's folder: tensorboard --logdir runs

    A run that goes on hides the points that it makes again.
    """

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing("tensorboard", error) from None
        self._open = SummaryWriter
        self._writer: Any = None

    def start(self, run: RunInfo) -> None:
        self._run = run

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._writer is None:
            self._writer = self._open(str(self._run.folder / "tensorboard"), purge_step=step if step > 1 else None)
            self._writer.add_text("run", f"{self._run.model}, {self._run.method}\n\n```\n{self._run.plan}\n```", step)
        for name, value in _finite(metrics).items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def groups(self, step: int, rows: Sequence[RowRecord]) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def end(self, status: str) -> None:
        if self._writer is not None:
            self._writer.close()


@register("sink", "wandb")
class WandbSink:
    """A run of Weights & Biases, kept in the run's folder until `wandb sync`; WANDB_MODE=online sends it at once.

    The project is WANDB_PROJECT, "rlvr" where that is not set.
    """

    def __init__(self) -> None:
        try:
            import wandb
        except ImportError as error:
            raise _missing("wandb", error) from None
        self._wandb = wandb
        self._tracked: Any = None

    def start(self, run: RunInfo) -> None:
        self._run = run

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._tracked is None:
            self._tracked = self._begun(step)
        self._tracked.log(_finite(metrics), step=step)

    def _begun(self, step: int) -> Any:
        folder = self._run.folder
        file = folder / "wandb" / "run-id"
        goes_on = step > 1 and file.is_file()
        tracked = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", "rlvr"),
            name=folder.name,
            dir=str(folder),
            config=_setup(self._run),
            mode=os.environ.get("WANDB_MODE", "offline"),
            id=file.read_text().strip() if goes_on else None,
            resume="allow" if goes_on else None,
        )
        file.parent.mkdir(exist_ok=True)
        file.write_text(tracked.id)
        return tracked

    def groups(self, step: int, rows: Sequence[RowRecord]) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def end(self, status: str) -> None:
        if self._tracked is not None:
            self._tracked.summary["status"] = status
            self._tracked.finish(exit_code=int(status == "failed"))


@register("sink", "trackio")
class TrackioSink:
    """A run of trackio, in its local store: trackio show --project rlvr

    The project is TRACKIO_PROJECT, "rlvr" where that is not set; TRACKIO_SPACE_ID sends it to a Space. A run that goes
    on tells the steps again that it makes again, and trackio keeps both.
    """

    def __init__(self) -> None:
        try:
            import trackio
        except ImportError as error:
            raise _missing("trackio", error) from None
        self._trackio = trackio
        self._tracked: Any = None

    def start(self, run: RunInfo) -> None:
        self._run = run

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._tracked is None:
            self._tracked = self._trackio.init(
                project=os.environ.get("TRACKIO_PROJECT", "rlvr"),
                name=self._run.folder.name,
                config=_setup(self._run),
                resume="allow" if step > 1 else "never",
                embed=False,
            )
        self._tracked.log(_finite(metrics), step=step)

    def groups(self, step: int, rows: Sequence[RowRecord]) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def end(self, status: str) -> None:
        if self._tracked is not None:
            self._tracked.finish()


def _missing(name: str, error: ImportError) -> TrackerMissing:
    return TrackerMissing(
        f"sinks has {name!r}, but its package cannot be imported ({error}): pip install {name}, or take it out of sinks"
    )


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Without nan and infinity, which trackers draw as gaps or not at all."""
    return {name: number for name, value in metrics.items() if (number := finite(value)) is not None}


def _setup(run: RunInfo) -> dict[str, Any]:
    """The resolved recipe, and what it came to."""
    file = run.folder / "recipe.toml"
    recipe = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return {**recipe, "model": run.model, "method": run.method, "steps": run.total_steps, "seed": run.seed}

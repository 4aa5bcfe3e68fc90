"""Checkpoints: everything that a run needs to go on as if it had never stopped.

    checkpoints/step-00020/
        model/             the policy as a Hugging Face folder, in the dtype that it trains in; with [lora] instead
        adapter/           its adapter alone
        state.safetensors  optimiser moments, float32 copies of narrow weights, critic, a refreshed reference
        state.json         step, clocks, selector, phases, limits

A step's random numbers come from (seed, step) alone, so a run that was killed within a step makes the same step again
from the checkpoint before it, and the weights come out bit for bit. A checkpoint is written beside its name and moved
there whole; what a kill leaves behind is never taken for one. A disk may still lose the end of a file: a run goes on
from the newest checkpoint whose files are whole.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlvr.engine.adapter_files import WEIGHTS, save_adapter
from rlvr.engine.load import save_model, whole_folder
from rlvr.engine.lora import adapted
from rlvr.engine.weights import absent_shards, fault_in
from rlvr.folder import refuse_other
from rlvr.loop import Training

FOLDER = "checkpoints"
_NAME = re.compile(r"step-(\d{5,})")


class NoCheckpoint(ValueError):
    """There is nothing to go on from; the message says what there is."""


def checkpoints(run: Path) -> dict[int, Path]:
    """The whole checkpoints of a run by step, oldest first."""
    found = {
        int(match[1]): path
        for path in (run / FOLDER).glob("step-*")
        if (match := _NAME.fullmatch(path.name)) and (path / "state.json").is_file()
    }
    return dict(sorted(found.items()))


def newest(run: Path, told: Callable[[str], None] = lambda sentence: None) -> Path:
    """The newest checkpoint that is whole. A damaged one is put aside as step-N.damaged, and `told` is given a sentence
    about it; what a kill left half written is removed.

    Raises NotARun, or NoCheckpoint where there is none.
    """
    refuse_other(run)
    _tidy(run)
    damaged: list[tuple[Path, str]] = []
    for step, folder in reversed(checkpoints(run).items()):
        if not (fault := fault_in(folder) or _lacking(folder)):
            for other, why in damaged:
                aside = other.with_name(f"{other.name}.damaged")
                shutil.rmtree(aside, ignore_errors=True)
                other.rename(aside)
                told(f"checkpoint {other.name} is damaged and put aside as {aside.name}: {why}; going on from {step}")
            return folder
        damaged.append((folder, fault))
    if damaged:
        raise NoCheckpoint(f"{run} holds no whole checkpoint: {damaged[0][1]}; start the run again instead")
    raise NoCheckpoint(
        f"{run} holds no checkpoint (checkpoint_every was 0, or it ended before the first); start it again instead"
    )


def _lacking(folder: Path) -> str:
    """A file that a checkpoint needs and has not."""
    weights = ("model/model.safetensors", "model/model.safetensors.index.json", f"adapter/{WEIGHTS}")
    if not (folder / "state.safetensors").is_file():
        return f"{folder / 'state.safetensors'} is missing"
    if not any((folder / name).is_file() for name in weights):
        return f"{folder} has no weights"
    absent = absent_shards(folder / "model")
    return f"{folder / 'model' / absent[0]} is missing" if absent else ""


def _tidy(run: Path) -> None:
    """Remove half-written folders. One that was moved aside for a new one that never came goes back to its place."""
    for parent in (run, run / FOLDER):
        for rest in parent.glob(".*.old"):
            home = parent / rest.name[1:].rpartition(".")[0].rpartition(".")[0]
            if not home.exists():
                rest.rename(home)
        for rest in [*parent.glob(".*.partial"), *parent.glob(".*.old")]:
            shutil.rmtree(rest, ignore_errors=True)


def policy_in(checkpoint: Path, adapter: bool) -> Path:
    """The folder of a checkpoint's policy: its adapter, or the whole model. Raises NoCheckpoint where it has the other
    one."""
    folder = checkpoint / ("adapter" if adapter else "model")
    if not folder.is_dir():
        other = "trained all weights; drop [lora]" if adapter else "trained an adapter; keep its [lora]"
        raise NoCheckpoint(f"{checkpoint}: the run that is to go on {other}")
    return folder


def save(training: Training, model: Any, tokenizer: Any, extra: dict[str, Any], keep: int) -> Path:
    """Write the state after `training.step`, and remove all but the last `keep` checkpoints."""
    from safetensors.torch import save_file

    tensors, facts = training.engine.state()
    told = {
        "step": training.step,
        "sampled": training.sampled,
        "phase": training.phase,
        "selector": training.selector.state(),
        "unknown": list(training.unknown),
        "trust_sampler": training.trust_sampler,
        "engine": facts,
        "extra": extra,
    }
    folder = training.folder / FOLDER / f"step-{training.step:05d}"
    with whole_folder(folder) as partial:
        if adapted(model):
            save_adapter(model, partial / "adapter")
        else:
            save_model(model, tokenizer, partial / "model")
        save_file(tensors, partial / "state.safetensors")
        (partial / "state.json").write_text(json.dumps(told))
    for step, old in checkpoints(training.folder).items():
        if step not in list(checkpoints(training.folder))[-keep:]:
            shutil.rmtree(old, ignore_errors=True)
    return folder


@dataclass(frozen=True, slots=True)
class Behind:
    """What a run that goes on has behind it: steps, seconds, which tasks it was started with ({}: not told), and the
    state of its plan's phases."""

    step: int = 0
    seconds: float = 0.0
    tasks: Mapping[str, Any] = field(default_factory=dict)
    phase: Mapping[str, Any] | None = None


def behind_in(folder: Path) -> Behind:
    told = json.loads((folder / "state.json").read_text())
    return Behind(told["step"], told["extra"].get("seconds", 0.0), told["extra"].get("tasks", {}), told["phase"])


def restore(training: Training, folder: Path) -> dict[str, Any]:
    """Put a checkpoint's state into a training whose policy was loaded from its model folder; returns `extra`."""
    from safetensors.torch import load_file

    told = json.loads((folder / "state.json").read_text())
    training.engine.load_state(load_file(folder / "state.safetensors"), told["engine"])
    training.step, training.sampled, training.phase = told["step"], told["sampled"], told["phase"]
    training.selector.load(told["selector"])
    training.unknown = deque((tuple(pair) for pair in told["unknown"]), maxlen=training.unknown.maxlen)
    training.trust_sampler = told["trust_sampler"]
    return dict(told["extra"])

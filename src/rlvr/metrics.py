"""Every number of a step, by its name (docs/metrics.md), and the clock that times its stages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rlvr.batch import Batch, Tally, merge
from rlvr.pieces import tallies
from rlvr.plan import Running
from rlvr.records import Group


def summary(seen: Sequence[Group], batch: Batch | None, told: Mapping[str, Tally], clock: Clock) -> dict[str, float]:
    """Every number of a step by its name; what could not be measured is left out."""
    verdicts = [v for g in seen for v in g.verdicts.values()]
    rows = [r for g in seen for r in g.rollouts]
    lengths = [int(r.owned().sum()) for r in rows]
    kinds = [g.kind for g in seen]
    out = {
        f"verdict/{label}": sum(v.label == label for v in verdicts) / len(verdicts)
        for label in ("right", "wrong", "unknown")
    }
    out |= {f"group/frac_{kind}": kinds.count(kind) / len(kinds) for kind in ("solved", "failed", "mixed")}
    out["rollouts/sampled"] = len(rows)
    out["rollouts/silent"] = sum(len(g.rollouts) for g, kind in zip(seen, kinds) if kind != "mixed")
    out["rollouts/tokens"] = sum(lengths)
    out["rollouts/trained"] = 0 if batch is None else len(batch)
    out["length/mean"] = sum(lengths) / len(rows)
    out["length/truncated"] = sum(r.truncated for r in rows) / len(rows)
    if batch is not None:
        known = batch["known"]
        for name, x in batch.rows.items():
            if name == "reward" or name.startswith("reward/"):
                label = "reward/mean" if name == "reward" else f"{name}/mean"
                out[label] = Tally.mean(x, known).value()
        if "entropy" in batch:
            out["policy/entropy"] = Tally.mean(batch["entropy"]).value()
    out |= {name: tally.value() for name, tally in told.items()}
    out |= {f"time/{stage}": seconds for stage, seconds in clock.stages.items()}
    out["perf/tokens_per_s"] = sum(lengths) / clock.total
    return out


def told_by(running: Running, batch: Batch, on_update: bool = False) -> dict[str, Tally]:
    """What pieces say of a batch that they worked on, by their `tell(batch)`: of the credited rollout batch, or
    (`on_update`) what pieces with that word say of a weighed optimiser batch."""
    out: dict[str, Tally] = {}
    for placed in running.stack:
        if getattr(placed.piece, "on_update", False) == on_update:
            merge(out, tallies(placed, batch))
    return out


class Clock:
    """Wall seconds by stage of one step. `begun` is given a stage's name when it begins."""

    def __init__(self, begun: Callable[[str], None] = lambda stage: None) -> None:
        self.stages: dict[str, float] = {}
        self._begun = begun
        self._start = time.perf_counter()

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        self._begun(stage)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.stages[stage] = self.stages.get(stage, 0.0) + time.perf_counter() - start

    @property
    def total(self) -> float:
        return time.perf_counter() - self._start

"""What an experiment's runs say: values by arm and seed, paired differences, the verdict, and what it cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.evaluate.statistics import Estimate, mean_of
from rlvr.retest.book import Book, Seen, Slot, Stage
from rlvr.retest.record import Record
from rlvr.retest.schema import Metric
from rlvr.retest.statistics import Paired, paired, verdict


@dataclass(frozen=True, slots=True)
class Compared:
    """One metric over the counted seeds: each arm's values, and the method against the other arms."""

    metric: Metric
    values: Mapping[str, Mapping[int, float]]  # arm -> seed -> value; failed runs are not in it
    against: Mapping[str, Paired]  # arm -> what the method gains over it

    def mean(self, arm: str) -> Estimate:
        return mean_of(list(self.values[arm].values()))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that the page tells of an experiment."""

    stage: Stage
    begun: bool
    seeds: int  # that every arm of the main table has run, failed ones too
    lr: Mapping[str, float | None]
    preconditions: Sequence[Seen]
    main: Compared
    secondary: Sequence[Compared]
    failed: Mapping[str, Mapping[int, str]]  # arm -> seed -> last words
    runs: Mapping[str, Sequence[Record]]  # arm -> every run that it used, its search's too

    @property
    def decided(self) -> bool:
        return self.stage in ("ablations", "done")

    def verdict(self, delta: float, arm: str = "base") -> str | None:
        """Of the method against an arm; None until all seeds have run."""
        return verdict(self.main.against[arm].estimate, delta) if self.decided else None


def look(book: Book) -> Outcome:
    e = book.experiment
    lr = {arm: book.chosen(arm) for arm in e.every_arm}
    counted = {arm: book.counted([arm]) for arm in e.every_arm}
    failed: dict[str, dict[int, str]] = {}
    for arm, slots in counted.items():
        records = {slot.seed: book.record(slot) for slot in slots}
        failed[arm] = {seed: str(r.told["why"]) for seed, r in records.items() if r is not None and not r.finished}
    made = [{slot.seed for slot in counted[arm] if book.record(slot) is not None} for arm in e.arms]
    return Outcome(
        book.stage(),
        book.begun,
        len(set.intersection(*made)),
        lr,
        book.preconditions(),
        _compared(book, e.metric, counted),
        [_compared(book, metric, counted) for metric in e.secondary],
        failed,
        {arm: _used(book, [*book.search(arm), *slots]) for arm, slots in counted.items()},
    )


def _compared(book: Book, metric: Metric, counted: Mapping[str, Sequence[Slot]]) -> Compared:
    values = {
        arm: {slot.seed: value for slot in slots if math.isfinite(value := book.value(slot, metric))}
        for arm, slots in counted.items()
    }
    others = [arm for arm in values if arm != "method"]
    return Compared(metric, values, {arm: paired(values["method"], values[arm], metric.sign) for arm in others})


def _used(book: Book, slots: Sequence[Slot]) -> list[Record]:
    return [record for slot in slots if (record := book.record(slot)) is not None]


def spent(outcome: Outcome) -> dict[str, float]:
    """What all runs of an experiment cost together, those that it shares included."""
    total: dict[str, float] = {}
    for record in {r.mark: r for records in outcome.runs.values() for r in records}.values():
        for name, value in record.told["budget"].items():
            total[name] = round(total.get(name, 0) + value, 2)
    return total


def result(book: Book) -> dict[str, Any]:
    """The outcome for programs."""
    seen = look(book)
    e = book.experiment
    return {
        "stage": seen.stage,
        "seeds": [*e.seed_list[: seen.seeds]],
        "verdict": seen.verdict(e.delta),
        "delta": e.delta,
        "lr": dict(seen.lr),
        "preconditions": [
            {"says": s.rule.says, "value": _number(s.value), "limit": s.rule.limit, "holds": s.holds}
            for s in seen.preconditions
        ],
        "metric": e.metric.name,
        "arms": {arm: {str(s): _number(v) for s, v in by.items()} for arm, by in seen.main.values.items()},
        "gain over": {arm: _paired(p) for arm, p in seen.main.against.items()},
        "secondary": {c.metric.name: {arm: _paired(p) for arm, p in c.against.items()} for c in seen.secondary},
        "failed": {arm: by for arm, by in seen.failed.items() if by},
        "budget": spent(seen),
    }


def _paired(p: Paired) -> dict[str, Any]:
    e = p.estimate
    return {"mean": _number(e.value), "low": _number(e.low), "high": _number(e.high), "pairs": e.n, "p": _number(p.p)}


def _number(x: float) -> float | None:
    return float(f"{x:.6g}") if math.isfinite(x) else None

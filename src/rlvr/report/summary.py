"""What a run did, in plain words: the sentences at the top of its page, worked out from its numbers alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlvr.evaluate.unknown import no_verdict
from rlvr.report.store import RunData
from rlvr.report.text import clock, number, percent

# When a reader should be warned: our choices, meant to be looked at, not to be trusted.
UNKNOWN, TRUNCATED, MIXED, ENTROPY, GAP = 0.05, 0.2, 0.1, 0.1, 3.0


@dataclass(frozen=True, slots=True)
class Change:
    """A metric's mean over the first and the last steps of a run."""

    first: float
    last: float
    window: int  # steps at each end
    error: float  # standard error of the difference, from the scatter between steps; nan below 3 steps


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One measure on one set before and after; an interval is (value, low, high)."""

    name: str
    measure: str
    before: tuple[float, float, float] | None
    after: tuple[float, float, float] | None

    @property
    def words(self) -> str:
        if self.before is None or self.after is None:
            return "measured once"
        if self.after[1] > self.before[2]:
            return "better: the intervals lie apart"
        if self.after[2] < self.before[1]:
            return "worse: the intervals lie apart"
        return "not told apart: the intervals overlap"


def change(y: np.ndarray, share: float = 0.1) -> Change | None:
    """First and last `share` of the known values compared; None when nothing is known."""
    y = y[np.isfinite(y)]
    if not len(y):
        return None
    w = max(1, min(len(y) // 2, math.ceil(share * len(y))))
    a, b = y[:w], y[-w:]
    error = math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / w) if w >= 3 else math.nan
    return Change(float(a.mean()), float(b.mean()), w, error)


def reward_sentence(run: RunData) -> str:
    """What the mean reward did."""
    moved = change(run.get("reward/mean"))
    if moved is None:
        return "No reward has been recorded yet."
    if len(run.steps) == 1:
        return f"Mean reward {number(moved.last)} in the only recorded step."
    ends = f"from {number(moved.first)} to {number(moved.last)}"
    if math.isnan(moved.error):
        return f"Mean reward went {ends}, {_steps(moved.window)} at each end: too few to call it a trend."
    by = moved.last - moved.first
    verb = "rose" if by > 2 * moved.error else "fell" if by < -2 * moved.error else "shows no clear change,"
    differ = f"difference {number(by)} ± {number(2 * moved.error)}"
    return f"Mean reward {verb} {ends} ({_steps(moved.window)} at each end; {differ})."


def status_sentence(run: RunData) -> str:
    """How far the run came, and how it ended."""
    done = len(run.steps)
    total = run.start.get("total_steps")
    told = f"{int(run.steps[-1])} of {total}" if done and isinstance(total, int) else f"{done}"
    seconds = duration(run)
    took = f" in {clock(seconds)}" if math.isfinite(seconds) else ""
    if run.status is None:
        return f"Still going, or ended without a word: step {told}{took}." if done else "No step has been recorded yet."
    return f"{run.status[:1].upper()}{run.status[1:]}: step {told}{took}."


def duration(run: RunData) -> float:
    """Seconds from the start to the last recorded step."""
    started, times = run.start.get("started"), run.get("time")
    if not isinstance(started, int | float) or not len(times):
        return math.nan
    spent = float(times[-1]) - started
    return spent if spent >= 0 else math.nan  # gone on with, and no step made yet


def cautions(run: RunData) -> list[str]:
    """What a careful reader would want to be told before believing the curves."""
    out = []
    total = sum(np.nan_to_num(run.get(f"verdict/{label}")) for label in ("right", "wrong", "unknown"))
    unknown = _late(np.nan_to_num(run.get("verdict/unknown")) / np.where(total > 0, total, np.nan))
    if unknown > UNKNOWN:
        out.append(
            f"{percent(unknown)} of late episodes had no verdict: look at the reasons before trusting the reward."
        )
    truncated = _late(run.get("length/truncated"))
    if truncated > TRUNCATED:
        out.append(f"{percent(truncated)} of late rollouts were cut off at the token limit.")
    mixed = _late(run.get("group/frac_mixed"))
    if mixed < MIXED:
        out.append(
            f"Only {percent(mixed)} of late groups were mixed: groups that are all right or all wrong teach nothing."
        )
    entropy, gap = change(run.get("policy/entropy"), 0.25), change(run.get("sampler/gap"), 0.25)
    if entropy and len(run.steps) >= 8 and 0 <= entropy.last < ENTROPY * entropy.first:
        fall = f"from {number(entropy.first)} to {number(entropy.last)} nats a token"
        out.append(f"Entropy fell {fall}: the policy hardly explores.")
    if gap and len(run.steps) >= 8 and gap.last > max(GAP * gap.first, 1e-3):
        out.append(f"The gap of sampler and trainer grew from {number(gap.first)} to {number(gap.last)}.")
    for name in ("reward/mean", "optim/grad_norm", *(n for n in run.nulls if n.startswith("loss/"))):
        if steps := run.nulls.get(name):
            out.append(f"{name} was not a finite number in {_steps(len(steps))}, first in step {steps[0]}.")
    if run.skipped:
        out.append(f"Lines of metrics.jsonl that could not be read and are left out: {run.skipped}.")
    return out


def evaluations(told: Mapping[str, Any]) -> list[Evaluation]:
    """The rows of eval.json: {"before": {set: {"mean@8": [value, low, high], "errors": 0}}, "after": {...}}."""
    sides = [told.get("before") or {}, told.get("after") or {}]
    keys = dict.fromkeys(
        (name, measure)
        for side in sides
        for name, found in side.items()
        for measure, value in found.items()
        if isinstance(value, list)
    )
    return [
        Evaluation(n, m, _interval(sides[0].get(n, {}).get(m)), _interval(sides[1].get(n, {}).get(m))) for n, m in keys
    ]


def unjudged(told: Mapping[str, Any]) -> list[str]:
    """A sentence for each evaluation in eval.json that has answers without a verdict."""
    return [
        f"Evaluation {when}, {name}: {sentence}. They count as not right."
        for when, found in told.items()
        if isinstance(found, dict)
        for name, measures in found.items()
        if isinstance(measures, dict) and (sentence := no_verdict(measures))
    ]


def _interval(value: Any) -> tuple[float, float, float] | None:
    if isinstance(value, int | float):
        value = [value] * 3
    if not isinstance(value, list) or len(value) != 3 or not all(isinstance(v, int | float) for v in value):
        return None
    return float(value[0]), float(value[1]), float(value[2])


def _late(y: np.ndarray) -> float:
    """The mean of the last quarter's known values; nan when there are none."""
    late = y[-max(1, len(y) // 4) :]
    late = late[np.isfinite(late)]
    return float(late.mean()) if len(late) else math.nan


def _steps(n: int) -> str:
    return f"{n} step" if n == 1 else f"{n} steps"

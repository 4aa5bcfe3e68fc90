"""Two sides on the same problems: how much more one is right after training than the other.

For a problem p with shares a_p and b_p of right answers on the two sides,

    d_p = b_p - a_p        mean(d) +- t * s / sqrt(n),   s the standard deviation of d over the n problems that both
                           were asked, t the 0.975 quantile of Student's t with n - 1 degrees of freedom

A hard problem is hard for both sides, so d scatters less than a and b do, and differences show that the two intervals
apart would hide. This interval is over problems: these two models, other problems of the kind. Where both sides are
several seeds, a seed's mean of d is one value and the interval is over seeds: other trainings, these problems.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rlvr.evaluate.statistics import Estimate, mean_of
from rlvr.report.sides import Side
from rlvr.report.store import read_lines

ANSWERS = "eval-after.jsonl"


@dataclass(frozen=True, slots=True)
class Paired:
    """How a side differs from the first one. Where nothing can be paired, `difference.n` is 0 and `why` says why."""

    name: str
    against: str
    over: Literal["problems", "seeds"]
    difference: Estimate  # in shares of right answers, n pairs of `over`; positive: more than the first side
    why: str = ""

    @property
    def words(self) -> str:
        """The difference in a sentence's part."""
        d = self.difference
        if not math.isfinite(d.low):
            return self.why or "a single pair has no interval"
        if d.low == d.high == 0:
            return "every pair is equal"
        if d.low > 0:
            return "better: the interval lies above 0"
        return "worse: the interval lies below 0" if d.high < 0 else "not told apart: the interval holds 0"

    def __str__(self) -> str:
        d = self.difference
        if not d.n:
            return f"{self.name} and {self.against} cannot be paired: {self.why}"
        interval = f", 95% interval {d.low:+.3f} .. {d.high:+.3f}" if math.isfinite(d.low) else ""
        many = f"{d.n} {self.over if d.n > 1 else self.over[:-1]} paired"
        what = f"{self.name} against {self.against}, share of right answers after training"
        return f"{what}: {d.value:+.3f}{interval} ({many}); {self.words}"

    def told(self) -> dict[str, Any]:
        """For JSON."""
        d = self.difference
        numbers = {"n": d.n, "difference": d.value, "low": d.low, "high": d.high}
        return {"run": self.name, "against": self.against, "over": self.over, **numbers, "words": self.words}


def paired(sides: Sequence[Side]) -> list[Paired]:
    """Every further side against the first."""
    return [_pair(sides[0], other) for other in sides[1:]]


def _pair(first: Side, other: Side) -> Paired:
    if first.several or other.several:
        both = [(run.folder, other.runs[seed].folder) for seed, run in first.runs.items() if seed in other.runs]
    else:
        both = [(a.folder, b.folder) for a, b in zip(first.runs.values(), other.runs.values())]
    if not both:
        listed = [f"{side.name} has {', '.join(map(str, side.runs))}" for side in (first, other)]
        return Paired(other.name, first.name, "seeds", mean_of([]), f"no seed is on both sides: {'; '.join(listed)}")
    found = [by_problem(a, b) for a, b in both]
    over: Literal["problems", "seeds"] = "seeds" if len(both) > 1 else "problems"  # of one seed, its problems
    difference = mean_of([e.value for e in found]) if over == "seeds" else found[0]
    why = "" if difference.n else _why_not(list(zip((first.name, other.name), both[0])))
    return Paired(other.name, first.name, over, difference, why)


def by_problem(a: Path, b: Path) -> Estimate:
    """The mean of b - a over the problems that both runs were asked after training, with its interval; n = 0 where
    there is none."""
    first, second = _shares(a), _shares(b)
    return mean_of([second[problem] - share for problem, share in first.items() if problem in second])


def _shares(run: Path) -> dict[tuple[str, str], float]:
    """The share of right answers by task and gold: of one name with two golds, two problems are meant."""
    return {
        (str(line.get("task")), str(line.get("answer"))): float(line["share_right"])
        for line in read_lines(run / ANSWERS)[0]
        if isinstance(line.get("share_right"), int | float)
    }


def _why_not(sides: Sequence[tuple[str, Path]]) -> str:
    without = [name for name, run in sides if not _shares(run)]
    if without:
        return f"{' and '.join(without)} {'has' if len(without) == 1 else 'have'} no evaluation after training"
    return "they were evaluated on other tasks"

"""Selection by expected learnability: the tasks of whose answers some, but not all, will probably be right.

    pass rate of a task ~ Beta(a, b),   a = a0 + s,   b = b0 + n - s       s of its n judged answers were right
    expected    E[p (1 - p)] = a b / ((a + b)(a + b + 1))
    nonsilent   1 - E[p^G] - E[(1 - p)^G],  E[p^G] = prod over j < G of (a + j) / (a + b + j)   a group of G is mixed

A prior (a0, b0) that an anchor gives: strength (m, 1 - m), m the smoothed share that the anchor got right, moved by
`shift` in log-odds; without an anchor Beta(1, 1). Once a step old outcomes count `forget` times what they did.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Literal

from rlvr.method import Stack
from rlvr.records import Group, Task, mix
from rlvr.select.anchors import Anchor, BadAnchors, listed, read_anchors

log = logging.getLogger("rlvr.select")

SMOOTH = 1.0  # pseudo-answers of the anchor, half of them right: keeps its share off 0 and 1. Ours, as Jeffreys' prior
SHIFT_SD = 3.0  # prior of a fitted shift: normal, in log-odds. Ours: nothing is moved without outcomes


@dataclass(frozen=True)
class Learnability:
    """Takes the tasks of highest value ("topk"), draws them in proportion to it ("proportional"), or takes those whose
    drawn pass rate is the most valuable ("thompson"); equals in a seeded order, no task twice a step."""

    anchors: str | None = None
    strength: float = 8.0
    value: Literal["expected", "nonsilent"] = "expected"
    mode: Literal["topk", "proportional", "thompson"] = "topk"
    forget: float = 1.0
    shift: float = 0.0
    fit_shift: bool = False
    missing: Literal["error", "uninformative"] = "error"
    other_verifier: bool = False
    group_size: int | None = None  # None: the run's

    def __post_init__(self) -> None:
        if not (self.strength > 0 and math.isfinite(self.strength)):
            raise ValueError(
                f"strength = {self.strength}: it is the number of answers that the anchor counts as, above 0; for no "
                "prior leave anchors out"
            )
        if not 0 <= self.forget <= 1:
            raise ValueError(f"forget is the share of old outcomes that stays after a step, 0 to 1; got {self.forget}")
        if not math.isfinite(self.shift):
            raise ValueError(f"shift is a number in log-odds; got {self.shift}")
        if self.group_size is not None and self.group_size < 2:
            raise ValueError("group_size = 1: every group would be silent, so no task can be chosen by what it teaches")

    def settle(self, stack: Stack) -> Learnability:
        return self if self.group_size is not None else replace(self, group_size=int(stack.run["group_size"]))

    def start(self, tasks: Sequence[Task], seed: int) -> LearnabilitySelector:
        """tasks: what there is, without golds. Raises BadAnchors where the table does not fit them."""
        if not tasks:
            raise ValueError("there are no tasks to select from")
        if self.anchors is None:
            log.warning("no anchors: every task begins at Beta(1, 1), and the first steps find out what it is worth")
        table = {} if self.anchors is None else read_anchors(Path(self.anchors))
        told = {task.id: table[task.id] for task in tasks if task.id in table and table[task.id].known}
        lacking = [task.id for task in tasks if task.id not in told]
        if self.anchors is not None and lacking and self.missing == "error":
            raise BadAnchors(
                f"{self.anchors} has no judged answer to these tasks: {listed(lacking)}; sample them too (rlvr "
                "rollout), or set missing = 'uninformative'"
            )
        return LearnabilitySelector(self, tasks, seed, told)


class LearnabilitySelector:
    """What outcomes have taught so far, by task id."""

    def __init__(self, piece: Learnability, tasks: Sequence[Task], seed: int, anchors: Mapping[str, Anchor]):
        self.piece, self.tasks, self.seed, self.anchors = piece, {task.id: task for task in tasks}, seed, anchors
        self.right: dict[str, float] = {}
        self.known: dict[str, float] = {}
        self.calls, self.unjudged = 0, 0  # draws of random numbers; groups without any verdict
        self.taken: set[str] = set()  # in this step

    def posterior(self, id: str, shift: float | None = None) -> tuple[float, float]:
        """a, b of a task."""
        a, b = self._prior(id, self._shift() if shift is None else shift)
        right, known = self.right.get(id, 0.0), self.known.get(id, 0.0)
        return a + right, b + known - right

    def choose(self, n: int) -> list[Task]:
        """The next n tasks of this step; fewer where a refill has used them up. Raises ValueError where a step asks
        for more than there are."""
        if not self.taken and n > len(self.tasks):
            raise ValueError(
                f"a step asks for {n} different tasks and there are {len(self.tasks)}; lower prompts_per_step"
            )
        noise = Random(mix(self.seed, "learnability", self.calls))
        self.calls += 1
        rest = [id for id in self.tasks if id not in self.taken]
        noise.shuffle(rest)
        shift = self._shift()
        worth = {id: self._worth(*self.posterior(id, shift), noise) for id in rest}
        chosen = sorted(rest, key=lambda id: -worth[id])[:n]
        self.taken |= set(chosen)
        return [self.tasks[id] for id in chosen]

    def observe(self, groups: Sequence[Group]) -> None:
        """A step is over. Raises ValueError, and learns nothing, where a group is of a task that is not here, or was
        judged by another verifier than the anchor."""
        outcomes: dict[str, tuple[int, int]] = {}
        for group in groups:
            id, known = group.task.id, group.known()
            right = sum(verdict.label == "right" for verdict in known)
            before = outcomes.get(id, (0, 0))
            outcomes[id] = before[0] + right, before[1] + len(known)
            self._same_verifier(id, {verdict.fingerprint for verdict in known})
        self.learn(outcomes)

    def learn(self, outcomes: Mapping[str, tuple[int, int]]) -> None:
        """Task id -> (right, judged) of one step."""
        for id, (right, known) in outcomes.items():
            if id not in self.tasks:
                raise ValueError(f"an outcome of task {id!r}, which this selector does not know")
            if not 0 <= right <= known:
                raise ValueError(f"task {id!r}: {right} right of {known} judged answers")
        for counts in (self.right, self.known):
            for id in counts:
                counts[id] *= self.piece.forget
        for id, (right, known) in outcomes.items():
            self.unjudged += not known
            if known:
                self.right[id] = self.right.get(id, 0.0) + right
                self.known[id] = self.known.get(id, 0.0) + known
        self.taken = set()

    def state(self) -> dict[str, Any]:
        counts = {"right": self.right, "known": self.known}
        return {**counts, "calls": self.calls, "unjudged": self.unjudged, "taken": sorted(self.taken)}

    def load(self, state: Mapping[str, Any]) -> None:
        self.right, self.known = dict(state["right"]), dict(state["known"])
        self.calls, self.unjudged, self.taken = state["calls"], state["unjudged"], set(state["taken"])

    # ---- inside ------------------------------------------------------------------------------------------
    def _odds(self, id: str) -> float:
        """Log-odds of the anchor's smoothed share."""
        anchor = self.anchors[id]
        right, wrong = anchor.right + SMOOTH / 2, anchor.known - anchor.right + SMOOTH / 2
        return math.log(right / wrong)

    def _prior(self, id: str, shift: float) -> tuple[float, float]:
        if id not in self.anchors:
            return 1.0, 1.0
        anchor, strength = self.anchors[id], self.piece.strength
        share = (anchor.right + SMOOTH / 2) / (anchor.known + SMOOTH)
        share = share if shift == 0 else _sigmoid(self._odds(id) + shift)
        share = min(max(share, 1e-9), 1 - 1e-9)  # a shift beyond floating point leaves a proper prior
        return strength * share, strength * (1 - share)

    def _shift(self) -> float:
        """The shift that makes the outcomes so far likeliest, under its normal prior around `piece.shift`."""
        given = self.piece.shift
        seen = [id for id in self.known if id in self.anchors]
        if not self.piece.fit_shift or not seen:
            return given
        odds = [self._odds(id) for id in seen]

        def slope(shift: float) -> float:  # of the log posterior, which is concave
            pulls = (self.right[id] - self.known[id] * _sigmoid(x + shift) for id, x in zip(seen, odds))
            return sum(pulls) - (shift - given) / SHIFT_SD**2

        low, high = given - 20.0, given + 20.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(middle) > 0 else (low, middle)
        return (low + high) / 2

    def _worth(self, a: float, b: float, noise: Random) -> float:
        if self.piece.mode == "thompson":
            p = noise.betavariate(a, b)
            g = 2 if self.piece.value == "expected" else self._group
            return 1 - p**g - (1 - p) ** g  # at g = 2 it is 2 p (1 - p): the same order
        worth = expected(a, b) if self.piece.value == "expected" else nonsilent(a, b, self._group)
        if self.piece.mode == "topk":
            return worth
        return math.log(max(worth, 1e-300)) - math.log(-math.log(1 - noise.random() or 1e-300))  # Gumbel top-k

    @property
    def _group(self) -> int:
        assert self.piece.group_size is not None
        return self.piece.group_size

    def _same_verifier(self, id: str, marks: set[str]) -> None:
        wanted = self.anchors[id].verifier if id in self.anchors else ""
        other = sorted(mark for mark in marks if mark and mark != wanted and mark not in wanted.split("; "))
        if wanted and other and not self.piece.other_verifier:
            raise BadAnchors(
                f"{self.piece.anchors}: the anchor's answers to task {id} were judged by {wanted}, this run's by "
                f"{other[0]}; sample again (rlvr rollout), or set other_verifier = true"
            )


def expected(a: float, b: float) -> float:
    """E[p (1 - p)] under Beta(a, b)."""
    return a * b / ((a + b) * (a + b + 1))


def nonsilent(a: float, b: float, group_size: int) -> float:
    """Chance that a group has a right and a wrong answer, its pass rate ~ Beta(a, b)."""

    def all_alike(x: float) -> float:
        return math.prod((x + j) / (a + b + j) for j in range(group_size))

    return max(0.0, 1 - all_alike(a) - all_alike(b))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))

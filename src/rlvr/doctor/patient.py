"""What the checks may look at: a recipe and its plan, a sample of tasks, and, where they are there, model and rollouts.

Verifiers are somebody's code and may be slow, so all questions to them share one budget of seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.assemble import Asked, Setup, templated
from rlvr.batch import Batch
from rlvr.plan import Plan
from rlvr.recipe import Recipe
from rlvr.records import Group, Rollout, Task, Verdict
from rlvr.verify.judge import judge

AT_ONCE = 8  # answers judged between two looks at the clock


class OutOfTime(Exception):
    """The budget for verifiers is spent; what is not known by now stays unknown."""


@dataclass(frozen=True, slots=True)
class Played:
    """One step's rollouts, scored by the trainer and credited, and never trained on. `batch` is None where the method
    kept no group."""

    groups: tuple[Group, ...]
    batch: Batch | None
    gap: float | None  # mean |trainer - sampler|, nats a token; None where nothing was sampled or scored

    @property
    def rows(self) -> list[Rollout]:
        return [row for group in self.groups for row in group.rollouts]


@dataclass(frozen=True, slots=True)
class Patient:
    """`most`: tasks looked at. `until`: the moment (time.monotonic) after which no verifier is asked any more. `model`:
    the policy that stands in for the recipe's."""

    recipe: Recipe
    plan: Plan
    asked: Asked | None = None
    setup: Setup | None = None
    played: Played | None = None
    most: int = 64
    until: float = math.inf
    model: Any = None

    @property
    def tasks(self) -> list[Task]:
        """Training tasks evenly spaced over all of them, prompts as their source has them."""
        every = self.asked.train if self.asked else ()
        n = min(self.most, len(every))
        return [every[i * len(every) // n] for i in range(n)]

    @property
    def templated(self) -> list[Task]:
        """The same tasks with the recipe's prompt around theirs."""
        return list(templated(self.tasks, self.recipe.prompt))

    def ask(self, verifier: Any, items: Sequence[tuple[str, Task]]) -> list[Verdict]:
        """Verdicts on texts. Raises OutOfTime."""
        out: list[Verdict] = []
        for i in range(0, len(items), AT_ONCE):
            if time.monotonic() > self.until:
                raise OutOfTime
            out += judge(verifier, items[i : i + AT_ONCE])
        return out

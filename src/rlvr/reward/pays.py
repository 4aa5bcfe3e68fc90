"""From verdicts to the correctness part of the reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlvr.batch import Batch


@dataclass(frozen=True)
class Pays:
    """What a right, a wrong and a truncated answer earn.

    reward/correctness = wrong + score * (right - wrong): a score between 0 and 1 pays in proportion. `truncated`
    replaces `wrong` for answers that hit a length limit and are wrong; a right one is right. Unknown verdicts pay
    nothing (the plan sees to it). Returns {"correctness": [R]}.
    """

    right: float = 1.0
    wrong: float = 0.0
    truncated: float | None = None  # None: the same as wrong
    weight: float = 1.0
    needs: ClassVar = ("score", "correct", "truncated", "known")
    parts: ClassVar = ("correctness",)

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        truncated = self.wrong if self.truncated is None else self.truncated
        score = batch["score"]
        floor = torch.where(batch["truncated"] & ~batch["correct"], torch.full_like(score, truncated), self.wrong)
        return {"correctness": floor + score * (self.right - floor)}


@dataclass(frozen=True)
class Part:
    """A named part of the verdict as a part of the reward: `weight` times its raw value, 0 where a verdict has no such
    part. Returns {name: [R]}."""

    name: str
    weight: float = 1.0

    @property
    def needs(self) -> tuple[str, ...]:
        return ("known", f"part/{self.name}")

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.name,)

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        told = batch[f"part/{self.name}"]
        return {self.name: torch.where(torch.isnan(told), 0.0, told)}

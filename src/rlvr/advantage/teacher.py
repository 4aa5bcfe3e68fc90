"""Advantages that a teacher gives: how much likelier it finds the policy's own tokens than the policy does.

    g_t = teacher_logp_t - old_logp_t       nats, clamped; 0 where the teacher has no say

With g for the advantage, the policy gradient on the policy's own samples is, in each state that it visits, that of
KL(policy || teacher) there: distillation on policy (OPD). What earlier tokens do to later states is left out, so beyond
one token it is not the gradient of the sequences' KL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rlvr.advantage.group import GroupNorm
from rlvr.batch import Batch, Tally
from rlvr.loss.selection import by_chance

Mode = Literal["opd", "gated", "inverse", "random_gate"]
SCORED = ("old_logp", "teacher_logp", "teacher_known")


def teacher_gap(batch: Batch, clamp: float | None) -> Tensor:
    """[N] g, within -clamp .. clamp; a token that the teacher gives no chance is -inf without it."""
    gap = batch["teacher_logp"] - batch["old_logp"]
    gap = gap if clamp is None else gap.clamp(-clamp, clamp)
    return torch.where(batch.spread(batch["teacher_known"]), gap, 0.0)


def verdict_sign(batch: Batch) -> Tensor:
    """[R] 1 right, -1 wrong, 0 without a verdict."""
    sign = torch.where(batch["correct"], 1.0, -1.0)
    return torch.where(batch["known"], sign, 0.0)


def agreeing(gap: Tensor, sign: Tensor) -> Tensor:
    """[N] s relu(s g): the part of g whose sign is s; both [N]. 0 where s is 0."""
    return torch.where(sign * gap > 0, gap, 0.0)


@dataclass(frozen=True)
class TeacherGap:
    """What a token earns by g and by the sign s of its row. Returns advantage [N].

    opd          g
    gated        s relu(s g)      right rows: max(0, g); wrong rows: min(0, g)
    inverse      g less that: where teacher and s are at odds
    random_gate  g at as many tokens as `gated` keeps, drawn over the rollout batch: a control

    s by `sign`: "verdict" 1 right, -1 wrong; "group" the sign of A, the group's advantage, 0 in silent groups. `scale`
    "advantage" multiplies with |A| + floor; A is divided by the group's spread if `std`. clamp: nats; None: no clamp.
    """

    mode: Mode = "opd"
    sign: Literal["verdict", "group"] = "verdict"
    scale: Literal["none", "advantage"] = "none"
    floor: float = 0.0
    std: bool = False
    clamp: float | None = 10.0
    gives: ClassVar = ("advantage",)
    properties: ClassVar = ("advantage=teacher",)

    def __post_init__(self) -> None:
        if self.floor < 0:
            raise ValueError(f"floor is added to |A| and is not negative; got {self.floor}")
        if self.floor and self.scale == "none":
            raise ValueError(f'floor = {self.floor} is added to |A|, which scale = "none" does not read')
        check_clamp(self.clamp)

    @property
    def grouped(self) -> bool:
        """Whether A is read."""
        return self.scale == "advantage" or (self.mode != "opd" and self.sign == "group")

    @property
    def needs(self) -> tuple[str, ...]:
        # the reward is told beside the verdicts, whether it decides or not
        judged = ("correct", "known", "reward") if self.mode != "opd" and self.sign == "verdict" else ()
        return (*SCORED, *judged, *(GroupNorm.needs if self.grouped else ()))

    @property
    def refuses(self) -> Mapping[str, str]:
        if self.grouped or self.mode == "opd":
            return {}
        why = "it asks the verdict, and what others pay beside it would be lost"
        return {"reward": f'{why}; opdvr(sign="group") asks whether the reward is above its group\'s mean'}

    def __call__(self, batch: Batch) -> Tensor:
        gap = teacher_gap(batch, self.clamp)
        earned = torch.where(torch.isnan(gap), gap, self._gated(batch, gap))  # a gate must not hide them
        if self.scale == "none":
            return earned
        return earned * batch.spread(GroupNorm(self.std)(batch).abs() + self.floor)

    def signs(self, batch: Batch) -> Tensor:
        """[N] s."""
        if self.sign == "verdict":
            return batch.spread(verdict_sign(batch))
        return batch.spread(GroupNorm(self.std)(batch).sign())

    def _gated(self, batch: Batch, gap: Tensor) -> Tensor:
        if self.mode == "opd":
            return gap
        sign = self.signs(batch)
        if self.mode == "gated":
            return agreeing(gap, sign)
        if self.mode == "inverse":
            return torch.where(sign * gap < 0, gap, 0.0)
        pool = (sign != 0) & (gap != 0)
        kept = int((sign * gap > 0).sum())
        if not kept:
            return torch.zeros_like(gap)
        noise = torch.where(pool, by_chance(batch), torch.inf)
        return torch.where(noise <= noise.sort().values[kept - 1], gap, 0.0)

    def tell(self, batch: Batch) -> dict[str, Tally]:
        told = gap_tallies(batch, self.clamp)
        if self.mode == "opd":
            return told
        gap, sign = teacher_gap(batch, self.clamp), self.signs(batch)
        zero, heard = self._gated(batch, gap) == 0, batch.spread(batch["teacher_known"])
        return told | {
            "teacher/gated": Tally.mean(zero, heard & (sign != 0)),
            "teacher/gated_right": Tally.mean(zero, heard & (sign > 0)),
            "teacher/gated_wrong": Tally.mean(zero, heard & (sign < 0)),
        }


@dataclass(frozen=True)
class JoinedTeacher:
    """The stack's advantage A and the teacher's g in one: baselines to hold a sequence of both against. Returns
    advantage [N].

    additive       A + b g
    additive_mask  A + b g on wrong rows, A on right ones
    anneal         A + b_k g, b_k linear from b in the run's first step to `last` in its last
    modulated      A exp(clip(sign(A) g, -1, 1))
    """

    mode: Literal["additive", "additive_mask", "anneal", "modulated"]
    b: float = 0.2
    last: float = 0.002
    clamp: float | None = 10.0

    def __post_init__(self) -> None:
        if self.b < 0 or self.last < 0:
            raise ValueError(f"b and last weigh the teacher and are not negative; got {self.b} and {self.last}")
        check_clamp(self.clamp)

    @property
    def rank(self) -> int:
        return 2 if self.mode == "modulated" else 3

    @property
    def needs(self) -> tuple[str, ...]:
        more = {"additive_mask": ("correct", "known"), "anneal": ("progress",)}
        return ("advantage", *SCORED, *more.get(self.mode, ()))

    def __call__(self, batch: Batch) -> Tensor:
        gap, advantage = teacher_gap(batch, self.clamp), batch["advantage"]
        if self.mode == "modulated":
            return advantage * (advantage.sign() * gap).clamp(-1, 1).exp()
        if self.mode == "additive_mask":
            gap = torch.where(batch.spread(verdict_sign(batch)) < 0, gap, 0.0)
        if self.mode == "anneal":
            weight = self.b + (self.last - self.b) * batch["progress"]
            return advantage + batch.spread(weight).to(gap.dtype) * gap
        return advantage + self.b * gap

    def tell(self, batch: Batch) -> dict[str, Tally]:
        return gap_tallies(batch, self.clamp)


def check_clamp(clamp: float | None) -> None:
    if clamp is not None and not clamp > 0:
        raise ValueError(f"clamp is the most nats that a teacher's word counts, above 0; got {clamp}")


def gap_tallies(batch: Batch, clamp: float | None) -> dict[str, Tally]:
    """Of the rows that the teacher looked at: KL(policy || teacher) a token, mean g of right and wrong answers, and how
    often it is at odds with the verdict."""
    gap, sign = teacher_gap(batch, clamp), batch.spread(verdict_sign(batch))
    heard = batch.spread(batch["teacher_known"])
    judged = heard & (sign != 0) & (gap != 0)
    return {
        "teacher/kl": Tally.mean(-gap, heard),
        "teacher/gap_right": Tally.mean(gap, heard & (sign > 0)),
        "teacher/gap_wrong": Tally.mean(gap, heard & (sign < 0)),
        "teacher/at_odds": Tally.mean(sign * gap < 0, judged),
    }

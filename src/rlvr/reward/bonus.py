"""Rewards on top of the verdict's score, for how an answer came about: drops of entropy, brevity among siblings.

Each is a part of the reward that adds to the score s, 1 for right and 0 for wrong; its cap or floor is one of their
sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rlvr.batch import Batch, Tally
from rlvr.reward.balance import shares
from rlvr.rollout.thinking import THINKS, thinking


@dataclass(frozen=True)
class EntropyRelief:
    """min(score + lam * gate * ERR, cap) - score. Returns {"entropy_relief": [R]}, equal on an episode's rows."""

    eps: float = 0.01
    lam: float = 0.3
    cap: float = 1.5
    gate: Literal["correct", "all"] = "correct"
    marked: bool = True
    silent_groups: bool = True
    parts: ClassVar = ("entropy_relief",)

    @property
    def needs(self) -> tuple[str, ...]:
        return ("entropy", "score", "correct", "known", "group", "episode", *((THINKS,) if self.marked else ()))

    def relief(self, batch: Batch) -> Tensor:
        """[R] float64, ERR."""
        entropy = batch["entropy"].double()
        drop = (batch.shift(entropy, -1, -torch.inf) - entropy - self.eps).clamp(min=0)
        thinks = thinking(batch)
        total = batch.episode_sum(batch.row_sum(torch.where(thinks, drop, 0.0)))
        tokens = batch.episode_sum(batch.row_sum(thinks))
        return torch.where(tokens > 1, total / (tokens + 1).clamp(min=2).log(), 0.0)

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        base, relief = batch["score"].double(), self.relief(batch)
        gated = relief if self.gate == "all" else torch.where(batch["correct"], relief, 0.0)
        bonus = (base + self.lam * gated).clamp(max=self.cap) - base
        return {"entropy_relief": _told_apart(batch, bonus, self.silent_groups)}

    def tell(self, batch: Batch) -> dict[str, Tally]:
        relief, (right, wrong) = self.relief(batch), _sides(batch)
        capped = batch["score"].double() + self.lam * relief > self.cap
        return {
            "err_plus/relief_right": Tally.mean(relief, right),
            "err_plus/relief_wrong": Tally.mean(relief, wrong),
            "err_plus/capped": Tally.mean(capped, right),
            "err_plus/answer_tokens": Tally.mean(batch.row_sum(~thinking(batch)), batch["known"]),
            **_both(batch, "entropy_relief"),
        }


@dataclass(frozen=True)
class RelativeEfficiency:
    """max(score + alpha * f, floor) - score. Returns {"relative_efficiency": [R]}, equal on an episode's rows."""

    alpha: float = 0.3
    gamma: float = 0.5
    floor: float = -0.5
    alone: tuple[float, float] | None = None  # mean and spread that a group of one is held against
    truncated_count: bool = True
    silent_groups: bool = True
    std_eps: ClassVar = 1e-5
    needs: ClassVar = ("score", "correct", "known", "truncated", "group", "episode", "path_length")
    parts: ClassVar = ("relative_efficiency",)

    def efficiency(self, batch: Batch) -> Tensor:
        """[R] float64, f."""
        length = episode_length(batch)
        where = batch["known"] if self.truncated_count else batch["known"] & ~batch["truncated"]
        std = batch.group_std(length, where)
        z = torch.where(std < self.std_eps, 0.0, (length - batch.group_mean(length, where)) / (std + self.std_eps))
        if self.alone is not None:
            z = torch.where(batch.group_count(where) <= 1, (length - self.alone[0]) / self.alone[1], z)
        f = torch.tanh(-self.gamma * z)
        return torch.where(batch["correct"], f, f.clamp(max=0))

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        base = batch["score"].double()
        bonus = (base + self.alpha * self.efficiency(batch)).clamp(min=self.floor) - base
        return {"relative_efficiency": _told_apart(batch, bonus, self.silent_groups)}

    def tell(self, batch: Batch) -> dict[str, Tally]:
        return _both(batch, "relative_efficiency")


def episode_length(batch: Batch) -> Tensor:
    """[R] float64: trained tokens of the row's episode, with those that its first row has from another's."""
    first = batch.one_row_an_episode(torch.ones(len(batch), dtype=torch.bool, device=batch.length.device))
    inherited = torch.where(first, batch["path_length"] - batch.length, 0)
    return batch.episode_sum(batch.length + inherited)


def _told_apart(batch: Batch, bonus: Tensor, silent_groups: bool) -> Tensor:
    """The bonus, or none of it in groups whose scores are all equal."""
    return bonus if silent_groups else torch.where(batch.group_std(batch["score"]) > 0, bonus, 0.0)


def _sides(batch: Batch) -> tuple[Tensor, Tensor]:
    return batch["correct"] & batch["known"], ~batch["correct"] & batch["known"]


def _both(batch: Batch, part: str) -> dict[str, Tally]:
    """What both phases tell: lengths, and how much of the rewards' variance the phase's part makes."""
    (right, wrong), length = _sides(batch), episode_length(batch)
    share = shares(batch).get(part)
    told = {"err_plus/length_right": Tally.mean(length, right), "err_plus/length_wrong": Tally.mean(length, wrong)}
    return told if share is None else {**told, "err_plus/bonus_share": Tally(share)}

"""Token and row weights that make up for where the rollouts come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rlvr.batch import Batch, Tally, ratio_at


@dataclass(frozen=True)
class SamplerRatio:
    """How likely the trainer finds what the sampler drew: w = exp(old_logp - behavior_logp) at a level ("token"; "row":
    the mean log-ratio of the row's tokens; "product": their sum). `truncate`: min(w, high); else: w inside [low, high],
    0 outside. Rows that no sampler drew weigh 1. Zeros stay in the denominators. Returns token_weight [N].

    Truncated importance sampling (Yao et al., 2025, "Your efficient RL framework secretly brings you off-policy RL
    training"), and its masked variant (IcePop, 2025).
    """

    high: float = 2.0
    low: float = 0.0
    truncate: bool = True
    level: Literal["token", "row", "product"] = "token"
    needs: ClassVar = ("old_logp", "behavior_logp")
    properties: ClassVar = ("corrects=sampler",)
    refuses: ClassVar = {"corrects=sampler": "both correct for the sampler, and twice is once too often"}

    def __call__(self, batch: Batch) -> Tensor:
        drawn = torch.isfinite(batch["behavior_logp"])
        anchor = torch.where(drawn, batch["behavior_logp"], batch["old_logp"])
        if self.level == "product":
            gap = batch.row_sum(batch["old_logp"] - anchor)
            weight = batch.spread(gap.clamp(-20, 20).exp())
        else:
            weight = ratio_at(batch["old_logp"], anchor, batch, self.level)
        if self.truncate:
            return weight.clamp(max=self.high)
        return torch.where((weight >= self.low) & (weight <= self.high), weight, 0.0)


@dataclass(frozen=True)
class OnlyRight:
    """1 for rows with a right verdict, else 0: what rejection sampling keeps. Returns row_weight [R]."""

    needs: ClassVar = ("correct",)

    def __call__(self, batch: Batch) -> Tensor:
        return batch["correct"].to(batch["behavior_logp"].dtype)


@dataclass(frozen=True)
class NotTruncated:
    """0 for rows that hit a length limit, else 1: what an unfinished answer is worth cannot be told (DAPO's overlong
    filtering, arXiv 2503.14476, section 3.4). Returns row_weight [R]."""

    needs: ClassVar = ("truncated",)

    def __call__(self, batch: Batch) -> Tensor:
        return (~batch["truncated"]).to(batch["behavior_logp"].dtype)


@dataclass(frozen=True)
class Taught:
    """0 for rows that the teacher did not look at (too long for it, or its server did not answer), else 1. Returns
    row_weight [R]."""

    needs: ClassVar = ("teacher_known",)

    def __call__(self, batch: Batch) -> Tensor:
        return batch["teacher_known"].to(batch["behavior_logp"].dtype)

    def tell(self, batch: Batch) -> dict[str, Tally]:
        return {"teacher/unknown": Tally.mean(~batch["teacher_known"])}

"""GAPO, group adaptive clipping: the rarer a right answer is in its group, the further its probability may rise.

    high(c) = low + (high_max - low) (k - c) / (k - 1)     right rows; c of the group's k known answers are right
    high    = low                                          wrong rows; the lower bound is `low` everywhere
    A_i     = r_i - mean_g                                 not divided by the group's spread, preferred

A lone right answer gets high_max, one of a solved group `low`. Why: in a trust region of reverse KL the best ratio is
exp(A / lambda), and A = 1 - c/k. Main form is GSPO's ratio of a row ("gapo,gspo"), the other one GRPO's of a token.

Source: arXiv 2609.00444 (EMNLP 2026). Bounds from there: (3e-3, 5e-3) for a row's ratio, (0.2, 0.28) for a token's,
and (7e-5, 3e-4) for models distilled on long answers. Modes but "linear" are ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rlvr.advantage.group import GroupNorm
from rlvr.batch import Batch, Tally
from rlvr.method import Method, Stack
from rlvr.registry import register

fills = ("bounds", "advantage")
paper = "Group Adaptive Clipping Policy Optimization, arXiv 2609.00444"
neutral = {"settings": {"low": 0.2, "high_max": 0.2, "std": True}, "equals": "grpo", "near": {"high_max": 0.28}}

BOUNDS = {"row": (3e-3, 5e-3)}  # by the level of the stack's ratio
SHORT = (0.2, 0.28)  # a token's ratio, and a segment's


@dataclass(frozen=True)
class GroupAdaptiveClip:
    """Upper bounds by how many of the group are right; x = (k - c) / (k - 1) with c in 1..k, and 1 where k = 1.

    linear      low + (high_max - low) x                  right rows
    exp         (1 + high_max)^x - 1                      right rows: exp(A / lambda) - 1, lambda such that A of a lone
                                                          right answer gives high_max
    advantage   linear, x = (s_i - mean_g s) k / (k - 1)  any row above its group's mean; s the verdict's score. Equal
                                                          to linear where scores are 0 and 1
    fixed       high_max                                  right rows, rare or not: a control

    low, high_max None: by the level of the stack's ratio. Returns clip_low [N], clip_high [N].
    """

    low: float | None = None
    high_max: float | None = None
    mode: Literal["linear", "exp", "advantage", "fixed"] = "linear"
    needs: ClassVar = ("behavior_logp", "score", "correct", "known", "group", "episode")

    def __post_init__(self) -> None:
        low, high = self.low, self.high_max
        if low is not None and not 0 <= low <= 1:
            raise ValueError(f"low lies in [0, 1], got {low}")
        if low is not None and high is not None and high < low:
            raise ValueError(f"high_max = {high} is below low = {low}; rare right answers get more room, not less")

    def settle(self, stack: Stack) -> GroupAdaptiveClip:
        low, high = BOUNDS.get(getattr(stack.one("ratio"), "level", "token"), SHORT)
        given = replace(self, low=low) if self.low is None else self
        return replace(given, high_max=high) if self.high_max is None else given

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        assert self.low is not None
        high = batch.spread(self.high(batch)).to(batch["behavior_logp"].dtype)
        return torch.full_like(high, self.low), high

    def high(self, batch: Batch) -> Tensor:
        """[R] float64 upper bounds."""
        assert self.low is not None
        assert self.high_max is not None
        right, k = batch["correct"] & batch["known"], batch.group_count()
        others = (k - 1).clamp(min=1)
        if self.mode == "advantage":
            score = batch["score"].double()
            room = ((score - batch.group_mean(score)) * k / others).clamp(0, 1)
            has_room = batch["known"]
        else:
            room = (k - batch.group_count(right).clamp(min=1)) / others
            has_room = right
        room = torch.where((k > 1) & (self.mode != "fixed"), room, right.double())
        if self.mode == "exp":
            high = torch.expm1(room * math.log1p(self.high_max))
        else:
            high = torch.lerp(torch.full_like(room, self.low), torch.full_like(room, self.high_max), room)
        return torch.where(has_room, high, self.low)

    def tell(self, batch: Batch) -> dict[str, Tally]:
        """Of the right rows that teach: those of mixed groups."""
        right = batch["correct"] & batch["known"]
        teaches = right & (batch.group_count(right) < batch.group_count())
        high = self.high(batch)[teaches]
        return {
            "gapo/high": Tally.mean(high),
            "gapo/high_std": Tally.mean(high.std(correction=0)[None] if len(high) else high),
        }


@register("method")
def gapo(
    method: Method,
    low: float | None = None,
    high_max: float | None = None,
    mode: Literal["linear", "exp", "advantage", "fixed"] = "linear",
    std: bool = False,
) -> Method:
    """Upper clip bounds that grow as right answers get rarer in their group.

    low: how far any ratio may fall, and how far that of a solved group may rise; None: 0.2, with a row's ratio 3e-3.
    high_max: how far the ratio of a lone right answer may rise; None: 0.28, with a row's ratio 5e-3.
    mode: "linear" is the paper's; "exp" follows the trust region itself; "advantage" reads graded scores; "fixed" is a
    control, high_max for every right answer.
    std: whether the stack's advantage stays as it is; otherwise the group's spread is not divided out.
    """
    method = method.firm("gapo", bounds=GroupAdaptiveClip(low, high_max, mode))
    return method if std else method.prefer("gapo", advantage=GroupNorm(std=False))

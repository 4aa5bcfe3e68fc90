"""How far the importance ratio may move before its gradient stops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlvr.batch import Batch
from rlvr.method import Method


@dataclass(frozen=True)
class Clip:
    """The same bounds for every token: the ratio is clipped to [1 - low, 1 + high]. Returns clip_low [N], clip_high
    [N]."""

    low: float = 0.2  # PPO (arXiv 1707.06347)
    high: float = 0.2
    needs: ClassVar = ("behavior_logp",)

    def __post_init__(self) -> None:
        if not (0 <= self.low <= 1 and self.high >= 0):
            raise ValueError(f"clip_low lies in [0, 1] and clip_high is not negative, got {self.low} and {self.high}")

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        like = batch["behavior_logp"]
        return torch.full_like(like, self.low), torch.full_like(like, self.high)


def prefer_bounds(
    method: Method, paper: str, low: tuple[float | None, float], high: tuple[float | None, float]
) -> Method:
    """Set a paper's clip bounds, each (what the user asked for, the paper's own): what somebody asked for is firm, a
    paper's own value is a preference."""
    asked = low[0] is not None or high[0] is not None
    piece = Clip(*(own if given is None else given for given, own in (low, high)))
    return (method.firm if asked else method.prefer)(paper, bounds=piece)

"""Advantages relative to the row's own group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlvr.batch import Batch


@dataclass(frozen=True)
class GroupNorm:
    """A_i = (r_i - mean_g) / (std_g + eps), over the known episodes of the row's group g; population std.

    Groups whose rewards do not differ get exactly 0, rows without a verdict too. `std=False` leaves the division out.
    Returns row_advantage [R].
    """

    std: bool = True
    eps: float = 1e-6  # as in verl
    needs: ClassVar = ("reward", "group", "known", "episode")
    gives: ClassVar = ("row_advantage",)

    def __call__(self, batch: Batch) -> Tensor:
        reward = batch["reward"].double()
        advantage = reward - batch.group_mean(batch["reward"])
        std = batch.group_std(batch["reward"])
        scaled = advantage / (std + self.eps) if self.std else advantage
        return torch.where(batch["known"] & (std > 0), scaled, 0.0).to(batch["reward"].dtype)


@dataclass(frozen=True)
class LeaveOneOut:
    """A_i = r_i - mean of the other known episodes of the group = (r_i - mean_g) n / (n - 1); 0 for a group of one.

    RLOO (arXiv 2402.14740). There is no division by a spread: of nearly equal rewards it is rounding noise. Returns
    row_advantage [R].
    """

    needs: ClassVar = ("reward", "group", "known", "episode")
    gives: ClassVar = ("row_advantage",)

    def __call__(self, batch: Batch) -> Tensor:
        n = batch.group_count()
        centred = batch["reward"].double() - batch.group_mean(batch["reward"])
        alone = ~batch["known"] | (n < 2) | (batch.group_std(batch["reward"]) == 0)
        return torch.where(alone, 0.0, centred * n / (n - 1).clamp(min=1)).to(batch["reward"].dtype)

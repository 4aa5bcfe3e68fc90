"""my_method: blame less than you praise.

    A'_t = A_t           where A_t >= 0
    A'_t = blame * A_t   where A_t < 0

A_t is the advantage of token t. With blame = 1 nothing changes; with blame = 0 only better-than-expected answers teach.

A paper fills slots with pieces ("rlvr explain slots"). A piece is a frozen dataclass: its fields are hyper-parameters,
`__call__` computes, `needs` names the streams that it reads ("rlvr explain streams"). This one sits in `reshape`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlvr.batch import Batch
from rlvr.method import Method

fills = ("reshape",)
paper = "unpublished"
# The law of neutrality: with these settings the paper must equal the stack `equals`, and near them it must not.
neutral = {"settings": {"blame": 1.0}, "equals": "grpo", "near": {"blame": 0.9}}


@dataclass(frozen=True)
class MyMethod:
    """Negative advantages times `blame`. Returns advantage [N]."""

    blame: float = 0.5
    needs: ClassVar = ("advantage",)
    rank: ClassVar = 2  # among reshapes: 1 bounds, 2 scales, 3 adds

    def __post_init__(self) -> None:
        if not 0 <= self.blame <= 1:
            raise ValueError(f"blame lies in [0, 1], got {self.blame}")

    def __call__(self, batch: Batch) -> Tensor:
        advantage = batch["advantage"]
        return torch.where(advantage < 0, self.blame * advantage, advantage)


def my_method(method: Method, blame: float = 0.5) -> Method:
    """Negative advantages count less.

    blame: what a negative advantage is multiplied with (0.5: our choice; 1 changes nothing).
    """
    return method.firm("my_method", reshape=MyMethod(blame))

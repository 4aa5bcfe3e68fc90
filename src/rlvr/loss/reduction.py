"""How token losses become one number. Each returns the factor [N] that, times row and token weights, is `weight`.

Counted tokens are those that no selecting token weight dropped; counted rows have a row_weight above 0. Denominators
are taken over the whole optimiser batch, so micro-batches cannot change them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlvr.batch import Batch
from rlvr.method import Stack

NEEDS = ("row_weight", "token_weight", "token_counted")


def counted_tokens(batch: Batch) -> Tensor:
    """[N] bool: tokens that stand in denominators: not selected away, in a row that weighs something."""
    return batch["token_counted"] & (batch.spread(batch["row_weight"]) > 0)


@dataclass(frozen=True)
class TokenMean:
    """1 / (counted tokens of the optimiser batch). DAPO's token mean (arXiv 2503.14476)."""

    needs: ClassVar = NEEDS

    def __call__(self, batch: Batch) -> Tensor:
        counted = counted_tokens(batch)
        return counted.to(batch["token_weight"].dtype) / counted.sum().clamp(min=1)


@dataclass(frozen=True)
class RowMean:
    """1 / (counted tokens of the row) / (counted rows that have any): the mean over rows of each row's mean. The first
    GRPO (arXiv 2402.03300)."""

    needs: ClassVar = NEEDS

    def __call__(self, batch: Batch) -> Tensor:
        counted = counted_tokens(batch).to(batch["token_weight"].dtype)
        n = batch.row_sum(counted)
        return counted / batch.spread(n.clamp(min=1)) / (n > 0).sum().clamp(min=1)


@dataclass(frozen=True)
class RowSum:
    """1 / (counted rows that have counted tokens): the mean over rows of each row's sum."""

    needs: ClassVar = NEEDS

    def __call__(self, batch: Batch) -> Tensor:
        counted = counted_tokens(batch).to(batch["token_weight"].dtype)
        return counted / (batch.row_sum(counted) > 0).sum().clamp(min=1)


@dataclass(frozen=True)
class Constant:
    """1 / (counted rows * length): Dr.GRPO's reduction, which no row's own length enters (arXiv 2503.20783). A counted
    row without trained tokens stands in the denominator, as in the paper's B. length None: the run's max_tokens."""

    length: int | None = None
    needs: ClassVar = NEEDS

    def __post_init__(self) -> None:
        if self.length is not None and self.length < 1:
            raise ValueError(f"length is the number of tokens that a row counts as, at least 1; got {self.length}")

    def settle(self, stack: Stack) -> Constant:
        return self if self.length is not None else Constant(stack.run["max_tokens"])

    def __call__(self, batch: Batch) -> Tensor:
        assert self.length is not None
        rows = (batch["row_weight"] > 0).sum().clamp(min=1)
        return torch.where(counted_tokens(batch), 1.0, 0.0).to(batch["token_weight"].dtype) / (rows * self.length)

"""Where in what the policy wrote thinking ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from rlvr import streams
from rlvr.batch import Batch
from rlvr.records import Group
from rlvr.rollout.world import World

THINKS = "thinks"
streams.declare("token", THINKS, "1 before the end of thinking, 0 from there on")


@dataclass(frozen=True)
class Thinking:
    """Which tokens stand before the first `mark` in what the policy wrote. A token that holds a part of it does not."""

    mark: str
    gives: ClassVar = (THINKS,)

    async def __call__(self, group: Group, world: World) -> dict[str, list[np.ndarray]]:
        return {THINKS: [self.of(row.ids, row.wrote(), world.renderer.decode) for row in group.rollouts]}

    def of(self, ids: np.ndarray, wrote: np.ndarray, decode: Callable[[Sequence[int]], str]) -> np.ndarray:
        """[T] for one chain of T ids; `wrote` [T] says which are the policy's."""
        at = np.flatnonzero(wrote)
        said = lambda n: decode(ids[at[:n]].tolist())  # noqa: E731
        thinks = np.ones(len(ids), np.float32)
        if self.mark in said(len(at)):
            whole = _first(len(at), lambda n: self.mark in said(n))
            start = said(whole).index(self.mark)
            first = whole
            while first > 1 and len(said(first - 1)) > start:  # back over the mark's own tokens
                first -= 1
            thinks[at[first - 1 :]] = 0.0
        return thinks


def _first(n: int, holds: Callable[[int], bool]) -> int:
    """The smallest of 1..n for which `holds`, which stays true once it is; n where only that one is left."""
    low, high = 1, n
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def thinking(batch: Batch) -> Tensor:
    """[N] bool: tokens before the end of thinking; all of them in a batch, or on rows (nan), that nobody marked."""
    return batch[THINKS] != 0 if THINKS in batch else torch.ones_like(batch.row, dtype=torch.bool)

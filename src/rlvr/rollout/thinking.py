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
        text = said(len(at))
        if self.mark in text:
            start = text.index(self.mark)
            guess = len(at) * (start + 1) // len(text)
            thinks[at[_first(len(at), lambda n: len(said(n)) > start, guess) - 1 :]] = 0.0
        return thinks


def _first(n: int, holds: Callable[[int], bool], guess: int) -> int:
    """The smallest of 1..n for which `holds`, which stays true once it is and is so at n; looked for from `guess` on,
    in steps that double until it lies between two, then halve."""
    low, high, at, step = 0, n, guess, 1
    while high - low > 1:
        at = min(max(at, low + 1), high - 1)
        if holds(at):
            high, at = at, at - step
        else:
            low, at = at, at + step
        step *= 2
        if low > 0 and high < n:
            at = (low + high) // 2
    return high


def thinking(batch: Batch) -> Tensor:
    """[N] bool: tokens before the end of thinking; all of them in a batch, or on rows (nan), that nobody marked."""
    return batch[THINKS] != 0 if THINKS in batch else torch.ones_like(batch.row, dtype=torch.bool)

"""Reward parts that hold the policy near something: a reference, a length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rlvr.batch import Batch
from rlvr.method import Stack


@dataclass(frozen=True)
class KLInReward:
    """-coef * (old_logp - ref_logp) at every token (k1, as in the first PPO for language models, arXiv 1909.08593).
    Returns {"kl": [N]}."""

    coef: float
    refresh: int = 0
    per_token: ClassVar = True
    needs: ClassVar = ("old_logp", "ref_logp")
    parts: ClassVar = ("kl",)

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        return {"kl": -self.coef * (batch["old_logp"] - batch["ref_logp"])}


@dataclass(frozen=True)
class Overlong:
    """DAPO's soft punishment of length (arXiv 2503.14476, eq. 13), L tokens on the row's path, max_length the run's
    max_tokens:

        0                                     L <= max_length - buffer
        (max_length - buffer - L) / buffer    up to max_length
        -1                                    beyond

    Returns {"overlong": [R]}.
    """

    buffer: int | None = None  # None: a fifth of max_length, as in the paper's 4096 of 20480
    max_length: int | None = None  # None: the run's max_tokens
    weight: float = 1.0
    needs: ClassVar = ("path_length",)
    parts: ClassVar = ("overlong",)

    def settle(self, stack: Stack) -> Overlong:
        longest = self.max_length or int(stack.run["max_tokens"])
        buffer = max(1, longest // 5) if self.buffer is None else self.buffer
        if not 0 < buffer <= longest:
            raise ValueError(f"overlong buffer = {buffer} lies outside 1..{longest}, the longest answer")
        return Overlong(buffer, longest, self.weight)

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        assert self.buffer is not None
        assert self.max_length is not None
        over = batch["path_length"].to(batch["behavior_logp"].dtype) - (self.max_length - self.buffer)
        return {"overlong": -(over / self.buffer).clamp(0.0, 1.0)}

"""Policy losses: one value a token, never reduced here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlvr.batch import Batch, Now, Tally


@dataclass(frozen=True)
class Clipped:
    """-min(q A, clip(q, 1 - clip_low, 1 + clip_high) A), q the plan's ratio. PPO's surrogate (arXiv 1707.06347, eq. 7).
    Returns token_loss [N]."""

    name: ClassVar = "policy"
    needs: ClassVar = ("advantage", "clip_low", "clip_high")
    reads: ClassVar = ("logp", "ratio")

    def idle(self, batch: Batch) -> Tensor:
        return batch["advantage"] == 0

    def __call__(self, now: Now, batch: Batch) -> tuple[Tensor, dict[str, Tally]]:
        assert now.ratio is not None
        q, a = now.ratio, batch["advantage"]
        low, high = 1 - batch["clip_low"], 1 + batch["clip_high"]
        surrogate = torch.minimum(q * a, torch.clamp(q, low, high) * a)
        ratio, counts = q.detach(), ~self.idle(batch) & (batch["weight"] != 0)
        clipped = ((a > 0) & (ratio > high)) | ((a < 0) & (ratio < low))
        return -surrogate, {
            "policy/clip_frac": Tally.mean(clipped, counts),
            "policy/ratio_max": Tally.max(ratio, counts),
        }


@dataclass(frozen=True)
class ClippedWeight:
    """-sg(clip(q, 1 - clip_low, 1 + clip_high)) A logp: a clipped importance weight before the plain policy gradient,
    so that no token's gradient is lost. CISPO (arXiv 2506.13585, eq. 4-5). Returns token_loss [N]."""

    name: ClassVar = "policy"
    needs: ClassVar = ("advantage", "clip_low", "clip_high")
    reads: ClassVar = ("logp", "ratio")

    def idle(self, batch: Batch) -> Tensor:
        return batch["advantage"] == 0

    def __call__(self, now: Now, batch: Batch) -> tuple[Tensor, dict[str, Tally]]:
        assert now.ratio is not None
        q, low, high = now.ratio.detach(), 1 - batch["clip_low"], 1 + batch["clip_high"]
        counts = ~self.idle(batch) & (batch["weight"] != 0)
        return -torch.clamp(q, low, high) * batch["advantage"] * now.logp, {
            "policy/clip_frac": Tally.mean((q < low) | (q > high), counts),
            "policy/ratio_max": Tally.max(q, counts),
        }


@dataclass(frozen=True)
class NegativeLogLikelihood:
    """-logp: imitate the row. Returns token_loss [N]."""

    name: ClassVar = "policy"
    reads: ClassVar = ("logp",)

    def __call__(self, now: Now, batch: Batch) -> tuple[Tensor, dict[str, Tally]]:
        return -now.logp, {"sft/nll": Tally.mean(-now.logp, batch["weight"] != 0)}


@dataclass(frozen=True)
class Nothing:
    """0 for every token: the policy stands still while something else learns. Reads what the method's own loss would
    read, so that whatever feeds it stays alive. Returns token_loss [N]."""

    name: ClassVar = "policy"
    needs: ClassVar = ("advantage", "clip_low", "clip_high")
    reads: ClassVar = ("logp", "ratio")

    def idle(self, batch: Batch) -> Tensor:
        return torch.ones_like(batch.row, dtype=torch.bool)

    def __call__(self, now: Now, batch: Batch) -> tuple[Tensor, dict[str, Tally]]:
        return now.logp * 0.0, {}

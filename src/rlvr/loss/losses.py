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

"""Importance ratios between the running policy and the one that started the step's updates."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rlvr.batch import Batch, Now, ratio_at


@dataclass(frozen=True)
class Ratio:
    """exp(mean of logp - old_logp over the token's level): 'token' (GRPO), 'row' (GSPO), or a stream of segment starts.
    Returns [N], with gradient."""

    level: str = "token"

    @property
    def needs(self) -> tuple[str, ...]:
        return ("old_logp", *(() if self.level in ("token", "row") else (self.level,)))

    def __call__(self, now: Now, batch: Batch) -> Tensor:
        return ratio_at(now.logp, batch["old_logp"], batch, self.level)

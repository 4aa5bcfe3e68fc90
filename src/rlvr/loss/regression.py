"""Sequence regression: a row's log-prob, measured from an anchor, is drawn to a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rlvr.batch import Batch, Now, Tally


@dataclass(frozen=True)
class SequenceRegression:
    """w_i r_i^2,   r_i = scale * sum over t of (logp_t - anchor_t) / length_i^rho - target_i

    w_i = 1, or with `weight_clip` min(exp(sum of (logp_t - old_logp_t) / length_i^rho), weight_clip), no gradient.
    centre: a row stream of keys; r_i is then measured from its mean over the rows of its key that weigh something, at
    the present policy: what is best for a constant that they share. anchor [N], target [R]: names of streams.

    Laid on every token of the row, so that a row mean is the mean over rows. Rows without weight enter nothing. Returns
    token_loss [N].
    """

    target: str
    anchor: str
    scale: float = 1.0
    rho: float = 0.0
    weight_clip: float | None = None
    centre: str | None = None
    name: ClassVar = "policy"
    reads: ClassVar = ("logp",)
    refuses: ClassVar = {
        "token_weight": "a sequence's residual is one number a row, so a weight that differs inside it has no meaning"
    }

    def __post_init__(self) -> None:
        if self.weight_clip is not None and self.weight_clip <= 0:
            raise ValueError(f"weight_clip is the largest weight of a row, above 0; got {self.weight_clip}")

    @property
    def needs(self) -> tuple[str, ...]:
        old = ("old_logp",) if self.weight_clip is not None else ()
        return (self.target, self.anchor, *((self.centre,) if self.centre else ()), *old)

    @property
    def together(self) -> Literal["row", "group"]:
        return "group" if self.centre else "row"

    def __call__(self, now: Now, batch: Batch) -> tuple[Tensor, dict[str, Tally]]:
        moved = per_row(now.logp - batch[self.anchor], batch, self.rho)
        counts = batch.row_sum(batch["weight"] != 0) > 0
        residual = torch.where(counts, self.scale * moved - batch[self.target], 0.0)
        if self.centre:
            residual = residual - batch.mean_by(batch[self.centre], residual.detach(), counts).to(residual.dtype)
        weight = torch.ones_like(residual)
        if self.weight_clip is not None:
            ratio = per_row(now.logp.detach() - batch["old_logp"], batch, self.rho).clamp(-20, 20).exp()
            weight = ratio.clamp(max=self.weight_clip)
        told = {"regression/residual": Tally.mean(residual.abs(), counts)}
        return batch.spread(weight * residual**2), told


def per_row(x: Tensor, batch: Batch, rho: float) -> Tensor:
    """[R] sum of a token stream over each row, by length^rho; 0 for empty rows."""
    return batch.row_sum(x) / batch.length.clamp(min=1).to(x.dtype) ** rho

"""Which tokens have the largest scores: a choice over a batch, a group or an answer at a time."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rlvr.batch import Batch
from rlvr.loss.reduction import counted_tokens
from rlvr.records import digest, mix

Scope = Literal["batch", "group", "answer"]


def top_tokens(batch: Batch, score: Tensor, keep: float, scope: Scope) -> Tensor:
    """[N] bool: the ceil(keep * n) counted tokens of highest score in each unit of the scope, n its counted tokens.

    Of equal scores those of the lowest row id come first, then the earliest; a score of 0 or less is never kept.
    """
    counted = counted_tokens(batch)
    if bool((counted & ~torch.isfinite(score)).any()):
        ids = batch["id"][torch.unique(batch.row[counted & ~torch.isfinite(score)])].tolist()
        raise ValueError(f"tokens cannot be ranked: entropy or slope is not finite on rows {ids[:20]}")
    order = batch.token_index(torch.argsort(batch["id"], stable=True))
    order = order[counted[order]]
    order = order[torch.argsort(score[order], descending=True, stable=True)]
    unit = {"batch": torch.zeros_like(batch.row), "group": batch.spread(batch["group"]), "answer": batch.row}[scope]
    order = order[torch.argsort(unit[order], stable=True)]
    _, of, n = torch.unique_consecutive(unit[order], return_inverse=True, return_counts=True)
    rank = torch.arange(len(order), device=order.device) - (n.cumsum(0) - n)[of]
    wanted = torch.ceil(keep * n.double() - 1e-6).clamp(min=1)  # 0.07 * 100 is a little above 7 in floating point
    chosen = torch.zeros_like(counted)
    chosen[order[rank < wanted[of]]] = True
    return chosen & (score > 0)


def by_chance(batch: Batch) -> Tensor:
    """[N] scores in (0, 1]: noise that the batch's own tokens seed, so that the order of rows cannot enter."""
    order = batch.token_index(torch.argsort(batch["id"], stable=True))
    seed = mix(0, "gmts", digest(batch["token"][order].cpu().numpy()))
    noise = 1 - torch.rand(len(order), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    out = torch.empty_like(noise)
    out[order.cpu()] = noise
    return out.to(batch.row.device)


def gini(x: Tensor) -> Tensor:
    """Gini coefficient of values [n] that are not negative: 0 where all are equal, (n - 1) / n where one has it all."""
    x = x.double().sort().values
    n, place = len(x), torch.arange(1, len(x) + 1, device=x.device)
    return ((2 * place - n - 1) * x).sum() / (n * x.sum())

"""Where rows are cut into segments: at peaks of entropy, or anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import torch
from torch import Tensor

from rlvr.batch import Batch
from rlvr.records import digest, mix


def entropy_peaks(batch: Batch, smoothing: float, quantile: float, window: int) -> list[int]:
    """Inner tokens of rows, in order, at which the running mean of `entropy` (weight `smoothing` on the newest) is at
    least its row's quantile and its neighbours', and the largest within window // 2 tokens; from the left, at most one
    in any window + 1 tokens. Raises ValueError where an entropy is not a number."""
    entropy = batch["entropy"]
    if not len(entropy):
        return []
    if bool(torch.isnan(entropy).any()):
        ids = batch["id"][torch.unique(batch.row[torch.isnan(entropy)])].tolist()
        raise ValueError(f"the entropy is not a number on rows {ids[:20]}")
    # Counted from the row's first entropy, a flat row stays exactly flat: no rounding that could look like a peak.
    from_first = entropy - entropy[batch.first[batch.row]]
    e = batch.scan(smoothing * from_first, 1 - smoothing)
    inner = ~row_starts(batch)
    inner[(batch.length.cumsum(0) - 1)[batch.length > 0]] = False
    cutoff = batch.spread(batch.row_quantile(e, quantile, inner))
    peak = inner & (e >= cutoff) & (e >= batch.shift(e, -1, torch.inf)) & (e > batch.shift(e, 1, torch.inf))
    half = window // 2
    if half >= int(batch.length.max()):  # all of the row is near
        top = e.new_full((len(batch),), -torch.inf)
        peak &= e >= batch.spread(top.scatter_reduce(0, batch.row, e, "amax"))
    else:
        peak &= e >= torch.maximum(_reach(batch, e, half, 1), _reach(batch, e, half, -1))
    at = peak.nonzero()[:, 0]
    kept: list[int] = []
    before = (-1, 0)
    for t, row in zip(at.tolist(), batch.row[at].tolist()):
        if before[0] != row or t - before[1] > window:
            kept.append(t)
            before = (row, t)
    return kept


def row_starts(batch: Batch) -> Tensor:
    """[N] bool: first tokens of rows."""
    start = torch.zeros_like(batch.row, dtype=torch.bool)
    start[batch.first[batch.length > 0]] = True
    return start


def elsewhere(batch: Batch, ends: Sequence[int]) -> list[int]:
    """As many tokens of the same rows by chance; noise that a row's own tokens seed, so that order cannot enter."""
    out: list[int] = []
    for row, n in Counter(batch.row[list(ends)].tolist()).items():
        first, length = int(batch.first[row]), int(batch.length[row])
        chance = Random(mix(0, "hispo", digest(batch["token"][first : first + length].cpu().numpy())))
        out += [first + place for place in chance.sample(range(length - 1), n)]
    return out


def _reach(batch: Batch, x: Tensor, n: int, way: int) -> Tensor:
    """[N] the largest x among a token and the n after it (way -1: before it) in its row."""
    size = 1
    while size <= n:
        step = min(size, n + 1 - size)
        x = torch.maximum(x, batch.shift(x, way * step, -torch.inf))
        size += step
    return x

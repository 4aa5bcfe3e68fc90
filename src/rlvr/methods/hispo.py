"""HISPO, hierarchical importance sampling: ratio, clip and credit by segments that end where the policy was unsure.

    e_t  = a H_t + (1 - a) e_(t-1),  e_1 = H_1        H_t entropy at rollout time
    ends   inner t with e_t >= the row's q-quantile of inner e, e_t >= e_(t-1), e_t > e_(t+1), e_t the largest within
           D // 2 tokens; from the left, at most one in any D + 1 tokens. The row's last token ends a segment too.
    w_k  = softmax over the row's segments k of (mean of H over S_k)                 S_k the segment's tokens
    s_k  = exp(mean over S_k of logp_t - old_logp_t)
    loss = mean over rows of sum over k of -|S_k| min(s_k A_k, clip(s_k, 1 - clip_low, 1 + clip_high) A_k)
           A_k = w_k / max(|S_k|, floor) * (mean of A_t over S_k)

In the batch's terms: `hispo/start`, a ratio at its level, a token weight w_k / max(|S_k|, floor), and rows that are
summed up. The weights of a row add up to 1, less what `floor` takes from short segments.

Source: arXiv 2609.15471; a = 0.1, q = 0.6, D = 64, floor = 16 are its appendix's. It names no clip bounds: the stack's
hold. Ours: linear quantile, D // 2 as half-width (the text says "centred"), and the mean of advantages that differ
within a segment. For answers of thirty tokens see recipes/methods/hispo.toml.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rlvr.batch import Batch, Tally
from rlvr.loss.bounds import prefer_bounds
from rlvr.loss.ratio import Ratio
from rlvr.loss.reduction import RowSum
from rlvr.loss.segments import elsewhere, entropy_peaks, row_starts
from rlvr.method import Method
from rlvr.registry import register
from rlvr.streams import declare

fills = ("derive", "reshape", "token_weight", "ratio", "bounds", "reduction")
paper = "Hierarchical Importance-Sampling Policy Optimization, arXiv 2609.15471"
# Without peaks a row is one segment, with GSPO's ratio; a floor of 1 takes nothing from it.
neutral = {
    "settings": {"floor": 1},
    "input": "flat_entropy",
    "equals": "gspo(clip_low=0.2, clip_high=0.2)",
    "near": {"floor": 16},
    "exact": False,
}
declare("token", "hispo/start", "first token of a segment")


def flat_entropy(batch: Batch, policy: Any) -> tuple[Batch, Any]:
    """Everywhere as unsure as anywhere."""
    return batch.with_({"entropy": torch.full_like(batch["entropy"], 0.7)}), policy


@dataclass(frozen=True)
class EntropySegments:
    """Segments as above. Gives hispo/start [N] bool. Raises ValueError where an entropy is not a number.

    cut: "random" puts as many ends elsewhere in the row, "even" one at every `window` tokens: controls, our own.
    """

    smoothing: float = 0.1
    quantile: float = 0.6
    window: int = 64
    cut: Literal["entropy", "random", "even"] = "entropy"
    needs: ClassVar = ("entropy", "token")
    gives: ClassVar = ("hispo/start",)

    def __post_init__(self) -> None:
        if not 0 < self.smoothing <= 1:
            raise ValueError(f"smoothing is the weight of the newest entropy, in (0, 1]; got {self.smoothing}")
        if not 0 <= self.quantile <= 1:
            raise ValueError(f"quantile lies in [0, 1], got {self.quantile}")
        if self.window < 1:
            raise ValueError(f"window counts tokens, at least 1; got {self.window}")

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        start = row_starts(batch)
        if self.cut == "even":
            place = torch.arange(len(start), device=start.device) - batch.first[batch.row]
            return {"hispo/start": place % self.window == 0}
        ends = entropy_peaks(batch, self.smoothing, self.quantile, self.window)
        ends = ends if self.cut == "entropy" else elsewhere(batch, ends)
        start[torch.tensor(ends, dtype=torch.long, device=start.device) + 1] = True
        return {"hispo/start": start}

    def tell(self, batch: Batch) -> dict[str, Tally]:
        start = batch["hispo/start"]
        return {
            "hispo/segments": Tally.mean(batch.row_sum(start), batch.length > 0),
            "hispo/segment_length": Tally(float(len(start)), start.sum()),
        }


@dataclass(frozen=True)
class Saliency:
    """w_k / max(|S_k|, floor); even: w_k alike for all segments of a row, a control. Returns token_weight [N]."""

    floor: int = 16
    even: bool = False
    needs: ClassVar = ("entropy", "hispo/start")

    def __post_init__(self) -> None:
        if self.floor < 1:
            raise ValueError(f"floor is the fewest tokens that a segment counts as, at least 1; got {self.floor}")

    def __call__(self, batch: Batch) -> Tensor:
        return self.shares(batch) / self.sizes(batch)

    def sizes(self, batch: Batch) -> Tensor:
        """[N] max(|S_k|, floor) of each token's segment."""
        segment = batch["hispo/start"].cumsum(0)
        return torch.bincount(segment)[segment].clamp(min=self.floor)

    def shares(self, batch: Batch) -> Tensor:
        """[N] w_k of each token's segment."""
        start = batch["hispo/start"]
        mean = batch.segment_mean(batch["entropy"], start)
        mean = torch.zeros_like(mean) if self.even else mean
        top = torch.full((len(batch),), -torch.inf, dtype=mean.dtype, device=mean.device)
        e = (mean - batch.spread(top.scatter_reduce(0, batch.row, mean, "amax"))).exp()
        return e / batch.spread(batch.row_sum(torch.where(start, e, 0.0)))

    def tell(self, batch: Batch) -> dict[str, Tally]:
        share, busy = self.shares(batch), batch.length > 0
        surprise = torch.where(batch["hispo/start"], -torch.xlogy(share, share), 0.0)
        return {
            "hispo/share_entropy": Tally.mean(batch.row_sum(surprise), busy),
            "hispo/mass": Tally.mean(batch.row_sum(share / self.sizes(batch)), busy),
        }


@dataclass(frozen=True)
class SegmentMean:
    """A_t averaged over its segment: what is clipped together is worth one thing. Returns advantage [N]."""

    needs: ClassVar = ("advantage", "hispo/start")
    rank: ClassVar = 9  # when everybody else has said what a token is worth

    def __call__(self, batch: Batch) -> Tensor:
        return batch.segment_mean(batch["advantage"], batch["hispo/start"])


@register("method")
def hispo(
    method: Method,
    smoothing: float = 0.1,
    quantile: float = 0.6,
    window: int = 64,
    floor: int = 16,
    clip_low: float | None = None,
    clip_high: float | None = None,
    cut: Literal["entropy", "random", "even"] = "entropy",
    even: bool = False,
) -> Method:
    """Importance ratios, clipping and credit by segments that are cut at peaks of entropy.

    smoothing: weight of the newest entropy in the running mean. quantile: a peak is at least this high in its row.
    window: tokens within which one peak counts. floor: the fewest tokens that a segment counts as.
    clip_low, clip_high: bounds of a segment's ratio, which moves less than a token's; None: the stack's.
    cut, even: controls. "random" cuts as often, anywhere; "even" every `window` tokens; even: segments weigh alike.
    """
    method = method.firm(
        "hispo",
        derive=EntropySegments(smoothing, quantile, window, cut),
        reshape=SegmentMean(),
        token_weight=Saliency(floor, even),
        ratio=Ratio("hispo/start"),
    ).prefer("hispo", reduction=RowSum())
    if clip_low is None and clip_high is None:
        return method
    return prefer_bounds(method, "hispo", (clip_low, 0.2), (clip_high, 0.2))

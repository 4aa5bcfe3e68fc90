"""GMTS, gradient-magnitude token selection: train on the tokens whose gradient is estimated to be longest.

    omega_t = d(policy losses)/d logp_t              at the current weights; -q_t A_t inside the clip, 0 where it acts
    delta_t = H_t |omega_t|                          H_t entropy of the current policy in nats
    keep the ceil(keep * N) tokens of largest delta  N counted tokens of the scope; of equals the first, row by row;
                                                     a token with delta = 0 is never kept
    loss = the stack's, over the kept tokens         its denominators count those alone

The gradient of token t with respect to the logits has length |omega_t| G_t, G_t = |onehot(y_t) - p_t|. As p(y_t) -> 1,
log G_t / log H_t -> 1 (slowly: 1.37 at 1e-4 from 1), so entropy stands in for G_t, which would need the vocabulary.
Other papers' token and row weights scale a gradient and so its delta. The choice is made anew before every optimiser
step, over the whole optimiser batch. `keep = 1` selects nothing away, zeros included.

Source: arXiv 2608.30632; keep = 0.2, the batch as scope and ETS, the baseline by entropy alone and answer by answer,
are the paper's. Its released code takes each group apart and divides by lengths (`scope`, `divide_by`); there the
share is the one removed. `norm`, `gini` and `random` are our controls: G_t itself, the mean of G_t^2 over tokens that
might have come, and chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rlvr import streams
from rlvr.batch import Batch, Tally
from rlvr.loss.reduction import counted_tokens
from rlvr.loss.selection import Scope, by_chance, gini, top_tokens
from rlvr.method import Method
from rlvr.registry import register
from rlvr.views import Seen, View

fills = ("token_weight",)
paper = "GMTS: gradient magnitude-based token selection, arXiv 2608.30632"
neutral = {"settings": {"keep": 1.0}, "equals": "grpo", "near": {"keep": 0.9}}

streams.declare("token", "gmts/collision", "sum of squared probabilities over the vocabulary, at the current weights")


@dataclass(frozen=True)
class Collision:
    """Probe: sum over the vocabulary of p^2."""

    gives: ClassVar = ("gmts/collision",)

    def __call__(self, seen: Mapping[str, Seen]) -> dict[str, Tensor]:
        (one,) = seen.values()
        return {"gmts/collision": (2 * one.logp_all).exp().sum(-1)}


@dataclass(frozen=True)
class TopTokens:
    """1 for the kept tokens, else 0. Returns token_weight [N]. Raises ValueError where a score is not a number."""

    keep: float = 0.2
    scope: Scope = "batch"
    rank_by: Literal["gradient", "entropy", "norm", "gini", "random"] = "gradient"
    divide_by: Literal["row", "group"] | None = None
    on_update: ClassVar = True
    selects: ClassVar = True

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1:
            raise ValueError(f"keep is the share of tokens that are trained on, above 0 and at most 1; got {self.keep}")

    @property
    def needs(self) -> tuple[Any, ...]:
        exact = (View(Collision(), at_update=True),) if self.rank_by in ("norm", "gini") else ()
        return ("now_slope", "now_entropy", "now_logp", "token_weight", "token_counted", "row_weight", *exact)

    def __call__(self, batch: Batch) -> Tensor:
        if self.keep == 1:
            return torch.ones_like(batch["token_weight"])
        return top_tokens(batch, self.score(batch), self.keep, self.scope).to(batch["token_weight"].dtype)

    def score(self, batch: Batch) -> Tensor:
        """[N] what tokens are ranked by; 0 and below is never kept."""
        if self.rank_by == "random":
            return by_chance(batch)
        if self.rank_by == "entropy":
            return batch["now_entropy"]
        omega = batch["now_slope"] * batch["token_weight"] * batch.spread(batch["row_weight"])
        if self.rank_by == "gradient":
            length = batch["now_entropy"]
        elif self.rank_by == "gini":
            length = 1 - batch["gmts/collision"]
        else:  # |onehot(y) - p|^2 = 1 - 2 p_y + sum of p^2
            length = (1 - 2 * batch["now_logp"].exp() + batch["gmts/collision"]).clamp(min=0).sqrt()
        return (length * omega).abs() / self._tokens(batch)

    def _tokens(self, batch: Batch) -> Tensor:
        """[N] what the released code divides a gradient by: rows of the group times tokens of the row, or tokens of
        the group."""
        if self.divide_by is None:
            return torch.ones_like(batch["token_weight"])
        counted, group = counted_tokens(batch), batch["group"]
        tokens = batch.row_sum(counted)
        total = torch.zeros(int(group.max()) + 1, dtype=torch.long, device=group.device) if len(group) else tokens
        if self.divide_by == "group":
            each = total.index_add(0, group, tokens)[group]
        else:
            each = total.index_add(0, group, (tokens > 0).long())[group] * tokens
        return batch.spread(each.clamp(min=1)).to(batch["token_weight"].dtype)

    def tell(self, batch: Batch) -> dict[str, Tally]:
        """Of a weighed optimiser batch: the share kept; how unevenly answers share it; what entropy alone would keep of
        it."""
        kept, pool = counted_tokens(batch), batch.spread(batch["row_weight"]) > 0
        before = batch.with_({"token_counted": torch.ones_like(kept)})
        slots = batch.row_sum(kept)[batch.row_sum(pool) > 0].double()
        told = {"gmts/kept": Tally.mean(kept, pool)}
        if bool(kept.any()):
            by_entropy = top_tokens(before, batch["now_entropy"], self.keep, self.scope)
            told |= {
                "gmts/slots_max": Tally(slots.max() / slots.sum()),
                "gmts/slots_gini": Tally(gini(slots)),
                "gmts/overlap_entropy": Tally.mean(by_entropy, kept),
            }
        return told


@register("method")
def gmts(
    method: Method,
    keep: float = 0.2,
    scope: Scope = "batch",
    rank_by: Literal["gradient", "entropy", "norm", "gini", "random"] = "gradient",
    divide_by: Literal["row", "group"] | None = None,
) -> Method:
    """Trains on the share of tokens with the longest estimated gradients.

    keep: that share. scope: ranked over the optimiser batch, a "group" or an "answer" at a time. rank_by: "entropy"
    alone is the baseline ETS (with scope "answer"); "norm" and "gini" look at the whole vocabulary; "random" is a
    control. divide_by: "row" or "group" ranks by a gradient over the row's or group's length, as the released code does
    for GRPO and DAPO.
    """
    return method.firm("gmts", token_weight=TopTokens(keep, scope, rank_by, divide_by))

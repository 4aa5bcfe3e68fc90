"""Preference pairs and their loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from rlvr.batch import Batch, Now, Tally
from rlvr.streams import declare

declare("row", "pair/sign", "+1 for the preferred row of a pair, -1 for the other, 0 without a pair")


@dataclass(frozen=True)
class BestAndWorst:
    """Pairs the best with the worst known row of each group, by reward (ties: the lower id is better placed first).
    Groups whose rewards do not differ give no pair. Gives pair [R] and pair/sign [R]."""

    needs: ClassVar = ("reward", "group", "known", "episode")
    gives: ClassVar = ("pair", "pair/sign")

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        usable = batch["known"] & (batch.length > 0)
        reward, group = batch["reward"].double(), batch["group"]
        best, worst = _extreme(reward, group, usable, batch["id"]), _extreme(-reward, group, usable, batch["id"])
        differ = batch.group_std(batch["reward"], usable) > 0
        sign = (best & differ).long() - (worst & differ).long()
        pair = torch.where(sign != 0, group, -1)
        return {"pair": pair, "pair/sign": sign}


def _extreme(x: Tensor, group: Tensor, usable: Tensor, id: Tensor) -> Tensor:
    """[R] bool: in each group the usable row of largest x, of lowest id among equals."""
    _, g = torch.unique(group, return_inverse=True)
    n = int(g.max()) + 1 if len(g) else 0
    top = torch.full((n,), -torch.inf, dtype=x.dtype, device=x.device)
    top = top.scatter_reduce(0, g, torch.where(usable, x, -torch.inf), "amax")
    tied = usable & (x == top[g])
    big = torch.iinfo(torch.long).max
    first = torch.full((n,), big, device=x.device).scatter_reduce(0, g, torch.where(tied, id, big), "amin")
    return tied & (id == first[g])


@dataclass(frozen=True)
class Paired:
    """1 for rows that have a pair, else 0. Returns row_weight [R]."""

    needs: ClassVar = ("pair",)

    def __call__(self, batch: Batch) -> Tensor:
        return (batch["pair"] >= 0).to(batch["behavior_logp"].dtype)


@dataclass(frozen=True)
class PreferenceLoss:
    """-log sigmoid(beta ((L_w - L_w^ref) - (L_l - L_l^ref))), L the sum of a row's log-probs, w the preferred and l the
    other row of a pair: DPO (arXiv 2305.18290, eq. 7). Laid on every token of both rows, so that a row mean is the mean
    over pairs. Returns token_loss [N]. Raises ValueError where a micro-batch holds half a pair."""

    beta: float = 0.1
    name: ClassVar = "policy"
    together: ClassVar = "pair"
    needs: ClassVar = ("pair", "pair/sign", "ref_logp")
    reads: ClassVar = ("logp",)
    refuses: ClassVar = {
        "token_weight": "a preference is one number a pair, so a weight that differs inside a row has no meaning"
    }

    def idle(self, batch: Batch) -> Tensor:
        return batch.spread(batch["pair"] < 0)

    def __call__(self, now: Now, batch: Batch) -> tuple[Tensor, dict[str, Tally]]:
        paired = batch["pair"] >= 0
        _, pair = torch.unique(torch.where(paired, batch["pair"], -1), return_inverse=True)
        n = int(pair.max()) + 1 if len(pair) else 0
        sign = batch["pair/sign"]
        balance = torch.zeros(n, dtype=torch.long, device=sign.device).index_add(0, pair, torch.where(paired, sign, 0))
        if bool((balance != 0).any()):
            raise ValueError("a micro-batch holds one row of a pair without the other; a pair is never cut")
        gain = batch.row_sum(now.logp - batch["ref_logp"]) * sign
        margin = gain.new_zeros(n).index_add(0, pair, torch.where(paired, gain, 0.0))[pair]
        loss = torch.where(paired, -F.logsigmoid(self.beta * margin), 0.0)
        return batch.spread(loss), {
            "dpo/margin": Tally.mean(margin, paired),
            "dpo/accuracy": Tally.mean((margin > 0).double(), paired),
        }

"""BPO, Bellman policy optimisation: policy mirror descent as one residual a row, without a critic.

Mirror descent with step eta wants, in every state, pi+ in proportion to mu exp(eta A^mu), mu the policy that sampled.
With a reward at the end alone, A^mu adds up along a row to r - V, so pi+ is where every row's

    delta = eta (r - V) - sum over t of (logp_t - mu_t + KL(mu || pi)_t)             vanishes: minimise its square.

Four approximations, of which each is a setting:

    V and the row's weight    the stack's advantage: with GRPO's, the group's mean and 1 / std
    delta at pi = mu          linear; False takes A_i - S_i / eta, S_i the row's sum of logp - mu + KL
    KL of token or not        kl_ids = K: of the K likeliest tokens, and the rest as one
    smooth, capped, masked    eps, cap, mask

    w_t  = (1 + eps - p_mu) / (1 + eps - p)                     the slope in logp_t of logp_t + KL of token or not
    M_t  = 0 where A > 0 and w > 1 + clip_high, or A < 0 and w < 1 - clip_low; else 1
    loss = mean over rows of row means of -A_i M_t min(w_t, cap) logp_t              no gradient through w and M

So there is no importance ratio: w stands where pi / mu would, and stays between eps / (1 + eps) and its inverse. In S_i
the KL is smoothed as w is: of p_mu / (1 + eps) against p / (1 + eps).

Source: arXiv 2609.15987; eps = 0.1, cap = 3 and the mean over rows are the paper's, which sees no difference from eps =
0.05 to 0.3 and cap = 2 to 4. Ours: bounds of 0.2 and 0.28, as it gives none, and eta = 1. mu is what was really sampled
from, so top_p and top_k are allowed for; the full KL is to the trainer's policy before the updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from rlvr.batch import Batch, Now, Tally
from rlvr.loss.bounds import prefer_bounds
from rlvr.loss.reduction import RowMean
from rlvr.loss.terms import bucket_kl
from rlvr.method import Method
from rlvr.registry import register
from rlvr.streams import declare
from rlvr.views import Seen, View

fills = ("derive", "bounds", "loss", "reduction")
paper = "Bellman Policy Optimization, arXiv 2609.15987"
# On policy w is 1, and GSPO's gradient is that of every row's mean too.
neutral = {"input": "on_policy", "equals": "gspo", "compare": "gradient", "exact": False}
declare("token", "bpo/mu", "log-prob under the policy that sampled; the trainer's where no sampler told it")
declare("token", "bpo/ids", "likeliest tokens of the policy that starts the updates")
declare("token", "bpo/ids_mu", "their log-probs")


@dataclass(frozen=True)
class Sampled:
    """behavior_logp, and old_logp for rows that no sampler drew. Gives bpo/mu [N]. Raises ValueError where a token was
    sampled that could not be."""

    needs: ClassVar = ("behavior_logp", "old_logp")
    gives: ClassVar = ("bpo/mu",)

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        mu = batch["behavior_logp"]
        if bool(torch.isneginf(mu).any()):
            ids = batch["id"][torch.unique(batch.row[torch.isneginf(mu)])].tolist()
            raise ValueError(f"rows {ids[:20]} hold tokens of probability 0 that were sampled: the sampler is at fault")
        return {"bpo/mu": torch.where(torch.isnan(mu), batch["old_logp"], mu)}


@dataclass(frozen=True)
class Likeliest:
    """Probe: the k likeliest tokens and their log-probs."""

    k: int
    gives: ClassVar = ("bpo/ids", "bpo/ids_mu")

    def __call__(self, seen: Mapping[str, Seen]) -> dict[str, Tensor]:
        (one,) = seen.values()
        logp, ids = one.logp_all.topk(min(self.k, one.logp_all.shape[-1]))
        return {"bpo/ids": ids, "bpo/ids_mu": logp}


def complement_ratio(logp: Tensor, mu: Tensor, eps: float) -> Tensor:
    """w = (1 + eps - p_mu) / (1 + eps - p) [N]."""
    return (eps - torch.expm1(mu)) / (eps - torch.expm1(logp))


def binary_kl(logp: Tensor, mu: Tensor, eps: float) -> Tensor:
    """KL of p_mu / (1 + eps) against p / (1 + eps) [N]; its slope in logp is w - 1."""
    share = mu.exp() / (1 + eps)
    return share * (mu - logp) + (1 - share) * complement_ratio(logp, mu, eps).log()


@dataclass(frozen=True)
class Bellman:
    """The loss above. Returns token_loss [N]."""

    eps: float = 0.1
    cap: float | None = 3.0
    mask: bool = True
    linear: bool = True
    eta: float = 1.0
    kl_ids: int = 0
    name: ClassVar = "policy"
    properties: ClassVar = ("corrects=sampler",)

    def __post_init__(self) -> None:
        if not self.eps > 0:
            raise ValueError(f"eps keeps w finite where p is 1, so it is above 0; got {self.eps}")
        if self.cap is not None and not self.cap >= 1:
            raise ValueError(f"cap is the most that w may be, at least 1; got {self.cap}")
        if not self.eta > 0:
            raise ValueError(f"eta is the step of mirror descent, above 0; got {self.eta}")
        if self.kl_ids < 0:
            raise ValueError(f"kl_ids counts tokens, 0 for the binary KL; got {self.kl_ids}")

    @property
    def needs(self) -> tuple[Any, ...]:
        return (
            "bpo/mu",
            "advantage",
            "clip_low",
            "clip_high",
            *([View(Likeliest(self.kl_ids))] if self.kl_ids else []),
        )

    @property
    def reads(self) -> tuple[str, ...]:
        return ("logp", "logp_at/bpo/ids") if self.kl_ids else ("logp",)

    def idle(self, batch: Batch) -> Tensor:
        return batch["advantage"] == 0 if self.linear else torch.zeros_like(batch.row, dtype=torch.bool)

    def __call__(self, now: Now, batch: Batch) -> tuple[Tensor, dict[str, Tally]]:
        logp, mu = (x.clamp(max=0) for x in (now.logp.detach(), batch["bpo/mu"]))  # rounding may put them above 0
        a = batch["advantage"]
        w, cap = complement_ratio(logp, mu, self.eps), torch.inf if self.cap is None else self.cap
        kl = bucket_kl(now.logp_at["bpo/ids"], batch["bpo/ids_mu"]) if self.kl_ids else binary_kl(logp, mu, self.eps)
        if not self.linear:
            a = a - batch.spread(batch.row_sum(logp - mu + kl.detach())) / self.eta
        up, down = (a > 0) & (w > 1 + batch["clip_high"]), (a < 0) & (w < 1 - batch["clip_low"])
        kept = torch.where(up | down, 0.0, a) if self.mask else a
        if self.kl_ids:
            loss = -kept * (now.logp + kl)
        else:
            loss = -kept * w.clamp(max=cap) * now.logp
        counts = ~self.idle(batch) & (batch["weight"] != 0)
        return loss, {
            "policy/clip_frac": Tally.mean(up | down, counts),
            "bpo/masked_up": Tally.mean(up, counts & (a > 0)),
            "bpo/masked_down": Tally.mean(down, counts & (a < 0)),
            "bpo/weight": Tally.mean(w, counts),
            "bpo/weight_square": Tally.mean(w**2, counts),
            "bpo/weight_max": Tally.max(w, counts),
            "bpo/capped": Tally.mean(w > cap, counts),
            "bpo/kl": Tally.mean(kl, counts),
            "bpo/sure": Tally.mean(logp > -0.01005, counts),  # p above 0.99
        }


@register("method")
def bpo(
    method: Method,
    eps: float = 0.1,
    cap: float | None = 3.0,
    mask: bool = True,
    linear: bool = True,
    eta: float = 1.0,
    kl_ids: int = 0,
    clip_low: float | None = None,
    clip_high: float | None = None,
) -> Method:
    """A policy gradient whose off-policy weight is a ratio of complementary probabilities, (1 - p_mu) / (1 - p).

    eps: smooths that ratio. cap: the most that it may be; None: no cap. mask: whether tokens stop learning outside the
    bounds. linear: the advantage as it is; False: less what the policy has moved already, over eta. eta: step of mirror
    descent, where linear is False. kl_ids: 0 takes the binary KL, K the K likeliest tokens (a vocabulary: exact).
    clip_low, clip_high: bounds of the mask; None: 0.2 and 0.28, which give way to another paper's.
    """
    method = method.firm("bpo", derive=Sampled(), loss=Bellman(eps, cap, mask, linear, eta, kl_ids))
    return prefer_bounds(method.prefer("bpo", reduction=RowMean()), "bpo", (clip_low, 0.2), (clip_high, 0.28))

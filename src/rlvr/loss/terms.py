"""Further losses beside the policy's own: divergence from a reference, entropy, a critic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rlvr.batch import Batch, Now, Tally
from rlvr.loss.reduction import TokenMean

Estimator = Literal["k1", "k2", "k3"]


def kl_estimate(logp: Tensor, ref_logp: Tensor, estimator: Estimator) -> Tensor:
    """KL(policy || reference) from samples of the policy, one value a token. With d = logp - ref_logp:

    k1 = d                    unbiased, any sign
    k2 = d^2 / 2              biased, its gradient is that of the KL on policy
    k3 = exp(-d) - 1 + d      unbiased, never negative (Schulman, "Approximating KL divergence", 2020)

    d is clamped to [-20, 20] before exp.
    """
    d = logp - ref_logp
    if estimator == "k1":
        return d
    if estimator == "k2":
        return d**2 / 2
    d = d.clamp(-20, 20)
    return torch.exp(-d) - 1 + d


def bucket_kl(logp: Tensor, mu: Tensor) -> Tensor:
    """KL(mu || pi) [N] from log-probs of K tokens [N, K], all others as one."""
    rest_mu, rest = (1 - x.exp().sum(-1) for x in (mu, logp))
    tail = rest_mu > 1e-6  # below it is rounding
    log_rest = torch.where(tail, rest, 1.0).clamp(min=1e-12).log()
    rest_kl = torch.where(tail, rest_mu * (torch.where(tail, rest_mu, 1.0).log() - log_rest), 0.0)
    return (mu.exp() * (mu - logp)).sum(-1) + rest_kl


@dataclass(frozen=True)
class KLToReference:
    """coef * kl_estimate(logp, ref_logp). Returns token_loss [N]."""

    coef: float
    estimator: Estimator = "k3"
    refresh: int = 0
    name: ClassVar = "kl_ref"
    needs: ClassVar = ("ref_logp",)
    reads: ClassVar = ("logp",)

    def __post_init__(self) -> None:
        if self.estimator == "k1":
            raise ValueError(
                "k1 as a loss has gradient 1 at every token, whatever the reference is: it lowers all log-probs and "
                "pulls nowhere. "
                "Use k2 or k3 in the loss, or k1 in the reward"
            )

    def __call__(self, now: Now, batch: Batch) -> tuple[Tensor, dict[str, Tally]]:
        kl = kl_estimate(now.logp, batch["ref_logp"], self.estimator)
        return self.coef * kl, {"policy/kl_ref": Tally.mean(kl, batch["weight"] != 0)}


@dataclass(frozen=True)
class EntropyBonus:
    """-coef * entropy of the running policy, in nats, with gradient. Returns token_loss [N]."""

    coef: float
    name: ClassVar = "entropy"
    reads: ClassVar = ("logp", "entropy")

    def __call__(self, now: Now, batch: Batch) -> tuple[Tensor, dict[str, Tally]]:
        assert now.entropy is not None
        return -self.coef * now.entropy, {}


@dataclass(frozen=True)
class ValueLoss:
    """max((v - R)^2, (clip(v, V - clip, V + clip) - R)^2) / 2 for the critic, V its value before the updates and R the
    return (PPO's clipped value loss). Tokens that the policy's method leaves out are learned from all the same. Returns
    token_loss [N]."""

    clip: float = 0.5  # verl
    model: ClassVar = "critic"
    name: ClassVar = "critic"
    needs: ClassVar = ("gae/return", "value")
    reads: ClassVar = ("value",)
    reduction: ClassVar = TokenMean()

    def __call__(self, now: Now, batch: Batch) -> tuple[Tensor, dict[str, Tally]]:
        assert now.value is not None
        old, want = batch["value"], batch["gae/return"]
        near = torch.clamp(now.value, old - self.clip, old + self.clip)
        plain, clipped = (now.value - want) ** 2, (near - want) ** 2
        return torch.maximum(plain, clipped) / 2, {
            "critic/clip_frac": Tally.mean(clipped > plain),
            "critic/error": Tally.mean((now.value - want).abs()),
        }

"""KL to a frozen reference: keeps the policy near where it came from.

    in the loss:    + coef * k2 or k3 of (logp, ref_logp)
    in the reward:  - coef * (old_logp - ref_logp) at every token (k1)

k1 in the loss is refused: its gradient does not know the reference. The reference is the policy as the run began;
`refresh` copies the policy into it every so many steps. Estimators: Schulman, "Approximating KL divergence" (2020).
"""

from __future__ import annotations

from typing import Literal

from rlvr.loss.terms import Estimator, KLToReference
from rlvr.method import Method
from rlvr.registry import register
from rlvr.reward.penalties import KLInReward

fills = ("terms", "reward")
paper = "Approximating KL divergence (Schulman, 2020)"
neutral = {
    "settings": {"coef": 0.0},
    "equals": "grpo",
    "near": {"coef": 0.1},
    "exact": False,
}  # its rows are no longer idle: sums run in another order


@register("method")
def kl(
    method: Method,
    coef: float = 1e-3,
    where: Literal["loss", "reward"] = "loss",
    estimator: Estimator | None = None,
    refresh: int = 0,
) -> Method:
    """A KL term to a reference policy, in the loss or in the reward.

    coef: its weight (1e-3: GRPO's usual range; ours). estimator: k2 or k3 in the loss (default k3), k1 in the reward.
    refresh: steps after which the reference becomes the present policy; 0: never.
    """
    if where == "reward":
        if estimator not in (None, "k1"):
            raise ValueError(
                f"in the reward the KL is k1, the log-ratio itself; estimator = {estimator!r} belongs in the loss"
            )
        return method.firm("kl", reward=KLInReward(coef, refresh))
    return method.firm("kl", terms=KLToReference(coef, estimator or "k3", refresh))

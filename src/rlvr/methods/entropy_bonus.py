"""Entropy bonus: - coef * H(policy) at every trained token, to keep the policy from narrowing too early.

Source: A3C (arXiv 1602.01783), section 4; long a part of PPO implementations.
"""

from __future__ import annotations

from rlvr.loss.terms import EntropyBonus
from rlvr.method import Method
from rlvr.registry import register

fills = ("terms",)
paper = "Asynchronous methods for deep RL, arXiv 1602.01783"
neutral = {"settings": {"coef": 0.0}, "equals": "grpo", "near": {"coef": 0.01}, "exact": False}  # as kl


@register("method")
def entropy_bonus(method: Method, coef: float = 1e-3) -> Method:
    """Pays the policy for entropy, in nats a token.

    coef: its weight (1e-3: ours; TRL and verl have no bonus unless asked).
    """
    return method.firm("entropy_bonus", terms=EntropyBonus(coef))

"""Truncated importance sampling between sampler and trainer.

    token_weight = min(exp(old_logp - behavior_logp), high)

Corrects for a sampler whose numbers (or whose top-p, or whose age) differ from the trainer's.
Source: Yao et al., "Your efficient RL framework secretly brings you off-policy RL training" (2025); high = 2 as there
and in verl (TRL's default is another: 0 above 3, for the product of a row's ratios).
"""

from __future__ import annotations

from typing import Literal

from rlvr.loss.weights import SamplerRatio
from rlvr.method import Method
from rlvr.registry import register

fills = ("token_weight",)
paper = "Your efficient RL framework secretly brings you off-policy RL training (2025)"
neutral = {"input": "sampler_is_trainer", "equals": "grpo"}


@register("method")
def tis(method: Method, high: float = 2.0, level: Literal["token", "row", "product"] = "token") -> Method:
    """Weights tokens by how likely the trainer finds them against the sampler, at most `high`.

    level: "token"; "row" for the mean log-ratio of the row; "product" for the whole row's ratio (TRL's and verl's
    "sequence").
    """
    return method.firm("tis", token_weight=SamplerRatio(high, level=level))

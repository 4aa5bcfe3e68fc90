"""Masked importance sampling between sampler and trainer: tokens on which the two disagree too much are not trained on.

    w = exp(old_logp - behavior_logp);   token_weight = w where low <= w <= high, else 0

Source: IcePop (2025), "Small leak can sink a great ship"; its bounds 0.5 and 5.
"""

from __future__ import annotations

from typing import Literal

from rlvr.loss.weights import SamplerRatio
from rlvr.method import Method
from rlvr.registry import register

fills = ("token_weight",)
paper = "IcePop (2025)"
neutral = {"input": "sampler_is_trainer", "equals": "grpo"}


@register("method")
def mis(
    method: Method, low: float = 0.5, high: float = 5.0, level: Literal["token", "row", "product"] = "token"
) -> Method:
    """Weights tokens by trainer over sampler, and drops those outside [low, high].

    level: "token"; "row" for the mean log-ratio of the row; "product" for the whole row's ratio (TRL's and verl's
    "sequence").
    """
    return method.firm("mis", token_weight=SamplerRatio(high, low, truncate=False, level=level))

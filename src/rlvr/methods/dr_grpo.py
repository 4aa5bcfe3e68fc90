"""Dr.GRPO: GRPO without its two biases.

    A_i = r_i - mean_g                             no division by the group's spread, which favours easy and hard tasks
    loss = sum of token losses / (rows * length)   no division by the row's own length, which favours long wrong answers

Source: "Understanding R1-Zero-like training" (arXiv 2503.20783), section 3.
"""

from __future__ import annotations

from rlvr.advantage.group import GroupNorm
from rlvr.loss.reduction import Constant
from rlvr.method import Method
from rlvr.registry import register

fills = ("advantage", "reduction")
paper = "Understanding R1-Zero-like training, arXiv 2503.20783"
# Groups of two rewarded 0 and 2 have a spread of exactly 1; rows of one token make `length` = 1 the token mean.
neutral = {"settings": {"length": 1}, "input": "twins_far_apart", "equals": "grpo(eps=0.0)", "near": {"length": 2}}


@register("method")
def dr_grpo(method: Method, length: int | None = None) -> Method:
    """GRPO without division by the group's spread and by each row's length.

    length: tokens that every row counts as in the denominator; None: the run's max_tokens, as in TRL.
    """
    return method.firm("dr_grpo", advantage=GroupNorm(std=False), reduction=Constant(length))

"""Rejection sampling fine-tuning: sample, keep what is right, imitate it.

    loss = mean over the tokens of right rows of -logp

Sources: STaR (arXiv 2203.14465), RAFT (arXiv 2304.06767), rejection sampling fine-tuning (arXiv 2308.01825).
"""

from __future__ import annotations

from rlvr.loss.losses import NegativeLogLikelihood
from rlvr.loss.weights import OnlyRight
from rlvr.method import Method
from rlvr.registry import register

fills = ("row_weight", "loss")
paper = "Scaling relationship on learning mathematical reasoning, arXiv 2308.01825"
neutral = {"input": "all_right", "equals": "sft"}


@register("method")
def rejection(method: Method) -> Method:
    """Imitates the policy's own right answers."""
    return method.firm("rejection", row_weight=OnlyRight(), loss=NegativeLogLikelihood())

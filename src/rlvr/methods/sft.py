"""Supervised fine-tuning on demonstrations, through the same loop.

    loss = mean over the demonstration's tokens of -logp

The `rollout` slot plays back `task.meta["demo"]` (text, or a list of texts) instead of sampling.
"""

from __future__ import annotations

from rlvr.loss.losses import NegativeLogLikelihood
from rlvr.method import Method
from rlvr.registry import register
from rlvr.rollout.playback import Demonstrations

fills = ("rollout", "loss")
paper = "maximum likelihood"
neutral = {"input": "all_right", "equals": "rejection"}


@register("method")
def sft(method: Method) -> Method:
    """Imitates demonstrations: the task's `demo`, as many rows a task as it has texts."""
    return method.firm("sft", rollout=Demonstrations(), loss=NegativeLogLikelihood())

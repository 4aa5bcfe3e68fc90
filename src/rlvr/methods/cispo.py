"""CISPO: clip the importance weight, not the update, so that no token's gradient is lost.

    loss = -sg(clip(q_t, 1 - clip_low, 1 + clip_high)) A_i logp_t        sg: no gradient through it

Source: MiniMax-M1 (arXiv 2506.13585), eq. 4-5. The paper sets no lower bound (clip_low = 1) and tunes the upper one;
ours, a weight of at most 5, is TRL's recommendation.
"""

from __future__ import annotations

from rlvr.loss.bounds import Clip
from rlvr.loss.losses import ClippedWeight
from rlvr.method import Method
from rlvr.registry import register

fills = ("loss", "bounds")
paper = "MiniMax-M1, arXiv 2506.13585"
neutral = {"input": "on_policy", "equals": "grpo", "compare": "gradient", "exact": False}


@register("method")
def cispo(method: Method, clip_low: float = 1.0, clip_high: float = 4.0) -> Method:
    """Clipped importance weights in front of the plain policy gradient.

    clip_low, clip_high: the weight stays in [1 - clip_low, 1 + clip_high].
    """
    return method.firm("cispo", loss=ClippedWeight()).prefer("cispo", bounds=Clip(clip_low, clip_high))

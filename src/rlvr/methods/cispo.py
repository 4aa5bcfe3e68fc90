"""CISPO: clip the importance weight, not the update, so that no token's gradient is lost.

    loss = -sg(clip(q_t, 1 - clip_low, 1 + clip_high)) A_i logp_t        sg: no gradient through it

Source: MiniMax-M1 (arXiv 2506.13585), eq. 4-5. The paper sets no lower bound (clip_low = 1) and tunes the upper one;
ours, a weight of at most 5, is TRL's recommendation.
"""

from __future__ import annotations

from rlvr.loss.bounds import prefer_bounds
from rlvr.loss.losses import ClippedWeight
from rlvr.method import Method
from rlvr.registry import register

fills = ("loss", "bounds")
paper = "MiniMax-M1, arXiv 2506.13585"
neutral = {"input": "on_policy", "equals": "grpo", "compare": "gradient", "exact": False}


@register("method")
def cispo(method: Method, clip_low: float | None = None, clip_high: float | None = None) -> Method:
    """Clipped importance weights in front of the plain policy gradient.

    clip_low, clip_high: the weight stays in [1 - clip_low, 1 + clip_high]; None: 1 and 4, which give way to another
    paper's bounds.
    """
    return prefer_bounds(method.firm("cispo", loss=ClippedWeight()), "cispo", (clip_low, 1.0), (clip_high, 4.0))

"""GSPO, group sequence policy optimisation: one ratio for the whole row.

    s_i = exp(mean over the row's tokens of logp_t - old_logp_t)
    loss = mean over rows of -min(s_i A_i, clip(s_i, 1 - clip_low, 1 + clip_high) A_i)

Source: arXiv 2507.18071, eq. 5-7; bounds from its section 5.1. A mean log-ratio moves far less than a token's, hence
the small bounds.
"""

from __future__ import annotations

from rlvr.loss.bounds import prefer_bounds
from rlvr.loss.ratio import Ratio
from rlvr.loss.reduction import RowMean
from rlvr.method import Method
from rlvr.registry import register

fills = ("ratio", "bounds", "reduction")
paper = "Group Sequence Policy Optimization, arXiv 2507.18071"
# A row of one token is its own mean.
neutral = {
    "settings": {"clip_low": 0.2, "clip_high": 0.2},
    "input": "one_token_rows",
    "equals": "grpo",
    "near": {"clip_high": 0.3},
}


@register("method")
def gspo(method: Method, clip_low: float | None = None, clip_high: float | None = None) -> Method:
    """One importance ratio for the whole row, the geometric mean of its tokens' ratios.

    clip_low, clip_high: bounds of that ratio; None: the paper's 3e-4 and 4e-4, which give way to another paper's
    bounds.
    """
    method = method.firm("gspo", ratio=Ratio("row")).prefer("gspo", reduction=RowMean())
    return prefer_bounds(method, "gspo", (clip_low, 3e-4), (clip_high, 4e-4))

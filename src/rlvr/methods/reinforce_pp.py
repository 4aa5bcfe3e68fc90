"""REINFORCE++: no groups; returns are whitened over all tokens of the rollout batch.

    G_t = sum over k >= t of gamma^(k-t) r_k        r_k token rewards (a KL part, say), the row's own at its last token
    A_t = (G_t - mean) / sqrt(var + eps)            over every token of the batch

Source: REINFORCE++ (arXiv 2501.03262). `baseline` is the paper's variant for groups: the group's mean is taken off
first.
"""

from __future__ import annotations

from rlvr.advantage.returns import WhitenedReturn
from rlvr.method import Method
from rlvr.registry import register

fills = ("advantage",)
paper = "REINFORCE++, arXiv 2501.03262"
# Eight rows of one token in one group, half of them right: population std 1/2, sample std sqrt(2/7); eps makes up the
# difference.
neutral = {"input": "one_group_half_right", "equals": "grpo(eps=0.0345224838248488)", "exact": False}


@register("method")
def reinforce_pp(method: Method, gamma: float = 1.0, baseline: bool = False, eps: float = 1e-8) -> Method:
    """Returns whitened over the batch instead of rewards compared within groups.

    gamma: discount (1: the paper's). baseline: take the group's mean off first. eps: added to the variance (verl's
    1e-8).
    """
    return method.firm("reinforce_pp", advantage=WhitenedReturn(gamma, baseline, eps))

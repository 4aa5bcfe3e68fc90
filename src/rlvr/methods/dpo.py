"""DPO, direct preference optimisation, on pairs.

    loss = -log sigmoid(beta ((L_w - L_w^ref) - (L_l - L_l^ref)))

L is the sum of a row's log-probs; w is the preferred row, l the other.

Offline, pairs are played back from `task.meta["chosen"]` and `task.meta["rejected"]`; online, the best and the worst
row of each sampled group are a pair. Source: arXiv 2305.18290.
"""

from __future__ import annotations

from rlvr.loss.pairs import BestAndWorst, Paired, PreferenceLoss
from rlvr.loss.reduction import RowMean
from rlvr.method import Method
from rlvr.registry import register
from rlvr.rollout.playback import Preferences

fills = ("rollout", "derive", "row_weight", "loss", "reduction")
paper = "Direct Preference Optimization, arXiv 2305.18290"
# At margin 0 the loss has slope -beta / 2; laid on both rows of one token each, that is GRPO's gradient on groups of
# two.
neutral = {
    "settings": {"beta": 1.0},
    "input": "twins_at_the_reference",
    "equals": "grpo(eps=0.0)",
    "compare": "gradient",
    "near": {"beta": 0.5},
}


@register("method")
def dpo(method: Method, beta: float = 0.1, online: bool = False) -> Method:
    """Raises the preferred row of a pair against the other, relative to a reference.

    beta: how far from the reference (the paper's 0.1). online: sample, and pair the best with the worst of each group.
    """
    method = method if online else method.firm("dpo", rollout=Preferences())
    return method.firm(
        "dpo", derive=BestAndWorst(), row_weight=Paired(), loss=PreferenceLoss(beta), reduction=RowMean()
    )

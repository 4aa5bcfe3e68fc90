"""DAPO: clip higher, sample dynamically, mean over tokens, punish overlong answers softly.

    bounds 1 - 0.2, 1 + 0.28          room upwards for unlikely tokens
    keep groups that are mixed         silent groups are replaced by new ones, at most `max_refills` rounds a step
    loss = mean over tokens
    reward += 0 ... -1                 over the last `buffer` tokens before the limit (reward/penalties.py)

Source: arXiv 2503.14476, sections 3.1-3.4.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.loss.bounds import prefer_bounds
from rlvr.loss.reduction import TokenMean
from rlvr.method import Method
from rlvr.records import Group
from rlvr.registry import register
from rlvr.reward.penalties import Overlong

fills = ("bounds", "keep", "reduction", "reward")
paper = "DAPO, arXiv 2503.14476"
neutral = {"settings": {"clip_high": 0.2, "overlong": False}, "equals": "grpo", "near": {"clip_high": 0.28}}


@dataclass(frozen=True)
class Informative:
    """Whether the group's known scores differ: only then does a group-relative method learn from it."""

    def __call__(self, group: Group) -> bool:
        return len({verdict.score for verdict in group.known()}) > 1


@register("method")
def dapo(
    method: Method,
    clip_low: float | None = None,
    clip_high: float | None = None,
    overlong: bool = True,
    buffer: int | None = None,
) -> Method:
    """Clip higher, dynamic sampling, token mean, soft overlong punishment.

    clip_low, clip_high: None: the paper's 0.2 and 0.28, which give way to another paper's bounds. overlong: whether
    long answers lose reward. buffer: over how many tokens before the limit; None: a fifth of max_tokens, the paper's
    share.
    """
    punish = (Overlong(buffer),) if overlong else ()
    method = method.firm("dapo", keep=Informative(), reward=punish).prefer("dapo", reduction=TokenMean())
    return prefer_bounds(method, "dapo", (clip_low, 0.2), (clip_high, 0.28))

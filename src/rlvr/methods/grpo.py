"""GRPO, group relative policy optimisation: the base that every other method changes.

    A_i = (r_i - mean_g) / (std_g + eps)             r_i reward of row i, mean and population std over its group g
    q_t = exp(logp_t - old_logp_t)                   logp of the running policy, old_logp of the one before the updates
    loss = mean over tokens of -min(q_t A_i, clip(q_t, 1 - clip_low, 1 + clip_high) A_i)

Source: DeepSeekMath (arXiv 2402.03300), which takes the mean over rows of row means and adds a KL term to a reference.
Here the mean is over the tokens of the optimiser batch and there is no KL term, as in DAPO (arXiv 2503.14476), TRL and
verl today.
"""

from __future__ import annotations

from rlvr.advantage.group import GroupNorm
from rlvr.loss.bounds import Clip
from rlvr.loss.losses import Clipped
from rlvr.loss.ratio import Ratio
from rlvr.loss.reduction import TokenMean
from rlvr.method import EMPTY, Method
from rlvr.registry import register
from rlvr.rollout.parallel import Parallel
from rlvr.select.uniform import Uniform

fills = ("select", "rollout", "advantage", "bounds", "ratio", "loss", "reduction")
paper = "DeepSeekMath, arXiv 2402.03300"


@register("method")
def grpo(method: Method = EMPTY, clip_low: float = 0.2, clip_high: float = 0.2, eps: float = 1e-6) -> Method:
    """Group relative policy optimisation: the reward against the group's mean, in units of its standard deviation.

    clip_low, clip_high: how far the ratio may go below and above 1 (PPO's 0.2; the paper's too).
    eps: added to the standard deviation (1e-6, verl's; TRL adds 1e-4).
    """
    return method.base(
        "grpo",
        select=Uniform(),
        rollout=Parallel(),
        advantage=GroupNorm(eps=eps),
        bounds=Clip(clip_low, clip_high),
        ratio=Ratio("token"),
        loss=Clipped(),
        reduction=TokenMean(),
    )

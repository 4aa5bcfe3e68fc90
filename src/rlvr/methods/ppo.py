"""PPO with a critic: advantages by GAE against a value model that learns beside the policy.

    delta_t = r_t + gamma V_(t+1) - V_t,   A_t = delta_t + gamma lam A_(t+1),   R_t = A_t + V_t
    critic loss = max((v - R)^2, (clip(v, V - c, V + c) - R)^2) / 2

Advantages are whitened over the rollout batch. For the first `warmup` steps only the critic learns.
Sources: PPO (arXiv 1707.06347), GAE (arXiv 1506.02438); defaults gamma = lam = 1 and c = 0.5 as in verl.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rlvr.advantage.returns import Gae, WhitenedGae
from rlvr.loss.losses import Nothing
from rlvr.loss.terms import ValueLoss
from rlvr.method import Method, Stack
from rlvr.registry import register

fills = ("derive", "advantage", "terms", "phases")
paper = "Proximal Policy Optimization Algorithms, arXiv 1707.06347"
# A critic that says 0 leaves the whitened return.
neutral = {"input": "values_of_zero", "equals": "reinforce_pp", "compare": "gradient"}


@dataclass(frozen=True)
class CriticFirst:
    """Phases: the policy stands still until the critic has learned for `steps` steps."""

    steps: int
    names: ClassVar = ("critic", "both")

    def start(self) -> dict[str, Any]:
        return {"phase": "critic"}

    def next(self, state: Mapping[str, Any], step: int, metrics: Mapping[str, float]) -> dict[str, Any]:
        return {"phase": "both" if step >= self.steps else "critic"}

    def at(self, stack: Stack, phase: str) -> Stack:
        return stack if phase == "both" else stack.swap("ppo", loss=Nothing())


@register("method")
def ppo(method: Method, gamma: float = 1.0, lam: float = 1.0, value_clip: float = 0.5, warmup: int = 0) -> Method:
    """GAE against a critic that is trained in the same run.

    gamma, lam: discount and trace of GAE. value_clip: how far a value may move in a step's updates before its loss
    stops paying. warmup: steps in which only the critic learns.
    """
    return method.firm(
        "ppo",
        derive=Gae(gamma, lam),
        advantage=WhitenedGae(),
        terms=ValueLoss(value_clip),
        phases=(CriticFirst(warmup),) if warmup else (),
    )

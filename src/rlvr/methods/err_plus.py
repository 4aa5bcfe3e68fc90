"""ERR+: first reward the resolution of uncertainty, then brevity among siblings; together they conflict early.

    ERR = sum over t of relu(H_(t-1) - H_t - eps) / log(T + 1)       over the T tokens before the end of thinking
    phase "relief"       R = min(base + lam * gate * ERR, cap)       gate 1 for right answers, 0 for others
    z = (length - mean_g) / (std_g + 1e-5),   f = tanh(-gamma z),    of a wrong answer min(0, f)
    phase "efficiency"   R = max(base + alpha * f, floor)            no ERR here

H_t entropy in nats of the policy that starts the step, at the sampling temperature (it sets ERR's scale); base the
verdict's score, 1 right and 0 wrong; length all that the policy wrote in an episode, answer included; mean and
population std over the group's known episodes, right or not; 0 where that std is below 1e-5. Each phase is a part of
the reward that adds to base. Without the mark of thinking's end, all is thinking.

The second phase begins when the smoothed ERR of right answers has risen by less than 1 % over 20 steps, and with the
second half of the run at the latest: our rule, the paper switched by hand.

Source: arXiv 2608.28771; numbers from its released code, which pays wrong answers too (gate = "all"), measures a group
of one against absolute lengths (alone = (2048, 1024)) and adds KL to a reference (stack kl(coef=1e-3)).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rlvr.method import Method, Stack
from rlvr.plateau import Plateau
from rlvr.registry import register
from rlvr.reward.bonus import EntropyRelief, RelativeEfficiency
from rlvr.rollout.thinking import Thinking

fills = ("annotate", "reward", "phases")
paper = "ERR+: entropy relief reward, then robust relative efficiency reward, arXiv 2608.28771"
neutral = {"settings": {"lam": 0.0, "alpha": 0.0}, "equals": "grpo", "near": {"alpha": 0.3}}


@dataclass(frozen=True)
class InTurn:
    """Phases: the first of `names`, then the second, from the step after `switch` on; None: when ERR stands still, and
    after half of the run at the latest."""

    names: tuple[str, ...] = ("relief", "efficiency")
    switch: int | None = None
    latest: int | None = None
    plateau: Plateau = field(default_factory=Plateau)

    def settle(self, stack: Stack) -> InTurn:
        return replace(self, latest=max(1, stack.run["steps"] // 2))

    def start(self) -> dict[str, Any]:
        return {"phase": self.names[0], **self.plateau.start()}

    def next(self, state: Mapping[str, Any], step: int, metrics: Mapping[str, float]) -> dict[str, Any]:
        assert self.latest is not None
        seen = self.plateau.next(state, metrics.get("err_plus/relief_right"))
        flat = self.switch is None and (self.plateau.reached(seen) or step >= self.latest)
        over = flat or (self.switch is not None and step >= self.switch)
        return {"phase": self.names[-1] if over else state["phase"], **seen}

    def at(self, stack: Stack, phase: str) -> Stack:
        asleep = {"relief": RelativeEfficiency, "efficiency": EntropyRelief}.get(phase)
        return stack if asleep is None else stack.only(p for p in stack if not isinstance(p.piece, asleep))


@register("method")
def err_plus(
    method: Method,
    phases: Sequence[str] = ("relief", "efficiency"),
    switch: int | None = None,
    lam: float = 0.3,
    eps: float = 0.01,
    cap: float = 1.5,
    gate: Literal["correct", "all"] = "correct",
    mark: str | None = "</think>",
    alpha: float = 0.3,
    gamma: float = 0.5,
    floor: float = -0.5,
    alone: Sequence[float] | None = None,
    truncated_count: bool = True,
    silent_groups: bool = True,
) -> Method:
    """Rewards drops of entropy while a right answer is thought out, then brevity among siblings.

    phases: one or two of "relief", "efficiency" and "joint", in turn. switch: step after which the second begins; None:
    at ERR's plateau, after half of the run at the latest. lam, eps, cap, gate: see the formula. mark: text that ends
    thinking; None: all is thinking. alpha, gamma, floor: see the formula. alone: mean and spread of length against
    which a group of one is held. truncated_count: whether cut answers count in a group's mean and spread.
    silent_groups: whether groups whose scores are all equal get a bonus, and so a signal.
    """
    known = ("relief", "efficiency", "joint")
    if not 1 <= len(phases) <= 2 or len(set(phases)) < len(phases) or not set(phases) <= set(known):
        raise ValueError(f"phases are one or two different ones of {', '.join(known)}; got {', '.join(phases) or '()'}")
    if eps < 0 or lam < 0 or alpha < 0 or gamma < 0:
        raise ValueError(f"eps, lam, alpha and gamma are not negative; got {eps}, {lam}, {alpha} and {gamma}")
    if switch is not None and switch < 1:
        raise ValueError(f"switch is the last step of the first phase, from 1; got {switch}")
    if alone is not None and (len(alone) != 2 or alone[1] <= 0):
        raise ValueError(f"alone is a mean length and a spread above 0, e.g. (2048, 1024); got {tuple(alone)}")
    if mark == "":
        raise ValueError("mark is the text that ends thinking; leave it out (None) where there is none")
    relief = EntropyRelief(eps, lam, cap, gate, mark is not None, silent_groups)
    against = None if alone is None else (float(alone[0]), float(alone[1]))
    efficiency = RelativeEfficiency(alpha, gamma, floor, against, truncated_count, silent_groups)
    early, late = set(phases) & {"relief", "joint"}, set(phases) & {"efficiency", "joint"}
    rewards = (*((relief,) if early else ()), *((efficiency,) if late else ()))
    marks = (Thinking(mark),) if mark is not None and early else ()
    method = method.prefer("err_plus", annotate=marks)
    return method.firm("err_plus", reward=rewards, phases=InTurn(tuple(phases), switch))

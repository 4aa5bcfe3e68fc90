"""OPD, then RL: first distil from a teacher on the policy's own answers, then learn from the verifier alone.

    g_t = teacher_logp_t - old_logp_t
    A_t = g_t            steps 1 to S, phase "opd"
    A_t = the stack's    after that, phase "rl": GRPO's, or what another paper defines

Sampling, loss, clip and reduction are the same in both; the switch is hard, at the border of two steps, and the teacher
is let go at it. Why in turn: both signals in one step pull parameters in opposite directions. Distilling widens what
the policy can do (pass@k), the verifier sharpens it (pass@1).

The switch comes after step S, or (switch = "plateau") when the mean of the evaluations on the way has not risen by more
than min_delta for `patience` evaluations on end, within `earliest` .. `latest`. For comparison `joint` mixes both in
every step and has no phases: see advantage/teacher.py.

Source: arXiv 2609.04108, "Sequential Beats Joint". It switches after 60 of 150 or of 120 steps by hand, S = 2/5 of the
run here; its b are 1, 0.2, 0.02 and 0.002. Rules of the plateau, the masked and the modulated mixture are ours. Going
back to the best weights at the switch is not done: nothing changes weights within a run but the optimiser. A run of the
first phase alone keeps them in best/, and `rlvr train RECIPE --model RUN/best` starts from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from rlvr.advantage.teacher import JoinedTeacher, TeacherGap, check_clamp
from rlvr.loss.weights import Taught
from rlvr.method import Method, Stack
from rlvr.plateau import NoBetter
from rlvr.registry import register

fills = ("advantage", "reshape", "row_weight", "phases")
paper = "Sequential Beats Joint: OPD then RL, arXiv 2609.04108"
neutral = {
    "settings": {"joint": "additive", "b": 0.0},
    "input": "all_taught",
    "equals": "grpo",
    "near": {"b": 0.2},
}


@dataclass(frozen=True)
class TeacherFirst:
    """Phases: the teacher's advantage up to `switch`, then the stack's own."""

    switch: int | Literal["plateau"] | None = None
    earliest: int = 1
    latest: int | None = None
    plateau: NoBetter = field(default_factory=NoBetter)
    clamp: float | None = 10.0
    afresh: bool = False
    names: ClassVar = ("opd", "rl")
    one_way: ClassVar = True
    refuses: ClassVar = {
        "advantage=teacher": "its second phase learns from verdicts alone, and the other's advantage asks the teacher "
        "in both; name one of them"
    }

    def settle(self, stack: Stack) -> TeacherFirst:
        steps = int(stack.run["steps"])
        if self.switch != "plateau":
            return self if self.switch is not None else replace(self, switch=max(1, steps * 2 // 5))
        if not stack.run.get("eval_every"):
            raise ValueError(
                'opd_then_rl(switch = "plateau") waits for evaluations on the way, and there are none; set e.g. '
                "eval.every = 5, or give the last step of the first phase, switch = 60"
            )
        latest = max(1, steps // 2) if self.latest is None else self.latest
        if latest < self.earliest:
            raise ValueError(f"opd_then_rl: latest = {latest} is before earliest = {self.earliest}")
        return replace(self, latest=latest)

    def start(self) -> dict[str, Any]:
        return {"phase": "rl" if self.switch == 0 else "opd", **self.plateau.start()}

    def next(self, state: Mapping[str, Any], step: int, metrics: Mapping[str, float]) -> dict[str, Any]:
        if state["phase"] == "rl":
            return dict(state)
        seen = self.plateau.next(state, validation(metrics))
        if isinstance(self.switch, int):
            over = step >= self.switch
        else:
            assert self.latest is not None
            over = step >= self.latest or (step >= self.earliest and self.plateau.reached(seen))
        return {"phase": "rl" if over else "opd", **seen}

    def at(self, stack: Stack, phase: str) -> Stack:
        if phase == "opd":
            return stack.swap("opd_then_rl", advantage=TeacherGap("opd", clamp=self.clamp), reshape=None)
        return stack.only(p for p in stack if not isinstance(p.piece, Taught))


def validation(metrics: Mapping[str, float]) -> float | None:
    """The mean over answers of this step's evaluation; None where there was none."""
    return next((x for name, x in metrics.items() if name.startswith("eval/") and "/mean@" in name), None)


@register("method")
def opd_then_rl(
    method: Method,
    switch: int | Literal["plateau"] | None = None,
    earliest: int = 1,
    latest: int | None = None,
    patience: int = 3,
    min_delta: float = 0.005,
    smooth: float = 0.0,
    afresh: bool = False,
    joint: Literal["additive", "additive_mask", "anneal", "modulated"] | None = None,
    b: float = 0.2,
    last: float = 0.002,
    clamp: float | None = 10.0,
) -> Method:
    """Learns from a teacher's log-probs first and from verdicts afterwards. Needs a teacher in the recipe.

    switch: last step of the first phase; 0: none of it; "plateau": when evaluations (eval.every) no longer rise; None:
    two fifths of the run. earliest, latest: bounds of a plateau's switch; latest None: half of the run. patience,
    min_delta: evaluations on end without a rise of more than this. smooth: share of the earlier mean in evaluations,
    0.5 for noisy ones. afresh: whether the optimiser forgets its moments at the switch.
    joint: mixes both in all steps instead, with weight b ("anneal": from b to last). clamp: nats that the
    teacher's word counts at most; None: no limit.
    """
    if isinstance(switch, int) and switch < 0:
        raise ValueError(f"switch is the last step of the first phase, 0 for none of it; got {switch}")
    if earliest < 1 or (latest is not None and latest < earliest):
        raise ValueError(f"steps count from 1, and earliest is not after latest; got {earliest} and {latest}")
    if switch != "plateau" and (earliest != 1 or latest is not None):
        raise ValueError('earliest and latest bound a switch at a plateau; write switch = "plateau", or drop them')
    check_clamp(clamp)
    if joint is None:
        phases = TeacherFirst(switch, earliest, latest, NoBetter(min_delta, patience, smooth), clamp, afresh)
        return method.firm("opd_then_rl", row_weight=Taught(), phases=phases)
    if switch is not None or afresh:
        raise ValueError(f'joint = "{joint}" mixes teacher and verifier in every step: there is no switch to set')
    return method.firm("opd_then_rl", reshape=JoinedTeacher(joint, b, last, clamp), row_weight=Taught())

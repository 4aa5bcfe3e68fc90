"""OPDVR: distil from a teacher on the policy's own answers, with the verdict for the sign and the teacher for the size.

    g_t = teacher_logp_t - old_logp_t             s_i = 1 right, -1 wrong
    A_t = s_i relu(s_i g_t)                       right rows: max(0, g), wrong rows: min(0, g)

A_t goes into the stack's own loss, PPO's clip with a token mean. Without the gate (mode "opd") a wrong answer that the
teacher likes is learned, and a right one that it dislikes is unlearned; with it no token moves against its verdict.
There is no group in it, so one answer a question will do. A policy that a fixed point of OPD would pull back to its
teacher stays where it is once it is better: the gate lets it rise to the teacher and no further, and never fall.

GRPD takes the sign and the size from the group: opdvr(sign="group", scale="advantage"), A_t times |A_i|, A_i the reward
less the group's mean. Silent groups then teach nothing.

Rows on which the teacher has no word weigh nothing; where the token that ends an answer is no end to the teacher, it
earns nothing (see [teacher] in the recipe). A_t is never normalised over the batch, which would move its sign.

Source: arXiv 2608.24696 and its code (LeapLabTHU/OPDVR): temperature 1 for both, one update a batch, no KL. The paper
as it was read does not scale GRPD and its code does; its README leaves out the division by the spread and its script
has it: scale and norm_std say which. Clamp and the mode random_gate, a control, are ours.
"""

from __future__ import annotations

from typing import Literal

from rlvr.advantage.teacher import TeacherGap
from rlvr.loss.weights import Taught
from rlvr.method import Method
from rlvr.registry import register

fills = ("advantage", "row_weight")
paper = "OPDVR: On-Policy Distillation with Verifiable Rewards, arXiv 2608.24696"
# A teacher that moves right rows up by one nat and wrong ones down by one leaves the verdict's sign, which is what
# GRPO makes of one right and one wrong answer.
neutral = {"input": "taught_twins", "equals": "grpo(eps=0.0)", "near": {"mode": "inverse"}, "exact": False}


@register("method")
def opdvr(
    method: Method,
    mode: Literal["opd", "gated", "inverse", "random_gate"] = "gated",
    sign: Literal["verdict", "group"] = "verdict",
    scale: Literal["none", "advantage"] = "none",
    floor: float = 0.0,
    norm_std: bool = False,
    clamp: float | None = 10.0,
) -> Method:
    """Advantages from a teacher's log-probs, gated by the verdict. Needs a teacher in the recipe.

    mode: "gated" is the paper's; "opd" is plain distillation, "inverse" keeps what "gated" drops, "random_gate" drops
    as many tokens by chance. sign: who decides which way a row may move; "group" is GRPD's. scale: "advantage"
    multiplies with |A| + floor, A the group's advantage. norm_std: whether A is divided by the group's spread. clamp:
    nats that the teacher's word counts at most; None: no limit.
    """
    piece = TeacherGap(mode, sign, scale, floor, norm_std, clamp)
    return method.firm("opdvr", advantage=piece, row_weight=Taught())

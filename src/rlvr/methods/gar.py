"""GAR, gradient-aligned reward: of right answers, those whose gradient points where the expert's does earn more.

    S(y)  = sum over t of delta_t * h_t            delta_t gradient of the answer's loss with respect to h_t, the hidden
                                                   state that predicts token t; h_t detached, nothing deeper looked at
    c_i   = max over solutions a of cos(S(y_i), S(a))          both after the same prompt, by the policy of this step
    r_i   = 1 + beta * max(0, c_i - m)             right answers; m the mean c of the group's right answers, 0 for a
                                                   lone one; wrong answers earn 0, whatever they look like

The 1 is what the recipe pays for right. With answers of a teacher beside the task's solutions, c = c1 + aux_weight *
max(0, c2 - c1). No solution: no bonus. Of long answers the last max_tokens of the thinking count. The gradient costs
one product with the head's matrix in the pass that scores old_logp, and a pass over the solutions; where the sampler's
log-probs stand for old_logp, it needs that pass again over right answers.

Source: github.com/LQgdwind/GAR ("Gradients Know What Outcomes Don't"); numbers from there. kernel = "outer" compares
gradients of the whole head, whose product of two tokens is (e . e') (h . h'): the form in which the abstract's factors
are exact. Ours: answers without a solution degrade to outcome reward (the code stops); the code's format and length
penalties are not here, dapo's overlong and verifiers' parts do that.
"""

from __future__ import annotations

from typing import Literal

from rlvr.method import Method
from rlvr.registry import register
from rlvr.reward.alignment import Aggregate, AlignedBonus, Alignment
from rlvr.rollout.anchors import Anchors

fills = ("annotate", "derive", "reward")
paper = "Gradients Know What Outcomes Don't: gradient-aligned reward (LQgdwind/GAR)"
neutral = {"settings": {"beta": 0.0}, "equals": "grpo", "near": {"beta": 0.5}}


@register("method")
def gar(
    method: Method,
    beta: float = 0.5,
    kernel: Literal["hadamard", "outer"] = "hadamard",
    solution: str | None = None,
    teacher: str | None = None,
    aggregate: Aggregate = "aux_residual",
    aux_weight: float = 0.5,
    max_anchors: int = 4,
    max_tokens: int = 16384,
    mark: str | None = "</think>",
    valid: str | None = None,
    outer_tokens: int = 64,
    outer_k: int = 64,
    shuffled: bool = False,
) -> Method:
    """Right answers earn more, the better their gradient agrees with that of a solution.

    beta: what agreement above the group's mean earns. kernel: "outer" compares gradients of the whole head. solution:
    key of the tasks' meta that holds a worked solution; None: "solution", else "demo". teacher: folder of `rlvr
    rollout` with a teacher's answers to these tasks. aggregate, aux_weight: how these count; "real_only"
    not at all, "aux_max" as max(c1, aux_weight * c2). max_anchors: solutions a task, of each kind. max_tokens: last
    tokens of an answer's thinking that count. mark: text that ends thinking; None: all is thinking. valid: part of the
    verdict that an answer must have above 0. outer_tokens, outer_k: tokens a row, and likeliest tokens, in "outer".
    shuffled: answers are held against another task's solution, a control.
    """
    if aux_weight < 0:
        raise ValueError(f"aux_weight is how much a teacher's answers count, not negative; got {aux_weight}")
    if outer_k < 1:
        raise ValueError(f"outer_k counts tokens of the vocabulary, at least 1; got {outer_k}")
    every = outer_tokens if kernel == "outer" else None
    anchors = Anchors(solution, teacher, max_anchors, mark, max_tokens, every)
    cosine = Alignment(kernel, aggregate, aux_weight, teacher is not None, outer_tokens, outer_k, shuffled)
    return method.prefer("gar", annotate=anchors).firm("gar", derive=cosine, reward=AlignedBonus(beta, valid))

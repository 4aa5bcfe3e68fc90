"""VERPO with Fisher evidence contrast: shown evidence, the policy says which tokens to credit, never against a verdict.

    c  = log q(. | evidence, x, y<t) - log q(. | blank, x, y<t)          what the evidence changes
    d  = log q(. | another task's evidence, ...) - log q(. | blank, ...)     what any evidence changes: style
    c' = c less its projection on d                                       FEC, in the Fisher metric of the policy
    A_t = A + clip(beta kappa_t (c'(y_t) - E_p c'), -b_max |A|, b_max |A|)

kappa_t >= 0 is the step of a trust region, a/(lam m) at most alpha_max, where the evidence agrees with the advantage (a
> 0) by more than tau of the row's mean, and less where little is to be gained (advantage/evidence.py has all of it). So
no advantage turns its sign; without evidence, a blank that says the same, or A = 0 the stack is as it was. mode =
"distill" leaves advantages alone and moves logits by beta kappa c' instead. Beside it a small KL to the blank context.

Three further contexts of one model, exact over the vocabulary; behind a server (by = "teacher") the union of the
likeliest 64 tokens that it names, all others as one.

Where a token is a choice between two, all log-ratios are along one line, and the contrast a token at a time leaves none
of c but what rho keeps; fec = "batch" or "none" is for that.

Source: of VERPO only the abstract is public (the parts of the decomposition, contrast, acceptance, localisation and
cost scaling); the estimator and all numbers are our reading. A spec wanted scope = "batch" to project on the batch's
mean direction, which has the width of the vocabulary and would need a second look; ours is one f for the batch.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

from rlvr.advantage.evidence import (
    CC,
    CD,
    CY,
    BlankKL,
    Controller,
    Counterfactuals,
    Distilled,
    EvidenceCredit,
    EvidencePull,
    Scope,
    look,
)
from rlvr.batch import Batch
from rlvr.method import Method
from rlvr.registry import register
from rlvr.rollout.evidence import Evidence, Source

fills = ("annotate", "reshape", "derive", "terms")
paper = "VERPO with Fisher Evidence Contrast (2026)"
neutral = {
    "settings": {"beta_ref": 0.0},
    "input": "evidence_that_says_nothing",
    "equals": "grpo",
    "near": {"beta_ref": 0.1},
}


def evidence_that_says_nothing(batch: Batch, policy: Any) -> tuple[Batch, Any]:
    """Shown evidence, the model says what it says of a blank."""
    return batch.with_({name: torch.zeros_like(batch["old_logp"]) for name in (CC, CD, CY)}), policy


@register("method")
def verpo(
    method: Method,
    evidence: Source = "reference",
    key: str | None = None,
    template: str = "{slot}\n{prompt}",
    placeholder: str = "?",
    by: Literal["policy", "reference", "teacher"] = "policy",
    others: int = 1,
    k: int = 0,
    mode: Literal["credit", "distill"] = "credit",
    fec: Scope = "token",
    beta: float = 1.0,
    b_max: float = 1.0,
    lam: float = 1.0,
    alpha_max: float = 2.0,
    tau: float = 0.1,
    rho: float = 0.1,
    beta_ref: float = 1e-3,
    pulls: int = 64,
    silent: bool = False,
    shuffled: bool = False,
) -> Method:
    """Credits tokens that evidence in the prompt makes likelier, where that agrees with the verdict.

    evidence: "reference" is the task's worked steps or answer; "peer" a right sibling's answer; "feedback" what
    the verdict says. key: of the tasks' meta, with the reference; None: "steps", "solution", "demo", else the answer.
    template, placeholder: the prompt with {slot} and {prompt}, and what stands in the slot where nothing is told. by:
    whose word it is. others: other tasks' evidence that style is measured by; 0: none. k: likeliest tokens of each
    context that are told apart; 0: the whole vocabulary. mode: see above. fec: "batch" takes style out by one factor
    for all tokens, "none" leaves it. beta, b_max, lam, alpha_max, tau, rho: see above. beta_ref: weight of the KL to
    the blank context. pulls: tokens that "distill" moves at a place. silent: whether groups whose verdicts are all
    alike are looked at too; they have no advantage to be shaped. shuffled: what passes for evidence is another task's,
    a control.
    """
    if others < 0 or k < 0:
        raise ValueError(f"others counts tasks and k tokens, 0 for none; got {others} and {k}")
    if pulls < 1:
        raise ValueError(f"pulls counts tokens, at least 1; got {pulls}")
    control = Controller(lam, alpha_max, tau, rho, fec if others else "none")
    view = look(Counterfactuals(others, k, pulls if mode == "distill" else 0), by, silent, shuffled)
    method = method.prefer("verpo", annotate=Evidence(evidence, key, template, placeholder))
    credit = EvidenceCredit(view, control, beta, b_max)
    if mode == "credit":
        method = method.firm("verpo", reshape=credit)
    else:
        method = method.firm("verpo", derive=EvidencePull(view, control))
    terms = (*((Distilled(beta),) if mode == "distill" else ()), *((BlankKL(view, beta_ref),) if beta_ref else ()))
    return method.firm("verpo", terms=terms) if terms else method

"""ThinkPrior: another model's pass rates, measured once, say which prompts will teach before the first rollout.

    m_i = (h_i + 1/2) / (n_i + 1)            the anchor got h_i of n_i judged answers to task i right
    p_i ~ Beta(strength m_i, strength (1 - m_i)), then every outcome of training counts:  a += right,  b += wrong
    a step takes the tasks of highest E[p (1 - p)] = a b / ((a + b)(a + b + 1))

A group that is all right or all wrong teaches a group-relative method nothing; history must waste rollouts to learn
which tasks those are. The anchor's table is made once, offline:

    rlvr rollout RECIPE --model ANCHOR --k 8 --out anchors
    rlvr train RECIPE --method "+thinkprior(anchors='anchors')"

Loss and optimiser stay as they are. With dapo the next best tasks refill a step until it is full of mixed groups, at
most max_refills rounds (a step may end up short: `group/short`). `fit_shift` moves all of the anchor's shares by one
number in log-odds that training's outcomes tell, for anchors that are stronger or weaker than the policy.

Source: "ThinkPrior: Zero-Rollout Difficulty Priors for Cold-Start Prompt Selection in RLVR", of which only the abstract
is public: pool of 250 prompts, 30 steps, 3840 rollouts, a Beta posterior from an anchor's pass rate, selection by
expected learnability. The rest is ours: strength = 8, half a smoothing answer on each side, nothing forgotten, modes
and calibration (select/learnability.py).
"""

from __future__ import annotations

from typing import Literal

from rlvr.method import Method
from rlvr.registry import register
from rlvr.select.learnability import Learnability

fills = ("select",)
paper = "ThinkPrior: Zero-Rollout Difficulty Priors for Cold-Start Prompt Selection in RLVR (2026)"
# It chooses tasks: on the same tasks it is its base. What it chooses, tests/test_thinkprior.py holds.
neutral = {"settings": {}, "equals": "grpo"}


@register("method")
def thinkprior(
    method: Method,
    anchors: str | None = None,
    strength: float = 8.0,
    value: Literal["expected", "nonsilent"] = "expected",
    mode: Literal["topk", "proportional", "thompson"] = "topk",
    forget: float = 1.0,
    shift: float = 0.0,
    fit_shift: bool = False,
    missing: Literal["error", "uninformative"] = "error",
    other_verifier: bool = False,
) -> Method:
    """Takes the tasks that will probably have both right and wrong answers, from an anchor's pass rates on.

    anchors: folder of `rlvr rollout`, or its tasks.jsonl; None: every task begins at Beta(1, 1). strength: answers that
    the anchor counts as. value: "nonsilent" is the chance that a group is mixed. mode: "proportional" draws,
    "thompson" draws a pass rate for each task. forget: share of old outcomes that stays after a step. shift: added to
    the anchor's log-odds; fit_shift: found from outcomes. missing: "uninformative" lets tasks without an anchor begin
    at Beta(1, 1). other_verifier: whether another verifier may have judged the anchor.
    """
    piece = Learnability(anchors, strength, value, mode, forget, shift, fit_shift, missing, other_verifier)
    return method.firm("thinkprior", select=piece)

"""FlowBalance: the verdict and a privileged look in one energy over whole answers, of which the verdict owns the sign.

    d_t = clip(ref_logp_t under c - ref_logp_t, -bound, bound)     c a prompt with a solution, never shown to the policy
    G_i = (sum over t of d_t) / T^rho,     E_i = eta A_i + beta sign(A_i) G_i,     L_i = (sum over t of logp_t) / T^rho
    loss = mean over valid rows of (L_i - (L_i^ref + E_i / tau + b))^2
    b    = mean over the valid rows of one task and one context of (L_i^old - L_i^ref - E_i / tau)

T the row's length, A_i the stack's advantage. b is minus the log of an estimated partition function, so that a target
is p* ~ ref exp(E / tau) without a network for Z, and only differences within a partition are learned. In the batch's
terms: the context and its number are annotations, the look is a view, `flowbalance/target` is E / tau + b, and the loss
is sequence regression with the reference as anchor. With beta = 0 nobody looks at contexts: FlowRL with a profiled Z.
With rho = 1 the loss's fixed point is ref exp(T (E / tau + b)): a distribution only where lengths are equal.

A context shows the group's first other right answer; equal ones are one context. Rows without one are left out, or
(no_context = "keep") have G = 0 and a partition of their own; partitions of fewer than `least` rows are left out. So
with partitions by context a group's only right answer is never compared with the wrong ones, and the first of several
only if another reads the same: partition = "group" compares all rows of a task.

Source: arXiv 2609.03241 and its released code, which has all the defaults. Its energy has one exponent rho and no tau
(1 here). Ours: profile = "current", silent_groups, partition = "group", gate = False as a control.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rlvr.batch import Batch, Tally
from rlvr.loss.reduction import RowMean
from rlvr.loss.regression import SequenceRegression, per_row
from rlvr.method import Method
from rlvr.registry import register
from rlvr.rollout.privileged import CONTEXT, SOURCE, Solutions
from rlvr.streams import declare
from rlvr.views import Behind, Look, View

fills = ("annotate", "derive", "row_weight", "loss", "reduction")
paper = "FlowBalance, arXiv 2609.03241"
# At the reference the residuals are -eta A, with slope -2 eta A; laid on rows of one token that is GRPO's gradient.
neutral = {
    "settings": {"beta": 0.0, "eta": 0.5},
    "input": "twins_at_the_reference",
    "equals": "grpo",
    "compare": "gradient",
    "near": {"eta": 1.0},
    "exact": False,
}

LOGP, SEEN = "flowbalance/context_logp", "flowbalance/seen"
TARGET, VALID, KEY = "flowbalance/target", "flowbalance/valid", "flowbalance/key"
declare("token", LOGP, "log-prob under the anchor's model after a prompt that shows a solution")
declare("row", SEEN, "the row was looked at under its context")
declare("row", TARGET, "what the row's log-prob, relative to the anchor's, is drawn to")
declare("row", VALID, "the row is learned from")
declare("row", KEY, "number of the partition that the row belongs to: its task, and the context that it is seen in")


@dataclass(frozen=True)
class Energy:
    """E / tau, and with `profiled` b added. anchor: "ref_logp", or "old_logp" with the policy that starts the step in
    the place of the reference. Gives flowbalance/target, /valid and /key [R]."""

    eta: float = 15.0
    beta: float = 1.0
    bound: float = 4.0
    rho: float = 1.0
    tau: float = 1.0
    anchor: Literal["ref_logp", "old_logp"] = "ref_logp"
    keep: bool = False
    least: int = 2
    by_context: bool = True
    silent_groups: bool = True
    gate: bool = True
    profiled: bool = True
    gives: ClassVar = (TARGET, VALID, KEY)

    @property
    def needs(self) -> tuple[Any, ...]:
        own = ("row_advantage", "known", "group", "old_logp", self.anchor)
        if not self.beta:
            return own
        model = "reference" if self.anchor == "ref_logp" else "policy"
        look = View(Look(LOGP), model, (("a solution", Behind(CONTEXT)),), looked=SEEN)
        return (*own, SOURCE, look)

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        energy = self.energy(batch) / self.tau
        valid, key = self.partitions(batch)
        target = energy
        if self.profiled:
            moved = per_row(batch["old_logp"] - batch[self.anchor], batch, self.rho)
            target = energy + batch.mean_by(key, moved - energy, valid).to(energy.dtype)
        return {TARGET: torch.where(valid, target, 0.0), VALID: valid, KEY: key}

    def gap(self, batch: Batch) -> Tensor:
        """[N] d_t before it is clipped; 0 on rows that were not looked at."""
        return torch.where(batch.spread(batch[SEEN].bool()), batch[LOGP] - batch[self.anchor], 0.0)

    def gain(self, batch: Batch) -> Tensor:
        """[R] G."""
        if not self.beta:
            return torch.zeros_like(batch["row_advantage"])
        return per_row(self.gap(batch).clamp(-self.bound, self.bound), batch, self.rho)

    def energy(self, batch: Batch) -> Tensor:
        """[R] E."""
        a = batch["row_advantage"]
        sign = torch.sign(a) if self.gate else torch.ones_like(a)
        return self.eta * a + self.beta * sign * self.gain(batch)

    def partitions(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """[R] bool rows that are learned from, and the numbers of their partitions."""
        valid = batch["known"] & (batch.length > 0)
        group, key = batch["group"], batch["group"]
        if self.beta:
            seen = batch[SEEN].bool()
            valid = valid if self.keep else valid & seen
            source = torch.where(seen, batch[SOURCE], -1.0).long()
            if self.by_context:
                key = group * (int(source.max()) + 2 if len(source) else 1) + source + 1
        if not self.silent_groups:
            says = (batch["row_advantage"] != 0) & batch["known"]
            valid = valid & (batch.sum_by(group, says.double()) > 0)
        enough = batch.sum_by(key, valid.double()) >= (self.least if self.beta else 1)
        return valid & enough, key

    def tell(self, batch: Batch) -> dict[str, Tally]:
        valid, known, right = batch[VALID], batch["known"], batch["correct"]
        told = {
            "flowbalance/valid": Tally.mean(valid),
            "flowbalance/verdict": Tally.mean(self.eta * batch["row_advantage"].abs(), valid),
        }
        if self.profiled:
            told["flowbalance/log_z"] = Tally.mean(self.energy(batch) / self.tau - batch[TARGET], valid)
        if not self.beta:
            return told
        seen, gain = batch[SEEN].bool(), self.gain(batch)
        good, bad = (Tally.mean(gain, seen & known & side) for side in (right, ~right))
        both = bool(good.count) and bool(bad.count)
        return told | {
            "flowbalance/seen": Tally.mean(seen),
            "flowbalance/clipped": Tally.mean(self.gap(batch).abs() > self.bound, batch.spread(seen)),
            "flowbalance/guide": Tally.mean(self.beta * gain.abs(), valid),
            "flowbalance/gain_right": good,
            "flowbalance/gain_wrong": bad,
            "flowbalance/contrast": Tally(good.value() - bad.value() if both else 0.0, float(both)),
        }


@dataclass(frozen=True)
class Usable:
    """1 for rows that are learned from, else 0. Returns row_weight [R]."""

    needs: ClassVar = (VALID,)

    def __call__(self, batch: Batch) -> Tensor:
        return batch[VALID].to(batch["behavior_logp"].dtype)


@register("method")
def flowbalance(
    method: Method,
    eta: float = 15.0,
    beta: float = 1.0,
    bound: float = 4.0,
    rho: float = 1.0,
    tau: float = 1.0,
    context: Literal["sibling", "reference", "sibling_first", "reference_first"] = "sibling",
    template: str | None = None,
    success: float = 0.5,
    no_context: Literal["drop", "keep"] = "drop",
    partition: Literal["context", "group"] = "context",
    least: int = 2,
    anchor: Literal["reference", "old"] = "reference",
    profile: Literal["old", "current"] = "old",
    weight_clip: float | None = None,
    silent_groups: bool = True,
    gate: bool = True,
) -> Method:
    """Draws whole answers to ref exp(E): the verdict says which way, a look at the answer beside a solution how far.

    eta, beta: weights of the verdict's advantage and of the privileged gain (0: nobody looks). bound: largest gain of a
    token. rho: exponent of the length that sums are divided by. tau: temperature of the target. context: where a
    solution comes from: another right answer of the group, the task's own, or one before the other. template: prompt
    around {prompt} and {solution}. success: score from which an answer is one. no_context: rows without a solution.
    partition: rows that are compared. least: fewest rows of a partition. anchor: who stands in the target and sees the
    solution. profile: "current" measures b anew at every update. weight_clip: importance weights of rows, up to this.
    silent_groups: whether groups without a signal are still drawn to the anchor. gate: False: sign(A) = 1, a control.
    """
    if not (eta >= 0 and beta >= 0 and bound > 0 and tau > 0):
        raise ValueError(f"eta, beta >= 0, bound, tau > 0; got eta={eta}, beta={beta}, bound={bound}, tau={tau}")
    if rho < 0 or least < 1 or not 0 < success <= 1:
        raise ValueError(f"rho >= 0, least >= 1, success in (0, 1]; got rho={rho}, least={least}, success={success}")
    if template is not None and not ("{prompt}" in template and "{solution}" in template):
        raise ValueError(f"template says where {{prompt}} and {{solution}} go; got {template!r}")
    stream: Literal["ref_logp", "old_logp"] = "ref_logp" if anchor == "reference" else "old_logp"
    energy = Energy(
        *(eta, beta, bound, rho, tau, stream, no_context == "keep", least),
        *(partition == "context", silent_groups, gate, profile == "old"),
    )
    centre = KEY if profile == "current" else None
    loss = SequenceRegression(TARGET, stream, rho=rho, weight_clip=weight_clip, centre=centre)
    shown = (Solutions(context, template, success),) if beta else ()
    return method.firm(
        "flowbalance", annotate=shown, derive=energy, row_weight=Usable(), loss=loss, reduction=RowMean()
    )

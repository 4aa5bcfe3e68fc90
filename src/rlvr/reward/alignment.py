"""How much an answer's gradient points where a solution's does, and a bonus for right answers that excel in it.

Of a sequence, per token: h its last hidden state, e = softmax(W h) - onehot(y). Mean negative log-likelihood then has
the gradient W^T e / n with respect to h, and e h^T / n with respect to the head W. Two kernels compare two sequences:

    hadamard   cosine of S = sum over t of (W^T e_t) * h_t, a vector of the width of h
    outer      cosine of the head's whole gradients, whose product is sum over t, s of (e_t . e'_s) (h_t . h'_s)

Lengths cancel in a cosine. A sequence whose vector is shorter than 1e-8, or no number, has the cosine 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rlvr import streams
from rlvr.batch import Batch, Tally
from rlvr.rollout.anchors import SOLUTIONS, SPAN, TEACHER, evenly
from rlvr.views import Seen, View

Aggregate = Literal["aux_residual", "real_only", "aux_max"]
SHORTEST = 1e-8
SKETCH, COSINE, ANCHORED, SICK = "alignment/sketch", "alignment/cosine", "alignment/anchored", "alignment/sick"
STATE, ERROR, ERROR_IDS = "alignment/state", "alignment/error", "alignment/error_ids"
streams.declare(
    "row", SKETCH, "[R, d] sum over the compared tokens of the gradient at the hidden state, times the state"
)
streams.declare("row", COSINE, "cosine of the row's gradient with the nearest solution's; 0 where nobody looked")
streams.declare("row", ANCHORED, "the row was compared with a solution")
streams.declare("row", SICK, "the row's gradient is no number")
streams.declare("token", STATE, "[N, d] last hidden state")
streams.declare("token", ERROR, "[N, K] largest entries of softmax less onehot")
streams.declare("token", ERROR_IDS, "[N, K] tokens of these entries")


# ---- probes ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Sketch:
    """Probe: (W^T e) * h, summed over a row. `spanned`: only over the tokens of `anchors/span`."""

    spanned: bool
    gives: ClassVar = (SKETCH,)

    @property
    def needs(self) -> tuple[str, ...]:
        return (SPAN,) if self.spanned else ()

    def __call__(self, seen: Mapping[str, Seen]) -> dict[str, Tensor]:
        (one,) = seen.values()
        error = one.plain_logp_all.exp()
        error[torch.arange(len(error), device=error.device), one.token] -= 1
        sketch = one.pull_back(error) * one.hidden.to(error.dtype)
        return {SKETCH: sketch * one.streams[SPAN][:, None].to(error.dtype) if self.spanned else sketch}

    def stand_in(self, batch: Batch) -> dict[str, Tensor]:
        return {SKETCH: torch.sin((batch["id"][:, None] + 1) * torch.tensor([1.0, 2.3, 4.1], dtype=torch.float64))}


@dataclass(frozen=True)
class TokenGradients:
    """Probe: a token's hidden state and the k largest entries of its e; what is left out of e is small, and exactly
    nothing where k is the vocabulary."""

    k: int
    gives: ClassVar = (STATE, ERROR, ERROR_IDS)

    def __call__(self, seen: Mapping[str, Seen]) -> dict[str, Tensor]:
        (one,) = seen.values()
        error = one.plain_logp_all.exp()
        error[torch.arange(len(error), device=error.device), one.token] -= 1
        ids = error.abs().topk(min(self.k, error.shape[-1])).indices
        return {STATE: one.hidden.to(error.dtype), ERROR: error.gather(-1, ids), ERROR_IDS: ids}


# ---- where probes look -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Compared:
    """[R] bool: right rows of groups that have a solution."""

    sides: tuple[str, ...]

    @property
    def needs(self) -> tuple[str, ...]:
        return ("correct", "known", *(f"side/{name}" for name in self.sides))

    def __call__(self, batch: Batch) -> Tensor:
        groups = torch.cat([batch.side[name]["group"] for name in self.sides])
        return batch["correct"] & batch["known"] & torch.isin(batch["group"], groups)


@dataclass(frozen=True)
class Thinned:
    """Right rows with at most `tokens` of their span left, evenly taken, as another batch."""

    tokens: int

    def __call__(self, batch: Batch) -> Batch:
        assert batch.chains is not None
        inside = (batch[SPAN] != 0) & batch.spread(batch["correct"] & batch["known"])
        kept = []
        for row in torch.arange(len(batch.row), device=inside.device)[inside].split(batch.row_sum(inside).tolist()):
            kept.append(
                row if len(row) <= self.tokens else row[torch.from_numpy(evenly(len(row), self.tokens)).to(row)]
            )
        at = torch.cat(kept)
        length = torch.tensor([len(x) for x in kept], device=at.device)
        names = ("id", "group", "episode", "correct", "known")
        chains = replace(batch.chains, at=batch.chains.at[at])
        return Batch.pack(length, chains, token=batch["token"][at], **{name: batch[name] for name in names})


# ---- cosines ---------------------------------------------------------------------------------------------------------
def unit(x: Tensor) -> Tensor:
    """[R, d] rows of length 1; 0 for rows that are too short or no numbers."""
    x = x.double()
    size = x.norm(dim=-1, keepdim=True)
    return torch.where(torch.isfinite(size) & (size > SHORTEST), x / size.clamp(min=SHORTEST), 0.0)


def nearest(cosine: Tensor, group: Tensor, theirs: Tensor) -> Tensor:
    """[R] the largest of a row's cosines [R, A] with solutions of its own group; -inf where there is none."""
    if not cosine.shape[1]:
        return torch.full((len(group),), -torch.inf, dtype=torch.float64, device=group.device)
    return cosine.masked_fill(group[:, None] != theirs, -torch.inf).amax(1)


def moved(group: Tensor, known: Tensor) -> Tensor:
    """[R] for each row's group the next one round that is among `known`."""
    names = torch.unique(known)
    if not len(names):
        return group
    return names[torch.searchsorted(names, group, right=True) % len(names)]


def combined(real: Tensor, aux: Tensor, weight: float, aggregate: Aggregate) -> Tensor:
    """[R] one number of the cosines with solutions and with a teacher's answers, -inf where there are none."""
    if aggregate == "real_only":
        return real
    both = torch.maximum(real, weight * aux)
    if aggregate == "aux_residual":
        both = real + weight * (aux - real).clamp(min=0)
    return torch.where(torch.isneginf(aux), real, torch.where(torch.isneginf(real), aux, both))


def gram(one: tuple[Tensor, Tensor, Tensor], other: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Sum over pairs of tokens of (e . e') (h . h'), of (h [n, d], e [n, K], ids [n, K]) each; no vocabulary is laid
    out."""
    (h, e, ids), (h2, e2, ids2) = one, other
    names, place = torch.unique(torch.cat([ids.flatten(), ids2.flatten()]), return_inverse=True)
    lay = lambda values, at: values.new_zeros(len(values), len(names)).scatter_(1, at.view_as(values), values)  # noqa: E731
    errors = lay(e, place[: ids.numel()]) @ lay(e2, place[ids.numel() :]).T
    return (errors.double() * (h @ h2.T).double()).sum()


@dataclass(frozen=True)
class Alignment:
    """Gives alignment/cosine, alignment/anchored and alignment/sick [R], equal on an episode's rows.

    kernel: see above; "outer" compares at most `tokens` tokens of a row, with `k` entries of e each, and reads the
    right rows a second time. shuffled: solutions of the next group that has some, a control.
    """

    kernel: Literal["hadamard", "outer"] = "hadamard"
    aggregate: Aggregate = "aux_residual"
    weight: float = 0.5
    teacher: bool = False
    tokens: int = 64
    k: int = 64
    shuffled: bool = False
    gives: ClassVar = (COSINE, ANCHORED, SICK)

    @property
    def sides(self) -> tuple[str, ...]:
        return (SOLUTIONS, *((TEACHER,) if self.teacher else ()))

    @property
    def needs(self) -> tuple[Any, ...]:
        where = Compared(self.sides)
        probe = Sketch(False) if self.kernel == "hadamard" else TokenGradients(self.k)
        whose = None if self.shuffled else where
        theirs = [View(probe, side=(name, None), where=whose) for name in self.sides]
        if self.kernel == "hadamard":
            ours = View(Sketch(True), where=where)
        else:
            ours = View(probe, side=(f"alignment/{self.tokens}", Thinned(self.tokens)), where=where)
        span = () if self.kernel == "hadamard" else (SPAN,)
        return (ours, *theirs, *span, "group", "episode", "correct", "known")

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        group = batch["group"]
        real, *rest = (
            self.cosines(batch, name, moved(group, batch.side[name]["group"]) if self.shuffled else group)
            for name in self.sides
        )
        aux = rest[0] if rest else torch.full_like(real, -torch.inf)
        cosine = combined(real, aux, self.weight, self.aggregate)
        right = batch["correct"] & batch["known"]
        anchored = right & ~torch.isneginf(cosine)
        return {COSINE: torch.where(anchored, cosine, 0.0), ANCHORED: anchored, SICK: anchored & self.sick(batch)}

    def cosines(self, batch: Batch, name: str, group: Tensor) -> Tensor:
        """[R] float64, with the nearest of a side's rows in `group` [R]; -inf where there is none."""
        other = batch.side[name]
        if not len(other):
            return torch.full((len(batch),), -torch.inf, dtype=torch.float64, device=batch.length.device)
        if self.kernel == "hadamard":
            if batch[SKETCH].dim() == 1:  # no row was looked at
                return nearest(
                    batch["group"].new_zeros(len(batch), len(other)).double(), batch["group"], other["group"]
                )
            ours, theirs = unit(batch.episode_sum(batch[SKETCH])), unit(other[SKETCH])
            return nearest(ours @ theirs.T, group, other["group"])
        return nearest(self._outer(batch, other, group), group, other["group"])

    def _outer(self, batch: Batch, other: Batch, group: Tensor) -> Tensor:
        """[R, A] cosines of whole gradients, 0 for rows of other groups than `group` [R]."""
        mine = batch.side[f"alignment/{self.tokens}"]
        out = torch.zeros(len(batch), len(other), dtype=torch.float64, device=batch.length.device)
        if mine[STATE].dim() == 1 or other[STATE].dim() == 1:
            return out
        theirs = [
            tuple(x[other.row == j] for x in (other[STATE], other[ERROR], other[ERROR_IDS])) for j in range(len(other))
        ]
        sizes = [gram(a, a).clamp(min=0).sqrt() for a in theirs]  # type: ignore[arg-type]
        for i in torch.unique(mine.row).tolist():
            of_episode = mine["episode"][mine.row] == mine["episode"][i]
            one = tuple(x[of_episode] for x in (mine[STATE], mine[ERROR], mine[ERROR_IDS]))
            size = gram(one, one).clamp(min=0).sqrt()  # type: ignore[arg-type]
            for j in (other["group"] == group[i]).nonzero()[:, 0].tolist():
                if float(size) > SHORTEST and float(sizes[j]) > SHORTEST:
                    out[i, j] = gram(one, theirs[j]) / (size * sizes[j])  # type: ignore[arg-type]
        return torch.nan_to_num(out)

    def sick(self, batch: Batch) -> Tensor:
        """[R] rows whose gradient is no number."""
        if self.kernel == "outer":
            mine = batch.side[f"alignment/{self.tokens}"]
            states = mine[STATE] if mine[STATE].dim() > 1 else mine[STATE][:, None]
            return mine.row_sum(~torch.isfinite(states).all(-1)) > 0
        sketch = batch[SKETCH]
        return ~torch.isfinite(sketch if sketch.dim() == 1 else sketch.sum(-1))


# ---- the bonus -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class AlignedBonus:
    """beta * max(0, c_i - m) for right rows, c the cosine, m its mean over the group's right answers, 0 where there is
    but one. Returns {"alignment": [R]}, equal on an episode's rows.

    valid: part of the verdict that must be above 0 for an answer to count as right here, e.g. "format".
    """

    beta: float = 0.5
    valid: str | None = None
    parts: ClassVar = ("alignment",)

    def __post_init__(self) -> None:
        if self.beta < 0:
            raise ValueError(f"beta is what alignment earns, not negative; got {self.beta}")

    @property
    def needs(self) -> tuple[str, ...]:
        part = (f"part/{self.valid}",) if self.valid else ()
        return (COSINE, ANCHORED, SICK, "correct", "known", "group", "episode", *part)

    def among(self, batch: Batch) -> Tensor:
        """[R] bool: right answers of valid form."""
        right = batch["correct"] & batch["known"]
        return right & (batch[f"part/{self.valid}"] > 0) if self.valid else right

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        cosine, right = batch[COSINE], self.among(batch)
        several = batch.group_count(right) >= 2
        mean = torch.where(several, batch.group_mean(cosine, right), 0.0)
        excels = right & batch[ANCHORED] & ~(several & (batch.group_std(cosine, right) == 0))  # equal but for rounding
        return {"alignment": torch.where(excels, self.beta * (cosine - mean).clamp(min=0), 0.0)}

    def tell(self, batch: Batch) -> dict[str, Tally]:
        right = self.among(batch)
        anchored = right & batch[ANCHORED]
        std = batch.group_std(batch[COSINE], anchored)
        return {
            "gar/anchored": Tally.mean(anchored, right),
            "gar/cosine": Tally.mean(batch[COSINE], anchored),
            "gar/cosine_std": Tally.mean(std, anchored & (batch.group_count(anchored) >= 2)),
            "gar/paid": Tally.mean(batch["reward/alignment"] > 0, anchored),
            "gar/not_finite": Tally.mean(batch[SICK], anchored),
        }

"""Token credit from what evidence in the prompt changes, in the direction of the verdict alone.

All of a token's quantities are covariances under the policy p over the vocabulary, <a, b> = E_p ab - E_p a E_p b (the
Fisher metric of logits), of the log-ratios c = log q_evidence - log q_blank and d = mean of log q_other - log q_blank:

    c'    = c - f d,   f = <c, d> / (<d, d> + rho)     what any evidence at all would change is taken out (FEC)
    g     = A (onehot(y) - p)                          the policy gradient's direction in logits
    a     = <g, c'> = A t,   t = c'(y) - E_p c'        alignment
    m     = <c', c'>                                   cost: moving logits by s c' costs s^2 m / 2 nats
    U     = a^2 / (2 lam m),   mean U = over the row's tokens, where a > 0
    kappa = 1[a > 0, U > tau mean U]  *  U / (U + mean U)  *  min(a / (lam m), alpha_max)

`Counterfactuals` looks; only these numbers leave it. `EvidenceCredit` turns them into advantages, `EvidencePull` and
`Distilled` into a loss whose gradient in logits is -beta kappa (p * (c' - E_p c')).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from rlvr import streams
from rlvr.batch import Batch, Now, Tally
from rlvr.loss.terms import kl_estimate
from rlvr.rollout.evidence import CUT, Shown
from rlvr.views import Seen, Told, View

CC, CD, DD, CY, DY = SCALARS = tuple(f"evidence/{name}" for name in ("cc", "cd", "dd", "cy", "dy"))
BLANK_LOGP, LOOKED = "evidence/blank_logp", "evidence/looked"
IDS, PULL_C, PULL_D, PULL = "evidence/ids", "evidence/pull_c", "evidence/pull_d", "evidence/pull"
for _name, _meaning in (
    (CC, "<c, c>: variance under the policy of what evidence changes"),
    (CD, "<c, d>: its covariance with what other evidence changes"),
    (DD, "<d, d>: variance of that"),
    (CY, "c of the token, less its mean under the policy"),
    (DY, "d of the token, less its mean under the policy"),
    (BLANK_LOGP, "log-prob of the token after a prompt whose evidence says nothing"),
    (IDS, "[N, K] tokens that are pulled"),
    (PULL_C, "[N, K] p (c - E c) of these"),
    (PULL_D, "[N, K] p (d - E d) of these"),
    (PULL, "[N, K] kappa p (c' - E c') of these"),
):
    streams.declare("token", _name, _meaning)
streams.declare("row", LOOKED, "the row was looked at with evidence in its prompt")
FLAT = 1e-8  # a c' of less variance moves nothing
Scope = Literal["token", "batch", "none"]


# ---- what is seen ----------------------------------------------------------------------------------------------------
def coarse(views: list[Seen | Told], k: int) -> list[Tensor]:
    """[n, V] log-probs of each view over the union of their k likeliest tokens and the token itself, -inf elsewhere,
    with all others as one further entry [n, V + 1]. Of what a server tells, tokens that it did not name for every view
    count among the others. k = 0: the whole vocabulary, where nobody is a server."""
    here = [v.logp_all for v in views if isinstance(v, Seen)]
    if k == 0 and len(here) == len(views):
        return here
    like = here[0]
    kept = torch.zeros_like(like, dtype=torch.bool)
    for x in here:
        kept.scatter_(1, x.topk(min(k or like.shape[1], like.shape[1])).indices, True)
    wide: list[Tensor] = []
    for v in views:
        if isinstance(v, Seen):
            wide.append(v.logp_all)
            continue
        assert v.ids is not None
        assert v.logps is not None
        x = torch.full_like(like, -torch.inf)
        named = (v.ids >= 0) & (v.ids < like.shape[1])
        row = torch.arange(len(x), device=x.device)[:, None].expand_as(named)[named]
        x[row, v.ids[named]] = v.logps[named].to(x.dtype)
        x.scatter_(1, v.token[:, None], v.logp[:, None].to(x.dtype))
        wide.append(x)
        kept &= torch.isfinite(x)
    kept.scatter_(1, views[0].token[:, None], True)
    out = []
    for x in wide:
        inside = x.masked_fill(~kept, -torch.inf)
        rest = (1 - inside.exp().sum(1, keepdim=True)).clamp(min=1e-9)  # of what is left only the sum is known
        out.append(torch.cat([inside, rest.log()], 1))
    return out


@dataclass(frozen=True)
class Counterfactuals:
    """Probe of the contexts "own", "blank", "evidence", "other/0", ...: the scalars above, and for `pulls` > 0 the pull
    on that many tokens. Exact over the vocabulary with k = 0, see `coarse`."""

    others: int = 1
    k: int = 0
    pulls: int = 0

    @property
    def gives(self) -> tuple[str, ...]:
        return (*SCALARS, BLANK_LOGP, *((IDS, PULL_C, PULL_D) if self.pulls else ()))

    @property
    def top(self) -> int:
        return self.k

    def __call__(self, seen: Mapping[str, Any]) -> dict[str, Tensor]:
        own, blank, shown = (seen[name] for name in ("own", "blank", "evidence"))
        other = [seen[f"other/{i}"] for i in range(self.others)]
        log_p, q0, qe, *qn = coarse([own, blank, shown, *other], self.k)
        y, p = own.token[:, None], log_p.exp()

        def centred(x: Tensor) -> Tensor:
            x = torch.where(torch.isfinite(x), x, 0.0)  # a token that nobody can write says nothing
            return x - (p * x).sum(1, keepdim=True)

        c, d = centred(qe - q0), centred(sum(qn) / len(qn) - q0 if qn else torch.zeros_like(q0))
        pc, pd = p * c, p * d
        of_y = lambda x: x.gather(1, y)[:, 0]  # noqa: E731
        values = ((pc * c).sum(1), (pc * d).sum(1), (pd * d).sum(1), of_y(c), of_y(d))
        told = {**dict(zip(SCALARS, values)), BLANK_LOGP: blank.logp}
        if self.pulls:
            # the last entry of coarse distributions is no token; what is not named here is one entry of the loss
            tokens = slice(own.logp_all.shape[1])
            ids = torch.maximum(p, qe.exp())[:, tokens].topk(min(self.pulls, own.logp_all.shape[1])).indices
            told |= {IDS: ids, PULL_C: pc.gather(1, ids), PULL_D: pd.gather(1, ids)}
        return told

    def stand_in(self, batch: Batch) -> dict[str, Tensor]:
        place = torch.arange(len(batch.row), device=batch.row.device) - batch.first[batch.row]
        phase = (12.9898 * (batch.spread(batch["id"]) + 1) + 78.233 * place).double()
        v = torch.arange(1, 12, dtype=torch.float64, device=phase.device)
        own = torch.sin(phase[:, None] * v)
        names = ("own", "blank", "evidence", *(f"other/{i}" for i in range(self.others)))
        see = lambda i: Seen(own + 0.4 * i * torch.sin(phase[:, None] * (v + i)), batch["token"] % 11, lambda h: h, 1.0)  # noqa: E731
        return {
            name: x if name == IDS else x.to(batch["old_logp"].dtype)
            for name, x in self({name: see(i) for i, name in enumerate(names)}).items()
        }


@dataclass(frozen=True)
class Mixed:
    """[R] bool: rows of groups whose verdicts differ; the others have no advantage to be shaped."""

    needs: ClassVar = ("score", "known", "group", "episode")

    def __call__(self, batch: Batch) -> Tensor:
        return batch.group_std(batch["score"]) > 0


def look(probe: Counterfactuals, model: str, silent: bool = True, shuffled: bool = False) -> View:
    """The policy as it is, and `model` under every kind of evidence. silent: in groups without a difference too.
    shuffled: what passes for evidence is another group's."""
    told = Shown("other", probe.others) if shuffled else Shown("true")
    shown: list[tuple[str, Any, str]] = [("blank", Shown("blank"), model), ("evidence", told, model)]
    shown += [(f"other/{i}", Shown("other", i), model) for i in range(probe.others)]
    return View(probe, contexts=(("own", None, "policy"), *shown), looked=LOOKED, where=None if silent else Mixed())


# ---- the controller --------------------------------------------------------------------------------------------------
class Control(NamedTuple):
    """One number a token."""

    f: Tensor  # how much of d is taken out of c
    t: Tensor  # c'(y) - E c'
    m: Tensor  # <c', c'>
    a: Tensor  # alignment
    kappa: Tensor


@dataclass(frozen=True)
class Controller:
    """f and kappa as above. rho is `rho` times the median <d, d> of looked-at tokens of the batch.

    scope: "token", the paper's f; "batch", one f for all tokens, sum <c, d> / (sum <d, d> + rho n); "none", f = 0.
    """

    lam: float = 1.0
    alpha_max: float = 2.0
    tau: float = 0.1
    rho: float = 0.1
    scope: Scope = "token"

    def __post_init__(self) -> None:
        for name in ("lam", "alpha_max"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is above 0, got {getattr(self, name)}")
        for name in ("tau", "rho"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is not negative, got {getattr(self, name)}")

    def taken_out(self, batch: Batch) -> Tensor:
        """[N] f."""
        cd, dd, live = batch[CD], batch[DD], batch.spread(batch[LOOKED])
        if self.scope == "none" or not bool(live.any()):
            return torch.zeros_like(cd)
        rho = self.rho * dd[live].median()
        if self.scope == "batch":
            total = (torch.where(live, dd, 0.0) + torch.where(live, rho, 0.0)).sum()
            one = torch.where(live, cd, 0.0).sum() / total if float(total) > 0 else torch.zeros_like(total)
            return torch.where(live & (dd > 0), one, 0.0)
        below = dd + rho
        return torch.where(dd > 0, cd / torch.where(below > 0, below, 1.0), 0.0)

    def __call__(self, batch: Batch, advantage: Tensor) -> Control:
        f = self.taken_out(batch)
        t = batch[CY] - f * batch[DY]
        m = (batch[CC] - 2 * f * batch[CD] + f * f * batch[DD]).clamp(min=0)
        a = advantage * t
        live = batch.spread(batch[LOOKED]) & (m > FLAT) & (a > 0)
        cost = self.lam * torch.where(live, m, 1.0)
        utility = torch.where(live, a * a / (2 * cost), 0.0)
        mean = batch.spread(batch.row_mean(utility))
        accepted = live & (utility > self.tau * mean)
        share = utility / torch.where(accepted, utility + mean, 1.0)
        return Control(f, t, m, a, torch.where(accepted, share * (a / cost).clamp(max=self.alpha_max), 0.0))


# ---- pieces ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class EvidenceCredit:
    """A + beta kappa t, at most b_max |A| away from A: no sign is ever turned. Returns advantage [N]."""

    view: View
    control: Controller
    beta: float = 1.0
    b_max: float = 1.0
    rank: ClassVar = 3

    def __post_init__(self) -> None:
        if self.beta < 0 or self.b_max < 0:
            raise ValueError(f"beta and b_max are not negative; got {self.beta} and {self.b_max}")

    @property
    def needs(self) -> tuple[Any, ...]:
        return ("advantage", CUT, self.view)

    def __call__(self, batch: Batch) -> Tensor:
        advantage = batch["advantage"]
        told, most = self.control(batch, advantage), self.b_max * advantage.abs()
        return advantage + torch.minimum(torch.maximum(self.beta * told.kappa * told.t, -most), most).to(
            advantage.dtype
        )

    def keeps(self, batch: Batch, new: Tensor) -> str:
        """What it promises: tokens keep their sign, do not shrink, and grow by b_max times what they were at most."""
        old = batch["advantage"]
        broken = {
            "a sign turns": new.sign() != old.sign(),
            "a token shrinks": new.abs() < old.abs(),
            "a token grows too far": new.abs() > (1 + self.b_max) * old.abs() * (1 + 1e-6),
        }
        return "; ".join(what for what, where in broken.items() if bool(where.any()))

    def tell(self, batch: Batch) -> dict[str, Tally]:
        """At the row's own advantage, as if no other paper had reshaped it."""
        if "row_advantage" not in batch:
            return {}
        return told_of(batch, self.control(batch, batch.spread(batch["row_advantage"])))


def told_of(batch: Batch, control: Control) -> dict[str, Tally]:
    live = batch.spread(batch[LOOKED])
    teaches = live & (control.a != 0)
    right = batch.spread(batch["correct"])
    return {
        "verpo/looked": Tally.mean(batch[LOOKED]),
        "verpo/agrees": Tally.mean(control.a > 0, teaches),
        "verpo/accepted": Tally.mean(control.kappa > 0, teaches),
        "verpo/kappa": Tally.mean(control.kappa, teaches & (control.kappa > 0)),
        "verpo/evidence": Tally.mean(batch[CC].clamp(min=0).sqrt(), live),
        "verpo/left": Tally(
            torch.where(live, control.m, 0.0).double().sum(), torch.where(live, batch[CC], 0.0).double().sum()
        ),
        "verpo/style": Tally.mean((batch[BLANK_LOGP] - batch["old_logp"]).abs(), live),
        "verpo/gain_right": Tally.mean(control.t, live & right),
        "verpo/gain_wrong": Tally.mean(control.t, live & ~right),
        "verpo/cut": Tally.mean(batch[CUT] == 1),
    }


@dataclass(frozen=True)
class EvidencePull:
    """Gives evidence/pull [N, K] = kappa p (c' - E c')."""

    view: View
    control: Controller
    gives: ClassVar = (PULL,)

    @property
    def needs(self) -> tuple[Any, ...]:
        return ("advantage", CUT, self.view)

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        told = self.control(batch, batch["advantage"])
        pull = batch[PULL_C] - told.f[:, None] * batch[PULL_D] if batch[PULL_C].dim() > 1 else batch[PULL_C][:, None]
        return {PULL: told.kappa[:, None] * pull}

    def tell(self, batch: Batch) -> dict[str, Tally]:
        return told_of(batch, self.control(batch, batch["advantage"]))


@dataclass(frozen=True)
class Distilled:
    """-beta * sum over v of pull(v) log pi(v), tokens that are not named as one. Returns token_loss [N]."""

    beta: float = 1.0
    name: ClassVar = "evidence"
    needs: ClassVar = (PULL, IDS)
    reads: ClassVar = ("logp", f"logp_at/{IDS}")

    def idle(self, batch: Batch) -> Tensor:
        return ~(batch[PULL] != 0).any(-1)

    def __call__(self, now: Now, batch: Batch) -> tuple[Tensor, dict[str, Tally]]:
        pull, logp = batch[PULL], now.logp_at[IDS]
        rest = (1 - logp.exp().sum(-1)).clamp(min=1e-9).log()
        return -self.beta * ((pull * logp).sum(-1) - pull.sum(-1) * rest), {}


@dataclass(frozen=True)
class BlankKL:
    """coef * KL(policy || q_blank) by k3, where evidence was looked at. Returns token_loss [N]."""

    view: View
    coef: float = 1e-3
    name: ClassVar = "blank"
    reads: ClassVar = ("logp",)

    def __post_init__(self) -> None:
        if self.coef < 0:
            raise ValueError(f"beta_ref is not negative; got {self.coef}")

    @property
    def needs(self) -> tuple[Any, ...]:
        return (self.view,)

    def idle(self, batch: Batch) -> Tensor:
        return ~batch.spread(batch[LOOKED])

    def __call__(self, now: Now, batch: Batch) -> tuple[Tensor, dict[str, Tally]]:
        live = batch.spread(batch[LOOKED])
        kl = torch.where(live, kl_estimate(now.logp, batch[BLANK_LOGP], "k3"), 0.0)
        return self.coef * kl, {"policy/kl_blank": Tally.mean(kl, live & (batch["weight"] != 0))}

"""The laws that every method must keep, as functions: for the project's own tests, for `rlvr check`, and for third
parties.

    cut invariance   micro-batches, order of rows and skipping of idle rows change neither loss nor gradient
    detachment       nothing that a piece computes carries gradient; only the running forward does
    reads            a piece reads only what it names in `needs`
    writes           a piece writes into nothing that it was given
    promises         a reshape piece leaves alone what it says in `keeps`
    memory           a piece's answer depends on the batch alone, not on what it was asked before
    finiteness       empty rows, silent groups, no verdicts, extreme ratios: finite loss and gradient; nothing to
                     learn gives a zero that is still connected to the graph
    neutrality       the setting or input that removes a paper's signal gives its base, and a nearby one does not
    commutation      papers stack in any order
    token truth      what a rollout trains is what was sampled, each token once, in the context that produced it

A paper states as a literal beside its function where its signal is gone, or which method it then reduces to:

    neutral = {"settings": {"clip_high": 0.2}, "equals": "grpo", "near": {"clip_high": 0.28}}

    equals    the stack that it must equal there
    settings  of the paper
    input     a function (batch, policy) -> (batch, policy), of the paper's module or of this one (section "inputs")
    near      settings that must make a difference on the same input; without it, the paper's defaults on an
              ordinary batch must
    exact     equal bits (True, the default) or 1e-6
    compare   "gradient": only the policy's gradient, where the losses' values mean different things
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from rlvr import registry, streams
from rlvr.alive import BEFORE_BATCH
from rlvr.batch import Batch, Now
from rlvr.contract import Scene, asked, remembered, undeclared, written
from rlvr.method import Method
from rlvr.pieces import ask, who
from rlvr.plan import Running
from rlvr.registry import get
from rlvr.reward.pays import Pays
from rlvr.stacking import Call, add, build_method, parse_call

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one law for one method."""

    law: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Policy:
    """A stand-in for a model: one free parameter a token, so that gradients are those with respect to log-probs."""

    logp: Tensor  # [N]
    entropy: Tensor  # [N]
    value: Tensor  # [N]

    def take(self, index: Tensor) -> Policy:
        return Policy(self.logp[index], self.entropy[index], self.value[index])


def random_batch(
    seed: int = 0,
    rows: int = 24,
    dtype: torch.dtype = torch.float64,
    stale: float = 0.3,
    vocabulary: int = 11,
) -> tuple[Batch, Policy]:
    """A batch as training makes them when off-policy: uneven groups in mixed order, episodes of several rows, empty,
    truncated and unjudged rows, a silent group, sampler noise; and a policy `stale` nats a token away (a clip fraction
    well above 1 %)."""
    noise = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=noise, dtype=dtype)  # noqa: E731
    chance = lambda p, n: torch.rand(n, generator=noise) < p  # noqa: E731
    length = torch.randint(1, 40, (rows,), generator=noise)
    length[3 % rows] = 0
    group = torch.randint(0, max(1, rows // 5), (rows,), generator=noise)
    episode = torch.arange(rows)
    for a, b in ((1, 2), (7, 8)):  # two rows of one episode
        if b < rows:
            episode[b], group[b] = episode[a], group[a]
    correct, known = chance(0.4, rows), ~chance(0.1, rows)
    correct[group == group[0]] = True  # a silent group
    correct, known = correct[episode], known[episode]
    n = int(length.sum())
    old = -normal(n).abs() - 0.05
    score = torch.where(known, torch.where(correct, 1.0, torch.where(chance(0.3, rows)[episode], 0.25, 0.0)), 0.0).to(
        dtype
    )
    batch = Batch.pack(
        length,
        group=group,
        episode=episode,
        known=known,
        correct=correct & known,
        score=score,
        truncated=chance(0.2, rows),
        token=torch.randint(0, vocabulary, (n,), generator=noise),
        origin=torch.ones(n, dtype=torch.long),
        old_logp=old,
        behavior_logp=old + 0.05 * normal(n),
        sampler_logp=old + 0.01 * normal(n),
        ref_logp=old + 0.2 * normal(n),
        teacher_logp=old + normal(n),
        entropy=normal(n).abs(),
        value=normal(n),
    )
    policy = Policy(old + stale * normal(n), normal(n).abs(), normal(n))
    heard = ~chance(0.2, rows)  # a server that is asked for a teacher's word does not always have one
    gap = torch.where(heard[batch.row], batch["teacher_logp"], old)
    told = {"teacher_known": heard, "teacher_logp": gap, "progress": torch.full((rows,), 0.25, dtype=torch.float64)}
    return batch.with_({**told, "now_logp": policy.logp, "now_entropy": policy.entropy}), policy


def completed(plan: Running, batch: Batch) -> Batch:
    """The batch with what annotations and looks of this stack would bring, where it lacks that. Made up by the piece's
    or probe's own `stand_in(batch) -> {stream}`; a look without one finds tokens a little more or less likely than the
    old policy, and leaves out some rows. It depends on rows' ids alone, so any order and any part of a batch gets the
    same."""
    new: dict[str, Tensor] = {}
    sides: dict[str, Batch] = {}
    for placed in plan.stack["annotate"]:
        if hasattr(placed.piece, "stand_in"):
            new |= placed.piece.stand_in(batch)
    for view in (*plan.views(), *plan.views(at_update=True)):
        if view.side is not None:  # a row for most groups
            groups = torch.unique(batch["group"])
            groups = groups[groups % 4 != 3]
            other = Batch.pack(torch.ones_like(groups), group=groups, id=groups)
            other = sides.get(view.side[0], other)
            sides[view.side[0]] = other.with_(view.probe.stand_in(other))
            continue
        seen = batch["id"] % 5 != 2 if view.looked else torch.ones_like(batch["known"])
        if hasattr(view.probe, "stand_in"):
            new |= view.probe.stand_in(batch)
        else:
            new |= {name: _supposed(name, batch, seen) for name in view.probe.gives}
        new |= {view.looked: seen} if view.looked else {}
    batch = batch.with_({name: x for name, x in new.items() if name not in batch})
    return replace(batch, side={**sides, **batch.side})


def _supposed(name: str, batch: Batch, seen: Tensor) -> Tensor:
    place = torch.arange(len(batch.row), device=batch.row.device) - batch.first[batch.row]
    wave = torch.sin(12.9898 * (batch.spread(batch["id"]) + 1) + 78.233 * place).to(batch["old_logp"].dtype)
    if streams.per(name) == "row":
        return batch.row_sum(wave).abs()
    if name.endswith("_logp"):
        return torch.where(batch.spread(seen), batch["old_logp"] + 0.7 * wave, batch["old_logp"])
    return wave.abs()


def running(method: Method) -> Running:
    """The last phase of a method's plan (what it comes to), with the plain reward and max_tokens 40."""
    return list(method.plan(40, reward=Pays()).phases.values())[-1]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Loss of every trained model summed, and gradients with respect to log-probs, entropies and values, each [N]."""

    loss: Tensor
    logp: Tensor
    entropy: Tensor
    value: Tensor
    batch: Batch

    def gap(self, other: Outcome) -> float:
        """The largest difference between two outcomes; of numbers above 1, as a share of them: a loss of 200 cannot be
        told in float32 to more than 1.5e-5."""
        pairs = [
            (self.loss, other.loss),
            (self.logp, other.logp),
            (self.entropy, other.entropy),
            (self.value, other.value),
        ]
        shares = [(a - b).abs() / torch.maximum(a.abs(), b.abs()).clamp(min=1) for a, b in pairs]
        return max((float(x.max()) if x.numel() else 0.0) for x in shares)

    def same_bits(self, other: Outcome) -> bool:
        return torch.equal(self.loss, other.loss) and torch.equal(self.logp, other.logp)


def outcome(
    plan: Running,
    batch: Batch,
    policy: Policy,
    cuts: Callable[[Batch, Tensor], Sequence[Tensor]] | None = None,
    skip_idle: bool = True,
) -> Outcome:
    """Everything between scoring and the optimiser, on the stand-in policy. `cuts`: (batch, rows) -> micro-batches."""
    batch = plan.weigh(plan.credit(completed(plan, batch)))
    leaf = lambda x: x.clone().requires_grad_()  # noqa: E731
    logp, entropy, value = leaf(policy.logp), leaf(policy.entropy), leaf(policy.value)
    total = (logp * 0.0).sum()
    for model in plan.trained:
        busy = plan.busy(batch, model) if skip_idle else batch.length > 0
        rows = busy.nonzero()[:, 0]
        for part_rows in cuts(batch, rows) if cuts else [rows]:
            index = batch.token_index(part_rows)
            now = Now(logp[index], entropy[index], value[index])
            loss, _ = plan.loss(model, now, batch.take(part_rows, whole=False))
            total = total + loss
    total.backward()
    grad = lambda x: torch.zeros_like(x) if x.grad is None else x.grad  # noqa: E731
    return Outcome(total.detach(), grad(logp), grad(entropy), grad(value), batch)


# ---- the laws --------------------------------------------------------------------------------------------
def cut_invariance(method: Method, dtype: torch.dtype = torch.float64) -> Result:
    plan, worst = running(method), 0.0
    for seed in range(3):
        batch, policy = random_batch(seed, dtype=dtype)
        whole = outcome(plan, batch, policy)
        for budget in (1, 60, 200):
            cut = outcome(plan, batch, policy, lambda b, r, n=budget: b.cut(n, plan.together, r))  # type: ignore[misc]
            worst = max(worst, whole.gap(cut))
        worst = max(worst, whole.gap(outcome(plan, batch, policy, skip_idle=False)))
        order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(seed))
        index = batch.token_index(order)
        moved = outcome(plan, batch.take(order), policy.take(index))
        back = Outcome(whole.loss, whole.logp[index], whole.entropy[index], whole.value[index], whole.batch)
        worst = max(worst, back.gap(moved))
    return Result("cut invariance", worst <= TOLERANCE[dtype], f"largest difference {worst:.1e} in {dtype}")


def detachment(method: Method) -> Result:
    batch, policy = random_batch(0)
    done = outcome(running(method), batch, policy).batch
    loose = [name for name, x in (*done.tokens.items(), *done.rows.items()) if x.requires_grad]
    return Result("detachment", not loose, f"streams with gradient: {loose}" if loose else "")


def scene(plan: Running, seed: int = 0) -> Scene:
    """What single pieces are asked on: a credited and weighed random batch, and the stand-in policy."""
    batch, policy = random_batch(seed)
    batch = plan.weigh(plan.credit(completed(plan, batch)))
    now = plan.with_ratio(Now(policy.logp, policy.entropy, policy.value), batch)
    ratio = torch.ones_like(policy.logp) if now.ratio is None else now.ratio
    return Scene(batch, policy.logp, policy.entropy, policy.value, ratio)


def declared_reads(method: Method) -> Result:
    plan = running(method)
    given = scene(plan)
    found = [said for placed in asked(plan) if (said := undeclared(placed, given))]
    return Result("reads", not found, "\n".join(found))


def no_writes(method: Method) -> Result:
    plan = running(method)
    given = scene(plan)
    found = [said for placed in asked(plan) if (said := written(placed, given, random_batch(0)[0]))]
    return Result("writes", not found, "\n".join(found))


def no_memory(method: Method) -> Result:
    """The method's pieces must not have been called before: what the first call leaves behind is seen only then."""
    plan = running(method)
    found = list(remembered(plan, lambda: (scene(plan, 0), scene(plan, 1))))
    return Result("memory", not found, "\n".join(found))


def promises(method: Method) -> Result:
    """What reshape pieces say that they leave as it is, by their `keeps`."""
    plan, found = running(method), list[str]()
    for seed in range(3):
        batch = scene(plan, seed).batch
        for placed in plan.stack["reshape"]:
            if hasattr(placed.piece, "keeps") and (said := placed.piece.keeps(batch, ask(placed, batch))):
                found.append(f"{who(placed)}: {said}")
    return Result("promises", not found, "\n".join(sorted(set(found))))


def finiteness(method: Method) -> Result:
    plan = running(method)
    for name, (batch, policy) in extreme_batches().items():
        got = outcome(plan, batch, policy)
        if not all(bool(torch.isfinite(x).all()) for x in (got.loss, got.logp, got.entropy, got.value)):
            return Result("finiteness", False, f"loss or gradient is not finite: {name}")
        if name == "no verdicts" and plan.learns_from_verdicts and bool((got.batch["weight"] != 0).any()):
            return Result("finiteness", False, "rows without a verdict carry weight")
    return Result("finiteness", True)


def extreme_batches() -> dict[str, tuple[Batch, Policy]]:
    """Batches at the edges, by name."""
    batch, policy = random_batch(5)
    r = len(batch)
    yes, no = torch.ones(r, dtype=torch.bool), torch.zeros(r, dtype=torch.bool)
    judged = lambda known, correct: batch.with_({"known": known, "correct": correct, "score": correct.double()})  # noqa: E731
    far = torch.where(torch.arange(len(policy.logp)) % 2 == 0, 60.0, -60.0).double()
    empty = torch.tensor([3])
    return {
        "ordinary": (batch, policy),
        "all right": (judged(yes, yes), policy),
        "all wrong": (judged(yes, no), policy),
        "no verdicts": (judged(no, no), policy),
        "one-sided groups": (judged(yes, batch["group"] % 2 == 0), policy),
        "ratios beyond overflow": (batch, replace(policy, logp=policy.logp + far)),
        "one row without tokens": (batch.take(empty), policy.take(batch.token_index(empty))),
        "one row": (batch.take(torch.tensor([0])), policy.take(batch.token_index(torch.tensor([0])))),
    }


def commutation(names: Sequence[str], settings: Sequence[dict[str, Any]] | None = None) -> Result:
    """Both orders of stacking give equal plans (as sets of settings), or both are refused."""
    every = settings or [{} for _ in names]

    def stacked(order: Sequence[int]) -> Method:
        method = get("method", "grpo")()
        for i in order:
            method = get("method", names[i])(method, **every[i])
        return method

    forward, backward = list(range(len(names))), list(range(len(names)))[::-1]
    return Result("commutation", stacked(forward).placed == stacked(backward).placed, " and ".join(names))


def neutrality(name: str) -> Result:
    """The neutral statement of a paper, as written beside it."""
    call = parse_call(name)
    if call.name == "grpo":
        return Result("neutrality", True, "the base")
    module = sys.modules[get("method", call.name).__module__]
    stated: Any = getattr(module, "neutral", None)
    if fault := _unusable(stated, module):
        return Result("neutrality", False, f"{name} {fault}; see rlvr.testing")
    base, plain = running(build_method(stated["equals"], {})), get("method", "grpo")()
    change = _input(module, stated.get("input"))
    settings = stated.get("settings", {})

    def paper(changed: Mapping[str, Any]) -> Running:
        return running(add(plain, Call(call.name, {**call.settings, **changed})))

    def differs(one: Running, batch: Batch, policy: Policy, exact: bool) -> str:
        a, b = outcome(one, batch, policy), outcome(base, batch, policy)
        if stated.get("compare") == "gradient":
            b = replace(b, loss=a.loss, value=a.value)
        if a.same_bits(b) if exact else a.gap(b) <= 1e-6:
            return ""
        return f"differs from {stated['equals']} by {a.gap(b):.1e}"

    for seed in range(3):
        found = differs(paper(settings), *change(*random_batch(seed)), stated.get("exact", True))
        if found:
            return Result("neutrality", False, f"{name} at {settings or 'its defaults'} {found}")
    if "near" in stated:
        near, given = {**settings, **stated["near"]}, change(*random_batch(0))
    else:
        near, given = {}, random_batch(0)
    own = add(plain, Call(call.name, {**call.settings, **near})).placed - plain.placed
    if own and all(placed.slot in BEFORE_BATCH for placed in own):
        return Result("neutrality", True, "what it changes happens before there is a batch")
    if not differs(paper(near), *given, False):
        return Result("neutrality", False, f"{name} makes no difference at {near or 'its defaults'} either")
    return Result("neutrality", True)


# ---- inputs: batches on which a paper's signal is gone ---------------------------------------------------
def _unusable(stated: Any, module: Any) -> str:
    """What is wrong with a neutral statement as it is written."""
    if stated is None:
        return "states no `neutral`"
    if not isinstance(stated, Mapping) or not isinstance(stated.get("equals"), str):
        return "states a `neutral` that does not say which stack it `equals`"
    if unknown := set(stated) - {"equals", "settings", "input", "near", "exact", "compare"}:
        return f"states a `neutral` with {', '.join(sorted(unknown))}, which mean nothing there"
    name = stated.get("input")
    if name is not None and not callable(getattr(module, name, None) or globals().get(name)):
        return f"states the neutral input {name!r}, which is a function neither of its file nor of rlvr.testing"
    return ""


def _input(module: Any, name: str | None) -> Callable[[Batch, Policy], tuple[Batch, Policy]]:
    if name is None:
        return lambda batch, policy: (batch, policy)
    found = getattr(module, name, None) or globals()[name]
    return cast("Callable[[Batch, Policy], tuple[Batch, Policy]]", found)


def one_token_rows(batch: Batch, policy: Policy) -> tuple[Batch, Policy]:
    """The first token of every row that has one."""
    first = batch.first[batch.length > 0]
    alive = batch.length > 0
    rows = {name: x[alive] for name, x in batch.rows.items()}
    new = Batch.pack(torch.ones(int(alive.sum()), dtype=torch.long))
    return new.with_({**rows, **{name: x[first] for name, x in batch.tokens.items()}}), policy.take(first)


def twins(batch: Batch, policy: Policy, apart: float = 1.0) -> tuple[Batch, Policy]:
    """Groups of two rows of one token, one right and one wrong, rewards `apart`; all known."""
    batch, policy = one_token_rows(batch, policy)
    n = len(batch) // 2 * 2
    batch, policy = batch.take(torch.arange(n)), policy.take(torch.arange(n))
    right = torch.arange(n) % 2 == 0
    order = torch.arange(n)
    told = {"id": order, "episode": order, "group": order // 2, "correct": right, "known": torch.ones_like(right)}
    return batch.with_({**told, "score": apart * right.double(), "truncated": torch.zeros_like(right)}), policy


def twins_far_apart(batch: Batch, policy: Policy) -> tuple[Batch, Policy]:
    """Twins rewarded 2 and 0: a spread of exactly 1."""
    return twins(batch, policy, 2.0)


def twins_at_the_reference(batch: Batch, policy: Policy) -> tuple[Batch, Policy]:
    """Twins whose policy is the old one and the reference."""
    batch, policy = twins(batch, policy)
    return batch.with_({"old_logp": policy.logp, "ref_logp": policy.logp}), policy


def one_group_half_right(batch: Batch, policy: Policy) -> tuple[Batch, Policy]:
    """Eight twins in one group."""
    batch, policy = twins(batch, policy)
    eight = torch.arange(8)
    return batch.take(eight).with_({"group": torch.zeros(8, dtype=torch.long)}), policy.take(eight)


def taught_twins(batch: Batch, policy: Policy) -> tuple[Batch, Policy]:
    """Twins whose teacher finds the right one's token a nat likelier, and the wrong one's a nat less likely."""
    batch, policy = twins(batch, policy)
    gap = torch.where(batch["correct"], 1.0, -1.0)
    told = {"teacher_logp": batch["old_logp"] + batch.spread(gap), "teacher_known": torch.ones_like(batch["known"])}
    return batch.with_(told), policy


def all_taught(batch: Batch, policy: Policy) -> tuple[Batch, Policy]:
    """The teacher has looked at every row."""
    return batch.with_({"teacher_known": torch.ones_like(batch["known"])}), policy


def on_policy(batch: Batch, policy: Policy) -> tuple[Batch, Policy]:
    """The policy is the old one: every ratio is 1."""
    return batch.with_({"old_logp": policy.logp, "behavior_logp": policy.logp}), policy


def values_of_zero(batch: Batch, policy: Policy) -> tuple[Batch, Policy]:
    """A critic that says 0 everywhere."""
    return batch.with_({"value": torch.zeros_like(batch["value"])}), policy


def sampler_is_trainer(batch: Batch, policy: Policy) -> tuple[Batch, Policy]:
    """The sampler's log-probs are the trainer's."""
    return batch.with_({"behavior_logp": batch["old_logp"]}), policy


def nothing_truncated(batch: Batch, policy: Policy) -> tuple[Batch, Policy]:
    """No row hit a limit."""
    return batch.with_({"truncated": torch.zeros(len(batch), dtype=torch.bool)}), policy


def all_right(batch: Batch, policy: Policy) -> tuple[Batch, Policy]:
    """Every row is known and right."""
    yes = torch.ones(len(batch), dtype=torch.bool)
    return batch.with_({"correct": yes, "known": yes, "score": yes.double()}), policy


def check(name: str) -> list[Result]:
    """All laws for a paper, stacked on grpo: a registered name or `path.py:paper`, with settings where it needs them,
    as in "kl(coef=0.1)". Raises StackError and UnknownName where there is no such paper."""
    return list(_check(name))


def _check(name: str) -> Iterator[Result]:
    method = build_method(str(parse_call(name)))
    try:
        yield Result("plan", True, str(method.plan(40, reward=Pays())))
    except ValueError as error:
        yield Result("plan", False, str(error))
        return
    for law, test in LAWS.items():
        try:
            yield test(method)
        except (ValueError, RuntimeError, TypeError) as error:  # a piece that fails breaks the law that asked it
            yield Result(law, False, str(error))
    try:
        yield neutrality(name)
    except (ValueError, RuntimeError, registry.UnknownName) as error:
        yield Result("neutrality", False, str(error))


LAWS: Mapping[str, Callable[[Method], Result]] = {
    "memory": no_memory,  # first: it wants pieces that nobody has called
    "reads": declared_reads,
    "writes": no_writes,
    "cut invariance": cut_invariance,
    "cut invariance, float32": lambda method: cut_invariance(method, torch.float32),
    "detachment": detachment,
    "promises": promises,
    "finiteness": finiteness,
}

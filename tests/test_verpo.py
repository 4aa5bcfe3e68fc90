"""VERPO against distributions laid out over a vocabulary, gradients by autograd, grids, and contexts row by row."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from models import tiny_llama
from test_engine import F64, engine, rows
from test_looks import Counting, logp_after
from torch import Tensor
from toy import toy_step

from rlvr.advantage.evidence import (
    BLANK_LOGP,
    CC,
    CD,
    CY,
    DD,
    DY,
    IDS,
    LOOKED,
    PULL,
    PULL_C,
    SCALARS,
    BlankKL,
    Controller,
    Counterfactuals,
    Distilled,
    coarse,
    look,
)
from rlvr.batch import Batch, Now
from rlvr.methods.grpo import grpo
from rlvr.methods.verpo import evidence_that_says_nothing, verpo
from rlvr.pairs import stack_pairs
from rlvr.records import Chain, Group, Origin, Task, Verdict
from rlvr.rollout.evidence import AFTER, BEFORE, BLANK, CUT, SLOT, Evidence, Shown, mismatched, reference
from rlvr.stacking import build_method
from rlvr.testing import completed, outcome, random_batch, running
from rlvr.views import STANDARD, Seen, Told

V, N = 9, 40


def logits(seed: int, n: int = N) -> Tensor:
    return 1.5 * torch.randn(n, V, generator=torch.Generator().manual_seed(seed), dtype=F64)


def see(z: Tensor, token: Tensor) -> Seen:
    return Seen(z, token, lambda h: h, 1.0)


def four(n: int = N) -> tuple[dict[str, Seen], list[Tensor], Tensor]:
    """Four contexts of n tokens, their logits, and the tokens."""
    token = torch.arange(n) % V
    zs = [logits(i, n) for i in range(4)]
    return {name: see(z, token) for name, z in zip(("own", "blank", "evidence", "other/0"), zs)}, zs, token


def fisher(p: Tensor) -> Tensor:
    """[n, V, V] diag(p) - p p^T."""
    return torch.diag_embed(p) - p[:, :, None] * p[:, None]


def inner(a: Tensor, f: Tensor, b: Tensor) -> Tensor:
    return torch.einsum("nv,nvw,nw->n", a, f, b)


def directions() -> tuple[Tensor, Tensor, Tensor]:
    """p, c and d of `four`, [n, V] each."""
    _, (own, blank, shown, other), _ = four()
    q0, qe, qn = (z.log_softmax(-1) for z in (blank, shown, other))
    return own.softmax(-1), qe - q0, qn - q0


def seen_batch(advantage: float | Tensor = 1.0, rows: int = 8) -> Batch:
    """`four` as a batch of rows of five tokens, with the probe's streams."""
    scalars = Counterfactuals()(four()[0])
    batch = Batch.pack(torch.full((rows,), N // rows), old_logp=torch.zeros(N, dtype=F64), **scalars)
    looked = torch.ones(rows, dtype=torch.bool)
    a = torch.full((N,), advantage, dtype=F64) if isinstance(advantage, float) else advantage
    return batch.with_({LOOKED: looked, "advantage": a, "correct": looked})


# ---- the metric ------------------------------------------------------------------------------------------------------
def test_the_scalars_are_products_in_the_fisher_metric() -> None:
    told, (p, c, d) = Counterfactuals()(four()[0]), directions()
    f, y = fisher(p), four()[2][:, None]
    for name, want in ((CC, inner(c, f, c)), (CD, inner(c, f, d)), (DD, inner(d, f, d))):
        torch.testing.assert_close(told[name], want, rtol=0, atol=1e-12)
    for name, x in ((CY, c), (DY, d)):
        want = x.gather(1, y)[:, 0] - (p * x).sum(1)
        torch.testing.assert_close(told[name], want, rtol=0, atol=1e-12)
    torch.testing.assert_close(told[BLANK_LOGP], four()[1][1].log_softmax(-1).gather(1, y)[:, 0])


def test_what_evidence_changes_is_the_rest_of_what_the_context_changes() -> None:
    _, (own, blank, shown, _), _ = four()
    p, q0, qe = (z.log_softmax(-1) for z in (own, blank, shown))
    torch.testing.assert_close(qe - p, (q0 - p) + (qe - q0), rtol=0, atol=1e-13)


def test_moving_logits_along_c_costs_half_its_variance() -> None:
    p, c, _ = directions()
    told = Counterfactuals()(four()[0])
    for alpha, within in ((0.1, 0.2), (0.01, 0.02), (0.001, 0.002)):
        moved = torch.log_softmax(p.log() + alpha * c, -1)
        kl = (p * (p.log() - moved)).sum(-1)
        ratio = kl / (alpha**2 * told[CC])
        assert float((ratio - 0.5).abs().max()) < within


def test_a_constant_added_to_any_context_changes_nothing() -> None:
    seen, zs, token = four()
    told = Counterfactuals()(seen)
    shifted = {name: see(z + 3.0 * i, token) for i, (name, z) in enumerate(zip(seen, zs))}
    for name, x in Counterfactuals()(shifted).items():
        torch.testing.assert_close(x, told[name], rtol=0, atol=1e-12)


def test_tokens_that_nobody_can_write_say_nothing() -> None:
    seen, zs, token = four()
    never = torch.zeros(V, dtype=torch.bool)
    never[3] = True
    keep = token != 3
    cut = {name: see(z.masked_fill(never, -math.inf)[keep], token[keep]) for name, z in zip(seen, zs)}
    alone = {name: see(z[:, ~never][keep], token[keep] - (token[keep] > 3).long()) for name, z in zip(seen, zs)}
    one, other = Counterfactuals()(cut), Counterfactuals()(alone)
    for name in SCALARS:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=1e-12)


# ---- contrast --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rho", [0.0, 0.3, 1e9])
def test_what_is_left_of_c_along_d_is_its_share_of_rho(rho: float) -> None:
    batch, (p, c, d) = seen_batch(), directions()
    f = Controller(rho=rho).taken_out(batch)
    real = rho * float(batch[DD].median())
    left, metric = c - f[:, None] * d, fisher(p)
    torch.testing.assert_close(inner(left, metric, d), batch[CD] * real / (batch[DD] + real), rtol=1e-9, atol=1e-9)
    assert bool((inner(left, metric, left) <= batch[CC] + 1e-12).all())
    got = Controller(rho=rho)(batch, batch["advantage"])
    torch.testing.assert_close(got.m, inner(left, metric, left), rtol=0, atol=1e-11)
    y = four()[2][:, None]
    torch.testing.assert_close(got.t, left.gather(1, y)[:, 0] - (p * left).sum(1), rtol=0, atol=1e-11)
    if rho == 1e9:
        torch.testing.assert_close(f * batch[DD].median(), torch.zeros_like(f), rtol=0, atol=1e-6)


def test_without_other_evidence_nothing_is_taken_out() -> None:
    zero = torch.zeros(N, dtype=F64)
    same = seen_batch().with_({CD: zero, DD: zero, DY: zero})
    assert not bool(Controller().taken_out(same).any())
    assert not bool(Controller(rho=0.0).taken_out(same).any())
    assert not bool(Controller(scope="none").taken_out(seen_batch()).any())
    told = Counterfactuals(others=0)({k: x for k, x in four()[0].items() if k != "other/0"})
    assert not bool(told[DD].any())


def test_one_factor_for_the_batch_is_the_regression_of_all_c_on_all_d() -> None:
    batch = seen_batch()
    f = Controller(rho=0.0, scope="batch").taken_out(batch)
    assert len(f.unique()) == 1
    best = lambda x: float((batch[CC] - 2 * x * batch[CD] + x * x * batch[DD]).sum())  # noqa: E731
    assert all(best(float(f[0])) <= best(float(f[0]) + step) for step in (-0.01, 0.01))


# ---- the controller --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("advantage", [1.7, -0.6])
def test_alignment_is_the_slope_of_the_policy_gradient_along_c(advantage: float) -> None:
    batch, (_, c, d) = seen_batch(advantage), directions()
    got = Controller()(batch, batch["advantage"])
    left = c - got.f[:, None] * d
    z = four()[1][0].clone().requires_grad_()
    objective = (advantage * z.log_softmax(-1).gather(1, four()[2][:, None])).sum()
    (g,) = torch.autograd.grad(objective, z)
    torch.testing.assert_close(got.a, (g * left).sum(-1), rtol=0, atol=1e-11)


def test_the_step_is_the_best_of_a_grid_and_utility_what_it_gains() -> None:
    batch = seen_batch()
    control = Controller(lam=0.7, alpha_max=1e9, tau=0.0)
    got = control(batch, batch["advantage"])
    gains = got.kappa > 0
    assert 5 < int(gains.sum()) < N
    assert torch.equal(gains, (got.a > 0) & (got.m > 1e-8))
    grid = torch.linspace(0, 60, 60001, dtype=F64)
    utility = torch.where(gains, got.a**2 / (2 * 0.7 * got.m), 0.0)
    mean = utility.view(8, 5).mean(1).repeat_interleave(5)
    for i in gains.nonzero()[:, 0].tolist():
        value = grid * got.a[i] - 0.35 * grid**2 * got.m[i]
        assert float(value.max()) == pytest.approx(float(utility[i]), rel=1e-4)
        step = float(grid[value.argmax()])
        want = step * float(utility[i] / (utility[i] + mean[i]))
        assert float(got.kappa[i]) == pytest.approx(want, rel=1e-2, abs=2e-3)


def test_tokens_are_accepted_above_a_share_of_their_rows_mean_and_steps_are_capped() -> None:
    batch = seen_batch()
    free = Controller(tau=0.0)(batch, batch["advantage"])
    utility = torch.where((free.a > 0) & (free.m > 1e-8), free.a**2 / (2 * free.m.clamp(min=1e-12)), 0.0)
    mean = utility.view(8, 5).mean(1).repeat_interleave(5)
    picky = Controller(tau=1.0)(batch, batch["advantage"])
    assert torch.equal(picky.kappa > 0, utility > mean)
    assert 0 < int((picky.kappa > 0).sum()) < int((free.kappa > 0).sum())
    assert float(Controller(alpha_max=0.1)(batch, batch["advantage"]).kappa.max()) <= 0.1


def test_no_advantage_no_evidence_and_flat_evidence_move_nothing() -> None:
    assert not bool(Controller()(seen_batch(0.0), torch.zeros(N, dtype=F64)).kappa.any())
    unseen = seen_batch().with_({LOOKED: torch.zeros(8, dtype=torch.bool)})
    assert not bool(Controller()(unseen, unseen["advantage"]).kappa.any())
    flat = seen_batch().with_({CC: torch.full((N,), 1e-9, dtype=F64), CD: torch.zeros(N, dtype=F64)})
    assert not bool(Controller()(flat, flat["advantage"]).kappa.any())


# ---- credit ----------------------------------------------------------------------------------------------------------
def test_credit_keeps_every_sign_and_its_bounds_and_follows_the_formula() -> None:
    for seed in range(3):
        batch, policy = random_batch(seed)
        plan = running(verpo(grpo(), b_max=0.5))
        done = outcome(plan, batch, policy).batch
        base = outcome(running(grpo()), batch, policy).batch["advantage"]
        new = done["advantage"]
        assert torch.equal(new.sign(), base.sign())
        assert bool((new.abs() >= base.abs()).all())
        assert bool((new.abs() <= 1.5 * base.abs() + 1e-12).all())
        moved = new != base
        assert 0.02 < float(moved.double().mean()) < 0.9
        got = Controller()(done, base)
        want = base + torch.minimum(got.kappa * got.t.abs(), 0.5 * base.abs()) * base.sign()
        torch.testing.assert_close(new, want, rtol=0, atol=1e-12)


def test_evidence_that_changes_nothing_and_rows_without_it_are_the_base_bit_for_bit_off_policy() -> None:
    batch, policy = random_batch(0)
    ratio = (policy.logp - batch["old_logp"]).exp()
    assert float(((ratio < 0.8) | (ratio > 1.2)).double().mean()) > 0.01
    base = outcome(running(grpo()), batch, policy)
    plan = running(verpo(grpo(), beta_ref=0.0))
    assert outcome(plan, *evidence_that_says_nothing(batch, policy)).same_bits(base)
    assert not outcome(plan, batch, policy).same_bits(base)
    blind = completed(plan, batch).with_({LOOKED: torch.zeros(len(batch), dtype=torch.bool)})
    assert outcome(plan, blind, policy).same_bits(base)


# ---- distillation ----------------------------------------------------------------------------------------------------
def test_the_pull_sums_to_nothing_and_its_gradient_is_the_fisher_metric_times_c() -> None:
    """At any running policy: the loss is linear in logits, whatever the old policy was."""
    seen, _, token = four()
    told = Counterfactuals(pulls=V)(seen)
    p, c, _ = directions()
    torch.testing.assert_close(told[PULL_C].sum(1), torch.zeros(N, dtype=F64), rtol=0, atol=1e-13)
    batch = Batch.pack(torch.full((8,), 5), old_logp=torch.zeros(N, dtype=F64), **{PULL: told[PULL_C], IDS: told[IDS]})
    z = logits(7).requires_grad_()
    log_pi = z.log_softmax(-1)
    now = Now(log_pi.gather(1, token[:, None])[:, 0], logp_at={IDS: log_pi.gather(1, told[IDS])})
    loss, _ = Distilled(beta=0.3)(now, batch)
    (g,) = torch.autograd.grad(loss.sum(), z)
    torch.testing.assert_close(g, -0.3 * torch.einsum("nvw,nw->nv", fisher(p), c), rtol=0, atol=1e-9)


def test_tokens_that_are_not_named_are_pulled_as_one() -> None:
    """The loss over K names and the rest, by hand; its gradient sums to nothing, as every gradient of logits does."""
    seen, _, token = four()
    told = Counterfactuals(pulls=3)(seen)
    batch = Batch.pack(torch.full((8,), 5), old_logp=torch.zeros(N, dtype=F64), **{PULL: told[PULL_C], IDS: told[IDS]})
    z = logits(7).requires_grad_()
    log_pi = z.log_softmax(-1)
    at = log_pi.gather(1, told[IDS])
    loss, _ = Distilled()(Now(log_pi.gather(1, token[:, None])[:, 0], logp_at={IDS: at}), batch)
    p, c, _ = directions()
    full = p * (c - (p * c).sum(1, keepdim=True))
    for i in range(0, N, 7):
        named = told[IDS][i].tolist()
        rest = [v for v in range(V) if v not in named]
        pi = log_pi[i].detach().exp().tolist()
        want = -sum(float(full[i, v]) * math.log(pi[v]) for v in named)
        want -= sum(float(full[i, v]) for v in rest) * math.log(sum(pi[v] for v in rest))
        assert float(loss[i].detach()) == pytest.approx(want, abs=1e-9)
    (g,) = torch.autograd.grad(loss.sum(), z)
    torch.testing.assert_close(g.sum(1), torch.zeros(N, dtype=F64), rtol=0, atol=1e-12)


def test_distillation_leaves_advantages_alone_and_learns_beside_them() -> None:
    batch, policy = random_batch(0)
    plan = running(verpo(grpo(), mode="distill", pulls=4, beta_ref=0.0))
    done = plan.weigh(plan.credit(completed(plan, batch)))
    assert torch.equal(done["advantage"], running(grpo()).credit(batch)["advantage"])
    told = Controller()(done, done["advantage"])
    assert done[PULL].shape == (len(batch.row), 4)
    assert torch.equal((done[PULL] != 0).any(1), told.kappa > 0)
    leaf = policy.logp.clone().requires_grad_()
    at = torch.full((len(batch.row), 4), -2.0, dtype=F64).requires_grad_()
    part = replace(done, whole=False)
    loss, _ = plan.loss("policy", Now(leaf, policy.entropy, logp_at={IDS: at}), part)
    loss.backward()
    assert at.grad is not None
    assert torch.equal((at.grad != 0).any(1), (told.kappa > 0) & (done["weight"] != 0))


def test_the_kl_to_the_blank_context_is_k3_where_somebody_looked() -> None:
    batch = seen_batch().with_({"weight": torch.ones(N, dtype=F64)})
    some = torch.arange(8) % 2 == 0
    batch = batch.with_({LOOKED: some})
    logp = four()[1][0].log_softmax(-1).gather(1, four()[2][:, None])[:, 0]
    loss, _ = BlankKL(look(Counterfactuals(), "policy"), 0.1)(Now(logp), batch)
    gap = logp - batch[BLANK_LOGP]
    torch.testing.assert_close(loss, 0.1 * ((-gap).exp() - 1 + gap) * batch.spread(some), rtol=0, atol=1e-12)


# ---- few tokens instead of a vocabulary ------------------------------------------------------------------------------
def test_the_union_of_the_likeliest_is_the_vocabulary_where_it_holds_all() -> None:
    seen, _, _ = four()
    exact, same, few = (Counterfactuals(k=k)(seen) for k in (0, V, 3))
    for name in SCALARS:
        torch.testing.assert_close(same[name], exact[name], rtol=0, atol=1e-7)
    assert float((few[CC] - exact[CC]).abs().max()) > 1e-3
    assert float(torch.corrcoef(torch.stack([few[CY], exact[CY]]))[0, 1]) > 0.8


def test_of_a_server_tokens_count_that_it_named_for_every_context() -> None:
    """By hand: two names each, one of them common; the token itself is always known."""
    token = torch.tensor([4])
    own = see(logits(0, 1), token)
    p = own.logp_all[0]
    one = Told(token, torch.tensor([-2.0], dtype=F64), torch.tensor([[0, 1]]), torch.tensor([[-0.7, -1.5]], dtype=F64))
    two = Told(token, torch.tensor([-3.0], dtype=F64), torch.tensor([[1, -1]]), torch.tensor([[-0.2, 0.0]], dtype=F64))
    log_p, a, b = coarse([own, one, two], V)
    left = {1, 4}
    for x, told in ((log_p, {v: float(p[v]) for v in left}), (a, {1: -1.5, 4: -2.0}), (b, {1: -0.2, 4: -3.0})):
        assert {v for v in range(V) if math.isfinite(float(x[0, v]))} == left
        for v, want in told.items():
            assert float(x[0, v]) == pytest.approx(want)
        rest = 1 - sum(math.exp(w) for w in told.values())
        assert float(x[0, V]) == pytest.approx(math.log(rest))


# ---- evidence --------------------------------------------------------------------------------------------------------
@dataclass
class Words:
    """A renderer whose tokens are characters; 1 begins, 0 ends."""

    context: int | None = None

    def around(self, prompt: str, template: str) -> tuple[list[int], list[int]]:
        head, tail = template.replace("{prompt}", prompt).split("{slot}")
        return [1, *map(ord, head)], [*map(ord, tail)]

    def response(self, text: str) -> list[int]:
        return [*map(ord, text), 0]


def asked(*texts: str, right: str = "", meta: Any = None, answer: Any = "8") -> Group:
    task = Task("t", "2+2=", answer, meta=meta or {})
    made, verdicts = [], {}
    for i, text in enumerate(texts):
        chain = Chain(task, f"r{i}", 1)
        chain.add([1, *map(ord, "2+2=")], Origin.PROMPT)
        chain.add([*map(ord, text), 0], Origin.POLICY)
        made.append(chain.end("finished", "stop", text))
        ok = right[i : i + 1] == "r"
        verdicts[f"r{i}"] = Verdict("right" if ok else "wrong", float(ok), "equal" if ok else "different", text[-1:])
    return Group("g", task, tuple(made), verdicts)


def shown(piece: Evidence, group: Group, context: int | None = None) -> dict[str, Any]:
    return asyncio.run(piece(group, SimpleNamespace(renderer=Words(context))))  # type: ignore[arg-type]


def words(ids: list[int]) -> str:
    return "".join(map(chr, ids))


def test_a_reference_stands_in_the_slot_and_a_blank_is_as_long() -> None:
    told = shown(Evidence(), asked("1#4", "2#5", meta={"steps": ["2+2=4", "#4"], "demo": "x"}))
    assert [words(x) for x in told[SLOT]] == ["2+2=4\n#4"] * 2
    assert [words(x) for x in told[BLANK]] == ["????????"] * 2
    assert told[BEFORE] == [[1]] * 2
    assert [words(x) for x in told[AFTER]] == ["\n2+2="] * 2
    assert told[CUT] == [0.0, 0.0]
    assert reference(Task("t", "q", 7), None) == "7"
    assert reference(Task("t", "q", None), None) == ""
    assert reference(Task("t", "q", 7, meta={"note": "n"}), "note") == "n"
    assert reference(Task("t", "q", 7), "note") == ""
    assert shown(Evidence(key="note"), asked("1#4"))[SLOT] == [[]]


def test_a_siblings_right_answer_is_never_ones_own_nor_reads_like_it() -> None:
    told = shown(Evidence("peer"), asked("a#4", "b#4", "c#5", "a#4", right="rrwr"))
    assert [words(x) for x in told[SLOT]] == ["b#4", "a#4", "a#4", "b#4"]
    alone = shown(Evidence("peer"), asked("a#4", "c#5", "a#4", right="rwr"))
    assert [words(x) for x in alone[SLOT]] == ["", "a#4", ""]
    assert alone[BEFORE] == [[], [1], []]


def test_feedback_is_what_the_verdict_says_of_the_rows_own_answer() -> None:
    told = shown(Evidence("feedback"), asked("a#4", "c#5", right="rw"))
    assert [words(x) for x in told[SLOT]] == ["equal: 4", "different: 5"]


def test_evidence_that_does_not_fit_loses_its_front() -> None:
    group = asked("1#4", meta={"steps": "abcdefgh"})  # 1 + 8 + 5 + 4 tokens
    told = shown(Evidence(), group, context=15)
    assert [words(x) for x in told[SLOT]] == ["defgh"]
    assert len(told[BLANK][0]) == 5
    assert told[CUT] == [1.0]
    nothing = shown(Evidence(), group, context=10)
    assert nothing[SLOT] == [[]]
    assert nothing[CUT] == [1.0]


def slots(*texts: str, group: list[int]) -> Batch:
    r = len(texts)
    table = torch.full((r, 8), -1)
    for i, text in enumerate(texts):
        table[i, : len(text)] = torch.tensor([*map(ord, text)])
    before, after = torch.full((r, 1), 1), torch.full((r, 2), 7)
    none = torch.tensor([not t for t in texts])[:, None]
    blank = torch.where(table >= 0, ord("?"), -1)
    ids = {SLOT: table, BEFORE: before.masked_fill(none, -1), AFTER: after.masked_fill(none, -1), BLANK: blank}
    return Batch.pack(torch.ones(r), group=torch.tensor(group), **ids)


def test_mismatched_evidence_is_another_groups_of_the_closest_length() -> None:
    batch = slots("abc", "abc", "abcdef", "xy", "", group=[0, 0, 1, 2, 3])
    read = lambda x: ["".join(chr(i) for i in row if i >= 0) for row in x.tolist()]  # noqa: E731
    assert read(mismatched(batch)) == ["xy", "xy", "abc", "abc", ""]
    assert read(mismatched(batch, 1)) == ["abcdef", "abcdef", "xy", "abcdef", ""]
    order = torch.tensor([3, 1, 4, 0, 2])
    assert read(mismatched(batch.take(order))) == ["abc", "xy", "", "xy", "abc"]
    same = slots("abc", "abc", group=[0, 1])  # others' evidence that is one's own is no other
    assert read(mismatched(same)) == ["???", "???"]
    assert read(mismatched(slots("abc", "xbc", group=[0, 0]))) == ["???", "???"]


def test_shuffled_evidence_is_another_groups_and_not_the_one_that_style_is_measured_by() -> None:
    view = look(Counterfactuals(others=1), "policy", shuffled=True)
    contexts = {name: context for name, _, context in view.eyes}
    assert contexts["evidence"] == Shown("other", 1)
    assert contexts["other/0"] == Shown("other", 0)


def test_a_context_is_the_prompt_with_its_slot_filled() -> None:
    batch = slots("abc", "xy", "", group=[0, 1, 2])
    for what, fill in (("true", ["abc", "xy"]), ("blank", ["???", "??"]), ("other", ["xy", "abc"])):
        told = Shown(what)(batch).tolist()  # type: ignore[arg-type]
        want = [[1, *map(ord, text), 7, 7] for text in fill]
        assert [[i for i in row if i >= 0] for row in told] == [*want, []]
        assert all(sorted(row, key=lambda i: i < 0) == row for row in told)


def test_a_slot_in_a_real_prompt_splits_into_the_ids_of_the_whole() -> None:
    from rlvr.engine.load import load_model
    from rlvr.engine.renderer import Renderer, TemplateError

    loaded = load_model("mini")
    renderer = Renderer(loaded.tokenizer, loaded.stop_ids)
    before, behind = renderer.around("7;+5%9=", "{slot}\n{prompt}")
    assert [*before, *renderer.response("7+5=3")[:-1], *behind] == renderer.prompt("7+5=3\n7;+5%9=")
    before, behind = renderer.around("7;+5%9=", "{prompt}\n{slot}\n")
    assert [*before, *behind] == renderer.prompt("7;+5%9=\n\n")
    with pytest.raises(TemplateError, match="needs a chat template"):
        renderer.around(({"role": "user", "content": "7"},), "{slot}{prompt}")


# ---- on a model ------------------------------------------------------------------------------------------------------
def evidenced(batch: Batch) -> Batch:
    r = len(batch)
    slot = torch.full((r, 6), -1)
    for i in range(r):
        n = 0 if i == 5 else 2 + int(batch["group"][i]) % 4
        slot[i, :n] = 3 + (torch.arange(n) + int(batch["group"][i])) % 9
    none = (slot < 0).all(1)[:, None]
    ids = {
        SLOT: slot,
        BLANK: torch.where(slot >= 0, 16, -1),
        BEFORE: torch.full((r, 1), 1).masked_fill(none, -1),
        AFTER: torch.full((r, 2), 5).masked_fill(none, -1),
    }
    return batch.with_({**ids, CUT: torch.zeros(r, dtype=F64)})


@pytest.mark.parametrize("k", [0, 17])
def test_on_a_model_each_number_is_that_of_four_passes_laid_out_row_by_row(k: int) -> None:
    lm, batch = tiny_llama(), evidenced(rows())
    done = engine(lm, token_budget=70).score(batch, [STANDARD["old_logp"], look(Counterfactuals(k=k), "policy")])
    contexts = {what: Shown(what)(batch) for what in ("blank", "true", "other")}  # type: ignore[arg-type]
    for i, n in enumerate(batch.length.tolist()):
        assert bool(done[LOOKED][i]) == (n > 0 and i != 5)
        mine = batch.row == i
        if not n or i == 5:
            assert not bool(done[CC][mine].any())
            assert torch.equal(done[BLANK_LOGP][mine], done["old_logp"][mine])
            continue
        p = logp_after(lm, batch, i, None)
        q0, qe, qn = (logp_after(lm, batch, i, [x for x in c[i].tolist() if x >= 0]) for c in contexts.values())
        c, d, f = qe - q0, qn - q0, fisher(p.exp())
        for name, want in ((CC, inner(c, f, c)), (CD, inner(c, f, d)), (DD, inner(d, f, d))):
            torch.testing.assert_close(done[name][mine], want, rtol=0, atol=1e-9 if k == 0 else 1e-6)
    assert all(p.grad is None for p in lm.model.parameters())


def test_four_contexts_are_four_passes_and_the_old_policys_is_one_of_them() -> None:
    lm, batch = tiny_llama(), evidenced(rows())
    e = engine(lm)
    e.models["policy"] = counting = Counting(lm)  # type: ignore[assignment]
    e.score(batch, [STANDARD["old_logp"], look(Counterfactuals(), "policy")])
    assert len(counting.tokens) == 4


def test_groups_whose_verdicts_are_all_alike_are_not_looked_at_unless_asked_for() -> None:
    lm, batch = tiny_llama(), evidenced(rows())
    score = torch.where(batch["group"] == 1, batch["id"] % 2, 1).double()
    batch = batch.with_({"score": score, "correct": score == 1})
    done = engine(lm).score(batch, [STANDARD["old_logp"], look(Counterfactuals(), "policy", silent=False)])
    assert torch.equal(done[LOOKED], (batch["group"] == 1) & (batch.length > 0) & (batch["id"] != 5))
    (view,) = (v for v in running(verpo(grpo(), silent=True)).views() if v.looked)
    assert view.where is None


def test_another_models_word_is_held_against_the_policy() -> None:
    lm, teacher, batch = tiny_llama(), tiny_llama(seed=1), evidenced(rows())
    e = engine(lm)
    e.models["teacher"] = teacher
    done = e.score(batch, [STANDARD["old_logp"], look(Counterfactuals(), "teacher")])
    row = 0
    p = logp_after(lm, batch, row, None)
    q0, qe = (
        logp_after(teacher, batch, row, [x for x in Shown(w)(batch)[row].tolist() if x >= 0]) for w in ("blank", "true")
    )  # type: ignore[arg-type]
    torch.testing.assert_close(done[CC][batch.row == row], inner(qe - q0, fisher(p.exp()), qe - q0), rtol=0, atol=1e-10)
    assert look(Counterfactuals(), "teacher").models == {"policy", "teacher"}


# ---- bad input, others, training -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"beta": -1.0}, "beta and b_max are not negative"),
        ({"b_max": -1.0}, "beta and b_max are not negative"),
        ({"lam": 0.0}, "lam is above 0, got 0.0"),
        ({"alpha_max": 0.0}, "alpha_max is above 0"),
        ({"tau": -0.1}, "tau is not negative, got -0.1"),
        ({"rho": -0.1}, "rho is not negative"),
        ({"beta_ref": -1e-3}, "beta_ref is not negative; got -0.001"),
        ({"others": -1}, "0 for none; got -1 and 0"),
        ({"k": -1}, "0 for none; got 1 and -1"),
        ({"pulls": 0}, "at least 1; got 0"),
        ({"template": "{prompt}"}, "once each"),
        ({"placeholder": ""}, "says nothing"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        verpo(grpo(), **settings)


def test_what_it_stacks_with() -> None:
    for name in ("gspo", "cispo", "dr_grpo", "rloo", "ppo", "dapo", "gar", "gmts", "kl", "signbalance"):
        (pair,) = stack_pairs([name, "verpo"])
        assert pair.refusal is None, pair
    for name in ("sft", "rejection", "dpo"):
        (pair,) = stack_pairs([name, "verpo"])
        assert pair.refusal is not None


@pytest.mark.parametrize("mode", ["credit", "distill"])
def test_on_a_model_evidence_credits_tokens_and_changes_the_gradient(mode: str) -> None:
    toy = toy_step("verpo", prompts_per_step=12, **{"papers.verpo.mode": mode})
    told = toy.told
    scores = [toy.batch["score"][toy.batch["group"] == g] for g in toy.batch["group"].unique()]
    mixed = sum(len(x) for x in scores if len(x.unique()) > 1)
    assert told["verpo/looked"] == pytest.approx(mixed / len(toy.batch))
    assert 0.3 < told["verpo/agrees"] < 0.7
    assert 0.02 < told["verpo/accepted"] < 0.5
    assert told["verpo/evidence"] > 0.05
    assert 0 < told["verpo/left"] < 0.9
    assert told["verpo/cut"] == 0
    ratio = (toy.policy.logp - toy.batch["old_logp"]).exp()
    assert float(((ratio < 0.8) | (ratio > 1.2)).double().mean()) > 0.01
    if mode == "distill":
        assert told["loss/evidence"] != 0
        return
    base = toy.gradients("grpo")
    nothing = evidence_that_says_nothing(toy.batch, toy.policy)[0]
    assert outcome(running(build_method("verpo(beta_ref=0.0)")), nothing, toy.policy).same_bits(base)
    assert toy.gradients("verpo(beta_ref=0.0)").gap(base) > 1e-5

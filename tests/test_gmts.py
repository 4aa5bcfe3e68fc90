"""GMTS against gradients by autograd through the vocabulary, rankings by hand, and what its paper says of it."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from toy import toy_step

from rlvr.batch import Batch, Now
from rlvr.loss.selection import top_tokens
from rlvr.methods.gmts import Collision, TopTokens, gmts
from rlvr.methods.grpo import grpo
from rlvr.methods.kl import kl
from rlvr.pairs import stack_pairs
from rlvr.stacking import build_method
from rlvr.testing import Policy, on_policy, outcome, random_batch, running
from rlvr.views import Seen

F64 = torch.float64


def kept(method, batch: Batch, policy: Policy) -> Tensor:  # type: ignore[no-untyped-def]
    """[N] bool: the tokens that a method trains on."""
    now = {"now_logp": policy.logp, "now_entropy": policy.entropy}
    plan = running(method)
    return plan.weigh(plan.credit(batch).with_(now))["weight"] != 0


def credited(seed: int = 0) -> tuple[Batch, Policy]:
    batch, policy = random_batch(seed)
    return running(grpo()).credit(batch), policy


def clipped(batch: Batch, policy: Policy) -> Tensor:
    """[N] bool, from the definition of the clipped surrogate."""
    ratio, a = (policy.logp - batch["old_logp"]).exp(), batch["advantage"]
    return ((a > 0) & (ratio > 1.2)) | ((a < 0) & (ratio < 0.8))


def by_hand(*scores: float, length: tuple[int, ...], group: tuple[int, ...] | None = None) -> tuple[Batch, Tensor]:
    n = torch.tensor(length)
    of = torch.arange(len(n)) if group is None else torch.tensor(group)
    ones = torch.ones(int(n.sum()), dtype=torch.bool)
    batch = Batch.pack(n, group=of, token_counted=ones, token_weight=ones.double(), row_weight=torch.ones(len(n)))
    return batch, torch.tensor(scores, dtype=F64)


# ---- the choice ------------------------------------------------------------------------------------------
def test_the_largest_scores_of_each_unit_are_kept() -> None:
    batch, score = by_hand(5, 1, 4, 9, 8, 7, 2, length=(3, 3, 1), group=(0, 1, 1))
    chosen = lambda keep, scope: top_tokens(batch, score, keep, scope).nonzero()[:, 0].tolist()  # noqa: E731
    assert chosen(3 / 7, "batch") == [3, 4, 5]
    assert chosen(0.5, "group") == [0, 2, 3, 4]  # ceil(1.5) of the first three, 2 of the other four
    assert chosen(0.5, "answer") == [0, 2, 3, 4, 6]
    assert chosen(1e-9, "batch") == [3]  # less than one token is one
    assert chosen(1.0, "batch") == list(range(7))


def test_a_share_of_a_round_number_is_not_rounded_up_by_floating_point() -> None:
    batch, score = by_hand(*range(1, 101), length=(100,))
    assert 0.07 * 100 > 7
    assert int(top_tokens(batch, score, 0.07, "batch").sum()) == 7


def test_equals_go_to_the_first_row_and_position_whatever_the_order_of_rows() -> None:
    batch, score = by_hand(1, 1, 1, 1, 1, 1, length=(2, 2, 2))
    assert top_tokens(batch, score, 0.5, "batch").tolist() == [True, True, True, False, False, False]
    order = torch.tensor([2, 0, 1])
    moved = top_tokens(batch.take(order), score[batch.token_index(order)], 0.5, "batch")
    assert moved.tolist() == [False, False, True, True, True, False]


def test_a_zero_is_never_kept_and_nothing_is_kept_of_zeros() -> None:
    batch, score = by_hand(0, 3, 0, 0, length=(4,))
    assert top_tokens(batch, score, 0.75, "batch").tolist() == [False, True, False, False]
    assert not bool(top_tokens(batch, 0 * score, 0.75, "batch").any())


def test_rows_and_tokens_that_do_not_count_are_neither_ranked_nor_counted() -> None:
    batch, score = by_hand(9, 9, 1, 2, 3, 4, length=(2, 4))
    counted = torch.tensor([True, True, True, False, True, True])
    batch = batch.with_({"row_weight": torch.tensor([0.0, 1.0]), "token_counted": counted})
    assert top_tokens(batch, score, 1 / 3, "batch").tolist() == [False] * 5 + [True]


# ---- the score -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_omega_is_the_slope_of_the_token_loss(beta: float) -> None:
    """omega = q A I + beta (exp(ref - logp) - 1), of a loss that is minimised: with the other sign."""
    batch, policy = credited()
    plan = running(gmts(kl(grpo(), coef=beta, estimator="k3") if beta else grpo()))
    q = (policy.logp - batch["old_logp"]).exp()
    omega = q * batch["advantage"] * ~clipped(batch, policy)
    omega = omega + beta * ((batch["ref_logp"] - policy.logp).exp() - 1)
    torch.testing.assert_close(plan.slope(batch), -omega, rtol=1e-12, atol=1e-12)
    done = batch.with_({"now_slope": plan.slope(batch)})
    want = (batch["now_entropy"] * omega).abs() * batch.spread(batch["known"])
    torch.testing.assert_close(TopTokens().score(done), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("stack", ["gspo", "hispo(window=2,floor=2)", "gapo,signbalance", "kl(coef=0.2)"])
def test_omega_of_a_stack_is_its_slope_by_finite_differences(stack: str) -> None:
    batch, policy = random_batch(1)
    plan = running(build_method(f"gmts,{stack}"))
    batch = plan.credit(batch)
    slope = plan.slope(batch)
    ones = replace(batch.with_({"weight": torch.ones_like(slope)}), whole=False)

    def loss(at: int, by: float) -> float:
        logp = policy.logp.clone()
        logp[at] += by
        return float(plan.loss("policy", Now(logp, policy.entropy), ones)[0])

    learns = (slope != 0).nonzero()[:, 0].tolist()
    assert len(learns) > 20
    for at in (*learns[::7], *range(0, len(slope), 31)):
        numbers = (loss(at, 1e-6) - loss(at, -1e-6)) / 2e-6
        assert numbers == pytest.approx(float(slope[at]), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize(("stack", "omega"), [("cispo", "clipped"), ("sft", "one"), ("rejection", "one")])
def test_omega_of_losses_whose_weight_is_held_still(stack: str, omega: str) -> None:
    batch, policy = random_batch(1)
    plan = running(build_method(f"gmts,{stack}"))
    batch = plan.credit(batch)
    if omega == "one":
        want = -torch.ones_like(policy.logp)
    else:
        want = -(policy.logp - batch["old_logp"]).exp().clamp(0, 5) * batch["advantage"]
    torch.testing.assert_close(plan.slope(batch), want, rtol=1e-12, atol=1e-12)


def vocabulary(n: int = 60, size: int = 7) -> tuple[Tensor, Tensor]:
    noise = torch.Generator().manual_seed(3)
    sharp = torch.rand(n, 1, generator=noise, dtype=F64) * 6  # from flat to nearly certain
    logits = sharp * torch.randn(n, size, generator=noise, dtype=F64)
    return logits, torch.distributions.Categorical(logits=logits).sample()


def test_the_true_length_of_a_tokens_gradient_is_omega_times_G() -> None:
    """|d l_t / d logits| by autograd, of an off-policy clipped loss with a KL term, against TopTokens' "norm"."""
    torch.manual_seed(0)
    logits, token = vocabulary()
    logp_all = torch.log_softmax(logits, -1)
    logp = logp_all.gather(-1, token[:, None])[:, 0]
    old, ref = logp + 0.3 * torch.randn(60, dtype=F64), logp + 0.3 * torch.randn(60, dtype=F64)
    length = torch.full((6,), 10)
    batch = Batch.pack(
        length,
        group=torch.tensor([0, 0, 0, 1, 1, 1]),
        correct=torch.tensor([True, False, False, True, True, False]),
        score=torch.tensor([1, 0, 0, 1, 1, 0], dtype=F64),
        behavior_logp=old,
        old_logp=old,
        ref_logp=ref,
        token=token,
        now_logp=logp,
        now_entropy=-(logp_all.exp() * logp_all).sum(-1),
        **Collision()({"": Seen(logits, token, lambda h: h, 1.0)}),
    )
    plan = running(gmts(kl(grpo(), coef=0.1, estimator="k3"), rank_by="norm"))
    batch = plan.credit(batch)
    leaf = logits.clone().requires_grad_()
    now = torch.log_softmax(leaf, -1).gather(-1, token[:, None])[:, 0]
    q, a = (now - old).exp(), batch["advantage"]
    loss = -torch.minimum(q * a, q.clamp(0.8, 1.2) * a) + 0.1 * ((ref - now).exp() - 1 + now - ref)
    (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    true = gradient.norm(dim=-1)
    score = TopTokens(rank_by="norm").score(batch.with_({"now_slope": plan.slope(batch)}))
    torch.testing.assert_close(score, true, rtol=1e-9, atol=1e-12)
    assert 0.01 < float(((q < 0.8) | (q > 1.2)).double().mean()) < 0.9


def test_gini_is_what_the_squared_gradient_is_on_average_over_tokens() -> None:
    """E |onehot(y) - p|^2 over y ~ p, by enumeration."""
    logits, token = vocabulary(5)
    p = logits.softmax(-1)
    want = sum(p[:, y] * ((torch.eye(7, dtype=F64)[y] - p) ** 2).sum(-1) for y in range(7))
    got = 1 - Collision()({"": Seen(logits, token, lambda h: h, 1.0)})["gmts/collision"]
    torch.testing.assert_close(got, want, rtol=1e-14, atol=1e-14)


def test_entropy_ranks_like_the_gradient_only_slowly_as_tokens_become_certain() -> None:
    """log G / log H for a token of probability 1 - e, the rest spread over nine others."""
    got = []
    for e in (1e-1, 1e-2, 1e-4, 1e-8, 1e-16):
        length = math.sqrt(e**2 + e**2 / 9)
        entropy = -(1 - e) * math.log1p(-e) - e * math.log(e / 9)
        got.append(math.log(length) / math.log(entropy))
    assert got == pytest.approx([3.70, 1.78, 1.37, 1.20, 1.11], abs=0.01)


def test_the_score_tracks_true_gradients_better_than_entropy_where_answers_differ() -> None:
    def rank(x: Tensor) -> Tensor:
        return x.argsort().argsort().double()

    def spearman(x: Tensor, y: Tensor) -> float:
        return float(torch.corrcoef(torch.stack([rank(x), rank(y)]))[0, 1])

    logits, token = vocabulary(400)
    p = logits.softmax(-1)
    noise = torch.Generator().manual_seed(1)
    omega = torch.repeat_interleave(torch.randn(8, generator=noise, dtype=F64), 50)  # one advantage an answer
    length = (torch.eye(7, dtype=F64)[token] - p).norm(dim=-1)
    entropy = -(p * p.log()).sum(-1)
    true = omega.abs() * length
    assert spearman(entropy * omega.abs(), true) > spearman(entropy, true) + 0.05


def test_the_released_codes_divisors() -> None:
    """GRPO's: rows of the group times the row's tokens; DAPO's: the group's tokens. Row 2 is in a group of its own."""
    batch, one = by_hand(1, 1, 1, 1, 1, 1, length=(1, 3, 2), group=(0, 0, 1))
    batch = batch.with_({"now_slope": one, "now_entropy": one, "now_logp": -one})
    assert TopTokens(divide_by="row").score(batch).tolist() == pytest.approx([1 / 2, *[1 / 6] * 3, *[1 / 2] * 2])
    assert TopTokens(divide_by="group").score(batch).tolist() == pytest.approx([*[1 / 4] * 4, *[1 / 2] * 2])


# ---- properties of the paper -----------------------------------------------------------------------------
def test_on_policy_and_within_one_answer_the_order_is_entropys() -> None:
    batch, policy = on_policy(*credited())
    row = int((batch["advantage"] != 0).nonzero()[0, 0])
    rows = batch.row[row][None]
    index = batch.token_index(rows)
    plan = running(gmts(grpo()))
    score = TopTokens().score(batch.with_({"now_slope": plan.slope(batch)}))[index]
    assert len(index) > 5
    assert score.argsort().tolist() == policy.entropy[index].argsort().tolist()


def test_with_equal_advantages_everywhere_it_is_selection_by_entropy() -> None:
    """Two groups, half of each right: every |A| is 1, on policy every |omega| too."""
    torch.manual_seed(1)
    n = 80
    right = torch.arange(8) % 2 == 0
    logp, entropy = -torch.rand(n, dtype=F64), torch.rand(n, dtype=F64)
    batch = Batch.pack(
        torch.full((8,), 10),
        group=torch.arange(8) // 4,
        correct=right,
        score=right.double(),
        behavior_logp=logp,
        old_logp=logp,
    )
    policy = Policy(logp, entropy, logp)
    got = kept(gmts(grpo()), batch, policy)
    assert torch.equal(got, kept(gmts(grpo(), rank_by="entropy"), batch, policy))
    assert torch.equal(got, entropy >= entropy.sort().values[-16])


def test_scaling_every_advantage_changes_nothing() -> None:
    batch, _ = credited()
    plan, pick = running(gmts(grpo())), TopTokens()
    chosen = []
    for factor in (1.0, 1024.0):
        scaled = batch.with_({"advantage": factor * batch["advantage"]})
        chosen.append(pick(scaled.with_({"now_slope": plan.slope(scaled)})))
    assert torch.equal(*chosen)
    assert bool(chosen[0].any())


def test_doubling_one_answers_advantage_never_takes_tokens_from_it() -> None:
    batch, _ = credited()
    plan, pick = running(gmts(grpo())), TopTokens()
    before = pick(batch.with_({"now_slope": plan.slope(batch)})) != 0
    gained = 0
    for row in range(len(batch)):
        mine = batch.row == row
        louder = batch.with_({"advantage": torch.where(mine, 2 * batch["advantage"], batch["advantage"])})
        after = pick(louder.with_({"now_slope": plan.slope(louder)})) != 0
        assert not bool((before & ~after & mine).any())
        gained += int((after & mine).sum() - (before & mine).sum())
    assert gained > 0


def test_silent_rows_and_clipped_tokens_get_no_slot() -> None:
    for seed in range(4):
        batch, policy = credited(seed)
        acts = clipped(batch, policy)
        chosen = kept(gmts(grpo(), keep=0.9), random_batch(seed)[0], policy)
        assert float(acts.double().mean()) > 0.01  # the batch is off-policy
        assert not bool((chosen & acts).any())
        assert not bool((chosen & (batch["advantage"] == 0)).any())
        assert bool(chosen.any())


def test_the_number_kept_is_exact_and_the_loss_is_their_mean() -> None:
    batch, policy = random_batch(2)
    full = credited(2)[0]
    known = int(full.spread(full["known"]).sum())
    got = outcome(running(gmts(grpo())), batch, policy)
    chosen = got.batch["weight"] != 0
    assert int(chosen.sum()) == math.ceil(0.2 * known)
    q, a = (policy.logp - batch["old_logp"]).exp(), full["advantage"]
    token = -torch.minimum(q * a, q.clamp(0.8, 1.2) * a)
    assert float(got.loss) == pytest.approx(float(token[chosen].mean()), rel=1e-12)


def test_keeping_all_is_the_base_bit_for_bit_and_every_stack_runs_over_groups_too() -> None:
    batch, policy = random_batch(1)
    assert outcome(running(gmts(grpo(), keep=1.0)), batch, policy).same_bits(outcome(running(grpo()), batch, policy))
    for scope in ("group", "answer"):
        chosen = kept(gmts(grpo(), scope=scope), batch, policy)  # type: ignore[arg-type]
        assert 0 < float(chosen.double().mean()) < 0.4


def test_with_nothing_to_learn_the_loss_is_a_zero_with_a_gradient() -> None:
    batch, policy = random_batch(0)
    silent = batch.with_({"correct": torch.zeros(len(batch), dtype=torch.bool), "score": 0 * batch["score"]})
    got = outcome(running(gmts(grpo())), silent, policy)
    assert float(got.loss) == 0
    assert not bool(got.logp.any())
    assert not bool(running(gmts(grpo())).busy(got.batch, "policy").any())


def test_one_answer_may_take_all_slots_and_the_metrics_say_so() -> None:
    """Seven wrong of eight: |A| = sqrt 7 for the lone right answer and 1 / sqrt 7 for the others."""
    n = 40
    right = torch.arange(8) == 3
    logp, entropy = -torch.ones(n, dtype=F64), torch.linspace(0.5, 0.6, n, dtype=F64)
    batch = Batch.pack(
        torch.full((8,), 5),
        group=torch.zeros(8, dtype=torch.long),
        correct=right,
        score=right.double(),
        behavior_logp=logp,
        old_logp=logp,
        now_logp=logp,
        now_entropy=entropy,
    )
    plan = running(gmts(grpo(eps=0.0), keep=0.125))
    done = plan.weigh(plan.credit(batch))
    advantage = done["row_advantage"].abs()
    assert float(advantage[3]) == pytest.approx(2.6458, abs=1e-4)
    assert float(advantage[0]) == pytest.approx(0.3780, abs=1e-4)
    assert ((done["weight"] != 0).nonzero()[:, 0]).tolist() == list(range(15, 20))
    told = {name: tally.value() for name, tally in plan.stack["token_weight"][0].piece.tell(done).items()}
    assert told["gmts/kept"] == pytest.approx(0.125)
    assert told["gmts/slots_max"] == 1
    assert told["gmts/slots_gini"] == pytest.approx(7 / 8)  # all to one of eight
    assert told["gmts/overlap_entropy"] == 0  # entropy alone would keep the last answer's five


def test_chance_does_not_depend_on_the_order_of_rows_and_takes_any_token() -> None:
    batch, policy = random_batch(4)
    pick = gmts(grpo(), rank_by="random", keep=0.5)
    whole = kept(pick, batch, policy)
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0))
    index = batch.token_index(order)
    assert torch.equal(kept(pick, batch.take(order), policy.take(index)), whole[index])
    assert bool((whole & (credited(4)[0]["advantage"] == 0)).any())


# ---- bad input -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("keep", [0.0, -0.1, 1.5, math.nan])
def test_a_share_that_is_none_is_refused(keep: float) -> None:
    with pytest.raises(ValueError, match="keep is the share of tokens"):
        gmts(grpo(), keep=keep)


def test_entropy_that_is_no_number_is_told_by_row() -> None:
    batch, policy = random_batch(0)
    row = int((credited()[0]["advantage"] != 0).nonzero()[0, 0])
    entropy = policy.entropy.clone()
    entropy[row] = math.nan
    with pytest.raises(ValueError, match=rf"not finite on rows \[{int(batch.row[row])}\]"):
        kept(gmts(grpo()), batch.with_({"now_entropy": entropy}), replace(policy, entropy=entropy))


# ---- with others, and on a model -------------------------------------------------------------------------
def test_weights_of_other_papers_count_as_part_of_a_gradient() -> None:
    """A truncated importance weight of 1/100 takes an answer's tokens out of the choice."""
    batch, policy = random_batch(0)
    chosen = kept(gmts(grpo()), batch, policy)
    row = int(batch.row[chosen.nonzero()[0, 0]])
    mine = batch.row == row
    quiet = torch.where(mine, batch["old_logp"] + math.log(100.0), batch["old_logp"])
    stacked = kept(build_method("gmts,tis", {}), batch.with_({"behavior_logp": quiet}), policy)
    assert int((stacked & mine).sum()) < int((chosen & mine).sum())


def test_what_it_stacks_with() -> None:
    for name in ("gspo", "cispo", "dr_grpo", "dapo", "ppo", "tis", "sft", "rejection", "kl"):
        (pair,) = stack_pairs(["gmts", name])
        assert pair.refusal is None, pair


def test_on_a_model_it_masks_and_its_gradient_is_its_own_until_all_is_kept() -> None:
    toy = toy_step("gmts")
    assert 0.15 < toy.told["gmts/kept"] < 0.21
    assert 0 < toy.told["gmts/overlap_entropy"] < 1
    ratio = (toy.policy.logp - toy.batch["old_logp"]).exp()
    assert float(((ratio < 0.8) | (ratio > 1.2)).double().mean()) > 0.01
    base = toy.gradients("grpo")
    assert toy.gradients("gmts").gap(base) > 1e-4
    assert toy.gradients("gmts(keep=1.0)").same_bits(base)


def test_the_exact_length_is_read_from_the_model() -> None:
    assert 0.1 < toy_step("gmts", **{"papers.gmts.rank_by": "norm"}).told["gmts/kept"] < 0.21

"""The baseline family against values worked out by hand."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rlvr.advantage.returns import Gae, WhitenedReturn, earned, whiten
from rlvr.batch import Batch, Now
from rlvr.engine.protocol import Unsupported
from rlvr.loss.losses import ClippedWeight, NegativeLogLikelihood
from rlvr.loss.pairs import BestAndWorst, PreferenceLoss
from rlvr.loss.terms import EntropyBonus, KLToReference, ValueLoss
from rlvr.loss.weights import NotTruncated, OnlyRight, SamplerRatio
from rlvr.method import Stack
from rlvr.methods.cispo import cispo
from rlvr.methods.dapo import Informative, dapo
from rlvr.methods.dpo import dpo
from rlvr.methods.dr_grpo import dr_grpo
from rlvr.methods.grpo import grpo
from rlvr.methods.gspo import gspo
from rlvr.methods.kl import kl
from rlvr.methods.ppo import CriticFirst, ppo
from rlvr.methods.reinforce_pp import reinforce_pp
from rlvr.methods.rejection import rejection
from rlvr.methods.rloo import rloo
from rlvr.methods.sft import sft
from rlvr.recipe import load_recipe
from rlvr.records import Group, Task, Verdict
from rlvr.reward.pays import Pays
from rlvr.reward.penalties import KLInReward, Overlong
from rlvr.run import dry_run
from rlvr.testing import outcome, random_batch, running

F64 = torch.float64


def t(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=F64)


def two_rows() -> Batch:
    """Rows of 2 and 1 tokens, one group; the first is right."""
    return Batch.pack(
        torch.tensor([2, 1]),
        group=torch.tensor([0, 0]),
        score=t(1, 0),
        correct=torch.tensor([True, False]),
        behavior_logp=t(-1, -2, -3),
        old_logp=t(-1, -2, -3),
        ref_logp=t(-1.5, -2, -2),
        value=t(0.5, 0.25, 0.5),
    )


def credited(method, batch: Batch | None = None) -> Batch:  # type: ignore[no-untyped-def]
    plan = running(method)
    return plan.weigh(plan.credit(batch if batch is not None else two_rows()))


# ---- advantages ----------------------------------------------------------------------------------------------------
def test_leave_one_out_compares_with_the_others() -> None:
    zeros = t(0, 0, 0, 0)
    batch = Batch.pack(
        torch.ones(4, dtype=torch.long),
        group=torch.tensor([0, 0, 0, 1]),
        score=t(1, 0.5, 0, 1),
        correct=torch.tensor([True, False, False, True]),
        behavior_logp=zeros,
        old_logp=zeros,
    )
    assert credited(rloo(grpo()), batch)["row_advantage"].tolist() == pytest.approx([0.75, 0, -0.75, 0])


def test_dr_grpo_divides_by_nothing_of_its_own() -> None:
    """Advantages +-1/2; two rows of at most 40 tokens: every token weighs 1/80."""
    done = credited(dr_grpo(grpo()))
    assert done["advantage"].tolist() == [0.5, 0.5, -0.5]
    assert done["weight"].tolist() == pytest.approx([1 / 80] * 3)


def test_returns_run_backwards_and_the_rows_reward_comes_last() -> None:
    batch = two_rows().with_({"token_reward": t(0.5, 0, 0.25), "reward": t(1.5, 0.25)})
    assert earned(batch).tolist() == [0.5, 1, 0.25]
    assert batch.scan(earned(batch), 0.5, reverse=True).tolist() == [1, 1, 0.25]


def test_whitening_uses_the_samples_variance_and_known_rows_only() -> None:
    """1, 2, 3: mean 2, variance 1. The fourth token's row has no verdict."""
    batch = Batch.pack(torch.tensor([2, 1, 1]), known=torch.tensor([True, True, False]))
    assert whiten(t(1, 2, 3, 99), batch, 0.0).tolist() == pytest.approx([-1, 0, 1, 0])
    assert whiten(t(1, 2, 3, 99), batch, 3.0).tolist() == pytest.approx([-0.5, 0, 0.5, 0])


def test_reinforce_pp_whitens_returns_over_tokens() -> None:
    """Returns 1, 1, 0 over three tokens: mean 2/3, sample variance 1/3; +1/3 * sqrt 3 and -2/3 * sqrt 3."""
    done = credited(reinforce_pp(grpo(), eps=0.0))
    assert done["advantage"].tolist() == pytest.approx([math.sqrt(3) / 3, math.sqrt(3) / 3, -2 * math.sqrt(3) / 3])
    with_baseline = credited(reinforce_pp(grpo(), baseline=True, eps=0.0))["advantage"].tolist()
    assert with_baseline == pytest.approx([math.sqrt(3) / 3, math.sqrt(3) / 3, -2 * math.sqrt(3) / 3])


def test_reinforce_pp_discounts() -> None:
    advantage = WhitenedReturn(gamma=0.5, eps=0.0)(two_rows().with_({"token_reward": t(0, 0, 0), "reward": t(1, 0)}))
    raw = t(0.5, 1, 0)
    torch.testing.assert_close(advantage, (raw - 0.5) / raw.std())


def test_gae_by_hand() -> None:
    """gamma .5, lam .5. Row 0: delta_1 = .5 * .25 - .5 = -.375, delta_2 = 1 - .25 = .75; A_2 = .75, A_1 = -.375 + .25 *
    .75."""
    batch = two_rows().with_({"token_reward": t(0, 0, 0), "reward": t(1, 0)})
    got = Gae(0.5, 0.5)(batch)
    assert got["gae/advantage"].tolist() == pytest.approx([-0.1875, 0.75, -0.5])
    assert got["gae/return"].tolist() == pytest.approx([0.3125, 1.0, 0.0])


# ---- ratios and losses -----------------------------------------------------------------------------------------------
def test_gspo_takes_one_ratio_a_row_and_its_gradient_is_shared_by_the_rows_tokens() -> None:
    done = credited(gspo(grpo(eps=0.0), clip_low=0.5, clip_high=0.5))
    logp = t(-1.2, -1.9, -3.1).requires_grad_()
    loss, told = running(gspo(grpo(eps=0.0), clip_low=0.5, clip_high=0.5)).loss(
        "policy", Now(logp), replace(done, whole=False)
    )
    loss.backward()
    s = [math.exp((-0.2 + 0.1) / 2), math.exp(-0.1)]
    assert float(loss.detach()) == pytest.approx(-(s[0] - s[1]) / 2)
    assert logp.grad is not None
    assert logp.grad.tolist() == pytest.approx([-s[0] / 4, -s[0] / 4, s[1] / 2])
    assert told["policy/clip_frac"].value() == 0


def test_cispo_clips_the_weight_and_keeps_every_gradient() -> None:
    batch = Batch.pack(
        torch.tensor([3]), advantage=t(2, 2, -1), clip_low=t(0.5, 0.5, 0.5), clip_high=t(1, 1, 1), weight=t(1, 1, 1)
    )
    logp = t(-1, -1, -1).requires_grad_()
    loss, told = ClippedWeight()(Now(logp, ratio=t(1.5, 7.0, 0.1)), batch)
    loss.sum().backward()
    assert loss.tolist() == [3.0, 4.0, -0.5]
    assert logp.grad is not None
    assert logp.grad.tolist() == [-3, -4, 0.5]
    assert told["policy/clip_frac"].value() == pytest.approx(2 / 3)
    assert running(cispo(grpo())).stack.one("bounds").high == 4.0


def test_imitation_raises_what_it_sees() -> None:
    for method in (sft(grpo()), rejection(grpo())):
        plan = running(method)
        done = plan.weigh(plan.credit(two_rows()))
        logp = t(-1, -2, -3).requires_grad_()
        loss, _ = plan.loss("policy", Now(logp), replace(done, whole=False))
        loss.backward()
        assert logp.grad is not None
        if method.papers[-1] == "sft":
            assert float(loss.detach()) == pytest.approx(2.0)
            assert logp.grad.tolist() == pytest.approx([-1 / 3] * 3)
        else:  # the right row only
            assert float(loss.detach()) == pytest.approx(1.5)
            assert logp.grad.tolist() == pytest.approx([-1 / 2, -1 / 2, 0])
    assert NegativeLogLikelihood()(Now(t(-4)), Batch.pack(torch.tensor([1]), weight=t(1)))[0].tolist() == [4]


def test_dpo_by_hand() -> None:
    """Margins: row 0 gains (-1 + 1.5) + 0 = .5 on the reference, row 1 loses 1: m = 1.5; loss -log sigmoid(.1 *
    1.5)."""
    plan = running(dpo(grpo()))
    done = plan.weigh(plan.credit(two_rows()))
    assert done["pair"].tolist() == [0, 0]
    assert done["pair/sign"].tolist() == [1, -1]
    logp = t(-1, -2, -3).requires_grad_()
    loss, told = plan.loss("policy", Now(logp), replace(done, whole=False))
    loss.backward()
    want = math.log(1 + math.exp(-0.15))
    slope = 0.1 * (1 - 1 / (1 + math.exp(-0.15)))
    assert float(loss.detach()) == pytest.approx(want)
    assert logp.grad is not None
    assert logp.grad.tolist() == pytest.approx([-slope, -slope, slope])
    assert told["dpo/margin"].value() == pytest.approx(1.5)


def test_pairs_are_the_best_and_the_worst_and_never_made_of_equals() -> None:
    batch = Batch.pack(
        torch.ones(7, dtype=torch.long),
        group=torch.tensor([0, 0, 0, 0, 1, 1, 2]),
        reward=t(0.5, 1, 0, 1, 1, 1, 1),
        known=torch.tensor([True, True, True, True, True, True, True]),
    )
    got = BestAndWorst()(batch)
    assert got["pair/sign"].tolist() == [0, 1, -1, 0, 0, 0, 0]
    assert got["pair"].tolist() == [-1, 0, 0, -1, -1, -1, -1]
    unknown = batch.with_({"known": torch.tensor([True, False, True, True, True, True, True])})
    assert BestAndWorst()(unknown)["pair/sign"].tolist() == [0, 0, -1, 1, 0, 0, 0]


def test_half_a_pair_is_noticed() -> None:
    half = Batch.pack(
        torch.tensor([1]), pair=torch.tensor([0]), ref_logp=t(-1), weight=t(1), **{"pair/sign": torch.tensor([1])}
    )
    with pytest.raises(ValueError, match="one row of a pair without the other"):
        PreferenceLoss()(Now(t(-1)), half)


# ---- terms
# -------------------------------------------------------------------------------------------------------------
def test_kl_terms_pull_towards_the_reference() -> None:
    batch = Batch.pack(torch.tensor([2]), ref_logp=t(-1, -2), weight=t(1, 1))
    for name, want in (("k2", [0.1, -0.1]), ("k3", [0.2 * (1 - math.exp(-0.5)), 0.2 * (1 - math.exp(0.5))])):
        logp = t(-0.5, -2.5).requires_grad_()
        loss, told = KLToReference(0.2, name)(Now(logp), batch)  # type: ignore[arg-type]
        loss.sum().backward()
        assert logp.grad is not None
        assert logp.grad.tolist() == pytest.approx(want)
        assert told["policy/kl_ref"].value() > 0


def test_kl_in_the_reward_is_paid_token_by_token() -> None:
    assert KLInReward(0.1)(two_rows())["kl"].tolist() == pytest.approx([-0.05, 0, 0.1])
    done = credited(kl(grpo(), coef=0.1, where="reward"))
    assert done["reward"].tolist() == pytest.approx([0.95, 0.1])
    with pytest.raises(ValueError, match="belongs in the loss"):
        kl(grpo(), where="reward", estimator="k3")


def test_the_entropy_bonus_is_paid_for_entropy() -> None:
    entropy = t(1, 2).requires_grad_()
    loss, _ = EntropyBonus(0.5)(Now(t(0, 0), entropy), Batch.pack(torch.tensor([2])))
    loss.sum().backward()
    assert loss.tolist() == [-0.5, -1]
    assert entropy.grad is not None
    assert entropy.grad.tolist() == [-0.5, -0.5]


def test_the_value_loss_is_clipped_around_the_old_value() -> None:
    """Return 1, old value 0, clip .5. At .4: (.6)^2 / 2. At 2 (past the return): the clipped error .25 < 1, so 1 /
    2."""
    batch = Batch.pack(torch.tensor([3]), value=t(0, 0, 0), **{"gae/return": t(1, 1, 1)})
    value = t(0.4, 2.0, 0.9).requires_grad_()
    loss, told = ValueLoss(0.5)(Now(value, value=value), batch)
    assert loss.tolist() == pytest.approx([0.18, 0.5, 0.125])
    loss.sum().backward()
    assert value.grad is not None
    assert value.grad.tolist() == pytest.approx([-0.6, 1.0, 0.0])  # at .9 the clip has the say: no slope
    assert told["critic/clip_frac"].value() == pytest.approx(1 / 3)


def test_the_critic_learns_first() -> None:
    plan = ppo(grpo(), warmup=2).plan(reward=Pays())
    state = plan.start()
    assert plan.at(state).trained == ["policy", "critic"]
    batch, policy = random_batch(0)
    still = outcome(plan.at(state), batch, policy)
    assert not bool(still.logp.any())
    assert bool(still.value.any())
    state = plan.next(plan.next(state, 1, {}), 2, {})
    assert bool(outcome(plan.at(state), batch, policy).logp.any())
    assert CriticFirst(2).start() == {"phase": "critic"}


# ---- weights, rewards, groups
# ----------------------------------------------------------------------------------------------
def test_sampler_ratios_are_truncated_or_masked() -> None:
    batch = Batch.pack(
        torch.tensor([2, 2]), old_logp=t(0, 0, 0, -1), behavior_logp=t(-math.log(3), 0, math.log(4), math.nan)
    )
    assert SamplerRatio(2.0)(batch).tolist() == pytest.approx([2, 1, 0.25, 1])
    assert SamplerRatio(5.0, 0.5, truncate=False)(batch).tolist() == pytest.approx([3, 1, 0, 1])
    assert SamplerRatio(9.0, level="product")(batch).tolist() == pytest.approx([3, 3, 0.25, 0.25])
    assert SamplerRatio(9.0, level="row")(batch).tolist() == pytest.approx([math.sqrt(3), math.sqrt(3), 0.5, 0.5])


def test_rows_are_left_out_by_what_they_are() -> None:
    ones = {"row_weight": t(1, 1), "correct": torch.tensor([True, False]), "truncated": torch.tensor([True, False])}
    batch = two_rows().with_(ones)
    assert OnlyRight()(batch).tolist() == [1, 0]
    assert NotTruncated()(batch).tolist() == [0, 1]


def test_overlong_answers_lose_up_to_one() -> None:
    batch = Batch.pack(
        torch.tensor([1, 1, 1, 1]), path_length=torch.tensor([15, 16, 18, 25]), behavior_logp=t(0, 0, 0, 0)
    )
    assert Overlong(4, 20)(batch)["overlong"].tolist() == pytest.approx([0, 0, -0.5, -1])
    assert Overlong().settle(Stack({}, run={"max_tokens": 20})) == Overlong(4, 20)
    with pytest.raises(ValueError, match=r"outside 1\.\.20"):
        Overlong(30).settle(Stack({}, run={"max_tokens": 20}))


def test_dynamic_sampling_keeps_groups_whose_scores_differ() -> None:
    def group(*scores: float | None) -> Group:
        told = {
            str(i): Verdict("unknown", 0.0) if s is None else Verdict("right" if s == 1 else "wrong", s)
            for i, s in enumerate(scores)
        }
        return Group("g", Task("t", "p"), (), told)

    keep = Informative()
    assert keep(group(1, 0))
    assert keep(group(0, 0.5))
    assert not keep(group(1, 1, None))
    assert not keep(group(0, 0))
    assert not keep(group(None))
    assert running(dapo(grpo())).stack.one("bounds").high == 0.28


@pytest.mark.parametrize(
    ("method", "row", "says"),
    [
        ("sft", {"demo": "2"}, 'task b has no demonstration: put a text, or a list of texts, into its meta as "demo"'),
        ("dpo", {"chosen": "2", "rejected": "3"}, "task b has no pair"),
    ],
)
def test_a_task_that_cannot_be_played_back_is_told_before_the_run(
    tmp_path: Path, method: str, row: dict[str, str], says: str
) -> None:
    rows = [{"id": "a", "prompt": "1+1=", "answer": "2", "meta": row}, {"id": "b", "prompt": "1+2=", "answer": "3"}]
    file = tmp_path / "t.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    made = load_recipe("quickstart", [f"tasks={file}", "verifier=numeric", f"method={method}", "eval.problems=0"])
    with pytest.raises(Unsupported, match=f"{method} cannot work on these tasks: {says}"):
        dry_run(made)

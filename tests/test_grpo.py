"""GRPO against values by hand, a padded second implementation in float64, and finite differences; off-policy
throughout."""

import math

import pytest
import torch

from rlvr.batch import Batch, Now, ratio_at
from rlvr.loss.bounds import Clip
from rlvr.loss.reduction import Constant, RowMean, RowSum, TokenMean
from rlvr.methods.grpo import grpo
from rlvr.reward.pays import Pays
from rlvr.testing import Policy, outcome, random_batch, running

F64 = torch.float64


def rewarded(rewards: list[float], groups: list[int], known: list[bool] | None = None) -> Batch:
    """One token a row, score = reward."""
    n = len(rewards)
    zeros = torch.zeros(n, dtype=F64)
    return Batch.pack(
        torch.ones(n, dtype=torch.long),
        group=torch.tensor(groups),
        score=torch.tensor(rewards, dtype=F64),
        correct=torch.tensor(rewards) > 0,
        known=torch.tensor(known or [True] * n),
        behavior_logp=zeros,
        old_logp=zeros,
    )


def advantages(batch: Batch) -> list[float]:
    return running(grpo(eps=0.0)).credit(batch)["row_advantage"].tolist()


def test_advantages_by_hand() -> None:
    """Rewards 1 0 0 0: mean 1/4, population std sqrt(3)/4, so +sqrt(3) and -1/sqrt(3). A group of ones is silent."""
    got = advantages(rewarded([1, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1]))
    assert got == pytest.approx([math.sqrt(3), *[-1 / math.sqrt(3)] * 3, 0, 0], abs=1e-12)


def test_rows_without_a_verdict_leave_the_baseline_and_the_loss() -> None:
    batch = rewarded([1, 0, 0, 0], [0, 0, 0, 0], [True, True, False, True])
    plan = running(grpo(eps=0.0))
    weighed = plan.weigh(plan.credit(batch))
    assert weighed["row_advantage"].tolist() == pytest.approx([math.sqrt(2), -math.sqrt(0.5), 0, -math.sqrt(0.5)])
    assert weighed["weight"].tolist() == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])


def test_group_of_one_learns_nothing() -> None:
    assert advantages(rewarded([1.0], [0])) == [0.0]


def padded_grpo(batch: Batch, logp: torch.Tensor, low: float, high: float, eps: float) -> torch.Tensor:
    """A second implementation with padding and loops."""
    n = batch.length.tolist()
    rows = range(len(batch))
    pad = lambda x: torch.nn.utils.rnn.pad_sequence(list(x.split(n)), batch_first=True)  # noqa: E731
    mask = pad(torch.ones_like(logp))
    advantage = torch.zeros(len(batch), dtype=F64)
    for g in batch["group"].unique():
        seen: dict[int, float] = {}
        for i in rows:
            if batch["group"][i] == g and batch["known"][i]:
                seen[int(batch["episode"][i])] = float(batch["score"][i])
        values = torch.tensor(list(seen.values()), dtype=F64)
        for i in rows:
            if batch["group"][i] == g and batch["known"][i] and values.std(unbiased=False) > 1e-12:
                advantage[i] = (float(batch["score"][i]) - values.mean()) / (values.std(unbiased=False) + eps)
    ratio = (pad(logp) - pad(batch["old_logp"])).exp()
    a = advantage[:, None]
    loss = -torch.min(ratio * a, ratio.clamp(1 - low, 1 + high) * a)
    counted = mask * batch["known"][:, None]
    return (loss * counted).sum() / counted.sum()


@pytest.mark.parametrize("seed", range(4))
def test_loss_and_gradient_equal_a_padded_implementation(seed: int) -> None:
    batch, policy = random_batch(seed)
    got = outcome(running(grpo(clip_low=0.2, clip_high=0.28)), batch, policy)
    logp = policy.logp.clone().requires_grad_()
    want = padded_grpo(batch, logp, 0.2, 0.28, 1e-6)
    want.backward()
    assert float(got.loss) == pytest.approx(float(want.detach()), abs=1e-12)
    torch.testing.assert_close(got.logp, logp.grad, rtol=0, atol=1e-12)


def test_gradient_equals_finite_differences() -> None:
    batch, policy = random_batch(1, rows=8)
    plan = running(grpo())
    gradient = outcome(plan, batch, policy).logp
    step = 1e-6
    for i in range(0, len(policy.logp), 5):
        moved = []
        for sign in (1, -1):
            logp = policy.logp.clone()
            logp[i] += sign * step
            moved.append(float(outcome(plan, batch, Policy(logp, policy.entropy, policy.value)).loss))
        assert (moved[0] - moved[1]) / (2 * step) == pytest.approx(float(gradient[i]), abs=1e-7)


def test_the_batch_of_the_laws_is_off_policy() -> None:
    batch, policy = random_batch(0)
    ratio = ratio_at(policy.logp, batch["old_logp"], batch)
    assert float(((ratio - 1).abs() > 0.2).double().mean()) > 0.01
    plan = running(grpo())
    weighed = plan.weigh(plan.credit(batch))
    _, tallies = plan.loss("policy", Now(policy.logp), weighed.take(torch.arange(len(batch)), whole=False))
    assert tallies["policy/clip_frac"].value() > 0.01


def test_clip_fraction_counts_only_tokens_that_the_clip_stopped() -> None:
    """Ratios 1.5, 1.5, .5, .5 with advantages +, -, +, -: stopped are the first and the last."""
    plan = running(grpo(eps=0.0))
    batch = plan.weigh(plan.credit(rewarded([1, 0, 1, 0], [0, 0, 0, 0])))
    logp = torch.tensor([1.5, 1.5, 0.5, 0.5], dtype=F64).log()
    loss, told = plan.loss("policy", Now(logp.requires_grad_()), batch.take(torch.arange(4), whole=False))
    assert told["policy/clip_frac"].value() == 0.5
    assert told["policy/ratio_max"].value() == pytest.approx(1.5)
    assert float(loss.detach()) == pytest.approx((-1.2 + 1.5 - 0.5 + 0.8) / 4)


def test_pays_in_proportion_and_truncation_replaces_wrong_only() -> None:
    batch = rewarded([1, 0, 0.5, 1], [0, 0, 0, 0]).with_(
        {"truncated": torch.tensor([False, True, False, True]), "correct": torch.tensor([True, False, False, True])}
    )
    assert Pays(right=2, wrong=-1, truncated=-3)(batch)["correctness"].tolist() == [2, -3, 0.5, 2]
    assert Pays(right=2, wrong=-1)(batch)["correctness"].tolist() == [2, -1, 0.5, 2]


@pytest.mark.parametrize(
    ("reduction", "want"), [(TokenMean(), 1.5), (RowMean(), 2.0), (RowSum(), 6.0), (Constant(10), 0.6)]
)
def test_reductions_by_hand(reduction: object, want: float) -> None:
    """Token losses 3 3 and 1 1 1 1 1 1 (a public report on length bias)."""
    batch = Batch.pack(torch.tensor([2, 6]), behavior_logp=torch.zeros(8, dtype=F64))
    ones = torch.ones(8, dtype=F64)
    batch = batch.with_({"row_weight": torch.ones(2, dtype=F64), "token_weight": ones, "token_counted": ones.bool()})
    loss = torch.tensor([3, 3, 1, 1, 1, 1, 1, 1], dtype=F64)
    assert float((reduction(batch) * loss).sum()) == pytest.approx(want)  # type: ignore[operator]


def test_bounds_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="clip_low lies in"):
        Clip(low=1.5)

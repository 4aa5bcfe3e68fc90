"""SIGNBALANCE against counts made by hand."""

import math
from typing import Any

import pytest
import torch
from toy import toy_step

from rlvr.advantage.group import GroupNorm
from rlvr.batch import Batch
from rlvr.method import Contradiction
from rlvr.methods.grpo import grpo
from rlvr.methods.signbalance import SignBalance, signbalance
from rlvr.stacking import StackError, build_method
from rlvr.testing import outcome, random_batch, running

F64 = torch.float64


def t(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=F64)


def groups(*right: str, length: list[int] | None = None, **more: torch.Tensor) -> Batch:
    """One group a word, one answer a letter: "+" right, "-" wrong, "?" unknown."""
    letters = "".join(right)
    told = {
        "group": torch.tensor([g for g, word in enumerate(right) for _ in word]),
        "correct": torch.tensor([x == "+" for x in letters]),
        "known": torch.tensor([x != "?" for x in letters]),
        "reward": t(*(float(x == "+") for x in letters)),
    }
    return Batch.pack(torch.tensor(length or [1] * len(letters)), **{**told, **more})


def advantages(batch: Batch, **settings: Any) -> list[float]:
    return SignBalance(**settings)(batch).tolist()


MIXED = ("+---", "+++-", "++++")  # 8 right, 4 wrong


# ---- the balance ---------------------------------------------------------------------------------------------
def test_wrong_answers_balance_the_right_ones_of_the_batch() -> None:
    a = advantages(groups(*MIXED))
    assert a == [1, -2, -2, -2, 1, 1, 1, -2, 1, 1, 1, 1]
    assert sum(a) == 0
    assert sum(map(abs, a)) / 12 == pytest.approx(2 * 8 / 12)
    assert advantages(groups(*MIXED), c=0.5) == [x / 2 for x in a]


def test_or_those_of_their_group() -> None:
    a = advantages(groups(*MIXED), scope="group")
    assert a == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3, 1, 1, 1, -3, 0, 0, 0, 0])
    assert sum(a) == pytest.approx(0)


@pytest.mark.parametrize("scope", ["batch", "group"])
def test_off_policy_batches_of_episodes_groups_and_unknown_rows_sum_to_zero(scope: str) -> None:
    batch, _ = random_batch(1, rows=60)
    batch = batch.with_({"reward": batch["score"]})
    piece = SignBalance(c=2.0, scope=scope, limit=1e9)  # type: ignore[arg-type]
    a = piece(batch)
    assert not a.requires_grad
    assert a.dtype == F64
    first = {int(e): i for i, e in reversed(list(enumerate(batch["episode"].tolist())))}
    answers = [i for i in first.values() if batch["known"][i]]
    assert float(a[answers].sum()) == pytest.approx(0, abs=1e-12)
    assert not a[~batch["known"]].any()
    if scope == "batch":
        n = [sum(bool(batch["correct"][i]) is side for i in answers) for side in (True, False)]
        assert float(a[answers].abs().mean()) == pytest.approx(2 * 2.0 * n[0] / sum(n))


def test_as_many_right_as_wrong_is_grpo() -> None:
    batch = groups("++--")
    assert advantages(batch) == [1, 1, -1, -1] == GroupNorm(eps=0.0)(batch).tolist()
    assert advantages(groups("+---", "+++-")) == [1, -1, -1, -1, 1, 1, 1, -1]


def test_only_the_counts_of_the_scope_matter_and_grpo_is_another_thing() -> None:
    """Three wrong answers wander from the first group to the second: nothing changes. GRPO's closed form, sqrt(n- /
    n+), does."""
    a, b = advantages(groups("+---", "+++-")), advantages(groups("+", "+++----"))
    assert sorted(a) == sorted(b)
    for n, right, size in ((8, 1, 2.6458), (8, 7, 0.3780), (16, 1, 3.8730)):
        batch = groups("+" * right + "-" * (n - right))
        assert float(GroupNorm(eps=0.0)(batch)[0]) == pytest.approx(size, abs=1e-4)
        assert advantages(batch)[0] == 1.0


def test_tokens_are_balanced_where_tokens_are_counted() -> None:
    """Right: 3 + 1 tokens; wrong: 2 + 0. An answer without tokens counts as an answer and not as tokens."""
    batch = groups("+-", "+-", length=[3, 2, 1, 0])
    a = SignBalance(unit="tokens")(batch)
    assert a.tolist() == [1, -2, 1, -2]
    assert float((a * batch.length).sum()) == 0
    assert advantages(batch) == [1, -1, 1, -1]


def test_an_episode_of_several_rows_is_one_answer_and_all_its_tokens() -> None:
    """Rows 0 and 1 are one right episode of 2 + 3 tokens; two wrong answers of one token."""
    batch = groups("++--", length=[2, 3, 1, 1], episode=torch.tensor([0, 0, 2, 3]))
    assert advantages(batch) == [1, 1, -0.5, -0.5]
    assert advantages(batch, unit="tokens") == [1, 1, -2.5, -2.5]


# ---- the ladder, and what is right ---------------------------------------------------------------------------
def test_signs_alone_do_not_balance() -> None:
    assert advantages(groups(*MIXED), mode="sign", c=2.0) == [2, -2, -2, -2, 2, 2, 2, -2, 2, 2, 2, 2]
    assert advantages(groups("++"), mode="sign") == [1, 1]


def test_class_norm_is_the_sign_of_binary_rewards_and_graded_else() -> None:
    batch = groups(*MIXED)
    assert advantages(batch, mode="class_norm") == pytest.approx(advantages(batch, mode="sign"))
    # rewards 1, .6, 0, 0: mean .4; above it .6 and .2 (mean .4), below it .4 and .4
    graded = groups("+---", reward=t(1, 0.6, 0, 0))
    assert advantages(graded, mode="class_norm", c=2.0) == pytest.approx([3, 1, -2, -2])
    two = groups("+-", "+-", reward=t(1, 0.6, 0, 0))
    assert advantages(two, mode="class_norm", scope="group") == pytest.approx([1, -1, 0, 0])
    # .1, .2, .3: the middle one differs from the mean by rounding alone, which is no side
    assert advantages(groups("---", reward=t(0.1, 0.2, 0.3)), mode="class_norm") == pytest.approx([-1, 0, 1])
    assert advantages(groups("--?", reward=t(0.7, 0.7, 0.7)), mode="class_norm") == [0, 0, 0]


def test_with_a_threshold_the_reward_decides_and_at_it_is_wrong() -> None:
    batch = groups("+++-", reward=t(1, 0.5, 0.4, 0.9))
    assert advantages(batch, threshold=0.5) == [1, -1, -1, 1]
    assert advantages(batch) == [1, 1, 1, -3]


def test_an_affine_change_of_rewards_and_threshold_changes_nothing() -> None:
    batch = groups("++--", reward=t(1, 0.5, 0.4, 0.9))
    moved = batch.with_({"reward": 8 * batch["reward"] - 3})
    assert advantages(batch, threshold=0.45) == advantages(moved, threshold=8 * 0.45 - 3) == [1, 1, -3, 1]


# ---- edges ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("letters", ["++++", "----", "????", "+?", "-?"])
def test_a_scope_of_one_kind_has_no_balance(letters: str) -> None:
    for scope in ("batch", "group"):
        assert advantages(groups(letters), scope=scope) == [0] * len(letters)
    sign = {"+": 1.0, "-": -1.0, "?": 0.0}
    assert advantages(groups(letters), one_sided="sign") == [sign[x] for x in letters]


def test_the_ratio_is_limited_and_the_sum_says_so() -> None:
    """15 right, 1 wrong: -10 and not -15; a mean of (15 - 10) / 16."""
    batch = groups("+" * 15 + "-")
    a = SignBalance()(batch)
    assert a[-1] == -10
    told = SignBalance().tell(batch.with_({"row_advantage": a}))
    assert told["signbalance/limited"].value() == 1
    assert told["signbalance/ratio"].value() == 15
    assert told["signbalance/sum"].value() == pytest.approx(5 / 16)
    assert advantages(groups("+" + "-" * 15))[-1] == -0.1  # 1/15, kept at 1/10
    assert advantages(batch, limit=1.0)[-1] == -1  # which is "sign"


def test_masked_silent_groups_neither_count_nor_learn() -> None:
    a = advantages(groups(*MIXED, "--", "+?"), silent="mask")
    assert a == [1, -1, -1, -1, 1, 1, 1, -1, *[0] * 8]


def test_lone_right_answers_have_their_share_of_the_push() -> None:
    """8 pushes, one of them on the lone right answer of the first group. In GRPO it would be sqrt 3 of sqrt 3 + 3 /
    sqrt 3: a half."""
    batch = groups(*MIXED)
    told = SignBalance().tell(batch.with_({"row_advantage": SignBalance()(batch)}))
    assert told["signbalance/lone"].value() == pytest.approx(1 / 8)
    assert told["signbalance/limited"].value() == 0
    silent = groups("++")
    nothing = SignBalance().tell(silent.with_({"row_advantage": SignBalance()(silent)}))
    assert math.isnan(nothing["signbalance/lone"].value())


@pytest.mark.parametrize(
    "text", ["signbalance(c=0)", "signbalance(c=-1)", "signbalance(limit=0.5)", "signbalance(scope='world')"]
)
def test_settings_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(StackError, match=r"above 0; got|at least 1; got|wanted Literal"):
        build_method(text)


def test_rewards_that_it_would_not_see_are_refused_and_a_threshold_sees_them() -> None:
    for stack in ("signbalance,dapo", "signbalance(mode='sign'),kl(where='reward')"):
        with pytest.raises(Contradiction, match=r"signbalance cannot be stacked .* signbalance\(threshold=0\.0\)"):
            running(build_method(stack))
    for stack in ("signbalance(threshold=0.0),dapo", "signbalance(mode='class_norm'),dapo", "signbalance,kl"):
        assert running(build_method(stack)).stack.one("advantage").c == 1.0


# ---- in the loss ---------------------------------------------------------------------------------------------
def test_gradients_on_policy_are_the_advantages_over_the_tokens() -> None:
    batch, policy = random_batch(2)
    batch = batch.with_({"old_logp": policy.logp, "behavior_logp": policy.logp})
    got = outcome(running(signbalance(grpo())), batch, policy)
    first = {int(e): i for i, e in reversed(list(enumerate(batch["episode"].tolist())))}
    answers = [i for i in first.values() if batch["known"][i]]
    right = sum(bool(batch["correct"][i]) for i in answers)
    tokens = int(batch.length[batch["known"]].sum())
    for i, rows in enumerate(got.logp.split(batch.length.tolist())):
        push = 1.0 if batch["correct"][i] else -right / (len(answers) - right)
        want = -push / tokens if batch["known"][i] else 0.0
        torch.testing.assert_close(rows, torch.full_like(rows, want))


@pytest.mark.parametrize("seed", range(2))
def test_off_policy_gradients_are_grpos_with_these_advantages(seed: int) -> None:
    """Token by token: -q A / tokens inside the clip of 0.2, nothing where it acts."""
    batch, policy = random_batch(seed, rows=40)
    got = outcome(running(signbalance(grpo())), batch, policy)
    first = {int(e): i for i, e in reversed(list(enumerate(batch["episode"].tolist())))}
    answers = [i for i in first.values() if batch["known"][i]]
    right = sum(bool(batch["correct"][i]) for i in answers)
    tokens, clipped = int(batch.length[batch["known"]].sum()), 0
    for i, d, slope in zip(batch.row.tolist(), (policy.logp - batch["old_logp"]).tolist(), got.logp.tolist()):
        if not batch["known"][i]:
            assert slope == 0
            continue
        q, a = math.exp(d), 1.0 if batch["correct"][i] else -right / (len(answers) - right)
        stopped = (a > 0 and q > 1.2) or (a < 0 and q < 0.8)
        clipped += stopped
        assert slope == pytest.approx(0 if stopped else -q * a / tokens)
    assert clipped / tokens > 0.01


def test_on_the_toy_pushes_are_another_share_than_grpos_and_half_right_groups_learn_alike() -> None:
    toy = toy_step("signbalance", prompts_per_step=16)
    assert toy.told["policy/clip_frac"] > 0.01
    assert abs(math.log(toy.told["signbalance/ratio"])) > 0.2
    mine, base = toy.gradients("signbalance"), toy.gradients("grpo(eps=0.0)")
    assert float((mine.logp - base.logp).abs().max()) > 0.1 * float(base.logp.abs().max())
    lone = base.batch.group_count(base.batch["correct"]) == 1
    push = base.batch["row_advantage"].clamp(min=0)
    assert float((push * lone).sum() / push.sum()) > 2 * toy.told["signbalance/lone"] > 0
    half = (toy.batch.group_count(toy.batch["correct"]) == 8).nonzero()[:, 0]
    assert len(half) >= 16
    one, other = toy.only(half).gradients("signbalance"), toy.only(half).gradients("grpo(eps=0.0)")
    torch.testing.assert_close(one.logp, other.logp, rtol=1e-5, atol=0)

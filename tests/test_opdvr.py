"""OPDVR and GRPD against sums by hand, loops over rows and a bandit; the gate's two halves."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from toy import toy_step

from rlvr import testing
from rlvr.advantage.teacher import TeacherGap, agreeing, teacher_gap
from rlvr.batch import Batch, Now
from rlvr.methods.grpo import grpo
from rlvr.methods.opdvr import opdvr
from rlvr.pairs import stack_pairs
from rlvr.pieces import PieceError
from rlvr.stacking import StackError, build_method
from rlvr.testing import Policy, outcome, random_batch, running

F64 = torch.float64
OPD, GATED, INVERSE = TeacherGap("opd"), TeacherGap("gated"), TeacherGap("inverse")


def t(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64)


def rows(*gaps: list[float], right: tuple[bool, ...], **more: Tensor) -> Batch:
    """One group; the policy gives every token -1, the teacher that and the row's gaps."""
    flat = t(*(g for row in gaps for g in row))
    told = {
        "group": torch.zeros(len(gaps), dtype=torch.long),
        "correct": torch.tensor(right),
        "score": torch.tensor(right, dtype=F64),
        "reward": torch.tensor(right, dtype=F64),
        "token": torch.arange(len(flat)),
        "old_logp": torch.full_like(flat, -1.0),
        "behavior_logp": torch.full_like(flat, -1.0),
        "teacher_logp": flat - 1.0,
        "teacher_known": torch.ones(len(gaps), dtype=torch.bool),
    }
    return Batch.pack(torch.tensor([len(row) for row in gaps]), **{**told, **more})


def signs(batch: Batch) -> Tensor:
    return batch.spread(torch.where(batch["known"], torch.where(batch["correct"], 1.0, -1.0), 0.0))


# ---- the gate --------------------------------------------------------------------------------------------
def test_the_verdict_gives_the_sign_and_the_teacher_the_size() -> None:
    batch = rows([0.5, -0.3], [0.4, -0.7, 0.0], right=(True, False))
    assert OPD(batch).tolist() == pytest.approx([0.5, -0.3, 0.4, -0.7, 0])
    assert GATED(batch).tolist() == pytest.approx([0.5, 0, 0, -0.7, 0])
    assert INVERSE(batch).tolist() == pytest.approx([0, -0.3, 0.4, 0, 0])


@pytest.mark.parametrize("seed", range(3))
def test_gated_and_inverse_part_the_gap_exactly(seed: int) -> None:
    batch, _ = random_batch(seed)
    judged = batch.spread(batch["known"])
    kept, dropped, gap = GATED(batch), INVERSE(batch), OPD(batch)
    assert torch.equal((kept + dropped)[judged], gap[judged])
    assert not bool((kept * dropped).any())
    s = signs(batch)
    assert bool((kept * s >= 0).all())  # never against the direction of the verdict
    assert bool((dropped * s <= 0).all())
    assert bool((kept != 0).any())
    assert bool((dropped != 0).any())
    assert not bool(kept[~judged].any())


def test_what_is_gated_does_not_matter_at_all() -> None:
    batch, _ = random_batch(1)
    against = signs(batch) * teacher_gap(batch, None) < 0
    other = torch.where(against, batch["old_logp"] + 7 * (batch["teacher_logp"] - batch["old_logp"]), 0.0)
    moved = batch.with_({"teacher_logp": torch.where(against, other, batch["teacher_logp"])})
    assert bool(against.any())
    assert torch.equal(GATED(moved), GATED(batch))
    assert not torch.equal(INVERSE(moved), INVERSE(batch))


def test_no_normalisation_comes_between_the_sign_and_the_loss() -> None:
    batch, _ = random_batch(2)
    for stack in ("opdvr", "opdvr,gapo", "opdvr,gmts", "opdvr,hispo", "opdvr,cispo", "opdvr,tis", "opdvr,kl"):
        done = running(build_method(stack)).credit(batch)["advantage"]
        assert bool((done * signs(batch) >= 0).all())
        assert torch.equal(done, GATED(batch)) == ("hispo" not in stack)  # which takes its segments' means


def test_chance_drops_as_many_tokens_as_the_gate_of_either_sign() -> None:
    batch, _ = random_batch(0, rows=60)
    got, gap = TeacherGap("random_gate")(batch), OPD(batch)
    kept = got != 0
    assert int(kept.sum()) == int((GATED(batch) != 0).sum())
    assert torch.equal(got[kept], gap[kept])
    at_odds = float((got[kept] * signs(batch)[kept] < 0).double().mean())
    of_all = float((gap * signs(batch) < 0).double().sum() / (gap * signs(batch) != 0).sum())
    assert at_odds == pytest.approx(of_all, abs=0.1)
    assert not bool(TeacherGap("random_gate")(rows([-0.5], right=(True,))).any())  # the gate keeps none


# ---- edges -----------------------------------------------------------------------------------------------
def test_a_token_without_a_chance_at_the_teacher_is_clamped() -> None:
    never = rows([-math.inf, 0.2], [-math.inf], right=(True, False))
    assert GATED(never).tolist() == pytest.approx([0, 0.2, -10])
    assert OPD(never).tolist() == pytest.approx([-10, 0.2, -10])
    assert TeacherGap("gated", clamp=None)(never).tolist()[:2] == pytest.approx([0, 0.2])
    assert TeacherGap("opd", clamp=0.1)(rows([0.5, -0.5, 0.05], right=(True,))).tolist() == pytest.approx(
        [0.1, -0.1, 0.05]
    )


@pytest.mark.parametrize("mode", ["gated", "opd", "inverse"])
def test_a_word_that_is_no_number_is_told_by_row(mode: str) -> None:
    batch = rows([0.5, 0.1], [0.4, math.nan], right=(True, False))
    with pytest.raises(PieceError, match=r"nan on rows \[1\]; teacher_logp, which it reads, has nan too"):
        running(build_method(f"opdvr(mode='{mode}')")).credit(batch)


@pytest.mark.parametrize("mode", ["gated", "opd"])
def test_silent_groups_teach_without_a_group_to_compare_with(mode: str) -> None:
    for right in (True, False):
        batch = rows([0.4, -0.4], [0.3, -0.3], right=(right, right))
        plan = running(build_method(f"opdvr(mode='{mode}')"))
        assert bool(plan.credit(batch)["advantage"].any())
        assert not bool(running(build_method("opdvr(sign='group')")).credit(batch)["advantage"].any())


def test_a_teacher_that_is_the_policy_moves_nothing() -> None:
    batch, policy = random_batch(0)
    batch = batch.with_({"teacher_logp": batch["old_logp"]})
    for mode in ("gated", "opd", "inverse", "random_gate"):
        plan = running(build_method(f"opdvr(mode='{mode}')"))
        assert not bool(outcome(plan, batch, policy).logp.any())
        assert not bool(plan.busy(plan.weigh(plan.credit(batch)), "policy").any())


def test_rows_without_the_teachers_word_leave_the_denominator() -> None:
    batch, policy = random_batch(0)
    heard = batch["teacher_known"].nonzero()[:, 0]
    assert 0 < len(heard) < len(batch)
    for mode in ("gated", "opd"):
        plan = running(build_method(f"opdvr(mode='{mode}')"))
        index = batch.token_index(heard)
        every, alone = outcome(plan, batch, policy), outcome(plan, batch.take(heard), policy.take(index))
        torch.testing.assert_close(every.logp[index], alone.logp, rtol=1e-12, atol=0)
        assert not bool(every.logp[~batch.spread(batch["teacher_known"])].any())


def test_rows_without_a_verdict_teach_by_the_teacher_alone_only_without_the_gate() -> None:
    batch, policy = random_batch(0)
    unjudged = batch.spread(~batch["known"] & batch["teacher_known"])
    assert bool(unjudged.any())
    assert not bool(outcome(running(build_method("opdvr")), batch, policy).logp[unjudged].any())
    assert bool(outcome(running(build_method("opdvr(mode='opd')")), batch, policy).logp[unjudged].any())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("opdvr(floor=-1, scale='advantage')", "is not negative; got -1"),
        ("opdvr(floor=0.5)", 'scale = "none" does not read'),
        ("opdvr(clamp=0.0)", "above 0; got 0.0"),
        ("opdvr(mode='gate')", "wanted"),
        ("opdvr(sign='reward')", "wanted Literal"),
    ],
)
def test_settings_that_mean_nothing_are_refused(text: str, says: str) -> None:
    with pytest.raises(StackError) as caught:
        build_method(text)
    assert says in str(caught.value)


# ---- GRPD ------------------------------------------------------------------------------------------------
def test_the_groups_sign_on_binary_rewards_is_the_verdicts_where_groups_are_mixed() -> None:
    batch, _ = random_batch(3)
    reward = batch["correct"].double()
    batch = batch.with_({"reward": reward, "score": reward})
    rights, n = batch.group_count(batch["correct"] & batch["known"]), batch.group_count()
    silent = batch.spread((rights == 0) | (rights == n))
    assert bool(silent.any())
    assert bool((~silent).any())
    got = TeacherGap("gated", "group")(batch)
    assert torch.equal(got, torch.where(silent, 0.0, GATED(batch)))


def test_the_groups_advantage_scales() -> None:
    """One right of four: A = 3/4 and -1/4, over the spread sqrt(3) and -1/sqrt(3)."""
    batch = rows([0.5, -1], [0.2, -0.4], [-0.8], [0.3], right=(True, False, False, False))
    plain = [0.5, 0, 0, -0.4, -0.8, 0]
    for std, right, wrong in ((False, 0.75, 0.25), (True, math.sqrt(3), 1 / math.sqrt(3))):
        for floor in (0.0, 0.1):
            got = TeacherGap("gated", "group", "advantage", floor, std)(batch).tolist()
            size = [right + floor] * 2 + [wrong + floor] * 4
            assert got == pytest.approx([p * s for p, s in zip(plain, size)], rel=1e-5)
    assert TeacherGap("opd", "verdict", "advantage")(batch).tolist() == pytest.approx(
        [0.75 * 0.5, -0.75, 0.05, -0.1, -0.2, 0.075]
    )


# ---- the loss --------------------------------------------------------------------------------------------
def test_on_policy_the_gradient_is_the_gated_gap_over_the_tokens() -> None:
    batch = rows([0.5, -0.3], [0.4, -0.7, 0.0], right=(True, False))
    policy = Policy(batch["old_logp"], -batch["old_logp"], torch.zeros(5, dtype=F64))
    got = outcome(running(opdvr(grpo())), batch, policy)
    assert got.logp.tolist() == pytest.approx([-0.5 / 5, 0, 0, 0.7 / 5, 0])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["gated", "opd", "inverse"])
def test_off_policy_the_loss_equals_a_loop_over_tokens(mode: str, seed: int) -> None:
    batch, policy = random_batch(seed)
    total, tokens, clipped = 0.0, 0, 0
    for n in range(len(batch.row)):
        i = int(batch.row[n])
        if not batch["teacher_known"][i] or (mode != "opd" and not batch["known"][i]):
            continue
        tokens += 1
        gap, right = float(batch["teacher_logp"][n] - batch["old_logp"][n]), bool(batch["correct"][i])
        agree = max(0.0, gap) if right else min(0.0, gap)
        earned = {"opd": gap, "gated": agree, "inverse": gap - agree}[mode]
        q = math.exp(float(policy.logp[n] - batch["old_logp"][n]))
        clipped += earned != 0 and ((earned > 0 and q > 1.2) or (earned < 0 and q < 0.8))
        total -= min(q * earned, min(max(q, 0.8), 1.2) * earned)
    got = outcome(running(build_method(f"opdvr(mode='{mode}',clamp=None)")), batch, policy)
    assert float(got.loss) == pytest.approx(total / tokens, rel=1e-9)
    assert clipped / tokens > 0.01


def flow(mode: str, q: float, p: float, steps: int = 4000, lr: float = 0.05) -> tuple[float, float]:
    """A bandit with one right and one wrong action: (the first gradient of the expected loss in the right action's
    logit, its probability after gradient descent). The teacher gives it p, the policy starts at q."""
    plan = running(build_method(f"opdvr(mode='{mode}')"))
    logit = torch.tensor(math.log(q / (1 - q)), dtype=F64, requires_grad=True)
    first = 0.0
    for step in range(steps):
        logp = torch.stack([torch.nn.functional.logsigmoid(logit), torch.nn.functional.logsigmoid(-logit)])
        told = {"old_logp": logp.detach(), "teacher_logp": t(math.log(p), math.log(1 - p))}
        batch = plan.weigh(plan.credit(rows([0.0], [0.0], right=(True, False), **told)))
        batch = replace(batch.with_({"weight": logp.detach().exp()}), whole=False)  # the expectation over actions
        loss, _ = plan.loss("policy", Now(logp), batch)
        (slope,) = torch.autograd.grad(loss, logit)
        first = float(slope) if step == 0 else first
        with torch.no_grad():
            logit -= lr * slope
        if not slope:
            break
    return first, float(torch.sigmoid(logit.detach()))


def test_a_policy_better_than_its_teacher_is_pulled_back_without_the_gate_and_stays_with_it() -> None:
    """OPD's gradient in the logit is that of KL(policy || teacher): q (1 - q) (logit q - logit p)."""
    first, end = flow("opd", 0.9, 0.6)
    assert first == pytest.approx(0.9 * 0.1 * (math.log(9) - math.log(1.5)))
    assert end == pytest.approx(0.6, abs=1e-3)
    assert flow("gated", 0.9, 0.6) == (0.0, pytest.approx(0.9))


def test_a_policy_worse_than_its_teacher_rises_to_it_and_no_further() -> None:
    first, end = flow("gated", 0.2, 0.7)
    assert first == pytest.approx(0.2 * 0.8 * (math.log(0.25) - math.log(7 / 3)))  # both actions agree: as OPD
    assert 0.69 < end <= 0.7 + 1e-9
    assert flow("inverse", 0.2, 0.7) == (0.0, pytest.approx(0.2))


# ---- with others, and on a model -------------------------------------------------------------------------
def test_all_modes_keep_the_laws() -> None:
    for settings in ("mode='opd'", "mode='inverse'", "mode='random_gate'", "sign='group',scale='advantage',floor=0.1"):
        results = {r.law: r for r in testing.check(f"opdvr({settings})")}
        assert not [r for law, r in results.items() if law != "neutrality" and not r.ok]


def test_what_it_stacks_with() -> None:
    for name in ("gapo", "gspo", "hispo", "gmts", "bpo", "cispo", "tis", "kl", "thinkprior"):
        assert stack_pairs(["opdvr", name])[0].refusal is None


def test_agreeing_is_nothing_without_a_sign() -> None:
    assert agreeing(t(0.5, -0.5), t(0, 0)).tolist() == [0, 0]


def test_what_it_tells() -> None:
    batch = rows([0.5, -0.3, 0.1, 0.0], [0.4, -0.7], [9.0], right=(True, False, False))
    batch = batch.with_({"teacher_known": torch.tensor([True, True, False])})
    told = {name: tally.value() for name, tally in GATED.tell(batch).items()}
    assert told["teacher/kl"] == pytest.approx(-(0.5 - 0.3 + 0.1 + 0.4 - 0.7) / 6)
    assert told["teacher/gap_right"] == pytest.approx(0.3 / 4)
    assert told["teacher/gap_wrong"] == pytest.approx(-0.3 / 2)
    assert told["teacher/at_odds"] == pytest.approx(2 / 5)
    assert told["teacher/gated"] == pytest.approx(3 / 6)
    assert told["teacher/gated_right"] == pytest.approx(2 / 4)
    assert told["teacher/gated_wrong"] == pytest.approx(1 / 2)


def test_on_the_toy_the_gate_acts_and_a_teacher_that_echoes_the_group_gives_grpo() -> None:
    toy = toy_step("opdvr")
    assert 0.2 < toy.told["teacher/gated"] < 0.9
    assert toy.told["teacher/kl"] > 0.01
    assert toy.told["teacher/unknown"] == 0
    assert toy.told["policy/clip_frac"] > 0.01
    heard = int(toy.batch.chains.lengths.sum()) if toy.batch.chains else 0
    assert toy.told["score/teacher/tokens"] == heard
    base = toy.gradients("grpo")
    assert toy.gradients("opdvr").gap(base) > 1e-4
    echo = toy.batch["old_logp"] + base.batch["advantage"].sign()
    told = replace(toy, batch=toy.batch.with_({"teacher_logp": echo}))
    grpd = "opdvr(sign='group', scale='advantage', norm_std=True)"
    assert told.gradients(grpd).gap(base) < 1e-6
    assert told.gradients("opdvr").gap(base) > 1e-5

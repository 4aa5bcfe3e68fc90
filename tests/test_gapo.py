"""GAPO against its formula, worked out by hand and by a padded implementation of its own."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from toy import toy_step

from rlvr.advantage.group import GroupNorm
from rlvr.batch import Batch, Now
from rlvr.method import Stack, resolve
from rlvr.methods.gapo import GroupAdaptiveClip, gapo
from rlvr.methods.grpo import grpo
from rlvr.methods.gspo import gspo
from rlvr.methods.rloo import rloo
from rlvr.stacking import StackError, build_method
from rlvr.testing import outcome, random_batch, running

F64 = torch.float64
TOKEN = GroupAdaptiveClip(0.2, 0.28)


def t(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=F64)


def group(k: int, c: int, **more: torch.Tensor) -> Batch:
    """One group of k answers of one token, the first c of them right."""
    right = torch.arange(k) < c
    told = {"group": torch.zeros(k, dtype=torch.long), "correct": right, "score": right.double()}
    return Batch.pack(torch.ones(k, dtype=torch.long), behavior_logp=torch.zeros(k, dtype=F64), **{**told, **more})


def high_of(k: int, c: int, piece: GroupAdaptiveClip = TOKEN) -> float:
    """The upper bound of the group's first right answer."""
    return float(piece(group(k, c))[1][0])


# ---- the schedule ------------------------------------------------------------------------------------------
def test_rarer_right_answers_get_more_room() -> None:
    """0.2 + 0.08 * (8 - c) / 7."""
    assert high_of(8, 1) == 0.28
    assert high_of(8, 7) == pytest.approx(0.2114285714, abs=1e-9)
    assert high_of(8, 4) == pytest.approx(0.2 + 0.08 * 4 / 7)
    assert high_of(8, 8) == 0.2
    every = [high_of(8, c) for c in range(1, 9)]
    assert all(a > b for a, b in itertools.pairwise(every))


def test_a_group_of_two_has_two_levels() -> None:
    assert (high_of(2, 1), high_of(2, 2)) == (0.28, 0.2)


def test_wrong_answers_and_the_lower_side_keep_low() -> None:
    low, high = TOKEN(group(8, 3))
    assert low.tolist() == [0.2] * 8
    assert high.tolist() == pytest.approx([0.2 + 0.08 * 5 / 7] * 3 + [0.2] * 5)
    assert TOKEN(group(8, 0))[1].tolist() == [0.2] * 8  # the raw formula would give 0.2914


def test_a_group_of_one_is_not_divided_by_zero() -> None:
    for mode in ("linear", "exp", "advantage"):
        piece = GroupAdaptiveClip(0.2, 0.28, mode)  # type: ignore[arg-type]
        assert piece(group(1, 1))[1].tolist() == pytest.approx([0.28])
        assert piece(group(1, 0))[1].tolist() == [0.2]


def test_counts_are_those_of_known_episodes_in_groups_of_any_size() -> None:
    """Rows 0-4: five rows, four episodes (0 and 1 are one), one of them unknown: 1 of 3 right. Rows 5-6: 1 of 2."""
    batch = Batch.pack(
        torch.tensor([2, 1, 1, 1, 1, 1, 3]),
        group=torch.tensor([0, 0, 0, 0, 0, 1, 1]),
        episode=torch.tensor([0, 0, 2, 3, 4, 5, 6]),
        correct=torch.tensor([True, True, False, False, True, False, True]),
        known=torch.tensor([True, True, True, True, False, True, True]),
        score=t(1, 1, 0, 0, 1, 0, 1),
        behavior_logp=torch.zeros(10, dtype=F64),
    )
    want = [0.28] * 3 + [0.2] * 3 + [0.2] + [0.28] * 3  # the unknown row, which carries no weight, keeps low
    for mode in ("linear", "advantage"):
        got = GroupAdaptiveClip(0.2, 0.28, mode)(batch)[1]  # type: ignore[arg-type]
        keep = batch.spread(batch["known"])
        assert got[keep].tolist() == pytest.approx([w for w, k in zip(want, keep.tolist()) if k])


def test_bounds_ride_along_with_their_rows() -> None:
    batch, _ = random_batch(0)
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(1))
    high = TOKEN(batch)[1]
    assert torch.equal(high[batch.token_index(order)], TOKEN(batch.take(order))[1])


def test_the_advantage_mode_is_linear_on_binary_scores_and_graded_else() -> None:
    for k in range(2, 9):
        for c in range(k + 1):
            batch = group(k, c)
            torch.testing.assert_close(
                GroupAdaptiveClip(0.2, 0.28, "advantage")(batch), TOKEN(batch), rtol=0, atol=1e-12
            )
    # scores 1, 1/2, 0, 0: mean 3/8; advantages 5/8 and 1/8 of a possible 3/4
    graded = group(4, 1, score=t(1, 0.5, 0, 0))
    high = GroupAdaptiveClip(0.2, 0.28, "advantage")(graded)[1]
    assert high.tolist() == pytest.approx([0.2 + 0.08 * 5 / 6, 0.2 + 0.08 / 6, 0.2, 0.2])


def test_the_exp_mode_is_the_trust_regions_own_ratio() -> None:
    """exp(A / lambda) - 1 with A = 1 - c/8 and lambda such that A = 7/8 gives 0.28."""
    lam = (7 / 8) / math.log(1.28)
    for c in range(1, 9):
        assert high_of(8, c, GroupAdaptiveClip(0.2, 0.28, "exp")) == pytest.approx(math.exp((1 - c / 8) / lam) - 1)


def test_the_fixed_mode_gives_every_right_answer_the_same_room() -> None:
    piece = GroupAdaptiveClip(0.2, 0.28, "fixed")
    assert piece(group(8, 7))[1].tolist() == [0.28] * 7 + [0.2]
    assert [high_of(k, c, piece) for k, c in ((8, 1), (8, 8), (1, 1))] == [0.28] * 3


# ---- defaults, refusals --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("stack", "low", "high"),
    [
        ("gapo", 0.2, 0.28),
        ("gapo,gspo", 3e-3, 5e-3),
        ("gapo(high_max=0.01),gspo", 3e-3, 0.01),
        ("gapo(low=0.1),dapo", 0.1, 0.28),
        ("gapo,cispo", 0.2, 0.28),
    ],
)
def test_defaults_come_from_the_level_of_the_finished_stacks_ratio(stack: str, low: float, high: float) -> None:
    piece = running(build_method(stack)).stack.one("bounds")
    assert (piece.low, piece.high_max) == (low, high)


def test_a_segments_ratio_is_bounded_as_a_tokens() -> None:
    class Segments:
        level = "hispo/start"

    placed = next(p for p in grpo().placed if p.slot == "ratio")
    stack = Stack({"ratio": (replace(placed, piece=Segments()),)})
    assert GroupAdaptiveClip().settle(stack) == GroupAdaptiveClip(0.2, 0.28)


@pytest.mark.parametrize("text", ["gapo(low=0.3,high_max=0.28)", "gapo(low=-0.1)", "gapo(low=1.5)"])
def test_bounds_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(StackError, match=r"high_max = 0\.28 is below low = 0\.3|low lies in \[0, 1\]"):
        build_method(text)


def test_modes_are_those_that_there_are() -> None:
    with pytest.raises(StackError, match="wanted Literal"):
        build_method("gapo(mode='cubic')")


def test_a_bound_below_the_default_of_the_other_is_refused_with_the_plan() -> None:
    with pytest.raises(ValueError, match=r"high_max = 0\.1 is below low = 0\.2"):
        gapo(grpo(), high_max=0.1).plan()


def test_the_spread_is_not_divided_out_unless_somebody_insists() -> None:
    assert running(gapo(grpo())).stack.one("advantage") == GroupNorm(std=False)
    assert running(gapo(grpo(), std=True)).stack.one("advantage") == GroupNorm()
    insisting = gapo(grpo()).firm("mine", advantage=GroupNorm())
    assert any("gapo would prefer advantage = GroupNorm(std=False" in note for note in running(insisting).notes)
    assert resolve(rloo(gapo(grpo())).placed, {}).one("advantage") != GroupNorm(std=False)


# ---- the loss ------------------------------------------------------------------------------------------------
def test_the_gradient_of_a_right_answer_stops_exactly_at_its_own_bound() -> None:
    """Ratios from 1.19 to 1.30 against groups of 1 to 7 right of 8; of a wrong answer, below 0.8."""
    plan = running(gapo(grpo()))
    for c in range(1, 8):
        for q in (1.19, 1.205, 1.22, 1.235, 1.25, 1.265, 1.279, 1.281, 1.30, 0.79, 0.81):
            batch = group(8, c, old_logp=torch.zeros(8, dtype=F64))
            batch = replace(plan.weigh(plan.credit(batch)), whole=False)
            logp = torch.full((8,), math.log(q), dtype=F64).requires_grad_()
            plan.loss("policy", Now(logp), batch)[0].backward()
            assert logp.grad is not None
            moves = logp.grad != 0
            assert bool(moves[:c].all()) == bool(moves[:c].any()) == (q <= 1.2 + 0.08 * (8 - c) / 7)
            assert bool(moves[c:].all()) == bool(moves[c:].any()) == (q >= 0.8)


@pytest.mark.parametrize("seed", range(3))
def test_equal_bounds_are_the_fixed_clip_bit_for_bit(seed: int) -> None:
    batch, policy = random_batch(seed)
    fixed = outcome(running(grpo(clip_low=0.2, clip_high=0.2)), batch, policy)
    assert outcome(running(gapo(grpo(), 0.2, 0.2, std=True)), batch, policy).same_bits(fixed)
    rows = outcome(running(gspo(grpo(), clip_low=0.01, clip_high=0.01)), batch, policy)
    assert outcome(running(gapo(gspo(grpo()), 0.01, 0.01, std=True)), batch, policy).same_bits(rows)


def test_rows_that_lose_are_those_of_the_fixed_clip() -> None:
    batch, policy = random_batch(0)
    wide, fixed = (outcome(running(m), batch, policy) for m in (gapo(grpo(), std=True), grpo()))
    loses = wide.batch["advantage"] < 0
    assert bool(loses.any())
    assert torch.equal(wide.logp[loses], fixed.logp[loses])
    assert not torch.equal(wide.logp, fixed.logp)


@pytest.mark.parametrize("level", ["token", "row"])
def test_the_loss_equals_a_loop_over_rows(level: str) -> None:
    """Off-policy, from the paper's text alone: lists, one row at a time; rows of one episode get its reward."""
    batch, policy = random_batch(4)
    low, top = (0.2, 0.28) if level == "token" else (3e-3, 5e-3)
    log_ratio = (policy.logp - batch["old_logp"]).split(batch.length.tolist())
    first = {int(e): i for i, e in reversed(list(enumerate(batch["episode"].tolist())))}  # one row an episode
    total, tokens, rows, clipped = 0.0, 0, 0, 0
    for i, d in enumerate(log_ratio):
        if not batch["known"][i] or not len(d):
            continue
        mates = [j for j in first.values() if batch["group"][j] == batch["group"][i] and batch["known"][j]]
        k, c = len(mates), sum(bool(batch["correct"][j]) for j in mates)
        advantage = float(batch["score"][i]) - sum(float(batch["score"][j]) for j in mates) / k
        right = bool(batch["correct"][i])
        high = low + (top - low) * (k - c) / max(k - 1, 1) if right else low
        losses = []
        for x in d if level == "token" else [d.mean()] * len(d):
            q = math.exp(x)
            clipped += (advantage > 0 and q > 1 + high) or (advantage < 0 and q < 1 - low)
            losses.append(-min(q * advantage, min(max(q, 1 - low), 1 + high) * advantage))
        total += sum(losses) if level == "token" else sum(losses) / len(losses)
        tokens, rows = tokens + len(d), rows + 1
    got = outcome(running(gapo(grpo()) if level == "token" else gapo(gspo(grpo()))), batch, policy)
    assert float(got.loss) == pytest.approx(total / (tokens if level == "token" else rows), rel=1e-9)
    assert clipped / tokens > 0.01


# ---- what it tells; the toy ----------------------------------------------------------------------------------
def test_it_tells_the_bounds_of_right_answers_that_teach() -> None:
    """1 of 2 right: 0.28. 3 of 5: 0.2 + 0.08 * 2 / 4 = 0.24, three times. 2 of 2: teaches nothing."""
    right = torch.tensor([1, 0, 1, 1, 1, 0, 0, 1, 1]).bool()
    group = torch.tensor([0, 0, 1, 1, 1, 1, 1, 2, 2])
    batch = Batch.pack(torch.ones(9, dtype=torch.long), group=group, correct=right, score=right.double())
    told = TOKEN.tell(batch)
    assert told["gapo/high"].value() == pytest.approx(0.25)
    assert told["gapo/high_std"].value() == pytest.approx(math.sqrt((0.03**2 + 3 * 0.01**2) / 4))
    silent = TOKEN.tell(batch.take(torch.tensor([7, 8])))
    assert math.isnan(silent["gapo/high"].value())


def test_on_the_toy_bounds_spread_the_clip_acts_and_equal_bounds_give_grpo() -> None:
    toy = toy_step("gapo")
    assert toy.told["gapo/high_std"] > 0.01
    assert toy.told["policy/clip_frac"] > 0.01
    mine, base = toy.gradients("gapo(std=True)"), toy.gradients("grpo")
    assert int((mine.logp != base.logp).sum()) > 10
    assert toy.gradients("gapo(low=0.2,high_max=0.2,std=True)").same_bits(base)

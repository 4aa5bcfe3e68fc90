"""ERR+ against sums worked out by hand and what its paper says of them."""

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor
from toy import toy_step

from rlvr.assemble import plan_of, set_up, training_of
from rlvr.batch import Batch
from rlvr.methods.err_plus import InTurn, err_plus
from rlvr.methods.grpo import grpo
from rlvr.pairs import stack_pairs
from rlvr.plateau import Plateau
from rlvr.recipe import load_recipe, recipes_dir
from rlvr.records import Group, Origin, Rollout, Task
from rlvr.reward.bonus import EntropyRelief, RelativeEfficiency, episode_length
from rlvr.reward.pays import Pays
from rlvr.rollout.thinking import THINKS, Thinking
from rlvr.stacking import build_method
from rlvr.testing import outcome, random_batch

F64 = torch.float64
PLAIN = EntropyRelief(marked=False)


def rows(*entropies: list[float], right: tuple[bool, ...] | None = None, **more: Tensor) -> Batch:
    """One group of rows with these entropies; all right unless said."""
    correct = torch.tensor(right if right is not None else [True] * len(entropies))
    told = {"group": torch.zeros(len(entropies), dtype=torch.long), "correct": correct, "score": correct.double()}
    flat = torch.tensor([h for row in entropies for h in row], dtype=F64)
    lengths = torch.tensor([len(row) for row in entropies])
    return Batch.pack(lengths, **{**told, "entropy": flat, "behavior_logp": -flat, **more})


def relief(*entropies: list[float], eps: float = 0.01, **more: Tensor) -> list[float]:
    return replace(PLAIN, eps=eps).relief(rows(*entropies, **more)).tolist()


# ---- entropy relief --------------------------------------------------------------------------------------
def test_drops_add_up_and_rises_do_not_count() -> None:
    """Drops of 1.5 and .5 beyond eps, a rise of 1 in between: 2 - 2 * .1 over log 5."""
    assert relief([2.0, 0.5, 1.5, 1.0], eps=0.1) == pytest.approx([1.8 / math.log(5)])


def test_a_fall_all_along_telescopes() -> None:
    heights = [3.0, 2.5, 1.75, 0.5, 0.25]
    assert relief(heights) == pytest.approx([(3.0 - 0.25 - 4 * 0.01) / math.log(6)])


def test_constant_and_rising_entropy_is_no_relief() -> None:
    assert relief([1.0] * 6, [0.1, 0.2, 0.9, 2.0], [1.0, 0.995, 0.99]) == [0, 0, 0]


def test_a_constant_added_changes_nothing_and_a_higher_peak_never_lowers_it() -> None:
    noise = torch.Generator().manual_seed(0)
    heights = torch.rand(12, generator=noise, dtype=F64).tolist()
    base = relief(heights)[0]
    assert relief([h + 2.5 for h in heights])[0] == pytest.approx(base, rel=1e-12)
    assert base >= 0
    for at in range(12):
        is_peak = (at == 0 or heights[at] >= heights[at - 1]) and (at == 11 or heights[at] >= heights[at + 1])
        if is_peak:
            assert relief([h + 0.3 * (i == at) for i, h in enumerate(heights)])[0] >= base - 1e-12


def test_one_token_and_none_are_no_relief() -> None:
    assert relief([2.0], [], [2.0, 1.0], eps=0.0) == pytest.approx([0, 0, 1 / math.log(3)])


def test_no_drop_is_taken_from_the_row_before() -> None:
    assert relief([9.0, 9.0], [1.0, 1.0]) == [0, 0]


def test_tokens_after_the_mark_are_irrelevant() -> None:
    """Thinking 2 -> 1, then an answer with any drops: (1 - eps) over log 3."""
    thinks = torch.tensor([1, 1, 0, 0, 0], dtype=F64)
    for tail in ([5.0, 0.0, 4.0], [0.0, 0.0, 0.0]):
        assert relief([2.0, 1.0, *tail], **{THINKS: thinks}) == pytest.approx([0.99 / math.log(3)])
    unmarked = torch.full((5,), math.nan, dtype=F64)
    assert relief([2.0, 1.0, 1.0, 1.0, 1.0], **{THINKS: unmarked}) == pytest.approx([0.99 / math.log(6)])


def test_an_episodes_rows_share_one_relief() -> None:
    """Rows of two and one tokens: one drop of .99, three tokens."""
    told = {"episode": torch.tensor([4, 4])}
    assert relief([2.0, 1.0], [3.0], **told) == pytest.approx([0.99 / math.log(4)] * 2)


def test_the_bonus_is_gated_and_capped() -> None:
    steep = [8.0, 0.0]  # ERR = 7.99 / log 3 = 7.27, times .3 far above the cap
    batch = rows(steep, [1.0, 0.0], steep, right=(True, True, False))
    small = 0.3 * 0.99 / math.log(3)
    assert PLAIN(batch)["entropy_relief"].tolist() == pytest.approx([0.5, small, 0])
    everyone = replace(PLAIN, gate="all")(batch)["entropy_relief"].tolist()  # as in the committed code
    assert everyone == pytest.approx([0.5, small, 1.5])
    assert replace(PLAIN, cap=1.05)(batch)["entropy_relief"].tolist() == pytest.approx([0.05, 0.05, 0])


# ---- relative efficiency ---------------------------------------------------------------------------------
def lengths(*n: int, right: tuple[bool, ...] | None = None, **more: Tensor) -> Batch:
    return rows(*([0.0] * k for k in n), right=right, **more)


def test_shorter_siblings_earn_more() -> None:
    """Lengths 10, 20, 30, 40: mean 25, population std 11.18, z = -1.3416, -.4472, .4472, 1.3416."""
    z = [(n - 25) / math.sqrt(125) for n in (10, 20, 30, 40)]
    assert z == pytest.approx([-1.3416, -0.4472, 0.4472, 1.3416], abs=1e-4)
    got = RelativeEfficiency().efficiency(lengths(10, 20, 30, 40)).tolist()
    assert got == pytest.approx([-math.tanh(0.5 * x) for x in z], abs=1e-6)  # 1e-5 stands beside the std
    part = RelativeEfficiency()(lengths(10, 20, 30, 40))["relative_efficiency"].tolist()
    assert part == pytest.approx([0.3 * x for x in got])
    assert part == sorted(part, reverse=True)


def test_wrong_answers_lose_by_length_and_never_gain() -> None:
    got = RelativeEfficiency()(lengths(10, 20, 30, 40, right=(False, True, True, False)))["relative_efficiency"]
    assert got.tolist() == pytest.approx(
        [0, 0.3 * math.tanh(0.2236), -0.3 * math.tanh(0.2236), -0.3 * math.tanh(0.6708)], abs=1e-5
    )
    floored = RelativeEfficiency(floor=-0.1)(lengths(10, 20, 30, 40, right=(False, True, True, False)))
    assert float(floored["relative_efficiency"][3]) == pytest.approx(-0.1)


def test_lengths_stretched_and_moved_earn_the_same() -> None:
    one = RelativeEfficiency().efficiency(lengths(3, 5, 11))
    other = RelativeEfficiency().efficiency(lengths(3 * 7 + 2, 5 * 7 + 2, 11 * 7 + 2))
    torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_equal_lengths_and_lone_answers_earn_what_they_did() -> None:
    assert not bool(RelativeEfficiency()(lengths(7, 7, 7))["relative_efficiency"].any())
    assert not bool(RelativeEfficiency()(lengths(900))["relative_efficiency"].any())
    alone = RelativeEfficiency(alone=(2048.0, 1024.0)).efficiency(lengths(1024))
    assert float(alone) == pytest.approx(math.tanh(0.5))


def test_bounds_and_order_of_rows() -> None:
    batch, _ = random_batch(3)
    part = RelativeEfficiency()(batch)["relative_efficiency"]
    assert float(part.abs().max()) <= 0.3
    assert bool((part[~batch["correct"]] <= 0).all())
    assert bool((part > 0).any())
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(RelativeEfficiency()(batch.take(order))["relative_efficiency"], part[order])


def test_who_counts_in_the_mean() -> None:
    """Unknown rows never; cut ones unless they are left out. 10 and 30: z of 10 is -1."""
    unknown = lengths(10, 30, 500, known=torch.tensor([True, True, False]))
    assert float(RelativeEfficiency().efficiency(unknown)[0]) == pytest.approx(math.tanh(0.5), abs=1e-5)
    cut = lengths(10, 30, 500, truncated=torch.tensor([False, False, True]))
    assert float(RelativeEfficiency(truncated_count=False).efficiency(cut)[0]) == pytest.approx(
        math.tanh(0.5), abs=1e-5
    )
    assert float(RelativeEfficiency().efficiency(cut)[0]) < 0.4


def test_an_episodes_length_is_all_that_was_written_for_it() -> None:
    """Row 0 forks from another episode's row after 4 tokens; row 1 goes on with row 0."""
    told = {"episode": torch.tensor([0, 0, 1]), "path_length": torch.tensor([7, 9, 5])}
    assert episode_length(lengths(3, 2, 5, **told)).tolist() == [9, 9, 5]


def test_silent_groups_get_a_signal_unless_told_otherwise() -> None:
    solved = lengths(10, 30)
    assert bool(RelativeEfficiency()(solved)["relative_efficiency"].any())
    assert not bool(RelativeEfficiency(silent_groups=False)(solved)["relative_efficiency"].any())
    mixed = lengths(10, 30, right=(True, False))
    assert bool(RelativeEfficiency(silent_groups=False)(mixed)["relative_efficiency"].any())
    assert not bool(replace(PLAIN, silent_groups=False)(rows([3.0, 0.0], [3.0, 2.0]))["entropy_relief"].any())


# ---- where thinking ends ---------------------------------------------------------------------------------
def decode(ids: list[int]) -> str:
    """Tokens of one or more characters."""
    return "".join(["a", "b", "</", "think", ">", "</think>", "x</th", "ink>y"][i] for i in ids)


def thinks(ids: list[int], wrote: list[bool] | None = None, mark: str = "</think>") -> list[int]:
    mine = np.array(wrote if wrote is not None else [True] * len(ids))
    return [int(x) for x in Thinking(mark).of(np.array(ids), mine, decode)]


def test_the_first_mark_ends_thinking_however_it_is_cut_into_tokens() -> None:
    assert thinks([0, 1, 5, 0, 1]) == [1, 1, 0, 0, 0]
    assert thinks([0, 2, 3, 4, 1]) == [1, 0, 0, 0, 0]
    assert thinks([0, 6, 7, 1]) == [1, 0, 0, 0]  # a token that holds a part of the mark is none of thinking
    assert thinks([0, 5, 1, 5, 1]) == [1, 0, 0, 0, 0]
    assert thinks([5, 0]) == [0, 0]


def test_without_a_mark_all_is_thinking() -> None:
    assert thinks([0, 1, 2, 3]) == [1, 1, 1, 1]
    assert thinks([]) == []


def test_a_mark_in_the_prompt_is_none() -> None:
    assert thinks([5, 0, 1, 5, 0], [False, False, True, True, True]) == [1, 1, 1, 0, 0]


def test_a_group_is_marked_row_by_row() -> None:
    def row(ids: list[int]) -> Rollout:
        n = len(ids)
        origin = np.array([Origin.PROMPT] + [Origin.POLICY] * (n - 1), np.int8)
        return Rollout("r", "t", "e", "policy", 0, np.array(ids, np.int32), origin, np.zeros(n, np.int16), {}, ())

    world = SimpleNamespace(renderer=SimpleNamespace(decode=decode))
    group = Group("g", Task("t", "p"), (row([0, 1, 5, 0]), row([0, 1])))
    told = asyncio.run(Thinking("</think>")(group, world))  # type: ignore[arg-type]
    assert [x.tolist() for x in told[THINKS]] == [[1, 1, 0, 0], [1, 1]]


# ---- phases ----------------------------------------------------------------------------------------------
def states(piece: InTurn, values: list[float | None]) -> list[str]:
    state, out = piece.start(), []
    for step, value in enumerate(values, 1):
        state = piece.next(state, step, {} if value is None else {"err_plus/relief_right": value})
        out.append(state["phase"])
    return out


def test_a_fixed_step_ends_the_first_phase() -> None:
    rising = [float(i) for i in range(1, 8)]
    assert states(InTurn(switch=3, latest=2), rising) == ["relief"] * 2 + ["efficiency"] * 5


def test_a_plateau_ends_the_first_phase_and_half_of_the_run_does_at_the_latest() -> None:
    piece = InTurn(latest=100, plateau=Plateau(gain=0.01, window=3, keep=0.0))
    assert states(piece, [1.0, 2.0, 2.0, 2.0, 2.0, 2.0]) == ["relief"] * 4 + ["efficiency"] * 2
    assert states(piece, [2.0**i for i in range(9)]) == ["relief"] * 9
    assert states(replace(piece, latest=4), [2.0**i for i in range(9)]) == ["relief"] * 3 + ["efficiency"] * 6
    (settled,) = [p.piece for p in err_plus(grpo()).plan(steps=60, reward=Pays()).controllers]
    assert settled.latest == 30


def test_a_phase_that_has_ended_does_not_come_back_and_what_is_not_measured_changes_nothing() -> None:
    piece = InTurn(latest=100, plateau=Plateau(window=1, keep=0.0))
    assert states(piece, [1.0, 1.0, 50.0, 100.0]) == ["relief"] + ["efficiency"] * 3
    assert states(piece, [1.0, None, math.nan, 2.0, None, 2.0]) == ["relief"] * 5 + ["efficiency"]


def test_the_smoothed_metric_by_hand() -> None:
    """1, then .5 + 1 = 1.5, then .75 + .5 = 1.25; window 2: 1.25 - 1 is 25 %."""
    plateau = Plateau(gain=0.2, window=2, keep=0.5)
    state = plateau.start()
    for value in (1.0, 2.0, 1.0):
        state = plateau.next(state, value)
    assert state["smooth"] == [1.0, 1.5, 1.25]
    assert not plateau.reached(state)
    assert Plateau(gain=0.25, window=2, keep=0.5).reached(state)


def test_phases_differ_in_the_reward_alone() -> None:
    plan = err_plus(grpo(), mark=None).plan(reward=Pays())
    first, second = plan.phases.values()
    names = lambda running: {(p.slot, str(p.piece)) for p in running.stack if p.slot != "reward"}  # noqa: E731
    rewards = lambda running: {type(p.piece).__name__ for p in running.stack["reward"]}  # noqa: E731
    assert names(first) == names(second)
    assert rewards(first) == {"Pays", "EntropyRelief"}
    assert rewards(second) == {"Pays", "RelativeEfficiency"}
    both = err_plus(grpo(), phases=("joint",)).plan(reward=Pays())
    assert rewards(*both.phases.values()) == {"Pays", "EntropyRelief", "RelativeEfficiency"}
    assert [k for (k,) in err_plus(grpo(), phases=("efficiency", "relief")).plan(reward=Pays()).phases] == [
        "err_plus:efficiency",
        "err_plus:relief",
    ]


def test_each_phase_without_its_weight_is_the_base_bit_for_bit_off_policy() -> None:
    batch, policy = random_batch(0)
    q = (policy.logp - batch["old_logp"]).exp()
    assert float(((q < 0.8) | (q > 1.2)).double().mean()) > 0.01
    base = outcome(next(iter(grpo().plan(reward=Pays()).phases.values())), batch, policy)
    for lam, alpha, same in ((0.0, 0.0, True), (0.3, 0.3, False)):
        for running in err_plus(grpo(), lam=lam, alpha=alpha).plan(reward=Pays()).phases.values():
            assert outcome(running, batch, policy).same_bits(base) == same


# ---- bad input -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"phases": ()}, "phases are one or two different ones"),
        ({"phases": ("relief", "relief")}, "phases are one or two different ones"),
        ({"phases": ("brevity",)}, "phases are one or two different ones"),
        ({"switch": 0}, "from 1; got 0"),
        ({"lam": -0.1}, "not negative"),
        ({"gamma": -1.0}, "not negative"),
        ({"alone": (2048.0,)}, "a mean length and a spread above 0"),
        ({"alone": (2048.0, 0.0)}, "a mean length and a spread above 0"),
        ({"mark": ""}, "leave it out"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        err_plus(grpo(), **settings)


def test_entropy_that_is_no_number_is_told_by_row() -> None:
    batch, _ = random_batch(0)
    entropy = batch["entropy"].clone()
    entropy[int(batch.first[1])] = math.nan
    batch = batch.with_({"entropy": entropy, "known": torch.ones(len(batch), dtype=torch.bool)})
    first = next(iter(err_plus(grpo(), mark=None).plan(reward=Pays()).phases.values()))
    with pytest.raises(ValueError, match=r"entropy_relief.*not finite on rows \[1, 2\]"):  # of one episode
        first.credit(batch.with_({"correct": torch.ones(len(batch), dtype=torch.bool)}))


# ---- with others, and on a model -------------------------------------------------------------------------
def test_what_it_stacks_with() -> None:
    for name in ("gspo", "cispo", "dr_grpo", "rloo", "dapo", "ppo", "tis", "dpo", "kl", "gmts"):
        (pair,) = stack_pairs(["err_plus", name])
        assert pair.refusal is None, pair
    for name in ("sft", "rejection"):
        (pair,) = stack_pairs(["err_plus", name])
        assert pair.refusal is not None
        assert "err_plus sets reward" in pair.refusal


def test_what_the_phases_tell() -> None:
    batch = rows([2.0, 1.0], [3.0, 1.0, 1.0], [8.0, 0.0, 0.0], right=(True, False, True))
    batch = batch.with_({THINKS: torch.tensor([1, 1, 1, 1, 0, 1, 1, 0], dtype=F64)})
    running = next(iter(err_plus(grpo()).plan(reward=Pays()).phases.values()))
    done = running.credit(batch)
    told = {name: tally.value() for name, tally in running.stack["reward"][0].piece.tell(done).items()}
    assert told["err_plus/relief_right"] == pytest.approx((0.99 + 7.99) / 2 / math.log(3))
    assert told["err_plus/relief_wrong"] == pytest.approx(1.99 / math.log(3))
    assert told["err_plus/capped"] == pytest.approx(1 / 2)
    assert told["err_plus/answer_tokens"] == pytest.approx(2 / 3)
    assert told["err_plus/length_right"] == pytest.approx(2.5)
    assert told["err_plus/length_wrong"] == pytest.approx(3)
    bonus = torch.tensor([0.3 * 0.99 / math.log(3), 0, 0.5], dtype=F64).var(correction=0)
    base = torch.tensor([1, 0, 1], dtype=F64).var(correction=0)
    assert told["err_plus/bonus_share"] == pytest.approx(float(bonus / (bonus + base)))


def test_on_a_model_both_phases_pay_and_change_the_gradient() -> None:
    toy = toy_step("err_plus")
    assert 0 < toy.told["err_plus/relief_right"] < 5
    assert toy.told["err_plus/answer_tokens"] == pytest.approx(3.0, abs=1.5)  # `#`, two digits, the end
    ratio = (toy.policy.logp - toy.batch["old_logp"]).exp()
    assert float(((ratio < 0.8) | (ratio > 1.2)).double().mean()) > 0.01
    base = toy.gradients("grpo")
    for lam, alpha, same in ((0.0, 0.0, True), (0.3, 0.3, False)):
        plan = build_method(f"err_plus(mark='#',lam={lam},alpha={alpha})").plan(40, reward=Pays())
        for running in plan.phases.values():
            got = outcome(running, toy.batch, toy.policy)
            assert got.same_bits(base) if same else got.gap(base) > 1e-5


def test_on_a_model_the_phases_switch(tmp_path: Path) -> None:
    recipe = load_recipe(
        recipes_dir() / "methods" / "err_plus.toml",
        ["threads=1", "steps=3", "prompts_per_step=8", "papers.err_plus.switch=2", "eval.problems=0"],
    )
    plan = plan_of(recipe)
    told: list[dict[str, float]] = []
    training = training_of(set_up(recipe, plan, want=frozenset({"entropy"})), plan, tmp_path)
    training.sinks = [SimpleNamespace(step=lambda step, metrics: told.append(metrics), groups=lambda *_: None)]
    training.run()
    assert [m["phase/err_plus"] for m in told] == [1, 1, 2]
    assert [m["reward/entropy_relief/mean"] > 0 for m in told[:2]] == [True, True]
    assert "reward/entropy_relief/mean" not in told[2]
    assert told[2]["reward/relative_efficiency/mean"] != 0

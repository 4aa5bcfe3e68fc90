"""Stacking: who wins a slot, what is refused and with which sentence, in which order pieces run. Every slot gets a toy
piece."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from rlvr.batch import Batch, Now, Tally
from rlvr.loss.bounds import Clip
from rlvr.loss.ratio import Ratio
from rlvr.loss.reduction import RowMean, TokenMean
from rlvr.method import SLOTS, Contradiction, Method, Stack
from rlvr.methods.grpo import grpo
from rlvr.records import Verdict
from rlvr.reward.pays import Pays
from rlvr.streams import declare
from rlvr.testing import outcome, random_batch, running
from rlvr.views import Look, View

declare("token", "toy/start", "first token of a toy segment")
declare("token", "toy/gap", "toy")
declare("row", "toy/target", "toy")


# ---- a toy piece for every slot --------------------------------------------------------------------------
@dataclass(frozen=True)
class EveryThird:
    """derive: a segment starts at every third token."""

    needs: ClassVar = ("token",)
    gives: ClassVar = ("toy/start",)

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        return {"toy/start": torch.arange(len(batch.row)) % 3 == 0}


@dataclass(frozen=True)
class Length:
    """reward: minus the number of tokens."""

    weight: float = 0.01
    parts: ClassVar = ("length",)

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        return {"length": -batch.length.double()}


@dataclass(frozen=True)
class Ones:
    """reward by token: 1 a token."""

    per_token: ClassVar = True
    parts: ClassVar = ("ones",)

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        return {"ones": torch.ones_like(batch["behavior_logp"])}


@dataclass(frozen=True)
class Gap:
    """advantage by token: teacher minus old."""

    needs: ClassVar = ("teacher_logp", "old_logp")
    gives: ClassVar = ("advantage",)
    properties: ClassVar = ("teacher",)

    def __call__(self, batch: Batch) -> Tensor:
        return batch["teacher_logp"] - batch["old_logp"]


@dataclass(frozen=True)
class Scale:
    """reshape, rank 2."""

    by: float = 2.0
    rank: ClassVar = 2
    needs: ClassVar = ("advantage",)

    def __call__(self, batch: Batch) -> Tensor:
        return batch["advantage"] * self.by


@dataclass(frozen=True)
class Add:
    """reshape, rank 3."""

    what: float = 1.0
    rank: ClassVar = 3
    needs: ClassVar = ("advantage",)

    def __call__(self, batch: Batch) -> Tensor:
        return batch["advantage"] + self.what


@dataclass(frozen=True)
class Bound:
    """reshape, rank 1."""

    to: float = 0.5
    rank: ClassVar = 1
    needs: ClassVar = ("advantage",)

    def __call__(self, batch: Batch) -> Tensor:
        return batch["advantage"].clamp(-self.to, self.to)


@dataclass(frozen=True)
class NotTruncated:
    """row_weight."""

    needs: ClassVar = ("truncated",)

    def __call__(self, batch: Batch) -> Tensor:
        return (~batch["truncated"]).double()


@dataclass(frozen=True)
class SteepHalf:
    """token_weight on each optimiser batch: tokens whose slope is not zero, the steeper half."""

    on_update: ClassVar = True
    selects: ClassVar = True
    needs: ClassVar = ("now_slope",)

    def __call__(self, batch: Batch) -> Tensor:
        size = batch["now_slope"].abs()
        return (size > size.median()).double()


@dataclass(frozen=True)
class LevelClip:
    """bounds that depend on the finished stack: wide for token ratios, narrow for others."""

    high: float | None = None

    def settle(self, stack: Stack) -> "LevelClip":
        if self.high is not None:
            return self
        return LevelClip(0.3 if stack.one("ratio").level == "token" else 0.003)

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return torch.full_like(batch["behavior_logp"], 0.2), torch.full_like(
            batch["behavior_logp"], float(self.high or 0)
        )


@dataclass(frozen=True)
class Squared:
    """loss of whole rows that reads no ratio: (sum of logp - old_logp - target)^2 laid on the row's tokens."""

    together: ClassVar = "group"
    needs: ClassVar = ("old_logp", "toy/target")
    reads: ClassVar = ("logp",)
    refuses: ClassVar = {"token_weight": "its loss is one number a row, so a weight inside a row has no meaning"}

    def __call__(self, now: Now, batch: Batch) -> tuple[Tensor, dict[str, Tally]]:
        residual = batch.row_sum(now.logp - batch["old_logp"]) - batch["toy/target"]
        return batch.spread(residual**2), {"toy/residual": Tally.mean(residual.abs())}


@dataclass(frozen=True)
class Target:
    needs: ClassVar = ("reward",)
    gives: ClassVar = ("toy/target",)

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        return {"toy/target": batch["reward"] - 0.5}


@dataclass(frozen=True)
class CriticLoss:
    """a term of another model with a reduction of its own."""

    model: ClassVar = "critic"
    name: ClassVar = "critic"
    needs: ClassVar = ("reward",)
    reads: ClassVar = ("value",)
    reduction: ClassVar = RowMean()

    def __call__(self, now: Now, batch: Batch) -> tuple[Tensor, dict[str, Tally]]:
        assert now.value is not None
        return (now.value - batch.spread(batch["reward"])) ** 2, {}


@dataclass(frozen=True)
class Baselined:
    """advantage that looks at a critic."""

    needs: ClassVar = ("reward", "value")
    gives: ClassVar = ("advantage",)

    def __call__(self, batch: Batch) -> Tensor:
        return batch.spread(batch["reward"]) - batch["value"]


@dataclass(frozen=True)
class Later:
    """phases: distil from a teacher until `at_step`, then the stack as it is."""

    at_step: int = 3
    names: ClassVar = ("distil", "rl")

    def start(self) -> dict[str, Any]:
        return {"phase": "distil"}

    def next(self, state: Mapping[str, Any], step: int, metrics: Mapping[str, float]) -> dict[str, Any]:
        return {"phase": "rl" if step >= self.at_step else "distil"}

    def at(self, stack: Stack, phase: str) -> Stack:
        return stack if phase == "rl" else stack.swap("later", advantage=Gap(), reshape=None)


@dataclass(frozen=True)
class AlwaysRight:
    """verify."""

    def __call__(self, text: str, task: Any) -> Verdict:
        return Verdict("right", 1.0)


@dataclass(frozen=True)
class Backwards:
    """select: the last tasks first."""

    def start(self, tasks: Any, seed: int) -> Any:
        return list(reversed(tasks))


@dataclass(frozen=True)
class Nobody:
    """rollout: no groups at all."""

    async def __call__(self, tasks: Any, n: int, world: Any) -> Any:
        return
        yield


@dataclass(frozen=True)
class OnlyMixed:
    """keep."""

    def __call__(self, group: Any) -> bool:
        return bool(group.kind == "mixed")


@dataclass(frozen=True)
class Teacherish:
    """annotate."""

    gives: ClassVar = ("toy/gap",)

    async def __call__(self, group: Any, world: Any) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class WithGap:
    needs: ClassVar = ("advantage", "toy/gap")
    rank: ClassVar = 3

    def __call__(self, batch: Batch) -> Tensor:
        return batch["advantage"] + batch["toy/gap"]


def refused(method: Method, sentence: str) -> None:
    with pytest.raises(Contradiction, match=sentence):
        method.plan(reward=Pays())


# ---- who wins --------------------------------------------------------------------------------------------
def test_firm_beats_preference_beats_base() -> None:
    wide, narrow = Clip(0.3, 0.3), Clip(0.1, 0.1)
    assert running(grpo().prefer("a", bounds=wide)).stack.one("bounds") == wide
    assert running(grpo().prefer("a", bounds=wide).firm("b", bounds=narrow)).stack.one("bounds") == narrow
    assert running(grpo().firm("b", bounds=narrow).prefer("a", bounds=wide)).stack.one("bounds") == narrow


def test_equal_settings_agree_and_different_firm_ones_are_refused_by_name() -> None:
    assert running(grpo().firm("a", ratio=Ratio("row")).firm("b", ratio=Ratio("row"))).stack.one("ratio").level == "row"
    refused(
        grpo().firm("a", ratio=Ratio("row")).firm("b", ratio=Ratio("token")),
        r"a and b both define the ratio.*Ratio\(level='row'\) against Ratio\(level='token'\).*drop a or b",
    )
    refused(grpo().firm("a", ratio=Ratio("row")).firm("a", ratio=Ratio("token")), "a is stacked twice")


def test_two_different_preferences_cancel_and_the_plan_says_so() -> None:
    plan = running(grpo().prefer("a", reduction=RowMean()).prefer("b", bounds=Clip(0.1, 0.1)))
    assert plan.stack.one("reduction") == RowMean()
    plan = running(grpo().prefer("a", bounds=Clip(0.3, 0.3)).prefer("b", bounds=Clip(0.1, 0.1)))
    assert plan.stack.one("bounds") == Clip()
    assert "prefer different settings of bounds" in plan.table()


def test_open_defaults_are_settled_from_the_finished_stack() -> None:
    for order in ((0, 1), (1, 0)):
        method = grpo()
        for i in order:
            method = method.firm("a", bounds=LevelClip()) if i == 0 else method.firm("b", ratio=Ratio("row"))
        assert running(method).stack.one("bounds") == LevelClip(0.003)
    assert running(grpo().firm("a", bounds=LevelClip())).stack.one("bounds") == LevelClip(0.3)


def test_a_slot_that_does_not_exist_is_named() -> None:
    with pytest.raises(Contradiction, match="'advantages', which is no slot"):
        grpo().firm("a", advantages=Gap())


def test_without_a_base_the_plan_says_what_is_missing() -> None:
    with pytest.raises(Contradiction, match="start the stack with grpo"):
        Method().firm("a", advantage=Gap()).plan()


# ---- what cannot work ------------------------------------------------------------------------------------
def test_a_firm_ratio_under_a_loss_that_does_not_read_it_is_refused() -> None:
    square = grpo().firm("square", loss=Squared(), derive=Target())
    running(square)
    refused(
        square.firm("seq", ratio=Ratio("row")),
        r"seq sets ratio .* nothing in this stack reads it: the loss is Squared of square",
    )


def test_a_firm_piece_that_reaches_no_loss_is_refused_and_a_default_one_is_dropped() -> None:
    square = grpo().firm("square", loss=Squared(), derive=Target())
    plan = running(square)
    assert plan.stack.one("advantage") is None
    assert "grpo's advantage" in plan.table()
    refused(square.firm("scaled", reshape=Scale()), "scaled sets reshape")
    refused(grpo().firm("marks", derive=EveryThird()), "marks sets derive .*toy/start")


def test_a_piece_may_refuse_a_slot_with_its_reason() -> None:
    refused(
        grpo().firm("square", loss=Squared(), derive=Target()).firm("half", token_weight=SteepHalf()),
        "square cannot be stacked with half: its loss is one number a row",
    )


def test_a_need_that_nobody_gives_is_named() -> None:
    refused(grpo().firm("seg", ratio=Ratio("toy/start")), "seg: Ratio needs toy/start, which nothing gives")
    running(grpo().firm("seg", ratio=Ratio("toy/start"), derive=EveryThird()))


def test_needs_that_are_a_text_are_not_read_letter_by_letter() -> None:
    @dataclass(frozen=True)
    class Sloppy:
        needs: ClassVar = "advantage"

        def __call__(self, batch: Batch) -> Tensor:
            return batch["advantage"]

    with pytest.raises(Contradiction, match=r"x sets reshape to Sloppy, whose needs is the text .* write a tuple"):
        grpo().firm("x", reshape=Sloppy())


def test_pieces_that_wait_for_each_other_are_named() -> None:
    @dataclass(frozen=True)
    class A:
        needs: ClassVar = ("advantage",)
        gives: ClassVar = ("toy/gap",)

        def __call__(self, batch: Batch) -> dict[str, Tensor]:
            return {}

    refused(grpo().firm("x", derive=A(), reshape=WithGap()), "wait for each other")


def test_a_critic_that_nobody_looks_at_is_refused() -> None:
    refused(grpo().firm("ppo", terms=CriticLoss()), "ppo sets terms .*a loss for the critic")
    plan = running(grpo().firm("ppo", terms=CriticLoss(), advantage=Baselined()))
    assert plan.trained == ["policy", "critic"]
    assert plan.models == {"policy", "critic"}


# ---- what runs -------------------------------------------------------------------------------------------
def test_reshapes_run_by_rank_whatever_the_order_of_stacking() -> None:
    """(clamp(A, +-0.5) * 2) + 1"""
    batch, _ = random_batch(0)
    plain = running(grpo()).credit(batch)["advantage"]
    papers = [("z", Bound()), ("m", Scale()), ("a", Add())]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        method = grpo()
        for i in order:
            method = method.firm(papers[i][0], reshape=papers[i][1])
        got = running(method).credit(batch)["advantage"]
        torch.testing.assert_close(got, plain.clamp(-0.5, 0.5) * 2 + 1, rtol=0, atol=0)


def test_reward_parts_are_weighted_and_summed_and_token_parts_reach_the_row() -> None:
    batch, _ = random_batch(0)
    plan = running(grpo().firm("l", reward=Length(0.01)).firm("o", reward=Ones()))
    done = plan.credit(batch)
    known = batch["known"].double()
    length = batch.length.double()
    want = batch["score"] - 0.01 * length * known + length * known
    torch.testing.assert_close(done["reward"], want, rtol=0, atol=1e-12)
    assert torch.equal(done["token_reward"], batch.spread(known))
    assert {"reward/correctness", "reward/length", "reward/ones"} <= set(done.rows)


def test_a_reward_that_is_not_finite_names_rows_and_part() -> None:
    @dataclass(frozen=True)
    class Broken:
        parts: ClassVar = ("broken",)

        def __call__(self, batch: Batch) -> dict[str, Tensor]:
            return {"broken": torch.where(torch.arange(len(batch)) == 6, torch.nan, 0.0)}

    batch, _ = random_batch(0)
    assert bool(batch["known"][6])
    with pytest.raises(ValueError, match=r"b's reward Broken: .* 'broken' is not finite on rows \[6\]"):
        running(grpo().firm("b", reward=Broken())).credit(batch)


def test_row_weights_leave_denominators() -> None:
    batch, _ = random_batch(0)
    plan = running(grpo().firm("cut", row_weight=NotTruncated()))
    weight = plan.weigh(plan.credit(batch))["weight"]
    alive = batch.spread(batch["known"] & ~batch["truncated"])
    torch.testing.assert_close(weight, alive.double() / alive.sum(), rtol=0, atol=1e-15)


def test_slopes_are_those_of_the_stack_and_selected_tokens_stand_alone_in_the_denominator() -> None:
    batch, _ = random_batch(0)
    plan = running(grpo().firm("steep", token_weight=SteepHalf()))
    credited = plan.credit(batch)
    done = plan.weigh(credited)
    ratio = (batch["now_logp"] - batch["old_logp"]).exp()
    a = credited["advantage"]
    stopped = ((a > 0) & (ratio > 1.2)) | ((a < 0) & (ratio < 0.8))
    torch.testing.assert_close(done["now_slope"], torch.where(stopped, 0.0, -ratio * a), rtol=0, atol=1e-12)
    chosen = done["weight"] > 0
    assert float(done["weight"].sum()) == pytest.approx(1.0)
    assert bool((done["now_slope"][chosen].abs() > 0).all())


def test_losses_of_groups_hold_together_and_do_not_depend_on_cuts() -> None:
    from rlvr.testing import cut_invariance

    method = grpo().firm("square", loss=Squared(), derive=Target())
    assert running(method).together == "group"
    assert cut_invariance(method).ok


def test_a_term_with_its_own_reduction_has_its_own_weight() -> None:
    batch, policy = random_batch(0)
    plan = running(grpo().firm("ppo", terms=CriticLoss(), advantage=Baselined()).firm("half", token_weight=SteepHalf()))
    done = outcome(plan, batch, policy)
    weight, known = done.batch["weight/critic"], batch["known"]
    rows = int((known & (batch.length > 0)).sum())
    want = batch.spread(known.double() / batch.length.clamp(min=1) / rows)
    torch.testing.assert_close(weight, want, rtol=0, atol=1e-12)
    error = policy.value - batch.spread(done.batch["reward"])
    torch.testing.assert_close(done.value, 2 * error * weight, rtol=0, atol=1e-12)


def test_equal_views_of_several_pieces_are_one() -> None:
    @dataclass(frozen=True)
    class Hinted:
        needs: ClassVar = ("advantage", View(Look(logp="toy/gap"), contexts=(("hint", len),)))
        rank: ClassVar = 3

        def __call__(self, batch: Batch) -> Tensor:
            return batch["advantage"]

    plan = running(grpo().firm("h", reshape=Hinted()))
    assert [[name for name, _ in v.contexts] for v in plan.views()] == [["hint"], [""]]  # and the policy itself
    twice = running(grpo().firm("h", reshape=Hinted()).firm("g", reshape=Hinted()).firm("t", advantage=Gap()))
    assert sorted(v.model for v in twice.views()) == ["policy", "policy", "teacher"]


# ---- phases ----------------------------------------------------------------------------------------------
def test_phases_swap_the_stack_and_keep_their_state_as_json() -> None:
    plan = grpo().firm("later", phases=Later()).firm("scaled", reshape=Scale()).plan(reward=Pays())
    state = plan.start()
    assert plan.at(state).stack.one("advantage") == Gap()
    assert plan.at(state).models == {"policy", "teacher"}
    assert not plan.at(state).learns_from_verdicts
    state = plan.next(state, 3, {})
    assert plan.at(state).stack.one("advantage") == grpo().plan(reward=Pays()).at({}).stack.one("advantage")
    assert [p.piece for p in plan.at(state).stack["reshape"]] == [Scale()]
    assert "phase later:distil" in str(plan)


def test_a_piece_that_lives_in_no_phase_is_refused() -> None:
    refused(grpo().firm("later", phases=Later()).firm("marks", derive=EveryThird()), "marks sets derive")


# ---- the slot table --------------------------------------------------------------------------------------
def test_every_slot_of_the_architecture_is_there() -> None:
    assert " ".join(SLOTS) == (
        "select rollout verify keep annotate derive reward advantage reshape bounds row_weight token_weight ratio "
        "loss terms reduction phases"
    )


def test_a_stack_that_fills_every_slot_runs() -> None:
    """One toy piece in each, all alive: the plan runs and is finite."""
    method = (
        grpo()
        .firm("k", keep=OnlyMixed(), verify=AlwaysRight(), select=Backwards(), rollout=Nobody())
        .firm("n", annotate=Teacherish(), reshape=WithGap())
        .firm("s", derive=EveryThird(), ratio=Ratio("toy/start"), bounds=LevelClip(0.3))
        .firm("w", row_weight=NotTruncated(), token_weight=SteepHalf(), reward=Length())
        .firm("c", terms=CriticLoss(), advantage=Baselined())
        .firm("l", phases=Later(), reduction=TokenMean())
    )
    plan = method.plan(reward=Pays())
    assert {p.slot for r in plan.phases.values() for p in r.stack} == set(SLOTS)
    batch, policy = random_batch(0)
    batch = batch.with_({"toy/gap": torch.zeros(len(batch.row), dtype=torch.float64)})
    for phase in plan.phases.values():
        assert bool(torch.isfinite(outcome(phase, batch, policy).logp).all())

"""A piece that breaks its slot's promise is named: paper, slot, piece, what was expected, what came."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import torch

from rlvr.batch import Batch, Now
from rlvr.method import Contradiction
from rlvr.methods.grpo import grpo
from rlvr.pieces import PieceError
from rlvr.reward.pays import Pays
from rlvr.streams import declare
from rlvr.testing import outcome, random_batch, running

declare("token", "broken/token", "toy")


@dataclass(frozen=True)
class Broken:
    """Returns what it is told to."""

    back: Callable[[Batch], Any]
    needs: ClassVar = ("advantage",)

    def __call__(self, *given: Any) -> Any:
        return self.back(given[-1])


class BrokenRow(Broken):
    needs: ClassVar = ("reward",)


class BrokenToken(Broken):
    needs: ClassVar = ("reward",)
    gives: ClassVar = ("advantage",)


class BrokenWeight(Broken):
    needs: ClassVar = ()


class BrokenDerive(Broken):
    needs: ClassVar = ()
    gives: ClassVar = ("broken/token",)


class BrokenTerm(Broken):
    needs: ClassVar = ()
    reads: ClassVar = ("logp",)


class ReadsDerived(Broken):
    needs: ClassVar = ("broken/token", "advantage")


TOKENS = len(random_batch(0)[0].row)
N = f"one value a token (N = {TOKENS})"
R = "one value a row (R = 24)"
PIECES = {
    "derive": (BrokenDerive, "a dictionary of the streams broken/token"),
    "reward": (BrokenWeight, "a dictionary {part: [R]}"),
    "advantage": (BrokenRow, f"an advantage [R], {R}"),
    "reshape": (Broken, f"an advantage [N], {N}"),
    "bounds": (BrokenWeight, f"clip_low and clip_high, each [N], {N}"),
    "row_weight": (BrokenWeight, f"a row weight [R], {R}"),
    "token_weight": (BrokenWeight, f"a token weight [N], {N}"),
    "ratio": (BrokenWeight, f"a ratio [N], {N}"),
    "loss": (Broken, "token_loss [N] and {name: Tally}"),
    "terms": (BrokenTerm, "token_loss [N] and {name: Tally}"),
    "reduction": (BrokenWeight, f"a factor [N], {N}"),
}
VALUES: dict[str, tuple[Callable[[Batch], Any], str]] = {
    "None": (lambda b: None, "None (is there a `return`?)"),
    "a text": (lambda b: "x", "str 'x'"),
    "a number": (lambda b: 3, "int 3"),
    "a short tensor": (lambda b: torch.zeros(7), "a tensor of shape [7], float32"),
    "a scalar": (lambda b: torch.tensor(1.0), "a tensor of shape [], float32"),
}


def said_of(slot: str, back: Callable[[Batch], Any], kind: Any = None) -> str:
    kind = kind or PIECES[slot][0]
    method = grpo().firm("mine", **{slot: kind(back)})
    if slot == "derive":
        method = method.firm("mine", reshape=ReadsDerived(lambda b: b["advantage"]))
    batch, policy = random_batch(0)
    with pytest.raises(PieceError) as error:
        [outcome(running(method), batch, policy, skip_idle=skip) for skip in (False, True)]
    assert str(error.value).startswith(f"mine's {slot} {kind.__name__}")
    return str(error.value)


@pytest.mark.parametrize("slot", PIECES)
@pytest.mark.parametrize("value", VALUES)
def test_something_else_than_a_stream_names_the_piece_and_what_was_expected(slot: str, value: str) -> None:
    back, came = VALUES[value]
    assert said_of(slot, back) == (
        f"mine's {slot} {PIECES[slot][0].__name__} returned {came}; expected {PIECES[slot][1]}"
    )


@pytest.mark.parametrize("slot", ["row_weight", "token_weight", "reshape", "reduction"])
def test_nan_names_the_rows(slot: str) -> None:
    per_row = slot == "row_weight"

    def back(batch: Batch) -> Any:
        where = torch.arange(len(batch)) == 6
        x = torch.where(where, torch.nan, 1.0).double()
        return x if per_row else batch.spread(x)

    assert "with nan on rows [6]" in said_of(slot, back)


def test_nan_on_rows_without_a_verdict_is_nobodys_fault() -> None:
    batch, policy = random_batch(0)
    unknown = int((~batch["known"]).nonzero()[0, 0])
    back = lambda b: torch.where(b.row == unknown, torch.nan, b["advantage"])  # noqa: E731
    got = outcome(running(grpo().firm("mine", reshape=Broken(back))), batch, policy)
    assert bool(torch.isfinite(got.logp).all())


def test_nan_that_came_in_with_a_stream_is_said_to_have() -> None:
    method = grpo().firm("mine", derive=BrokenDerive(lambda b: {"broken/token": torch.full((TOKENS,), torch.nan)}))
    method = method.firm("yours", reshape=ReadsDerived(lambda b: b["broken/token"]))
    batch, policy = random_batch(0)
    with pytest.raises(PieceError, match=r"yours's reshape ReadsDerived .*; broken/token, which it reads, has nan too"):
        outcome(running(method), batch, policy)


def test_an_infinite_bound_is_a_bound() -> None:
    far = lambda b: (b["behavior_logp"] * 0, torch.full_like(b["behavior_logp"], torch.inf))  # noqa: E731
    batch, policy = random_batch(0)
    outcome(running(grpo().firm("mine", bounds=BrokenWeight(far))), batch, policy)


def test_other_number_types_become_the_batchs() -> None:
    batch, policy = random_batch(0)
    method = grpo().firm("mine", row_weight=BrokenWeight(lambda b: ~b["truncated"]))
    method = method.firm("mine", reshape=Broken(lambda b: b["advantage"].float()))
    done = outcome(running(method), batch, policy).batch
    assert done["advantage"].dtype == done["row_weight"].dtype == torch.float64
    assert torch.equal(done["row_weight"] > 0, batch["known"] & ~batch["truncated"])


def test_an_advantage_of_the_other_kind_says_what_gives_should_be() -> None:
    assert said_of("advantage", lambda b: b.spread(b["reward"])).endswith(
        f'returned one value a token; expected [R], {R}, or gives = ("advantage",)'
    )
    assert said_of("advantage", lambda b: b["reward"], BrokenToken).endswith(
        f'returned one value a row; expected [N], {N}, or gives = ("row_advantage",)'
    )


def test_a_derived_stream_that_was_not_announced_is_refused() -> None:
    assert said_of("derive", lambda b: {"clip_low": b["behavior_logp"]}).endswith(
        "returned the streams clip_low; expected those that it `gives`: broken/token"
    )
    assert f"returned broken/token = a tensor of shape [2], float32; expected [N], {N}" in said_of(
        "derive", lambda b: {"broken/token": torch.zeros(2)}
    )


def test_gradient_is_named() -> None:
    assert "carries gradient" in said_of("reshape", lambda b: (b["advantage"] * 1).requires_grad_())


def test_metrics_that_are_no_tallies_are_named() -> None:
    said = said_of("loss", lambda b: (b["advantage"], {"mine/x": 1.0}))
    assert "returned mine/x = float 1.0; expected" in said
    assert "Tally.mean" in said


def test_a_loss_of_one_value_a_row_is_told_how_to_lie_on_tokens() -> None:
    assert "batch.spread" in said_of("loss", lambda b: (b["reward"], {}), BrokenRow)


def test_what_a_piece_raises_has_its_name_and_line() -> None:
    said = said_of("reshape", lambda b: b["advantages"])
    assert said.startswith("mine's reshape Broken fails: UnknownStream: unknown stream 'advantages'")
    assert "did you mean 'advantage'?" in said
    assert "(test_pieces.py, line " in said
    assert "list it in `needs`" in said_of("reshape", lambda b: b["clip_low"])


def test_out_of_memory_stays_out_of_memory() -> None:
    def full(batch: Batch) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    batch, policy = random_batch(0)
    with pytest.raises(torch.OutOfMemoryError):
        outcome(running(grpo().firm("mine", reshape=Broken(full))), batch, policy)


def test_idle_is_a_bool_a_token() -> None:
    class Idle(Broken):
        reads: ClassVar = ("logp",)

        def __call__(self, now: Now, batch: Batch) -> Any:
            return now.logp, {}

        def idle(self, batch: Batch) -> Any:
            return self.back(batch)

    assert f"returned `idle` = a tensor of shape [{TOKENS}], float64" in said_of("loss", lambda b: b["advantage"], Idle)
    assert said_of("loss", lambda b: None, Idle).endswith(f"expected `idle` [N], {N}")


# ---- before anybody calls ----------------------------------------------------------------------------------
@dataclass
class Loose:
    n: list[int] = field(default_factory=list)

    def __call__(self, batch: Batch) -> Any:
        return batch["advantage"]


class Uncallable:
    pass


@pytest.mark.parametrize(
    ("slot", "piece", "said"),
    [
        ("reshape", None, "mine sets reshape to None, which is no piece"),
        ("reshape", "scale", "mine sets reshape to 'scale', which is no piece"),
        ("reshape", Broken, r"mine sets reshape to the class Broken; make one of it: Broken\(...\)"),
        ("reshape", Uncallable(), "mine sets reshape to Uncallable, which has no __call__"),
        ("reshape", Broken([]), r"mine sets reshape to Broken, which can change \(unhashable type: 'list'\)"),  # type: ignore[arg-type]
        ("reshape", Loose(), r"mine sets reshape to Loose, which can change .*unhashable.*frozen=True"),
        ("derive", Broken(len), "mine sets derive to Broken, which does not say what it writes"),
        ("phases", Broken(len), "mine sets phases to Broken, which has no names and no start and no next and no at"),
    ],
)
def test_what_is_no_piece_is_refused_where_it_is_set(slot: str, piece: Any, said: str) -> None:
    with pytest.raises(Contradiction, match=said):
        grpo().firm("mine", **{slot: piece})


# ---- phases, keep, annotate --------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Phases:
    state: Any
    stack: bool = True
    names: ClassVar = ("one", "two")

    def start(self) -> Any:
        return {"phase": "one"}

    def next(self, state: Any, step: int, metrics: Any) -> Any:
        return self.state

    def at(self, stack: Any, phase: str) -> Any:
        return stack if self.stack else None


@pytest.mark.parametrize("state", [None, "two", {"phase": "three"}, {}])
def test_a_phase_that_does_not_exist_is_named(state: Any) -> None:
    plan = grpo().firm("mine", phases=Phases(state)).plan(reward=Pays())
    with pytest.raises(PieceError, match=r"mine's phases Phases returned .* one of 'one', 'two'"):
        plan.next(plan.start(), 1, {})


def test_a_phase_without_a_stack_is_named() -> None:
    with pytest.raises(Contradiction, match=r"mine: Phases\.at returned NoneType in phase 'one'; return a Stack"):
        grpo().firm("mine", phases=Phases({}, stack=False)).plan(reward=Pays())


def test_settling_to_nothing_is_named() -> None:
    class Unsettled(Broken):
        def settle(self, stack: Any) -> Any:
            return None

    with pytest.raises(Contradiction, match="mine sets reshape to None"):
        grpo().firm("mine", reshape=Unsettled(len)).plan(reward=Pays())


def test_keep_says_true_or_false() -> None:
    from rlvr.method import Placed
    from rlvr.pieces import wants

    keep = lambda back: Placed("keep", Broken(lambda group: back), "mine", "firm")  # noqa: E731
    assert wants(keep(True), None)
    assert not wants(keep(torch.tensor([1.0]).numpy()[0] > 2), None)
    with pytest.raises(PieceError, match=r"mine's keep Broken returned None .*; expected True or False"):
        wants(keep(None), None)


def test_an_annotation_is_what_was_announced() -> None:
    from rlvr.loop import _annotate
    from rlvr.method import Placed

    @dataclass(frozen=True)
    class Told:
        back: Any
        gives: ClassVar = ("broken/token",)

        async def __call__(self, group: Any, world: Any) -> Any:
            return self.back

    for back, came in ((None, "None"), (3, "int 3"), ({"id": []}, "the streams id")):
        placed = Placed("annotate", Told(back), "mine", "firm")
        with pytest.raises(PieceError, match=f"mine's annotate Told returned {came}"):
            asyncio.run(_annotate([None], [placed], None))  # type: ignore[list-item, arg-type]

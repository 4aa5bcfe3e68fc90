"""The laws of single pieces catch what they are for: each broken toy breaks its own law and no other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from rlvr.batch import Batch, Now, Tally
from rlvr.method import Stack
from rlvr.methods.grpo import grpo
from rlvr.streams import declare
from rlvr.testing import Result, declared_reads, no_memory, no_writes

declare("token", "sly/gap", "toy")


def laws(**slots: Any) -> dict[str, str]:
    """What the three laws say of a piece; laws that hold are left out."""
    told: list[Result] = [law(grpo().firm("sly", **slots)) for law in (no_memory, declared_reads, no_writes)]
    return {result.law: result.detail for result in told if not result.ok}


# ---- an honest one -------------------------------------------------------------------------------------------
@cache
def _scale(n: int) -> float:
    return 1.0 / n


@dataclass(frozen=True)
class Honest:
    """Reads what it says, makes a new tensor; what it keeps in a cache of a pure function is nobody's business."""

    needs: ClassVar = ("advantage", "old_logp", "correct")

    def __call__(self, batch: Batch) -> Tensor:
        return batch["advantage"] * _scale(len(batch)) + batch["old_logp"] * batch.spread(batch["correct"])


@dataclass(frozen=True)
class HonestLoss:
    needs: ClassVar = ("advantage",)
    reads: ClassVar = ("logp", "entropy")

    def __call__(self, now: Now, batch: Batch) -> tuple[Tensor, dict[str, Tally]]:
        assert now.entropy is not None
        return -batch["advantage"] * now.logp + now.entropy, {"sly/x": Tally.mean(now.logp, batch["weight"] != 0)}


def test_an_honest_piece_keeps_them() -> None:
    assert laws(reshape=Honest()) == {}
    assert laws(loss=HonestLoss()) == {}


# ---- reads -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ReadsOld:
    needs: ClassVar = ("advantage",)

    def __call__(self, batch: Batch) -> Tensor:
        return batch["advantage"] + batch["old_logp"]


@dataclass(frozen=True)
class ReadsWhereThereIs:
    """Looks whether it is there, and so never fails."""

    needs: ClassVar = ("advantage",)

    def __call__(self, batch: Batch) -> Tensor:
        return batch["advantage"] * 2 if "value" in batch else batch["advantage"]


@dataclass(frozen=True)
class ReadsVerdicts:
    """Packed always, but then rows without a verdict would weigh something."""

    needs: ClassVar = ()

    def __call__(self, batch: Batch) -> Tensor:
        return batch["correct"].double() + 1


@dataclass(frozen=True)
class ReadsEntropy:
    needs: ClassVar = ("advantage",)
    reads: ClassVar = ("logp",)

    def __call__(self, now: Now, batch: Batch) -> tuple[Tensor, dict[str, Tally]]:
        assert now.entropy is not None
        return -batch["advantage"] * now.logp + now.entropy, {}


@dataclass(frozen=True)
class ReadsKnown:
    """A micro-batch would not have it."""

    needs: ClassVar = ("advantage",)
    reads: ClassVar = ("logp",)

    def __call__(self, now: Now, batch: Batch) -> tuple[Tensor, dict[str, Tally]]:
        return -batch["advantage"] * now.logp, {"sly/known": Tally.mean(batch["known"])}


@pytest.mark.parametrize(
    ("slot", "piece", "said"),
    [
        ("reshape", ReadsOld(), "sly's reshape ReadsOld reads old_logp without saying so; add it to `needs`"),
        ("reshape", ReadsWhereThereIs(), "sly's reshape ReadsWhereThereIs reads value without saying so"),
        ("row_weight", ReadsVerdicts(), "sly's row_weight ReadsVerdicts reads correct without saying so"),
        ("loss", ReadsEntropy(), "sly's loss ReadsEntropy reads now.entropy without saying so; add 'entropy' to"),
        ("loss", ReadsKnown(), "sly's loss ReadsKnown reads known without saying so"),
    ],
)
def test_reading_what_is_not_declared_is_caught(slot: str, piece: Any, said: str) -> None:
    found = laws(**{slot: piece})
    assert list(found) == ["reads"]
    assert found["reads"].startswith(said)


# ---- writes ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class WritesAdvantage:
    needs: ClassVar = ("advantage",)

    def __call__(self, batch: Batch) -> Tensor:
        return batch["advantage"].clamp_(-0.1, 0.1)


@dataclass(frozen=True)
class WritesElsewhere:
    """Its answer is right; what it leaves in the batch is not."""

    needs: ClassVar = ("advantage", "old_logp")

    def __call__(self, batch: Batch) -> Tensor:
        batch["old_logp"][0] = 0.0
        return batch["advantage"] * 2


@dataclass(frozen=True)
class WritesNow:
    needs: ClassVar = ("advantage",)
    reads: ClassVar = ("logp",)

    def __call__(self, now: Now, batch: Batch) -> tuple[Tensor, dict[str, Tally]]:
        loss = -batch["advantage"] * now.logp.detach()
        now.logp.data.clamp_(min=-1.0)
        return loss, {}


@dataclass(frozen=True)
class WritesRows:
    needs: ClassVar = ("known",)

    def __call__(self, batch: Batch) -> Tensor:
        batch.rows["known"][:] = True
        return torch.ones(len(batch))


@pytest.mark.parametrize(
    ("slot", "piece", "said"),
    [
        ("reshape", WritesAdvantage(), "sly's reshape WritesAdvantage writes into advantage in place"),
        ("reshape", WritesElsewhere(), "sly's reshape WritesElsewhere writes into old_logp in place"),
        ("loss", WritesNow(), "sly's loss WritesNow writes into now.logp in place"),
        ("row_weight", WritesRows(), "sly's row_weight WritesRows writes into known in place"),
    ],
)
def test_writing_in_place_is_caught(slot: str, piece: Any, said: str) -> None:
    assert laws(**{slot: piece})["writes"].startswith(said)


# ---- memory ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Counts:
    """Annealed by its own count of calls: the classic."""

    calls: dict[str, int] = field(default_factory=dict, hash=False)
    needs: ClassVar = ("advantage",)

    def __call__(self, batch: Batch) -> Tensor:
        self.calls["n"] = self.calls.get("n", 0) + 1
        return batch["advantage"] / self.calls["n"]


FIRST: list[float] = []


@dataclass(frozen=True)
class Global:
    """The first batch's mean for ever."""

    needs: ClassVar = ("advantage",)

    def __call__(self, batch: Batch) -> Tensor:
        if not FIRST:
            FIRST.append(float(batch["advantage"].mean()))
        return batch["advantage"] - FIRST[0]


@dataclass(frozen=True)
class Default:
    needs: ClassVar = ("advantage",)

    def __call__(self, batch: Batch, seen: list[int] = []) -> Tensor:  # noqa: B006 (the fault that is to be caught)
        seen.append(len(batch.row))
        return batch["advantage"] / len(seen)


@dataclass(frozen=True)
class ClassWide:
    needs: ClassVar = ("advantage",)
    best: ClassVar = -1.0

    def __call__(self, batch: Batch) -> Tensor:
        ClassWide.best = max(ClassWide.best, float(batch["advantage"].max()))
        return batch["advantage"] / ClassWide.best


@dataclass(frozen=True)
class Hidden:
    """Sets itself, past its being frozen."""

    needs: ClassVar = ("advantage",)

    def __call__(self, batch: Batch) -> Tensor:
        object.__setattr__(self, "mean", 0.9 * getattr(self, "mean", 0.0) + batch["advantage"].mean())
        return batch["advantage"] - self.mean  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Draws:
    """Random numbers of the process."""

    needs: ClassVar = ("advantage",)

    def __call__(self, batch: Batch) -> Tensor:
        return batch["advantage"] * torch.rand(len(batch.row))


class Box:
    """What cannot be pickled is not looked at, but what comes of it is."""

    def __init__(self) -> None:
        self.last: Any = None
        self.never = lambda: None

    def __hash__(self) -> int:
        return 0


@dataclass(frozen=True)
class Lags:
    """Uses the batch before."""

    box: Box = field(default_factory=Box, compare=False)
    needs: ClassVar = ("advantage",)

    def __call__(self, batch: Batch) -> Tensor:
        last, self.box.last = self.box.last, float(batch["advantage"].max())
        return batch["advantage"] * (1.0 if last is None else last)


@pytest.mark.parametrize(
    ("piece", "said"),
    [
        (Counts(), "sly's reshape Counts changes its field calls when it is called; a piece remembers nothing"),
        (Global(), "sly's reshape Global changes the global FIRST when"),
        (Default(), "sly's reshape Default changes a default or attribute of __call__ when"),
        (ClassWide(), "sly's reshape ClassWide changes the class attribute best when"),
        (Hidden(), "sly's reshape Hidden changes its field mean when"),
        (Draws(), "sly's reshape Draws says something else when it is asked again of the same batch"),
        (Lags(), "sly's reshape Lags says something else"),
    ],
    ids=lambda x: type(x).__name__ if not isinstance(x, str) else "",
)
def test_memory_is_caught(piece: Any, said: str) -> None:
    assert laws(reshape=piece)["memory"].startswith(said)


@dataclass(frozen=True)
class Forgetful:
    """phases: counts in itself instead of in its state."""

    seen: list[int] = field(default_factory=list, hash=False)
    names: ClassVar = ("one", "two")

    def start(self) -> dict[str, Any]:
        return {"phase": "one"}

    def next(self, state: Mapping[str, Any], step: int, metrics: Mapping[str, float]) -> dict[str, Any]:
        self.seen.append(step)
        return {"phase": "one" if len(self.seen) < 2 else "two"}

    def at(self, stack: Stack, phase: str) -> Stack:
        return stack


@dataclass(frozen=True)
class Overwrites(Forgetful):
    def next(self, state: Any, step: int, metrics: Mapping[str, float]) -> dict[str, Any]:
        state["n"] = state.get("n", 0) + 1
        return {**state}


def test_phases_keep_what_they_know_in_their_state() -> None:
    assert "what it knows belongs into its state" in laws(phases=Forgetful())["memory"]
    assert "writes into the state that `next` is given" in laws(phases=Overwrites())["memory"]

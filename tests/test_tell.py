"""What pieces tell of the batch that they worked on becomes metrics, once a step or once an update."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from test_loop import training

from rlvr.batch import Batch, Tally
from rlvr.methods.gapo import gapo
from rlvr.methods.grpo import grpo
from rlvr.metrics import told_by
from rlvr.pieces import PieceError
from rlvr.testing import random_batch, running


@dataclass(frozen=True)
class Counting:
    """Weights of 1; tells how many rows it saw."""

    on_update: bool = False
    told: str = "rows"
    needs: ClassVar = ()

    def __call__(self, batch: Batch) -> torch.Tensor:
        return torch.ones_like(batch["behavior_logp"])

    def tell(self, batch: Batch) -> Any:
        name, rows = "count/update" if self.on_update else "count/step", Tally(float(len(batch)), 1.0, "sum")
        return {"rows": {name: rows}, "a list": [name], "a number": {name: 3.0}}[self.told]


def test_a_step_tells_of_the_whole_batch_and_each_update_of_its_own(tmp_path: Path) -> None:
    method = gapo(grpo()).firm("test", token_weight=(Counting(), Counting(on_update=True)))
    run = training(tmp_path, method, steps=1)  # 6 groups of 4 in 3 updates, one epoch
    run.run()
    (metrics,) = run.sinks[0].metrics
    assert metrics["count/step"] == 24
    assert metrics["count/update"] == 24
    assert 0.2 <= metrics["gapo/high"] <= 0.28


def test_only_pieces_of_the_moment_tell() -> None:
    plan = running(grpo().firm("mine", token_weight=Counting()))
    batch = plan.credit(random_batch(0)[0])
    assert told_by(plan, batch)["count/step"].value() == 24
    assert told_by(plan, batch, on_update=True) == {}


@pytest.mark.parametrize("told", ["a list", "a number"])
def test_what_is_no_tally_is_refused_with_the_pieces_name(told: str) -> None:
    plan = running(grpo().firm("mine", token_weight=Counting(told=told)))
    batch = plan.credit(random_batch(0)[0])
    with pytest.raises(PieceError, match=r"mine's token_weight Counting returned .*; expected from `tell`"):
        told_by(plan, batch)

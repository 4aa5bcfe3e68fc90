"""my_method keeps the laws, and does by hand what it says."""

from pathlib import Path

import pytest
import torch

from rlvr.batch import Batch
from rlvr.registry import load_path
from rlvr.testing import check

HERE = f"{Path(__file__).with_name('my_method.py')}"
MyMethod = load_path(f"{HERE}:MyMethod")


def test_it_keeps_the_laws() -> None:
    broken = [result for result in check(f"{HERE}:my_method") if not result.ok]
    assert not broken


def test_a_negative_advantage_is_halved_and_a_positive_one_stays() -> None:
    batch = Batch.pack(torch.tensor([2, 1]), advantage=torch.tensor([1.0, -1.0, -3.0]))
    assert MyMethod(blame=0.5)(batch).tolist() == [1.0, -0.5, -1.5]


def test_a_blame_above_one_is_refused() -> None:
    with pytest.raises(ValueError, match="blame"):
        MyMethod(blame=2.0)

"""What the math verifier is held to: the committed measurements, and small runs of the scripts behind them."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / name).read_text("utf-8"))
    return found


def test_the_committed_numbers_are_met() -> None:
    told = result("verify.json")
    for name in ("math", "wide"):
        found = told["corpora"][name]
        assert found["speed"]["ratio"] >= 70
        assert found["slowest_ms"] < 5
        for half in found["halves"].values():
            assert half["golds_accepted"] == half["golds"]
            assert half["refused"] <= 0.005 * half["same"]
            assert half["accepted"] == half["ladder_accepted"] == half["hostile_accepted"] == 0
    assert told["corpora"]["math"]["speed"]["ours"] >= 8000
    assert told["loads"]["typical"]["slowest_ms"] < 5
    assert max(told["batch_seconds"].values()) < 0.5


def test_the_committed_mutants_were_flagged_or_proved_to_change_nothing() -> None:
    told = result("mutation_check.json")
    assert told["drawn"] == 25
    assert told["unmutated_flags"] == 0
    assert told["flagged"] + told["equivalent"] >= 23
    check = script("mutation_check")
    every = set(check.mutants())
    assert len(every) > 300
    assert {m.kind for m in every} == {"comparison", "tolerance", "bracket", "sign", "unit"}
    for mutant in every:
        assert mutant.before != mutant.after.strip()


def test_the_committed_fuzz_run_raised_nothing_and_kept_its_bounds() -> None:
    told = result("fuzz_math.json")
    assert told["count"] == 1_000_000
    assert not told["faults"]
    assert told["verdicts"]["right equal"] > 10_000  # it does not only see nonsense


@pytest.mark.parametrize("seed", [11, 12])
def test_broken_texts_raise_nothing_and_the_order_of_the_two_does_not_matter(seed: int) -> None:
    faults = script("fuzz_math").run(3000, seed, told=False)["faults"]
    assert [
        f for f in faults if not re.fullmatch(r"[0-9.]+ ms", f["fault"])
    ] == []  # time is measured on a quiet machine

"""The page of speed says what the results say, and is made anew from them alone."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

ROOT = Path(__file__).parents[1]
ABOUT = {
    "command": "python benchmarks/x.py",
    "quick": False,
    "date": "2026-01-01 00:00",
    "commit": "abc1234",
    "uncommitted": False,
    "cpu": "a processor",
    "cores": 2,
    "memory_gb": 24.0,
    "load_average": 0.1,
    "python": "3.11",
    "torch": "2.13",
}


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a script of benchmarks/ by name, and forgets it afterwards."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    before = set(sys.modules)

    def load(name: str) -> ModuleType:
        return __import__(name)

    yield load
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).parent == ROOT / "benchmarks":
            del sys.modules[name]


def steps(cpu: list[float]) -> dict[str, list[float]]:
    n = len(cpu)
    return {"step": [*range(1, n + 1)], "cpu": cpu, "reward": [0.1 * i for i in range(n)], "stages/sample": cpu}


def test_committed_page_is_what_the_committed_results_make(benchmark: Any) -> None:
    page, shared = benchmark("page"), benchmark("shared")
    results = {name: told for name in page.NAMES if (told := shared.read(name)) is not None}
    assert "against_trl" in results
    assert (ROOT / "docs/speed.md").read_text() == page.page(results)
    for path, svg in page.pictures(results).items():
        assert (ROOT / "docs" / path).read_text() == svg
        ElementTree.fromstring(svg)


def test_ratios_are_of_one_pair_and_an_arm_that_failed_says_why(benchmark: Any) -> None:
    def pair(trl: float, ours: float) -> dict[str, Any]:
        return {
            "TRL": {"startup": 9.0, "steps": steps([trl] * 4), "cpu": trl},
            "ours": {"startup": 3.0, "steps": steps([ours] * 4), "cpu": ours},
            "ours, HF path": {"failed": "it is not there"},
        }

    load = {"prompts": 32, "group": 16, "max_tokens": 24, "updates": 1, "model": "nano"}
    told = {"load": load, "trl": {"micro_batch": 128}, "warm_up": 2, "about": ABOUT}
    results = {"against_trl": {"loads": {"nano": {**told, "pairs": [pair(1.0, 0.2), pair(2.0, 0.5), pair(4.0, 0.9)]}}}}
    page = benchmark("page")
    assert page.ratios_of(results, "nano", "ours") == pytest.approx([0.2, 0.25, 0.225])
    text = page.page(results)
    assert "| CPU seconds a step, ours / TRL, nano | 0.23 (0.20–0.25) | at most 0.25 | yes |" in text
    assert "| ours, HF path | not measured: it is not there |" in text
    assert "abc1234" in text
    assert "(quick)" not in text
    assert "quick run" not in text


def test_quick_runs_are_called_so(benchmark: Any) -> None:
    assert "no number of it counts" in benchmark("page").made_by([{**ABOUT, "quick": True}])


def test_exponent_of_a_power_is_its_exponent(benchmark: Any) -> None:
    x = [1.0, 3.0, 10.0]
    assert benchmark("shared").exponent(x, [5 * v**1.5 for v in x]) == pytest.approx(1.5)


def test_useful_arithmetic_by_hand(benchmark: Any) -> None:
    """Answers of 2 and 1 tokens to one prompt of 3; width 16, 4 heads of 4, inner 24, 2 layers, vocabulary 17."""
    from models import tiny_llama

    from rlvr.batch import Batch, Chains

    lm = tiny_llama()
    length = torch.tensor([2, 1])
    chains = Chains.of([[3, 4, 5, 6, 7], [3, 4, 5, 8]], [[3, 4], [3]])
    batch = Batch.pack(length, chains)
    # a layer: q 16x16, k and v 8x16 each (two of four heads), o 16x16, gate, up and down 24x16 each
    weights = 2 * (16 * 16 + 2 * 8 * 16 + 16 * 16 + 3 * 24 * 16)
    # first row: 3 prompt tokens and one answer token are read (the last is not), 4 tokens that see 1, 2, 3, 4;
    # second row: its prompt is known already and its only answer token predicts nothing
    by_hand = 6 * weights * 4 + 12 * 2 * 16 * (1 + 2 + 3 + 4) + 6 * 17 * 16 * 3
    work, needed = benchmark("floor").useful(lm.model, batch, torch.tensor([True, True]))
    assert (work, needed) == (by_hand, 4)
    work, needed = benchmark("floor").useful(lm.model, batch, torch.tensor([False, True]))
    assert (work, needed) == (6 * weights * 3 + 12 * 2 * 16 * (1 + 2 + 3) + 6 * 17 * 16, 3)


def test_records_become_columns(benchmark: Any) -> None:
    rows = [{"cpu": 1.0, "stages": {"sample": 0.5}}, {"cpu": 2.0, "stages": {"sample": 0.7, "update": 1.0}}]
    assert benchmark("shared").columns(rows) == {
        "cpu": [1.0, 2.0],
        "stages/sample": [0.5, 0.7],
        "stages/update": [None, 1.0],
    }


def test_what_papers_add_is_held_against_its_goals(benchmark: Any) -> None:
    paper = {"step": 1.0, "itself_share": 0.01, "looks": 0, "a_look": 0.0, "a_look_bare": 0.0, "read": 1.0}
    paper |= {"added_anew": 0.01, "added_reused": 0.012}
    papers = {"gapo": paper, "gar": {**paper, "looks": 2, "a_look": 2.0, "added_anew": 0.095}}
    told = {"added_cost": {"about": ABOUT, "papers": {**papers, "verpo": {**paper, "looks": 4, "a_look": 1.05}}}}
    page = benchmark("page").page(told)
    assert "| what a paper without a look adds to a step, the dearest (gapo) | 1.0% | at most 2.0% | yes |" in page
    assert "| what GAR adds to a step, old log-probs scored anew | 9.5% | at most 9.0% | no |" in page
    assert "| a look over the policy's own pass, the dearest (verpo) | 1.05 | at most 1.10 | yes |" in page


def test_a_look_is_timed_beside_what_it_is_held_against(benchmark: Any) -> None:
    module = benchmark("added_cost")
    told = module.told(10.0, 0.5, looks := module.Looks(lambda batch, views: batch))
    assert told["itself_share"] == pytest.approx(0.05)
    assert told["a_look"] == 0
    looks.own, looks.of_looks, looks.anew, looks.reused, looks.real, looks.eyes = 1.0, 1.0, 0.5, 1.5, 1.5, 3
    told = module.told(10.0, 0.5, looks)
    assert told["a_look"] == pytest.approx(0.5)
    assert told["added_anew"] == pytest.approx((0.5 + 0.5) / (10 - 1.5 - 0.5 + 1))
    assert told["added_reused"] == pytest.approx((1.5 + 0.5) / (10 - 1.5 - 0.5))

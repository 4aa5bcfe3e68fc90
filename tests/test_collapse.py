"""A run that has collapsed ends itself, and says by which setting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlvr.collapse import Collapse
from rlvr.loop import Stopped
from rlvr.recipe import RecipeError, make_recipe
from rlvr.run import train

SMALL = {
    "model": "nano",
    "tasks": {"name": "running_sums", "n": 40},
    "steps": 6,
    "prompts_per_step": 4,
    "group_size": 4,
    "max_tokens": 16,
    "checkpoint_every": 2,
    "eval": {"problems": 0},
    "threads": 1,
}


def test_only_steps_on_end_count_and_what_was_not_measured_does_not() -> None:
    watch = Collapse({"policy/entropy": (0.5, "stop.entropy_below")}, patience=3)
    for step, entropy in enumerate([0.4, 0.4, 0.6, 0.1, 0.5, 0.4, 0.4], 1):  # 0.5 is not below 0.5
        watch(step, {"policy/entropy": entropy})
    watch(8, {})
    watch(9, {"policy/entropy": None})
    with pytest.raises(Stopped, match=r"step 10: policy/entropy .* stop.entropy_below = 0.5 for 3 steps on end, now 0"):
        watch(10, {"policy/entropy": 0.0})


def test_a_run_below_its_floor_stops_and_keeps_what_it_has(tmp_path: Path) -> None:
    run = train(make_recipe({**SMALL, "stop": {"reward_below": 2.0, "patience": 3}}), tmp_path / "a", sinks=("jsonl",))
    assert run.summary["status"].startswith("stopped: step 3: reward/mean has been below stop.reward_below = 2 for 3")
    assert len((tmp_path / "a/metrics.jsonl").read_text().splitlines()) == 3
    assert (tmp_path / "a/model/model.safetensors").is_file()
    healthy = train(make_recipe({**SMALL, "stop": {"reward_below": -1.0}}), tmp_path / "b", sinks=("jsonl",))
    assert healthy.summary["status"] == "finished"


def test_a_resumed_run_has_seen_the_steps_behind_it(tmp_path: Path) -> None:
    """Killed after step 3 of which two are in the checkpoint, it stops at the step at which it would have stopped."""
    stop = {"stop": {"reward_below": 2.0, "patience": 4}}
    train(make_recipe({**SMALL, **stop}), tmp_path / "a", sinks=("jsonl",))
    again = train(make_recipe({**SMALL, **stop}), tmp_path / "a", sinks=("jsonl",), resume=True)
    assert again.summary["status"].startswith("stopped: step 4:")
    steps = [json.loads(line)["step"] for line in (tmp_path / "a/metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4]


def test_patience_is_one_step_at_least() -> None:
    with pytest.raises(RecipeError, match=r"`stop.patience` is the number 0; wanted 1 or more"):
        make_recipe({**SMALL, "stop": {"patience": 0}})

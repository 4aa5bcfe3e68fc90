"""Trackers are told the run's numbers, once each, and a run without their package says so before it trains."""

from __future__ import annotations

import math
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from rlvr.recipe import RecipeError, make_recipe
from rlvr.registry import get
from rlvr.report.sink import make_sinks
from rlvr.report.store import RunInfo

METRICS = {"reward/mean": 0.25, "policy/entropy": math.nan, "optim/grad_norm": math.inf}


def about(folder: Path) -> RunInfo:
    (folder / "recipe.toml").write_text('lr = 3e-4\n[tasks]\nname = "running_sums"\n', encoding="utf-8")
    return RunInfo(folder, "sums", "nano", "grpo,dapo", 60, "the plan", 7, 1.7e9)


class Tracked:
    """What `wandb.init` and `trackio.init` return, remembering what it is told."""

    def __init__(self, **settings: Any) -> None:
        self.settings, self.id = settings, settings.get("id") or "made-up"
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.summary: dict[str, str] = {}
        self.ended: list[dict[str, int]] = []

    def log(self, metrics: dict[str, float], step: int) -> None:
        self.logged.append((step, metrics))

    def finish(self, **how: int) -> None:
        self.ended.append(how)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a module with `init` in the place of a tracker's; returns the runs that it begins."""
    for name in ("WANDB_MODE", "WANDB_PROJECT", "TRACKIO_PROJECT"):
        monkeypatch.delenv(name, raising=False)

    def install(name: str) -> list[Tracked]:
        module, runs = types.ModuleType(name), list[Tracked]()

        def init(**settings: Any) -> Tracked:
            runs.append(Tracked(**settings))
            return runs[-1]

        module.__dict__["init"] = init
        monkeypatch.setitem(sys.modules, name, module)
        return runs

    return install


def told(name: str, folder: Path, first: int = 1, status: str = "finished") -> None:
    (sink,) = make_sinks([name])
    sink.start(about(folder))
    sink.groups(first, [])
    for step in (first, first + 1):
        sink.step(step, METRICS)
    sink.note("a warning")
    sink.end(status)


SETUP = {"lr": 3e-4, "tasks": {"name": "running_sums"}, "model": "nano", "method": "grpo,dapo", "steps": 60, "seed": 7}


def test_wandb_is_offline_in_the_runs_folder(tmp_path: Path, fake: Any) -> None:
    runs = fake("wandb")
    told("wandb", tmp_path)
    (run,) = runs
    assert run.settings == {
        "project": "rlvr",
        "name": tmp_path.name,
        "dir": str(tmp_path),
        "config": SETUP,
        "mode": "offline",
        "id": None,
        "resume": None,
    }
    assert run.logged == [(1, {"reward/mean": 0.25}), (2, {"reward/mean": 0.25})]
    assert (run.summary, run.ended) == ({"status": "finished"}, [{"exit_code": 0}])


def test_wandb_goes_on_where_it_stopped_and_obeys_its_variables(
    tmp_path: Path, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = fake("wandb")
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    told("wandb", tmp_path, status="failed")
    told("wandb", tmp_path, first=3)
    assert [(r.settings["mode"], r.settings["project"]) for r in runs] == [("online", "mine")] * 2
    assert [(r.settings["id"], r.settings["resume"]) for r in runs] == [(None, None), ("made-up", "allow")]
    assert runs[0].ended == [{"exit_code": 1}]


def test_trackio_is_told_the_same(tmp_path: Path, fake: Any) -> None:
    runs = fake("trackio")
    told("trackio", tmp_path)
    told("trackio", tmp_path, first=3)
    shared = {"project": "rlvr", "name": tmp_path.name, "config": SETUP, "embed": False}
    assert [r.settings for r in runs] == [{**shared, "resume": "never"}, {**shared, "resume": "allow"}]
    assert [step for r in runs for step, _ in r.logged] == [1, 2, 3, 4]
    assert [r.ended for r in runs] == [[{}], [{}]]


def test_tensorboard_reads_back_what_was_written(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    told("tensorboard", tmp_path)
    told("tensorboard", tmp_path, first=2)  # resumed from step 1: step 2 is made again
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["reward/mean"]
    assert [(e.step, e.value) for e in events.Scalars("reward/mean")] == [(1, 0.25), (2, 0.25), (3, 0.25)]
    assert b"the plan" in events.Tensors("run/text_summary")[0].tensor_proto.string_val[0]


@pytest.mark.parametrize("name", ["wandb", "trackio", "tensorboard"])
def test_a_missing_package_is_said_when_sinks_are_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    if name == "tensorboard":
        monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(ValueError, match=rf"sinks has '{name}'.*pip install {name}, or take it out of sinks") as caught:
        make_sinks([name])
    assert type(caught.value).__module__ == "rlvr.report.trackers"  # the command line shows these as a sentence


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_run_that_ends_before_its_first_step_opens_nothing(name: str, tmp_path: Path, fake: Any) -> None:
    runs = fake(name)
    sink = get("sink", name)()
    sink.start(about(tmp_path))
    sink.end("failed")
    assert runs == []


def test_a_recipe_chooses_its_sinks() -> None:
    assert make_recipe({"tasks": "countdown"}).sinks == ["jsonl", "parquet", "terminal"]
    chosen = make_recipe({"tasks": "countdown", "sinks": ["jsonl", "wandb", "line"]})
    assert chosen.sinks == ["jsonl", "wandb", "line"]
    with pytest.raises(RecipeError, match="no sink is called 'wandbb'; did you mean 'wandb'"):
        make_recipe({"tasks": "countdown", "sinks": ["wandbb"]})


def test_a_run_tells_the_sinks_of_its_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    from rlvr.run import train

    torch.set_num_threads(1)
    table = {"steps": 2, "prompts_per_step": 2, "group_size": 2, "max_tokens": 8, "eval": {"problems": 0}}
    recipe = make_recipe({"tasks": {"name": "running_sums", "n": 8}, "sinks": ["jsonl"], **table})
    train(recipe, tmp_path / "run")
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    assert "step 1/2" not in capsys.readouterr().out  # no terminal was asked for
    assert not list((tmp_path / "run").glob("rollouts/*"))

"""The best model of a run: which evaluation keeps one, and that a run which goes on ends with the same one, whatever a
kill left of it (test_resume.py kills)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from rlvr import best
from rlvr.cli import main
from rlvr.engine.load import Loaded, load_model
from rlvr.recipe import load_recipe, make_recipe
from rlvr.run import evaluate, read, train

SMALL: dict[str, Any] = {
    "tasks": {"name": "running_sums", "n": 40},
    "steps": 6,
    "prompts_per_step": 4,
    "group_size": 4,
    "max_tokens": 16,
    "lr": 3e-4,  # the evaluations of this run: 0.375, then 0.5625, 0.5625, 0.625, 0.5625, 0.5625, 0.5
    "checkpoint_every": 2,
    "keep_checkpoints": 5,
    "doctor": False,
    "threads": 1,
    "eval": {"problems": 8, "k": 2, "every": 1},
}


def whole(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def means(run: Path) -> dict[str, float]:
    told = json.loads((run / "eval.json").read_text())
    return {when: told[when]["running_sums"]["mean@2"][0] for when in told if isinstance(told[when], dict)}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("straight") / "run"
    train(make_recipe(SMALL), folder, sinks=("jsonl",))
    return folder


# ---- which one -------------------------------------------------------------------------------------------
def evaluations(*values: float, samples: int = 16) -> dict[str, Any]:
    """The first before training, the others after steps 1, 2, ..."""
    told = [{"sums": {"mean@2": [value, 0.0, 1.0], "pass@2": [1.0, 1.0, 1.0], "samples": samples}} for value in values]
    return {"k": 2, "problems": 8, "before": told[0], **{f"step {i}": t for i, t in enumerate(told[1:], 1)}}


@pytest.fixture(scope="module")
def nano() -> Loaded:
    return load_model("nano", device="cpu")


def offer(run: Path, nano: Loaded, told: dict[str, Any]) -> bool:
    """The last of the evaluations is offered; the model is marked by its step."""
    when = list(told)[-1]
    step = int(when.removeprefix("step "))
    with torch.no_grad():
        next(nano.model.parameters()).view(-1)[0] = step
    return best.keep(run, told, when, step, nano.model, nano.tokenizer)


def mark_in(run: Path) -> float:
    return float(next(load_model(run / "best", device="cpu").model.parameters()).detach().view(-1)[0])


def test_a_better_one_is_kept_and_a_tie_or_a_worse_one_changes_nothing(tmp_path: Path, nano: Loaded) -> None:
    assert not offer(tmp_path, nano, evaluations(0.25, 0.25))  # the untrained model has to be beaten
    assert not (tmp_path / "best").exists()
    assert offer(tmp_path, nano, evaluations(0.25, 0.25, 0.5))
    assert mark_in(tmp_path) == 2
    before = whole(tmp_path / "best")
    assert not offer(tmp_path, nano, evaluations(0.25, 0.25, 0.5, 0.5))
    assert not offer(tmp_path, nano, evaluations(0.25, 0.25, 0.5, 0.5, 0.375))
    assert whole(tmp_path / "best") == before
    assert offer(tmp_path, nano, evaluations(0.25, 0.25, 0.5, 0.5, 0.375, 0.625))
    assert mark_in(tmp_path) == 5
    assert json.loads((tmp_path / "best" / "best.json").read_text()) == {
        "step": 5, "tasks": "sums", "measure": "mean@2", "value": 0.625, "low": 0.0, "high": 1.0, "samples": 16
    }  # fmt: skip
    assert [p.name for p in tmp_path.iterdir()] == ["best"]


def test_what_lies_there_is_to_be_beaten_although_the_checkpoint_does_not_know_it(tmp_path: Path, nano: Loaded) -> None:
    """A run was killed after step 3 and goes on from step 1."""
    assert offer(tmp_path, nano, evaluations(0.25, 0.25, 0.25, 0.5))
    assert not offer(tmp_path, nano, evaluations(0.25, 0.25, 0.375))
    assert not offer(tmp_path, nano, evaluations(0.25, 0.25, 0.375, 0.5))
    assert offer(tmp_path, nano, evaluations(0.25, 0.25, 0.375, 0.5, 0.75))


def test_evaluations_of_other_problems_are_not_held_against_each_other(tmp_path: Path, nano: Loaded) -> None:
    assert offer(tmp_path, nano, evaluations(0.25, 0.5))
    other = evaluations(0.25, 0.5) | {"step 2": evaluations(0.375, samples=64)["before"]}
    assert offer(tmp_path, nano, other)
    nothing = {"before": {"sums": {"samples": 16, "errors": 16}}, "step 1": {"sums": {"samples": 16, "errors": 16}}}
    assert not offer(tmp_path, nano, nothing)  # no answer was judged


# ---- in runs ---------------------------------------------------------------------------------------------
def test_a_run_keeps_the_first_of_its_best_evaluations_and_says_so(straight: Path) -> None:
    values = means(straight)
    order = ["before", *(f"step {n}" for n in range(1, 6)), "after"]
    assert list(values) == order
    top = max(values.values())
    step = order.index(next(when for when in order if values[when] == top))
    assert step == 3  # else this run shows nothing of what the next test wants
    told = read(straight).summary["best"]
    assert (told["step"], told["value"], told["measure"]) == (step, top, "mean@2")
    assert told["model"] == str(straight / "best")
    page = (straight / "report.html").read_text()
    assert f"Best evaluation: after step {step}, running_sums mean@2 {top:.3f}" in page
    assert "kept in best/" in page
    assert (straight / "best" / "model.safetensors").read_bytes() != (
        straight / "model" / "model.safetensors"
    ).read_bytes()
    again = evaluate(load_recipe(straight), str(straight / "best"))
    assert again["results"]["running_sums"]["mean@2"][0] == top  # it is that model


@pytest.mark.parametrize(("at", "left"), [(4, "step 3"), (2, "step 3"), (2, "step 1"), (2, "half of step 3")])
def test_a_run_that_goes_on_ends_with_the_same_best_model(straight: Path, tmp_path: Path, at: int, left: str) -> None:
    """Going on from the checkpoint of step `at`, with what a run that was killed at some moment has kept until then."""
    run = Path(shutil.copytree(straight, tmp_path / "run"))
    if at == 2:
        shutil.rmtree(run / "checkpoints" / "step-00004")
    if left != "step 3":
        early = train(make_recipe({**SMALL, "steps": 2}), tmp_path / "early", sinks=())
        assert early.summary["best"]["step"] == 1
        shutil.rmtree(run / "best")
        shutil.copytree(tmp_path / "early" / "best", run / (".best.0a.old" if left.startswith("half") else "best"))
        if left.startswith("half"):
            (run / ".best.0a.partial").mkdir()
    train(make_recipe(SMALL), run, sinks=("jsonl",), resume=True)
    assert whole(run / "best") == whole(straight / "best")
    assert read(run).summary["best"]["step"] == 3
    assert not list(run.glob(".*"))


def test_a_damaged_one_is_put_aside_and_the_run_goes_on(straight: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(straight, tmp_path / "run"))
    shutil.rmtree(run / "checkpoints" / "step-00004")
    weights = run / "best" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    train(make_recipe(SMALL), run, sinks=("jsonl",), resume=True)
    assert whole(run / "best") == whole(straight / "best")
    notes = [json.loads(line).get("text", "") for line in (run / "events.jsonl").read_text().splitlines()]
    assert any(text.startswith("best/ is damaged and put aside as best.damaged: ") for text in notes)


def test_a_run_that_gets_worse_keeps_none_and_says_so(tmp_path: Path) -> None:
    harm = {"lr": 1.0, "steps": 3}  # which breaks the model in its first step
    done = train(make_recipe({**SMALL, **harm}), tmp_path / "run", sinks=("jsonl",))
    values = means(tmp_path / "run")
    assert max(values.values()) == values["before"]
    assert not (tmp_path / "run" / "best").exists()
    told = done.summary["best"]
    assert (told["step"], told["value"], told["model"]) == (0, values["before"], None)
    assert "No evaluation beat the one before training" in (tmp_path / "run" / "report.html").read_text()


def test_without_evaluations_on_the_way_the_last_model_is_the_only_candidate(tmp_path: Path) -> None:
    small = {**SMALL, "steps": 2, "eval": {"problems": 8, "k": 2}}
    done = train(make_recipe(small), tmp_path / "run", sinks=("jsonl",))
    values = means(tmp_path / "run")
    assert values["after"] > values["before"]
    assert done.summary["best"]["model"] == str(tmp_path / "run" / "model")
    assert not (tmp_path / "run" / "best").exists()
    none = train(make_recipe({**small, "eval": {"problems": 0}}), tmp_path / "none", sinks=())
    assert none.summary["best"] is None


def test_with_an_adapter_the_whole_model_and_the_adapter_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And `rlvr eval` and `rlvr export` take the folder as it is, with the run's recipe."""
    pytest.importorskip("peft")
    monkeypatch.chdir(tmp_path)

    def rlvr(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        said = capsys.readouterr()
        assert ended.value.code in (0, None), said.err
        return said.out

    sets = {**SMALL, "lr": 3e-3, "lora.rank": 4}
    sets |= {"tasks.n": 40} | {f"eval.{key}": value for key, value in SMALL["eval"].items()}
    given = [f"--set={key}={json.dumps(value)}" for key, value in sets.items() if not isinstance(value, dict)]
    said = rlvr("train", "quickstart", *given, "--out", "run")
    told = read(Path("run")).summary["best"]
    assert 0 < told["step"] < 6
    assert f"best evaluation: after step {told['step']}, running_sums mean@2 {told['value']:.3f} (" in said
    assert "kept in run/best\n" in said
    assert {"adapter_config.json", "adapter_model.safetensors"} == {p.name for p in Path("run/best/adapter").iterdir()}
    assert f"mean@2  {told['value']:.3f}" in rlvr("eval", "run/best")  # 8 problems, twice each: the run's own recipe
    rlvr("export", "run/best", "--out", "whole")
    rlvr("export", "run/best", "--adapter", "--out", "adapter")
    assert Path("whole/model.safetensors").read_bytes() == Path("run/best/model.safetensors").read_bytes()
    weights = [
        Path(f, "adapter_model.safetensors").read_bytes() for f in ("adapter", "run/best/adapter", "run/adapter")
    ]
    assert weights[0] == weights[1] != weights[2]
    for name, more in (
        ("adapter/adapter_config.json", []),
        ("adapter/adapter_config.json", ["--adapter"]),
        ("config.json", []),
    ):
        file = Path("run/best", name)
        if name == "config.json":  # without its adapter the folder is a model like any other
            shutil.rmtree("run/best/adapter")
        file.write_text(file.read_text()[:40])
        with pytest.raises(SystemExit) as ended:
            main(["export", "run/best", *more, "--out", "other"])
        said = capsys.readouterr().err
        assert ended.value.code == 2
        assert f"{file} is not JSON" in said
        assert "export another checkpoint of the run" in said

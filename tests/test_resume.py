"""A run that is killed goes on to the very weights of one that was not; a run that is asked to stop saves first."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import rlvr
from rlvr.checkpoint import NoCheckpoint, checkpoints, newest
from rlvr.folder import FolderTaken, GivenInPython, NotARun
from rlvr.recipe import load_recipe, make_recipe
from rlvr.run import train
from rlvr.tasks.synthetic import running_sums

HERE = Path(__file__).parent
SMALL = {
    "model": "nano",
    "tasks": {"name": "running_sums", "n": 40},
    "steps": 6,
    "prompts_per_step": 4,
    "group_size": 4,
    "updates_per_batch": 2,
    "max_tokens": 16,
    "lr": 1e-3,
    "checkpoint_every": 3,
    "eval": {"problems": 4, "k": 2},
}


def weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


def test_killed_at_ten_moments_a_run_ends_in_the_same_bytes(tmp_path: Path) -> None:
    """Dynamic sampling, a critic, two phases and four updates a batch; killed while it samples, verifies, updates,
    writes a checkpoint, rollouts and the best model, and at random moments twice in a row."""
    moments = "sampling,verifying,updating,saving_weights,saving_rollouts"
    moments += ",saving_best,exchanging_best,removing_the_old_best,random1,random2,random3"
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}  # with the default number of threads
    environment["OMP_WAIT_POLICY"] = "passive"  # which do not spin while other tests have the cores
    done = subprocess.run(
        [sys.executable, str(HERE / "kill_and_resume.py"), str(tmp_path), moments],
        capture_output=True,
        text=True,
        timeout=1500,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["kills"] >= 13
    assert told["lost"] == []
    assert "best/model.safetensors" in told["straight"]["best"]
    for name, got in told["killed"].items():
        assert got == told["straight"], name


@pytest.mark.case("T29")
def test_three_steps_and_three_more_in_a_fresh_run_are_six(tmp_path: Path) -> None:
    """Same prompts, same weights, and no prompt twice within an epoch."""
    straight = train(make_recipe(SMALL), tmp_path / "a", sinks=("jsonl", "parquet"))
    half = make_recipe({**SMALL, "steps": 3})
    train(half, tmp_path / "b", sinks=("jsonl", "parquet"))
    assert not checkpoints(tmp_path / "b")  # the last step's state is the result itself
    cut = train(make_recipe({**SMALL, "checkpoint_every": 1}), tmp_path / "c", sinks=("jsonl", "parquet"))
    assert weights(tmp_path / "a") == weights(tmp_path / "c")
    assert sorted(checkpoints(tmp_path / "c")) == [4, 5]
    (tmp_path / "c" / "model" / "model.safetensors").unlink()
    again = train(
        make_recipe({**SMALL, "checkpoint_every": 1}), tmp_path / "c", sinks=("jsonl", "parquet"), resume=True
    )
    assert weights(tmp_path / "a") == weights(tmp_path / "c")
    asked = [(r.step, r.task) for r in straight.rollouts()]
    assert [(r.step, r.task) for r in again.rollouts()] == [(r.step, r.task) for r in cut.rollouts()]
    assert len({task for _, task in asked}) * SMALL["group_size"] == len(asked)  # type: ignore[operator]


def test_a_reference_that_was_refreshed_and_narrow_weights_come_back(tmp_path: Path) -> None:
    recipe = {**SMALL, "method": "kl(coef=0.1,refresh=2)", "dtype": "bfloat16", "gap_limit": 1.0, "checkpoint_every": 1}
    train(make_recipe(recipe), tmp_path / "a", sinks=("jsonl",))
    before = weights(tmp_path / "a")
    train(make_recipe(recipe), tmp_path / "a", sinks=("jsonl",), resume=True)
    assert weights(tmp_path / "a") == before


def test_without_a_checkpoint_the_sentence_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotARun, match="is not a run"):
        newest(tmp_path)
    (tmp_path / "recipe.toml").write_text("")
    (tmp_path / "checkpoints" / ".step-00003.abc.partial").mkdir(parents=True)
    with pytest.raises(NoCheckpoint, match="holds no checkpoint"):
        newest(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_saves_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "run"
    sets = [f"--set={k}={v}" for k, v in (("steps", 500), ("prompts_per_step", 4), ("eval.problems", 0))]
    program = [
        sys.executable,
        "-c",
        "from rlvr.cli import main; main()",
        "train",
        "quickstart",
        *sets,
        "--out",
        str(folder),
    ]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    until = time.monotonic() + 120
    while not (folder / "metrics.jsonl").is_file() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(number)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "go on with: rlvr train --resume" in out
    (step,) = checkpoints(folder)
    assert f"stopped by you after step {step}" in out
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == step
    assert (folder / "report.html").is_file()


def test_a_reseeded_step_needs_no_generator_state(tmp_path: Path) -> None:
    """Whatever somebody draws from torch's global generator, a run comes out the same."""
    train(make_recipe({**SMALL, "steps": 2}), tmp_path / "a", sinks=())
    torch.manual_seed(123)
    torch.randn(10)
    train(make_recipe({**SMALL, "steps": 2}), tmp_path / "b", sinks=())
    assert weights(tmp_path / "a") == weights(tmp_path / "b")


def test_a_run_is_never_written_over_and_python_objects_are_not_forgotten(tmp_path: Path) -> None:
    """What the folder's recipe does not hold is refused by name; with the same objects the run goes on to the same
    bytes."""
    tasks = running_sums(20, seed=3)
    one = {k: v for k, v in SMALL.items() if k not in ("tasks", "model")} | {"checkpoint_every": 3, "sinks": ["jsonl"]}
    rlvr.train("nano", tasks=tasks, out=str(tmp_path / "a"), **one)
    before = weights(tmp_path / "a")
    with pytest.raises(FolderTaken, match="never written over"):
        rlvr.train("nano", tasks=tasks, out=str(tmp_path / "a"), **one)
    with pytest.raises(GivenInPython, match="its own tasks"):
        load_recipe(tmp_path / "a")
    rlvr.train("nano", tasks=tasks, out=str(tmp_path / "a"), resume=True, **one)
    assert weights(tmp_path / "a") == before

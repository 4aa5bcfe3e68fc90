"""What a run meets on its way: damaged checkpoints, changes at --resume, silent steps, missing verdicts, Ctrl-C, a
reader that goes away. Each is told in a sentence, and nothing that was learned is lost."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from rlvr.checkpoint import NoCheckpoint, checkpoints, newest
from rlvr.engine.load import ModelError, find_model, load_model
from rlvr.evaluate.unknown import no_verdict, over_limit
from rlvr.idle import Idle, moved
from rlvr.recipe import RecipeError, load_recipe, make_recipe
from rlvr.records import Task
from rlvr.report.screen import Board
from rlvr.report.sink import JsonlSink, LineSink
from rlvr.report.store import RunInfo, read_run
from rlvr.report.summary import duration, unjudged
from rlvr.resume import AnotherRun
from rlvr.room import about_room
from rlvr.run import train
from rlvr.waiting import wait_for

SMALL: dict[str, Any] = {
    "tasks": {"name": "running_sums", "n": 40},
    "steps": 4,
    "prompts_per_step": 2,
    "group_size": 4,
    "max_tokens": 16,
    "lr": 1e-3,
    "checkpoint_every": 1,
    "keep_checkpoints": 3,
    "doctor": False,
    "eval": {"problems": 0},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "run"
    train(make_recipe(SMALL), folder, sinks=("jsonl",))
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def cut(file: Path, n: int) -> None:
    file.write_bytes(file.read_bytes()[:n])


# ---- checkpoints -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("file", ["model/model.safetensors", "state.safetensors", "state.json", "model/config.json"])
def test_a_damaged_checkpoint_is_put_aside_and_the_run_goes_on_from_the_one_before(run: Path, file: str) -> None:
    weights = (run / "model" / "model.safetensors").read_bytes()
    damaged = run / "checkpoints" / "step-00003" / file
    cut(damaged, damaged.stat().st_size // 2)
    told: list[str] = []
    assert newest(run, told.append).name == "step-00002"
    assert len(told) == 1
    assert "checkpoint step-00003 is damaged and put aside as step-00003.damaged" in told[0]
    assert str(damaged) in told[0]
    again = train(make_recipe(SMALL), run, sinks=("jsonl",), resume=True)
    assert again.summary["status"] == "finished"
    assert (run / "model" / "model.safetensors").read_bytes() == weights
    assert sorted(checkpoints(run)) == [1, 2, 3]


def test_a_checkpoint_without_its_weights_is_damaged_and_where_none_is_whole_a_file_is_named(run: Path) -> None:
    (run / "checkpoints" / "step-00003" / "state.safetensors").unlink()
    shutil.rmtree(run / "checkpoints" / "step-00002" / "model")
    assert newest(run).name == "step-00001"
    cut(run / "checkpoints" / "step-00001" / "state.json", 5)
    with pytest.raises(NoCheckpoint, match=r"no whole checkpoint: .*step-00001/state.json is not JSON"):
        newest(run)


def test_what_a_kill_left_is_removed_and_what_it_had_moved_aside_comes_back(run: Path) -> None:
    (run / "checkpoints" / ".step-00004.ab12.partial" / "model").mkdir(parents=True)
    (run / "checkpoints" / "step-00003").rename(run / "checkpoints" / ".step-00003.cd34.old")
    assert newest(run).name == "step-00003"
    assert not list((run / "checkpoints").glob(".*"))


# ---- going on --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"steps": 3}, "has made 4 steps, so steps = 3 leaves none to make; give more than 4"),
        ({"model": "micro"}, "trains nano and goes on with its weights, so it cannot become micro"),
        ({"tasks": {"name": "running_sums", "n": 30}}, "was started with 40 other training tasks than these 30"),
        ({"tasks": {"name": "running_sums", "n": 40, "seed": 7}}, "other training tasks than these 40"),
    ],
)
def test_what_would_make_another_run_is_refused(run: Path, changed: dict[str, Any], says: str) -> None:
    before = (run / "recipe.toml").read_text()
    with pytest.raises(AnotherRun, match=says):
        train(make_recipe({**SMALL, **changed}), run, sinks=("jsonl",), resume=True)
    assert (run / "recipe.toml").read_text() == before
    assert not (run / "run.lock").exists()


def test_other_changes_are_told_and_curves_and_clock_go_on(run: Path) -> None:
    state = run / "checkpoints" / "step-00003" / "state.json"
    told = json.loads(state.read_text())
    spent = told["extra"]["seconds"]
    assert spent > 0
    told["extra"]["seconds"] = spent + 1000
    state.write_text(json.dumps(told))
    done = train(make_recipe({**SMALL, "steps": 5, "lr": 1e-4}), run, sinks=("jsonl",), resume=True)
    assert 1000 < done.summary["seconds"] < 1100
    data = read_run(run)
    assert list(data.steps) == [1, 2, 3, 4, 5]
    assert 1000 < duration(data) < 1100
    notes = [str(note["text"]) for note in data.notes]
    assert "going on with steps = 5 (it was 4)" in notes
    assert "going on with lr = 0.0001 (it was 0.001)" in notes
    assert "going on from step 3: what was made after it is made again" in notes
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    first, second = (event for event in events if event["event"] == "start")
    assert data.start["began"] == first["time"] != second["time"]


def test_the_screen_remembers_the_steps_before(tmp_path: Path) -> None:
    from io import StringIO

    from rlvr.report.screen import ScreenSink

    about = RunInfo(tmp_path, "t", "m", "grpo", 10, "", 0, 0.0)
    sink = JsonlSink()
    sink.start(about)
    for step in (1, 2, 3):
        sink.step(step, {"reward/mean": step / 10})
    screen = ScreenSink(StringIO())
    screen.start(RunInfo(tmp_path, "t", "m", "grpo", 10, "", 0, 0.0, step=2))
    board = screen._board
    assert board is not None
    assert board.history["reward/mean"] == [0.1, 0.2]
    assert board.step == 2
    screen.end("stopped")


def test_the_first_step_shows_its_stage_until_it_is_over() -> None:
    board = Board(RunInfo(Path("x"), "t", "m", "grpo", 10, "", 0, 0.0), now=100.0)
    board.stage = (1, "sample", 40.0)
    assert any("step 1: sample, 1:00" in line.plain for line in board.lines(80))
    board.add(1, {"reward/mean": 0.0}, 100.0)
    assert not any("step 1: sample" in line.plain for line in board.lines(80))


# ---- runs that learn nothing -----------------------------------------------------------------------------
MOVED = {"optim/lr": 1e-3, "optim/grad_norm": 0.5, "reward/mean": 0.5, "group/frac_mixed": 1.0}
SILENT = {"reward/mean": 0.0, "group/frac_failed": 1.0, "group/frac_mixed": 0.0}


def test_a_step_moves_a_weight_where_gradient_and_rate_are_there() -> None:
    assert moved(MOVED)
    assert not moved({**MOVED, "optim/lr": 0.0})
    assert not moved({**MOVED, "optim/grad_norm": 0.0})
    assert not moved(SILENT)
    assert moved({"optim/critic/lr": 1e-3, "optim/critic/grad_norm": 0.1})  # a critic that warms up learns


def test_three_idle_steps_are_told_once_with_the_reason_and_the_closing_line_says_it() -> None:
    told: list[str] = []
    watch = Idle(8, told.append)
    watch(1, MOVED)
    for step in (2, 3):
        watch(step, SILENT)
    assert (told, watch.verdict()) == ([], "")
    for step in (4, 5):
        watch(step, SILENT)
    assert len(told) == 1
    assert told[0].startswith("no weight has changed in 3 steps: no group had both right and wrong answers (0% of ")
    assert watch.verdict().startswith("no weight changed after step 1: no group had both")
    watch(6, MOVED)
    assert watch.verdict() == ""


@pytest.mark.parametrize(
    ("group_size", "metrics", "says"),
    [
        (1, SILENT, "group_size = 1, and an answer is compared with its own group. Set group_size = 8"),
        (8, {**MOVED, "optim/lr": 0.0}, "the learning rate is 0. Set lr"),
        (8, {"group/frac_solved": 1.0}, "the method kept none of the groups (100% of groups all right"),
    ],
)
def test_the_reason_names_its_setting(group_size: int, metrics: dict[str, float], says: str) -> None:
    watch = Idle(group_size)
    watch(1, metrics)
    assert says in watch.verdict()


def test_a_run_of_lonely_groups_does_not_end_as_finished(tmp_path: Path) -> None:
    done = train(make_recipe({**SMALL, "group_size": 1, "steps": 3}), tmp_path / "run", sinks=("jsonl",))
    assert str(done.summary["status"]).startswith("finished, but no step changed a weight: group_size = 1")
    assert any("no weight has changed in 3 steps" in str(note["text"]) for note in read_run(tmp_path / "run").notes)


# ---- evaluations without verdicts ------------------------------------------------------------------------
def test_what_has_no_verdict_is_told_with_its_reasons_and_held_against_the_limit() -> None:
    some = {"mean@2": [0.5, 0.4, 0.6], "samples": 100, "errors": 5, "reasons": {"timeout": 4, "x": 1}}
    assert no_verdict({"errors": 0, "samples": 9}) == ""
    assert no_verdict(some) == "5 of 100 answers had no verdict: timeout (4); x (1)"
    assert over_limit(some, 0.05) == ""  # at the limit, as in training
    assert over_limit(some, 0.049).endswith(
        "more than unknown_limit = 0.049. Unknown is a fault of gold, verifier or machine: mend it, or raise the limit"
    )
    assert unjudged({"k": 2, "before": {"sums": some}, "after": {"sums": {"errors": 0}}}) == [
        "Evaluation before, sums: 5 of 100 answers had no verdict: timeout (4); x (1). They count as not right."
    ]


def test_a_verifier_that_always_fails_stops_before_training_and_the_folder_can_be_used_again(tmp_path: Path) -> None:
    from rlvr.loop import Stopped

    def broken(answer: str, gold: str) -> float:
        raise KeyError("x")

    recipe = make_recipe({**SMALL, "eval": {"problems": 2, "k": 2}})
    with pytest.raises(Stopped, match=r"before training: 4 of 4 answers had no verdict: verifier_error: KeyError"):
        train(recipe, tmp_path / "run", sinks=("jsonl",), verifier=broken)
    told = json.loads((tmp_path / "run" / "eval.json").read_text())["before"]["running_sums"]
    assert "mean@2" not in told
    assert (told["samples"], told["errors"]) == (4, 4)
    train(recipe, tmp_path / "run", sinks=("jsonl",))


def test_prompts_over_the_context_are_counted_and_megabytes_are_not_encoded() -> None:
    class Words:
        """A tokenizer of one token a character, and a template of two."""

        encoded = 0

        def prompt(self, prompt: str) -> list[int]:
            Words.encoded += len(prompt)
            return [0] * (len(prompt) + 2)

        def fewest(self, prompt: str) -> int:
            return len(prompt) // 4

    tasks = [Task(str(n), "x" * n) for n in (5, 97, 98, 500_000)]
    said = about_room(tasks, tasks[:2], Words(), 100)
    assert said.startswith("2 of 4 training prompts leave no room for an answer: that of task 500000 has")
    assert Words.encoded < 1000
    assert about_room(tasks[:2], tasks[:2], Words(), 100) == ""
    assert about_room(tasks, tasks, Words(), None) == ""


# ---- models ----------------------------------------------------------------------------------------------
def test_a_damaged_model_is_one_sentence_that_names_the_file(tmp_path: Path) -> None:
    def said(name: str, damage: Any) -> str:
        folder = Path(shutil.copytree(find_model("nano"), tmp_path / name))
        damage(folder)
        with pytest.raises(ModelError) as error:
            load_model(folder, device="cpu")
        assert "\n" not in str(error.value)
        return str(error.value)

    def nan(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        name = sorted(weights)[0]
        weights[name] = weights[name].clone()
        weights[name].view(-1)[0] = float("nan")
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    def wider(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": config["intermediate_size"] + 8}))

    def sharded(folder: Path) -> None:
        index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    assert "cut/model.safetensors is not whole: it has" in said("cut", lambda f: cut(f / "model.safetensors", -7))
    assert "no whole safetensors file" in said("empty", lambda f: cut(f / "model.safetensors", 0))
    assert "tok/tokenizer.json is not JSON" in said("tok", lambda f: cut(f / "tokenizer.json", 50))
    assert "has no tokenizer" in said("none", lambda f: [file.unlink() for file in f.glob("token*")])
    assert "nan/model.safetensors holds nan or infinity" in said("nan", nan)
    assert "other shapes than config.json says" in said("wider", wider)
    assert "lacks model-2.safetensors" in said("sharded", sharded)


# ---- Ctrl-C, and a reader that has gone ------------------------------------------------------------------
def test_ctrl_c_within_a_task_of_the_loop_prints_nothing_but_passes_on(capfd: pytest.CaptureFixture[str]) -> None:
    async def interrupted() -> None:
        async def decoding() -> None:
            signal.raise_signal(signal.SIGINT)

        waiting = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(decoding())
        await asyncio.gather(waiting, return_exceptions=True)
        del task

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins deaf to it
    try:
        with pytest.raises(KeyboardInterrupt):
            wait_for(interrupted())
    finally:
        signal.signal(signal.SIGINT, before)
    import gc

    gc.collect()
    assert "never retrieved" not in capfd.readouterr().err


def test_a_log_goes_on_when_its_reader_has_gone(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w")
    sink = LineSink(stream)
    sink.start(RunInfo(tmp_path, "t", "m", "grpo", 2, "", 0, 0.0))
    os.close(reader)
    for step in (1, 2):
        sink.step(step, {"reward/mean": 0.5})
    sink.end("finished")
    stream.close()


def test_a_run_whose_output_is_cut_by_head_still_makes_its_model(tmp_path: Path) -> None:
    sets = " ".join(f"--set {k}={v}" for k, v in (("steps", 2), ("prompts_per_step", 2), ("eval.problems", 0)))
    program = f"{sys.executable} -c 'from rlvr.cli import main; main()' train quickstart {sets} --out run | head -1"
    done = subprocess.run(program, shell=True, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
    assert (tmp_path / "run" / "summary.json").is_file()


# ---- settings --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"device": "tpu"}, 'device = "tpu" is none that rlvr computes on; write "cpu", "cuda"'),
        ({"device": "meta"}, 'device = "meta" is none'),
        ({"threads": 100_000}, "`threads` is the number 100000; wanted at most 1024"),
        ({"pays": {"right": 1e308}}, "`pays.right` is the number 1e\\+308; wanted at most 1000000"),
        ({"tasks": "data.json"}, "data.json is no file that can be read; write one JSON object a line"),
        ({"tasks": {"name": "jsonl", "path": 3}}, "path = 3 does not fit; wanted str"),
    ],
)
def test_values_that_nothing_can_be_made_of_are_refused_in_words(table: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        make_recipe({"tasks": "running_sums", **table})


def test_a_recipe_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_bytes(b'\xef\xbb\xbftasks = "running_sums"\nsteps = 2\n')
    assert load_recipe(tmp_path / "r.toml").steps == 2

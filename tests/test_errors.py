"""What goes wrong around a run: one clear sentence at the command line, and nothing that was there is lost."""

from __future__ import annotations

import errno
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from rlvr.checkpoint import checkpoints
from rlvr.cli import main
from rlvr.report.store import read_run

SETS = ["prompts_per_step=4", "group_size=4", "tasks.n=60", "eval.problems=4", "eval.k=2", "threads=1"]


@dataclass
class Said:
    code: int
    out: str
    err: str


@pytest.fixture
def rlvr(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RLVR_DEBUG", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("RLVR_MODELS", str(tmp_path / "no-models"))

    def run(*arguments: str) -> Said:
        code = 0
        try:
            main(arguments)
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        return Said(code, *capsys.readouterr())

    return run


def train(rlvr: Callable[..., Said], *sets: str, out: str = "run") -> Said:
    return rlvr("train", "quickstart", *(f"--set={s}" for s in (*SETS, *sets)), "--out", out)


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A file system of its own, where this user may make one."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # weights that were loaded from it are mapped


def last(text: str) -> str:
    return text.strip().splitlines()[-1]


# ---- disks -----------------------------------------------------------------------------------------------
def test_a_run_on_a_full_disk_goes_on_to_the_same_weights_when_there_is_room(
    rlvr: Callable[..., Said], tmp_path: Path
) -> None:
    train(rlvr, "steps=4", "checkpoint_every=1", out="straight")
    with mounted(tmp_path / "small", "size=7m"):  # a checkpoint of nano has 2.8 MB, so the third does not fit
        said = train(rlvr, "steps=4", "checkpoint_every=1", out="small/run")
        assert said.code == 1
        assert last(said.err) == (
            "rlvr: the disk of small/run is full; the checkpoint of step 2 is whole. Make room, then go on with: "
            "rlvr train --resume small/run"
        )
        assert "Traceback" not in said.err
        run = read_run("small/run")
        assert (run.status, list(run.steps)) == ("failed", [1, 2, 3])
        assert sorted(checkpoints(Path("small/run"))) == [1, 2]
        assert not list(Path("small/run").rglob(".*"))  # nothing half written is left
        subprocess.run(["mount", "-o", "remount,size=40m", str(tmp_path / "small")], check=True)
        assert rlvr("train", "--resume", "small/run").code == 0
        weights = [Path(f, "model/model.safetensors").read_bytes() for f in ("straight", "small/run")]
        assert weights[0] == weights[1]


@pytest.mark.parametrize("where", ["rlvr.run.save", "rlvr.run.write_text", "rlvr.report.sink.write_rows"])
def test_whoever_finds_the_disk_full_says_it_in_the_same_words(
    where: str, rlvr: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors import SafetensorError

    def full(*arguments: Any) -> None:
        if where == "rlvr.run.save":
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        raise OSError(errno.ENOSPC, "No space left on device")  # writing names no file, only opening does

    monkeypatch.setattr(where, full)
    said = train(rlvr, "steps=2", "checkpoint_every=1")
    assert said.code == 1
    assert last(said.err) == "rlvr: the disk of run is full, and no checkpoint was written yet; make room, or give " + (
        "another --out"
    )


def test_a_sink_that_cannot_write_does_not_keep_the_others_from_their_end(tmp_path: Path) -> None:
    from rlvr.recipe import make_recipe
    from rlvr.run import train as run

    ended = []

    class Watching:
        def start(self, about: Any) -> None: ...
        def step(self, step: int, metrics: Any) -> None: ...
        def groups(self, step: int, rows: Any) -> None: ...
        def note(self, text: str) -> None: ...

        def end(self, status: str) -> None:
            ended.append(status)
            raise OSError(errno.ENOSPC, "No space left on device")

    recipe = make_recipe({"tasks": {"name": "running_sums", "n": 40}, "steps": 1, "prompts_per_step": 2,
                          "group_size": 2, "max_tokens": 8, "eval": {"problems": 0}})  # fmt: skip
    from rlvr import registry

    registry.register("sink", "watching_a")(Watching)
    with pytest.raises(OSError, match="No space"):
        run(recipe, tmp_path / "run", sinks=("watching_a", "watching_a"))
    assert len(ended) == 2
    assert ended[0].startswith("finished")
    assert ended[0] == ended[1]


def test_a_folder_that_cannot_be_written(rlvr: Callable[..., Said], tmp_path: Path) -> None:
    with mounted(tmp_path / "read_only", "ro"):
        said = train(rlvr, "steps=1", out="read_only/run")
    assert (said.code, last(said.err)) == (2, "rlvr: read_only/run: Read-only file system")
    Path("file").write_text("mine")
    said = train(rlvr, "steps=1", out="file/run")
    assert (said.code, last(said.err)) == (2, "rlvr: file/run: Not a directory")
    assert Path("file").read_text() == "mine"


# ---- names -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (["tasks=none.jsonl"], "none.jsonl: cannot be read (No such file or directory)"),
        (["model=./none/model"], "there is no folder none/model; what works: a bundled model ("),
        (["model=nanoo"], "did you mean 'nano'?"),
        (["group_sise=4"], "`group_sise` is not known; did you mean `group_size`?"),
        (["verifier=none.py:f"], "there is no file"),
        (["system=Add up."], 'a system message needs a chat template; put its words into the prompt, or give a'),
        (["as_chat=true"], 'the tokenizer has no chat template, so a prompt cannot become a chat message; set as_chat'),
    ],
)  # fmt: skip
def test_what_is_not_there_is_named_with_what_would_work(sets: list[str], says: str, rlvr: Callable[..., Said]) -> None:
    said = train(rlvr, *sets)
    assert said.code == 2
    assert said.err.startswith("rlvr: ")
    assert says in said.err
    assert "Traceback" not in said.err
    assert not Path("run").exists()


# ---- prompts ---------------------------------------------------------------------------------------------
def written(name: str, prompt: Callable[[int], Any]) -> str:
    rows = [{"id": str(i), "prompt": prompt(i), "answer": "12", "verifier": "numeric"} for i in range(40)]
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"tasks={Path(name).resolve()}"


def test_prompts_longer_than_the_context_stop_the_run_and_say_so_at_its_start(rlvr: Callable[..., Said]) -> None:
    long = written("long.jsonl", lambda i: "+".join(["07"] * 100) + f"+{i:02d}=")
    sets = [*(f"--set={s}" for s in SETS if "tasks" not in s), f"--set={long}"]
    said = rlvr("train", "quickstart", *sets, "--out=run")
    assert said.code == 1
    assert "36 of 36 training and 4 of 4 evaluation prompts leave no room for an answer: that of task " in said.err
    assert "has 304 tokens, and the model reads at most 256" in said.err  # 303 characters and a bos
    assert "the evaluation before training: 8 of 8 answers had no verdict: rollout_failed: " in last(said.err)
    said = rlvr("train", "quickstart", *sets, "--set=eval.problems=0", "--out=run")  # no step was made: the same folder
    assert said.code == 1
    assert "the prompt of task" in said.out
    assert "has 304 tokens and leaves no room in the model's context" in said.out
    assert Path("run/model/model.safetensors").is_file()


def test_one_prompt_that_is_too_long_costs_its_own_rows_only(rlvr: Callable[..., Said]) -> None:
    some = written("some.jsonl", lambda i: "+".join(["07"] * (100 if i == 7 else 2)) + f"+{i:02d}=")
    sets = [*(s for s in SETS if "tasks" not in s), some, "prompts_per_step=36", "unknown_limit=0.1", "steps=1"]
    said = rlvr("train", "quickstart", *(f"--set={s}" for s in sets), "--out=run")
    assert json.loads(Path("run/summary.json").read_text())["status"].startswith("finished"), said.err
    assert "1 of 36 training prompts leave no room" in said.err
    (line,) = [json.loads(text) for text in Path("run/metrics.jsonl").read_text().splitlines()]
    assert line["verdict/unknown"] == pytest.approx(1 / 36)  # task 7 is not among the four held out


def test_chat_prompts_for_a_tokenizer_without_a_template(rlvr: Callable[..., Said]) -> None:
    chats = written("chats.jsonl", lambda i: [{"role": "user", "content": f"{i:02d}+01="}])
    sets = [*(s for s in SETS if "tasks" not in s), chats, "eval.problems=0"]
    said = rlvr("train", "quickstart", *(f"--set={s}" for s in sets), "--out=run")
    assert said.code == 1
    assert "there is no chat template" in said.err  # the doctor, before anything is sampled
    assert "there is no chat template" in last(said.out.split("report:")[0])  # why it stopped


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)

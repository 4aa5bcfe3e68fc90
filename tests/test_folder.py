"""Whose a run's folder is: one process at a time, a run that made no step gives way, a wrong folder is named."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr.folder import LOCK, FolderBusy, FolderTaken, NotARun, claimed, clear, fresh, refuse_other


def gone() -> int:
    """The number of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def write(folder: Path, **told: object) -> None:
    (folder / LOCK).write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "born": None, **told}))


def test_a_second_process_is_kept_out_and_told_who_is_in(tmp_path: Path) -> None:
    code = "import sys, pathlib; from rlvr.folder import claimed\nwith claimed(pathlib.Path(sys.argv[1])): pass"
    program = [sys.executable, "-c", code, str(tmp_path)]
    with claimed(tmp_path):
        said = subprocess.run(program, capture_output=True, text=True)
    assert said.returncode == 1
    assert f"process {os.getpid()} on {socket.gethostname()} works in {tmp_path}" in said.stderr
    assert not (tmp_path / LOCK).exists()
    assert subprocess.run(program, capture_output=True).returncode == 0


def test_of_many_that_come_at_once_to_a_stale_lock_one_gets_in(tmp_path: Path) -> None:
    write(tmp_path, pid=gone())
    code = (
        "import sys, pathlib; from rlvr.folder import claimed\n"
        "with claimed(pathlib.Path(sys.argv[1])): print('in', flush=True); sys.stdin.read()"
    )
    some = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    refused = [0]
    while sum(refused) < 3:
        refused = [int(p.poll() == 1) for p in some]
    (winner,) = [p for p in some if p.poll() is None]
    assert winner.communicate("")[0] == "in\n"
    assert all("works in" in p.communicate()[1] for p in some if p is not winner)


def test_a_lock_whose_process_is_gone_or_whose_number_was_given_away_is_taken_over(tmp_path: Path) -> None:
    for told in ({"pid": gone()}, {"born": "1"}):  # this process was not born in the first tick
        write(tmp_path, **told)
        with claimed(tmp_path):
            assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
    (tmp_path / LOCK).write_text("")  # killed while it was written
    with claimed(tmp_path):
        pass


def test_a_process_on_another_machine_cannot_be_seen_and_counts_as_living(tmp_path: Path) -> None:
    write(tmp_path, host="elsewhere", pid=gone())
    with pytest.raises(FolderBusy, match=f"on elsewhere works in .* delete {tmp_path / LOCK}"), claimed(tmp_path):
        pass


def test_a_run_that_made_no_step_gives_way_and_anything_else_does_not(tmp_path: Path) -> None:
    for name in ("recipe.toml", "events.jsonl", "eval.json", "eval-before.jsonl", "metrics.jsonl"):
        (tmp_path / name).write_text("" if name == "metrics.jsonl" else "x")
    fresh(tmp_path)
    clear(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "recipe.toml").write_text("x")
    for name, text in (("metrics.jsonl", '{"step": 1}\n'), ("notes.txt", "mine"), ("model", None)):
        file = tmp_path / name
        file.mkdir() if text is None else file.write_text(text)
        with pytest.raises(FolderTaken, match="never written over"):
            clear(tmp_path)
        assert file.exists()
        file.rmdir() if text is None else file.unlink()
    (tmp_path / "recipe.toml").unlink()
    (tmp_path / "eval.json").write_text("{}")  # somebody's own: no run has left its recipe here
    with pytest.raises(FolderTaken):
        fresh(tmp_path)


def test_a_wrong_folder_is_told_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("runs/a", "runs/b"):
        (Path(name) / "checkpoints" / "step-00005").mkdir(parents=True)
        (Path(name) / "recipe.toml").write_text("")
    (Path("runs/a/model")).mkdir()
    (Path("m")).mkdir()
    Path("m/config.json").write_text("{}")
    Path("empty").mkdir()
    refuse_other(Path("runs/a"))
    for wrong, says in (
        ("runs/c", r"no such folder; runs in runs: "),
        ("runs", r"having no recipe.toml; runs in runs: "),
        ("runs/a/checkpoints/step-00005", r"but one of its checkpoints; give the run: runs/a$"),
        ("runs/a/model", r"but its model/; give the run: runs/a$"),
        ("m", r"but a model; start a new run from it: rlvr train RECIPE --model m"),
        ("empty", r"it holds nothing"),
    ):
        with pytest.raises(NotARun, match=says):
            refuse_other(Path(wrong))

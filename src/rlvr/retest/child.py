"""One run in a process of its own: `python -m rlvr train runs/retest/MARK/recipe.toml --out runs/retest/MARK/run`.

Anybody can run the same line again. A run that another process makes is left to it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rlvr.folder import claimed
from rlvr.recipe import Recipe
from rlvr.report.store import METRICS, read_json, read_lines, write_text
from rlvr.report.text import plain
from rlvr.retest.home import Home, commit_of
from rlvr.retest.record import Record, machine, measured, settings, write

PATIENCE = 10.0  # seconds that a child has to end after it was asked to, ours


@dataclass
class Child:
    """A run that is being made."""

    home: Home
    mark: str
    recipe: Recipe
    asked_by: str  # the experiment and arm that asked for it first
    tries: int  # those that count, earlier ones
    process: subprocess.Popen[bytes]
    claim: ExitStack
    began: float
    commit: tuple[str, bool]
    log: Path
    usage: Any = field(default=None)

    @property
    def folder(self) -> Path:
        return self.home.runs / self.mark

    def over(self) -> bool:
        """Whether it has ended; asks once and returns at once."""
        if self.process.returncode is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.process.returncode, self.usage = os.waitstatus_to_exitcode(status), usage
        return self.process.returncode is not None

    def kept(self) -> Record:
        """Write the record of a run that has ended, and remove what is large in its folder."""
        run = self.folder / "run"
        summary, _ = read_json(run / "summary.json")
        status = str(summary.get("status", ""))
        whole = status.startswith("finished") and "evaluation" not in status
        fault = _damage(run) if whole else status or _last_words(self.log, self.process.returncode)
        told = measured(run)
        fault = fault or _short_of(self.recipe, told["budget"])
        spent = {"cpu_seconds": round(self.usage.ru_utime + self.usage.ru_stime, 2)}
        spent["wall_seconds"] = round(time.monotonic() - self.began, 2)
        commit, dirty = self.commit
        record = Record(
            self.mark,
            {
                "status": "failed" if fault else "finished",
                **({"why": plain(fault)[:400]} if fault else {}),
                # a process that died before its first step says nothing of the arm: it is made again at every call
                "tries": self.tries + (1 if told["steps"] else 0),
                "asked_by": self.asked_by,
                **({"trial": True} if self.home.trial else {}),
                "settings": settings(self.recipe, self.home.root),
                **told,
                "budget": {**told["budget"], **spent},
                "commit": commit,
                "changed": dirty,
                "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
                **machine(),
            },
        )
        write(self.home.records, record)
        if not fault:
            shutil.rmtree(run / "model", ignore_errors=True)
            (run / "report.html").unlink(missing_ok=True)
        self.claim.close()
        return record

    def stop(self) -> None:
        """End it; what it made so far is dropped, and the run is made again another time."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.over():
                break
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)
            until = time.monotonic() + PATIENCE
            while not self.over() and time.monotonic() < until:
                time.sleep(0.05)
        self.claim.close()


def start(home: Home, mark: str, recipe: Recipe, asked_by: str, tries: int) -> Child:
    """Raises folder.FolderBusy where another process makes this run."""
    folder = home.runs / mark
    folder.mkdir(parents=True, exist_ok=True)
    claim = ExitStack()
    try:
        claim.enter_context(claimed(folder))
        if (folder / "run").is_dir():
            with claimed(folder / "run"):  # a child whose parent was killed may live on
                pass
            shutil.rmtree(folder / "run")
        write_text(folder / "recipe.toml", recipe.to_toml())
        log = folder / "log.txt"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command(folder),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"},
                start_new_session=True,  # a Ctrl-C at the terminal is ours to pass on
            )
    except BaseException:
        claim.close()
        raise
    return Child(home, mark, recipe, asked_by, tries, process, claim, time.monotonic(), commit_of(home.root), log)


def command(folder: Path) -> list[str]:
    """What makes the run of a folder."""
    return [sys.executable, "-m", "rlvr", "train", str(folder / "recipe.toml"), "--out", str(folder / "run")]


def _damage(run: Path) -> str:
    """What a finished run's folder does not tell any more."""
    _, fault = read_json(run / "eval.json")
    lost = read_lines(run / METRICS)[1]
    return fault or (f"{lost} line(s) of {METRICS} cannot be read" if lost else "")


def _last_words(log: Path, code: int) -> str:
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    said = [line for line in lines if re.match(r"rlvr: |\w*(Error|Exception)\b", line)] or lines
    return said[-1] if said else f"the process ended with {code} and said nothing"


def _short_of(recipe: Recipe, spent: dict[str, int]) -> str:
    """A run that ended by its steps before it had sampled its budget is not at the budget of the others."""
    sampled = spent.get("sampled_tokens", 0)
    if recipe.sampled_tokens is None or sampled >= recipe.sampled_tokens:
        return ""
    return (
        f"steps = {recipe.steps} ended the run at {sampled} of {recipe.sampled_tokens} sampled tokens; give more steps "
        "in [set], or a smaller budget"
    )

"""Whose a run's folder is: a run is never written over, one process at a time works in it, and what came from Python is
not in its recipe."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

GIVEN = "given.json"  # names of what a run was handed as Python objects
LOCK = "run.lock"  # the process that works here
# What is there before the first step is over; nothing of it was learned, so a new run may take its place.
BEGINNINGS = frozenset({"recipe.toml", GIVEN, LOCK, "events.jsonl", "metrics.jsonl", "eval.json", "eval-before.jsonl"})


class FolderTaken(ValueError):
    """A run is never written over."""


class FolderBusy(ValueError):
    """Another process works in this folder."""


class GivenInPython(ValueError):
    """The folder's recipe does not say all that the run was made of."""


class NotARun(ValueError):
    """The folder holds no run; the message says what it holds."""


# ---- new runs --------------------------------------------------------------------------------------------
def fresh(folder: Path) -> None:
    """Raises FolderTaken where a new run would write over something. A run that ended before its first step was over
    is nothing."""
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not _unbegun(folder))):
        raise FolderTaken(f"{folder} is not empty, and a run is never written over; give another folder, or resume it")


def clear(folder: Path) -> None:
    """Remove what a run that made no step left behind. Raises FolderTaken where there is more."""
    fresh(folder)
    for file in folder.iterdir() if folder.is_dir() else ():
        if file.name != LOCK:
            file.unlink()


def _unbegun(folder: Path) -> bool:
    names = {file.name for file in folder.iterdir()}
    lines = folder / "metrics.jsonl"
    made = lines.is_file() and lines.stat().st_size > 0
    return names <= BEGINNINGS and bool(names & {"recipe.toml", LOCK}) and not made


# ---- one process at a time -------------------------------------------------------------------------------
@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keep other processes out of an existing folder. A claim whose process is gone is taken over.

    Raises FolderBusy.
    """
    file = folder / LOCK
    with _alone(folder):
        holder = _read(file)
        if holder and _lives(holder):
            raise FolderBusy(
                f"process {holder['pid']} on {holder['host']} works in {folder}; wait for it, or give another folder "
                f"(if it is gone, delete {file})"
            )
        file.unlink(missing_ok=True)
        with file.open("x", encoding="utf-8") as new:
            json.dump({"pid": os.getpid(), "host": socket.gethostname(), "born": _born(os.getpid())}, new)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two processes that both find a stale claim must not both take it over."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks: the exclusive open remains
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _read(file: Path) -> dict[str, Any]:
    """A claim; {} where there is none, or where its process was killed while writing it."""
    with suppress(OSError, ValueError):
        told = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(told, dict) and isinstance(told.get("pid"), int):
            return {"host": "", "born": None, **told}
    return {}


def _lives(holder: Mapping[str, Any]) -> bool:
    """Whether the process of a claim is there; one on another machine cannot be seen, and counts as living."""
    if holder["host"] != socket.gethostname():
        return True
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's process
        pass
    return bool(holder["born"] == _born(holder["pid"]))  # else its number has been given to another one


def _born(pid: int) -> str | None:
    """When a process began, in ticks since the machine did; None where the system does not tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


# ---- going on --------------------------------------------------------------------------------------------
def refuse_other(folder: Path) -> None:
    """Raises NotARun where a folder is no run, with the one that was probably meant."""
    if (folder / "recipe.toml").is_file():
        return
    if not folder.is_dir():
        raise NotARun(f"{folder} is not a run: there is no such folder{_runs_in(folder.parent)}")
    for above in (folder.absolute().parent, folder.absolute().parent.parent):
        if (above / "recipe.toml").is_file():
            part = "one of its checkpoints" if re.fullmatch(r"step-\d+", folder.name) else f"its {folder.name}/"
            raise NotARun(f"{folder} is not a run, but {part}; give the run: {os.path.relpath(above)}")
    if (folder / "config.json").is_file():
        raise NotARun(
            f"{folder} is not a run, but a model; start a new run from it: rlvr train RECIPE --model {folder}"
        )
    inside = _runs_in(folder) or f": it holds {_listed(sorted(f.name for f in folder.iterdir())) or 'nothing'}"
    raise NotARun(f"{folder} is not a run, having no recipe.toml{inside}")


def _runs_in(folder: Path) -> str:
    found = sorted(folder.glob("*/recipe.toml"), key=lambda file: -file.stat().st_mtime) if folder.is_dir() else []
    return f"; runs in {folder}: {_listed([file.parent.name for file in found])}" if found else ""


def _listed(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


# ---- what came from Python -------------------------------------------------------------------------------
def note_given(folder: Path, objects: Mapping[str, Any]) -> None:
    """Keep the names of what was handed over as objects, so that nobody goes on with other things in their place."""
    given = sorted(name for name, value in objects.items() if value is not None)
    if given:
        (folder / GIVEN).write_text(json.dumps(given))


def refuse_given(folder: Path) -> None:
    """Raises GivenInPython where a run's recipe alone would make another run."""
    file = folder / GIVEN
    if file.is_file():
        what = ", ".join(json.loads(file.read_text()))
        raise GivenInPython(
            f"{folder} was started in Python with its own {what}, which its recipe does not hold; go on there: "
            "rlvr.train(..., the same arguments, resume=True), or give a recipe and the folder's model/"
        )

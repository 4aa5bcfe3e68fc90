"""Whose a run's folder is: a run is never written over, and what came from Python is not in its recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

GIVEN = "given.json"  # names of what a run was handed as Python objects


class FolderTaken(ValueError):
    """A run is never written over."""


class GivenInPython(ValueError):
    """The folder's recipe does not say all that the run was made of."""


def fresh(folder: Path) -> None:
    """Raises FolderTaken where a new run would write over something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FolderTaken(f"{folder} is not empty, and a run is never written over; give another folder, or resume it")


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

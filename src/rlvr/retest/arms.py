"""From an arm, a learning rate and a seed to the whole recipe of a run, and to the mark by which a run is known.

Equal settings are one run, whoever asks for it: two papers that are held against the same base share its runs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import rlvr
from rlvr import toml
from rlvr.recipe import Recipe, find_recipe, load_recipe
from rlvr.retest.schema import Arm, Experiment

# What every run gets: one thread, nothing but numbers on the disk.
QUIET = {
    "threads": 1,
    "checkpoint_every": 0,
    "rollouts_every": 0,
    "examples_every": 0,
    "sinks": ["jsonl"],
    "doctor": False,
}


def recipe_file(experiment: Experiment, folder: Path) -> Path:
    """The recipe that an experiment's arms share, by its path from `folder` or by the name of a shipped one."""
    beside = folder / experiment.recipe
    return beside.resolve() if beside.is_file() else find_recipe(experiment.recipe)


def recipe_of(experiment: Experiment, folder: Path, name: str, lr: float, seed: int) -> Recipe:
    """What a run of this arm is. `folder`: that of the experiment's file. Raises RecipeError.

    An arm's `sampler_seed` is counted from the run's seed, so that it is another one for every seed.
    """
    arm: Arm = experiment.every_arm[name]
    budget = {key: value for key, value in experiment.budget.model_dump().items() if value is not None}
    given = {**QUIET, **experiment.set, **budget, **arm.set, "lr": lr, "seed": seed}
    if isinstance(own := given.get("sampler_seed"), int):  # else it is refused below, with everything else
        given["sampler_seed"] = own + seed
    sets = [f"{key}={toml.value(_found(value, folder))}" for key, value in given.items()]
    return load_recipe(recipe_file(experiment, folder), sets, arm.method, dashes="")


def _found(value: Any, folder: Path) -> Any:
    """Paths from the experiment's folder as ones that lead there from everywhere."""
    if isinstance(value, Mapping):
        return {key: _found(inner, folder) for key, inner in value.items()}
    if isinstance(value, str) and "/" in value and (folder / value).exists():
        return str((folder / value).resolve())
    return value


# ---- marks -----------------------------------------------------------------------------------------------
def mark_of(recipe: Recipe) -> str:
    """Sixteen digits that are the same for equal settings and equal contents of the files that they name.

    Settings at their defaults do not enter, so that a key which is new leaves old marks alone.
    """
    told = {**recipe.model_dump(exclude_defaults=True), "model": recipe.model}
    bundled = Path(rlvr.__file__).parent / "organisms" / recipe.model
    contents = _contents(told) | ({"weights": _of_folder(bundled)} if bundled.is_dir() else {})
    return hashlib.blake2b(json.dumps(contents, sort_keys=True).encode(), digest_size=8).hexdigest()


def files_of(value: Any) -> set[Path]:
    """The files that settings name."""
    if isinstance(value, Mapping):
        return {file for inner in value.values() for file in files_of(inner)}
    if isinstance(value, list | tuple):
        return {file for inner in value for file in files_of(inner)}
    if not isinstance(value, str) or "/" not in value:
        return set()
    named = (Path(text) for text in (value, *_SCRIPT.findall(value)))
    return {path for path in named if path.is_file()}


_SCRIPT = re.compile(r"[^\s,;(]+\.py(?=:)")  # "path.py:name", in a stack of papers too


def _contents(value: Any) -> Any:
    """The value with what stands in files in the place of their paths."""
    if isinstance(value, Mapping):
        return {key: _contents(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_contents(inner) for inner in value]
    if not isinstance(value, str) or "/" not in value:
        return value
    if Path(value).is_file():
        return _of_file(Path(value))
    if Path(value).is_dir():
        return _of_folder(Path(value))
    return _SCRIPT.sub(lambda m: _of_file(Path(m[0])) if Path(m[0]).is_file() else m[0], value)


def _of_folder(folder: Path) -> str:
    files = sorted(f for f in folder.rglob("*") if f.is_file() and "__pycache__" not in f.parts)
    told = "".join(f"{file.relative_to(folder)} {_of_file(file)}\n" for file in files)
    return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()


def _of_file(file: Path) -> str:
    stat = file.stat()
    return _digest(str(file), stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1024)
def _digest(file: str, changed: int, size: int) -> str:
    return hashlib.blake2b(Path(file).read_bytes(), digest_size=16).hexdigest()

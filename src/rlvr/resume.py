"""Going on with a run: what may differ from the run as it was, and what would make it another run."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr import toml
from rlvr.recipe import Recipe, make_recipe
from rlvr.records import Task
from rlvr.report.store import METRICS, read_lines


class AnotherRun(ValueError):
    """What was asked for is no continuation of the run; the message says what would be."""


def tasks_mark(tasks: Sequence[Task]) -> dict[str, Any]:
    """Which tasks these are, in short: how many, their ids in order, and all that they say."""
    return {
        "n": len(tasks),
        "ids": _digest(task.id for task in tasks),
        "all": _digest(json.dumps([t.id, t.prompt, t.answer, t.verifier], default=str) for t in tasks),
    }


def changes(recipe: Recipe, folder: Path, step: int, tasks: Sequence[Task], mark: Mapping[str, Any]) -> list[str]:
    """What differs from the run as it was, in sentences. `step`: that of its checkpoint, `mark`: its tasks.

    Raises AnotherRun for another model, other tasks, or steps that have been made already.
    """
    before = make_recipe(tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8")))
    if recipe.model != before.model:
        raise AnotherRun(
            f"{folder} trains {before.model} and goes on with its weights, so it cannot become {recipe.model}; start a "
            "new run for that"
        )
    now = tasks_mark(tasks)
    if mark and (mark["n"], mark["ids"]) != (now["n"], now["ids"]):
        raise AnotherRun(
            f"{folder} was started with {mark['n']} other training tasks than these {now['n']}; give the same ones, or "
            f"start a new run from its model: rlvr train RECIPE --model {folder / 'model'}"
        )
    lines = read_lines(folder / METRICS)[0]
    made = max([step, *(line["step"] for line in lines if isinstance(line.get("step"), int))])
    if recipe.steps <= step or recipe.steps < made:
        raise AnotherRun(
            f"{folder} has made {made} steps, so steps = {recipe.steps} leaves none to make; give more than {made}"
        )
    sampled = int(sum(line.get("rollouts/tokens") or 0 for line in lines if line.get("step", made) <= step))
    if recipe.sampled_tokens is not None and sampled >= recipe.sampled_tokens:
        raise AnotherRun(
            f"{folder} has sampled {sampled} tokens up to step {step}, so sampled_tokens = {recipe.sampled_tokens} "
            f"leaves none to make; give more than {sampled}"
        )
    told = [
        f"going on with {key} = {toml.value(new) if new is not None else 'unset'} "
        f"(it was {toml.value(old) if old is not None else 'unset'})"
        for key, old, new in _differences(before.model_dump(), recipe.model_dump())
    ]
    if mark and mark["all"] != now["all"]:
        told.append("going on with tasks of the same ids that say something else now")
    if made > step:
        told.append(f"going on from step {step}: what was made after it is made again")
    return told


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], under: str = "") -> Iterable[tuple[str, Any, Any]]:
    for key in dict.fromkeys([*old, *new]):
        a, b = old.get(key), new.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from _differences(a, b, f"{under}{key}.")
        elif a != b:
            yield f"{under}{key}", a, b


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        digest.update(text.encode("utf-8", "replace") + b"\0")
    return digest.hexdigest()

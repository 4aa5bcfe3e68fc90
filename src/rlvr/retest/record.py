"""What is kept of one run: its settings, what it measured, its columns, what it cost, and on what it ran."""

from __future__ import annotations

import fnmatch
import json
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from rlvr.recipe import Recipe
from rlvr.report.compare import late
from rlvr.report.store import columns, read_json, read_lines, write_text

DROPPED = ("step", "time", "time/", "perf/", "optim/lr")  # columns that nobody asks for again
# Sums over a run's columns that are part of its budget, by their names for people; left out where there are none.
SPENT = {
    "rollouts": "rollouts/sampled",
    "sampled_tokens": "rollouts/tokens",
    "scored_tokens": "score/*/tokens",  # read by other models: a reference, a teacher
    "judge_calls": "judge/calls",
    "judge_tokens": "judge/tokens",
}
PACKAGES = ("rlvr", "torch", "transformers", "numpy")


@dataclass(frozen=True, slots=True)
class Record:
    """A run as its file tells it."""

    mark: str
    told: Mapping[str, Any]

    @property
    def finished(self) -> bool:
        return bool(self.told["status"] == "finished")

    @property
    def tries(self) -> int:
        """How often it was made; a process that died before its first step does not count."""
        return int(self.told["tries"])

    @property
    def cpu_seconds(self) -> float:
        return float(self.told["budget"]["cpu_seconds"])

    def value(self, name: str, steps: Sequence[int] | None = None) -> float:
        """A number by its name as in schema.Metric; nan where the run has none."""
        kind, _, measure = name.partition("/")
        if kind in WHEN:
            found = (self.told["eval"].get(WHEN[kind]) or {}).get(measure)
            return math.nan if not found or found[0] is None else float(found[0])
        y = self.column(name)
        if steps is None:
            return late(y)[0] if len(y) else math.nan
        y = y[steps[0] - 1 : steps[1]]
        y = y[np.isfinite(y)]
        return float(y.mean()) if len(y) else math.nan

    def column(self, name: str) -> np.ndarray:
        """[steps] a column of metrics.jsonl, nan where it was not measured; empty where it never was."""
        return np.array([math.nan if x is None else x for x in self.told["columns"].get(name, ())], float)


WHEN = {"start": "before", "eval": "after"}
# What every file of a run tells.
TOLD = {"status": str, "tries": int, "asked_by": str, "settings": dict, "steps": int, "eval": dict, "budget": dict}
TOLD |= {"columns": dict, "commit": str, "changed": bool, "date": str, "versions": dict, "machine": str}


class Damaged(ValueError):
    """A kept run that cannot be read; the message says what is wrong with it."""


def read(folder: Path, aside: Callable[[str], None] | None = None) -> dict[str, Record]:
    """Every kept run by its mark. A damaged one is put aside as MARK.json.damaged and `aside` is given a sentence about
    it, so that it is made again; where nobody listens it raises Damaged."""
    found = {}
    for mark in sorted(file.stem for file in folder.glob("*.json")):
        try:
            record = read_one(folder, mark)
        except Damaged as error:
            if aside is None:
                raise
            (folder / f"{mark}.json").rename(folder / f"{mark}.json.damaged")
            aside(f"{error}; put aside as {mark}.json.damaged, and not counted")
            continue
        if record is not None:
            found[mark] = record
    return found


def read_one(folder: Path, mark: str) -> Record | None:
    """A kept run; None where there is none. Raises Damaged."""
    file = folder / f"{mark}.json"
    if not file.is_file():
        return None
    told, fault = read_json(file)
    wrong = [name for name, kind in TOLD.items() if not isinstance(told.get(name), kind)]
    if not fault:
        fault = f"it has no {wrong[0]}" if wrong else _no_numbers(told)
    if fault:
        raise Damaged(f"{file} is damaged ({fault}); `rlvr retest` makes the run again")
    return Record(mark, told)


def _no_numbers(told: Mapping[str, Any]) -> str:
    """Which evaluation, column or sum of a run's file does not hold numbers, "" where all do."""
    number = lambda x: x is None or (isinstance(x, int | float) and not isinstance(x, bool))  # noqa: E731
    for name, y in told["columns"].items():
        if not (isinstance(y, list) and all(map(number, y))):
            return f"column {name} is no list of numbers"
    for when in WHEN.values():
        found = told["eval"].get(when) or {}
        if not isinstance(found, dict):
            return f"the evaluation {when} is no table"
        for name, x in found.items():
            if ("@" in name or "^" in name) and not (isinstance(x, list) and x and all(map(number, x))):
                return f"{name} of the evaluation {when} is no number with its interval"
    return "" if all(map(number, told["budget"].values())) else "its budget holds no numbers"


def write(folder: Path, record: Record) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{record.mark}.json", json.dumps(record.told, ensure_ascii=False) + "\n")


# ---- making one ------------------------------------------------------------------------------------------
def measured(run: Path) -> dict[str, Any]:
    """What a run's folder says: evaluations, columns, steps, and what they sum to."""
    _, series = columns(read_lines(run / "metrics.jsonl")[0])
    steps = max((len(y) for y in series.values()), default=0)
    told, _ = read_json(run / "eval.json")
    evaluated: dict[str, Any] = {when: next(iter((told.get(when) or {}).values()), {}) for when in WHEN.values()}
    kept = {n: y for n, y in series.items() if not n.startswith(DROPPED)}
    return {
        "steps": steps,
        "eval": {**{key: told[key] for key in ("k", "problems") if key in told}, **evaluated},
        "budget": {name: total for name, pattern in SPENT.items() if (total := _sum(series, pattern)) is not None},
        "columns": {name: [_short(x) for x in y.tolist()] for name, y in kept.items()},
    }


def _sum(series: Mapping[str, np.ndarray], pattern: str) -> int | None:
    found = fnmatch.filter(series, pattern)
    return int(sum(np.nansum(series[name]) for name in found)) if found else None


def settings(recipe: Recipe, root: Path) -> dict[str, Any]:
    """What a recipe sets apart from defaults, with paths from the checkout's root."""
    text = json.dumps(recipe.model_dump(exclude_defaults=True), ensure_ascii=False)
    told: dict[str, Any] = json.loads(text.replace(f"{root}/", ""))
    return told


@lru_cache
def machine() -> dict[str, Any]:
    """What this is: versions, processor."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # run from sources
            found[package] = "unknown"
    return {"versions": {"python": platform.python_version(), **found}, "machine": f"{_processor()}, one thread"}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _short(x: float) -> float | None:
    """Four digits are what curves and means over steps need."""
    return float(f"{x:.4g}") if math.isfinite(x) else None

"""What `rlvr report` holds against each other: runs, and folders of runs that differ in their seed alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from rlvr.report.store import RunData, is_run, read_run
from rlvr.report.text import visible

_SEED = re.compile(r"seed-(\d+)")


@dataclass(frozen=True)
class Side:
    """One run, or the runs of one recipe by their seeds."""

    name: str  # safe to show
    runs: Mapping[int, RunData]  # by seed, ascending

    @property
    def several(self) -> bool:
        return len(self.runs) > 1

    @cached_property
    def curve(self) -> RunData:
        """The run; of several, at the steps that all have made, each metric's mean over those that know it."""
        first, *others = self.runs.values()
        if not others:
            return first
        steps = first.steps
        for run in others:
            steps = np.intersect1d(steps, run.steps)
        names = dict.fromkeys(name for run in self.runs.values() for name in run.series)
        told = {
            name: np.array([run.get(name)[np.isin(run.steps, steps)] for run in self.runs.values()]) for name in names
        }
        return replace(first, steps=steps, series={name: _means(x) for name, x in told.items()})


def _means(x: np.ndarray) -> np.ndarray:
    """[S] means of [seeds, S] over what is known; nan where nothing is."""
    known = np.isfinite(x)
    n = known.sum(0)
    return np.where(n > 0, np.where(known, x, 0.0).sum(0) / np.maximum(n, 1), np.nan)


def seeds_in(folder: Path) -> dict[int, Path]:
    """The runs seed-0, seed-1, ... of a folder that is none itself, by seed: what `rlvr train --seeds` leaves."""
    if is_run(folder):
        return {}
    found = {int(m[1]): f for f in folder.glob("seed-*") if (m := _SEED.fullmatch(f.name)) and is_run(f)}
    return dict(sorted(found.items()))


def sides_of(folders: Sequence[Path]) -> list[Side]:
    """Raises FileNotFoundError for a folder that is neither a run nor holds seeds of one."""
    sides = []
    for folder, name in zip(folders, distinct(folders)):
        runs = {seed: read_run(each) for seed, each in seeds_in(folder).items()}
        if not runs:
            run = read_run(folder)
            seed = run.start.get("seed")
            runs = {seed if isinstance(seed, int) else 0: run}
        sides.append(Side(visible(name), runs))
    return sides


def distinct(folders: Sequence[Path]) -> list[str]:
    """Short names that differ: the folder's own, with as many parents as it takes."""
    parts = [folder.resolve().parts for folder in folders]
    for depth in range(1, max(len(p) for p in parts) + 1):
        names = ["/".join(p[-depth:]) for p in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{name} ({i + 1})" for i, name in enumerate(p[-1] for p in parts)]

"""Several runs on one page: their curves laid over each other, and the means of their last quarters side by side.

Runs of one recipe that differ in their seed alone are told together: the mean over seeds, and its 95 % interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlvr.evaluate.statistics import Estimate, student_975
from rlvr.report.curves import COMMON, compared
from rlvr.report.embed import island
from rlvr.report.html import figure, render
from rlvr.report.store import RunData, read_json, read_run, write_text
from rlvr.report.svg import COLORS, readout
from rlvr.report.text import number, visible

MOST = len(COLORS) - 1  # the last colour is too pale for a line


def write_comparison(folders: Sequence[Path | str], out: Path | str, seeds: bool = False) -> Path:
    """Write the page and return its path. The first run is the one that others are compared with; with `seeds` none
    is, and all are told together.

    Raises ValueError for fewer than two or too many runs, FileNotFoundError when a folder is not a run.
    """
    if not 2 <= len(folders) <= MOST:
        raise ValueError(f"a comparison shows 2 to {MOST} runs, got {len(folders)}")
    runs = [read_run(folder) for folder in folders]
    names = [visible(name) for name in distinct([Path(folder) for folder in folders])]
    charts = compared(dict(zip(names, runs)))
    page = render(
        "compare.html",
        title=f"{len(runs)} seeds" if seeds else "Comparison of " + ", ".join(names),
        seeds=[_told(estimate) for estimate in over_seeds(runs).items()] if seeds else [],
        names=list(enumerate(names)),
        methods=[visible(str(run.start.get("method") or "")) for run in runs],
        rows=[row for name in COMMON if (row := _row(name, runs))],
        charts=[figure(chart, i) for i, chart in enumerate(charts)],
        data=island({"charts": [readout(chart) for chart in charts]}),
    )
    path = Path(out)
    write_text(path, page)
    return path


def distinct(folders: Sequence[Path]) -> list[str]:
    """Short names that differ: the folder's own, with as many parents as it takes."""
    parts = [folder.resolve().parts for folder in folders]
    for depth in range(1, max(len(p) for p in parts) + 1):
        names = ["/".join(p[-depth:]) for p in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{name} ({i + 1})" for i, name in enumerate(p[-1] for p in parts)]


def late(y: np.ndarray) -> tuple[float, float]:
    """(mean, its standard error) over the known values of the last quarter of the steps; nan where there are too few.

    The error comes from the scatter between steps, as if steps were independent: it says nothing of other seeds.
    """
    y = y[-max(1, len(y) // 4) :]
    y = y[np.isfinite(y)]
    error = float(y.std(ddof=1)) / math.sqrt(len(y)) if len(y) > 1 else math.nan
    return (float(y.mean()) if len(y) else math.nan), error


def over_seeds(runs: Sequence[RunData]) -> dict[str, Estimate]:
    """Mean over runs, and its 95 % interval by Student's t (nan for one run), of each metric's late mean and of each
    evaluation before and after training. A metric that a run lacks is the mean of the others."""
    values = {name: [late(run.get(name))[0] for run in runs] for name in COMMON}
    for i, run in enumerate(runs):
        told, _ = read_json(run.folder / "eval.json")
        for when in ("before", "after"):
            for tasks, measures in (told.get(when) or {}).items():
                for measure, value in measures.items():
                    if isinstance(value, list) and value[0] is not None:
                        name = f"{tasks} {measure}, {when}"
                        values.setdefault(name, [math.nan] * len(runs))[i] = float(value[0])
    return {name: estimate for name, x in values.items() if (estimate := mean_of(x)).n}


def mean_of(values: Sequence[float]) -> Estimate:
    """The mean of independent values, nan left out, and its 95 % interval: mean +- t * s / sqrt(n)."""
    x = np.array([v for v in values if math.isfinite(v)])
    n = len(x)
    if n < 2:
        return Estimate(float(x[0]) if n else math.nan, math.nan, math.nan, n)
    half = student_975(n - 1) * float(x.std(ddof=1)) / math.sqrt(n)
    return Estimate(float(x.mean()), float(x.mean()) - half, float(x.mean()) + half, n)


def _told(named: tuple[str, Estimate]) -> dict[str, str]:
    name, e = named
    interval = f"{number(e.low)} .. {number(e.high)}" if math.isfinite(e.low) else "–"
    return {"name": visible(name), "mean": number(e.value), "interval": interval, "n": str(e.n)}


def _row(name: str, runs: Sequence[RunData]) -> dict[str, Any] | None:
    """One metric: each run's late mean, and how it differs from the first run's."""
    told = [late(run.get(name)) for run in runs]
    if all(math.isnan(mean) for mean, _ in told):
        return None
    base, base_error = told[0]
    cells = []
    for i, (mean, error) in enumerate(told):
        differs = mean - base
        apart = abs(differs) > 2 * math.hypot(error, base_error)  # False where an error is nan
        sign = "+" if differs > 0 else ""
        cells.append(
            {"value": number(mean), "differs": f"{sign}{number(differs)}" if i else "", "apart": apart and i > 0}
        )
    return {"name": name, "cells": cells}

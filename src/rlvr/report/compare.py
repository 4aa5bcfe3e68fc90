"""Several runs on one page: their curves laid over each other, and the means of their last quarters side by side.

Runs of one recipe that differ in their seed alone are told together: the mean over seeds, and its 95 % interval. Two
folders of such runs are held against each other seed by seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlvr.evaluate.statistics import Estimate, mean_of
from rlvr.report.curves import COMMON, compared
from rlvr.report.embed import island
from rlvr.report.html import figure, render
from rlvr.report.sides import Side, sides_of
from rlvr.report.store import RunData, read_json, write_text
from rlvr.report.svg import COLORS, readout
from rlvr.report.text import number, visible

if TYPE_CHECKING:
    from rlvr.report.paired import Paired

Late = Mapping[int, tuple[float, float]]  # by seed: the late mean of a metric, and its standard error
MOST = len(COLORS) - 1  # the last colour is too pale for a line


def write_comparison(
    folders: Sequence[Path | str], out: Path | str, seeds: bool = False, pairs: Sequence[Paired] = ()
) -> Path:
    """Write the page and return its path. The first run, or folder of seeds, is the one that others are compared with;
    with `seeds` none is, and all are told together. `pairs`: how their evaluations after training differ.

    Raises ValueError for fewer than two or too many, FileNotFoundError for a folder that is neither a run nor holds
    seeds of one.
    """
    if not 2 <= len(folders) <= MOST:
        raise ValueError(f"a comparison shows 2 to {MOST} runs, got {len(folders)}")
    sides = sides_of([Path(folder) for folder in folders])
    runs = [side.curve for side in sides]
    names = [side.name for side in sides]
    charts = compared(dict(zip(names, runs)))
    page = render(
        "compare.html",
        title=f"{len(runs)} seeds" if seeds else "Comparison of " + ", ".join(names),
        seeds=[_told(estimate) for estimate in over_seeds(runs).items()] if seeds else [],
        names=list(enumerate(names)),
        methods=[_method(side) for side in sides],
        pairs=[_pair(pair) for pair in pairs],
        several=any(side.several for side in sides),
        rows=[row for name in COMMON if (row := _row(name, sides))],
        charts=[figure(chart, i) for i, chart in enumerate(charts)],
        data=island({"charts": [readout(chart) for chart in charts]}),
    )
    path = Path(out)
    write_text(path, page)
    return path


def _method(side: Side) -> str:
    method = visible(str(side.curve.start.get("method") or ""))
    return f"{method}, seeds {', '.join(map(str, side.runs))}" if side.several else method


def _pair(pair: Paired) -> dict[str, Any]:
    d = pair.difference
    known = math.isfinite(d.low)
    return {
        "name": pair.name,
        "against": pair.against,
        "over": pair.over,
        "n": f"{d.n} {pair.over}" if d.n else "–",
        "difference": f"{d.value:+.3f}" if d.n else "–",
        "interval": f"{d.low:+.3f} .. {d.high:+.3f}" if known else "–",
        "words": pair.words,
        "apart": known and not d.low <= 0 <= d.high,
    }


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


def _told(named: tuple[str, Estimate]) -> dict[str, str]:
    name, e = named
    interval = f"{number(e.low)} .. {number(e.high)}" if math.isfinite(e.low) else "–"
    return {"name": visible(name), "mean": number(e.value), "interval": interval, "n": str(e.n)}


def _row(name: str, sides: Sequence[Side]) -> dict[str, Any] | None:
    """One metric: each side's late mean, and how it differs from the first side's."""
    told = [{seed: late(run.get(name)) for seed, run in side.runs.items()} for side in sides]
    means = [mean_of([mean for mean, _ in each.values()]).value for each in told]
    if all(math.isnan(mean) for mean in means):
        return None
    cells = []
    for i, (each, mean) in enumerate(zip(told, means)):
        by, apart = _difference(told[0], each) if i else (math.nan, False)
        sign = "+" if by > 0 else ""
        cells.append({"value": number(mean), "differs": f"{sign}{number(by)}" if i else "", "apart": apart})
    return {"name": name, "cells": cells}


def _difference(base: Late, other: Late) -> tuple[float, bool]:
    """(by how much, whether that is more than chance): of two runs by the scatter of their steps, of several seeds by
    Student's interval over the seeds that both have."""
    if len(base) == len(other) == 1:
        ((a, a_error),), ((b, b_error),) = base.values(), other.values()
        return b - a, abs(b - a) > 2 * math.hypot(a_error, b_error)  # False where an error is nan
    e = mean_of([other[seed][0] - mean for seed, (mean, _) in base.items() if seed in other])
    return e.value, e.low > 0 or e.high < 0

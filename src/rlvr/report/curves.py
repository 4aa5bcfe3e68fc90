"""Which curves of a run are worth a picture, and in which order; pages, comparisons and notebooks share the choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rlvr.report.store import RunData
from rlvr.report.svg import Chart, Series

# what runs are compared by: metric -> (title, percent, log)
COMMON = {
    "reward/mean": ("Mean reward", False, False),
    "group/frac_mixed": ("Mixed groups", True, False),
    "group/frac_solved": ("Solved groups", True, False),
    "length/mean": ("Length in tokens", False, False),
    "length/truncated": ("Truncated", True, False),
    "policy/entropy": ("Entropy, nats a token", False, False),
    "policy/clip_frac": ("Clipped tokens", True, False),
    "policy/kl_ref": ("KL from the reference", False, False),
    "sampler/gap": ("Gap of sampler and trainer", False, True),
    "optim/grad_norm": ("Gradient norm", False, False),
    "perf/tokens_per_s": ("Tokens a second", False, False),
}
OWN = ("time", "perf/", "verdict/")  # drawn under another name, or not worth a curve of their own


def charts(run: RunData) -> list[Chart]:
    """The curves that everybody looks at, those without a finite value left out."""
    return [chart for chart in _main(run) if chart.alive]


def other_charts(run: RunData) -> list[Chart]:
    """Every further metric, one chart each, by name."""
    drawn = {s.label for chart in _main(run) for s in chart.series} | {"time"}
    left = (name for name in sorted(run.series) if name not in drawn and not name.startswith(OWN))
    return [chart for name in left if (chart := _lines(run, name, {name: name})).alive]


def compared(runs: Mapping[str, RunData]) -> list[Chart]:
    """One chart a metric that any of the runs recorded, with a curve for each run by its name."""
    evals = dict.fromkeys(f"eval/{n}" for run in runs.values() for n in run.under("eval/") if _headline(n))
    told = COMMON | {name: (name, True, False) for name in evals}
    out = []
    for metric, (title, percent, log) in told.items():
        series = (
            Series(name, run.steps, run.get(metric), i, dashed=True) for i, (name, run) in enumerate(runs.items())
        )
        out.append(Chart(title, tuple(series), form="percent" if percent else "number", log=log))
    return [chart for chart in out if chart.alive]


def legend(label: str, chart: Chart) -> str:
    """What a curve is called beside its chart; nothing where the chart's title already says it."""
    if len(chart.series) == 1 and chart.kind == "line":
        return ""
    if label == "reward/mean":
        return "total"
    return label.removeprefix("group/frac_").removeprefix("policy/").removeprefix("reward/").removesuffix("/mean")


def _main(run: RunData) -> Iterator[Chart]:
    parts = [f"reward/{name}" for name in run.under("reward/") if name.endswith("/mean")]
    parts = parts if len(parts) > 1 else []  # a single part is the total
    yield _lines(run, "Mean reward", {"reward/mean": "reward/mean", **{name: name for name in parts[:4]}})
    yield _shares(
        run, "Groups", {f"group/frac_{k}": c for k, c in (("solved", 0), ("mixed", 5), ("failed", 1))}, rest=6
    )
    for name in run.under("eval/"):
        if _headline(name):
            yield _lines(run, f"eval/{name}", {f"eval/{name}": f"eval/{name}"}, percent=True)
    yield _lines(run, "Length in tokens", {"length/mean": "length/mean"})
    yield _lines(run, "Truncated", {"length/truncated": "length/truncated"}, percent=True)
    yield _unknown(run)
    yield _lines(run, "Entropy, nats a token", {"policy/entropy": "policy/entropy"})
    yield _lines(run, "Clipped tokens", {"policy/clip_frac": "policy/clip_frac"}, percent=True)
    yield _lines(run, "Gap of sampler and trainer", {"sampler/gap": "sampler/gap"}, log=True)
    yield _lines(run, "KL", {"policy/kl_ref": "policy/kl_ref", "policy/kl_behavior": "policy/kl_behavior"})
    yield _lines(run, "Gradient norm", {"optim/grad_norm": "optim/grad_norm"})
    yield _lines(run, "Learning rate", {"optim/lr": "optim/lr"}, smoothed=False)
    yield _lines(run, "Tokens a second", {"perf/tokens_per_s": "perf/tokens_per_s"})
    yield _time(run)


def _headline(name: str) -> bool:
    """Whether a metric is an evaluation's value rather than one end of its interval."""
    return name.split("/")[-1].startswith(("mean@", "pass@", "maj@"))


def _lines(
    run: RunData, title: str, names: dict[str, str], *, percent: bool = False, log: bool = False, smoothed: bool = True
) -> Chart:
    told = [(label, run.get(name)) for name, label in names.items() if name in run.series]
    series = tuple(Series(label, run.steps, y, i) for i, (label, y) in enumerate(told))
    return Chart(title, series, form="percent" if percent else "number", log=log, smoothed=smoothed)


def _shares(run: RunData, title: str, names: dict[str, int], rest: int) -> Chart:
    told = [Series(name, run.steps, run.get(name), color) for name, color in names.items() if name in run.series]
    if told:
        left = 1.0 - np.sum([np.nan_to_num(s.y) for s in told], axis=0)
        known = np.any([np.isfinite(s.y) for s in told], axis=0)
        if (left[known] > 0.005).any():
            told.append(Series("no verdict", run.steps, np.where(known, np.clip(left, 0, 1), np.nan), rest))
    return Chart(title, tuple(told), kind="stack", form="percent")


def _unknown(run: RunData) -> Chart:
    """Episodes without a verdict as a share, where there were any."""
    told = {label: np.nan_to_num(run.get(f"verdict/{label}")) for label in ("right", "wrong", "unknown")}
    total = told["right"] + told["wrong"] + told["unknown"]
    share = np.where(total > 0, told["unknown"] / np.where(total > 0, total, 1.0), np.nan)
    some = bool((told["unknown"] > 0).any())
    return Chart("No verdict", (Series("no verdict", run.steps, share, 1),) if some else (), form="percent")


def _time(run: RunData) -> Chart:
    stages = {n: x for n, x in run.under("time/").items() if n not in ("total", "step") and np.isfinite(x).any()}
    order = sorted(stages, key=lambda name: -float(np.nansum(stages[name])))
    told = [Series(name, run.steps, stages[name], i) for i, name in enumerate(order[:5])]
    if order[5:]:
        told.append(Series("other", run.steps, np.sum([np.nan_to_num(stages[n]) for n in order[5:]], axis=0), 5))
    return Chart("Seconds a step", tuple(told), kind="stack")

"""Two pictures of an experiment, as SVG: paired differences with their interval and the band of delta, and the share of
right answers by step with a band over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from rlvr.evaluate.statistics import Estimate
from rlvr.report.svg import COLORS, ticks
from rlvr.report.text import number
from rlvr.retest.outcome import Outcome
from rlvr.retest.record import Record
from rlvr.retest.schema import Experiment

WIDTH, LEFT, RIGHT = 560, 150, 16
ROW, TOP, BOTTOM = 46, 34, 40
HEIGHT = 230  # of the curves
CURVE = "verdict/right"


def differences(e: Experiment, outcome: Outcome) -> str:
    """What the method gains over each other arm: a dot a seed, the mean, its interval, and where gains are too small to
    be worth having."""
    rows = list(outcome.main.against.items())
    reach = [e.delta * 1.2, -e.delta * 1.2]
    for _, p in rows:
        ends = (p.estimate.low, p.estimate.high, *p.differences.values())
        reach += [x for x in ends if math.isfinite(x)]
    low, high = min(reach), max(reach)
    pad = 0.05 * (high - low)
    low, high = low - pad, high + pad
    x = lambda v: LEFT + (v - low) / (high - low) * (WIDTH - LEFT - RIGHT)  # noqa: E731
    height = TOP + ROW * len(rows) + BOTTOM
    foot = height - BOTTOM
    out = [
        f'<rect x="{x(-e.delta):.1f}" y="{TOP}" width="{x(e.delta) - x(-e.delta):.1f}" height="{foot - TOP}" '
        'fill="#eceff3"/>',
        *_grid(low, high, x, foot),
        f'<line x1="{x(0):.1f}" x2="{x(0):.1f}" y1="{TOP}" y2="{foot}" stroke="#1f2328"/>',
    ]
    colors = dict(zip(e.every_arm, COLORS))
    for i, (arm, p) in enumerate(rows):
        y, color = TOP + ROW * (i + 0.5), colors.get(arm, COLORS[-2])
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">gain over {escape(arm)}</text>')
        out += [f'<circle cx="{x(d):.1f}" cy="{y + 9:.1f}" r="2.5" fill="{color}" fill-opacity=".55"/>' for d in
                p.differences.values()]  # fmt: skip
        out += _interval(p.estimate, x, y - 5, color)
    lower = "" if e.metric.sign > 0 else ", where lower is better"
    return _svg(f"Gain in {e.metric.name}{lower}, by seed; grey: less than delta", height, out)


def _interval(estimate: Estimate, x, y: float, color: str) -> list[str]:  # type: ignore[no-untyped-def]
    out = []
    if math.isfinite(estimate.low):
        a, b = x(estimate.low), x(estimate.high)
        out.append(f'<line x1="{a:.1f}" x2="{b:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{color}" stroke-width="2"/>')
        out += [f'<line x1="{v:.1f}" x2="{v:.1f}" y1="{y - 5:.1f}" y2="{y + 5:.1f}" stroke="{color}" stroke-width="2"/>'
                for v in (a, b)]  # fmt: skip
    if math.isfinite(estimate.value):
        out.append(f'<circle cx="{x(estimate.value):.1f}" cy="{y:.1f}" r="4.5" fill="{color}"/>')
    return out


def _grid(low: float, high: float, x, foot: float) -> list[str]:  # type: ignore[no-untyped-def]
    out = []
    for value in ticks(low, high, 5):
        at = f"{x(value):.1f}"
        out.append(f'<line x1="{at}" x2="{at}" y1="{TOP}" y2="{foot}" stroke="#ddd"/>')
        out.append(f'<text x="{at}" y="{foot + 16}" text-anchor="middle">{number(value)}</text>')
    return out


def curves(records: Mapping[str, Sequence[Record]]) -> str:
    """The share of right answers by step: mean over seeds, and from the lowest to the highest seed. `records`: the
    counted runs of each arm. A step is drawn where every seed of its arm has made it."""
    lines = {}
    for arm, runs in records.items():
        columns = [y for run in runs if len(y := run.column(CURVE))]
        if columns:
            n = min(map(len, columns))
            lines[arm] = np.array([y[:n] for y in columns])
    if not lines:
        return ""
    steps = max(y.shape[1] for y in lines.values())
    low, high = (float(f([f(y) for y in lines.values()])) for f in (np.nanmin, np.nanmax))
    pad = 0.05 * (high - low) or 0.05
    low, high, foot = max(0.0, low - pad), min(1.0, high + pad), HEIGHT - BOTTOM
    left = 52
    x = lambda step: left + (step - 1) / max(1, steps - 1) * (WIDTH - left - RIGHT)  # noqa: E731
    y_of = lambda v: foot - (v - low) / (high - low) * (foot - TOP)  # noqa: E731
    out = []
    for value in ticks(low, high):
        at = f"{y_of(value):.1f}"
        out.append(f'<line x1="{left}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{float(at) + 4:.1f}" text-anchor="end">{number(value)}</text>')
    for step in [s for s in ticks(1, max(steps, 2), 6) if s == int(s)]:
        out.append(f'<text x="{x(step):.1f}" y="{foot + 16}" text-anchor="middle">{int(step)}</text>')
    for i, (arm, y) in enumerate(lines.items()):
        color, n = COLORS[i % len(COLORS)], y.shape[1]
        across = [x(s + 1) for s in range(n)]
        edge = [*zip(across, y.max(0)), *reversed(list(zip(across, y.min(0))))]
        band = " ".join(f"{a:.1f},{y_of(v):.1f}" for a, v in edge)
        mean = " ".join(f"{a:.1f},{y_of(v):.1f}" for a, v in zip(across, y.mean(0)))
        out.append(f'<polygon points="{band}" fill="{color}" fill-opacity=".13"/>')
        out.append(f'<polyline points="{mean}" fill="none" stroke="{color}" stroke-width="2"/>')
        out.append(
            f'<text x="{left + 90 * i}" y="{HEIGHT - 6}" style="fill:{color};font-weight:600">{escape(arm)}</text>'
        )
    seeds = max(len(y) for y in lines.values())
    return _svg(f"Share of right answers by step: mean of {seeds} seeds, lowest to highest", HEIGHT, out)


def _svg(title: str, height: int, body: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title, quote=True)}" '
        f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'style="font:11px system-ui,sans-serif;background:#fff;color:#1f2328">'
        f'<text x="8" y="18" style="font-weight:600">{escape(title)}</text>{"".join(body)}</svg>\n'
    )

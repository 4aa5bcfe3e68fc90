"""Small charts as SVG text: lines (a smoothed curve over the raw one) and stacked shares. No JavaScript, no library.

A chart's colours are CSS variables with defaults, so it follows a page's theme and also stands alone in a notebook.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Literal

import numpy as np

from rlvr.report.text import number, percent, visible

WIDTH, HEIGHT = 380, 168
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 8, 22  # margins around the plot
# Dark enough to read on white, apart for the common kinds of colour blindness; pages override them for dark themes.
COLORS = ("#1f6fb2", "#c2570c", "#12805c", "#8250b5", "#8a6a00", "#6b7280", "#c9cdd3")
DASHES = ("", "6 3", "2 3", "9 3 2 3", "4 2", "1 2")
POINTS = 500  # more steps than this are drawn as means of neighbours


@dataclass(frozen=True, slots=True)
class Series:
    """One curve. n = number of points."""

    label: str
    x: np.ndarray  # [n] steps, ascending
    y: np.ndarray  # [n], nan where not known
    color: int = 0  # index into COLORS
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """What to draw."""

    title: str
    series: tuple[Series, ...]
    kind: Literal["line", "stack"] = "line"
    form: Literal["number", "percent"] = "number"
    log: bool = False
    smoothed: bool = True  # False for what has no noise, such as a schedule

    @property
    def alive(self) -> bool:
        return any(np.isfinite(s.y).any() for s in self.series)


@dataclass(frozen=True, slots=True)
class _Axes:
    x0: float
    x1: float
    y0: float
    y1: float

    def px(self, x: np.ndarray | float) -> np.ndarray:
        return LEFT + (np.asarray(x, float) - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT)

    def py(self, y: np.ndarray | float) -> np.ndarray:
        share = (np.asarray(y, float) - self.y0) / (self.y1 - self.y0)
        return HEIGHT - BOTTOM - np.clip(share, 0, 1) * (HEIGHT - TOP - BOTTOM)


def thin(series: Series, points: int = POINTS) -> Series:
    """The series in at most `points` points, each the mean of its neighbours."""
    n = len(series.x)
    if n <= points:
        return series
    edges = np.linspace(0, n, points + 1).astype(int)
    ok = np.isfinite(series.y)
    count = np.add.reduceat(ok.astype(float), edges[:-1])
    total = np.add.reduceat(np.where(ok, series.y, 0.0), edges[:-1])
    y = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return replace(series, x=series.x[(edges[:-1] + edges[1:] - 1) // 2], y=y)


def smooth(y: np.ndarray) -> np.ndarray | None:
    """[n] mean over a tenth of the points, weighted by nearness and blind to nan; None below 12 points."""
    n = len(y)
    if n < 12:
        return None
    half = max(1, n // 20)
    weights = half + 1.0 - np.abs(np.arange(-half, half + 1))
    ok = np.isfinite(y)
    count = np.convolve(ok.astype(float), weights, "same")
    total = np.convolve(np.where(ok, y, 0.0), weights, "same")
    return np.where(count > 0, total / np.maximum(count, 1e-12), np.nan)


def draw(chart: Chart) -> str:
    """The chart as one <svg> element."""
    shown = _shown(chart)
    axes, log = _axes(chart, shown)
    body = _grid(chart, axes, log)
    body += (
        _stack(shown, axes) if chart.kind == "stack" else "".join(_line(s, axes, log, chart.smoothed) for s in shown)
    )
    label = escape(visible(describe(chart)), quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}"'
        f' style="font:11px system-ui,sans-serif;overflow:visible">{body}</svg>'
    )


def readout(chart: Chart) -> dict[str, Any]:
    """What a script needs to read the chart under a pointer: the x range and the drawn points."""
    shown = _shown(chart)
    axes, _ = _axes(chart, shown)
    points = [{"x": s.x.tolist(), "y": [_round(v) for v in s.y.tolist()]} for s in shown]
    return {"x0": axes.x0, "x1": axes.x1, "form": chart.form, "series": points}


def describe(chart: Chart) -> str:
    """The chart in a sentence, for those who cannot see it."""
    form = percent if chart.form == "percent" else number
    words = []
    for s in chart.series:
        ok = np.flatnonzero(np.isfinite(s.y))
        if len(ok):
            first, last = ok[0], ok[-1]
            name = "" if s.label == chart.title else f"{s.label} "
            words.append(f"{name}from {form(s.y[first])} at step {s.x[first]} to {form(s.y[last])} at step {s.x[last]}")
    return f"{chart.title}: " + ("; ".join(words) or "nothing recorded")


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers in [low, high], spaced by 1, 2 or 5 times a power of ten."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    return [round(i * step, 12) for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _shown(chart: Chart) -> tuple[Series, ...]:
    """What is drawn: of a line that is measured only now and then the known points, so that they are joined."""
    out = []
    for s in chart.series:
        known = np.isfinite(s.y)
        rare = chart.kind == "line" and 2 * known.sum() < len(known)
        out.append(thin(replace(s, x=s.x[known], y=s.y[known]) if rare else s))
    return tuple(out)


def _axes(chart: Chart, shown: Sequence[Series]) -> tuple[_Axes, bool]:
    """The ranges, and whether y is a power of ten: a log chart without positive values is drawn plainly."""
    x = np.concatenate([s.x for s in shown] or [np.array([])])
    x0, x1 = (float(x.min()), float(x.max())) if len(x) else (0.0, 1.0)
    if x0 == x1:
        x0, x1 = x0 - 0.5, x1 + 0.5
    if chart.kind == "stack":
        top = float(np.max(np.sum([np.nan_to_num(s.y) for s in shown], axis=0), initial=0.0)) if shown else 1.0
        return _Axes(x0, x1, 0.0, 1.0 if chart.form == "percent" else (top * 1.02 or 1.0)), False
    y = np.concatenate([s.y[np.isfinite(s.y)] for s in shown] or [np.array([])])
    log = chart.log and bool((y > 0).any())
    y = np.log10(y[y > 0]) if log else y
    if not len(y):
        return _Axes(x0, x1, 0.0, 1.0), log
    low, high = float(y.min()), float(y.max())
    if len(y) >= 50 and not log:  # one spike must not flatten the rest; what lies outside is drawn at the edge
        inner_low, inner_high = (float(q) for q in np.quantile(y, [0.02, 0.98]))
        room = inner_high - inner_low
        if room > 0:
            low, high = max(low, inner_low - room), min(high, inner_high + room)
    if not log and low > 0 and (low < 0.5 * high or low == high):
        low = 0.0
    pad = 0.06 * (high - low) or (0.5 if log else 0.5 * abs(high)) or 0.5
    floor = 0.0 if low >= 0 and not log else -math.inf
    return _Axes(x0, x1, max(floor, low - pad), min(high + pad, 308.0) if log else high + pad), log


def _grid(chart: Chart, axes: _Axes, log: bool) -> str:
    if log:
        stride = max(1, math.ceil((axes.y1 - axes.y0) / 4))
        marks = [(float(e), number(10.0**e)) for e in range(math.ceil(axes.y0), math.floor(axes.y1) + 1, stride)]
        if len(marks) < 2:
            marks = [(v, number(10.0**v)) for v in np.linspace(axes.y0, axes.y1, 4)[1:3].tolist()]
    else:
        form = percent if chart.form == "percent" else number
        marks = [(v, form(v)) for v in ticks(axes.y0, axes.y1)]
    out = []
    for value, label in marks:
        y = float(axes.py(value))
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" style="{_ink("grid", 0.15)}"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 3.8:.1f}" text-anchor="end" style="{_words()}">{label}</text>')
    whole = [v for v in ticks(axes.x0, axes.x1) if v == int(v)] or [math.ceil(axes.x0)]
    for value in whole:
        x = float(axes.px(value))
        out.append(f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle" style="{_words()}">{int(value)}</text>')
    return "".join(out)


def _line(series: Series, axes: _Axes, log: bool, smoothed: bool) -> str:
    y = np.where(series.y > 0, np.log10(np.where(series.y > 0, series.y, 1.0)), np.nan) if log else series.y
    y = np.clip(y, axes.y0, axes.y1)  # a spike beyond the frame must not drag the smoothed curve with it
    curve = smooth(y) if smoothed else None
    dash = f";stroke-dasharray:{DASHES[series.color % len(DASHES)]}" if series.dashed and series.color else ""
    color = _color(series.color)
    thin_style = f"fill:none;stroke:{color};stroke-width:{1 if curve is not None else 1.6}"
    out = _path(axes.px(series.x), axes.py(y), thin_style + (";opacity:.32" if curve is not None else dash), color)
    if curve is not None:
        out += _path(axes.px(series.x), axes.py(curve), f"fill:none;stroke:{color};stroke-width:2{dash}", color)
    return out


def _path(px: np.ndarray, py: np.ndarray, style: str, color: str) -> str:
    """A polyline broken at nan; a point without neighbours is a dot."""
    out, pieces = "", []
    for a, b in _runs(np.isfinite(py)):
        if b - a == 1:
            out += f'<circle cx="{px[a]:.1f}" cy="{py[a]:.1f}" r="2.5" style="fill:{color}"/>'
        else:
            pieces.append("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(px[a:b].tolist(), py[a:b].tolist())))
    return out + (f'<path d="{"".join(pieces)}" style="{style};stroke-linejoin:round"/>' if pieces else "")


def _stack(shown: Sequence[Series], axes: _Axes) -> str:
    if not shown:
        return ""
    values = np.array([s.y for s in shown])
    known = np.isfinite(values).any(axis=0)
    tops = np.cumsum(np.nan_to_num(values), axis=0)
    px, out = axes.px(shown[0].x), ""
    for i, series in enumerate(shown):
        upper, lower = axes.py(tops[i]), axes.py(tops[i - 1] if i else np.zeros_like(tops[0]))
        d = ""
        for a, b in _runs(known):
            x = [px[a] - 4, px[a] + 4] if b - a == 1 else px[a:b].tolist()
            up, down = (np.repeat(v[a:b], 2 if b - a == 1 else 1).tolist() for v in (upper, lower))
            edge = [*zip(x, up), *reversed(list(zip(x, down)))]
            d += "M" + "L".join(f"{u:.1f} {v:.1f}" for u, v in edge) + "Z"
        out += f'<path d="{d}" style="fill:{_color(series.color)};opacity:.85"/>' if d else ""
    return out


def _runs(ok: np.ndarray) -> list[tuple[int, int]]:
    """[a, b) of each unbroken stretch of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], ok, [False]]).astype(int)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist()))


def _color(index: int) -> str:
    index %= len(COLORS)
    return f"var(--c{index},{COLORS[index]})"


def _ink(name: str, opacity: float) -> str:
    return f"stroke:var(--{name},currentColor);stroke-opacity:var(--{name}-opacity,{opacity})"


def _words() -> str:
    return "fill:var(--soft,currentColor)"


def _round(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None

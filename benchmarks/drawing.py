"""Lines over steps, or over sizes on logarithmic axes, as one SVG that stands alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rlvr.report.svg import COLORS, ticks
from rlvr.report.text import number

WIDTH, HEIGHT = 420, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 44, 40


@dataclass(frozen=True, slots=True)
class Line:
    """One curve."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    color: int = 0
    thin: bool = False
    marks: bool = False


def draw(title: str, x_name: str, lines: Sequence[Line], log: bool = False) -> str:
    """The lines under a title and a legend; log: both axes are logarithmic, so that powers are straight."""
    xs, ys = [x for s in lines for x in s.x], [y for s in lines for y in s.y]
    at = math.log10 if log else float
    x0, x1, y0, y1 = at(min(xs)), at(max(xs)), at(min(ys)) if log else min(0.0, *ys), at(max(ys))
    y1 += 0.04 * (y1 - y0) or 1.0
    x1 += 0.0 if x1 > x0 else 1.0
    px = lambda x: LEFT + (at(x) - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT)  # noqa: E731
    py = lambda y: HEIGHT - BOTTOM - (at(y) - y0) / (y1 - y0) * (HEIGHT - TOP - BOTTOM)  # noqa: E731
    frame = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" {frame} '
        'style="font:11px system-ui,sans-serif;background:#fff">',
        f'<text x="8" y="16" style="font-weight:600">{escape(title)}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_name)}</text>',
    ]
    for value in _values(y0, y1, log):
        y = py(value)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(value)}</text>')
    for value in sorted({*xs}) if log else ticks(x0, x1):
        out.append(f'<text x="{px(value):.1f}" y="{HEIGHT - 24}" text-anchor="middle">{_short(value)}</text>')
    place = 8.0
    for s in lines:
        color = COLORS[s.color % len(COLORS)]
        points = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in zip(s.x, s.y))
        width, opacity = (1, 0.35) if s.thin else (2, 1)
        out.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="{width}"')
        out.append(f' stroke-opacity="{opacity}"/>')
        if s.marks:
            out += [f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="3" fill="{color}"/>' for x, y in zip(s.x, s.y)]
        if s.label:
            out.append(f'<text x="{place:.0f}" y="33" fill="{color}">{escape(s.label)}</text>')
            place += 6.2 * len(s.label) + 14
    return "".join(out) + "</svg>\n"


def _values(low: float, high: float, log: bool) -> list[float]:
    if not log:
        return ticks(low, high)
    powers = [m * 10.0**e for e in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)]
    inside = [v for v in powers if low <= math.log10(v) <= high]
    return inside if len(inside) <= 6 else [v for v in inside if f"{v:e}"[0] == "1"]


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{number(round(value / size, 1))}{unit}"
    return number(value)

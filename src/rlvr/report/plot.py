"""Curves for a notebook: an object that shows itself as SVG, from a run's folder or from metrics in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from rlvr.report.curves import charts, legend
from rlvr.report.store import RunData, columns, read_run, write_text
from rlvr.report.svg import COLORS, HEIGHT, WIDTH, Chart, Series, draw
from rlvr.report.text import visible

ACROSS, HEAD, GAP = 3, 24, 20  # charts a row, room for a title, room between charts


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture of curves; notebooks show it, `save` writes it."""

    svg: str

    def _repr_html_(self) -> str:
        return self.svg

    def save(self, path: Path | str) -> Path:
        """Write the SVG file."""
        write_text(Path(path), self.svg)
        return Path(path)


def plot(source: Path | str | Iterable[Mapping[str, Any]], names: Sequence[str] | None = None) -> Plot:
    """Curves of a run's folder, or of step records `{"step": 1, "reward/mean": 0.1, ...}`.

    names: the metrics to draw, one chart each; by default those that everybody looks at.
    Raises KeyError for a metric that was never recorded, ValueError when there is nothing to draw.
    """
    if isinstance(source, Path | str):
        run = read_run(source)
    else:
        steps, series = columns(source)
        run = RunData(Path(), steps, series, {}, (), None, {}, 0)
    if names is None:
        shown = charts(run)
    else:
        unknown = [name for name in names if name not in run.series]
        if unknown:
            raise KeyError(f"no metric {unknown[0]!r} was recorded; there are: {', '.join(sorted(run.series))}")
        shown = [Chart(name, (Series(name, run.steps, run.get(name)),)) for name in names]
    if not shown:
        raise ValueError("there is no finite metric to draw yet")
    return Plot(_sheet(shown))


def _sheet(shown: Sequence[Chart]) -> str:
    """All charts in one <svg>, each under its title and legend."""
    across = min(ACROSS, len(shown))
    width, height = across * (WIDTH + GAP), -(-len(shown) // across) * (HEIGHT + HEAD + GAP)
    out = []
    for i, chart in enumerate(shown):
        x, y = i % across * (WIDTH + GAP), i // across * (HEIGHT + HEAD + GAP)
        words = [f'<tspan font-weight="600">{_safe(chart.title)}</tspan>']
        for s in chart.series:
            if name := legend(s.label, chart):
                words.append(f'<tspan dx="9" style="fill:{COLORS[s.color % len(COLORS)]}">{_safe(name)}</tspan>')
        inner = draw(chart).replace("<svg ", f'<svg x="{x}" y="{y + HEAD}" width="{WIDTH}" height="{HEIGHT}" ', 1)
        out.append(f'<text x="{x + 4}" y="{y + 16}" style="font:12px system-ui,sans-serif;fill:currentColor">')
        out.append("".join(words) + "</text>" + inner)
    frame = f'viewBox="0 0 {width} {height}" style="width:100%;max-width:{width}px;height:auto"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="Curves of a run" {frame}>{"".join(out)}</svg>'
    )


def _safe(text: str) -> str:
    return escape(visible(text), quote=True)

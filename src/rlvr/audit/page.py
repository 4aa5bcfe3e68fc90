"""An audit as one HTML page: bars, the ladder's curves, and every table. Nothing is fetched, no text is trusted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from markupsafe import Markup

from rlvr.audit.document import by_corpus, corpus_facts, corpus_title
from rlvr.audit.run import Verdicts
from rlvr.audit.summary import in_contract, judged, summary
from rlvr.audit.tables import tables
from rlvr.report.embed import island
from rlvr.report.html import figure, render
from rlvr.report.svg import COLORS, Chart, Series, readout
from rlvr.report.text import percent, visible

LEFT, BAR, GAP, WIDE = 190, 13, 6, 420  # of the bars, in pixels
MOST_CURVES = 6
_BARS = "Right answers rejected (dark) and not judged (light)"


def page(audits: Sequence[Verdicts], title: str) -> str:
    """The page's text."""
    groups: list[dict[str, Any]] = []
    charts: list[Chart] = []
    for name, group in by_corpus(audits).items():
        facts = corpus_facts(group[0].corpus)
        chart = _ladder(group)
        groups.append(
            {
                "name": corpus_title(name),
                "facts": {k: str(facts[k]) for k in ("pairs", "seed", "digest", "left_out_as_duplicates")},
                "bars": [{"title": t, "svg": Markup(svg)} for t, svg in _bars(group)],
                "chart": figure(chart, len(charts)) if chart else None,
                "tables": [_shown(table) for table in tables(group)],
            }
        )
        charts += [chart] if chart else []
    data = island({"charts": [readout(chart) for chart in charts]})
    return render("audit.html", title=visible(title), groups=groups, data=data)


def _shown(table: Any) -> dict[str, Any]:
    rows = [[_cell(cell) for cell in row] for row in table.rows]
    return {"key": table.key, "title": table.title, "note": table.note, "columns": table.columns, "rows": rows}


def _cell(text: str) -> Markup:
    """Escaped, with what stands in code marks as code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(visible(text))))


def _bars(group: Sequence[Verdicts]) -> list[tuple[str, str]]:
    """Refusals by verifier where there are several, by rewrite of the first else."""
    if len(group) > 1:
        whole = [(v.name, summary(v)) for v in group]
        rows = [(name, s.rejected / s.equal, s.failed / s.equal) for name, s in whole if s.equal]
        return [(f"{_BARS}, in contract", bars(rows))]
    found: dict[str, list[str]] = {}
    for p, r in judged(group[0]):
        if p.part == "pairs" and p.equal and in_contract(p):
            found.setdefault(p.category, []).append(r.outcome)
    rows = [(c, o.count("reject") / len(o), o.count("failure") / len(o)) for c, o in sorted(found.items())]
    return [(f"{_BARS}, by rewrite", bars(rows))]


def bars(rows: Sequence[tuple[str, float, float]]) -> str:
    """Horizontal bars of two stacked shares, as one <svg>."""
    across, height = LEFT + WIDE + 120, len(rows) * (BAR + GAP) + GAP
    out = []
    for i, (label, dark, light) in enumerate(rows):
        y = GAP + i * (BAR + GAP)
        first, second = WIDE * dark, WIDE * light
        ink = 'style="fill:var(--ink,currentColor)"'
        out.append(f'<text x="{LEFT - 6}" y="{y + 11}" text-anchor="end" {ink}>{escape(label)}</text>')
        for x, width, opacity in ((LEFT, first, 1), (LEFT + first, second, 0.45)):
            fill = f"fill:var(--c0,{COLORS[0]});opacity:{opacity}"
            out.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" style="{fill}"/>')
        told = percent(dark) if not light else f"{percent(dark)} + {percent(light)}"
        at = LEFT + first + second + 6
        out.append(f'<text x="{at:.1f}" y="{y + 11}" {ink}>{told}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across} {height}" role="img" aria-label="Bars"'
        f' style="font:11px system-ui,sans-serif;max-width:{across}px">{"".join(out)}</svg>'
    )


def _ladder(group: Sequence[Verdicts]) -> Chart | None:
    """Share of n + 1 and n - 1 accepted for n, by size; None where nobody accepts any."""
    curves = []
    for v in group:
        rows = [(p, r) for p, r in judged(v) if p.part == "ladder" and p.decade is not None]
        sizes = sorted({p.decade for p, _ in rows if p.decade is not None})
        shares = []
        for size in sizes:
            said = [r.outcome == "accept" for p, r in rows if p.decade == size]
            shares.append(sum(said) / len(said))
        if sizes:
            curves.append((v.name, np.array(sizes, float), np.array(shares)))
    curves.sort(key=lambda c: -float(c[2].max()))
    series = tuple(Series(visible(n), x, y, i, dashed=True) for i, (n, x, y) in enumerate(curves[:MOST_CURVES]))
    if not any(s.y.any() for s in series):
        return None
    return Chart("Off by one accepted, by power of ten", series, form="percent", smoothed=False)

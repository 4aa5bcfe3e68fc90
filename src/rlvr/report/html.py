"""The page of a run: one self-contained file, made from the run's folder alone, also while the run is going.

Everything that a model wrote reaches the page escaped by jinja2 or as JSON that a script turns into text nodes. A
content security policy lets only the page's own two scripts run and nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import time
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FunctionLoader
from markupsafe import Markup

from rlvr import best
from rlvr.report import summary
from rlvr.report.curves import charts, legend, other_charts
from rlvr.report.embed import GROUPS, STEPS, island, rollouts
from rlvr.report.store import read_json, read_run, write_text
from rlvr.report.svg import COLORS, Chart, draw, readout
from rlvr.report.text import number, percent, visible


def write_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Write the page of a run and return its path, by default `folder/report.html`.

    Reads metrics.jsonl, events.jsonl, rollouts/, recipe.toml, eval.json and solved.json; all but one may be missing.
    Raises FileNotFoundError when the folder is not a run.
    """
    folder = Path(folder)
    run = read_run(folder)
    recipe_file = folder / "recipe.toml"
    recipe = recipe_file.read_text(encoding="utf-8", errors="replace") if recipe_file.is_file() else ""
    evaluation, fault_1 = read_json(folder / "eval.json")
    solved, fault_2 = read_json(folder / "solved.json")
    kept = rollouts(folder)
    shown, others = charts(run), other_charts(run)
    page = render(
        "report.html",
        title=visible(str(run.start.get("title") or folder.resolve().name)),
        facts=_facts(run.start, recipe, folder),
        status=visible(summary.status_sentence(run)),
        reward=summary.reward_sentence(run),
        cautions=[
            visible(text)
            for text in [*summary.cautions(run), *summary.unjudged(evaluation), fault_1, fault_2, *kept["faults"]]
            if text
        ],
        evaluations=[_evaluation(e) for e in summary.evaluations(evaluation)],
        evaluated={k: visible(str(evaluation[k])) for k in ("k", "problems") if k in evaluation},
        best=visible(_best(folder, evaluation, len(run.steps))),
        solved=_solved(solved),
        charts=[figure(c, i) for i, c in enumerate(shown)],
        others=[figure(c, i + len(shown)) for i, c in enumerate(others)],
        steps=[s["step"] for s in kept["steps"]],
        step_files=kept["files"],
        bounds={"steps": STEPS, "groups": GROUPS},
        plan=visible(str(run.start.get("plan") or "")),
        recipe=visible(recipe),
        notes=[(_when(n.get("time")), visible(str(n.get("text")))) for n in run.notes],
        data=island({"charts": [readout(c) for c in [*shown, *others]], "rollouts": kept}),
    )
    path = Path(out) if out is not None else folder / "report.html"
    write_text(path, page)
    return path


def render(template: str, **values: Any) -> str:
    """A page from a template among the assets, with the house's style, scripts and content security policy."""
    style, head, body = asset("page.css"), asset("theme.js"), asset("charts.js") + asset("rollouts.js")
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; script-src "
        + " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in (head, body))
    )
    return (
        _environment()
        .get_template(template)
        .render(style=Markup(style), head_script=Markup(head), body_script=Markup(body), policy=policy, **values)
    )


def figure(chart: Chart, index: int) -> dict[str, Any]:
    """What a template needs to show one chart; `index` is its place in the page's data."""
    form = percent if chart.form == "percent" else number
    labels = []
    for s in chart.series:
        known = s.y[np.isfinite(s.y)]
        labels.append((visible(legend(s.label, chart)), s.color % len(COLORS), form(known[-1]) if len(known) else "–"))
    return {
        "index": index,
        "title": visible(chart.title),
        "svg": Markup(draw(chart)),
        "labels": labels,
        "log": chart.log,
    }


@cache
def asset(name: str) -> str:
    return (files("rlvr.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    return Environment(loader=FunctionLoader(asset), autoescape=True, trim_blocks=True, lstrip_blocks=True)


def _facts(start: Any, recipe: str, folder: Path) -> list[tuple[str, str]]:
    """(label, value) lines under the title; the recipe speaks where the run did not."""
    try:
        told = tomllib.loads(recipe)
    except tomllib.TOMLDecodeError:
        told = {}
    found = [
        ("model", start.get("model") or told.get("model")),
        ("method", start.get("method") or told.get("method")),
        ("seed", start.get("seed", told.get("seed"))),
        ("started", _when(start.get("began"))),
        ("folder", folder.resolve().name),
    ]
    return [
        (label, visible(str(value)))
        for label, value in found
        if value not in (None, "") and not isinstance(value, dict)
    ]


def _when(seconds: Any) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if isinstance(seconds, int | float) else ""


def _evaluation(e: summary.Evaluation) -> dict[str, Any]:
    """One row of the table: texts, and where dots and whiskers lie on a scale of 0 to 100."""
    sides: list[dict[str, Any]] = []
    top = max([1.0, *(i[2] for i in (e.before, e.after) if i)])
    for label, interval in (("before", e.before), ("after", e.after)):
        if interval is None:
            sides.append({"label": label, "text": "–", "at": None})
            continue
        form = percent if top <= 1 else number
        value, low, high = (form(v) for v in interval)
        at = [round(100 * max(0.0, v) / top, 2) for v in interval]
        sides.append({"label": label, "text": f"{value}", "interval": f"{low} to {high}", "at": at})
    return {"name": visible(e.name), "measure": visible(e.measure), "sides": sides, "words": e.words}


def _best(folder: Path, evaluation: dict[str, Any], steps: int) -> str:
    top = best.told(folder, evaluation, steps)
    here = f"{Path(top['model']).name}/" if top and top["model"] else None  # a page is read elsewhere too
    said = best.sentence(top and {**top, "model": here}, evaluation)
    return said[:1].upper() + said[1:]


def _solved(told: dict[str, Any]) -> dict[str, Any] | None:
    if "prompt" not in told:
        return None
    sides = []
    for label in ("before", "after"):
        side = told[label] if isinstance(told.get(label), dict) else {}
        extracted = side.get("extracted")
        answer = visible(str(extracted if extracted is not None else side.get("reason", "")))
        sides.append({"label": label, "text": visible(str(side.get("text", ""))), "extracted": answer})
    return {"prompt": visible(_text(told["prompt"])), "answer": visible(str(told.get("answer", ""))), "sides": sides}


def _text(prompt: Any) -> str:
    """A prompt as text, also when it is a list of chat messages."""
    if isinstance(prompt, list):
        return "\n\n".join(f"{m.get('role')}: {m.get('content')}" if isinstance(m, dict) else str(m) for m in prompt)
    return str(prompt)

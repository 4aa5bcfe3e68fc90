"""docs/papers.md and its plots, from the results alone."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr import registry
from rlvr.evaluate.statistics import Estimate
from rlvr.report.store import write_text
from rlvr.retest import book, families, pictures, record
from rlvr.retest.arms import recipe_file
from rlvr.retest.book import Book
from rlvr.retest.home import Home
from rlvr.retest.outcome import Compared, Outcome, look, spent
from rlvr.retest.record import Record
from rlvr.retest.schema import HARNESS, REVISION, Metric

INTRO = """
Each paper's claim, scaled to a toy, stands in a file that was committed before its first run: arms, control, budget,
the one metric that decides, the smallest effect worth having (delta), the rule. `rlvr retest NAME` runs it; how a file
is written and what the verdicts mean is in [experiments](experiments.md). All numbers are of small bundled models on
made-up tasks: they can speak against a mechanism, and never confirm a paper at its own size.

`shown`: the 95 % interval of the paired gain over base lies above 0, and its mean is at least delta. `opposite`: the
mirror image. `equivalent`: the interval lies inside plus and minus delta. `not shown`: anything else. A first result
stays; a revision stands beneath it.
"""


def write(home: Home) -> Path:
    """Write the page and its plots. Returns the page."""
    page, plots = make(home)
    home.pictures.mkdir(parents=True, exist_ok=True)
    for old in home.pictures.glob("*.svg"):
        if old.name not in plots:
            old.unlink()
    for name, svg in plots.items():
        write_text(home.pictures / name, svg)
    write_text(home.page, page)
    return home.page


def make(home: Home) -> tuple[str, dict[str, str]]:
    """The page, and its plots by the names of their files."""
    records = record.read(home.records)
    books = {name: book.load(home, name, records) for name in home.names()}
    seen = {name: look(b) for name, b in books.items()}
    groups = families.read(home.experiments)
    p = {n: o.main.against["base"].p for n, o in seen.items() if o.decided and books[n].experiment.paper != HARNESS}
    adjusted = families.adjusted(groups, p)
    papers = [n for n in _order(books) if books[n].experiment.paper != HARNESS]
    ours = [n for n in _order(books) if books[n].experiment.paper == HARNESS]
    lacking = [paper for members in groups.values() for paper in members if paper not in books]

    told = ("claim", "verdict", "gain over base (95 % interval)", "p, Holm", "seeds")
    head = ("paper", "slots", "file", "recipe", "experiment", *told)
    rows = [_row(books[n], seen[n], adjusted.get(n, math.nan)) for n in papers]
    rows += [_row_without(paper, home.root) for paper in lacking]
    out = ["# Claims, tested again", _prose(INTRO), "<!-- Made by `rlvr retest --page`. -->", _table(head, rows)]
    if ours:
        out += [
            "## The machinery itself",
            _prose("The same machinery on arms of which it is known what must come out, run once."),
            _table(told, [_row(books[n], seen[n], math.nan)[5:] for n in ours]),
        ]
    plots: dict[str, str] = {}
    for name in [*papers, *ours]:
        out += _section(books[name], seen[name], adjusted.get(name, math.nan), books, plots)
    return "\n\n".join(block.strip() for block in out if block.strip()) + "\n", plots


def _order(books: Mapping[str, Book]) -> list[str]:
    """By name, a revision behind what it revises."""
    return sorted(books, key=lambda name: (m[1], m[2]) if (m := REVISION.fullmatch(name)) else (name, "1"))


# ---- the table -------------------------------------------------------------------------------------------
def _row(b: Book, seen: Outcome, holm: float) -> list[str]:
    e = b.experiment
    name = f"[{b.name}](#{b.name})" + (f", revises {e.revises}" if e.revises else "")
    where = f"[{b.name}.toml](../experiments/{b.name}.toml)"
    pair = seen.main.against["base"]
    effect = _signed(pair.estimate) if pair.estimate.n else ""
    return [
        name,
        *_of_paper(e.paper, b.home.root),
        where,
        e.claim,
        _verdict(b, seen),
        effect,
        _p(holm),
        f"{seen.seeds} of {e.seeds}",
    ]


def _row_without(paper: str, root: Path) -> list[str]:
    return [paper, *_of_paper(paper, root), "", "", "no experiment yet", "", "", ""]


def _of_paper(paper: str, root: Path) -> tuple[str, str, str]:
    """Slots, file, and the toy recipe that ships with it."""
    if paper not in registry.names("method"):
        return "", "", ""
    entry = registry.describe("method", paper)
    file = entry.module.replace(".", "/") + ".py"
    slots = ", ".join(entry.constants.get("fills", ()))
    toy = f"recipes/methods/{paper}.toml"
    recipe = f"[{paper}.toml](../{toy})" if (root / toy).is_file() else ""
    return slots, f"[{Path(file).name}](../src/{file})", recipe


def _verdict(b: Book, seen: Outcome) -> str:
    words = {
        "search": "under way: search",
        "seeds": "under way",
        "failed precondition": "not run: a precondition does not hold",
        "failed arm": "not run: an arm cannot be trained",
    }
    if not seen.begun:
        return "not run yet"
    if seen.stage in words:
        return words[seen.stage]
    verdict = seen.verdict(b.experiment.delta)
    return f"**{verdict}**" if verdict else "no two pairs"


# ---- a section -------------------------------------------------------------------------------------------
def _section(b: Book, seen: Outcome, holm: float, books: Mapping[str, Book], plots: dict[str, str]) -> Iterator[str]:
    e = b.experiment
    yield f"## {b.name}"
    if e.because:
        yield _prose(f"Revises [{e.revises}](#{e.revises}), because {e.because.rstrip('.')}.")
    yield _prose(f"**Claim.** {e.claim}")
    yield _prose(f"**Rule.** {_rule(b)}")
    if not seen.begun:
        yield "Not run yet."
        return
    if b.changed:
        yield _prose("**The file of this experiment has changed since its first run.**")
    if seen.preconditions:
        yield "**Preconditions**, looked at in the search's runs, before any counted run:"
        rows = [
            (s.rule.says, s.rule.arm, f"`{s.rule.metric}`{_steps(s.rule.steps)}", _value(s.value), s.rule.limit)
            + ("holds" if s.holds else "**does not hold**",)
            for s in seen.preconditions
        ]
        yield _table(("what", "arm", "metric", "value", "wanted", ""), rows)
    yield f"**Arms** ({seen.seeds} of {e.seeds} seeds):"
    yield _arms(b, seen, list(e.arms), holm)
    yield from _failures(seen)
    if any(pair.estimate.n for pair in seen.main.against.values()):
        yield from _plots(b, seen, plots)
    if e.ablations:
        yield "**Ablations**, which decide nothing:"
        yield _arms(b, seen, list(e.ablations), math.nan)
    if seen.secondary and any(c.values["base"] for c in seen.secondary):
        yield "**Other metrics**, which decide nothing:"
        yield _secondary(seen.secondary, list(e.arms))
    yield _prose(_cost(b, seen, books))


def _rule(b: Book) -> str:
    e = b.experiment
    budget = (
        f"{e.budget.sampled_tokens:,} sampled tokens"
        if e.budget.sampled_tokens is not None
        else f"{e.budget.steps} steps"
    )
    shared = recipe_file(e, b.home.experiments)
    named = f"`{shared.relative_to(b.home.root)}`" if shared.is_relative_to(b.home.root) else f"`{shared.stem}`"
    by = "" if e.lr_by is None else f" by {_metric(e.search_by)}"
    rates = ", ".join(f"{lr:g}" for lr in e.lr)
    return (
        f"{_metric(e.metric)} decides, {e.metric.better} is better, delta {e.delta:g}. Every arm trains on {named} "
        f"for {budget}, after a search of its learning rate among {rates}{by} with seed 0; then "
        f"seeds {e.seed_list[0]} to {e.seed_list[-1]}, paired."
    )


def _arms(b: Book, seen: Outcome, arms: Sequence[str], holm: float) -> str:
    e = b.experiment
    by = "" if e.lr_by is None else f" by {_metric(e.search_by)}"
    head = (
        "arm",
        "what",
        "stack",
        f"lr, of the search{by}",
        _metric(e.metric),
        "gain over it",
        "p",
        "verdict",
    )
    rows = []
    for arm in arms:
        about = e.every_arm[arm]
        row = [arm, about.says, f"`{about.method}`{_set(about.set)}", _search(b, arm, seen.lr[arm])]
        row.append(_plain(seen.main.mean(arm)))
        pair = seen.main.against.get(arm)
        if pair is None:
            row += ["", "", ""]
        else:
            p = f"{_p(pair.p)}, Holm {_p(holm)}" if arm == "base" and math.isfinite(holm) else _p(pair.p)
            row += [_signed(pair.estimate), p, seen.verdict(e.delta, arm) or ""]
        rows.append(row)
    return _table(head, rows)


def _search(b: Book, arm: str, lr: float | None) -> str:
    """The learning rate that was taken, and what the search saw at each."""
    if lr is None:
        return ""
    values = [(slot.lr, b.value(slot, b.experiment.search_by)) for slot in b.search(arm)]
    told = ", ".join(f"{rate:g}: {'failed' if math.isnan(x) else format(x, '.4g')}" for rate, x in values)
    edge = ", an edge of the search" if lr in (min(b.experiment.lr), max(b.experiment.lr)) else ""
    return f"**{lr:g}**{edge} ({told})"


def _failures(seen: Outcome) -> Iterator[str]:
    for arm, by_seed in seen.failed.items():
        if by_seed:
            seeds = ", ".join(map(str, by_seed))
            yield _prose(f"Of {arm}, seeds {seeds} failed and are in no pair: {next(iter(by_seed.values()))}")


def _plots(b: Book, seen: Outcome, plots: dict[str, str]) -> Iterator[str]:
    plots[f"{b.name}.svg"] = pictures.differences(b.experiment, seen)
    shown = [f"![Paired differences of {b.name}](img/papers/{b.name}.svg)"]
    counted = {
        arm: [r for slot in b.counted([arm]) if (r := b.record(slot)) and r.finished] for arm in b.experiment.arms
    }
    if curves := pictures.curves(counted):
        plots[f"{b.name}-curves.svg"] = curves
        shown.append(f"![Learning curves of {b.name}](img/papers/{b.name}-curves.svg)")
    yield "\n".join(shown)


def _secondary(every: Sequence[Compared], arms: Sequence[str]) -> str:
    others = [arm for arm in arms if arm != "method"]
    head = ("metric", *arms, *(f"gain over {arm}" for arm in others))
    rows = []
    for c in every:
        lower = "" if c.metric.sign > 0 else ", lower is better"
        means = [_plain(c.mean(arm)) for arm in arms]
        rows.append([f"{_metric(c.metric)}{lower}", *means, *(_signed(c.against[arm].estimate) for arm in others)])
    return _table(head, rows)


def _cost(b: Book, seen: Outcome, books: Mapping[str, Book]) -> str:
    runs = {r.mark: r for records in seen.runs.values() for r in records}
    if not runs:
        return ""
    total = spent(seen)
    minutes = total.get("cpu_seconds", 0.0) / 60
    names = [name for name in total if not name.endswith("seconds")]
    counts = ", ".join(f"{total[name]:,.0f} {name.replace('_', ' ')}" for name in names)
    told = f"**Cost.** {len(runs)} runs, {counts}, {minutes:.0f} CPU-minutes. "
    shared = {other: len(set(runs) & set(theirs.marks.values())) for other, theirs in books.items() if other != b.name}
    if named := ", ".join(f"{other} ({n})" for other, n in shared.items() if n):
        told += f"Runs shared with {named}. "
    told += f"The rule is of commit {b.facts['commit'] or 'unknown'}; the runs are of {_made(runs)}."
    return told


def _made(runs: Mapping[str, Record]) -> str:
    commits: dict[str, bool] = {}
    for r in runs.values():
        commit = r.told["commit"] or "an unknown commit"
        commits[commit] = commits.get(commit, False) or bool(r.told["changed"])
    named = ", ".join(
        f"{commit}{' with uncommitted changes' if changed else ''}" for commit, changed in commits.items()
    )
    machines = "; ".join(sorted({str(r.told["machine"]) for r in runs.values()}))
    versions = "; ".join(sorted({_versions(r.told["versions"]) for r in runs.values()}))
    days = sorted(str(r.told["date"])[:10] for r in runs.values())
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return f"{named}, {when}, on {machines}; {versions}"


def _versions(told: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in told.items() if name != "numpy")


# ---- small things ----------------------------------------------------------------------------------------
def _metric(metric: Metric) -> str:
    return f"`{metric.name}`{_steps(metric.steps)}"


def _steps(steps: Sequence[int] | None) -> str:
    return "" if steps is None else f", steps {steps[0]} to {steps[1]}"


def _set(settings: Mapping[str, Any]) -> str:
    return "".join(f", `{key} = {value}`" for key, value in settings.items())


def _value(x: float) -> str:
    return "not measured" if math.isnan(x) else f"{x:.4g}"


def _plain(e: Estimate) -> str:
    return "" if not e.n else f"{e.value:.4g}"


def _signed(e: Estimate) -> str:
    if not e.n:
        return ""
    interval = f" ({e.low:+.4f} .. {e.high:+.4f})" if math.isfinite(e.low) else ""
    return f"{e.value:+.4f}{interval}, {e.n} pairs"


def _p(p: float) -> str:
    return "" if math.isnan(p) else "under 0.0001" if p < 1e-4 else f"{p:.2g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    escaped = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *escaped)]
    return "\n".join(lines)


def _prose(text: str) -> str:
    return "\n\n".join(
        textwrap.fill(" ".join(part.split()), 120, break_on_hyphens=False) for part in text.strip().split("\n\n")
    )

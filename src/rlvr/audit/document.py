"""An audit as JSON and as Markdown."""

from __future__ import annotations

import math
import os
import platform
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rlvr.audit.corpus import Corpus
from rlvr.audit.run import Verdicts
from rlvr.audit.summary import judged, speed, summary
from rlvr.audit.tables import Table, tables

_LETTER = {"accept": "A", "reject": "R", "failure": "F"}


def by_corpus(audits: Sequence[Verdicts]) -> dict[str, list[Verdicts]]:
    out: dict[str, list[Verdicts]] = {}
    for v in audits:
        out.setdefault(v.corpus.name, []).append(v)
    return out


def as_json(audits: Sequence[Verdicts], command: str) -> dict[str, Any]:
    """Everything, for programs. `outcomes` has a letter for each pair of the corpus, in its order: A, R or F."""
    groups = by_corpus(audits)
    return {
        "made": {
            "command": command, "date": time.strftime("%Y-%m-%d"), "rlvr": version("rlvr"), "machine": machine(),
            "python": platform.python_version(),
        },
        "corpora": [corpus_facts(group[0].corpus) for group in groups.values()],
        "verifiers": [_verifier(v) for v in audits],
        "tables": {name: [asdict(table) for table in tables(group)] for name, group in groups.items()},
    }  # fmt: skip


def _verifier(v: Verdicts) -> dict[str, Any]:
    return {
        "name": v.name,
        "asked_as": v.wrap,
        "corpus": v.corpus.name,
        "about": v.about,
        "all": _counts(v, None),
        "tuned": _counts(v, "tuned"),
        "frozen": _counts(v, "frozen"),
        "killed": v.killed,
        "off_by_one_accepted_from": v.step,
        "speed": {name: _number(x) for name, x in asdict(speed(v)).items()},
        "outcomes": "".join(_LETTER[r.outcome] for _, r in judged(v)),
    }


def _counts(v: Verdicts, half: str | None) -> dict[str, Any]:
    s = summary(v, half)
    return asdict(s) | {"false_reject": _number(s.false_reject), "false_accept": _number(s.false_accept)}


def _number(x: float) -> float | None:
    return float(f"{x:.6g}") if math.isfinite(x) else None


def corpus_facts(c: Corpus) -> dict[str, Any]:
    same = Counter("same" if p.equal else "different" for p in c.pairs if p.part == "pairs")
    parts = Counter(p.part for p in c.pairs)
    return {
        "name": c.name, "seed": c.seed, "digest": c.digest, "pairs": len(c.pairs), **same,
        "ladder": parts["ladder"], "hostile": parts["hostile"], "halves": dict(Counter(p.half for p in c.pairs)),
        "left_out_as_duplicates": c.duplicates, "certificates": c.certificates, "skipped": c.skipped,
    }  # fmt: skip


def machine() -> str:
    """Cores, processor and system, without a name of the machine."""
    model = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else model
    return f"{os.cpu_count()} cores, {model}, {platform.system()}"


def as_markdown(audits: Sequence[Verdicts], level: int = 2) -> str:
    """The tables, each corpus under its heading."""
    out = []
    for name, group in by_corpus(audits).items():
        facts = corpus_facts(group[0].corpus)
        out.append(f"{'#' * level} {corpus_title(name)}")
        out.append(
            f"{facts['pairs']} pairs (seed {facts['seed']}, digest {facts['digest']}): "
            f"{facts.get('same', 0)} the same, {facts.get('different', 0)} different, "
            f"{facts['ladder']} off by one, {facts['hostile']} hostile. "
            f"{facts['left_out_as_duplicates']} more were duplicates."
            + "".join(f" Skipped golds: {why} {n}." for why, n in facts["skipped"].items())
        )
        out += [markdown(table, level + 1) for table in tables(group)]
    return "\n\n".join(out) + "\n"


def corpus_title(corpus: str) -> str:
    titles = {
        "math": "Mathematics",
        "wide": "More kinds of mathematics",
        "numbers": "Numbers",
        "choice": "Letters of a choice",
        "json": "JSON",
        "code": "Programs",
    }
    return titles.get(corpus, "Golds of a file")


def markdown(table: Table, level: int) -> str:
    title = f"{table.key}: {table.title}" if table.key[1:2].isdigit() else table.title
    lines = [f"{'#' * level} {title}", "", table.note, "", _row(table.columns), "|" + "---|" * len(table.columns)]
    return "\n".join(lines + [_row(row) for row in table.rows])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

"""Small things that the verbs share: text that fits the terminal, tables, JSON."""

from __future__ import annotations

import json
import math
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer

WIDEST = 100  # longer lines are hard to read


def width() -> int:
    return min(WIDEST, shutil.get_terminal_size((80, 24)).columns)


def wrapped(text: str, indent: str = "") -> str:
    """Each line of the text wrapped by itself; indented lines, such as formulas, are left alone."""
    lines = []
    for line in text.splitlines():
        if line.startswith(" ") or not line:
            lines.append(f"{indent}{line}".rstrip())
        else:
            lines += textwrap.wrap(line, width(), initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines)


def paragraphs(text: str, indent: str = "") -> str:
    """A docstring refilled to the terminal's width: a paragraph, or a `name: meaning` entry, at a time. Paragraphs with
    indented lines, such as formulas and lists, keep their lines."""
    out = []
    for block in text.strip().split("\n\n"):
        if re.search(r"^[ *-]", block, re.MULTILINE):
            out.append(wrapped(block, indent))
        else:
            entries = re.split(r"\n(?=[a-z_][\w, ]*: )", block)
            out.append("\n".join(wrapped(" ".join(entry.splitlines()), indent) for entry in entries))
    return "\n\n".join(out)


def table(rows: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """Columns as wide as they need to be; the last one wraps."""
    if not rows:
        return ""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    out = []
    for row in rows:
        head = indent + "".join(f"{cell:<{w}}  " for cell, w in zip(row, widths))
        hanging = " " * len(head)
        out += textwrap.wrap(row[-1], max(24, width()), initial_indent=head, subsequent_indent=hanging) or [
            head.rstrip()
        ]
    return "\n".join(out)


def sentence(text: str) -> str:
    """The first sentence of a summary, on one line."""
    line = " ".join(text.split())
    end = line.find(". ")
    return line if end < 0 else line[: end + 1]


def estimates(told: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(measure, "0.612   95% interval 0.575 .. 0.650") of what an evaluation told."""
    for name, value in told.items():
        if isinstance(value, list):
            mean, low, high = value
            interval = "" if low is None or math.isnan(low) else f"   95% interval {low:.3f} .. {high:.3f}"
            yield name, f"{mean:.3f}{interval}"


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(measure, "0.250 (0.200 .. 0.300)  ->  0.750 (0.700 .. 0.800)") of two evaluations."""
    for name, value in before.items():
        if isinstance(value, list) and isinstance(after.get(name), list):
            yield (
                name,
                "  ->  ".join(_estimate(*side) for side in (value, after[name])),
            )


def _estimate(mean: float, low: float | None, high: float | None) -> str:
    """With its interval, where there are problems enough for one."""
    return f"{mean:.3f}" if low is None or high is None else f"{mean:.3f} ({low:.3f} .. {high:.3f})"


def as_json(value: Any) -> None:
    """To standard output; nan and infinity, which JSON has not, as null."""
    typer.echo(json.dumps(_finite(value), indent=2, ensure_ascii=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value

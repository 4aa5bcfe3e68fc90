"""How often another model, the anchor, got tasks right: the tasks.jsonl of `rlvr rollout`, read and checked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class BadAnchors(ValueError):
    """The table cannot be used; the message names file and line, or the tasks."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """`right` of `known` answers; the other answers had no verdict. verifier: fingerprints of who judged."""

    right: int
    known: int
    verifier: str = ""


def read_anchors(path: Path | str) -> dict[str, Anchor]:
    """Task id -> Anchor, of a tasks.jsonl or the folder that holds one. Raises BadAnchors."""
    file = Path(path).expanduser()
    file = file / "tasks.jsonl" if file.is_dir() else file
    if not file.is_file():
        raise BadAnchors(
            f"there is no anchor table {file}; make one with: rlvr rollout RECIPE --model ANCHOR --out DIR"
        )
    out: dict[str, Anchor] = {}
    with file.open(encoding="utf-8") as lines:
        for number, text in enumerate(lines, 1):
            if not text.strip():
                continue
            try:
                line = json.loads(text)
                id, anchor = _anchor(line)
            except (ValueError, KeyError, TypeError) as error:
                said = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
                raise BadAnchors(f"{file}, line {number}: {said}") from None
            if id in out:
                raise BadAnchors(f"{file}, line {number}: task {id!r} stands there twice")
            out[id] = anchor
    return out


def _anchor(line: Any) -> tuple[str, Anchor]:
    if not isinstance(line, Mapping):
        raise TypeError("a line is an object such as {'task': '7', 'answers': 8, 'known': 8, 'right': 3}")
    id = str(line["task"])
    answers, known, right = (_count(id, name, line[name]) for name in ("answers", "known", "right"))
    if answers < 1:
        raise ValueError(f"task {id!r} has answers = {answers}; at least one is needed")
    if not right <= known <= answers:
        raise ValueError(
            f"task {id!r} has right = {right}, known = {known}, answers = {answers}; none exceeds the next"
        )
    return id, Anchor(right, known, str(line.get("verifier", "")))


def _count(id: str, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"task {id!r} has {name} = {value!r}; it is a whole number from 0")
    return value


def listed(ids: Iterable[str], most: int = 20) -> str:
    """The first ids and the count of all."""
    every = list(ids)
    more = f" ... ({len(every)} in all)" if len(every) > most else ""
    return ", ".join(every[:most]) + more

"""TOML beyond reading it: writing a table, and finding the line on which a key stands."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date, time
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_TABLE = re.compile(r"\s*\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*=""")
_PART = re.compile(r'"([^"]*)"|' + r"'([^']*)'|([A-Za-z0-9_-]+)")


def write(table: Mapping[str, Any], under: str = "") -> str:
    """A table as TOML: plain values first, then one `[section]` for each inner table, to any depth.

    TOML has no null: None is left out of tables. Raises ValueError for values that TOML cannot hold.
    """
    given = {k: v for k, v in table.items() if v is not None}
    plain = [f"{_key(k)} = {value(v)}\n" for k, v in given.items() if not isinstance(v, Mapping)]
    out = (f"\n[{under}]\n" if under and (plain or not given) else "") + "".join(plain)
    for k, v in given.items():
        if isinstance(v, Mapping):
            out += write(v, f"{under}.{_key(k)}" if under else _key(k))
    return out


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def value(x: Any) -> str:
    """One value as TOML writes it, on one line."""
    if isinstance(x, bool):
        return "true" if x else "false"
    if isinstance(x, int | float):
        return repr(x)
    if isinstance(x, str):
        return _text(x)
    if isinstance(x, date | time):
        return x.isoformat()
    if isinstance(x, list | tuple):
        return f"[{', '.join(map(value, x))}]"
    if isinstance(x, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {value(v)}" for k, v in x.items() if v is not None) + "}"
    raise ValueError(f"{x!r} cannot be written as TOML; give a text, number, true/false, list or table")


def line_of(text: str, path: Sequence[str]) -> int | None:
    """The line (from 1) that sets a key, or the nearest table around it; None when no part of it stands there."""
    best, found, inside = 0, None, ""
    under: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if inside:  # a text of several lines
            inside = "" if inside in line else inside
            continue
        for quotes in ('"""', "'''"):
            if line.count(quotes) == 1:
                inside = quotes
        if table := _TABLE.match(line):
            under = here = _parts(table[1])
        elif key := _KEY.match(line):
            here = (*under, *_parts(key[1]))
        else:
            continue
        if len(here) > best and tuple(path[: len(here)]) == here:
            best, found = len(here), number
    return found


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(a or b or c for a, b, c in _PART.findall(dotted))

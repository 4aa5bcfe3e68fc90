"""Holm's adjustment over the papers of one issue: experiments/families.toml says which belong together."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path

from rlvr.retest.schema import REVISION
from rlvr.retest.statistics import holm


def read(folder: Path) -> dict[str, list[str]]:
    """Papers by the name of their family; {} without a file."""
    file = folder / "families.toml"
    found: dict[str, list[str]] = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    every = [paper for papers in found.values() for paper in papers]
    if twice := sorted({paper for paper in every if every.count(paper) > 1}):
        raise ValueError(f"{file}: {twice[0]} stands twice; a paper is in one family")
    return found


def adjusted(families: Mapping[str, list[str]], p: Mapping[str, float]) -> dict[str, float]:
    """Holm's p of each experiment. `p`: of method against base, by experiment; nan, or no entry, where it is not known.

    A family counts all its papers from the start, run or not. First results are adjusted among themselves, and stay
    what they are when a revision comes; a revision is adjusted in the family with all of its revisions.
    """
    out: dict[str, float] = {}
    for papers in families.values():
        first = {paper: p.get(paper, math.nan) for paper in papers}
        later = {name: value for name, value in p.items() if (m := REVISION.fullmatch(name)) and m[1] in first}
        with_later = holm({**first, **later})
        out |= holm(first) | {name: with_later[name] for name in later}
    return out

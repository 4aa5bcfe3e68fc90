"""Which columns the metrics.jsonl of a run may have, told by its plan before it is made.

What the loop and the engine tell is listed here; what pieces tell is read from the texts in the source of their
modules, "hispo/mass" or f"judge/{name}" with `*` for what is put in. So a column may be told here that no run has, but
none is left out. Of pieces from outside this package nothing is read, and any name is believed.
"""

from __future__ import annotations

import ast
import difflib
import fnmatch
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlvr.judges.choose import askers
from rlvr.plan import Plan, term_name

PACKAGE = Path(__file__).parents[1]
# Of every run, by metrics.py, loop.py and the engine.
ALWAYS = (
    *("verdict/right", "verdict/wrong", "verdict/unknown"),
    *("group/frac_solved", "group/frac_failed", "group/frac_mixed", "group/short"),
    *("rollouts/sampled", "rollouts/silent", "rollouts/tokens", "rollouts/trained"),
    *("length/mean", "length/truncated", "policy/entropy", "policy/kl_behavior", "sampler/gap", "sampler/gap_max"),
    *("optim/grad_norm", "optim/*/lr", "optim/*/grad_norm", "busy/*", "score/*/tokens"),
)
JUDGED = ("judge/calls", "judge/tokens", "judge/failed")
_NAME = re.compile(r"[\w*]+(/[\w*]+)+")


def may_have(plan: Plan, column: str) -> bool:
    """Whether a run of this plan could have such a column."""
    return any(fnmatch.fnmatchcase(column, pattern) for pattern in patterns(plan))


def nearest(plan: Plan, column: str) -> str:
    """A column that was probably meant, "" where none is like it."""
    near = difflib.get_close_matches(column, sorted(p for p in patterns(plan) if "*" not in p), 1)
    return near[0] if near else ""


def patterns(plan: Plan) -> set[str]:
    """The columns that a run of this plan may have, with `*` for any text."""
    out = {*ALWAYS, *(JUDGED if askers(plan) else ()), *(f"phase/{p.paper}" for p in plan.controllers)}
    for running in plan.phases.values():
        out |= {f"loss/{term_name(term)}" for term in running.terms}
        rewards = running.stack["reward"]
        out |= {"reward/mean"} if rewards else set()
        out |= {f"reward/{part}/mean" for p in rewards for part in getattr(p.piece, "parts", ("*",))}
        for placed in running.stack:
            out |= _told_in(_module_of(placed.piece))
    return out


def _module_of(piece: Any) -> str:
    return str(piece.__module__ if isinstance(getattr(piece, "__name__", None), str) else type(piece).__module__)


@lru_cache(maxsize=256)
def _told_in(module: str) -> frozenset[str]:
    """Every text of a module that could be a column's name."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or not Path(file).is_relative_to(PACKAGE):
        return frozenset({"*"})
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return frozenset(text for text in _texts(tree) if _NAME.fullmatch(text) and re.search(r"\w", text))


def _texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)

"""Evaluations without a verdict: what an evaluation's JSON says of answers that nobody could judge, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlvr.records import Group
from rlvr.report.text import plain

REASONS = 2  # ours: a third reason has never told more


def reasons(groups: tuple[Group, ...]) -> dict[str, int]:
    """The most frequent reasons of verdicts that are unknown, and how often each was given."""
    count: dict[str, int] = {}
    for group in groups:
        for verdict in group.verdicts.values():
            if not verdict.known:
                count[verdict.reason] = count.get(verdict.reason, 0) + 1
    return dict(sorted(count.items(), key=lambda item: -item[1])[:REASONS])


def no_verdict(told: Mapping[str, Any]) -> str:
    """ "3 of 160 answers had no verdict: timeout (2); verifier_error: KeyError: 'x' (1)"; "" where all were judged."""
    errors, samples = told.get("errors") or 0, told.get("samples")
    if not errors:
        return ""
    of = f" of {samples}" if samples else ""
    given = {plain(reason): n for reason, n in (told.get("reasons") or {}).items()}  # servers and models wrote in them
    why = next(iter(given)) if len(given) == 1 else "; ".join(f"{reason} ({n})" for reason, n in given.items())
    left = errors - sum(given.values())
    more = f"; other reasons ({left})" if why and left > 0 else ""
    return f"{errors}{of} answers had no verdict{f': {why}{more}' if why else ''}"


def over_limit(told: Mapping[str, Any], limit: float) -> str:
    """Why an evaluation is not to be believed: more answers than `unknown_limit` allows had no verdict; else ""."""
    if (told.get("errors") or 0) <= limit * told.get("samples", 0):
        return ""
    return (
        f"{no_verdict(told)}, more than unknown_limit = {limit:g}. Unknown is a fault of gold, verifier or machine: "
        "mend it, or raise the limit"
    )

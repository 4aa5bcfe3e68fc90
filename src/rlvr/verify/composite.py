"""Verifiers made of verifiers: `all_of`, `any_of`, `weighted`. How `unknown` spreads is the point.

    all_of    a known wrong decides, whatever the others know; else one unknown makes it unknown; else right
    any_of    a known right decides; else one unknown makes it unknown; else wrong
    weighted  one unknown of weight above zero makes it unknown: a share of nothing is no score

From Python or from text: `all_of(first=last_box(inner=math()), second=instructions())`; nest for more than four.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlvr.records import Rollout, Task, Verdict
from rlvr.registry import register
from rlvr.verify.verifier import Verifier, fingerprint, words

NAMES = ("first", "second", "third", "fourth")
Item = tuple[Rollout | str, Task]
Named = list[tuple[str, Verdict]]


@register("verifier", "all_of")
@dataclass(frozen=True, slots=True)
class AllOf:
    """Right iff all are right. Score: the smallest that is known. The reason is the deciding verdict's, after its name.

    Parts: each one's score under its name, and its own parts as "name/part".
    """

    first: Verifier
    second: Verifier
    third: Verifier | None = None
    fourth: Verifier | None = None

    @property
    def fingerprint(self) -> str:
        return fingerprint("all_of", self)

    def __call__(self, text: str, task: Task) -> Verdict:
        return self.judge_many([(text, task)])[0]

    def judge_many(self, items: Sequence[Item]) -> list[Verdict]:
        return [_decided(found, "wrong") for found in _each(self, items)]


@register("verifier", "any_of")
@dataclass(frozen=True, slots=True)
class AnyOf:
    """Right iff one is right. Score: the largest that is known. Reason and parts as in `all_of`."""

    first: Verifier
    second: Verifier
    third: Verifier | None = None
    fourth: Verifier | None = None

    @property
    def fingerprint(self) -> str:
        return fingerprint("any_of", self)

    def __call__(self, text: str, task: Task) -> Verdict:
        return self.judge_many([(text, task)])[0]

    def judge_many(self, items: Sequence[Item]) -> list[Verdict]:
        return [_decided(found, "right") for found in _each(self, items)]


@register("verifier", "weighted")
@dataclass(frozen=True, slots=True)
class Weighted:
    """Score: the mean of the scores by `weights`. Right iff it reaches `pass_at`; a wrong one keeps its score.

    weights: one number for each verifier, none negative, not all zero. Reasons: "reached", "not_reached", or that of an
    unknown. Parts as in `all_of`.
    """

    first: Verifier
    second: Verifier
    third: Verifier | None = None
    fourth: Verifier | None = None
    weights: tuple[float, ...] = (1.0, 1.0)
    pass_at: float = 1.0

    def __post_init__(self) -> None:
        held = sum(getattr(self, name) is not None for name in NAMES)
        sound = len(self.weights) == held and all(0 <= w < math.inf for w in self.weights) and sum(self.weights) > 0
        if not sound:
            raise ValueError(f"weighted: {held} verifiers need {held} weights, none negative, not {self.weights!r}")
        if not 0 < self.pass_at <= 1:
            raise ValueError(f"weighted: pass_at is a score in (0, 1], not {self.pass_at!r}")

    @property
    def fingerprint(self) -> str:
        return fingerprint("weighted", self)

    def __call__(self, text: str, task: Task) -> Verdict:
        return self.judge_many([(text, task)])[0]

    def judge_many(self, items: Sequence[Item]) -> list[Verdict]:
        return [self._weighed(found) for found in _each(self, items)]

    def _weighed(self, found: Named) -> Verdict:
        for (name, verdict), weight in zip(found, self.weights):
            if weight and not verdict.known:
                return Verdict("unknown", 0.0, f"{name}: {verdict.reason}", verdict.extracted, _parts(found))
        score = sum(w * v.score for (_, v), w in zip(found, self.weights)) / sum(self.weights)
        score = min(1.0, score)
        right = score >= self.pass_at - 1e-9  # weights are floats
        reason = "reached" if right else "not_reached"
        return Verdict("right" if right else "wrong", score, reason, found[0][1].extracted, _parts(found))


def _each(holder: Any, items: Sequence[Item]) -> list[Named]:
    """For each item the verdict of every verifier, under its name; each verifier sees the batch at once if it can."""
    columns = []
    for name in NAMES:
        verifier = getattr(holder, name)
        if verifier is not None:
            many = getattr(verifier, "judge_many", None)
            verdicts = many(items) if many else [verifier(words(what), task) for what, task in items]
            columns.append([(name, verdict) for verdict in verdicts])
    return [list(row) for row in zip(*columns, strict=True)]


def _decided(found: Named, deciding: Literal["right", "wrong"]) -> Verdict:
    """By the first verdict with the deciding label, else by the first unknown, else by the first."""
    name, verdict = next((nv for label in (deciding, "unknown") for nv in found if nv[1].label == label), found[0])
    scores = [v.score for _, v in found if v.known]
    score = 0.0 if not verdict.known else min(scores) if deciding == "wrong" else max(scores)
    return Verdict(verdict.label, score, f"{name}: {verdict.reason}", verdict.extracted, _parts(found))


def _parts(found: Named) -> dict[str, float]:
    parts: dict[str, float] = {}
    for name, verdict in found:
        if verdict.known:
            parts[name] = verdict.score
        parts |= {f"{name}/{key}": value for key, value in verdict.parts.items()}
    return parts

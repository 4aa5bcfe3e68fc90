"""`all_of`, `any_of`, `weighted`: every combination of labels, worked out by hand; batches; specs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from rlvr.records import Rollout, Task, Verdict
from rlvr.verify.composite import AllOf, AnyOf, Weighted
from rlvr.verify.exact import Exact
from rlvr.verify.judge import judge
from rlvr.verify.numeric import Numeric
from rlvr.verify.spec import verifier_from

TASK = Task("t1", "What?", "7")


@dataclass(frozen=True)
class Says:
    verdict: Verdict
    fingerprint: str = "says"

    def __call__(self, text: str, task: Task) -> Verdict:
        return self.verdict


R, W, U = (Says(Verdict(label, score, reason)) for label, score, reason in
           [("right", 1.0, "yes"), ("wrong", 0.0, "no"), ("unknown", 0.0, "hm")])  # fmt: skip


def label(verifier: AllOf | AnyOf | Weighted) -> str:
    return verifier("7", TASK).label


def test_all_of_is_wrong_if_any_is_known_to_be_and_unknown_before_right() -> None:
    wanted = {"RR": "right", "RW": "wrong", "WR": "wrong", "WW": "wrong", "RU": "unknown", "UR": "unknown",
              "UU": "unknown", "WU": "wrong", "UW": "wrong"}  # fmt: skip
    known = {"R": R, "W": W, "U": U}
    assert {a + b: label(AllOf(known[a], known[b])) for a, b in itertools.product("RWU", repeat=2)} == wanted
    assert label(AllOf(R, R, U, W)) == "wrong"
    assert label(AllOf(R, R, R, R)) == "right"


def test_any_of_is_right_if_any_is_known_to_be_and_unknown_before_wrong() -> None:
    wanted = {"RR": "right", "RW": "right", "WR": "right", "WW": "wrong", "RU": "right", "UR": "right",
              "UU": "unknown", "WU": "unknown", "UW": "unknown"}  # fmt: skip
    known = {"R": R, "W": W, "U": U}
    assert {a + b: label(AnyOf(known[a], known[b])) for a, b in itertools.product("RWU", repeat=2)} == wanted


def test_weighted_is_the_mean_by_weights_and_knows_nothing_of_a_share_that_is_unknown() -> None:
    found = Weighted(R, W, weights=(3, 1))("7", TASK)
    assert (found.label, found.score, found.reason) == ("wrong", 0.75, "not_reached")
    assert Weighted(R, W, weights=(3, 1), pass_at=0.75)("7", TASK).label == "right"
    found = Weighted(R, U, weights=(3, 1))("7", TASK)
    assert (found.label, found.score, found.reason) == ("unknown", 0.0, "second: hm")
    assert label(Weighted(R, U, weights=(1, 0))) == "right"
    thirds = Weighted(R, R, R, weights=(0.1, 0.1, 0.1))("7", TASK)
    assert (thirds.label, thirds.score) == ("right", 1.0)


def test_reasons_and_parts_say_whose_they_are() -> None:
    graded = Says(Verdict("wrong", 0.5, "half", "x", {"a": 2.0}))
    found = AllOf(R, graded)("7", TASK)
    assert (found.label, found.score, found.reason, found.extracted) == ("wrong", 0.5, "second: half", "x")
    assert found.parts == {"first": 1.0, "second": 0.5, "second/a": 2.0}
    assert AnyOf(graded, W)("7", TASK).score == 0.5
    assert AllOf(R, U)("7", TASK).parts == {"first": 1.0}
    assert AllOf(R, U)("7", TASK).score == 0.0
    assert AllOf(graded, U)("7", TASK).score == 0.5


def test_a_verifier_that_judges_batches_gets_the_batch() -> None:
    seen: list[int] = []

    class Batched(Says):
        def judge_many(self, items: Sequence[tuple[Rollout | str, Task]]) -> list[Verdict]:
            seen.append(len(items))
            return [Exact()(str(what), task) for what, task in items]

    both = AllOf(Batched(R.verdict), Numeric())
    assert [v.label for v in judge(both, [("7", TASK), ("8", TASK), ("7.0", TASK)])] == ["right", "wrong", "wrong"]
    assert seen == [3]


def test_they_are_written_as_text_and_as_tables() -> None:
    made = verifier_from("all_of(first=numeric(), second=any_of(first=exact(), second=last_box()))")
    assert made == AllOf(Numeric(), verifier_from("any_of(first=exact(), second=last_box())"))
    assert verifier_from(made.fingerprint).fingerprint == made.fingerprint
    table = {"name": "weighted", "first": {"name": "numeric"}, "second": {"name": "exact"}, "weights": [1, 2]}
    assert verifier_from(table)("7", TASK).label == "right"


def test_weights_are_checked() -> None:
    for weights in ((1.0,), (1.0, -1.0), (0.0, 0.0), (float("nan"), 1.0), (1.0, float("inf"))):
        with pytest.raises(ValueError, match="2 verifiers need 2 weights"):
            Weighted(R, W, weights=weights)
    with pytest.raises(ValueError, match="pass_at"):
        Weighted(R, W, pass_at=0.0)

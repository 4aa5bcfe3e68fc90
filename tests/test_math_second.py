"""The second opinion: the verdict stays the inner verifier's, and what math-verify sees differently is noted."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from rlvr.records import Task
from rlvr.verify.exact import Exact
from rlvr.verify.math_answer import Math
from rlvr.verify.second_opinion import SecondOpinion
from rlvr.verify.spec import verifier_from
from rlvr.verify.verifier import VerifierBroken
from rlvr.verify.worker import WorkerFailed

INSTALLED = importlib.util.find_spec("math_verify") is not None


class Oracle:
    """In the place of the process: says what it was told to say, and keeps the questions."""

    def __init__(self, says: Any):
        self.says, self.asked = says, []  # type: ignore[var-annotated]

    def ask(self, question: str, seconds: float) -> Any:
        self.asked.append((json.loads(question), seconds))
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


def with_oracle(says: Any, folder: Path) -> tuple[SecondOpinion, Oracle]:
    verifier, oracle = SecondOpinion(differences=str(folder / "differences.jsonl")), Oracle(says)
    object.__setattr__(verifier, "_worker", oracle)
    return verifier, oracle


def task(gold: object) -> Task:
    return Task("t7", "What is it?", gold)


def test_another_view_is_noted_and_changes_nothing(tmp_path: Path) -> None:
    verifier, oracle = with_oracle(True, tmp_path)
    verdict = verifier("It is \\boxed{5\\text{ m}}.", task("5\\text{ cm}"))
    assert (verdict.label, verdict.reason, verdict.parts) == ("wrong", "different", {"second_opinion": 1.0})
    assert oracle.asked == [(["5\\text{ cm}", "5\\text{ m}"], 5.0)]
    assert verifier("\\boxed{5}", task("5")).label == "right"  # here they agree
    (line,) = (tmp_path / "differences.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line) == {
        "task": "t7", "gold": "5\\text{ cm}", "answer": "5\\text{ m}", "ours": "wrong", "reason": "different",
        "theirs": "right",
    }  # fmt: skip


@pytest.mark.parametrize("says", [None, TimeoutError(), WorkerFailed("verifier_error: its process ended by itself")])
def test_without_an_opinion_nothing_is_noted(says: Any, tmp_path: Path) -> None:
    verifier, _ = with_oracle(says, tmp_path)
    verdict = verifier("\\boxed{5}", task("5"))
    assert (verdict.label, dict(verdict.parts)) == ("right", {})
    assert not list(tmp_path.iterdir())


def test_nobody_is_asked_where_there_is_nothing_to_compare(tmp_path: Path) -> None:
    verifier, oracle = with_oracle(False, tmp_path)
    assert verifier("I do not know.", task("5")).reason == "no_answer"
    assert verifier("\\boxed{5}", task(None)).reason == "bad_gold"
    assert verifier("\\boxed{5}", task("\\frac{1}{")).reason == "bad_gold"
    assert not oracle.asked


def test_it_is_a_verifier_like_others() -> None:
    verifier = verifier_from("second_opinion(inner=exact, seconds=2.0)")
    assert verifier == SecondOpinion(Exact(), seconds=2.0)
    assert verifier_from(verifier.fingerprint) == verifier
    assert SecondOpinion().inner == Math()
    with pytest.raises(ValueError, match="seconds is the time for one opinion"):
        SecondOpinion(seconds=0)


@pytest.mark.skipif(INSTALLED, reason="math-verify is installed")
def test_without_math_verify_it_says_what_to_install(tmp_path: Path) -> None:
    verifier = SecondOpinion(differences=str(tmp_path / "differences.jsonl"))
    with pytest.raises(VerifierBroken, match=r"pip install 'rlvr\[math\]'"):
        verifier("\\boxed{5}", task("5"))


@pytest.mark.skipif(not INSTALLED, reason="math-verify is not installed")
def test_math_verify_is_asked_and_killed_when_it_hangs(tmp_path: Path) -> None:
    verifier = SecondOpinion(differences=str(tmp_path / "differences.jsonl"), seconds=3.0)
    assert verifier("\\boxed{0.5}", task("\\frac12")).parts == {"second_opinion": 1.0}
    assert verifier("\\boxed{0.6}", task("\\frac12")).parts == {"second_opinion": 0.0}
    assert not verifier("\\boxed{5^{5^{5^{5^5}}}}", task("3")).parts  # it would take for ever
    assert verifier("\\boxed{0.5}", task("\\frac12")).parts == {"second_opinion": 1.0}
    assert not list(tmp_path.iterdir())

"""my_verifier says right, wrong and nothing where it should."""

from pathlib import Path

from rlvr.records import Task
from rlvr.registry import load_path
from rlvr.verify.spec import verifier_from

HERE = f"{Path(__file__).with_name('my_verifier.py')}"
my_verifier = load_path(f"{HERE}:my_verifier")


def test_the_last_line_decides() -> None:
    assert my_verifier("Let me think.\nParis.\n", "paris")
    assert not my_verifier("Paris\nor rather Rome", "Paris")


def test_an_empty_answer_is_wrong_and_a_missing_gold_is_no_verdict() -> None:
    assert my_verifier("", "Paris") is False
    assert my_verifier("Paris", None) is None


def test_a_run_uses_it_by_its_file() -> None:
    verifier = verifier_from(f"{HERE}:my_verifier")
    labels = [verifier("Paris", Task("t", "?", gold)).label for gold in ("Paris", "Rome", None)]
    assert labels == ["right", "wrong", "unknown"]

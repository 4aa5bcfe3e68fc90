"""What other verifiers' own tests say is equal or not, beside what ours says: tests/cases/published/README.md."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rlvr.records import Task
from rlvr.verify.math_answer import Math

FOLDER = Path(__file__).parent / "cases" / "published"
PAIRS: list[dict[str, Any]] = [json.loads(line) for line in (FOLDER / "pairs.jsonl").read_text("utf-8").splitlines()]
TABLE = tomllib.loads((FOLDER / "disagreements.toml").read_text("utf-8"))
CONVENTIONS = TABLE.pop("conventions")
WHOSE = {test: kind for kind, rows in TABLE.items() for test in rows}


def disagree() -> set[str]:
    said = {p["test"]: Math(**p["settings"])(p["answer"], Task("t", "", p["gold"])).label for p in PAIRS}
    return {p["test"] for p in PAIRS if (said[p["test"]] == "right") != p["equal"]}


def test_every_disagreement_is_in_the_table_and_nothing_else_is() -> None:
    assert len({p["test"] for p in PAIRS}) == len(PAIRS)
    assert disagree() == set(WHOSE)


def test_the_table_names_a_convention_or_works_the_value_out() -> None:
    assert set(TABLE) <= {"theirs", "ours", *CONVENTIONS}
    assert all(TABLE["theirs"].values())
    assert all(TABLE["ours"].values())
    docs = (FOLDER.parents[2] / "docs" / "verifiers.md").read_text("utf-8")
    for name, sentence in CONVENTIONS.items():
        assert sentence in " ".join(docs.split()), f"docs/verifiers.md does not say the convention {name!r}"


@pytest.mark.parametrize("source", sorted({p["source"] for p in PAIRS}))
def test_most_agree_and_few_are_theirs(source: str) -> None:
    asked = [p["test"] for p in PAIRS if p["source"] == source]
    others = [WHOSE[test] for test in asked if test in WHOSE]
    assert 1 - len(others) / len(asked) >= 0.85
    assert others.count("theirs") / len(asked) <= 0.05

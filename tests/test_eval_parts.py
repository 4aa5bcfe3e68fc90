"""eval.by: an evaluation's results also by a value that its tasks carry in `meta`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import rlvr
from rlvr.evaluate.parts import MOST, part_of, refuse_by
from rlvr.records import Task
from rlvr.tasks.synthetic import running_sums

KINDS = ["odd", "even", None]  # the third is in no part


def tasks(n: int) -> list[Task]:
    """Sums that nano knows, every third of which tells no kind."""
    meta = lambda kind: {} if kind is None else {"kind": kind}  # noqa: E731
    return [replace(task, meta=meta(KINDS[i % 3])) for i, task in enumerate(running_sums(n, levels=(2, 3)))]


def test_each_part_is_the_mean_of_its_own_problems(tmp_path: Path) -> None:
    every = tasks(60)
    rlvr.train(
        "nano",
        tasks=every,
        out=str(tmp_path / "run"),
        steps=1,
        prompts_per_step=2,
        group_size=2,
        max_tokens=16,
        eval={"problems": 30, "k": 4, "holdout": 0.5, "by": "kind"},
    )
    told = json.loads((tmp_path / "run" / "eval.json").read_text())
    of = {task.id: task.meta.get("kind") for task in every}
    for when in ("before", "after"):
        (found,) = told[when].values()
        rows = [json.loads(line) for line in (tmp_path / "run" / f"eval-{when}.jsonl").read_text().splitlines()]
        shares = {kind: [row["share_right"] for row in rows if of[row["task"]] == kind] for kind in KINDS}
        assert sum(shares["odd"]) / len(shares["odd"]) != sum(shares["even"]) / len(shares["even"])
        for kind in ("odd", "even"):
            assert found[f"mean@4/{kind}"][0] == pytest.approx(sum(shares[kind]) / len(shares[kind]))
            solved = [share > 0 for share in shares[kind]]
            assert found[f"pass@4/{kind}"][0] == pytest.approx(sum(solved) / len(solved))
        assert found["mean@4"][0] == pytest.approx(sum(row["share_right"] for row in rows) / len(rows))
        assert {name.partition("/")[2] for name in found} == {"", "odd", "even"}


def test_what_parts_nothing_or_too_much_is_refused() -> None:
    refuse_by(tasks(6), "kind")
    refuse_by(tasks(6), None)
    refuse_by([], "kind")
    with pytest.raises(ValueError, match=r'eval.by = "knd" .* there are: kind$'):
        refuse_by(tasks(6), "knd")
    many = [Task(str(i), "1+1=", "2", meta={"n": i, "steps": ["1"]}) for i in range(MOST + 1)]
    with pytest.raises(ValueError, match=f"makes {MOST + 1} parts of {MOST + 1} evaluation tasks"):
        refuse_by(many, "n")
    with pytest.raises(ValueError, match=r"there are: n$"):  # a list names no part
        refuse_by(many, "steps")


def test_numbers_and_truth_name_parts() -> None:
    task = Task("1", "1+1=", "2", meta={"level": 6, "hard": False, "none": None})
    assert [part_of(task, key) for key in ("level", "hard", "none", "absent")] == ["6", "False", None, None]

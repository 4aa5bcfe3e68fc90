"""Held-out tasks: chosen by their prompts, so that what is trained on is never asked in evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rlvr
from rlvr.assemble import tasks_of
from rlvr.holdout import about_leaks, held_out
from rlvr.recipe import make_recipe
from rlvr.records import Task

SMALL = {"steps": 1, "prompts_per_step": 2, "group_size": 2, "max_tokens": 8, "sinks": ["jsonl"]}


def asked(*prompts: str) -> list[Task]:
    return [Task(str(i), prompt, "4", verifier="numeric") for i, prompt in enumerate(prompts)]


def test_equal_prompts_stay_on_one_side_whatever_their_ids_and_order() -> None:
    tasks = asked(*(f"{i % 20:02d}+01=" + " " * (i // 20) for i in range(100)))  # each of 20 prompts five times
    train, held = held_out(tasks, 0.25, 1000)
    assert (len(train), len(held)) == (75, 25)
    assert not {t.prompt.strip() for t in train} & {t.prompt.strip() for t in held}  # type: ignore[union-attr]
    again = held_out([Task(f"other-{t.id}", t.prompt, t.answer) for t in reversed(tasks)], 0.25, 1000)
    assert {t.prompt for t in again[1]} == {t.prompt for t in held}
    assert [t.id for t in train] == sorted((t.id for t in train), key=int)  # the order of the file


def test_no_more_than_the_share_and_the_number_of_problems() -> None:
    tasks = asked(*(f"{i}" for i in range(40)))
    assert len(held_out(tasks, 0.1, 200)[1]) == 4
    assert len(held_out(tasks, 0.5, 7)[1]) == 7
    assert held_out(tasks, 0.5, 0)[1] == []
    assert held_out(asked("same", "same", "same", "same"), 0.5, 200)[1] == []  # one prompt cannot be on both sides


def test_chat_prompts_are_told_apart_by_their_messages() -> None:
    chats = [Task(str(i), ({"role": "user", "content": str(i // 2)},), "1") for i in range(20)]
    train, held = held_out(chats, 0.2, 100)
    assert len(held) == 4
    assert not {t.prompt[0]["content"] for t in train} & {t.prompt[0]["content"] for t in held}  # type: ignore[index]


def written(path: Path, n: int) -> str:
    rows = [{"prompt": f"{i:02d}+01=", "answer": str(i + 1), "verifier": "numeric"} for i in range(n)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(
    ("n", "share", "says"),
    [
        (40, 0.1, "4 of 40 tasks are held out for evaluation (eval.holdout = 0.1)"),
        (4, 0.1, "no task is held out (eval.holdout = 0.1, which is less than one of 4 tasks), so nothing is"),
        (40, 0.0, "no task is held out (eval.holdout = 0), so nothing is evaluated; raise eval.holdout"),
        (3, 0.9, "all 3 tasks are held out (eval.holdout = 0.9), so none is left to train on; lower eval.holdout"),
    ],
)
def test_how_many_are_held_out_is_said(n: int, share: float, says: str, tmp_path: Path) -> None:
    recipe = make_recipe({"tasks": written(tmp_path / "t.jsonl", n), "eval": {"holdout": share}})
    assert tasks_of(recipe)[2].startswith(says)
    assert tasks_of(recipe, asked(*map(str, range(n))))[2].startswith(says)


def test_a_set_of_its_own_that_shares_prompts_is_told() -> None:
    assert about_leaks(asked("a", "b"), asked("c", "d")) == ""
    assert about_leaks(asked("a", "b"), asked("c", "a ")).startswith("1 of 2 evaluation prompts are trained on too")


def test_tasks_from_python_are_called_yours_and_a_few_are_held_out(tmp_path: Path) -> None:
    tasks = [Task(str(i), f"{i:02d}+01=", str(i + 1)) for i in range(20)]
    run = rlvr.train(
        "nano", tasks=tasks, verifier="numeric", out=str(tmp_path / "run"), eval={"problems": 4, "k": 2}, **SMALL
    )
    told = json.loads((tmp_path / "run" / "eval.json").read_text())
    assert list(told["before"]) == list(told["after"]) == ["your tasks"]
    assert "running_sums" not in run.folder.joinpath("report.html").read_text().split("recipe")[0]
    events = (tmp_path / "run" / "events.jsonl").read_text()
    assert "2 of 20 tasks are held out for evaluation" in events
    trained = {row.task for row in run.rollouts()}
    held = {json.loads(line)["task"] for line in (tmp_path / "run" / "eval-before.jsonl").read_text().splitlines()}
    assert len(held) == 2
    assert not trained & held


def test_where_all_are_held_out_nothing_is_trained_and_no_folder_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="all 3 tasks are held out"):
        rlvr.train("nano", tasks=asked("1", "2", "3"), out=str(tmp_path / "run"), eval={"holdout": 0.9}, **SMALL)
    assert not (tmp_path / "run").exists()

"""Tasks and methods from Python: what is plainly meant is taken, anything else is one sentence."""

from pathlib import Path
from typing import Any

import pytest

import rlvr
from rlvr import Task
from rlvr.assemble import tasks_of
from rlvr.methods.grpo import grpo
from rlvr.recipe import make_recipe
from rlvr.tasks import DataError
from rlvr.tasks.given import as_tasks

ONE, TWO = Task("a", "1+1=", answer="2"), Task("b", "1+2=", answer="3")
ROWS = [{"prompt": "1+1=", "answer": "2"}, {"prompt": "1+2=", "answer": "3", "id": "own"}]


@pytest.mark.parametrize(
    "given",
    [[ONE, TWO], (ONE, TWO), (t for t in (ONE, TWO)), {ONE.id: ONE, TWO.id: TWO}.values()],
    ids=["list", "tuple", "generator", "values"],
)
def test_any_iterable_of_tasks_is_taken(given: Any) -> None:
    assert as_tasks(given) == (ONE, TWO)


def test_one_task_is_a_list_of_one() -> None:
    assert as_tasks(ONE) == (ONE,)


def test_dictionaries_are_rows_as_in_a_file() -> None:
    tasks = as_tasks(dict(row) for row in ROWS)
    assert [(t.id, t.prompt, t.answer) for t in tasks] == [("item-0", "1+1=", "2"), ("own", "1+2=", "3")]
    assert as_tasks(ROWS[0]) == tasks[:1]
    with pytest.raises(DataError, match=r"in the tasks:\n  item 1: `answer` is missing"):
        as_tasks([ROWS[0], {"prompt": "1+1="}])


def make() -> list[Task]:
    return [ONE]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "`tasks` is None; expected a list of rlvr.Task"),
        (3, "`tasks` is int 3; expected a list of rlvr.Task"),
        ([], "`tasks` is empty; expected"),
        ([1, 2], "`tasks` is a list whose item 0 is int 1; expected"),
        ([ONE, None], "`tasks` is a list whose item 1 is None; expected"),
        ([ONE, ROWS[0]], "`tasks` is a list whose item 0 is Task a; Tasks and dictionaries are mixed; expected"),
        (make, r"`tasks` is the function make; call it: tasks=make\(\)"),
    ],
    ids=["none", "number", "empty", "numbers", "none inside", "mixed", "function"],
)
def test_what_is_no_tasks_is_one_sentence(given: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"^{said}"):
        rlvr.train(tasks=given, out=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (grpo, r"`method` is function .*; call it: method=grpo\(\); expected a Method"),
        (None, "`method` is NoneType None; expected a Method"),
        ([], r"`method` is list \[\]; expected a Method"),
        (["dapo", grpo()], "`method` is list .*; expected a Method"),
        (["dapo", "rlo"], "did you mean 'rloo'"),
    ],
)
def test_what_is_no_method_is_one_sentence(method: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        rlvr.train(tasks=[ONE], method=method)


def test_a_list_of_names_is_a_stack_and_a_path_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("rlvr.run.train", lambda recipe, *rest, **named: asked.append((recipe, named)))
    rlvr.train(tasks=Path("my.jsonl"), method=["dapo", "rloo"])
    recipe, named = asked[0]
    assert (recipe.method, recipe.tasks) == ("dapo,rloo", {"name": "jsonl", "path": "my.jsonl"})
    assert named["tasks"] is named["method"] is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return 3", "the task source .*own.py:make returned int 3; expected a list of rlvr.Task"),
        ("return None", "own.py:make returned None; expected"),
        ("yield 1", "own.py:make returned a generator whose item 0 is int 1; expected"),
        ("return []", "own.py:make returned empty; expected"),
    ],
)
def test_a_source_that_makes_no_tasks_is_named(body: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(f"def make():\n    {body}\n")
    with pytest.raises(DataError, match=said):
        tasks_of(make_recipe({"tasks": f"{tmp_path}/own.py:make"}))


def test_a_source_may_yield_its_tasks(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from rlvr import Task\ndef make():\n    for i in '0123456789':\n        yield Task(i, i, answer=i)\n"
    )
    train, held, _ = tasks_of(make_recipe({"tasks": f"{tmp_path}/own.py:make"}))
    assert len(train) + len(held) == 10

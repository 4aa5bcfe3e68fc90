"""Tasks that came as Python objects: from `rlvr.train(tasks=...)`, or from a source, which is somebody's function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlvr.records import Task
from rlvr.registry import get
from rlvr.tasks import DataError
from rlvr.tasks.rows import Raw, options_from, read_rows

WANTED = "a list of rlvr.Task(id, prompt, answer=...), or of dictionaries with `prompt` and `answer`"


def from_source(name: str, settings: Mapping[str, Any]) -> tuple[Task, ...]:
    """What a task source makes. Raises DataError where that is not tasks."""
    return as_tasks(get("tasks", name)(**settings), f"the task source {name} returned")


def as_tasks(given: Any, came: str = "`tasks` is") -> tuple[Task, ...]:
    """Any iterable of tasks, or of rows as in a JSONL file; one task or row alone is a list of one. Iterables are read
    to their end. Raises DataError; `came` starts its sentence."""
    if isinstance(given, Task | Mapping):
        given = (given,)
    if callable(given):
        raise DataError(f"{came} the function {getattr(given, '__name__', given)}; call it: tasks={_name(given)}()")
    if given is None or isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise DataError(f"{came} {_shown(given)}; expected {WANTED}")
    every = tuple(given)
    if not every:
        raise DataError(f"{came} empty; expected {WANTED}")
    if all(isinstance(task, Task) for task in every):
        return every
    if all(isinstance(row, Mapping) for row in every):
        rows = (Raw(row, f"item {i}", f"item {i}", f"item-{i}") for i, row in enumerate(every))
        return read_rows(rows, "the tasks", "", options_from(None, None, None))
    kind = type(next((x for x in every if not isinstance(x, Task | Mapping)), every[0]))
    at, odd = next((i, x) for i, x in enumerate(every) if type(x) is kind)
    mixed = "; Tasks and dictionaries are mixed" if issubclass(kind, Task | Mapping) else ""
    raise DataError(f"{came} a {type(given).__name__} whose item {at} is {_shown(odd)}{mixed}; expected {WANTED}")


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", "make_tasks"))


def _shown(x: Any) -> str:
    if x is None or isinstance(x, Task):
        return "None" if x is None else f"Task {x.id}"
    text = repr(x)
    return f"{type(x).__name__} {text if len(text) <= 40 else text[:37] + '...'}"

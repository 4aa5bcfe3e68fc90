"""An evaluation's tasks by a value that they carry in `meta`: recipe key eval.by. Each part is summed up by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlvr.records import Task

MOST = 20  # parts of one evaluation, ours: more are hardly read


def part_of(task: Task, by: str) -> str | None:
    """The name of the task's part; None where it is in none."""
    value: Any = task.meta.get(by)
    return str(value) if isinstance(value, str | int | float) else None


def refuse_by(tasks: Sequence[Task], by: str | None) -> None:
    """Raises ValueError where `by` parts no task, or parts them into too many."""
    if by is None or not tasks:
        return
    parts = {part_of(task, by) for task in tasks} - {None}
    if not parts:
        there = sorted({key for task in tasks for key in task.meta if part_of(task, key) is not None})
        raise ValueError(
            f'eval.by = "{by}" parts evaluation by a text or number in `meta`, and none of the tasks has one of that '
            f"name; there are: {', '.join(there) or 'none'}"
        )
    if len(parts) > MOST:
        raise ValueError(
            f'eval.by = "{by}" makes {len(parts)} parts of {len(tasks)} evaluation tasks; at most {MOST} are told apart'
        )

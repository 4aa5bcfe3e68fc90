"""What a check says: a plain sentence, the setting that mends it, and how bad it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rlvr.records import Task

Severity = Literal["wrong", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`wrong`: the run will not learn what it should; `warning`: it will, and pays for it."""

    check: str  # a short name, the same for every such fault: "gold_unreadable"
    severity: Severity
    says: str  # what is wrong, with an example
    mend: str  # which setting or file to change, and to what

    def __str__(self) -> str:
        return f"{self.says} {self.mend}"


def example(tasks: Sequence[Task]) -> str:
    """One of the tasks, for a sentence: `task 17 (gold '1,234')`."""
    gold = str(tasks[0].answer)
    return f"task {tasks[0].id} (gold {gold[:40] + ('...' if len(gold) > 40 else '')!r})"

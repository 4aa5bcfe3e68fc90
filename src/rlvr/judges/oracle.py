"""The oracle: a program that knows every step of the built-in tasks, from `meta["steps"]` and from arithmetic.

    running_sums, modular_chains   each step is the known one at its place
    choice                         each step is one of the known ones, none twice: * and + leave some freedom of order
    countdown                      each step is true and takes numbers that are there; each of them once

and the `#answer` is what the task's own verifier calls right. Steps are compared item by item (items end at spaces,
commas and before #), however the text was cut. A program is not persuaded, and the only reader of its answers is the
loss.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlvr.judges.judge import FirstMistake, JudgeBroken, JudgeFailed, Said
from rlvr.records import Task
from rlvr.tasks.synthetic import VERIFIERS, apply
from rlvr.verify.judge import named

ITEM = re.compile(r"#[^\s,#]*|[^\s,#]+")
TRUE = re.compile(r"(\d{1,9})([+*-])(\d{1,9})=(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Oracle:
    """Knows the built-in tasks, and no other."""

    sees_all: ClassVar = True

    async def ask(self, question: FirstMistake, key: int) -> Said:
        if question.task.made_by not in RULES:
            raise JudgeFailed(f"the oracle knows no rule for tasks of {question.task.made_by or 'this source'}")
        items = [(n, item) for n, step in enumerate(question.steps) for item in ITEM.findall(step)]
        if not question.complete:
            items = items[:-1]  # the last one may be the beginning of a right one
        wrong = first_wrong(question.task, [item for _, item in items])
        return Said(None if wrong is None else items[wrong][0])

    def check(self, tasks: Sequence[Task]) -> None:
        if (other := next((t for t in tasks if t.made_by not in RULES), None)) is not None:
            raise JudgeBroken(
                f"the oracle judges {', '.join(sorted(RULES))}, and task {other.id} is none of them; name another "
                'judge: judge = "policy", or a table [judge] with url and model'
            )


def _in_order(task: Task, steps: Sequence[str]) -> Iterator[bool]:
    known = task.meta["steps"]
    for n, step in enumerate(steps):
        yield n < len(known) and step == known[n]


def _in_any_order(task: Task, steps: Sequence[str]) -> Iterator[bool]:
    left = Counter(task.meta["steps"])
    for step in steps:
        yield left[step] > 0
        left[step] -= 1


def _with_numbers(task: Task, steps: Sequence[str]) -> Iterator[bool]:
    left = Counter(map(int, task.meta["numbers"]))
    for step in steps:
        if (found := TRUE.fullmatch(step)) is None:
            yield False
            continue
        a, op, b, c = int(found[1]), found[2], int(found[3]), int(found[4])
        left.subtract((a, b))
        yield apply(a, op, b) == c and left[a] >= 0 and left[b] >= 0
        left[c] += 1


RULES: dict[str, Callable[[Task, Sequence[str]], Iterator[bool]]] = {
    "running_sums": _in_order,
    "modular_chains": _in_order,
    "choice": _in_any_order,
    "countdown": _with_numbers,
}


def first_wrong(task: Task, items: Sequence[str]) -> int | None:
    """Index of the first item that is wrong: steps by the task's rule, answers between them by its verifier. What
    follows it is not looked at."""
    steps = RULES[task.made_by](task, [item for item in items if not item.startswith("#")])
    for n, item in enumerate(items):
        if item.startswith("#"):
            right = named(VERIFIERS[task.made_by])(item, task).label == "right"
        else:
            right = next(steps)
        if not right:
            return n
    return None

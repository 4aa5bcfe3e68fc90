"""Solutions that somebody else wrote, as rows of another batch: the prompt that the policy answered, then the solution.

What of an answer is compared with them, its span, is what stands before the end of thinking where that is marked, else
all of it; of spans above a limit the last tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rlvr import streams
from rlvr.records import Group, Origin, Rollout, Task
from rlvr.report.store import read_rows, rollout_files
from rlvr.rollout.thinking import Thinking
from rlvr.rollout.world import World
from rlvr.views import SIDE

SPAN = "anchors/span"
SOLUTIONS, TEACHER = "anchors/solutions", "anchors/teacher"
KEYS = ("solution", "demo")  # where a task keeps a worked solution, the first that it has
streams.declare("token", SPAN, "1 for tokens that are compared with a solution, else 0")


class NoAnswers(ValueError):
    """The folder of a teacher's answers cannot be used; the message says why."""


@dataclass(frozen=True)
class Anchors:
    """The task's own solutions, and right answers of a teacher from a folder of `rlvr rollout`; of each kind the first
    `most` that differ in more than spaces.

    key: of task.meta, a text or several; None: the first of KEYS. mark: text that ends thinking; None: nothing does.
    tokens: the most of a solution's span that are looked at, evenly taken; None: all.
    """

    key: str | None = None
    teacher: str | None = None
    most: int = 4
    mark: str | None = "</think>"
    max_tokens: int = 16384
    tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("most", "max_tokens", "tokens"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} is at least 1, got {value}")
        if self.mark == "":
            raise ValueError("mark is the text that ends thinking; leave it out (None) where there is none")

    @property
    def gives(self) -> tuple[str, ...]:
        return (SPAN, SIDE + SOLUTIONS, *((SIDE + TEACHER,) if self.teacher else ()))

    async def __call__(self, group: Group, world: World) -> dict[str, Any]:
        told: dict[str, Any] = {SPAN: [self.span(row, world) for row in group.rollouts]}
        told[SIDE + SOLUTIONS] = self.rows(group, self.solutions(group.task), world)
        if self.teacher:
            told[SIDE + TEACHER] = self.rows(group, right_answers(self.teacher).get(group.task.id, ()), world)
        return told

    def lacks(self, tasks: Sequence[Task]) -> str:
        """Also where a teacher was named and answered none of these tasks. Raises NoAnswers, and ValueError where a
        solution is no text."""
        anchored = [any(text.strip() for text in self.solutions(task)) for task in tasks]
        if self.teacher and not any(right_answers(self.teacher).get(task.id) for task in tasks):
            return (
                f"the teacher's folder {self.teacher} has right answers to {len(right_answers(self.teacher))} tasks, "
                f"and none of them is among these {len(tasks)} (tasks are told apart by id); make some with: rlvr "
                "rollout RECIPE --model TEACHER --out DIR, or name no teacher"
            )
        if self.teacher or any(anchored):
            return ""
        named = " or ".join(f'"{key}"' for key in ((self.key,) if self.key else KEYS))
        return f"no task has a worked solution in its meta under {named}, so nobody would earn a bonus"

    def solutions(self, task: Task) -> list[str]:
        found = [task.meta[key] for key in ((self.key,) if self.key else KEYS) if task.meta.get(key)]
        given = found[0] if found else ()
        texts = [given] if isinstance(given, str) else list(given)
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"task {task.id}: its solution is {given!r:.60}; write a text, or a list of texts")
        return texts

    def rows(self, group: Group, texts: Iterable[str], world: World) -> list[Rollout]:
        """A row a solution. Of a group without a token by the policy there is nothing to compare."""
        wrote = next((row for row in group.rollouts if row.wrote().any()), None)
        if wrote is None:
            return []
        prompt = wrote.ids[: int(wrote.wrote().argmax())].tolist()
        different = {" ".join(text.split()): text for text in reversed(list(texts)) if text.strip()}
        rows = []
        for n, text in enumerate(list(reversed(different.values()))[: self.most]):
            chain = world.chain(group.task.public(), f"{group.id}/anchor/{n}", world.key, prompt=prompt, source="demo")
            chain.add(world.renderer.response(text), Origin.POLICY)
            row = chain.end("finished", "anchor", text)
            kept = np.flatnonzero(self.span(row, world))
            if self.tokens is not None and len(kept) > self.tokens:
                kept = kept[evenly(len(kept), self.tokens)]
            row.origin[len(prompt) :] = Origin.TEMPLATE  # of a solution, what is not compared
            row.origin[kept] = Origin.POLICY
            rows.append(row)
        return rows

    def span(self, row: Rollout, world: World) -> np.ndarray:
        """[T] 1 for the compared tokens of a chain of T ids."""
        wrote = row.wrote()
        inside = wrote.astype(np.float32)
        if self.mark is not None and self.mark in row.text:
            inside *= Thinking(self.mark).of(row.ids, wrote, world.renderer.decode)
        at = np.flatnonzero(inside)
        inside[at[: -self.max_tokens]] = 0
        return inside


def evenly(n: int, k: int) -> np.ndarray:
    """k of the places 0..n-1, as far apart as can be."""
    return (np.arange(k) * (n - 1) // max(1, k - 1)).astype(np.int64)


@lru_cache(maxsize=8)
def right_answers(folder: str) -> Mapping[str, Sequence[str]]:
    """Task id -> texts of right answers, of a folder of `rlvr rollout` or of a run. Raises NoAnswers."""
    files = rollout_files(Path(folder).expanduser())
    if not files:
        raise NoAnswers(
            f"{folder} holds no rollouts; make some with: rlvr rollout RECIPE --model TEACHER --out {folder}"
        )
    out: dict[str, list[str]] = {}
    for file in files.values():
        for row in read_rows(file):
            if row.verdict == "right":
                out.setdefault(row.task, []).append(row.response)
    return out

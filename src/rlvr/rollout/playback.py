"""Rollouts that nobody samples: demonstrations and preferences, played back through the same records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.records import Group, Label, Origin, Rollout, Task, Verdict, mix
from rlvr.rollout.world import World


class NoDemonstration(ValueError):
    """A task lacks what should be played back; the message names it."""


@dataclass(frozen=True)
class Demonstrations:
    """`task.meta["demo"]`: one text, or several; the first n of them, each a row that is not judged again but taken as
    right."""

    def lacks(self, tasks: Sequence[Task]) -> str:
        return _first_fault(tasks, demonstrations)

    async def __call__(self, tasks: Sequence[Task], n: int, world: World) -> AsyncIterator[Group]:
        for g, task in enumerate(tasks):
            yield played(world, g, task, [(text, "right") for text in demonstrations(task)[:n]])


@dataclass(frozen=True)
class Preferences:
    """`task.meta["chosen"]` and `task.meta["rejected"]`: a group of two rows, the first judged right, the second
    wrong."""

    def lacks(self, tasks: Sequence[Task]) -> str:
        return _first_fault(tasks, preference)

    async def __call__(self, tasks: Sequence[Task], n: int, world: World) -> AsyncIterator[Group]:
        for g, task in enumerate(tasks):
            chosen, rejected = preference(task)
            yield played(world, g, task, [(chosen, "right"), (rejected, "wrong")])


def demonstrations(task: Task) -> list[str]:
    """Raises NoDemonstration where there is none."""
    told = task.meta.get("demo")
    texts = [told] if isinstance(told, str) else list(told or ())
    if not texts or not all(isinstance(t, str) for t in texts):
        raise NoDemonstration(
            f'task {task.id} has no demonstration: put a text, or a list of texts, into its meta as "demo"'
        )
    return texts


def preference(task: Task) -> tuple[str, str]:
    """What was chosen and what rejected. Raises NoDemonstration."""
    chosen, rejected = task.meta.get("chosen"), task.meta.get("rejected")
    if not isinstance(chosen, str) or not isinstance(rejected, str):
        raise NoDemonstration(f'task {task.id} has no pair: put texts into its meta as "chosen" and "rejected"')
    return chosen, rejected


def _first_fault(tasks: Sequence[Task], read: Callable[[Task], Any]) -> str:
    for task in tasks:
        try:
            read(task)
        except NoDemonstration as fault:
            return str(fault)
    return ""


def played(world: World, g: int, task: Task, texts: Sequence[tuple[str, Label]]) -> Group:
    """A group of these responses, each with its end token, under the run's length limit."""
    rows: list[Rollout] = []
    verdicts: dict[str, Verdict] = {}
    for i, (text, label) in enumerate(texts):
        name = f"{world.name}/{g:05d}/{i}"
        chain = world.chain(task.public(), name, mix(world.key, g, i), source="demo")
        ids = world.renderer.response(text)
        chain.add(ids[: world.limits.max_tokens], Origin.POLICY)
        whole = len(ids) <= world.limits.max_tokens
        rows.append(chain.end("finished" if whole else "truncated", "stop" if whole else "length", text))
        verdicts[name] = Verdict(label, float(label == "right"), "played_back")
    return Group(f"{world.name}/{g:05d}", task, tuple(rows), verdicts)

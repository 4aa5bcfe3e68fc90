"""n independent rollouts of each task: the plain way to make a group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from rlvr.records import Chain, Group, Rollout, Task, mix
from rlvr.rollout.world import World


@dataclass(frozen=True)
class Parallel:
    """n fresh chains a task, all at once. A chain that fails becomes a row of status `failed`, never a failed batch."""

    async def __call__(self, tasks: Sequence[Task], n: int, world: World) -> AsyncIterator[Group]:
        async def group(g: int, task: Task) -> Group:
            public = task.public()
            try:
                prompt = world.renderer.prompt(task.prompt)
            except ValueError as error:  # it does not render
                names = [(f"{world.name}/{g:05d}/{i}", mix(world.key, g, task.id, i)) for i in range(n)]
                failed = [Chain(public, name, key).end("failed", _said(error)) for name, key in names]
                return Group(f"{world.name}/{g:05d}", task, tuple(failed))
            rows = await asyncio.gather(*(one(g, public, i, prompt) for i in range(n)))
            return Group(f"{world.name}/{g:05d}", task, tuple(rows))

        async def one(g: int, task: Task, i: int, prompt: Sequence[int]) -> Rollout:
            chain = world.chain(task, f"{world.name}/{g:05d}/{i}", mix(world.key, g, task.id, i), prompt)
            try:
                finish = await world.continue_(chain)
                if finish == "context" and len(chain) == len(prompt):
                    raise ValueError(
                        f"the prompt of task {task.id} has {len(prompt)} tokens and leaves no room in the model's "
                        "context; leave the task out, shorten it, or take a model with a longer context"
                    )
                return world.finish(chain, finish)
            except (ValueError, FloatingPointError) as error:  # of this row: too long, logits that are no numbers ...
                return chain.end("failed", _said(error))

        pending = [asyncio.ensure_future(group(g, task)) for g, task in enumerate(tasks)]
        try:
            for finished in asyncio.as_completed(pending):
                yield await finished
        finally:
            for task_ in pending:
                task_.cancel()


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"

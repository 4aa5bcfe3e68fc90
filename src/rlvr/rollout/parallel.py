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
            rows = await asyncio.gather(*(one(g, task, i) for i in range(n)))
            return Group(f"{world.name}/{g:05d}", task, tuple(rows))

        async def one(g: int, task: Task, i: int) -> Rollout:
            chain = None
            name, key = f"{world.name}/{g:05d}/{i}", mix(world.key, g, task.id, i)
            try:
                chain = world.chain(task.public(), name, key)
                return world.finish(chain, await world.continue_(chain))
            except (asyncio.CancelledError, MemoryError):
                raise
            except ValueError as error:  # of this task: its prompt does not render, is too long ...
                return (chain or Chain(task.public(), name, key)).end("failed", f"{type(error).__name__}: {error}")

        pending = [asyncio.ensure_future(group(g, task)) for g, task in enumerate(tasks)]
        try:
            for finished in asyncio.as_completed(pending):
                yield await finished
        finally:
            for task_ in pending:
                task_.cancel()

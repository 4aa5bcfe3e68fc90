"""What a rollout may use: the sampler, the renderer and the limits of this run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlvr.engine.protocol import Limits, Request, Sampler
from rlvr.judges.judge import Bench
from rlvr.records import Chain, Group, Origin, Rollout, Status, Task


class Renderer(Protocol):
    """Turns prompts into exact ids and sampled ids into words (engine.renderer)."""

    def prompt(self, prompt: Any) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def spans(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]: ...
    def response(self, text: str) -> list[int]: ...


class Rollouts(Protocol):
    """A `rollout` piece: tasks, n rollouts each, as groups in the order in which they are finished."""

    def __call__(self, tasks: Sequence[Task], n: int, world: World) -> AsyncIterator[Group]: ...


@dataclass(frozen=True)
class World:
    """`key` is this round's source of random numbers; `verify` judges rollouts, for pieces that must know before they
    go on."""

    sampler: Sampler
    renderer: Renderer
    limits: Limits
    stop_ids: frozenset[int]
    name: str  # prefix of the ids of groups and rollouts made here
    key: int
    verify: Callable[[Sequence[tuple[Rollout, Task]]], Sequence[Any]] | None = None
    judge: Bench | None = None  # who is asked about answers; it is counted, and asked each thing once a step
    extra: dict[str, Any] = field(default_factory=dict)  # environments, memory: by name

    def chain(self, task: Task, id: str, key: int, prompt: Sequence[int] | None = None, **more: Any) -> Chain:
        """A fresh chain that holds the task's prompt; `prompt`: its ids, where they have been rendered already."""
        chain = Chain(task, id, key, **more)
        chain.add(self.renderer.prompt(task.prompt) if prompt is None else prompt, Origin.PROMPT)
        return chain

    async def continue_(self, chain: Chain, max_new: int | None = None) -> str:
        """Sample onto the chain under the run's limits; returns the finish code."""
        limits = self.limits
        sample = await self.sampler.sample(
            Request(
                chain.ids,
                limits.max_tokens if max_new is None else max_new,
                chain.noise_key,
                limits.temperature,
                limits.top_p,
                limits.top_k,
                self.stop_ids,
                limits.want,
            )
        )
        chain.extend(sample)
        return sample.finish

    def finish(self, chain: Chain, finish: str) -> Rollout:
        """End a chain after a sampler's finish code, with the policy's words decoded."""
        words = [i for i, o in zip(chain.ids[chain.fork_at :], chain.origin[chain.fork_at :]) if o == Origin.POLICY]
        status: Status = "finished" if finish == "stop" else "aborted" if finish == "aborted" else "truncated"
        return chain.end(status, finish, self.renderer.decode(words))

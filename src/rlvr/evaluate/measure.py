"""Sample and judge without training: what `rlvr eval` and the before and after of a run do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr.engine.protocol import Limits, Sampler
from rlvr.evaluate.parts import part_of
from rlvr.evaluate.statistics import Summary, summarise
from rlvr.evaluate.unknown import reasons
from rlvr.records import Group, Task, mix
from rlvr.rollout.parallel import Parallel
from rlvr.rollout.world import Renderer, World
from rlvr.verify.episodes import Judge
from rlvr.waiting import wait_for


@dataclass(frozen=True, slots=True)
class Measured:
    """The groups of an evaluation and their statistics at k = group size, of all and by parts."""

    groups: tuple[Group, ...]
    summary: Summary
    parts: Mapping[str, Summary] = field(default_factory=dict)

    def told(self) -> dict[str, Any]:
        """For JSON: {"mean@8": [value, low, high], ..., "samples": all, "errors": those without a verdict}, and where
        there are such, "reasons": {why: how many}. Where nothing was judged there are no estimates: 0 would be one.
        Those of a part are called "mean@8/PART"."""
        estimates = _estimates(self.summary)
        for part, summary in self.parts.items():
            estimates |= {f"{name}/{part}": value for name, value in _estimates(summary).items()}
        errors, samples = self.summary.errors, self.summary.samples
        counts = {"samples": samples, "errors": errors} | ({"reasons": reasons(self.groups)} if errors else {})
        return {**estimates, **counts}


def _estimates(summary: Summary) -> dict[str, list[float | None]]:
    """{} where nothing was judged."""
    if summary.errors == summary.samples:
        return {}
    number = lambda x: x if math.isfinite(x) else None  # noqa: E731  (JSON has no nan: too few problems for an interval)
    return {n: [number(x) for x in (e.value, e.low, e.high)] for n, e in summary.estimates.items()}


def measure(
    sampler: Sampler,
    renderer: Renderer,
    judge: Judge,
    tasks: Sequence[Task],
    k: int,
    limits: Limits,
    stop_ids: frozenset[int],
    seed: int,
    at_once: int = 64,
    told: Callable[[int], None] = lambda done: None,
    by: str | None = None,
) -> Measured:
    """k samples of every task, judged. Equal seeds give equal noise, so two policies are compared on common random
    numbers.

    at_once: tasks that are sampled together (bounds memory). told: is given the number of tasks sampled so far. by: the
    key in the tasks' `meta` whose values are told apart.
    """

    async def sample(first: int) -> list[Group]:
        world = World(sampler, renderer, limits, stop_ids, f"eval.{first}", mix(seed, "eval", first))
        found = []
        async for group in Parallel()(tasks[first : first + at_once], k, world):
            found.append(group)
            told(len(groups) + len(found))
        return sorted(found, key=lambda g: g.id)

    groups: list[Group] = []
    for first in range(0, len(tasks), at_once):
        new = wait_for(sample(first))
        rows = [(row, g) for g in new for row in g.rollouts]
        verdicts = judge([(row, g.task) for row, g in rows])
        by_row = {row.id: v for (row, _), v in zip(rows, verdicts, strict=True)}
        groups += [Group(g.id, g.task, g.rollouts, {r.episode: by_row[r.id] for r in g.rollouts}) for g in new]
    parts: dict[str, list[Group]] = {}
    for group in groups:
        if by is not None and (part := part_of(group.task, by)) is not None:
            parts.setdefault(part, []).append(group)
    return Measured(tuple(groups), _summed(groups, k), {part: _summed(parts[part], k) for part in sorted(parts)})


def _summed(groups: Sequence[Group], k: int) -> Summary:
    return summarise({g.task.id: list(g.verdicts.values()) for g in groups}, (k,))

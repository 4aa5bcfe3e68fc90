"""Uniform selection: every task once an epoch, in an order that the seed fixes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rlvr.records import Group, Task, mix


class Selector(Protocol):
    """What a `select` piece's `start` makes: it may remember; the run saves `state()` as JSON."""

    def choose(self, n: int) -> list[Task]: ...
    def observe(self, groups: Sequence[Group]) -> None: ...
    def state(self) -> dict[str, Any]: ...
    def load(self, state: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True)
class Uniform:
    """Without replacement: no task comes a second time before every task has come once; each epoch has its own
    order."""

    def start(self, tasks: Sequence[Task], seed: int) -> UniformSelector:
        """tasks: what there is, without golds. Raises ValueError when there are none."""
        if not tasks:
            raise ValueError("there are no tasks to select from")
        return UniformSelector(tasks, seed)


class UniformSelector:
    """Position in a shuffled list. A step may span two epochs, and may ask for more tasks than there are."""

    def __init__(self, tasks: Sequence[Task], seed: int):
        self.tasks, self.seed = tasks, seed
        self.epoch, self.at = 0, 0
        self.order = self._shuffled()

    def _shuffled(self) -> list[int]:
        order = list(range(len(self.tasks)))
        random.Random(mix(self.seed, "select", self.epoch)).shuffle(order)
        return order

    def choose(self, n: int) -> list[Task]:
        out: list[Task] = []
        while len(out) < n:
            if self.at == len(self.order):
                self.epoch, self.at = self.epoch + 1, 0
                self.order = self._shuffled()
            out.append(self.tasks[self.order[self.at]])
            self.at += 1
        return out

    def observe(self, groups: Sequence[Group]) -> None:
        """Uniform selection learns nothing from outcomes."""

    def state(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "at": self.at}

    def load(self, state: Mapping[str, Any]) -> None:
        self.epoch, self.at = state["epoch"], state["at"]
        self.order = self._shuffled()

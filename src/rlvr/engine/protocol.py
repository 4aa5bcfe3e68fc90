"""What a sampler and an engine promise. The torch engine keeps it embedded; others come by entry point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class Unsupported(ValueError):
    """A method or model asks for something that this engine cannot do; the message names who asks and who can."""


@dataclass(frozen=True, slots=True)
class Request:
    """Continue `ids` by at most `max_new` tokens."""

    ids: Sequence[int]
    max_new: int
    key: int  # noise is a function of (key, absolute position, token id) only
    temperature: float = 1.0  # 0 = greedy
    top_p: float = 1.0
    top_k: int = 0  # 0 = off
    stop_ids: frozenset[int] = frozenset()  # sampled stop ids are kept
    want: frozenset[str] = frozenset()  # extra streams: "entropy"


@dataclass(frozen=True, slots=True)
class Sample:
    """What was sampled, exactly.

    streams: "logp" = log-prob under the distribution really sampled from (temperature, top-p and top-k applied; 0 for
    greedy); "plain_logp" = log-prob under softmax(logits / temperature) with full support (softmax(logits) for greedy);
    "entropy" in nats of that same full-support distribution, where wanted. Each a list of len(ids) floats.
    """

    ids: list[int]
    streams: Mapping[str, list[float]]
    finish: str  # "stop" (a stop id), "length" (max_new), "context" (the model's context is full), "aborted"
    version: int
    context: str  # records.digest of the ids that were continued
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


class Sampler(Protocol):
    version: int

    async def sample(self, request: Request) -> Sample:
        """Requests that are waiting at the same time are decoded together."""
        ...

    def publish(self, version: int) -> None:
        """New weights are in place: drop every cached key and value."""
        ...


class Engine(Protocol):
    """Models, their optimisers, and the three heavy things that are done with them."""

    sampler: Sampler

    def score(self, batch: Any, views: Sequence[Any]) -> Any:
        """The batch with every stream of these views added."""
        ...

    def update(self, batch: Any, plan: Any) -> dict[str, Any]:
        """One optimiser step per model in the plan's terms; returns name -> Tally."""
        ...

    def publish(self) -> None:
        """The sampler gets the new weights."""
        ...

    def refresh(self, name: str) -> None:
        """Another model becomes a copy of the policy."""
        ...

    def release(self, keep: set[str]) -> None:
        """Frozen models outside of `keep` are let go; nothing will look at them again."""
        ...

    def forget(self, name: str) -> None:
        """A model's optimiser begins afresh, without moments; its schedule goes on."""
        ...

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """(tensors, facts for JSON) of everything but the policy's own weights that a run needs to go on exactly."""
        ...

    def load_state(self, tensors: Mapping[str, Any], facts: Mapping[str, Any]) -> None: ...

    def require(self, running: Any) -> None:
        """Raise Unsupported where a plan needs what this engine does not have."""
        ...

    @property
    def device(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """How a policy is sampled in a run."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    want: frozenset[str] = field(default_factory=frozenset)

"""The records that cross the borders between stages: Task, Rollout, Verdict, Group. `Chain` is the builder behind a
Rollout.

A rollout is one chain of exact token ids. Every token has an origin, every sampled token belongs to a turn (one call of
a sampler). A row *owns* `ids[fork_at:]`; what lies before belongs to its parent, bit for bit, so trees, rewritten
histories and resumed chains have one shape and no token is trained twice. Nothing here needs torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Literal

import numpy as np

# Keys of Task.meta that hold an answer: demonstrations, worked steps, preference pairs.
GIVES_AWAY = frozenset({"demo", "steps", "chosen", "rejected", "solution"})
Message = Mapping[str, Any]  # {"role": "user", "content": "..."}
Prompt = str | tuple[Message, ...]
Label = Literal["right", "wrong", "unknown"]
Status = Literal["finished", "truncated", "aborted", "failed"]
Source = Literal["fresh", "replay", "demo"]


class Origin(IntEnum):
    """Who wrote a token. The loss trains `POLICY` tokens unless a method asks for more."""

    PROMPT = 0
    POLICY = 1
    ENVIRONMENT = 2
    JUDGE = 3
    TEMPLATE = 4


@dataclass(frozen=True, slots=True)
class Image:
    """A reference to a picture (content hash and address), never its pixels."""

    sha: str
    uri: str


@dataclass(frozen=True, slots=True)
class Task:
    """A question whose answer can be checked."""

    id: str
    prompt: Prompt  # text, or chat messages
    answer: Any = None  # the gold: only verifiers see it
    verifier: str | None = None  # overrides the run's verifier
    env: str | None = None
    images: tuple[Image, ...] = ()
    made_by: str = ""  # the generator, file or set that it came from
    meta: Mapping[str, Any] = field(default_factory=dict)

    def public(self) -> Task:
        """The task without its gold and what gives it away: what policies, selectors and judges may see.

        Beside GIVES_AWAY, a task may list further keys of its meta in meta["gives_away"].
        """
        hidden = GIVES_AWAY.union(self.meta.get("gives_away", ()))
        return replace(self, answer=None, meta={k: v for k, v in self.meta.items() if k not in hidden})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verifier says of one episode.

    A fault of the submission (no answer, unparsable, over its own limit, crash) is `wrong`; a fault of the gold, the
    verifier, a judge or the machine is `unknown`: it pays nothing, leaves every baseline and denominator, and is
    counted.
    """

    label: Label
    score: float  # in [0, 1]; 1 for right, 0 for wrong unless graded in parts; 0 and meaningless when unknown
    reason: str = ""  # a short code: "equal", "different", "no_answer", "verifier_error", ...
    extracted: str | None = None
    parts: Mapping[str, float] = field(default_factory=dict)  # raw named values, e.g. of a rubric
    seconds: float = 0.0
    fingerprint: str = ""  # verifier name and settings; equal fingerprints judge alike

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0:  # also refuses nan
            raise ValueError(f"a verdict's score lies in [0, 1], got {self.score!r}; a raw value belongs in parts")

    @property
    def known(self) -> bool:
        return self.label != "unknown"


@dataclass(frozen=True, slots=True)
class Turn:
    """One sampler call inside a chain."""

    start: int  # ids[start:end] were sampled by it
    end: int
    version: int  # of the weights
    finish: str  # "stop", "length", "context", "aborted"
    context: str  # digest of the ids that the engine really continued
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


@dataclass(frozen=True, slots=True)
class Rollout:
    """One finished chain. T = number of ids, prompt included."""

    id: str
    task: str  # Task.id
    episode: str  # rows of one episode share it
    role: str
    key: int  # source of its random numbers
    ids: np.ndarray  # [T] int32
    origin: np.ndarray  # [T] int8, of Origin
    turn: np.ndarray  # [T] int16, index into turns; -1 where not sampled
    streams: Mapping[str, np.ndarray]  # each [T] float32: "logp", "plain_logp", "entropy"; nan where not sampled
    turns: tuple[Turn, ...]
    parent: str | None = None
    fork_at: int = 0
    status: Status = "finished"
    reason: str = ""
    source: Source = "fresh"
    text: str = ""  # the policy's own words, decoded; what verifiers read
    meta: Mapping[str, Any] = field(default_factory=dict)

    def owned(self, origins: Iterable[Origin] = (Origin.POLICY,)) -> np.ndarray:
        """[T] bool: the tokens of these origins that this row, not a parent, owns."""
        mask = self.wrote(origins)
        mask[: self.fork_at] = False
        return mask

    def wrote(self, origins: Iterable[Origin] = (Origin.POLICY,)) -> np.ndarray:
        """[T] bool: the tokens of these origins, parents' tokens included."""
        first, *more = (self.origin == int(origin) for origin in origins)
        for mask in more:
            first |= mask
        return first

    @property
    def truncated(self) -> bool:
        return self.status == "truncated"


@dataclass(frozen=True, slots=True)
class Group:
    """A task, a role, its rollouts and verdicts. Sizes vary; rows are not episodes."""

    id: str
    task: Task
    rollouts: tuple[Rollout, ...]
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)  # by episode
    role: str = "policy"
    streams: Mapping[str, Any] = field(default_factory=dict)  # from `annotate`; one entry a rollout: see pack.py
    cost: Mapping[str, float] = field(default_factory=dict)  # "sampled", "judge", "seconds", ...

    def known(self) -> list[Verdict]:
        return [v for v in self.verdicts.values() if v.known]

    @property
    def kind(self) -> Literal["solved", "failed", "mixed", "unknown"]:
        """How the group's known verdicts fell out; only `mixed` groups teach a group-relative method."""
        labels = {v.label for v in self.known()}
        if not labels:
            return "unknown"
        return "mixed" if len(labels) == 2 else "solved" if "right" in labels else "failed"


def mix(key: int, *path: Any) -> int:
    """[0, 2**63) a child key derived from a key and a path, whatever the order in which children are made."""
    digest_ = hashlib.blake2b(json.dumps([key, *path], default=str).encode(), digest_size=8).digest()
    return int.from_bytes(digest_, "little") >> 1


def digest(ids: Sequence[int] | np.ndarray) -> str:
    """A short name of an exact id sequence; sampler and chain compare theirs, so that drift is found at once."""
    return hashlib.blake2b(np.asarray(ids, np.int32).tobytes(), digest_size=8).hexdigest()


class Drift(RuntimeError):
    """The sampler continued other ids than the chain holds."""


class Chain:
    """Builds one rollout. `add`, `extend`, `cut` and `end` are the only ways in which tokens move."""

    def __init__(
        self,
        task: Task,
        id: str,
        key: int,
        role: str = "policy",
        parent: Rollout | None = None,
        fork_at: int = 0,
        episode: str | None = None,
        source: Source = "fresh",
    ):
        self.task, self.id, self.key, self.role, self.source = task, id, key, role, source
        self.episode = episode or id
        self.parent, self.fork_at = (parent.id if parent else None), (fork_at if parent else 0)
        self.ids: list[int] = []
        self.origin: list[int] = []
        self.turn: list[int] = []
        self.turns: list[Turn] = []
        self.streams: dict[str, list[float]] = {}
        self.meta: dict[str, Any] = {}
        self.cuts = 0
        if parent is not None:
            if not parent.fork_at <= fork_at <= len(parent.ids):
                raise ValueError(
                    f"{id}: cannot fork {parent.id} at {fork_at}; it owns {parent.fork_at}..{len(parent.ids)}"
                    " (name the ancestor that owns the token)"
                )
            self.ids, self.origin = parent.ids[:fork_at].tolist(), parent.origin[:fork_at].tolist()
            self.turn = parent.turn[:fork_at].tolist()
            self.streams = {name: x[:fork_at].tolist() for name, x in parent.streams.items()}
            self.turns = [replace(t, end=min(t.end, fork_at)) for t in parent.turns if t.start < fork_at]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def noise_key(self) -> int:
        """The key for the next sampler call; a cut changes it, so noise that a judge has seen is never used again."""
        return self.key if not self.cuts else mix(self.key, "cut", self.cuts)

    def add(self, ids: Sequence[int], origin: Origin) -> None:
        """Append tokens that nobody sampled."""
        n = len(ids)
        self.ids += [int(i) for i in ids]
        self.origin += [int(origin)] * n
        self.turn += [-1] * n
        for values in self.streams.values():
            values += [float("nan")] * n

    def extend(self, sample: Any) -> None:
        """Append a sampler's `Sample` (engine.protocol). Raises Drift if it continued other ids than ours."""
        if sample.context != digest(self.ids):
            raise Drift(f"{self.id}: the sampler continued another context than the chain holds (token drift)")
        start, n = len(self.ids), len(sample.ids)
        self.turns.append(
            Turn(
                start,
                start + n,
                sample.version,
                sample.finish,
                sample.context,
                sample.temperature,
                sample.top_p,
                sample.top_k,
            )
        )
        self.ids += list(sample.ids)
        self.origin += [int(Origin.POLICY)] * n
        self.turn += [len(self.turns) - 1] * n
        for name in self.streams.keys() | sample.streams.keys():
            values = self.streams.setdefault(name, [float("nan")] * start)
            values += list(sample.streams.get(name, [float("nan")] * n))

    def cut(self, at: int) -> None:
        """Drop `ids[at:]`. Tokens of the parent cannot be cut."""
        if not self.fork_at <= at <= len(self.ids):
            raise ValueError(f"{self.id}: cannot cut at {at}; the row owns {self.fork_at}..{len(self.ids)}")
        del self.ids[at:], self.origin[at:], self.turn[at:]
        for values in self.streams.values():
            del values[at:]
        self.turns = [replace(t, end=min(t.end, at)) for t in self.turns if t.start < at]
        self.cuts += 1

    def end(self, status: Status, reason: str = "", text: str = "") -> Rollout:
        """The finished rollout."""
        return Rollout(
            id=self.id,
            task=self.task.id,
            episode=self.episode,
            role=self.role,
            key=self.key,
            ids=np.array(self.ids, np.int32),
            origin=np.array(self.origin, np.int8),
            turn=np.array(self.turn, np.int16),
            streams={name: np.array(x, np.float32) for name, x in self.streams.items()},
            turns=tuple(self.turns),
            parent=self.parent,
            fork_at=self.fork_at,
            status=status,
            reason=reason,
            source=self.source,
            text=text,
            meta=dict(self.meta),
        )

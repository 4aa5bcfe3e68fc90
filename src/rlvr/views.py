"""A view is one look at rows: what a piece asks the engine for beyond what sampling left behind.

Views share their work: the engine runs each model once under each context that any of them names, and hands what it
saw, a chunk of tokens at a time, to each view's probe. So full-vocabulary quantities are exact while nothing of size
tokens x vocabulary is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

# For each row the ids that stand before its trained tokens instead of its own prompt, as a list (None: this row is not
# looked at) or as [R, K] with -1 behind shorter ones. A context names in `needs` the streams that it reads.
Context = Callable[[Any], Sequence[Sequence[int] | None] | Tensor]
SIDE = "side/"  # what annotate pieces call rows of another batch: lists of rollouts


class Seen:
    """What a model saw at n tokens of one chunk, detached. Full-vocabulary tensors are made when asked for, once a
    chunk.

    hidden [n, d]: last hidden states that predict the tokens; token [n]: the tokens; streams: of these tokens, those
    that the probe names in `needs`. `back` draws a gradient with respect to logits [n, V] back to hidden states.
    """

    def __init__(
        self,
        hidden: Tensor,
        token: Tensor,
        head: Callable[[Tensor], Tensor] | None,
        temperature: float,
        value: Tensor | None = None,
        back: Callable[[Tensor, Tensor], Tensor] | None = None,
    ):
        self.hidden, self.token, self.value, self._head, self._temperature = hidden, token, value, head, temperature
        self._back = back
        self.streams: Mapping[str, Tensor] = {}

    def at(self, where: Tensor) -> Seen:
        """What was seen at some of the tokens; of what has been computed already, their part."""
        value = None if self.value is None else self.value[where]
        part = Seen(self.hidden[where], self.token[where], self._head, self._temperature, value, self._back)
        if "logp_all" in self.__dict__:
            part.__dict__["logp_all"] = self.logp_all[where]
        return part

    @cached_property
    def logp_all(self) -> Tensor:
        """[n, V] log-probs of the whole vocabulary at the sampling temperature, at least float32."""
        return self._logp_all(self._temperature)

    @cached_property
    def plain_logp_all(self) -> Tensor:
        """[n, V] the same at temperature 1."""
        return self.logp_all if self._temperature == 1 else self._logp_all(1.0)

    def _logp_all(self, temperature: float) -> Tensor:
        if self._head is None:
            raise TypeError("a critic has values, not log-probs")
        logits = self._head(self.hidden)
        wide = logits.dtype if logits.dtype == torch.float64 else torch.float32
        return torch.log_softmax(logits.to(wide) / temperature, -1)

    def pull_back(self, gradient: Tensor) -> Tensor:
        """[n, d] the gradient with respect to hidden states, of one with respect to logits [n, V]."""
        if self._back is None:
            raise TypeError("only a language model draws gradients back through its head")
        return self._back(self.hidden, gradient)

    @property
    def logp(self) -> Tensor:
        """[n] log-probs of the tokens."""
        return self.logp_all.gather(-1, self.token[:, None])[:, 0]

    @property
    def entropy(self) -> Tensor:
        """[n] nats."""
        return -(self.logp_all.exp() * self.logp_all).sum(-1)


class Told:
    """What a server told of n tokens: their log-probs [n], and those, `logps` [n, K], of the likeliest `ids` [n, K]
    that it was asked for (-1 where it named fewer)."""

    def __init__(self, token: Tensor, logp: Tensor, ids: Tensor | None = None, logps: Tensor | None = None):
        self.token, self.logp, self.ids, self.logps = token, logp, ids, logps
        self.streams: Mapping[str, Tensor] = {}

    def at(self, where: Tensor) -> Told:
        """What was told of some of the tokens."""
        return Told(*(None if x is None else x[where] for x in (self.token, self.logp, self.ids, self.logps)))  # type: ignore[arg-type]


class Probe(Protocol):
    """A function of what was seen under each named context. It declares the streams that it gives, and in `needs` the
    token streams that it wants to find in `seen[...].streams`. One that works on what a server tells says in `top` how
    many of the likeliest tokens it wants to hear of."""

    gives: tuple[str, ...]

    def __call__(self, seen: Mapping[str, Seen]) -> Mapping[str, Tensor]:
        """One value a token for token streams; for row streams too, and the engine sums them over each row."""
        ...


@dataclass(frozen=True)
class Look:
    """The plain probe: log-prob, entropy or value of the trained tokens, under the names of streams."""

    logp: str | None = None
    entropy: str | None = None
    value: str | None = None

    @property
    def gives(self) -> tuple[str, ...]:
        return tuple(s for s in (self.logp, self.entropy, self.value) if s)

    def __call__(self, seen: Mapping[str, Seen]) -> dict[str, Tensor]:
        (one,) = seen.values()
        out = {}
        if self.logp:
            out[self.logp] = one.logp
        if self.entropy:
            out[self.entropy] = one.entropy
        if self.value:
            assert one.value is not None
            out[self.value] = one.value
        return out


@dataclass(frozen=True)
class Behind:
    """Context: the ids of a row stream [R, K] (-1: none) in the place of the prompt."""

    stream: str

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.stream,)

    def __call__(self, batch: Any) -> Tensor:
        ids: Tensor = batch[self.stream]
        return ids


# One way of looking: the name that a probe knows it by, the model, its context (None: the row's own prompt).
Eye = tuple[str, str, Context | None]


@dataclass(frozen=True)
class View:
    """`probe` on `model` under `contexts`: (name, context), or (name, context, model) for another model's.

    Looked at are the rows of `where` that every context has ids for and that fit the model; `looked`, if given, is a
    row stream that says which were. Other rows get the policy's own log-prob in streams named *_logp (so that every gap
    there is zero), else 0. `side` looks at other rows than the batch's own: a name for them, and a function that makes
    that second Batch, None where an annotate piece gives them as "side/NAME"; of these, rows of groups that have a row
    in `where` are looked at, equal ones once.
    """

    probe: Any
    model: str = "policy"
    contexts: tuple[tuple[str, Context | None] | tuple[str, Context | None, str], ...] = (("", None),)
    looked: str | None = None
    side: tuple[str, Callable[[Any], Any] | None] | None = field(default=None)
    at_update: bool = False  # taken before each optimiser step, at the current weights; else once a step
    where: Callable[[Any], Tensor] | None = None  # (batch) -> [R] bool; names in `needs` the streams that it reads

    @property
    def gives(self) -> tuple[str, ...]:
        return (*self.probe.gives, *((self.looked,) if self.looked else ()))

    @property
    def eyes(self) -> tuple[Eye, ...]:
        return tuple((c[0], c[2] if len(c) == 3 else self.model, c[1]) for c in self.contexts)

    @property
    def models(self) -> set[str]:
        return {model for _, model, _ in self.eyes}

    def __str__(self) -> str:
        """As a plan's table shows it."""
        under = ", ".join(name for name, _, context in self.eyes if context is not None)
        which = f" of {self.side[0]}" if self.side else ""
        after = f" after {under}" if under else ""
        return f"{' and '.join(sorted(self.models))}{after}{which} for {', '.join(self.gives)}"

    @property
    def reads(self) -> set[str]:
        """Streams that it takes to look."""
        askers = (self.probe, self.where, *(context for _, _, context in self.eyes))
        named = {name for asker in askers for name in getattr(asker, "needs", ())}
        return named | ({SIDE + self.side[0]} if self.side and self.side[1] is None else set())


# Streams that need no view of the piece's own: naming one in `needs` asks for this look.
STANDARD: dict[str, View] = {
    "old_logp": View(Look("old_logp", "entropy")),
    "entropy": View(Look("old_logp", "entropy")),
    "ref_logp": View(Look("ref_logp"), "reference"),
    "teacher_logp": View(Look("teacher_logp"), "teacher", looked="teacher_known"),
    "teacher_known": View(Look("teacher_logp"), "teacher", looked="teacher_known"),
    "value": View(Look(value="value"), "critic"),
    "now_logp": View(Look("now_logp", "now_entropy")),
    "now_entropy": View(Look("now_logp", "now_entropy")),
    "now_slope": View(Look("now_logp", "now_entropy")),
}
AT_UPDATE = {"now_logp", "now_entropy", "now_slope"}


def reads(piece: Any) -> set[str]:
    """Streams that a piece reads, those that its views' contexts are made of included."""
    out: set[str] = set()
    for need in getattr(piece, "needs", ()):
        out |= {*need.gives, *need.reads} if isinstance(need, View) else {need}
    return out | {f.removeprefix("logp_at/") for f in getattr(piece, "reads", ()) if f.startswith("logp_at/")}


def views_of(piece: Any) -> list[View]:
    """Looks that a piece asks for."""
    needs = getattr(piece, "needs", ())
    return [n if isinstance(n, View) else STANDARD[n] for n in needs if isinstance(n, View) or n in STANDARD]

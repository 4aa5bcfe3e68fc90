"""A view is one look at rows by one model: what a piece asks the engine for beyond what sampling left behind.

The plan merges views with the same model, contexts and rows; the engine then runs the model once and hands what it saw,
a chunk of tokens at a time, to each view's probe. So full-vocabulary quantities are exact while nothing of size tokens
x vocabulary is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

# For each row the ids that stand before its trained tokens instead of its own prompt; None: this row is not looked at.
Context = Callable[[Any], Sequence[Sequence[int] | None]]


class Seen:
    """What a model saw at n tokens of one chunk, detached. Full-vocabulary tensors are made when asked for, once a
    chunk.

    hidden [n, d]: last hidden states that predict the tokens; token [n]: the tokens; logits [n, V] at the sampling
    temperature.
    """

    def __init__(
        self,
        hidden: Tensor,
        token: Tensor,
        head: Callable[[Tensor], Tensor] | None,
        temperature: float,
        value: Tensor | None = None,
    ):
        self.hidden, self.token, self.value, self._head, self._temperature = hidden, token, value, head, temperature

    @cached_property
    def logp_all(self) -> Tensor:
        """[n, V] log-probs of the whole vocabulary, at least float32."""
        if self._head is None:
            raise TypeError("a critic has values, not log-probs")
        logits = self._head(self.hidden)
        wide = logits.dtype if logits.dtype == torch.float64 else torch.float32
        return torch.log_softmax(logits.to(wide) / self._temperature, -1)

    @property
    def logp(self) -> Tensor:
        """[n] log-probs of the tokens."""
        return self.logp_all.gather(-1, self.token[:, None])[:, 0]

    @property
    def entropy(self) -> Tensor:
        """[n] nats."""
        return -(self.logp_all.exp() * self.logp_all).sum(-1)


class Probe(Protocol):
    """A function of what was seen under each named context. It declares the streams that it gives."""

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
class View:
    """`probe` on `model` under `contexts`. `looked`, if given, is a row stream that says which rows were looked at.

    Rows that a context leaves out get the policy's own log-prob in streams named *_logp (so that every gap there is
    zero), else 0. `side` looks at other rows than the batch's own: a name for them, and a function that makes that
    second Batch.
    """

    probe: Any
    model: str = "policy"
    contexts: tuple[tuple[str, Context | None], ...] = (("", None),)
    looked: str | None = None
    side: tuple[str, Callable[[Any], Any]] | None = field(default=None)
    at_update: bool = False  # taken before each optimiser step, at the current weights; else once a step

    @property
    def gives(self) -> tuple[str, ...]:
        return (*self.probe.gives, *((self.looked,) if self.looked else ()))

    @property
    def pass_key(self) -> Any:
        """Views with one key share one forward pass."""
        return self.model, self.contexts, self.side


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
    """Streams that a piece reads."""
    out: set[str] = set()
    for need in getattr(piece, "needs", ()):
        out |= set(need.gives) if isinstance(need, View) else {need}
    return out | {f.removeprefix("logp_at/") for f in getattr(piece, "reads", ()) if f.startswith("logp_at/")}


def views_of(piece: Any) -> list[View]:
    """Looks that a piece asks for."""
    needs = getattr(piece, "needs", ())
    return [n if isinstance(n, View) else STANDARD[n] for n in needs if isinstance(n, View) or n in STANDARD]

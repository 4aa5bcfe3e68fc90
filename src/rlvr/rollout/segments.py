"""Where what the policy wrote is cut into steps: paragraphs, lines, sentences or clauses.

Text is cut by characters, and tokens follow: a piece begins with the first token that wrote any of its characters, so a
token that straddles a border belongs to what comes after. Nothing is tokenised again: which characters a token wrote is
known from decoding the ids that were sampled (`Renderer.spans`).

    paragraph   blank lines part; a fenced block of code is never parted
    line        every line that is not blank; a fenced block is one
    sentence    lines, and within them after . ! ? with a space behind, and after their full-width sisters
    clause      sentences, after , ; : (not within 10,000), and before #
    auto        the coarsest of these that finds more than one piece
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal, get_args

import numpy as np

from rlvr import streams
from rlvr.records import Group, Rollout
from rlvr.rollout.world import Renderer, World

Level = Literal["paragraph", "line", "sentence", "clause"]
Cut = Literal["auto", "paragraph", "line", "sentence", "clause"]
LEVELS: tuple[Level, ...] = get_args(Level)
Span = tuple[int, int]

_SENTENCE = re.compile(r"[.!?][\"')\]]*\s+|[\u3002\uff01\uff1f]\s*")  # what ends one
_CLAUSE = re.compile(r"[,;:](?!\d{3}(?!\d))\s*|(?<!#)(?=#)")
_NUMBER = re.compile(r"\s*\(?\d{1,3}[.)]\s*")  # of an item in a list: it belongs to what it numbers

for _cut in get_args(Cut):
    streams.declare("token", f"{_cut}/start", f"first token of a piece of text, cut by {_cut}")


def cut(text: str, by: Cut) -> list[Span]:
    """The pieces of a text, from its first character to its last; none of a blank one."""
    if not text.strip():
        return []
    if by == "auto":
        found = [(0, len(text))]
        for level in LEVELS if "\n" in text else LEVELS[2:]:
            if len(found := cut(text, level)) > 1:
                break
        return found
    starts = [0]
    for start in sorted(set(_starts(text, LEVELS.index(by)))):
        before = text[starts[-1] : start]
        if before.strip() and not _NUMBER.fullmatch(before):
            starts.append(start)
    if not text[starts[-1] :].strip():  # a border with nothing behind it
        starts.pop()
    return list(zip(starts, [*starts[1:], len(text)]))


def _starts(text: str, level: int) -> Iterator[int]:
    at, blank_before, fenced = 0, False, False
    for line in text.split("\n"):
        mark = line.lstrip().startswith("```")
        if fenced:
            fenced = not mark
        elif line.strip():
            if blank_before or level:
                yield at
            fenced = mark and line.count("```") == 1
            if not fenced and level >= LEVELS.index("sentence"):
                yield from (at + found.end() for found in _SENTENCE.finditer(line))
            if not fenced and level >= LEVELS.index("clause"):
                yield from (at + found.end() for found in _CLAUSE.finditer(line))
        blank_before = not line.strip()
        at += len(line) + 1


def first_tokens(spans: Sequence[Span], starts: Sequence[int]) -> list[int]:
    """For each character the first token whose own characters end behind it; len(spans) where none does."""
    return [bisect_right(spans, start, key=itemgetter(1)) for start in starts]


@dataclass(frozen=True)
class Wrote:
    """What the policy wrote on a chain, those before a fork included. at [n]: places of its tokens in the chain; spans
    [n]: the characters of `text` that each wrote."""

    text: str
    at: np.ndarray
    spans: list[Span]

    @staticmethod
    def of(row: Rollout, renderer: Renderer) -> Wrote:
        at = np.flatnonzero(row.wrote())
        text, spans = renderer.spans(row.ids[at].tolist())
        return Wrote(text, at, spans)

    def places(self, characters: Sequence[int]) -> list[int]:
        """Places in the chain of the first tokens of what begins at these characters; -1 where no token does."""
        return [int(self.at[i]) if i < len(self.at) else -1 for i in first_tokens(self.spans, characters)]


@dataclass(frozen=True)
class Pieces:
    """Start flags of the pieces of what the policy wrote. Gives `<by>/start` [N]. Where two pieces begin within one
    token they are one."""

    by: Cut = "auto"

    @property
    def gives(self) -> tuple[str, ...]:
        return (f"{self.by}/start",)

    async def __call__(self, group: Group, world: World) -> dict[str, list[np.ndarray]]:
        return {f"{self.by}/start": [self.of(row, world.renderer) for row in group.rollouts]}

    def of(self, row: Rollout, renderer: Renderer) -> np.ndarray:
        """[T] 1 at the first token of each piece, else 0."""
        wrote = Wrote.of(row, renderer)
        flags = np.zeros(len(row.ids), np.float32)
        flags[[place for place in wrote.places([start for start, _ in cut(wrote.text, self.by)]) if place >= 0]] = 1.0
        return flags

"""Token rows that are being decoded: with a slab of keys and values, or without any cache.

A layer of the model has one slab of keys and one of values, [rows, heads, columns, head size]. Rows are aligned at
their *last* column: a row of n tokens owns the n columns before `end`, a step writes one column for all rows, and a
row that enters is copied to end where the others end. To the model this is a left-padded batch, so its own masks
(causal, sliding window, alibi) stay right and nothing here knows an architecture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from rlvr.engine.model import LanguageModel, close

_SLACK = 16  # our choice: free columns that a slab has after it grew or slid


class Rows(Protocol):
    """Rows 0..B-1; a row keeps its place until `move`."""

    def admit(self, prompts: Sequence[np.ndarray]) -> Tensor:
        """Adds rows at the end, prompts [n] int64 each; [rows added, d] states of their last tokens."""
        ...

    def advance(self, tokens: Tensor) -> Tensor:
        """Adds a token to each row, tokens [B]; [B, d] their states."""
        ...

    def move(self, holes: Sequence[int], last: Sequence[int], count: int) -> None:
        """Rows `last` take the places `holes`; the first `count` rows remain."""
        ...

    def wipe(self, row: int) -> None:
        """Nothing of a row whose numbers overflowed may reach another row."""
        ...

    def clear(self) -> None:
        """Drops all rows and what was kept of them."""
        ...

    def narrow(self, slots: int) -> None:
        """From now on there are at most `slots` rows."""
        ...


class PlainRows:
    """No cache: each step is a full forward pass over right-padded rows. Slow, and right for every model."""

    def __init__(self, lm: LanguageModel, budget: int) -> None:
        self.lm, self.budget = lm, budget  # budget: most tokens of one forward pass
        self.clear()

    def clear(self) -> None:
        self.ids = torch.zeros(0, 1, dtype=torch.int64, device=self.lm.device)
        self.lengths = torch.zeros(0, dtype=torch.int64, device=self.lm.device)

    def admit(self, prompts: Sequence[np.ndarray]) -> Tensor:
        ids, lengths = _padded(prompts, self.lm.device)
        width = max(ids.shape[1], self.ids.shape[1])
        self.ids = torch.cat([widened(self.ids, width), widened(ids, width)])
        self.lengths = torch.cat([self.lengths, lengths])
        return self._states(ids, lengths)

    def advance(self, tokens: Tensor) -> Tensor:
        self.ids = widened(self.ids, int(self.lengths.max()) + 1)
        self.ids.scatter_(1, self.lengths[:, None], tokens[:, None])
        self.lengths = self.lengths + 1
        return self._states(self.ids, self.lengths)

    def _states(self, ids: Tensor, lengths: Tensor) -> Tensor:
        size = max(1, self.budget // ids.shape[1])
        parts = zip(ids.split(size), lengths.split(size))
        return torch.cat([_last(self.lm.hidden(i[:, : int(n.max())], n), n) for i, n in parts])

    def move(self, holes: Sequence[int], last: Sequence[int], count: int) -> None:
        if holes:
            self.ids[holes], self.lengths[holes] = self.ids[last], self.lengths[last]
        self.ids, self.lengths = self.ids[:count], self.lengths[:count]

    def wipe(self, row: int) -> None:
        pass  # rows share nothing

    def narrow(self, slots: int) -> None:
        self.budget = max(1, self.budget // 2)


class CachedRows:
    """Keys and values are kept; prompts that rows share are computed once. Row b owns the columns first[b] to end."""

    def __init__(self, lm: LanguageModel, slots: int, budget: int) -> None:
        self.lm, self.slots, self.budget = lm, slots, budget  # most rows, most prompt tokens of one pass or copy
        self.clear()

    def clear(self) -> None:
        self.layers: list[Any] = []  # of _Layer
        self.cache = Cache(layers=self.layers)
        self.count = self.start = self.end = 0  # live rows, and the columns that some of them owns
        self.height = self.width = 0  # of the slabs
        self.first: list[int] = []
        self.prompts: list[bytes] = []
        self.prompt_states: list[Tensor] = []  # [d] each

    def admit(self, prompts: Sequence[np.ndarray]) -> Tensor:
        """A prompt that a live row or another new row has is not computed again: its keys and values are copied."""
        names = [p.tobytes() for p in prompts]
        live = {name: b for b, name in enumerate(self.prompts)}
        self._fit(self.count + len(prompts), max(map(len, prompts)), 0)
        self.first += [self.end - len(p) for p in prompts]
        self.prompts += names
        states: dict[bytes, Tensor] = {name: self.prompt_states[live[name]] for name in names if name in live}
        where: dict[bytes, list[int]] = {}
        for b, name in enumerate(names, self.count):
            where.setdefault(name, []).append(b)
        shared = [(live[name], self.first[live[name]], b) for name in states for b in where[name]]
        self._copy([x.slabs for x in self.layers], shared)
        unseen = [np.frombuffer(name, np.int64) for name in where if name not in states]
        for batch in _batches(unseen, self.budget):
            ids, lengths = _padded(batch, self.lm.device)
            cache = DynamicCache()
            h = self.lm.body(ids, torch.arange(ids.shape[1], device=ids.device).expand_as(ids), cache=cache)
            states |= zip((p.tobytes() for p in batch), _last(h, lengths))
            kept: list[Any] = cache.layers  # one that looks into another layer's cache has nothing of its own
            new = [(u, 0, b) for u, p in enumerate(batch) for b in where[p.tobytes()]]
            self._copy([[x.keys, x.values] if x.is_initialized else [] for x in kept], new)
        self.prompt_states += [states[name] for name in names]
        self.count, self.start = len(self.first), min(self.first)
        return torch.stack(self.prompt_states[-len(names) :])

    def advance(self, tokens: Tensor) -> Tensor:
        self._fit(self.count, 0, 1)
        first = torch.tensor(self.first, device=tokens.device)[:, None]
        mask = torch.arange(self.start, self.end + 1, device=tokens.device) >= first
        h = self.lm.body(tokens[:, None], self.end - first, mask.long(), self.cache)[:, 0]
        self.end += 1
        return h

    def move(self, holes: Sequence[int], last: Sequence[int], count: int) -> None:
        if holes:
            to, of = torch.tensor([holes, last], device=self.lm.device)
            for layer in self.layers:
                for slab in layer.slabs:
                    slab[to, :, self.start : self.end] = slab[of, :, self.start : self.end]
        for items in (self.first, self.prompts, self.prompt_states):
            _fill(items, holes, last, count)
        self.count, self.start = count, min(self.first, default=self.end)

    def wipe(self, row: int) -> None:
        for layer in self.layers:
            for slab in layer.slabs:
                slab[row] = 0  # others mask its columns, but 0 times nan is nan

    def narrow(self, slots: int) -> None:
        self.slots, self.budget = slots, max(1, self.budget // 2)

    def _fit(self, rows: int, longest: int, free: int) -> None:
        """Slabs for `rows` rows in which the live columns end at `longest` or later, with `free` columns after them."""
        span, end, width = self.end - self.start, max(self.end, longest), self.width
        if end + free > width:
            end = max(span, longest)  # sliding to the left costs what a step of attention costs: good if it is rare
            if end + _SLACK > width:
                width = end + max(_SLACK, end // 4)
        height = self.height if rows <= self.height else max(rows, min(self.slots, self.height * 3 // 2))
        grown, columns = (height, width) != (self.height, self.width), slice(self.start, self.end)
        if grown or end != self.end:
            for layer in self.layers:
                for i, slab in enumerate(layer.slabs):
                    live = slab[: self.count, :, columns]
                    new = slab.new_empty(height, slab.shape[1], width, slab.shape[3]) if grown else slab
                    new[: self.count, :, end - span : end] = live if grown else live.clone()
                    new[: self.count, :, : end - span] = 0
                    layer.slabs[i] = new
        self.first = [f + end - self.end for f in self.first]
        self.height, self.width, self.start, self.end = height, width, end - span, end

    def _copy(self, source: Sequence[Sequence[Tensor]], jobs: Sequence[tuple[int, int, int]]) -> None:
        """Keys and values of prompts, to the ends of new rows.

        source[layer] is (keys, values) or empty; jobs are (row there, the prompt's first column there, new row).
        """
        # a group at a time: [row there, first column there, first new row, one after the last]
        runs: list[list[int]] = []
        for of, column, to in sorted(jobs, key=lambda job: job[2]):
            if runs and runs[-1][0] == of and runs[-1][3] == to:
                runs[-1][3] += 1
            else:
                runs.append([of, column, to, to + 1])
        for n, tensors in enumerate(source):
            if n == len(self.layers):
                shapes = [(self.height, x.shape[1], self.width, x.shape[3]) for x in tensors]
                self.layers.append(_Layer(self, [x.new_empty(shape) for x, shape in zip(tensors, shapes)]))
            for slab, x in zip(self.layers[n].slabs, tensors):
                for of, column, to, beyond in runs:
                    first = self.first[to]
                    slab[to:beyond, :, :first] = 0  # masked, but 0 times what memory happens to hold may be nan
                    slab[to:beyond, :, first : self.end] = x[of, :, column : column + self.end - first]


class _Layer(DynamicLayer):
    """What a layer of the model sees as its cache: the live part of its two slabs, [B, heads, columns, head size]."""

    def __init__(self, rows: CachedRows, slabs: list[Tensor]) -> None:
        super().__init__()
        self.rows, self.slabs = rows, slabs
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        rows, end = slice(self.rows.count), self.rows.end
        keys, values = self.slabs
        keys[rows, :, end], values[rows, :, end] = key_states[:, :, 0], value_states[:, :, 0]
        return keys[rows, :, self.rows.start : end + 1], values[rows, :, self.rows.start : end + 1]

    def get_seq_length(self) -> int:
        return self.rows.end - self.rows.start

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0


def disagreement(rows: Rows, lm: LanguageModel) -> str:
    """Why these rows cannot be trusted; "" if they give the logits of full forward passes.

    Two prompts enter and grow, a third copies the first, then the first leaves and the third takes its place.
    """
    plain, context = PlainRows(lm, 1 << 14), lm.context or 16
    if context < 6:
        return f"a context of {context} tokens is too short to check a cache"
    long = (np.arange(min(9, context - 3)) * 7919 + 3) % lm.vocab
    tokens = torch.tensor([1, 0, 2], device=lm.device) % lm.vocab

    def logits(r: Rows) -> Tensor:
        states = [r.admit([long, long[1:3]]), r.advance(tokens[:2]), r.admit([long]), r.advance(tokens)]
        r.move([0], [2], 2)
        states.append(r.advance(tokens[:2]))
        r.clear()
        return lm.logits(torch.cat(states))

    want = logits(plain)
    try:
        got = logits(rows)
    except Exception as error:  # the boundary: a model whose cache is of another kind is decoded without it
        return f"its cache is no table of keys and values ({type(error).__name__}: {error})"
    return "" if close(got, want) else "decoding with a cache gives other logits than a full forward pass"


def widened(table: Tensor, width: int, fill: int = 0) -> Tensor:
    """The table with at least `width` columns (its last axis), new ones filled."""
    if width <= table.shape[-1]:
        return table
    return torch.cat([table, table.new_full((*table.shape[:-1], width - table.shape[-1]), fill)], -1)


def _fill(items: list[Any], holes: Sequence[int], last: Sequence[int], count: int) -> None:
    for hole, b in zip(holes, last):
        items[hole] = items[b]
    del items[count:]


def _padded(prompts: Sequence[np.ndarray], device: torch.device) -> tuple[Tensor, Tensor]:
    """Right-padded ids [n, longest] and lengths [n]."""
    ids = np.zeros((len(prompts), max(map(len, prompts))), np.int64)
    for row, prompt in zip(ids, prompts):
        row[: len(prompt)] = prompt
    return torch.from_numpy(ids).to(device), torch.tensor([len(p) for p in prompts], device=device)


def _last(h: Tensor, lengths: Tensor) -> Tensor:
    return h[torch.arange(len(h), device=h.device), lengths - 1]


def _batches(prompts: Sequence[np.ndarray], budget: int) -> list[list[np.ndarray]]:
    """Prompts, shortest first, in batches of at most `budget` padded tokens, or of one prompt."""
    batches: list[list[np.ndarray]] = []
    for prompt in sorted(prompts, key=len):
        if batches and (len(batches[-1]) + 1) * len(prompt) <= budget:
            batches[-1].append(prompt)
        else:
            batches.append([prompt])
    return batches

"""Packed streams: one value per trained token, rows laid end to end. There is no padding and no mask.

N trained tokens in R rows. Token streams are [N] or [N, K], row streams [R] or [R, K]; `streams.TABLE` says which.
Everything in a batch is detached: only `Now`, the running forward pass, carries gradient. Reductions are deterministic:
sums run over rows in the order of `id`, so the order of rows in a batch cannot enter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from rlvr import streams


@dataclass(frozen=True, slots=True)
class Chains:
    """The exact ids behind a batch. Row i is `ids[starts[i] : starts[i] + lengths[i]]`; `at` [N] are the positions of
    the trained tokens in their own row, in the order of the batch's tokens."""

    ids: Tensor  # [M] long, all rows laid end to end
    lengths: Tensor  # [R] long
    at: Tensor  # [N] long
    starts: Tensor  # [R] long

    @staticmethod
    def of(rows: Sequence[Any], at: Sequence[Any]) -> Chains:
        """From one id array and one position array a row."""
        as_long = lambda x: torch.as_tensor(x, dtype=torch.long)  # noqa: E731
        lengths = torch.tensor([len(r) for r in rows], dtype=torch.long)
        join = lambda parts: torch.cat([as_long(p) for p in parts]) if parts else torch.zeros(0, dtype=torch.long)  # noqa: E731
        return Chains(join(rows), lengths, join(at), lengths.cumsum(0) - lengths)

    def padded(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """[B, L] right-padded ids and [B] lengths of these rows."""
        lengths, starts = self.lengths[rows], self.starts[rows]
        column = torch.arange(int(lengths.max()) if len(rows) else 0, device=self.ids.device)
        inside = column < lengths[:, None]
        source = torch.where(inside, starts[:, None] + column, 0)
        return torch.where(inside, self.ids[source], 0), lengths

    def row(self, i: int) -> Tensor:
        return self.ids[self.starts[i] : self.starts[i] + self.lengths[i]]

    def first(self, length: Tensor) -> Tensor:
        """[R] the position of each row's first trained token, its whole length where it has none; `length` [R] are its
        trained tokens."""
        start = length.cumsum(0) - length
        at = torch.cat([self.at, self.at.new_zeros(1)])[start]
        return torch.where(length > 0, at, self.lengths)

    def prefixes(self, rows: Tensor, size: Tensor) -> Tensor:
        """[B] for each of these rows the first of them, an index into `rows`, with the same first `size` [B] ids."""
        n, device = len(rows), rows.device
        row = torch.repeat_interleave(torch.arange(n, device=device), size)
        place = torch.arange(len(row), device=device) - (size.cumsum(0) - size)[row]
        ids = self.ids[self.starts[rows][row] + place]
        # 64-bit sums of odd products, wrapping: equal prefixes have equal sums; that equal sums have equal prefixes is
        # looked at, id by id
        terms = (ids + 1) * (place * 2 + 1) * -7046029254386353131
        name = (size * -4658895280553007687).index_add_(0, row, terms ^ (terms >> 29))
        _, inverse = torch.unique(name, return_inverse=True)
        alone = torch.arange(n, device=device)
        first = torch.full((n,), n, device=device).scatter_reduce_(0, inverse, alone, "amin")[inverse]
        first = torch.where(size[first] == size, first, alone)
        same = self.ids[self.starts[rows[first]][row] + place] == ids
        wrong = torch.zeros(n, dtype=torch.bool, device=device).index_put_(
            (row[~same],), torch.tensor(True, device=device)
        )
        return torch.where(wrong, alone, first)


@dataclass(frozen=True, slots=True)
class Batch:
    length: Tensor  # [R] long, trained tokens a row; may be 0
    row: Tensor  # [N] long, the row of each token
    tokens: Mapping[str, Tensor]
    rows: Mapping[str, Tensor]
    chains: Chains | None = None
    side: Mapping[str, Batch] = field(default_factory=dict)  # other rows that somebody asked to have scored
    whole: bool = True  # False inside a loss: there group and batch statistics refuse to be computed

    @staticmethod
    def pack(length: Tensor, chains: Chains | None = None, **given: Tensor) -> Batch:
        """A batch of rows with `length` trained tokens each. Unless given: every row is its own group and episode,
        everything is known, and all weights are 1."""
        length = length.long()
        r, device = len(length), length.device
        order = torch.arange(r, device=device)
        row = torch.repeat_interleave(order, length)
        start = Batch(length, row, {}, {}, chains)
        rows: dict[str, Tensor] = {
            "id": order,
            "group": order,
            "episode": order,
            "known": torch.ones(r, dtype=torch.bool, device=device),
            "truncated": torch.zeros(r, dtype=torch.bool, device=device),
            "demo": torch.zeros(r, dtype=torch.bool, device=device),
            "role": torch.zeros(r, dtype=torch.long, device=device),
            "path_length": length,
            "progress": torch.zeros(r, dtype=torch.float64, device=device),
        }
        return start.with_({**rows, **given})

    def with_(self, new: Mapping[str, Tensor]) -> Batch:
        """A batch with these streams added or replaced. Raises on unknown names, wrong lengths and gradients."""
        tokens, rows = dict(self.tokens), dict(self.rows)
        for name, x in new.items():
            kind = streams.per(name)
            want = len(self.row) if kind == "token" else len(self.length)
            if x.requires_grad:
                raise ValueError(f"stream {name!r} carries gradient; only the running forward pass may")
            if x.dim() == 0 or len(x) != want:
                raise ValueError(f"stream {name!r} has shape {tuple(x.shape)}; this batch has {want} {kind}s")
            (tokens if kind == "token" else rows)[name] = x
        return replace(self, tokens=tokens, rows=rows)

    def __getitem__(self, name: str) -> Tensor:
        if name in self.tokens:
            return self.tokens[name]
        if name in self.rows:
            return self.rows[name]
        streams.per(name)  # a misspelt name says so
        raise KeyError(f"stream {name!r} is not in this batch; a piece that reads it must list it in `needs`")

    def __contains__(self, name: str) -> bool:
        return name in self.tokens or name in self.rows

    def __len__(self) -> int:
        return len(self.length)

    def to(self, device: torch.device | str) -> Batch:
        move: Callable[[Tensor], Tensor] = lambda x: x.to(device)  # noqa: E731
        chains = self.chains
        if chains is not None:
            chains = Chains(move(chains.ids), move(chains.lengths), move(chains.at), move(chains.starts))
        return Batch(
            move(self.length),
            move(self.row),
            {k: move(x) for k, x in self.tokens.items()},
            {k: move(x) for k, x in self.rows.items()},
            chains,
            {k: b.to(device) for k, b in self.side.items()},
            self.whole,
        )

    # ---- along rows --------------------------------------------------------------------------------------
    @property
    def first(self) -> Tensor:
        """[R] index of each row's first token (of the next row's, where the row is empty)."""
        return self.length.cumsum(0) - self.length

    def row_sum(self, x: Tensor) -> Tensor:
        """[R, ...] sum of a token stream over each row; 0 for empty rows. Carries gradient."""
        if x.dtype == torch.bool or not x.is_floating_point():
            x = x.long()
            return x.new_zeros(len(self.length), *x.shape[1:]).index_add(0, self.row, x)
        return _segment_sum(x, self.length)

    def row_mean(self, x: Tensor) -> Tensor:
        """[R, ...] mean over each row's tokens; 0 for empty rows."""
        n = self.length.clamp(min=1).to(x.dtype)
        return self.row_sum(x) / n.reshape(-1, *[1] * (x.dim() - 1))

    def spread(self, x: Tensor) -> Tensor:
        """[N, ...] a row stream laid on each of the row's tokens."""
        return x[self.row]

    def segment_mean(self, x: Tensor, start: Tensor) -> Tensor:
        """[N] mean over contiguous segments; `start` [N] bool marks each segment's first token. A row's first token
        always starts one, so that any slice of a batch is valid."""
        if not len(x):
            return x
        begin = start.clone()
        begin[self.first[self.length > 0]] = True
        at = begin.nonzero()[:, 0]
        n = torch.diff(at, append=at.new_tensor([len(x)]))
        return torch.repeat_interleave(_segment_sum(x, n) / n.to(x.dtype), n, output_size=len(x))

    def mean_at(self, x: Tensor, level: str) -> Tensor:
        """[N] x averaged at a level: 'token', 'row', or the name of a stream of segment starts."""
        if level == "token":
            return x
        if level == "row":
            return self.spread(self.row_mean(x))
        return self.segment_mean(x, self[level])

    def scan(self, x: Tensor, keep: float, reverse: bool = False) -> Tensor:
        """[N] y_t = x_t + keep * y_(t-1) along each row (reverse: y_(t+1)), in log2(longest row) passes."""
        n = len(x)
        if not n:
            return x
        y = x.flip(0) if reverse else x
        edge = torch.zeros(n, dtype=torch.bool, device=x.device)
        busy = self.length > 0
        edge[(self.length.cumsum(0) - 1 if reverse else self.first)[busy]] = True
        k = torch.full_like(x, keep).masked_fill(edge.flip(0) if reverse else edge, 0.0)
        step, longest = 1, int(self.length.max())
        while step < longest:
            y = torch.cat([y[:step], y[step:] + k[step:] * y[:-step]])
            k = torch.cat([k.new_zeros(step), k[step:] * k[:-step]])
            step *= 2
        return y.flip(0) if reverse else y

    def shift(self, x: Tensor, by: int, fill: float) -> Tensor:
        """[N] the value `by` tokens later in the same row (negative: earlier), `fill` beyond its ends."""
        n = len(x)
        out = torch.full_like(x, fill)
        if abs(by) < n:
            here, there = (slice(0, n - by), slice(by, n)) if by >= 0 else (slice(-by, n), slice(0, n + by))
            out[here] = torch.where(self.row[here] == self.row[there], x[there], out[here])
        return out

    def row_quantile(self, x: Tensor, q: float, where: Tensor) -> Tensor:
        """[R] linearly interpolated quantile over each row's tokens in `where`; inf for rows that have none."""
        value, row = x[where], self.row[where]
        if not len(value):
            return torch.full((len(self.length),), torch.inf, dtype=x.dtype, device=x.device)
        value, order = value.sort(stable=True)
        value = value[row[order].argsort(stable=True)]
        n = torch.bincount(row, minlength=len(self.length))
        place = q * (n - 1).clamp(min=0).to(x.dtype)
        base, low = n.cumsum(0) - n, place.floor()
        at = lambda p: (base + p.long()).clamp(max=len(value) - 1)  # noqa: E731
        return torch.where(n > 0, torch.lerp(value[at(low)], value[at(place.ceil())], place - low), torch.inf)

    # ---- over groups -------------------------------------------------------------------------------------
    def group_sum(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        """[R] float64: sum of a row stream over the row's group. Each *episode* with a row in `where` (default: known
        rows) counts once, by its row of lowest id. Raises inside a loss: a group's statistic needs the whole group."""
        return self._group_sums([x], where)[0]

    def _group_sums(self, streams: Sequence[Tensor], where: Tensor | None) -> tuple[Tensor, ...]:
        """The sums of several row streams: who counts and in which order is worked out once."""
        if not self.whole:
            raise RuntimeError(
                "a group statistic inside a loss: a micro-batch may hold part of a group; compute it in a derive piece"
            )
        where = self["known"] if where is None else where
        where = where.bool() & self.one_row_an_episode(where.bool())
        table = torch.stack([torch.where(where, x.double(), 0.0) for x in streams], 1)
        return self.sum_by(self["group"], table).unbind(1)

    def episode_sum(self, x: Tensor) -> Tensor:
        """[R] float64: sum of a row stream over all rows of the row's episode. Raises inside a loss, as a group's."""
        if not self.whole:
            raise RuntimeError("an episode's statistic inside a loss: a micro-batch may hold part of an episode")
        return self.sum_by(self["episode"], x.double())

    def mean_by(self, key: Tensor, x: Tensor, where: Tensor) -> Tensor:
        """[R] float64: mean of a row stream over the rows of one key [R] that are in `where`, each row once; 0 where
        there is none. Inside a loss it is for keys that `together` keeps whole."""
        n = self.sum_by(key, where.double())
        return self.sum_by(key, torch.where(where, x.double(), 0.0)) / n.clamp(min=1)

    def sum_by(self, key: Tensor, value: Tensor) -> Tensor:
        """[R, ...] sum of a row stream over rows of one key, by id within it: the order of rows cannot enter."""
        order = torch.argsort(self["id"], stable=True)
        order = order[torch.argsort(key[order], stable=True)]
        _, where_in, n = torch.unique_consecutive(key[order], return_inverse=True, return_counts=True)
        out = torch.empty_like(value)
        out[order] = _segment_sum(value[order], n)[where_in]
        return out

    def group_count(self, where: Tensor | None = None) -> Tensor:
        """[R] float64: episodes of the row's group that have a row in `where` (default: known rows)."""
        return self.group_sum(torch.ones_like(self.length), where)

    def group_mean(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        """[R] float64: mean over the group's episodes; 0 where none counts."""
        total, n = self._group_sums([x, torch.ones_like(self.length)], where)
        return total / n.clamp(min=1)

    def group_std(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        """[R] float64: population standard deviation; exactly 0 where the spread is below the rounding error of x."""
        where = self["known"] if where is None else where
        squares = (x.double() - self.group_mean(x, where)) ** 2, x.double() ** 2
        *sums, n = self._group_sums([*squares, torch.ones_like(self.length)], where)
        std, size = ((total / n.clamp(min=1)).sqrt() for total in sums)
        return torch.where(
            std <= 8 * torch.finfo(x.dtype if x.is_floating_point() else torch.float64).eps * size, 0.0, std
        )

    def one_row_an_episode(self, where: Tensor) -> Tensor:
        """[R] bool: of each episode's rows in `where`, the one of lowest id."""
        episode = self["episode"]
        _, inverse = torch.unique(episode, return_inverse=True)
        lowest = torch.full((len(episode),), torch.iinfo(torch.long).max, device=episode.device)
        lowest = lowest.scatter_reduce(0, inverse, torch.where(where, self["id"], torch.iinfo(torch.long).max), "amin")
        return self["id"] == lowest[inverse]

    # ---- cutting -----------------------------------------------------------------------------------------
    def take(self, rows: Tensor, whole: bool = True, names: set[str] | None = None) -> Batch:
        """The batch of these rows, in this order; `names` limits the streams that are carried."""
        n = self.length[rows]
        new = torch.repeat_interleave(torch.arange(len(rows), device=n.device), n)
        index = self.token_index(rows)
        chains = self.chains
        if chains is not None:
            chains = replace(chains, lengths=chains.lengths[rows], starts=chains.starts[rows], at=chains.at[index])
        keep = lambda k: names is None or k in names  # noqa: E731
        return Batch(
            n,
            new,
            {k: x[index] for k, x in self.tokens.items() if keep(k)},
            {k: x[rows] for k, x in self.rows.items() if keep(k)},
            chains,
            self.side,
            whole,
        )

    def token_index(self, rows: Tensor) -> Tensor:
        """[n] indices into this batch's tokens of the tokens of these rows, in this order."""
        n = self.length[rows]
        new = torch.repeat_interleave(torch.arange(len(rows), device=n.device), n)
        return torch.arange(len(new), device=n.device) - (n.cumsum(0) - n)[new] + self.first[rows][new]

    def units(self, together: str = "row") -> Tensor:
        """[R] long: rows with one number must not be parted. `together`: 'row', 'group', 'episode' or 'pair' (-1: on
        its own)."""
        order = torch.arange(len(self), device=self.length.device)
        if together == "row":
            return order
        key = self[together]
        return torch.unique(torch.where(key < 0, -1 - order, key), return_inverse=True)[1]

    def cut(self, budget: int, together: str = "row", rows: Tensor | None = None) -> list[Tensor]:
        """Row indices of micro-batches whose padded size (rows x longest row, prompt included) stays within `budget`
        tokens, longest first; rows that belong together are never parted, and a unit above the budget gets a
        micro-batch of its own."""
        rows = torch.arange(len(self), device=self.length.device) if rows is None else rows
        size = (self.chains.lengths if self.chains is not None else self.length)[rows].tolist()
        members: dict[int, list[int]] = {}
        width: dict[int, int] = {}
        for i, (unit, n) in enumerate(zip(self.units(together)[rows].tolist(), size)):
            members.setdefault(unit, []).append(i)
            width[unit] = max(width.get(unit, 0), n)
        out: list[list[int]] = []
        current: list[int] = []
        longest = 0
        for unit in sorted(members, key=lambda u: (-width[u], u)):
            grown = max(longest, width[unit])
            if current and grown * (len(current) + len(members[unit])) > budget:
                out.append(current)
                current, grown = [], width[unit]
            current = current + members[unit]
            longest = grown
        if current:
            out.append(current)
        return [rows[torch.tensor(part, device=rows.device)] for part in out]

    def cut_packed(self, budget: int, together: str = "row", rows: Tensor | None = None) -> list[Tensor]:
        """As `cut`, for a forward pass that pads nothing and computes a prompt once: tokens are counted as they are, a
        prompt that rows share once a micro-batch, and rows that share one stay near each other."""
        chains = self.chains
        assert chains is not None
        rows = torch.arange(len(self), device=self.length.device) if rows is None else rows
        prompt = chains.first(self.length)[rows]
        names, prompts = chains.prefixes(rows, prompt).tolist(), prompt.tolist()
        sizes = (chains.lengths[rows] - prompt).tolist()
        members: dict[int, list[int]] = {}
        for i, unit in enumerate(self.units(together)[rows].tolist()):
            members.setdefault(unit, []).append(i)
        out: list[list[int]] = []
        current: list[int] = []
        roots: dict[int, int] = {}  # of the current micro-batch: name and length
        own = 0
        for unit in sorted(members, key=lambda u: (names[members[u][0]], u)):
            new = {names[i]: prompts[i] for i in members[unit]}
            size = sum(sizes[i] for i in members[unit])
            if current and own + size + sum({**roots, **new}.values()) > budget:
                out.append(current)
                current, roots, own = [], {}, 0
            current = current + members[unit]
            roots |= new
            own += size
        if current:
            out.append(current)
        return [rows[torch.tensor(part, device=rows.device)] for part in out]


def _segment_sum(x: Tensor, lengths: Tensor) -> Tensor:
    """Sum over consecutive segments of these lengths (0 allowed), in order, deterministically."""
    if not len(lengths):
        return x.new_zeros(0, *x.shape[1:])
    if not x.is_floating_point():
        x = x.to(torch.float64)
    return torch.segment_reduce(x, "sum", lengths=lengths, initial=0, axis=0)


@dataclass(frozen=True, slots=True)
class Now:
    """The running forward pass of one model on one micro-batch: the only tensors that carry gradient."""

    logp: Tensor  # [N]
    entropy: Tensor | None = None  # [N] nats; carries gradient too
    value: Tensor | None = None  # [N]
    ratio: Tensor | None = None  # [N] importance ratio at the plan's level
    logp_at: Mapping[str, Tensor] = field(default_factory=dict)  # name of an ids stream [N, K] -> [N, K]


@dataclass(frozen=True, slots=True)
class Tally:
    """A metric that adds up over micro-batches and ranks: a mean as (total, count), a sum, or a maximum. Kept in
    tensors, so that nothing waits for a device inside the loop."""

    total: Tensor | float
    count: Tensor | float = 1.0
    how: Literal["mean", "sum", "max"] = "mean"

    @staticmethod
    def mean(x: Tensor, where: Tensor | None = None) -> Tally:
        """Mean of x over the tokens or rows in `where`."""
        x = x.detach().double()
        if where is None:
            return Tally(x.sum(), float(len(x)))
        return Tally(torch.where(where, x, 0.0).sum(), where.sum())

    @staticmethod
    def max(x: Tensor, where: Tensor | None = None) -> Tally:
        x = x.detach().double()
        x = x if where is None else x[where]
        return Tally(x.max() if len(x) else torch.tensor(-torch.inf), 1.0, "max")

    def __add__(self, other: Tally) -> Tally:
        if self.how == "max":
            return Tally(torch.maximum(torch.as_tensor(self.total), torch.as_tensor(other.total)), 1.0, "max")
        return Tally(self.total + other.total, self.count + other.count, self.how)

    def value(self) -> float:
        """The mean (nan over nothing), the sum or the maximum."""
        if self.how != "mean":
            return float(self.total)
        count = float(self.count)
        return float(self.total) / count if count else float("nan")


def merge(into: dict[str, Tally], new: Mapping[str, Tally]) -> None:
    """Add `new` into `into`, name by name."""
    for name, tally in new.items():
        into[name] = into[name] + tally if name in into else tally


def ratio_at(logp: Tensor, anchor: Tensor, batch: Batch, level: str = "token") -> Tensor:
    """[N] exp of the mean log-ratio at a level ('token', 'row' or a stream of segment starts); log-ratios are clamped
    to [-20, 20] before exp, so that it cannot overflow."""
    return batch.mean_at(logp - anchor, level).clamp(-20, 20).exp()

"""The embedded sampler: continuous decoding of any Hugging Face causal LM, with noise keyed by (key, position, token).

Finished rows leave at once, the last rows of the batch move into their places, waiting requests enter. What is known
of a row stays in tables on the device, so that a step costs Python little and the device one wait. How rows are kept:
see `rows.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlvr.engine.model import LanguageModel, chunk_rows, evaluating
from rlvr.engine.noise import gumbel, wrap
from rlvr.engine.out_of_memory import OutOfMemory, ran_out
from rlvr.engine.protocol import Request, Sample, Unsupported
from rlvr.engine.rows import CachedRows, PlainRows, Rows, disagreement, widened
from rlvr.records import digest

log = logging.getLogger(__name__)
PREFILL = 16384  # our choice: prompt tokens of one forward pass
_STREAMS = ("logp", "plain_logp", "entropy")


@dataclass(slots=True, eq=False)
class _Row:
    """A request on its way."""

    request: Request
    future: asyncio.Future[Sample]
    ids: np.ndarray  # [n] int64, the prompt
    limit: int  # most tokens that it may get
    reason: str  # the finish code if it gets them all
    slot: int = -1  # its line in the tables of sampled tokens
    born: int = -1  # the step that samples its first token


class _Wishes(NamedTuple):
    """What some of the live rows ask for, and the step in which the first of them was born."""

    random: bool
    greedy: bool
    top_k: bool
    top_p: bool
    entropy: bool
    oldest: int

    @staticmethod
    def of(rows: Sequence[_Row]) -> _Wishes:
        kinds = {(r.temperature > 0, r.top_k > 0, r.top_p < 1, "entropy" in r.want) for r in (x.request for x in rows)}
        random, k, p, entropy = (any(kind[i] for kind in kinds) for i in range(4))
        return _Wishes(random, not all(kind[0] for kind in kinds), k, p, entropy, min(x.born for x in rows))


class TorchSampler:
    """Answers sampling requests with an embedded model; see `protocol.Sampler`, `Request` and `Sample`.

    lm: the model, sampled in eval mode whatever mode it is in. slots: most rows decoded together; memory grows with
    the rows and lengths that really occur, and where it runs out, half as many rows begin again. prefill_tokens: most
    prompt tokens of one forward pass. Given the weights, a sample is a function of its request alone, up to rounding:
    not of the batch, the order of requests or the device.
    """

    def __init__(self, lm: LanguageModel, slots: int = 256, prefill_tokens: int = PREFILL) -> None:
        if slots < 1 or prefill_tokens < 1:
            raise ValueError(f"slots and prefill_tokens are at least 1, got {slots} and {prefill_tokens}")
        self.lm, self.slots, self.version = lm, slots, 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting: deque[_Row] = deque()
        self._live: list[_Row] = []  # row b of the batch is _live[b]
        self._someone_left = False
        self._exact = torch.float64 if lm.dtype == torch.float64 else torch.float32
        self._rows: Rows = CachedRows(lm, slots, prefill_tokens)
        self._modules = tuple(lm.model.modules())  # walking through a model costs as much as a small layer of it
        with torch.inference_mode(), evaluating(self._modules):
            fault = disagreement(self._rows, lm)
        if fault:
            log.warning("%s is decoded by full forward passes, slowly: %s", type(lm.model).__name__, fault)
            self._rows = PlainRows(lm, prefill_tokens)
        self._forget()

    async def sample(self, request: Request) -> Sample:
        """Continues request.ids; cancelling it frees its row.

        Raises ValueError for a request that makes no sense, Unsupported for a stream that nobody computes,
        FloatingPointError if the model's logits are not finite, OutOfMemory if a single row does not fit.
        """
        ids = self._checked(request)
        room = request.max_new if self.lm.context is None else min(request.max_new, self.lm.context - len(ids))
        if room <= 0:
            return self._answer(request, [], [[], [], []], "length" if request.max_new <= 0 else "context")
        loop = asyncio.get_running_loop()
        self._join(loop)
        row = _Row(request, loop.create_future(), ids, room, "length" if room == request.max_new else "context")
        self._waiting.append(row)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._decode())
        try:
            return await row.future
        except asyncio.CancelledError:
            self._someone_left = True
            raise

    def publish(self, version: int) -> None:
        """New weights are in place: every cached key and value is dropped.

        A row in the middle of its sample ends "aborted", with what the old weights gave; waiting requests get the new
        weights.
        """
        self._retire([(b, "aborted") for b in range(len(self._live))])
        self._rows.clear()
        self.version = version

    # -- requests and event loops

    def _checked(self, request: Request) -> np.ndarray:
        ids, who = np.asarray(request.ids, np.int64), f"request {request.key}"
        if ids.ndim != 1 or not len(ids):
            raise ValueError(f"{who}: there is nothing to continue; give at least one token id, a BOS id for instance")
        if ids.min() < 0 or ids.max() >= self.lm.vocab:
            at = int(np.argmax((ids < 0) | (ids >= self.lm.vocab)))
            raise ValueError(f"{who}: ids[{at}] is {ids[at]}, but the vocabulary has 0..{self.lm.vocab - 1}")
        if not 0 <= request.temperature < float("inf"):
            raise ValueError(f"{who}: temperature is 0 (greedy) or above, got {request.temperature}")
        if not 0 < request.top_p <= 1 or request.top_k < 0:
            raise ValueError(
                f"{who}: top_p lies in (0, 1], top_k is 0 (off) or above; got {request.top_p}, {request.top_k}"
            )
        if unknown := request.want - set(_STREAMS):
            raise Unsupported(f"{who}: the torch sampler has no {sorted(unknown)}, only {', '.join(_STREAMS)}")
        return ids

    def _join(self, loop: asyncio.AbstractEventLoop) -> None:
        """asyncio.run makes a loop each time; what an ended loop left behind has nobody waiting for it."""
        if self._loop is loop:
            return
        if self._loop is not None and (self._live or self._waiting):
            if not self._loop.is_closed():
                raise RuntimeError("this sampler still serves another event loop; use one loop, or a sampler for each")
            self._forget()
        self._loop, self._task = loop, None

    def _forget(self) -> None:
        self._waiting.clear()
        self._live.clear()
        self._wishes: _Wishes | None = None  # of the live rows; None if they have changed
        self._rows.clear()
        device = self.lm.device
        self._tick = 0  # steps so far; token t of a row is sampled in step born + t
        self._free = list(range(self.slots))[::-1]
        # by row: [key, position of the next token - tick, born, slot, top_k], [temperature, top_p], stop ids padded
        # with -1
        self._ints = torch.zeros(self.slots, 5, dtype=torch.int64, device=device)
        self._floats = torch.ones(self.slots, 2, dtype=self._exact, device=device)
        self._stops = torch.full((self.slots, 1), -1, device=device)
        self._next = torch.zeros(0, dtype=torch.int64, device=device)  # [B] the tokens sampled last
        # by slot and t
        self._tokens = torch.zeros(self.slots, 64, dtype=torch.int64, device=device)
        self._values = torch.zeros(len(_STREAMS), self.slots, 64, dtype=self._exact, device=device)

    async def _decode(self) -> None:
        """Works while there are requests, and lets the event loop run between steps."""
        try:
            await asyncio.sleep(0)  # whoever is asking right now joins the first step
            while self._waiting or self._live:
                self._step()
                await asyncio.sleep(0)
            self._rows.clear()  # whoever trains next needs the memory
        except Exception as error:  # the boundary: each caller gets the failure
            asking = [*self._live, *self._waiting]
            self._forget()
            for row in asking:
                if not row.future.done():
                    row.future.set_exception(error)
        except BaseException:
            self._forget()
            raise

    # -- decoding

    def _step(self) -> None:
        """One token for every live row, and for the waiting ones that find a slot."""
        if self._someone_left:
            self._someone_left = False
            self._retire([(b, "aborted") for b, row in enumerate(self._live) if row.future.done()])
        try:
            with torch.inference_mode(), evaluating(self._modules):
                states = [self._rows.advance(self._next)] if self._live else []
                if entering := self._enter():
                    states.append(self._rows.admit([row.ids for row in entering]))
                if states:
                    self._sample_all(torch.cat(states))
        except RuntimeError as error:
            if not ran_out(error):
                raise
            self._halve()
        else:
            return
        torch.cuda.empty_cache()  # only now does nothing hold what the failed pass had made

    def _halve(self) -> None:
        """Every live row begins again, at most half as many at a time: it draws the same tokens again."""
        rows, waiting = list(self._live), list(self._waiting)
        if len(rows) < 2:
            n, key = max((len(row.ids) + self._tick - row.born, row.request.key) for row in rows)
            raise OutOfMemory(
                f"sampling: memory does not hold one row of {n} tokens (request {key}) beside the weights. Lower "
                'max_tokens, keep prompts short, set dtype = "bfloat16", or take a smaller model'
            )
        log.warning(
            "sampling: out of memory with %d answers at a time; going on with slots = %d, which changes no result. Put "
            "it into the recipe to save the lost time",
            *(len(rows), len(rows) // 2),
        )
        self.slots = len(rows) // 2
        self._rows.narrow(self.slots)
        self._forget()
        self._waiting.extend([*rows, *waiting])

    def _enter(self) -> list[_Row]:
        """The waiting requests that get a slot now."""
        entering: list[_Row] = []
        while self._waiting and self._free:
            row = self._waiting.popleft()
            if not row.future.done():
                row.slot, row.born = self._free.pop(), self._tick
                entering.append(row)
        if entering:
            here = slice(len(self._live), len(self._live) + len(entering))
            self._stops = widened(self._stops, max(len(row.request.stop_ids) for row in entering), -1)
            ints, floats, stops = [], [], []
            for row in entering:
                r = row.request
                ints.append((wrap(r.key), len(row.ids) - self._tick, self._tick, row.slot, r.top_k))
                floats.append((r.temperature, r.top_p))
                stops.append([*r.stop_ids] + [-1] * (self._stops.shape[1] - len(r.stop_ids)))
            for table, values in ((self._ints, ints), (self._floats, floats), (self._stops, stops)):
                table[here] = torch.tensor(values, dtype=table.dtype, device=table.device)
            self._live += entering
            self._wishes = None
        return entering

    def _sample_all(self, h: Tensor) -> None:
        """A token for every row from its last state h [B, d]; notes it, and lets finished rows go."""
        key, base, born, slot, top_k = self._ints[: len(h)].unbind(1)
        temperature, top_p = self._floats[: len(h)].unbind(1)
        if self._wishes is None:
            self._wishes = _Wishes.of(self._live)
        random, greedy, cut_k, cut_p, entropy, oldest = self._wishes
        vocab, size, parts = self.lm.vocab, chunk_rows(self.lm.vocab, self._exact), []
        for i in range(0, len(h), size):
            s = slice(i, i + size)
            logits = self.lm.logits(h[s]).to(self._exact)
            noise = gumbel(key[s], base[s] + self._tick, vocab, self._exact) if random else None
            cuts = top_k[s] if cut_k else None, top_p[s] if cut_p else None
            parts.append(draw(logits, noise, temperature[s], *cuts, greedy, entropy))
        self._next = torch.cat([tokens for tokens, _ in parts])
        values = torch.cat([values for _, values in parts], 1)
        need = self._tick + 1 - oldest
        if need > self._tokens.shape[1]:
            self._tokens, self._values = widened(self._tokens, 2 * need), widened(self._values, 2 * need)
        self._tokens[slot, self._tick - born] = self._next
        self._values[:, slot, self._tick - born] = values
        stopped = (self._next[:, None] == self._stops[: len(h)]).any(1)
        states = (stopped + 2 * ~values[1].isfinite()).tolist()  # the step's only wait for the device
        self._tick += 1
        leaving = []
        for b, (row, state) in enumerate(zip(self._live, states)):
            if state or self._tick - row.born == row.limit:
                leaving.append((b, "failed" if state >= 2 else "stop" if state else row.reason))
        self._retire(leaving)

    def _retire(self, leaving: Sequence[tuple[int, str]]) -> None:
        """Answers rows (b, finish) and moves the last rows of the batch into the holes."""
        if not leaving:
            return
        rows = [self._live[b] for b, _ in leaving]
        counts = [self._tick - row.born for row in rows]
        slots = torch.tensor([row.slot for row in rows], device=self.lm.device)
        tokens = self._tokens[slots, : max(counts)].tolist()
        values = self._values[:, slots, : max(counts)].tolist()
        for i, (row, n, (b, finish)) in enumerate(zip(rows, counts, leaving)):
            self._free.append(row.slot)
            if finish == "failed":
                self._rows.wipe(b)
            if row.future.done() or row.future.get_loop().is_closed():
                continue
            if finish == "failed":
                row.future.set_exception(
                    FloatingPointError(
                        f"request {row.request.key}: the model's logits after {len(row.ids)} prompt tokens and {n - 1} "
                        "sampled ones are not finite; its weights or activations have overflowed"
                    )
                )
            else:
                row.future.set_result(self._answer(row.request, tokens[i][:n], [v[i][:n] for v in values], finish))
        gone, left = {b for b, _ in leaving}, len(self._live) - len(leaving)
        holes = [b for b in sorted(gone) if b < left]
        last = [b for b in range(left, len(self._live)) if b not in gone]
        for hole, b in zip(holes, last):
            self._live[hole] = self._live[b]
        del self._live[left:]
        self._wishes = None
        with torch.inference_mode():
            if holes:
                to, of = torch.tensor([holes, last], device=self.lm.device)
                for table in (self._ints, self._floats, self._stops, self._next):
                    table[to] = table[of]
            self._next = self._next[:left]
            self._rows.move(holes, last, left)

    def _answer(self, request: Request, ids: list[int], values: Sequence[list[float]], finish: str) -> Sample:
        streams = {name: v for name, v in zip(_STREAMS, values) if name != "entropy" or name in request.want}
        settings = request.temperature, request.top_p, request.top_k
        return Sample(ids, streams, finish, self.version, digest(request.ids), *settings)


def draw(
    logits: Tensor,
    noise: Tensor | None,
    temperature: Tensor,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
    greedy: bool = True,
    entropy: bool = True,
) -> tuple[Tensor, Tensor]:
    """Tokens [B] and [3, B] of (logp, plain_logp, entropy), as in `protocol.Sample`, from logits and noise [B, V].

    noise: Gumbel's, None if all rows are greedy. temperature [B], 0 for greedy rows. top_k [B], 0 for off, then top_p
    [B], 1 for off, cut the tempered distribution as Hugging Face's warpers do: top_k keeps ties, top_p keeps the
    smallest set whose probability reaches it. None means that no row is cut; greedy and entropy say whether some row
    needs that (entropy reads 0 otherwise). A row whose logits hold nan or +inf, or nothing but -inf, has a plain_logp
    that is not finite.
    """
    heat = torch.where(temperature > 0, temperature, 1) if greedy else temperature
    plain = torch.log_softmax(logits / heat[:, None], -1)
    kept = plain
    if top_k is not None:
        rank = top_k.clamp(1, logits.shape[1])[:, None]
        least = kept.topk(int(rank.max()), -1).values.gather(1, rank - 1)
        kept = kept.masked_fill((kept < least) & (top_k > 0)[:, None], -torch.inf)
    if top_p is not None:
        outside = _outside_nucleus(torch.softmax(kept, -1), top_p) & (top_p < 1)[:, None]
        kept = kept.masked_fill(outside, -torch.inf)
    real = plain if kept is plain else torch.log_softmax(kept, -1)
    score = logits if noise is None else real + noise
    if greedy and noise is not None:
        score = torch.where(temperature[:, None] > 0, score, logits)
    tokens = score.argmax(-1, keepdim=True)
    logp = real.gather(1, tokens)[:, 0]
    if greedy:
        logp = torch.where(temperature > 0, logp, 0)
    nats = torch.special.entr(plain.exp()).sum(-1) if entropy else torch.zeros_like(logp)
    return tokens[:, 0], torch.stack([logp, plain.gather(1, tokens)[:, 0], nats])


def _outside_nucleus(p: Tensor, top_p: Tensor) -> Tensor:
    """[B, V] bool: tokens outside the smallest set that reaches top_p [B]; of equals the lower ids are inside."""
    # nearly always a few tokens suffice, and sorting all of them costs more than the rest of a draw
    for size in (min(1024, p.shape[1]), p.shape[1]):
        best = p.topk(size, -1).values
        inside = best.cumsum(-1) - best < top_p[:, None]
        if not (inside[:, -1] & (top_p < 1)).any():
            break
    least = best.gather(1, inside.sum(-1, keepdim=True).clamp(min=1) - 1)
    equals = p == least
    room = (inside & (best == least)).sum(-1, keepdim=True)
    return (p < least) | equals & (equals.cumsum(-1) > room)

"""Looks: models run once under every context that any view names, and probes say what they saw.

All views that look through one model go together. Their rows are cut into micro-batches by the longest of a row's
contexts; of a micro-batch every model sees, under every context, the rows that some view wants there; then the head
runs a chunk of tokens at a time and each view's probe is asked. What a server tells stands beside what models here see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlvr.batch import Batch
from rlvr.engine.critic import Critic
from rlvr.streams import per
from rlvr.views import Context, Seen, Told, View

if TYPE_CHECKING:
    from rlvr.engine.torch_engine import TorchEngine

LOGITS = 2**24  # our choice: of all contexts of one chunk, 64 MiB of float32
Eye = tuple[str, Context | None]  # a model and a context


def taken(engine: TorchEngine, batch: Batch, views: Sequence[View], aside: bool = False) -> Batch:
    """The batch with every stream of these views that it does not have yet. `aside`: it is another batch's side."""
    due = [v for v in views if v.side is not None or not all(stream in batch for stream in v.gives)]
    for shared in _sharing([v for v in due if v.side is None]):
        batch = batch.with_(_look(engine, batch, shared, aside))
    for name in dict.fromkeys(v.side[0] for v in due if v.side):
        batch = _aside(engine, batch, name, [v for v in due if v.side and v.side[0] == name])
    return batch


def _sharing(views: Sequence[View]) -> list[list[View]]:
    """Views in groups that have no model in common. The policy's come first: its log-probs stand where others have no
    say."""
    groups: list[list[View]] = []
    for view in views:
        apart, joined = list[list[View]](), list[View]()
        for group in groups:
            if any(view.models & other.models for other in group):
                joined += group
            else:
                apart.append(group)
        groups = [*apart, [*joined, view]]
    return sorted(groups, key=lambda group: not any("policy" in view.models for view in group))


# ---- rows of the batch itself ----------------------------------------------------------------------------------------
def _look(engine: TorchEngine, batch: Batch, views: Sequence[View], aside: bool) -> dict[str, Tensor]:
    behind = {c: _behind(batch, c) for c in dict.fromkeys(context for v in views for _, _, context in v.eyes)}
    wanted = [_rows(engine, batch, view, behind) for view in views]
    told: dict[Eye, Told] = {}
    for eye in dict.fromkeys((m, c) for v in views for _, m, c in v.eyes if m in engine.served):
        askers = [i for i, v in enumerate(views) if eye in _eyes(v)]
        most = max(getattr(views[i].probe, "top", 0) for i in askers)
        told[eye], heard = _told(engine, eye, behind[eye[1]][0], _any(wanted[i] for i in askers), most)
        for i in askers:
            wanted[i] = wanted[i] & heard
    here = {
        eye: _any(rows for v, rows in zip(views, wanted) if eye in _eyes(v))
        for eye in dict.fromkeys((m, c) for v in views for _, m, c in v.eyes if m not in engine.served)
    }
    for (model, context), rows in here.items():
        chains = behind[context][0].chains
        if chains is not None and (model not in engine.steppers or context is not None or aside):
            engine.read[model] = engine.read.get(model, 0) + int(chains.lengths[rows].sum())
    models = {model: engine.models[model] for model, _ in here}
    vocab = max((lm.vocab for lm in models.values() if not isinstance(lm, Critic)), default=1)
    chunk = max(1, LOGITS // vocab // max(1, len(here)))
    # the widest first: what has been computed of more tokens serves fewer
    asking = sorted(zip(views, wanted), key=lambda pair: -int(pair[1].sum()))

    def look(out: dict[str, Tensor], rows: Tensor) -> None:
        index = batch.token_index(rows)
        row = torch.repeat_interleave(rows, batch.length[rows])
        shown: dict[Eye, tuple[Tensor, Tensor, Tensor]] = {}
        for (model, context), mine in here.items():
            if bool(mine[rows].any()):
                part = behind[context][0].take(rows[mine[rows]], names=set())
                shown[model, context] = mine[row], *engine.hidden_of(engine.models[model], part)
        for i in range(0, len(index), chunk):
            piece = slice(i, i + chunk)
            seen: dict[Eye, tuple[Tensor, Seen | Told]] = {}
            for eye, (mine, hidden, token) in shown.items():
                before = int(mine[:i].sum())
                own = slice(before, before + int(mine[piece].sum()))
                seen[eye] = mine[piece], _seen(engine, eye[0], hidden[own], token[own])
            for eye, words in told.items():
                seen[eye] = torch.ones_like(row[piece], dtype=torch.bool), words.at(index[piece])
            for view, mine in asking:
                where = mine[row[piece]]
                if not bool(where.any()):
                    continue
                given = {name: batch[name][index[piece][where]] for name in getattr(view.probe, "needs", ())}
                words = view.probe({name: _of(*seen[m, c], where, given) for name, m, c in view.eyes})
                for stream, x in words.items():
                    _lay(out, stream, x, batch, index[piece][where], row[piece][where])

    rows = _any(wanted).nonzero()[:, 0]
    out: dict[str, Tensor] = {}
    if len(rows):
        widest = _widest([behind[context][0] for context in dict.fromkeys(c for _, c in here)] or [batch])
        packed = all(lm.packs for lm in models.values())
        names = " and ".join(sorted({model for view in views for model in view.models}))
        out = engine.in_parts(f"scoring by the {names}", widest, rows, dict[str, Tensor], look, "row", packed)
    for view, mine in zip(views, wanted):
        out |= _completed(engine, batch, view, mine, out)
    return out


def _completed(engine: TorchEngine, batch: Batch, view: View, looked: Tensor, out: Mapping[str, Tensor]) -> Any:
    """Every stream of a view: rows and tokens on which it has no say get the policy's own log-prob in *_logp."""
    own = batch["old_logp"] if "old_logp" in batch else out.get("old_logp")
    mute = sorted(frozenset[int]().union(*(engine.mute.get(model, frozenset()) for model in view.models)))
    new: dict[str, Tensor] = {}
    for stream in view.probe.gives:
        n = len(batch) if per(stream) == "row" else len(batch.row)
        x = out[stream] if stream in out else torch.zeros(n, device=engine.device)  # zeros: no row was looked at
        if stream.endswith("_logp") and own is not None:
            silent = ~batch.spread(looked) | torch.isin(batch["token"], torch.tensor(mute, device=x.device).long())
            x = torch.where(silent, own.to(x.dtype), x)
        new[stream] = x
    return {**new, view.looked: looked} if view.looked else new


def _rows(
    engine: TorchEngine, batch: Batch, view: View, behind: Mapping[Context | None, tuple[Batch, Tensor]]
) -> Tensor:
    """[R] bool: the rows that a view looks at."""
    rows = batch.length > 0
    if view.where is not None:
        rows = rows & view.where(batch)
    for _, model, context in view.eyes:
        edited, has = behind[context]
        rows = rows & has
        limit = getattr(engine.models.get(model), "context", None)
        if limit is not None and edited.chains is not None and not (model == "policy" and context is None):
            rows = rows & (edited.chains.lengths <= limit)
    return rows


def _seen(engine: TorchEngine, model: str, hidden: Tensor, token: Tensor) -> Seen:
    lm = engine.models[model]
    if isinstance(lm, Critic):
        return Seen(hidden, token, None, engine.temperature, lm.value(hidden))
    return Seen(hidden, token, lm.logits, engine.temperature, back=lm.pull_back)


def _of(have: Tensor, seen: Seen | Told, where: Tensor, streams: Mapping[str, Tensor]) -> Seen | Told:
    """Of what was seen at the tokens in `have`, the part at those in `where`."""
    inside = where[have]
    part = seen if bool(inside.all()) else seen.at(inside)
    part.streams = streams
    return part


def _told(engine: TorchEngine, eye: Eye, batch: Batch, rows: Tensor, top: int) -> tuple[Told, Tensor]:
    """What a server says of the tokens of these rows, [N] each, and the rows on which it had a word."""
    assert batch.chains is not None
    teacher, asked = engine.served[eye[0]], rows.nonzero()[:, 0].tolist()
    before = teacher.read
    told = teacher.told([batch.chains.row(i).tolist() for i in asked], top)
    engine.read[eye[0]] = engine.read.get(eye[0], 0) + teacher.read - before
    token = batch.chains.ids[batch.chains.starts[batch.row] + batch.chains.at]
    logp, heard = torch.zeros_like(batch["behavior_logp"]), torch.zeros_like(rows)
    ids = torch.full((len(logp), top), -1, device=logp.device)
    logps = torch.zeros(len(logp), top, dtype=logp.dtype, device=logp.device)
    places = batch.chains.at.split(batch.length.tolist())
    for i, row in zip(asked, told):
        if row is None:
            continue
        heard[i] = True
        own = (batch.row == i).nonzero()[:, 0]
        logp[own] = torch.tensor(row.logp, dtype=logp.dtype, device=logp.device)[places[i]]
        for n, place in zip(own.tolist(), places[i].tolist()) if top else ():
            best = sorted(row.top[place].items(), key=lambda named: -named[1])[:top]
            ids[n, : len(best)] = torch.tensor([id for id, _ in best], dtype=torch.long)
            logps[n, : len(best)] = torch.tensor([x for _, x in best], dtype=logp.dtype)
    return (Told(token, logp, ids, logps) if top else Told(token, logp)), heard


# ---- other rows ------------------------------------------------------------------------------------------------------
def _aside(engine: TorchEngine, batch: Batch, name: str, views: Sequence[View]) -> Batch:
    """The batch with what is seen of a side: of groups that somebody asks for, equal rows once."""
    make = next((v.side[1] for v in views if v.side and v.side[1] is not None), None)
    if name not in batch.side and make is None:
        raise KeyError(f"nothing gives the rows {name!r}; an annotate piece gives them as side/{name}")
    other = batch.side[name] if name in batch.side else make(batch)  # type: ignore[misc]
    first, of = _alike(other)

    def asked(view: View) -> Tensor:
        if view.where is None:
            return torch.ones_like(first, dtype=torch.bool)
        groups = torch.unique(batch["group"][view.where(batch)])
        wanted = torch.isin(other["group"], groups)
        return torch.zeros_like(first, dtype=torch.long).index_add(0, of, wanted.long()) > 0

    plain = [replace(view, side=None, where=_always(asked(view))) for view in views]
    scored = taken(engine, other.take(first), plain, aside=True)
    whole = scored.take(of)
    new = other.with_({stream: whole[stream] for view in views for stream in view.gives})
    return replace(batch, side={**batch.side, name: new})


def _always(rows: Tensor) -> Callable[[Batch], Tensor]:
    return lambda batch: rows


def _alike(batch: Batch) -> tuple[Tensor, Tensor]:
    """The first of each kind of row, [U], and which of these each row is, [R]."""
    assert batch.chains is not None
    kinds: dict[Any, int] = {}
    first: list[int] = []
    of: list[int] = []
    for i, places in enumerate(batch.chains.at.split(batch.length.tolist())):
        key = batch.chains.row(i).tolist(), places.tolist()
        n = kinds.setdefault(str(key), len(first))
        if n == len(first):
            first.append(i)
        of.append(n)
    as_long = lambda x: torch.tensor(x, dtype=torch.long, device=batch.length.device)  # noqa: E731
    return as_long(first), as_long(of)


# ---- prompts ---------------------------------------------------------------------------------------------------------
def _behind(batch: Batch, context: Context | None) -> tuple[Batch, Tensor]:
    """The same trained tokens after other prompts, and [R] which rows have one; rows without keep their own."""
    if context is None:
        return batch, torch.ones_like(batch.length, dtype=torch.bool)
    prompt, size = _as_table(context(batch), len(batch), batch.length.device)
    chains = batch.chains
    assert chains is not None
    has = (size > 0) & (batch.length > 0)
    old, new = torch.where(has, chains.first(batch.length), 0), torch.where(has, size, 0)
    lengths = chains.lengths - old + new
    starts = lengths.cumsum(0) - lengths
    row = torch.repeat_interleave(torch.arange(len(batch), device=lengths.device), lengths)
    place = torch.arange(len(row), device=lengths.device) - starts[row]
    inside = place < new[row]
    kept = chains.ids[torch.where(inside, 0, chains.starts[row] + place - new[row] + old[row])]
    ids = torch.where(inside, prompt[row, torch.where(inside, place, 0)], kept)
    edited = replace(chains, ids=ids, lengths=lengths, at=chains.at + (new - old)[batch.row], starts=starts)
    return replace(batch, chains=edited), size > 0


def _as_table(prompts: Any, rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Prompts as [R, K] long and their sizes [R], 0 where there is none."""
    if isinstance(prompts, Tensor) and prompts.dim() == 2 and not prompts.is_floating_point() and prompts.shape[1]:
        return prompts.clamp(min=0), (prompts >= 0).sum(1)
    if isinstance(prompts, Tensor):  # nobody has ids
        prompts = [None] * rows
    size = torch.tensor([len(p or ()) for p in prompts], dtype=torch.long, device=device)
    table = torch.zeros(rows, max(1, int(size.max()) if rows else 0), dtype=torch.long, device=device)
    for i, ids in enumerate(prompts):
        if ids:
            table[i, : len(ids)] = torch.as_tensor(ids, dtype=torch.long, device=device)
    return table, size


def _widest(batches: Sequence[Batch]) -> Batch:
    """Each row as it stands where it is longest: what micro-batches are cut by."""
    chains = [b.chains for b in batches if b.chains is not None]
    if len(batches) == 1 or not chains:
        return batches[0]
    lengths = torch.stack([c.lengths for c in chains])
    most = lengths.argmax(0)
    begin = torch.tensor([0, *(len(c.ids) for c in chains[:-1])], device=most.device).cumsum(0)
    rows, tokens = torch.arange(len(most), device=most.device), torch.arange(len(batches[0].row), device=most.device)
    picked = replace(
        chains[0],
        ids=torch.cat([c.ids for c in chains]),
        lengths=lengths[most, rows],
        starts=(torch.stack([c.starts for c in chains]) + begin[:, None])[most, rows],
        at=torch.stack([c.at for c in chains])[most[batches[0].row], tokens],
    )
    return replace(batches[0], chains=picked)


# ---- small things ----------------------------------------------------------------------------------------------------
def _eyes(view: View) -> set[Eye]:
    return {(model, context) for _, model, context in view.eyes}


def _any(flags: Any) -> Tensor:
    return torch.stack(list(flags)).any(0)


def _lay(out: dict[str, Tensor], stream: str, x: Tensor, batch: Batch, where: Tensor, row: Tensor) -> None:
    """Put a chunk's values where they belong; row streams are summed over the row's tokens."""
    by_row = per(stream) == "row"
    if stream not in out:
        out[stream] = x.new_zeros(len(batch) if by_row else len(batch.row), *x.shape[1:])
    if by_row:
        out[stream].index_add_(0, row, x)
    else:
        out[stream][where] = x

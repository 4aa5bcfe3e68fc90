"""Groups to one packed batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlvr import streams
from rlvr.batch import Batch, Chains
from rlvr.records import Group, Origin, Rollout
from rlvr.views import SIDE

# Streams of a rollout and what they are called in a batch.
SAMPLED = {"behavior_logp": "logp", "sampler_logp": "plain_logp", "sampler_entropy": "entropy"}


def pack(
    groups: Sequence[Group],
    trains: Iterable[Origin] = (Origin.POLICY,),
    dtype: torch.dtype = torch.float32,
    progress: float = 0.0,
) -> Batch:
    """All rows of these groups as one batch; tokens of the origins in `trains` that a row owns are its trained tokens.

    Streams that a rollout lacks (a demonstration has no sampler) are nan. Raises ValueError naming the row where a
    trained token has nothing before it, and where an annotation does not fit its rollout.
    """
    rows = [(g, group, row) for g, group in enumerate(groups) for row in group.rollouts]
    at = [_trained(row, trains) for _, _, row in rows]
    chains = Chains.of([row.ids for _, _, row in rows], at)
    lengths = torch.tensor([len(a) for a in at], dtype=torch.long)

    def token(name: str) -> Tensor:
        missing = np.full(0, np.nan, np.float32)
        parts = [
            row.streams[name][a] if name in row.streams else np.full(len(a), np.nan, np.float32)
            for (_, _, row), a in zip(rows, at)
        ]
        return torch.from_numpy(np.concatenate([missing, *parts])).to(dtype)

    given: dict[str, Tensor] = {name: token(source) for name, source in SAMPLED.items()}
    given["token"] = torch.from_numpy(_join([row.ids[a] for (_, _, row), a in zip(rows, at)])).long()
    given["origin"] = torch.from_numpy(_join([row.origin[a] for (_, _, row), a in zip(rows, at)])).long()

    verdicts = [group.verdicts.get(row.episode) for _, group, row in rows]
    known = [v is not None and v.known for v in verdicts]
    given |= {
        "group": torch.tensor([g for g, _, _ in rows], dtype=torch.long),
        "episode": _numbered((g, row.episode) for g, _, row in rows),
        "role": _numbered(row.role for _, _, row in rows),
        "known": torch.tensor(known, dtype=torch.bool),
        "correct": torch.tensor(
            [k and v is not None and v.label == "right" for k, v in zip(known, verdicts)], dtype=torch.bool
        ),
        "score": torch.tensor([v.score if k and v is not None else 0.0 for k, v in zip(known, verdicts)], dtype=dtype),
        "truncated": torch.tensor([row.truncated for _, _, row in rows], dtype=torch.bool),
        "demo": torch.tensor([row.source == "demo" for _, _, row in rows], dtype=torch.bool),
        "progress": torch.full((len(rows),), progress, dtype=torch.float64),
        "path_length": torch.tensor([int(row.wrote(trains).sum()) for _, _, row in rows]),
    }
    for part in sorted({name for v in verdicts if v is not None for name in v.parts}):
        values = [v.parts.get(part, float("nan")) if v is not None else float("nan") for v in verdicts]
        given[f"part/{part}"] = torch.tensor(values, dtype=dtype)
    batch = Batch.pack(lengths, chains, **given, **_annotated(groups, at, dtype))
    return replace(batch, side=_sides(groups))


def _trained(row: Rollout, trains: Iterable[Origin]) -> np.ndarray:
    at = np.flatnonzero(row.owned(trains))
    if len(at) and at[0] == 0:
        raise ValueError(
            f"{row.id}: its first token is trained, but nothing stands before it; a prompt has at least one token"
        )
    return at


def _join(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _numbered(names: Iterable[object]) -> Tensor:
    """Equal names get equal numbers, counted in order of appearance."""
    numbers: dict[object, int] = {}
    return torch.tensor([numbers.setdefault(name, len(numbers)) for name in names], dtype=torch.long)


def _annotated(groups: Sequence[Group], at: Sequence[np.ndarray], dtype: torch.dtype) -> dict[str, Tensor]:
    """Streams from `annotate`: a row stream has one value a rollout, or one list of ids, a token stream one array a
    rollout along its whole chain. Where a group has nothing to say, numbers are nan and lists empty."""
    out: dict[str, Tensor] = {}
    rows = [row for group in groups for row in group.rollouts]
    for name in sorted({name for group in groups for name in group.streams if not name.startswith(SIDE)}):
        values: list[Any] = []
        for group in groups:
            given = group.streams.get(name, [None] * len(group.rollouts))
            if len(given) != len(group.rollouts):
                raise ValueError(
                    f"group {group.id}: annotation {name!r} has {len(given)} entries for {len(group.rollouts)} rollouts"
                )
            values += list(given)
        if streams.per(name) == "token":
            out[name] = torch.from_numpy(_join([_along(name, *of) for of in zip(rows, values, at)])).to(dtype)
        elif any(np.ndim(value) for value in values):
            out[name] = _side_by_side([() if value is None else value for value in values])
        else:
            out[name] = torch.tensor([np.nan if value is None else value for value in values], dtype=dtype)
    return out


def _sides(groups: Sequence[Group]) -> dict[str, Batch]:
    """Rows that annotate pieces gave as "side/NAME", each with the number of its group; what the policy would have
    written in them is looked at, and nothing is trained."""
    out: dict[str, Batch] = {}
    for name in sorted({name for group in groups for name in group.streams if name.startswith(SIDE)}):
        of = [(g, row) for g, group in enumerate(groups) for row in group.streams.get(name, ())]
        at = [_trained(row, (Origin.POLICY,)) for _, row in of]
        out[name.removeprefix(SIDE)] = Batch.pack(
            torch.tensor([len(a) for a in at], dtype=torch.long),
            Chains.of([row.ids for _, row in of], at),
            group=torch.tensor([g for g, _ in of], dtype=torch.long),
            token=torch.from_numpy(_join([row.ids[a] for (_, row), a in zip(of, at)])).long(),
        )
    return out


def _along(name: str, row: Rollout, value: Any, at: np.ndarray) -> np.ndarray:
    """A rollout's value at each of its trained tokens."""
    if value is None:
        return np.full(len(at), np.nan)
    if len(value) != len(row.ids):
        raise ValueError(f"{row.id}: annotation {name!r} has {len(value)} values for {len(row.ids)} ids")
    return np.asarray(value, np.float64)[at]


def _side_by_side(lists: Sequence[Sequence[int]]) -> Tensor:
    """[R, K] long: lists of ids, -1 behind the shorter ones."""
    out = torch.full((len(lists), max(map(len, lists))), -1)
    for i, ids in enumerate(lists):
        out[i, : len(ids)] = torch.as_tensor(ids, dtype=torch.long)
    return out

"""Rollouts as the page holds them: a bounded choice of steps, groups and tokens, as JSON that stays in its element.

Bounds are our choice: a page of a few megabytes opens at once in every browser, and the Parquet files keep everything.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from rlvr.report.store import RowRecord, finite, read_rows, rollout_files
from rlvr.report.text import visible

STEPS, GROUPS = 8, 40
TOKENS = 160_000  # with token colours, over the whole page
TEXT = 4_000  # characters of one prompt or response
STREAMS = 8  # per rollout
FIRST = ("advantage", "entropy", "gap", "old_logp", "behavior_logp")
_UNSAFE = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def island(value: Any) -> Markup:
    """JSON for a <script type="application/json">; without '<', '>' and '&' no text in it can close the element."""
    return Markup(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_UNSAFE))


def evenly(items: Sequence[Any], most: int) -> list[Any]:
    """At most `most` items, the first and the last always among them."""
    if len(items) <= most:
        return list(items)
    return [items[i] for i in np.unique(np.linspace(0, len(items) - 1, most).round().astype(int))]


def kind_of(rows: Sequence[RowRecord]) -> str:
    """How the group's known verdicts fell out, as `records.Group.kind`."""
    labels = {row.verdict for row in rows if row.verdict != "unknown"}
    return "unknown" if not labels else "mixed" if len(labels) == 2 else "solved" if "right" in labels else "failed"


def rollouts(folder: Path, *, tokens: int = TOKENS) -> dict[str, Any]:
    """The page's `rollouts`: steps with groups and rows, and the vocabulary that token indices point into.

    A file that cannot be read becomes a sentence in `faults`: a report must not fail because a disk was full.
    """
    import pyarrow as pa

    files = rollout_files(folder)
    chosen = evenly(list(files), STEPS)
    vocabulary: dict[tuple[int, str], int] = {}
    steps, faults, left = [], [], tokens
    for i, step in enumerate(chosen):
        try:
            rows = read_rows(files[step])
        except (OSError, KeyError, ValueError, TypeError, pa.ArrowException) as error:
            faults.append(f"{files[step].name} could not be read: {error}")
            continue
        told, used = _step(step, rows, left // (len(chosen) - i), vocabulary)
        steps.append(told)
        left -= used
    return {"steps": steps, "files": len(files), "vocabulary": [list(key) for key in vocabulary], "faults": faults}


def _step(
    step: int, rows: Sequence[RowRecord], budget: int, vocabulary: dict[tuple[int, str], int]
) -> tuple[dict[str, Any], int]:
    """One step's groups, and the tokens used of the budget; mixed groups, which teach, are coloured first."""
    groups: dict[str, list[RowRecord]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    chosen = evenly(list(groups), GROUPS)
    left, told = budget, {}
    for name in sorted(chosen, key=lambda name: kind_of(groups[name]) != "mixed"):
        members = []
        for row in groups[name]:
            size = len(row.pieces or ())
            members.append(_row(row, vocabulary, coloured=0 < size <= left))
            left -= size if "tokens" in members[-1] else 0
        first = groups[name][0]
        told[name] = {
            "id": visible(name),
            "task": visible(first.task),
            "kind": kind_of(groups[name]),
            "prompt": _cut(first.prompt),
            "answer": _cut(first.answer),
            "rows": members,
        }
    return {"step": step, "groups": [told[name] for name in chosen], "of": len(groups)}, budget - left


def _row(row: RowRecord, vocabulary: dict[tuple[int, str], int], coloured: bool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": visible(row.rollout),
        "episode": visible(row.episode),
        "verdict": row.verdict,
        "score": finite(row.score),
        "reason": visible(row.reason),
        "status": row.status,
        "source": row.source,
        "reward": None if row.reward is None else finite(row.reward),
        "length": row.length,
        "extracted": None if row.extracted is None else _cut(row.extracted, 400),
        "parts": {visible(name): finite(value) for name, value in row.parts.items()},
    }
    pieces = row.pieces or ()
    if coloured:
        ids = [-1] * len(pieces) if row.token_ids is None else [int(i) for i in row.token_ids]
        where = [vocabulary.setdefault((i, visible(piece)), len(vocabulary)) for i, piece in zip(ids, pieces)]
        told["tokens"] = _base64(np.array(where, "<u4").view(np.uint8).reshape(-1, 4)[:, :3])
        told["streams"] = {visible(name): pack(values) for name, values in _streams(row).items()}
    if not coloured or row.response.strip() not in "".join(pieces):  # an agent's text also holds what it was answered
        told["text"] = _cut(row.response)
    return told


def _streams(row: RowRecord) -> Mapping[str, np.ndarray]:
    streams = dict(row.streams)
    if "gap" not in streams and {"old_logp", "behavior_logp"} <= streams.keys():
        streams["gap"] = np.abs(np.asarray(streams["old_logp"], float) - np.asarray(streams["behavior_logp"], float))
    order = sorted(streams, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    return {name: np.asarray(streams[name], np.float32) for name in order[:STREAMS]}


def pack(values: np.ndarray) -> float | str | None:
    """[N] floats as base64 of the upper three bytes of each float32 (4 digits); one number if all are equal."""
    values = np.asarray(values, np.float32)
    if len(values) and not np.isfinite(values).any():
        return None
    if len(values) and (values == values[0]).all():
        return float(f"{float(values[0]):.6g}")
    bits = np.where(np.isfinite(values), values, np.float32(np.nan)).astype("<f4").view("<u4")
    rounded = np.where(np.isfinite(values), bits + np.uint32(0x80), bits).astype("<u4")
    return _base64(rounded.view(np.uint8).reshape(-1, 4)[:, 1:])


def unpack(packed: float | str | None, n: int) -> np.ndarray:
    """[n] what `pack` packed; the page's script does the same."""
    if not isinstance(packed, str):
        return np.full(n, math.nan if packed is None else packed)
    three = np.frombuffer(base64.b64decode(packed), np.uint8).reshape(n, 3)
    return np.concatenate([np.zeros((n, 1), np.uint8), three], axis=1).copy().view("<f4")[:, 0].astype(float)


def _base64(data: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(data).tobytes()).decode("ascii")


def _cut(text: str, most: int = TEXT) -> str:
    text = visible(text)
    return (
        text if len(text) <= most else f"{text[: most // 2]}\n[… {len(text) - most} characters …]\n{text[-most // 2 :]}"
    )

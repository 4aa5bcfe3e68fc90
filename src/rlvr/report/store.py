"""What a run's folder holds, and how to read it back: metrics, events, rollouts, evaluations.

    metrics.jsonl                {"step": 12, "time": 1700000000.0, "reward/mean": 0.41, ...}; null: not finite
    events.jsonl                 {"event": "start" | "note" | "end", "time": ..., ...}: what is not a number
    rollouts/step-00012.parquet  a row a rollout: text columns, part/<name>, token/<stream>
    recipe.toml, eval.json, solved.json

Readers bear a run that is still going: a half-written last line is skipped, and a missing file is an empty answer.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from rlvr.report.text import utf8

METRICS, EVENTS, ROLLOUTS = "metrics.jsonl", "events.jsonl", "rollouts"
_FILE = re.compile(r"step-(\d+)\.parquet")
_TEXT = (
    "task",
    "group",
    "rollout",
    "episode",
    "prompt",
    "response",
    "answer",
    "extracted",
    "verdict",
    "reason",
    "status",
    "source",
)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a sink is told before the first step."""

    folder: Path
    title: str
    model: str
    method: str
    total_steps: int
    plan: str  # the method's table of slots, as text
    seed: int
    started: float  # seconds since 1970; of a run that went on, as if it had never stopped: what it ran before is off
    step: int = 0  # steps that a run which goes on has behind it


@dataclass(frozen=True, slots=True)
class RowRecord:
    """One rollout row for people. N = its trained tokens."""

    step: int
    task: str
    group: str
    rollout: str
    episode: str
    prompt: str
    response: str
    answer: str  # the gold
    extracted: str | None
    verdict: str  # "right", "wrong", "unknown"
    score: float
    reason: str
    status: str  # "finished", "truncated", "aborted", "failed"
    source: str  # "fresh", "replay", "demo"
    reward: float | None
    length: int  # sampled tokens
    parts: Mapping[str, float] = field(default_factory=dict)
    pieces: Sequence[str] | None = None  # N display strings
    token_ids: Sequence[int] | np.ndarray | None = None  # [N]
    streams: Mapping[str, np.ndarray] = field(
        default_factory=dict
    )  # each [N] float: "advantage", "entropy", "gap", ...

    def __post_init__(self) -> None:
        """Raises ValueError when a token stream is not as long as the pieces: a misaligned picture would mislead."""
        n = len(self.pieces) if self.pieces is not None else None
        ids = {} if self.token_ids is None else {"token_ids": self.token_ids}
        for name, values in {**ids, **self.streams}.items():
            n = len(values) if n is None else n
            if len(values) != n:
                raise ValueError(f"rollout {self.rollout!r}: {name} has {len(values)} values for {n} tokens")


@dataclass(frozen=True, slots=True)
class RunData:
    """A run read back. S = number of recorded steps."""

    folder: Path
    steps: np.ndarray  # [S] int, ascending
    series: Mapping[str, np.ndarray]  # metric name -> [S] float, nan where not recorded
    start: Mapping[str, Any]  # the last "start" event, {} when there is none; "began": the time of the first
    notes: tuple[Mapping[str, Any], ...]
    status: str | None  # of the last "end" event after the last start; None while the run is going
    nulls: Mapping[str, tuple[int, ...]]  # metric name -> the steps at which it was nan or infinite
    skipped: int  # lines of metrics.jsonl that could not be read

    def get(self, name: str) -> np.ndarray:
        """[S] a metric, all nan when it was never recorded."""
        found = self.series.get(name)
        return np.full(len(self.steps), np.nan) if found is None else found

    def under(self, prefix: str) -> dict[str, np.ndarray]:
        """The metrics whose names start with `prefix`, by the rest of the name."""
        return {name[len(prefix) :]: x for name, x in self.series.items() if name.startswith(prefix)}


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Write the file that this yields; it takes the place of `path` at the end, unless something raises. Others may
    read it as the umask has it, and processes and threads that write the same file do not meet."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a whole file or nothing."""
    with whole_file(path) as temporary:
        temporary.write_text(utf8(text), encoding="utf-8")


def finite(value: Any) -> float | None:
    """The value as JSON can hold it: a float, or None for nan and infinity."""
    number = float(value)
    return number if math.isfinite(number) else None


def read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The JSON objects of a file of lines, and how many lines were not one (a last one being written is no fault)."""
    if not path.is_file():
        return [], 0
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    objects, skipped = [], 0
    for i, line in enumerate(lines):
        try:
            value = json.loads(line) if line.strip() else {}
        except ValueError:
            value = None
        if isinstance(value, dict):
            objects += [value] if value else []
        elif i < len(lines) - 1:
            skipped += 1
    return objects, skipped


def made_before(run: RunInfo) -> list[dict[str, float | None]]:
    """The recorded steps that a run which goes on has behind it, ascending; time and number left out."""
    lines = {n: line for line in read_lines(run.folder / METRICS)[0] if isinstance(n := line.get("step"), int)}
    numbers = lambda line: {k: v for k, v in line.items() if k not in ("step", "time") and _is_number(v)}  # noqa: E731
    return [numbers(lines[n]) for n in sorted(lines) if n <= run.step]


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def is_run(folder: Path) -> bool:
    """Whether the folder holds anything that a run writes."""
    return any((folder / name).exists() for name in (METRICS, EVENTS, ROLLOUTS, "recipe.toml"))


def read_run(folder: Path | str) -> RunData:
    """Metrics and events of a run. Raises FileNotFoundError when the folder is not a run."""
    folder = Path(folder)
    if not is_run(folder):
        raise FileNotFoundError(
            f"{folder} is not a run folder: it has no {METRICS}, {EVENTS}, {ROLLOUTS}/ or recipe.toml"
        )
    lines, skipped = read_lines(folder / METRICS)
    good = [line for line in lines if isinstance(line.get("step"), int)]
    steps, series = columns(good)
    events, _ = read_lines(folder / EVENTS)
    start: Mapping[str, Any] = {}
    status: str | None = None
    for event in events:
        if event.get("event") == "start":
            start, status = {**event, "began": start.get("began", event.get("time"))}, None
        elif event.get("event") == "end":
            status = str(event.get("status"))
    notes = tuple(e for e in events if e.get("event") == "note")
    nulls: dict[str, tuple[int, ...]] = {}
    for line in good:
        for name, value in line.items():
            if value is None:
                nulls[name] = (*nulls.get(name, ()), line["step"])
    return RunData(folder, steps, series, start, notes, status, nulls, skipped + len(lines) - len(good))


def columns(lines: Iterable[Mapping[str, Any]]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Step records as columns: ([S] steps ascending, name -> [S] float). Of a step told twice the last counts."""
    by_step = {int(line["step"]): line for line in lines}
    steps = np.array(sorted(by_step), dtype=np.int64)
    rows = [by_step[int(s)] for s in steps]
    names = dict.fromkeys(name for row in rows for name in row if name != "step")
    return steps, {name: np.array([_float(row.get(name)) for row in rows], dtype=np.float64) for name in names}


def _float(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def read_json(path: Path) -> tuple[dict[str, Any], str]:
    """(the object, "") of a JSON file, ({}, what is wrong) when it cannot be read, ({}, "") when there is none."""
    if not path.is_file():
        return {}, ""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        return {}, f"{path.name} is not JSON: {error}"
    return (value, "") if isinstance(value, dict) else ({}, f"{path.name} holds no JSON object")


def rollout_path(folder: Path, step: int) -> Path:
    return folder / ROLLOUTS / f"step-{step:05d}.parquet"


def rollout_files(folder: Path | str) -> dict[int, Path]:
    """Step -> its file of rollouts, ascending."""
    found = {
        int(m[1]): file
        for file in (Path(folder) / ROLLOUTS).glob("step-*.parquet")
        if (m := _FILE.fullmatch(file.name))
    }
    return dict(sorted(found.items()))


def write_rows(path: Path, rows: Sequence[RowRecord]) -> None:
    """One Parquet file of rows, written whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table: dict[str, pa.Array] = {"step": pa.array([r.step for r in rows], pa.int32())}
    for name in _TEXT:
        values = [getattr(r, name) for r in rows]
        table[name] = pa.array([None if v is None else utf8(str(v)) for v in values], pa.string())
    table["score"] = pa.array([r.score for r in rows], pa.float32())
    table["reward"] = pa.array([r.reward for r in rows], pa.float32())
    table["length"] = pa.array([r.length for r in rows], pa.int32())
    for name in dict.fromkeys(name for r in rows for name in r.parts):
        table[f"part/{utf8(name)}"] = pa.array([r.parts.get(name) for r in rows], pa.float32())
    pieces = [None if r.pieces is None else [utf8(p) for p in r.pieces] for r in rows]
    table["token/piece"] = pa.array(pieces, pa.list_(pa.string()))
    ids = [None if r.token_ids is None else np.asarray(r.token_ids, np.int32) for r in rows]
    table["token/id"] = pa.array(ids, pa.list_(pa.int32()))
    for name in dict.fromkeys(name for r in rows for name in r.streams):
        streams = [np.asarray(r.streams[name], np.float32) if name in r.streams else None for r in rows]
        table[f"token/{utf8(name)}"] = pa.array(streams, pa.list_(pa.float32()))
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as temporary:
        pq.write_table(pa.table(table), temporary, compression="zstd")


def read_rows(path: Path | str) -> list[RowRecord]:
    """The rows of one Parquet file, as they were given to the sink (floats rounded to float32)."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    parts = [n[5:] for n in table.column_names if n.startswith("part/")]
    streams = [n[6:] for n in table.column_names if n.startswith("token/") and n not in ("token/piece", "token/id")]
    lists = {n: _lists(table[f"token/{n}"]) for n in ("id", *streams)}
    rest = table.drop_columns(
        [n for n in table.column_names if n.startswith("token/") and n != "token/piece"]
    ).to_pylist()
    rows = []
    for i, row in enumerate(rest):
        rows.append(
            RowRecord(
                **{name: row[name] for name in ("step", *_TEXT, "score", "reward", "length")},
                parts={n: row[f"part/{n}"] for n in parts if row[f"part/{n}"] is not None},
                pieces=row["token/piece"],
                token_ids=lists["id"][i],
                streams={n: x for n in streams if (x := lists[n][i]) is not None},
            )
        )
    return rows


def _lists(column: Any) -> list[np.ndarray | None]:
    """A list column as one array a row; values stay in arrays, as a page of tokens would be slow as Python floats."""
    out: list[np.ndarray | None] = []
    for chunk in column.chunks:
        flat, offsets, valid = chunk.values.to_numpy(zero_copy_only=False), chunk.offsets.to_numpy(), chunk.is_valid()
        out += [flat[a:b] if ok.as_py() else None for a, b, ok in zip(offsets[:-1], offsets[1:], valid)]
    return out

"""Where a run's numbers and rollouts go: one protocol, four built-in sinks, names in the registry.

`jsonl` and `parquet` write the run's folder, `screen` is the live terminal, `line` is for output that is no terminal (a
log, a notebook, a cluster). Others come by the entry-point group `rlvr.sink`: a class that follows `Sink` and takes no
constructor arguments.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TextIO

from rlvr.registry import get, register
from rlvr.report.store import (
    EVENTS,
    METRICS,
    RowRecord,
    RunInfo,
    finite,
    read_lines,
    rollout_files,
    rollout_path,
    write_rows,
    write_text,
)
from rlvr.report.text import clock, ended, number, percent, plain, short

QUIET = 5.0  # seconds without a word, ours: longer and one wonders


class Sink(Protocol):
    """Is told of a run as it goes. A sink that was started must be ended, also when the run fails. One that has a
    method `stage(step, name)` is told of each stage of a step when it begins."""

    def start(self, run: RunInfo) -> None: ...

    def step(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def groups(self, step: int, rows: Sequence[RowRecord]) -> None: ...

    def note(self, text: str) -> None:
        """Something that a person should read: a warning, a saved checkpoint."""
        ...

    def end(self, status: str) -> None:
        """`status`: "finished", "stopped", "failed", or a sentence."""
        ...


def make_sinks(
    names: Sequence[str] = ("jsonl", "parquet", "terminal"), *, every: int = 10, stream: TextIO | None = None
) -> list[Sink]:
    """The sinks of these registered names; "terminal" is `screen` on a terminal and `line` elsewhere.

    every: steps between the examples that `line` prints. stream: default standard output.
    """
    stream = stream or sys.stdout
    out: list[Sink] = []
    for name in names:
        if name == "terminal":
            name = "screen" if stream.isatty() else "line"
        if name == "line":
            out.append(LineSink(stream, every))
        elif name == "screen":
            out.append(get("sink", "screen")(stream))
        else:
            out.append(get("sink", name)())
    return out


@register("sink", "jsonl")
class JsonlSink:
    """metrics.jsonl, one object a step, and events.jsonl for what is not a number; both flushed at every line.

    The first step that it is told drops recorded steps from there on, so a resumed run writes each step once.
    """

    def __init__(self) -> None:
        self._run: RunInfo | None = None
        self._file: TextIO | None = None

    def start(self, run: RunInfo) -> None:
        self._run = run
        run.folder.mkdir(parents=True, exist_ok=True)
        told = {
            name: getattr(run, name) for name in ("title", "model", "method", "total_steps", "plan", "seed", "started")
        }
        self._event("start", **told)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._file is None:
            path = self._folder_of().folder / METRICS
            kept = [line for line in read_lines(path)[0] if isinstance(line.get("step"), int) and line["step"] < step]
            write_text(path, "".join(json.dumps(line) + "\n" for line in kept))
            self._file = path.open("a", encoding="utf-8")
        values = {name: finite(value) for name, value in metrics.items()}
        self._file.write(json.dumps({"step": step, "time": round(time.time(), 3)} | values) + "\n")
        self._file.flush()

    def groups(self, step: int, rows: Sequence[RowRecord]) -> None:
        pass  # rollouts are the parquet sink's

    def note(self, text: str) -> None:
        self._event("note", text=text)

    def end(self, status: str) -> None:
        self._event("end", status=status)
        if self._file is not None:
            self._file.close()
            self._file = None

    def _event(self, kind: str, **told: object) -> None:
        with (self._folder_of().folder / EVENTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": kind, "time": round(time.time(), 3)} | told, default=str) + "\n")

    def _folder_of(self) -> RunInfo:
        if self._run is None:
            raise RuntimeError("the jsonl sink was used before start(run)")
        return self._run


@register("sink", "parquet")
class ParquetSink:
    """rollouts/step-00012.parquet: readable text columns beside token streams.

    The first step that it is told removes files of that step and later ones, as `JsonlSink` does with lines.
    """

    def __init__(self) -> None:
        self._run: RunInfo | None = None
        self._began = False

    def start(self, run: RunInfo) -> None:
        self._run = run
        self._began = False

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        pass  # numbers are the jsonl sink's

    def groups(self, step: int, rows: Sequence[RowRecord]) -> None:
        if self._run is None:
            raise RuntimeError("the parquet sink was used before start(run)")
        if not self._began:
            for old, file in rollout_files(self._run.folder).items():
                if old >= step:
                    file.unlink()
            self._began = True
        write_rows(rollout_path(self._run.folder, step), [r if r.step == step else replace(r, step=step) for r in rows])

    def note(self, text: str) -> None:
        pass

    def end(self, status: str) -> None:
        pass


@register("sink", "line")
class LineSink:
    """For logs: one line a step, and every `every` steps one right, one wrong and one truncated example."""

    def __init__(self, stream: TextIO | None = None, every: int = 10) -> None:
        self._stream, self._every = stream or sys.stdout, every
        self._total, self._started = 0, time.time()
        self._examples: dict[str, RowRecord] = {}
        self._told, self._first, self._begun = time.time(), True, False

    def start(self, run: RunInfo) -> None:
        self._total, self._started, self._first, self._begun = run.total_steps, run.started, True, False
        on = f" from step {run.step}" if run.step else ""
        about = f"{run.title}: {run.model}, {run.method}, {run.total_steps} steps{on}, seed {run.seed}, {run.folder}"
        self._print(plain(about))

    def stage(self, step: int, name: str) -> None:
        """The first step may be long, and nobody knows how long: it is told that it has begun, and what it does when
        nothing has been said for a while."""
        if self._first and (not self._begun or time.time() - self._told > QUIET):
            self._print(f"step {step}/{self._total}: {name} ...")
        self._begun = True

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._first = False
        self._print(line_of(step, self._total, metrics, time.time() - self._started))
        if self._every and step % self._every == 0:
            for kind, row in self._examples.items():
                for line in example(kind, row, 110):
                    self._print("  " + line)

    def groups(self, step: int, rows: Sequence[RowRecord]) -> None:
        self._examples = pick(rows)

    def note(self, text: str) -> None:
        self._print(f"note: {plain(text)}")

    def end(self, status: str) -> None:
        self._print(ended(status, time.time() - self._started))

    def _print(self, text: str) -> None:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._told = time.time()
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
            self._stream.flush()
        except BrokenPipeError:  # `| head`: whoever read has gone; the run goes on, and nobody else trips over it
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


def unknown_share(metrics: Mapping[str, float]) -> float:
    """Share of episodes without a verdict, whether the metrics count or are shares; nan when none is told."""
    told = [metrics.get(f"verdict/{label}", 0.0) for label in ("unknown", "right", "wrong")]
    return told[0] / sum(told) if sum(told) > 0 else math.nan


def line_of(step: int, total: int, metrics: Mapping[str, float], elapsed: float) -> str:
    """One step in one line; what the metrics do not hold is left out."""
    shown: list[tuple[str, str, Callable[[float], str]]] = [
        ("reward", "reward/mean", number),
        ("solved", "group/frac_solved", percent),
        ("mixed", "group/frac_mixed", percent),
        ("failed", "group/frac_failed", percent),
        ("length", "length/mean", number),
        ("cut", "length/truncated", percent),
        ("entropy", "policy/entropy", number),
        ("clip", "policy/clip_frac", percent),
        ("gap", "sampler/gap", number),
        ("grad", "optim/grad_norm", number),
        ("tok/s", "perf/tokens_per_s", number),
    ]
    words = [f"{label} {form(metrics[name])}" for label, name, form in shown if name in metrics]
    if unknown_share(metrics) > 0:
        words.insert(1, f"unknown {percent(unknown_share(metrics))}")
    return f"step {step:>{len(str(total))}}/{total}  " + "  ".join(words) + f"  [{clock(elapsed)}]"


def pick(rows: Sequence[RowRecord]) -> dict[str, RowRecord]:
    """The last right, wrong and truncated row, of those that there are."""
    found: dict[str, RowRecord] = {}
    for row in rows:
        if row.status == "truncated":
            found["truncated"] = row
        elif row.verdict in ("right", "wrong"):
            found[row.verdict] = row
    return {kind: found[kind] for kind in ("right", "wrong", "truncated") if kind in found}


def example(kind: str, row: RowRecord, width: int) -> list[str]:
    """Three lines of at most `width` cells: what was asked, what was wanted and found, how the response ended."""
    mark = {"right": "✓", "wrong": "✗", "truncated": "…"}[kind]
    got = "" if row.extracted is None else f", got {short(row.extracted, 24)}"
    paid = "" if row.reward is None else f", reward {number(row.reward)}"
    why = f"({row.reason}{paid}, {row.length} tokens)"
    head = f"{mark} {kind} {short(row.task, 24)}: wanted {short(row.answer, 24)}{got} {why}"
    return [
        short(head, width),
        "  Q " + short(row.prompt, width - 4, 0.5),
        "  A " + short(row.response, width - 4, 0.7),
    ]

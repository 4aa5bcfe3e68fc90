"""The live terminal: one screen that answers "is it learning, is it healthy, how long still?" at 80 x 24.

`Board` is the state and draws itself as lines that never wrap; `ScreenSink` keeps it alive on a terminal. Model text
reaches the screen only as plain text in styled spans, never as markup.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from rlvr.registry import register
from rlvr.report.sink import example, pick, unknown_share
from rlvr.report.store import RowRecord, RunInfo, made_before
from rlvr.report.text import clock, ended, number, percent, plain, shares, short, sparkline

GOOD, BAD, DIM, ALARM = (
    "cyan",
    "yellow",
    "dim",
    "bold red",
)  # cyan and yellow stay apart for every kind of colour vision
LABEL = 12  # cells of the left column
ALARM_UNKNOWN = 0.05  # the share of episodes without a verdict at which a run stops by default
STAGES = "█▓▒░▚"


@dataclass
class Board:
    """What is shown."""

    run: RunInfo
    history: dict[str, list[float]] = field(default_factory=dict)  # the curves: one value a step
    latest: Mapping[str, float] = field(default_factory=dict)
    examples: dict[str, RowRecord] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    times: list[tuple[int, float]] = field(default_factory=list)  # (step, when it was told)
    status: str = ""
    stage: tuple[int, str, float] | None = None  # the step in the making, its stage, and since when
    now: float | None = None  # seconds since 1970; None: the wall clock

    def remember(self, metrics: Mapping[str, float | None]) -> None:
        """A step's numbers; of one that was made before the run went on, without its time."""
        self.latest = {name: math.nan if value is None else float(value) for name, value in metrics.items()}
        for name in ("reward/mean", "length/mean", "policy/entropy"):
            self.history.setdefault(name, []).append(self.latest.get(name, math.nan))

    def add(self, step: int, metrics: Mapping[str, float], when: float) -> None:
        self.remember(metrics)
        self.stage = None
        self.times = [*self.times[-30:], (step, when)]

    @property
    def step(self) -> int:
        return self.times[-1][0] if self.times else self.run.step

    def remaining(self) -> float:
        """Seconds left, from the pace of the last 30 steps; nan before two steps are told."""
        if len(self.times) < 2:
            return math.nan
        (first, began), (last, ended) = self.times[0], self.times[-1]
        return (ended - began) / max(1, last - first) * max(0, self.run.total_steps - last)

    def lines(self, width: int, height: int = 24) -> list[Text]:
        """At most `height` lines of at most `width` cells, the most important first."""
        rows = [
            self._title(width),
            self._progress(width),
            Text(),
            self._curve("reward", "reward/mean", width, "bold"),
            self._groups(width),
            self._curve("length", "length/mean", width),
            self._curve("entropy", "policy/entropy", width),
        ]
        numbers, across = self._numbers(), max(1, min(3, width // 20))
        rows += [_pairs(numbers[i : i + across], width // across, width) for i in range(0, len(numbers), across)]
        rows += self._time(width)
        after = [_row("now", Text(self._now()), width)] if self.stage and not self.times else []
        after += [_row("note", Text(plain(note)), width) for note in self.notes[-2:]]
        after += [_row("ended", Text(plain(self.status)), width)] if self.status else []
        shown: list[Text] = []
        for kind, style in (("right", GOOD), ("wrong", BAD)):
            if kind in self.examples and len(rows) + len(shown) + 4 + len(after) <= height:
                head, *rest = example(kind, self.examples[kind], width)
                shown += [Text(), _fit(Text(head, style), width), *(_fit(Text(line, DIM), width) for line in rest)]
        return [*rows, *shown, *after][:height]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.lines(options.max_width, max(4, console.size.height - 1))

    def _title(self, width: int) -> Text:
        text = Text().append(short(self.run.title, max(8, width // 3)), "bold")
        text.append(f"  {plain(self.run.model)} · {plain(self.run.method)}")
        folder = plain(str(self.run.folder))
        room = width - text.cell_len - 2
        if room >= 12:
            text.append("  " + (folder if cell_len(folder) <= room else "…" + folder[-(room - 1) :]), DIM)
        return _fit(text, width)

    def _progress(self, width: int) -> Text:
        done = min(1.0, self.step / max(1, self.run.total_steps))
        words = f" {self.step}/{self.run.total_steps}  {percent(done)}"
        if width >= 60:
            words += f"  {clock((self.now or time.time()) - self.run.started)} gone"
        if math.isfinite(self.remaining()) and not self.status:
            words += f"  {clock(self.remaining())} left"
        bar = max(4, width - cell_len(words))
        full = int(bar * done)
        return _fit(Text().append("━" * full, GOOD).append("─" * (bar - full), DIM).append(words), width)

    def _now(self) -> str:
        """What the first step is doing: it may be long, and until it is over there is nothing else to see."""
        assert self.stage is not None
        step, name, since = self.stage
        return f"step {step}: {plain(name)}, {clock((self.now or time.time()) - since)}"

    def _curve(self, label: str, name: str, width: int, style: str = "") -> Text:
        values = self.history.get(name, [])
        seen = [v for v in values if math.isfinite(v)]
        tail = f" {number(min(seen))} to {number(max(seen))}" if seen else ""
        text = Text().append(f"{number(self.latest.get(name, math.nan)):<8}", style)
        text.append(sparkline(values, max(0, min(40, width - LABEL - 8 - len(tail)))), GOOD)
        return _row(label, text.append(tail, DIM), width)

    def _groups(self, width: int) -> Text:
        """Solved, mixed and failed as a bar and in words; what remains had no verdict at all."""
        parts = [self.latest.get(f"group/frac_{kind}", math.nan) for kind in ("solved", "mixed", "failed")]
        known = sum(p for p in parts if math.isfinite(p))
        names = ("solved", "mixed", "failed") if width >= 50 else ("sol", "mix", "fail")
        words = "  ".join(f"{name} {percent(p)}" for name, p in zip(names, parts))
        text = Text()
        if known > 0:
            cells = shares([*parts, max(0.0, 1 - known)], max(0, min(24, width - LABEL - len(words) - 2)))
            for cell, count, style in zip("█▒░·", cells, (GOOD, "", BAD, DIM)):
                text.append(cell * count, style)
            text.append("  " if sum(cells) else "")
        return _row("groups", text.append(words), width)

    def _numbers(self) -> list[tuple[str, str, bool]]:
        """(label, value, whether it is a reason to worry)."""

        def shown(label: str, name: str, form: Callable[[float], str] = number) -> tuple[str, str, bool]:
            value = self.latest.get(name, math.nan)
            return label, form(value), name in self.latest and not math.isfinite(value)

        unknown = unknown_share(self.latest)
        return [
            ("no verdict", percent(unknown), unknown > ALARM_UNKNOWN),
            shown("truncated", "length/truncated", percent),
            shown("tokens/s", "perf/tokens_per_s"),
            shown("clipped", "policy/clip_frac", percent),
            shown("grad norm", "optim/grad_norm"),
            shown("sampler gap", "sampler/gap"),
        ]

    def _time(self, width: int) -> list[Text]:
        """The last step's wall time by stage, as a bar and in words, the longest first."""
        stages = stage_times(self.latest)
        if not stages:
            return []
        total = sum(stages.values())
        named = list(stages.items())
        if len(named) > len(STAGES):
            named = [*named[: len(STAGES) - 1], ("other", sum(v for _, v in named[len(STAGES) - 1 :]))]
        head = f"{number(total) + ' s':<8}"
        cells = shares([v for _, v in named], max(0, min(60, width - LABEL - len(head))))
        bar = Text(head).append("".join(cell * count for cell, count in zip(STAGES, cells)), GOOD)
        words = "  ".join(f"{cell} {short(name, 12)} {percent(v / total)}" for cell, (name, v) in zip(STAGES, named))
        indent = " " * (LABEL + 8) if LABEL + 8 + cell_len(words) <= width else " " * LABEL
        return [_row("time", bar, width), _fit(Text(indent + words), width)]


def stage_times(metrics: Mapping[str, float]) -> dict[str, float]:
    """Seconds by stage of one step, the longest first; sums of stages are not stages."""
    stages = {name[5:]: value for name, value in metrics.items() if name.startswith("time/")}
    known = {n: v for n, v in stages.items() if n not in ("total", "step") and math.isfinite(v) and v > 0}
    return dict(sorted(known.items(), key=lambda item: -item[1]))


def _pairs(pairs: Sequence[tuple[str, str, bool]], column: int, width: int) -> Text:
    text = Text()
    for label, value, alarm in pairs:
        cell = Text().append(f"{label:<{LABEL}}", DIM).append(value, ALARM if alarm else "")
        cell.pad_right(max(0, column - cell.cell_len))
        text.append_text(cell)
    return _fit(text, width)


def _row(label: str, value: Text, width: int) -> Text:
    return _fit(Text().append(f"{label:<{LABEL}}", DIM).append_text(value), width)


def _fit(text: Text, width: int) -> Text:
    """The line cut to `width` cells; rich must not wrap it."""
    text.no_wrap = True
    text.truncate(max(1, width), overflow="ellipsis")
    return text


@register("sink", "screen")
class ScreenSink:
    """A live screen on a terminal; what is shown when the run ends stays in the scroll-back."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._console = Console(file=stream or sys.stdout, highlight=False, markup=False, emoji=False)
        self._board: Board | None = None
        self._live: Live | None = None

    def start(self, run: RunInfo) -> None:
        self._board = Board(run)
        for line in made_before(run):
            self._board.remember(line)
        self._live = Live(self._board, console=self._console, refresh_per_second=2, vertical_overflow="crop")
        self._live.start()

    def stage(self, step: int, name: str) -> None:
        if self._board is not None:
            self._board.stage = (step, name, time.time())

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._board is not None:
            self._board.add(step, metrics, time.time())

    def groups(self, step: int, rows: Sequence[RowRecord]) -> None:
        if self._board is not None:
            self._board.examples = {**self._board.examples, **pick(rows)}

    def note(self, text: str) -> None:
        if self._board is not None:
            self._board.notes = [*self._board.notes[-1:], text]

    def end(self, status: str) -> None:
        if self._board is not None and self._live is not None:
            self._board.status = ended(status, time.time() - self._board.run.started)
            self._live.stop()
            self._live = None

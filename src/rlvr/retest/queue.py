"""Running what experiments want next, some at once, until nothing is left or somebody stops it.

Every finished run is written before the next one is looked for, so the same command goes on where it ended.
"""

from __future__ import annotations

import difflib
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from rlvr.folder import FolderBusy
from rlvr.report.text import short
from rlvr.retest.ahead import refuse_faults
from rlvr.retest.arms import files_of, mark_of, recipe_file
from rlvr.retest.book import Book, Slot
from rlvr.retest.child import Child, start
from rlvr.retest.home import refuse_uncommitted
from rlvr.retest.outcome import look, result
from rlvr.retest.record import Record, read_one
from rlvr.retest.schema import ExperimentError

PAUSE = 0.1  # seconds between looks at the children
AGAIN = 5.0  # seconds between looks at a run that another process makes
COLUMNS = 80


@dataclass
class Sitting:
    """One call: what runs now, and what it has given up until the next call."""

    books: Sequence[Book]
    jobs: int = 1
    seeds: int | None = None  # of every experiment only so many, for now
    say: Callable[[str], None] = print
    written: Callable[[], None] = lambda: None  # called when a run has been kept
    running: dict[str, tuple[Child, Book, Slot]] = field(default_factory=dict)  # by mark
    failed: set[str] = field(default_factory=set)  # marks, made again at the next call
    elsewhere: dict[str, float] = field(default_factory=dict)  # marks that another process makes -> when to look again
    waits: bool = False  # whether there would be more to do, if another process were done
    told: set[tuple[str, str]] = field(default_factory=set)

    def run(self) -> None:
        """Until nothing is left to do now. Raises KeyboardInterrupt when it was stopped; children end first."""
        with _interruptible():
            try:
                while self._fill() or self.running or self.waits:
                    time.sleep(PAUSE)
                    self._reap()
            finally:
                for child, _, _ in self.running.values():
                    child.stop()
        self._close()

    # ---- parts -----------------------------------------------------------------------------------------
    def _fill(self) -> bool:
        """Start runs while there is room; says whether one was started."""
        started = False
        while len(self.running) < self.jobs and (found := self._next()):
            book, slot, mark = found
            before = book.records.get(mark)
            tries = before.tries if before is not None else 0
            try:
                child = start(book.home, mark, book.recipe(slot), f"{book.name}, {slot.arm}", tries)
            except FolderBusy:
                if not self.elsewhere:
                    self.say("another process makes some of the runs; they are left to it")
                self.elsewhere[mark] = time.monotonic() + AGAIN
                continue
            self.running[mark] = (child, book, slot)
            started = True
        return started

    def _next(self) -> tuple[Book, Slot, str] | None:
        """The first slot of the first book that wants a run. Slots that a kept run fills are filled on the way."""
        self.waits = False
        for book in self.books:
            self._tell(book)
            filled = True
            while filled:
                filled = False
                for slot in book.to_do(self.seeds):
                    mark = book.marks.get(str(slot)) or mark_of(book.recipe(slot))
                    if mark in self.running or mark in self.failed:
                        continue
                    if self.elsewhere.get(mark, 0.0) > time.monotonic():
                        self.waits = True
                        continue
                    if (record := _newest(book, mark)) is not None and book.final(slot):
                        self._note(book, slot, record)  # made by another process since this one has looked
                        filled = True
                        break
                    if record is not None and str(slot) not in book.marks:  # another experiment's, or a filled place
                        self._note(book, slot, record)
                        filled = True
                        break
                    return book, slot, mark
        return None

    def _reap(self) -> None:
        for mark, (child, book, slot) in list(self.running.items()):
            if child.over():
                del self.running[mark]
                record = child.kept()
                book.records[mark] = record
                if not record.finished:
                    self.failed.add(mark)
                self._note(book, slot, record)

    def _note(self, book: Book, slot: Slot, record: Record) -> None:
        """A run fills a slot: keep that, and tell it."""
        book.marks[str(slot)] = record.mark
        book.save(result(book))
        self.written()
        asked_by = str(record.told["asked_by"])
        shared = "" if asked_by.startswith(f"{book.name},") else f"; run of {asked_by}"
        if record.finished:
            metric = book.experiment.search_by if slot.seed == 0 else book.experiment.metric
            value = record.value(metric.name, metric.steps)
            told = f"{metric.name} {value:.4f}, {record.cpu_seconds:.0f} CPU-s{shared}"
        else:
            again = "twice, so it stays without" if book.final(slot) else "the next call tries again"
            told = f"failed; {again}"
        self._say(f"{book.name}: {slot}: {told}")
        if not record.finished:
            self._say(f"  {record.told['why']}")
        elif missing := book.unmeasured(record):
            near = difflib.get_close_matches(missing, record.told["columns"], 1)
            hint = f"did you mean {near[0]!r}?" if near else "its metrics.jsonl lists what there is"
            raise ExperimentError(
                f"{book.home.file(book.name)}: a run of arm {slot.arm} has no column {missing!r}, which decides; {hint}"
            )
        self._tell(book)

    def _tell(self, book: Book) -> None:
        """Preconditions and the end of a stage, once each."""
        stage = book.stage()
        if stage != "search" and self._first(book, "preconditions"):
            rates = ", ".join(f"{arm} {lr:g}" for arm in book.experiment.arms if (lr := book.chosen(arm)) is not None)
            self._say(f"{book.name}: lr by the search: {rates}")
            for seen in book.preconditions():
                rule = seen.rule
                self._say(f"{book.name}: precondition, {rule.says}:")
                holds = "holds" if seen.holds else "FAILS"
                self._say(f"  {rule.metric} of {rule.arm} is {seen.value:.4g}, wanted {rule.limit}: {holds}")
        if stage == "failed precondition" and self._first(book, stage):
            self._say(f"{book.name} ends here: its regime does not allow the effect")
        if stage == "failed arm" and self._first(book, stage):
            lost = [arm for arm in book.experiment.arms if book.chosen(arm) is None]
            self._say(f"{book.name} ends here: no run of the search could be used for {', '.join(lost)}")
        if stage in ("ablations", "done") and self._first(book, "verdict"):
            for line in verdict_lines(book):
                self._say(line)

    def _say(self, line: str) -> None:
        """One line that fits; spaces at its beginning stay."""
        indent = line[: len(line) - len(line.lstrip())]
        self.say(indent + short(line.strip(), COLUMNS - len(indent)))

    def _first(self, book: Book, what: str) -> bool:
        new = (book.name, what) not in self.told
        self.told.add((book.name, what))
        return new

    def _close(self) -> None:
        if self.failed:
            self.say(f"{len(self.failed)} run(s) failed; the same command tries again")


def _newest(book: Book, mark: str) -> Record | None:
    """The kept run of a mark, read again where another process may have made it."""
    known = book.records.get(mark)
    if known is not None and known.finished:
        return known
    found = read_one(book.home.records, mark)
    if found is not None:
        book.records[mark] = found
    return found


def verdict_lines(book: Book) -> Iterator[str]:
    """What came out: the verdict, and a line for each arm that the method is held against."""
    seen, e = look(book), book.experiment
    yield f"{book.name}: {seen.verdict(e.delta) or 'no two pairs'}; {e.metric.name}, delta {e.delta:g}"
    for arm in [name for name in e.arms if name != "method"]:
        p = seen.main.against[arm]
        interval = "" if math.isnan(p.estimate.low) else f" ({p.estimate.low:+.4f} .. {p.estimate.high:+.4f})"
        yield f"  gain over {arm}: {p.estimate.value:+.4f}{interval}, {p.estimate.n} pairs, p {p.p:.2g}"


def check(book: Book) -> None:
    """Raises NotCommitted or RuleChanged where the experiment may not be run as it is, ExperimentError where something
    is left to run that could not be."""
    e, root = book.experiment, book.home.root
    if book.to_do():
        refuse_faults(book)
    if not book.home.trial:
        named = {recipe_file(e, book.home.experiments)}
        for arm in e.every_arm:
            named |= files_of(book.recipe(book.search(arm)[0]).model_dump())
        inside = sorted(file for file in named if file.is_relative_to(root))  # others are the installed package's
        refuse_uncommitted(root, [book.home.file(book.name), *inside])
    book.begin()


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and a closed terminal stop the queue as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""What a verifier says beside its verdicts (prints, failures), heard without flooding the terminal.

A step asks hundreds of questions; a print in each would push everything else off the screen. So the first lines of each
kind are shown, once in a run, and the rest is dropped. RLVR_DEBUG=1 shows all.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import threading
from collections import Counter
from collections.abc import Iterator

SHOWN = 5  # lines of one kind
KINDS = 20  # kinds told apart, e.g. by the exception's type; later ones are not shown
LONGEST_LINE = 200  # characters of a printed line

log = logging.getLogger("rlvr.verify")


class Heard:
    """The first lines of each kind, on the log of verifiers. Threads may speak at once."""

    def __init__(self, who: str):
        self.who = who
        self._count: Counter[str] = Counter()
        self._lock = threading.Lock()

    def failed(self, kind: str, text: str) -> None:
        """A verdict that could not be had; `kind` tells failures apart that have nothing to do with each other."""
        self._say(kind, text, f"{self.who}: further failures of this kind are counted as `unknown` and not shown")

    def printed(self, line: str) -> None:
        """A line of its output."""
        if line.strip():
            self._say("", f"{self.who} prints: {line.rstrip()[:LONGEST_LINE]}", f"{self.who}: its further output is"
                      " not shown (RLVR_DEBUG=1 shows all)")  # fmt: skip

    def _say(self, kind: str, text: str, last: str) -> None:
        with self._lock:
            if kind not in self._count and len(self._count) > KINDS:
                return
            self._count[kind] += 1
            told = self._count[kind]
        if told <= SHOWN or os.environ.get("RLVR_DEBUG"):
            log.warning("%s", text)
        if told == SHOWN + 1:
            log.warning("%s", last)


def listen(source: int, heard: Heard) -> None:
    """Hear a pipe to its end, line by line; a thread's work."""
    middle = False  # of a line that is longer than what is read of it
    with os.fdopen(source, "rb") as pipe:
        while piece := pipe.readline(4 * LONGEST_LINE):
            if not middle:
                heard.printed(piece.decode("utf-8", "replace"))
            middle = not piece.endswith(b"\n")


class _Lines(io.TextIOBase):
    """A standard output whose lines are heard."""

    def __init__(self, heard: Heard):
        self.heard = heard
        self._line = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, rest = (self._line + text).split("\n")
        for line in lines:
            self.heard.printed(line)
        self._line = rest[: 4 * LONGEST_LINE]
        return len(text)

    def finish(self) -> None:
        self.write("\n")


_listening = threading.Lock()


@contextlib.contextmanager
def hearing(heard: Heard) -> Iterator[None]:
    """What this process prints meanwhile is heard. Where another thread is heard already, its listener has it all:
    standard output is one for the whole process."""
    if not _listening.acquire(blocking=False):
        yield
        return
    lines = _Lines(heard)
    try:
        with contextlib.redirect_stdout(lines):
            yield
    finally:
        lines.finish()
        _listening.release()

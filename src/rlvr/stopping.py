"""Ctrl-C, SIGTERM and a closed terminal: the first asks to stop after the present step, the second stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last: a terminal that was closed


@contextmanager
def stopping(told: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether somebody asked to stop; `told` is given a sentence at the first signal.

    Outside the main thread, where Python hears no signals, nobody can ask.
    """
    asked = False

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        told("stopping after this step and saving; once more stops at once")

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, hear) for number in SIGNALS}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

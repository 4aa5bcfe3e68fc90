"""Async inside, plain outside: run a coroutine to its end from ordinary code, in a notebook too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result. Where an event loop is already running (a notebook), the work runs in a thread of its
    own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    box: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            box.append(asyncio.run(work))
        except BaseException as error:  # handed over to the caller's thread
            failure.append(error)

    thread = threading.Thread(target=run, name="rlvr-loop")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return box[0]

"""Async inside, plain outside: run a coroutine to its end from ordinary code, in a notebook too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result. Where an event loop is already running (a notebook), the work runs in a thread of its
    own.

    Ctrl-C ends the work at once and passes on.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(work)
    box: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            box.append(_run(work))
        except BaseException as error:  # handed over to the caller's thread
            failure.append(error)

    thread = threading.Thread(target=run, name="rlvr-loop")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return box[0]


def _run(work: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, but without its signal handler: installing that one formats the whole result of the last task
    into a message that nobody reads, which took a third of a step."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(_unless_interrupted)
    try:
        return loop.run_until_complete(work)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(_end_of(left))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _end_of(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _unless_interrupted(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ctrl-C breaks off whichever task is running, and reaches the caller through the loop: asyncio would print it
    once more for each task in which nobody asked for it."""
    if not isinstance(context.get("exception"), KeyboardInterrupt | SystemExit):
        loop.default_exception_handler(context)

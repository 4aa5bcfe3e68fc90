"""A small progress bar for work that is not a run's steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def counting(what: str, total: int, stream: TextIO | None) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told how much is done. Draws only on a terminal."""
    if stream is None or not stream.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=stream), transient=True) as bar:
        job = bar.add_task(what, total=total)
        yield lambda done: bar.update(job, completed=done)

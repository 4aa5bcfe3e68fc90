"""`rlvr retest`: the claims of papers, tested again by rules that were committed before."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlvr.cli import show

if TYPE_CHECKING:
    from rlvr.retest.book import Book
    from rlvr.retest.home import Home

GUESS = 25.0  # CPU-seconds of a run where none has been made yet, ours


class NothingNamed(ValueError):
    """The call does not say what to run."""


def retest(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="experiments/NAME.toml, or a path to such a file.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every experiment, one after the other.")] = False,
    seeds: Annotated[
        int | None, typer.Option("--seeds", metavar="N", min=1, help="Only the first N seeds for now; no verdict yet.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", min=1, max=64, help="Runs at once, a thread each.")] = 1,
    status: Annotated[bool, typer.Option("--status", help="What is done and what is left; runs nothing.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Write docs/papers.md and its plots; runs nothing.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Look everything over as before a first run; runs nothing.")
    ] = False,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Try out a rule that is not committed; results stay apart.")
    ] = False,
) -> None:
    """Test claims of papers again, at equal budget and by paired seeds.

    \b
    Examples:
      rlvr retest --status
      rlvr retest gapo
      rlvr retest gapo --jobs 2
      rlvr retest gapo --dry-run     what would go wrong, before it is committed
      rlvr retest --all              stops and goes on at any time
      rlvr retest experiments/my.toml --uncommitted --seeds 2
      rlvr retest --page

    \b
    The rule is a file that is committed before its first run:
    docs/experiments.md. Results are written run by run into
    experiments/results; the same command goes on where it ended.
    """
    from rlvr.retest.home import find

    home, found = find(name, trial=uncommitted)
    if name is None and not (every or status or page or dry_run):
        raise NothingNamed(f"give an experiment, or --all; there are: {', '.join(home.names())}")
    runs = not (status or page or dry_run)
    books = _books(home, home.names() if found is None else [found], seeds, mend=runs)
    if status:
        typer.echo(_status(books))
    elif page:
        typer.echo(_page(home))
    elif dry_run:
        typer.echo(_looked_over(books))
    else:
        _run(home, books, jobs, seeds, every)


def _books(home: Home, names: list[str], seeds: int | None, mend: bool) -> list[Book]:
    from rlvr.retest import book, record

    records = record.read(home.records, (lambda said: typer.echo(said, err=True)) if mend else None)
    books = [book.load(home, name, records) for name in names]
    for each in books:
        if seeds is not None and seeds > each.experiment.seeds:
            raise NothingNamed(
                f"{each.name} states seeds = {each.experiment.seeds}, before its first run; --seeds can be fewer for "
                "now, never more"
            )
    return books


def _run(home: Home, books: list[Book], jobs: int, seeds: int | None, every: bool) -> None:
    from rlvr.retest.home import NotCommitted, refuse_unwritable
    from rlvr.retest.queue import Sitting, check

    ready = []
    for each in books:
        try:
            check(each)
        except NotCommitted as error:
            if not every:
                raise
            typer.echo(f"{each.name} is left out: {error}", err=True)
            continue
        ready.append(each)
    refuse_unwritable(home)
    if home.trial:
        typer.echo(f"a trial: results go to {home.results} and never to the page")
    paged = not home.trial and home.page.parent.is_dir()
    sitting = Sitting(ready, jobs, seeds, typer.echo, lambda: _kept_page(home) if paged else None)
    try:
        sitting.run()
    except KeyboardInterrupt:
        typer.echo("\nstopped; the runs in progress are dropped, the same command goes on with them", err=True)
        raise typer.Exit(1) from None
    if paged:
        _page(home)
    typer.echo(_status(ready))


def _looked_over(books: list[Book]) -> str:
    """As `_status`. Raises ExperimentError with all that is wrong with any of them, RuleChanged as a run would."""
    from rlvr.retest.ahead import refuse_faults
    from rlvr.retest.schema import ExperimentError

    wrong = []
    for book in books:
        try:
            refuse_faults(book)
            if book.begun:
                book.begin()
        except ExperimentError as error:
            wrong.append(str(error))
    if wrong:
        raise ExperimentError("\n".join(wrong))
    whole = books[0].name if len(books) == 1 else f"any of these {len(books)}"
    return f"{_status(books)}\nnothing is wrong with {whole}"


def _status(books: list[Book]) -> str:
    """A line an experiment: how far, and about how much is left."""
    from rlvr.retest.outcome import look

    rows, total = [("experiment", "stage", "runs left", "CPU-minutes left, about")], 0.0
    seen = [r.cpu_seconds for r in books[0].records.values()] if books else []
    usual = sum(seen) / len(seen) if seen else GUESS
    for book in books:
        own = [r.cpu_seconds for mark in set(book.marks.values()) if (r := book.records.get(mark))]
        left = book.left()
        minutes = left * (sum(own) / len(own) if own else usual) / 60
        total += minutes
        stage: str = book.stage() if book.begun else "not begun"
        if stage in ("ablations", "done"):
            stage = f"{stage}, {look(book).verdict(book.experiment.delta) or 'no two pairs'}"
        rows.append((book.name, stage, str(left), f"{minutes:.0f}"))
    if len(books) > 1:
        rows.append(("all", "", "", f"{total:.0f} at most: equal runs are made once"))
    return show.table(rows, indent="")


def _kept_page(home: Home) -> None:
    """The page as of now. A file that somebody is at work on, of another experiment, must not end the queue."""
    with suppress(ValueError):
        _page(home)


def _page(home: Home) -> Path:
    from rlvr.retest.document import write

    return write(home)

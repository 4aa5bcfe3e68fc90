"""`rlvr report`: a run as one page, or several runs beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlvr.cli import show

if TYPE_CHECKING:
    from rlvr.report.paired import Paired
    from rlvr.report.store import RunData


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs, or of seeds (train --seeds).")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default RUN/report.html, or comparison.html for several runs.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Last numbers of each run, for programs.")] = False,
) -> None:
    """Write a run's page, or compare runs.

    The page is one file without links to the network: it can be sent by mail.
    Compared runs are paired by the problems that they were asked after training,
    folders of seeds by seed.

    \b
    Examples:
      rlvr report runs/quickstart-20250101-120000 --open
      rlvr report runs/grpo runs/dapo --out comparison.html
      rlvr report runs/grpo-seeds runs/dapo-seeds
      rlvr report runs/* --json
    """
    from rlvr.report.sides import seeds_in, sides_of
    from rlvr.report.text import plain

    pairs: list[Paired] = []
    if len(runs) > 1:
        from rlvr.report.compare import write_comparison
        from rlvr.report.paired import paired

        pairs = paired(sides_of(runs))
        page = write_comparison(runs, out or Path("comparison.html"), pairs=pairs)
    elif len(seeds := list(seeds_in(runs[0]).values())) > 1:
        from rlvr.report.compare import write_comparison

        page = write_comparison(seeds, out or runs[0] / "comparison.html", seeds=True)
        runs = seeds
    else:
        from rlvr.report.html import write_report

        page = write_report((seeds or runs)[0], out)
    if json:
        each = [run for side in sides_of(runs) for run in side.runs.values()]
        told = {"runs": [_last(run) for run in each], "paired": [pair.told() for pair in pairs]}
        show.as_json({"report": str(page), **told})
    else:
        typer.echo(str(page))
        for pair in pairs:
            typer.echo(show.wrapped(plain(str(pair))))
    if open_:
        import webbrowser

        webbrowser.open(Path(page).resolve().as_uri())


def _last(run: RunData) -> dict[str, Any]:
    return {
        "folder": str(run.folder),
        "status": run.status,
        "steps": int(run.steps[-1]) if len(run.steps) else 0,
        "metrics": {name: float(values[-1]) for name, values in run.series.items() if len(values)},
    }

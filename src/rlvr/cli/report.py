"""`rlvr report`: a run as one page, or several runs beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rlvr.cli import show


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default RUN/report.html, or comparison.html for several runs.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Last numbers of each run, for programs.")] = False,
) -> None:
    """Write a run's page, or compare runs.

    The page is one file without links to the network: it can be sent by mail.

    \b
    Examples:
      rlvr report runs/quickstart-20250101-120000 --open
      rlvr report runs/grpo runs/dapo --out comparison.html
      rlvr report runs/* --json
    """
    if len(runs) == 1:
        from rlvr.report.html import write_report

        page = write_report(runs[0], out)
    else:
        from rlvr.report.compare import write_comparison

        page = write_comparison(runs, out or Path("comparison.html"))
    if json:
        show.as_json({"report": str(page), "runs": [_last(folder) for folder in runs]})
    else:
        typer.echo(str(page))
    if open_:
        import webbrowser

        webbrowser.open(Path(page).resolve().as_uri())


def _last(folder: Path) -> dict[str, Any]:
    from rlvr.report.store import read_run

    run = read_run(folder)
    return {
        "folder": str(folder),
        "status": run.status,
        "steps": int(run.steps[-1]) if len(run.steps) else 0,
        "metrics": {name: float(values[-1]) for name, values in run.series.items() if len(values)},
    }

"""`rlvr models`: what is on this machine, and what can be fetched."""

from __future__ import annotations

from typing import Annotated

import typer

from rlvr.cli import show

app = typer.Typer(
    no_args_is_help=True,
    help="Models on this machine: list them, add one.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.command("list")
def list_(json: Annotated[bool, typer.Option("--json", help="For programs.")] = False) -> None:
    """Bundled and added models, and those that can be added.

    Besides these, every Hugging Face folder and hub id is a model:
    --model Qwen/Qwen3-0.6B
    """
    from rlvr.engine.fetch import list_models
    from rlvr.engine.sources import SOURCES

    here = list_models()
    missing = {name: source for name, source in SOURCES.items() if name not in [m.name for m in here]}
    if json:
        told = [
            {"name": m.name, "kind": m.kind, "folder": m.folder, "bytes": m.bytes, "parameters": m.parameters}
            for m in here
        ]
        show.as_json({"here": told, "addable": {name: source.summary for name, source in missing.items()}})
        return
    rows: list[tuple[str, ...]] = [
        (m.name, m.kind, f"{m.parameters / 1e6:.2f}M", f"{m.bytes / 1e6:.1f} MB", str(m.folder)) for m in here
    ]
    rows += [(name, "addable", "", f"{s.megabytes} MB", s.summary) for name, s in missing.items()]
    typer.echo(show.table(rows, ""))


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help='One that "rlvr models list" calls addable.')],
) -> None:
    """Download a small real model once and convert it.

    \b
    Example:
      rlvr models add smollm2
    """
    from rlvr.engine.fetch import add as fetch

    typer.echo(f"{name} is in {fetch(name)}")

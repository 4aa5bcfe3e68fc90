"""`rlvr check`: does a paper keep the laws?"""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer

from rlvr.cli import show


def check(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help="A registered paper, or path.py:paper.")],
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Run the laws on a paper.

    A paper's loss and gradient must not depend on how a batch is cut or ordered,
    must be finite at the edges, must let gradient flow through the forward pass
    only, and must vanish into its base at the settings that it calls neutral.

    \b
    Examples:
      rlvr check dapo
      rlvr check my_paper.py:my_paper

    Exits with 1 when a law is broken.
    """
    from rlvr.testing import check as laws

    results = laws(paper)
    if json:
        show.as_json([{"law": r.law, "ok": r.ok, "detail": r.detail} for r in results])
    else:
        for result in results:
            typer.echo(f"{'ok    ' if result.ok else 'BROKEN'}  {result.law}")
            if result.detail:
                typer.echo(textwrap.indent(result.detail, "        " if "\n" not in result.detail else "  "))
    if not all(result.ok for result in results):
        raise typer.Exit(1)

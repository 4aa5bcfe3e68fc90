"""`rlvr train`: from a recipe to a folder."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from rlvr.cli import show


class FolderTaken(ValueError):
    """A run is never written over."""


def train(
    recipe: Annotated[
        str | None, typer.Argument(metavar="RECIPE", help="A .toml file, a shipped recipe, or a run's folder.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; may be repeated. KEY= is the default."),
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="STACK", help='Other papers, or "+paper" for more of them.')
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="Another model.")] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Another seed.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where to; default runs/RECIPE-DATE-TIME.")] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with a run from its newest checkpoint; needs no RECIPE.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and sizes, and train nothing.")] = False,
) -> None:
    """Train a model by a recipe.

    \b
    Examples:
      rlvr train quickstart
      rlvr train quickstart --dry-run
      rlvr train quickstart --method "rloo,gspo(clip_high=5e-4)" --seed 1
      rlvr train quickstart --method "+my_paper.py:my_paper"
      rlvr train quickstart --set lr=1e-4 --set papers.grpo.clip_high=0.28
      rlvr train my_recipe.toml --model Qwen/Qwen3-0.6B --out runs/first
      rlvr train --resume runs/first

    \b
    The folder holds recipe.toml (all settings), metrics.jsonl, rollouts/,
    model/ and report.html. "rlvr explain recipe" lists every key.
    """
    from rlvr.recipe import find_recipe, load_recipe

    if (recipe is None) == (resume is None):
        raise typer.BadParameter("give a RECIPE to start, or --resume RUN to go on, one of the two")
    recipe = recipe or str(resume)
    more = [] if seed is None else [f"seed={seed}"]
    chosen = load_recipe(recipe, [*(sets or []), *more], method, model)
    if dry_run:
        from rlvr.run import dry_run as plan

        typer.echo(plan(chosen))
        return
    file = find_recipe(recipe)
    title = file.parent.name if file.name == "recipe.toml" else file.stem
    folder = resume or out or Path("runs") / f"{title}-{datetime.now():%Y%m%d-%H%M%S}"
    if resume is None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FolderTaken(f"{folder} is not empty, and a run is never written over; give another --out")
    from rlvr.run import train as run

    done = run(chosen, folder, title=title, resume=resume is not None)
    typer.echo(f"{done.summary['status']}: {folder}")
    told = done.summary.get("eval", {})
    for name, before in told.get("before", {}).items():
        if after := told.get("after", {}).get(name):
            rows = list(show.changes(before, after))
            typer.echo(f"{name}, before and after ({told['problems']} problems)\n{show.table(rows)}")
    typer.echo(f"report: {done.summary['report']}")
    if str(done.summary["status"]) != "finished":
        raise typer.Exit(1)

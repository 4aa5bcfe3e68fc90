"""`rlvr doctor`: what would go wrong with a recipe, before it costs anything."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from rlvr.cli import show


def doctor(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A .toml file, a shipped recipe, or a run's folder.")],
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the recipe.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="STACK", help='Other papers, or "+paper" for more of them.')
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="Another model.")] = None,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Look a recipe over: would it learn what it should?

    Asks the verifier about golds, empty, repeated and endless answers; looks at
    the prompts as the model reads them; samples one step and looks at ends,
    groups, reward parts and log-probs. Trains nothing.

    \b
    Examples:
      rlvr doctor quickstart
      rlvr doctor my_recipe.toml --model Qwen/Qwen3-0.6B
      rlvr doctor quickstart --set top_p=0.9 --json

    Exits with 1 when something is wrong. "rlvr train" runs the quick half of
    this by itself; doctor = false turns that off.
    """
    from rlvr.recipe import load_recipe

    chosen = load_recipe(recipe, sets or [], method, model)
    from rlvr.doctor.examine import examine

    examined = examine(chosen)
    if json:
        show.as_json({"healthy": examined.healthy, **asdict(examined)})
    else:
        for finding in examined.findings:
            typer.echo(f"{finding.severity.upper():<7}  {finding.check}")
            typer.echo(show.wrapped(f"{finding.says}\n{finding.mend}", " " * 9))
        n = len(examined.findings)
        said = "nothing is wrong" if not n else "1 finding" if n == 1 else f"{n} findings"
        typer.echo(f"looked at {', '.join(examined.looked_at)}: {said}")
        if examined.skipped:
            typer.echo(f"not looked at: {examined.skipped}")
    if not examined.healthy:
        raise typer.Exit(1)

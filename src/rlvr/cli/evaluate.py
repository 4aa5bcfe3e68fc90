"""`rlvr eval`: how good a model is, with intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlvr.cli import show


class NoModel(ValueError):
    """The run's folder holds no model."""


class TooManyUnknown(RuntimeError):
    """More answers than unknown_limit allows had no verdict."""


def evaluate(
    what: Annotated[
        str, typer.Argument(metavar="MODEL_OR_RUN", help="A model, the folder of a run, or its model/ or best/.")
    ],
    recipe: Annotated[
        str | None, typer.Option(metavar="RECIPE", help="What to ask and how; default the run's own, else quickstart.")
    ] = None,
    k: Annotated[int | None, typer.Option("--k", metavar="N", help="Answers to each problem.")] = None,
    problems: Annotated[int | None, typer.Option(metavar="N", help="Problems.")] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the recipe.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Measure a model, with intervals.

    mean@k, pass@k, pass^k and maj@k on problems that training has not seen, each
    with its 95% interval over problems.

    \b
    Examples:
      rlvr eval nano
      rlvr eval runs/quickstart-20250101-120000
      rlvr eval runs/quickstart-20250101-120000/best
      rlvr eval nano --recipe quickstart --problems 1000 --k 16
      rlvr eval nano --set eval.temperature=0 --k 1          (greedy)
      rlvr eval smollm2 --recipe word_problems --json
    """
    from rlvr import best
    from rlvr.recipe import load_recipe

    folder = Path(what)
    is_run = (folder / "recipe.toml").is_file()
    if is_run and not (folder / "model").is_dir():
        other = folder / best.FOLDER if best.kept(folder) else "a model"
        raise NoModel(f"{folder} is a run without a model/: it did not come to its end; give {other} instead")
    inside = folder.name in ("model", best.FOLDER) and (folder.parent / "recipe.toml").is_file()
    own = folder if is_run else folder.parent if inside else "quickstart"
    more = [f"eval.{key}={value}" for key, value in (("k", k), ("problems", problems)) if value is not None]
    chosen = load_recipe(recipe or own, [*(sets or []), *more])

    from rlvr.evaluate.unknown import no_verdict
    from rlvr.run import evaluate as measure

    told = measure(chosen, model=str(folder / "model") if is_run else what)
    if json:
        show.as_json(told)
    else:
        typer.echo(f"{told['model']}: {told['problems']} problems, {told['k']} answers each")
        for name, measures in told["results"].items():
            typer.echo("\n".join(filter(None, (name, show.table(list(show.estimates(measures)))))))
            if said := no_verdict(measures):
                typer.echo(f"  {said}; they count as not right" if len(measures) > 3 else f"  {said}")
    if told.get("fault"):
        raise TooManyUnknown(f"this evaluation says little: {told['fault']}")

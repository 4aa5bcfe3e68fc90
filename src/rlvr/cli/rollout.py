"""`rlvr rollout`: answers and verdicts without training."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlvr.cli import show

if TYPE_CHECKING:
    from rlvr.recipe import Recipe


def rollout(
    what: Annotated[
        str | None, typer.Argument(metavar="RECIPE_OR_MODEL", help="A recipe, a run's folder, or a model.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(metavar="RECIPE", help="What a model is asked and how; default quickstart.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="Another model than the recipe's.")] = None,
    k: Annotated[int | None, typer.Option("--k", metavar="N", help="Answers to each task; default group_size.")] = None,
    tasks: Annotated[int | None, typer.Option(metavar="N", help="Only the first N tasks.")] = None,
    split: Annotated[str, typer.Option(metavar="train|eval", help="Which tasks.")] = "train",
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the recipe.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where to; default runs/rollout-DATE-TIME.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Go on where it was interrupted.")] = None,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Sample and verify, and train nothing.

    Answers to a recipe's training tasks, with their verdicts, in the files that a
    training run writes; and tasks.jsonl, a line a task: how many answers, how many
    of them with a verdict, how many right. A run's folder stands for its trained
    model on its own tasks.

    \b
    Examples:
      rlvr rollout quickstart
      rlvr rollout quickstart --k 4 --tasks 200 --out runs/easy
      rlvr rollout my_recipe.toml --model Qwen/Qwen3-4B
      rlvr rollout smollm2 --recipe word_problems
      rlvr rollout runs/first --split eval
      rlvr rollout --resume runs/easy

    \b
    A folder like that is what ThinkPrior selects prompts by:
      rlvr train quickstart --method "+thinkprior(anchors='runs/easy')"

    Ctrl-C ends it after the present 64 tasks and keeps what is there; a second
    one ends it at once, and keeps whole files.
    """
    from rlvr.folder import fresh
    from rlvr.recipe import load_recipe

    if split not in ("train", "eval"):
        raise typer.BadParameter(f"--split is train or eval, not {split!r}")
    if (what is None) == (resume is None):
        raise typer.BadParameter("give a RECIPE_OR_MODEL to start, or --resume DIR to go on, one of the two")
    for name, number in (("--k", k), ("--tasks", tasks)):
        if number is not None and number < 1:
            raise typer.BadParameter(f"{name} is 1 or more, not {number}")
    if resume is not None:
        given = [o for o, x in (("--k", k), ("--tasks", tasks), ("--set", sets), ("--model", model)) if x]
        if given:
            raise typer.BadParameter(f"--resume goes on as it was begun; leave {', '.join(given)} out")
        folder, chosen = resume, load_recipe(resume)
    else:
        folder = out or Path("runs") / f"rollout-{datetime.now():%Y%m%d-%H%M%S}"
        fresh(folder)  # before anything heavy is loaded
        assert what is not None
        chosen = _recipe(what, recipe, model, sets or [])

    from rlvr import rollouts
    from rlvr.stopping import stopping

    def say(text: str) -> None:
        typer.echo(text, err=True)

    with stopping(say) as asked:
        if resume is not None:
            done = rollouts.resume(chosen, folder, sys.stderr, asked)
        else:
            which: rollouts.Split = "train" if split == "train" else "eval"
            done = rollouts.sample(chosen, folder, k, tasks, which, sys.stderr, asked)
    told = done.told()
    if json:
        show.as_json(told)
    else:
        typer.echo(f"{done.model}: {told['tasks']} tasks, {done.answers} answers each")
        typer.echo(show.table(_shown(told)))
        typer.echo(f"{folder / rollouts.TABLE}, {folder / 'rollouts'}/")
    if not done.done:
        say(f"{told['tasks']} of {told['asked']} tasks; go on with: rlvr rollout --resume {folder}")
        raise typer.Exit(1)


def _recipe(what: str, recipe: str | None, model: str | None, sets: list[str]) -> Recipe:
    """The recipe that `what` names, or the one that its model is asked by."""
    from rlvr.cli.evaluate import NoModel
    from rlvr.recipe import RecipeError, find_recipe, load_recipe, shipped

    folder = Path(what)
    if (folder / "recipe.toml").is_file() and model is None:
        if not (folder / "model").is_dir():
            raise NoModel(f"{folder} is a run without a model/: it did not come to its end; give a model instead")
        return load_recipe(recipe or folder, sets, model=str((folder / "model").absolute()))
    is_recipe = folder.is_file() or folder.suffix == ".toml" or what in shipped()
    if not is_recipe:
        if model is not None:
            raise typer.BadParameter(f"{what} is no recipe, and --model names another model; give one of the two")
        return load_recipe(recipe or "quickstart", sets, model=what)
    if recipe is not None:
        raise RecipeError(f"{find_recipe(what)} is a recipe, and --recipe names another one; give one of the two")
    return load_recipe(what, sets, model=model)


def _shown(told: dict[str, Any]) -> list[tuple[str, str]]:
    (right,) = show.estimates({"right": told["right"]})
    rows = [right, *((f"{kind} tasks", f"{told[kind]:.1%}") for kind in ("solved", "mixed", "failed"))]
    return [*rows, ("without a verdict", f"{told['unknown']:.1%}"), ("tokens an answer", f"{told['tokens']:.1f}")]

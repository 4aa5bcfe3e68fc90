"""`rlvr train`: from a recipe to a folder."""

from __future__ import annotations

import shlex
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlvr.cli import show

if TYPE_CHECKING:
    from rlvr.recipe import Recipe


class DiskFull(RuntimeError):
    """The run's folder takes no more; the message says what is safe and how to go on."""


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
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", metavar="N", min=2, max=6, help="N runs, DIR/seed-0 and on, and one page of them all."),
    ] = None,
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
      rlvr train quickstart --seeds 3
      rlvr train quickstart --set lr=1e-4 --set papers.grpo.clip_high=0.28
      rlvr train my_recipe.toml --model Qwen/Qwen3-0.6B --out runs/first
      rlvr train --resume runs/first

    \b
    The folder holds recipe.toml (all settings), metrics.jsonl, rollouts/,
    model/ and report.html. "rlvr explain recipe" lists every key.
    """
    from rlvr.folder import fresh, refuse_other
    from rlvr.recipe import find_recipe, load_recipe

    if (recipe is None) == (resume is None):
        raise typer.BadParameter("give a RECIPE to start, or --resume RUN to go on, one of the two")
    if resume is not None and seeds is not None:
        raise typer.BadParameter("--resume goes on with one run; give --resume DIR/seed-N without --seeds")
    if resume is not None:
        refuse_other(resume)
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
    if resume is None:
        fresh(folder)  # before anything heavy is loaded
    if seeds is None:
        _one(chosen, folder, title, resume=resume is not None)
        return
    from rlvr.report.compare import over_seeds, write_comparison
    from rlvr.report.store import read_run

    folders = [folder / f"seed-{n}" for n in range(chosen.seed, chosen.seed + seeds)]
    for n, each in enumerate(folders, chosen.seed):
        _one(chosen.model_copy(update={"seed": n}), each, title, resume=False)
    told = {name: [e.value, e.low, e.high] for name, e in over_seeds([read_run(each) for each in folders]).items()}
    shown = {name: e for name, e in told.items() if name == "reward/mean" or name.endswith((", before", ", after"))}
    typer.echo(f"over {seeds} seeds\n{show.table(list(show.estimates(shown)))}")
    typer.echo(f"report: {write_comparison(folders, folder / 'comparison.html', seeds=True)}")


def _one(recipe: Recipe, folder: Path, title: str, resume: bool) -> None:
    """One run, and what it came to. Exits with 1 where it did not finish: further seeds would cost as much."""
    from rlvr import best
    from rlvr.evaluate.unknown import no_verdict
    from rlvr.run import train as run

    try:
        done = run(recipe, folder, title=title, resume=resume)
    except KeyboardInterrupt:
        typer.echo(f"\n{_broken_off(folder)}", err=True)
        raise typer.Exit(1) from None
    except Exception as error:  # each library has an exception of its own for a full disk
        if not _is_full(error):
            raise
        raise DiskFull(_mended(folder)) from error
    status = str(done.summary["status"])
    typer.echo(f"{status}: {folder}" if status == "finished" else f"{folder}: {status}")
    if command := done.summary.get("go_on"):
        typer.echo(f"go on with: {command}")
    told = done.summary.get("eval", {})
    for when in ("before", "after"):
        for name, measures in told.get(when, {}).items():
            if said := no_verdict(measures):
                typer.echo(f"{name}, {when}: {said}")
    for name, before in told.get("before", {}).items():
        if after := told.get("after", {}).get(name):
            rows = list(show.changes(before, after))
            if rows:
                typer.echo(f"{name}, before and after ({told['problems']} problems)\n{show.table(rows)}")
    if said := best.sentence(done.summary.get("best"), told):
        typer.echo(said)
    if solved := _solved(folder):
        typer.echo(f"a problem that it failed and now solves\n{show.table(solved)}")
    typer.echo(f"report: {done.summary['report']}")
    if status != "finished":
        raise typer.Exit(1)


def _solved(folder: Path) -> list[tuple[str, str]]:
    """A problem that failed before and is solved now, with both answers; nothing where the run has none."""
    from rlvr.report.store import read_json
    from rlvr.report.text import short

    told, _ = read_json(folder / "solved.json")
    if not told:
        return []
    sides = [(when, told[when]) for when in ("before", "after")]
    return [
        ("asked", short(told["prompt"], 200)),
        *((when, f"{short(side['text'], 200)}   ({side['share_right']:.0%} right)") for when, side in sides),
    ]


def _is_full(error: BaseException | None) -> bool:
    """Whether an error, or what it came of, is a disk without room."""
    if error is None:
        return False
    told = (OSError, RuntimeError) if type(error).__module__ == "builtins" else Exception
    words = any(text in str(error) for text in ("No space left", "Disk quota exceeded"))
    return (isinstance(error, told) and words) or _is_full(error.__cause__) or _is_full(error.__context__)


def _broken_off(folder: Path) -> str:
    """What Ctrl-C left, where it did not wait for the end of a step."""
    from rlvr.checkpoint import checkpoints
    from rlvr.report.store import METRICS, read_lines

    if kept := sorted(checkpoints(folder)):
        return (
            f"stopped at once; step {kept[-1]} is saved, go on with:\n  rlvr train --resume {shlex.quote(str(folder))}"
        )
    made = len(read_lines(folder / METRICS)[0])
    if made:
        return f"stopped at once after {made} steps, and no checkpoint was written yet (checkpoint_every); start again"
    return "stopped before the first step was over; the same command starts it again"


def _mended(folder: Path) -> str:
    from rlvr.checkpoint import checkpoints

    kept = sorted(checkpoints(folder))
    if not kept:
        return f"the disk of {folder} is full, and no checkpoint was written yet; make room, or give another --out"
    return (
        f"the disk of {folder} is full; the checkpoint of step {kept[-1]} is whole. Make room, then go on with: "
        f"rlvr train --resume {folder}"
    )

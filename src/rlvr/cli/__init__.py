"""The command line. Each verb is a small file here; nothing heavy is imported before a verb needs it."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rlvr.cli import (
    audit,
    check,
    doctor,
    evaluate,
    export,
    models,
    names,
    new,
    report,
    retest,
    rollout,
    train,
    verify_command,
)

PACKAGE = Path(__file__).parents[1]

app = typer.Typer(
    name="rlvr",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(train.train)
app.command("eval")(evaluate.evaluate)
app.command("rollout")(rollout.rollout)
app.command("report")(report.report)
app.command("export")(export.export)
app.command("verify")(verify_command.verify)
app.command("list")(names.list_)
app.command("explain")(names.explain)
app.command("check")(check.check)
app.command("doctor")(doctor.doctor)
app.command("audit")(audit.audit)
app.command("retest")(retest.retest)
app.command("new")(new.new)
app.add_typer(models.app, name="models")


@app.callback(invoke_without_command=True)
def rlvr(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks (or set RLVR_DEBUG=1).")] = False,
) -> None:
    """Reinforcement learning with verifiable rewards: published methods as small
    pieces that stack, on one pipeline.

    \b
    Start here:
      rlvr train quickstart        a learning curve in minutes, on this machine
      rlvr list method             the papers that there are
      rlvr explain dapo            what one of them does: formula and settings
      rlvr train quickstart --method "+dapo(clip_high=0.3)"
      rlvr report runs/*           compare runs

    Every verb has examples: rlvr train --help
    """
    if debug:
        os.environ["RLVR_DEBUG"] = "1"
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"rlvr {installed('rlvr')}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Exit codes: 0 done; 1 it ran, and failed or found a fault; 2 what was asked for cannot be done as written."""
    try:
        app(None if arguments is None else list(arguments), prog_name="rlvr")
    except SystemExit as end:
        if place := _ended_by_user(end):
            typer.echo(f"rlvr: {place} ends the program, and with it this command, before it was done", err=True)
            sys.exit(1)
        raise
    except Exception as error:
        if os.environ.get("RLVR_DEBUG") or not _for_people(error):
            raise
        from rlvr.report.text import visible

        typer.echo(f"rlvr: {visible(_said(error))}", err=True)  # a server or a file may have had a word in it
        sys.exit(1 if isinstance(error, RuntimeError) else 2)


def _ended_by_user(end: SystemExit) -> str | None:
    """File and line of a user's own sys.exit(), whose code says nothing of this command; None for our own end."""
    # wandb puts a function of its own in the place of sys.exit: who called it is who ends the program
    leave = getattr(sys.exit, "__code__", None)
    last = end.__traceback__
    while last is not None and last.tb_next is not None and last.tb_next.tb_frame.f_code is not leave:
        last = last.tb_next
    if last is None or str(last.tb_frame.f_globals.get("__name__")).partition(".")[0] in ("click", "typer", "rlvr"):
        return None
    return f"{last.tb_frame.f_code.co_filename}, line {last.tb_lineno}"


def _for_people(error: Exception) -> bool:
    """Errors that are sentences for the person at the keyboard: classes of this package, ValueErrors and OSErrors that
    its own code raised, and files that cannot be read or written. Anything else is a fault of the program: it keeps its
    traceback."""
    if type(error).__module__.partition(".")[0] == "rlvr" or (isinstance(error, OSError) and error.filename):
        return True
    last = traceback.extract_tb(error.__traceback__)[-1]
    return isinstance(error, ValueError | OSError) and Path(last.filename).is_relative_to(PACKAGE)


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)

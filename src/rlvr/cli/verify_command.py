"""`rlvr verify`: one answer beside one gold, or a file of them, and why the verdict is what it is."""

from __future__ import annotations

import dataclasses
import json as json_format
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlvr.cli import show

if TYPE_CHECKING:
    from rlvr.verify.verifier import Verifier


class BadRequest(ValueError):
    """What was asked for cannot be verified as it is written."""


def verify(
    gold: Annotated[str | None, typer.Option(metavar="TEXT", help="The right answer.")] = None,
    answer: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What a model wrote; - reads standard input.")
    ] = None,
    verifier: Annotated[str, typer.Option(metavar="VERIFIER", help="Who judges; see: rlvr list verifier.")] = "math",
    mode: Annotated[
        str | None, typer.Option(metavar="MODE", help="Where math looks: strict, flexible, last_box, whole ...")
    ] = None,
    jsonl: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Lines with gold and answer (mode, verifier, id if you like).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Judge an answer, or a file of them.

    Says the verdict, its reason, what was taken for the answer and how it was
    compared. With --jsonl it writes one JSON line for each line of the file, in
    order; a line that cannot be judged says why.

    \b
    Examples:
      rlvr verify --gold '1/2' --answer 'So it is \\boxed{0.5}.'
      rlvr verify --gold 42 --answer 'The answer is 42.' --mode strict
      rlvr verify --gold 18 --answer '#### 18' --verifier hash_marker
      rlvr verify --gold 5 --answer '5 cm' --verifier "math(units='strict')"
      rlvr verify --jsonl answers.jsonl > verdicts.jsonl

    Exits with 1 when a line of the file could not be judged.
    """
    if jsonl is not None:
        if gold is not None or answer is not None:
            raise BadRequest("--jsonl brings its own golds and answers; leave --gold and --answer out")
        faults = 0
        for record in _judged(jsonl, verifier, mode):
            faults += "error" in record
            typer.echo(json_format.dumps(record, ensure_ascii=False))
        if faults:
            raise typer.Exit(1)
        return
    if gold is None or answer is None:
        raise BadRequest("give --gold and --answer, or --jsonl with a file of both")
    told = _judge(sys.stdin.read() if answer == "-" else answer, gold, _verifier(verifier, mode))
    if json:
        show.as_json(told)
    else:
        typer.echo(show.table([(name, str(value)) for name, value in told.items() if value not in (None, "")], ""))


def _judge(answer: str, gold: Any, verifier: Verifier) -> dict[str, Any]:
    """The verdict and its grounds."""
    from rlvr.records import Task
    from rlvr.verify.judge import judge
    from rlvr.verify.math_answer import Math

    task = Task("verify", "", gold)
    (verdict,) = judge(verifier, [(answer, task)])
    told: dict[str, Any] = {
        "verdict": verdict.label,
        "score": verdict.score,
        "reason": verdict.reason,
        "extracted": verdict.extracted,
    }
    if isinstance(verifier, Math):
        found, finding = verifier.look(answer, task)
        told |= {"found": None if found.answer is None else found.where, "compared": finding.how}
    return told | {"verifier": verdict.fingerprint}


@lru_cache(maxsize=64)
def _verifier(spec: str, mode: str | None) -> Verifier:
    from rlvr.verify.spec import verifier_from

    verifier = verifier_from(spec)
    if mode is None:
        return verifier
    if "mode" not in [f.name for f in dataclasses.fields(verifier) if f.init]:  # type: ignore[arg-type]
        raise BadRequest(f"{spec} has no mode: it always looks in the same place; only math has one")
    return dataclasses.replace(verifier, mode=mode)  # type: ignore[type-var]


def _judged(file: Path, verifier: str, mode: str | None) -> Iterator[dict[str, Any]]:
    """A record for each line that is not blank, in order."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _record(number, line, verifier, mode)


def _record(number: int, line: bytes, verifier: str, mode: str | None) -> dict[str, Any]:
    record: dict[str, Any] = {"line": number}
    try:
        row = _row(line)
        if "id" in row:
            record["id"] = row["id"]
        chosen = _verifier(row.get("verifier") or verifier, row.get("mode") or mode)
        return record | _judge(row["answer"], row["gold"], chosen)
    except (ValueError, KeyError) as error:  # also UnknownName
        return record | {"verdict": None, "error": f"line {number}: {error}"}


def _row(line: bytes) -> Mapping[str, Any]:
    try:
        row = json_format.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise BadRequest("it is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"it is not JSON ({error})") from None
    if not isinstance(row, dict):
        raise BadRequest('a line is an object such as {"gold": "1/2", "answer": "0.5"}')
    for key, kinds, meant in (
        ("answer", str, "a text"),
        ("gold", (str, int, float), "a text or a number"),
        ("mode", (str, type(None)), "a text"),
        ("verifier", (str, type(None)), "a text"),
    ):
        if key not in row and key in ("answer", "gold"):
            raise BadRequest(f"{key!r} is missing; a line has gold and answer")
        if not isinstance(row.get(key), kinds) or isinstance(row.get(key), bool):
            raise BadRequest(f"{key!r} is {meant}, not {type(row.get(key)).__name__}")
    return row

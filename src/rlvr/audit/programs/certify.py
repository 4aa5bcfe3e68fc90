"""What programs do, found by running them: the certificates of the code corpus.

`python -P certify.py` is the child: a line of JSON a program, a line of JSON a reply. It forks for each program, calls
the function on every input in turn, and writes what came of it as a text in which every value has its type. It shares
no code with the sandbox or the `code` verifier; it contains nothing, for all programs are ours.
"""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

SECONDS = 3.0  # after which a program counts as one that does not end; the others take milliseconds
NEVER = "does not end"


def outcomes(asked: Iterable[dict[str, Any]]) -> Iterator[list[str]]:
    """For each {"code", "name", "inputs", "loose"} a text for each input. `inputs` are texts of Python tuples; `name`
    is the function, or None for a script whose input is a text and whose output counts."""
    command = [sys.executable, "-P", __file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONHASHSEED": "0"}) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for question in asked:
            child.stdin.write(json.dumps(question).encode() + b"\n")
            child.stdin.flush()
            yield json.loads(child.stdout.readline())
        child.stdin.close()


def told(x: Any, loose: bool = False) -> str:
    """The value with its type, the same for equal values only. `loose`: as Python's == sees numbers and sets."""
    kind = type(x)
    if kind in (Counter, OrderedDict, defaultdict):  # the verifier's contract: these are dictionaries
        kind = dict
    name = kind.__name__
    if x is None or kind in (str, bytes, bytearray):
        return f"{name} {x!r}"
    if kind in (bool, int, float):
        finite = kind is not float or x - x == 0
        return f"number {Fraction(x)}" if loose and finite else f"{name} {x + 0.0 if kind is float else x!r}"
    if kind in (list, tuple):
        return f"{name} [{', '.join(told(y, loose) for y in x)}]"
    if kind in (set, frozenset):
        return f"{'set' if loose else name} [{', '.join(sorted(told(y, loose) for y in x))}]"
    if kind is dict:
        return f"dict [{', '.join(sorted(f'{told(k, loose)}: {told(v, loose)}' for k, v in x.items()))}]"
    return f"other {kind.__module__}.{kind.__qualname__}"


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(_answered(json.loads(line))), flush=True)


def _answered(question: dict[str, Any]) -> list[str]:
    if question["name"] is not None:
        return _run(question, question["inputs"])
    return [_run(question, [one])[0] for one in question["inputs"]]


def _run(question: dict[str, Any], inputs: list[str]) -> list[str]:
    """A fresh process for these inputs. What it did not come to is NEVER, or that it ended."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(ours)
        signal.setitimer(signal.ITIMER_REAL, SECONDS + 1)  # if the parent is gone
        null = os.open(os.devnull, os.O_RDWR)
        for n in (0, 1, 2):
            os.dup2(null, n)
        with os.fdopen(theirs, "w", encoding="utf-8") as sink:
            try:
                for text in _script(question, inputs) if question["name"] is None else _calls(question, inputs):
                    print(json.dumps(text), file=sink, flush=True)
            except BaseException as fault:
                print(json.dumps(f"does not load: {type(fault).__name__}"), file=sink, flush=True)
        os._exit(0)
    os.close(theirs)
    data, until = b"", time.monotonic() + SECONDS
    late = False
    while True:
        if not select.select([ours], [], [], max(0.0, until - time.monotonic()))[0]:
            late = True
            break
        piece = os.read(ours, 1 << 16)
        if not piece:
            break
        data += piece
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(ours)
    found = [json.loads(line) for line in data.decode().splitlines()]
    if len(found) == 1 and found[0].startswith("does not load"):
        found *= len(inputs)
    return found + [NEVER if late else "ends early"] * (len(inputs) - len(found))


def _calls(question: dict[str, Any], inputs: list[str]) -> Iterator[str]:
    space: dict[str, Any] = {"__name__": "solution"}
    exec(compile(question["code"], "solution", "exec"), space)
    name = question["name"]
    function: Any = getattr(space["Solution"](), name) if name not in space and "Solution" in space else space.get(name)
    for text in inputs:
        try:
            yield told(function(*eval(text)), question["loose"])
        except BaseException as fault:
            yield f"raises {type(fault).__name__}"


def _script(question: dict[str, Any], inputs: list[str]) -> Iterator[str]:
    (given,) = eval(inputs[0])
    sys.stdin = io.TextIOWrapper(io.BytesIO(given.encode()))
    sink = io.BytesIO()
    sys.stdout = io.TextIOWrapper(sink, write_through=True)
    sys.argv = ["solution"]
    try:
        exec(compile(question["code"], "solution", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        if end.code not in (None, 0):
            yield f"exits with {end.code!r}"
            return
    except BaseException as fault:
        yield f"raises {type(fault).__name__}"
        return
    lines = [
        line.rstrip() for line in sink.getvalue().decode().split("\n")
    ]  # the verifier's contract: ends of lines count for nothing
    while lines and not lines[-1]:
        lines.pop()
    yield "prints " + repr("\n".join(lines))


if __name__ == "__main__":
    main()

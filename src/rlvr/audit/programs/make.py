"""Make the code corpus: every problem's programs, each with what was seen when it ran.

    python -m rlvr.audit.programs.make          writes programs.jsonl beside this file, in a few minutes

A rewrite must do what the reference does on every input, those of the tests and MORE further ones; else this ends with
BadCertificate. A mutation must differ on an input among the tests, or it is left out: nothing would show it.
"""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Iterator
from typing import Any

from rlvr.audit.programs.certify import NEVER, outcomes
from rlvr.audit.programs.problems import PROBLEMS, Problem
from rlvr.audit.programs.questions import DATA
from rlvr.audit.programs.variants import Variant, endless, mutations, rewrites, samples
from rlvr.audit.spelling import BadCertificate

MORE = 40  # inputs beside those of the tests; ours
ENDLESS = 6  # every so manieth problem has a loop without end: each costs an audit its whole time limit
# One process for all tests is what a test program says; of calls a verifier may make a process each.
IN_ONE_PROCESS = ("asserts", "program", "pytest")
Row = dict[str, Any]


def rows() -> Iterator[Row]:
    """For each problem a row of its own, and one for each of its programs, the reference first."""
    for number, problem in enumerate(PROBLEMS):
        yield from _of(problem, number)


def question(row: Row, problem: Row, inputs: int | None = None) -> Row:
    """What `outcomes` is asked about a program's row; of the first `inputs` of the problem's, or of all."""
    name = None if problem["form"] == "script" else problem["problem"]
    loose = problem["form"] == "pytest"  # an assert in a function compares by Python's own rules
    return {"code": row["code"], "name": name, "inputs": problem["inputs"][:inputs], "loose": loose}


def _of(problem: Problem, number: int) -> Iterator[Row]:
    r = random.Random(f"{problem.name}:inputs")
    tests = [repr(args) for args in problem.tests]
    inputs = list(dict.fromkeys(tests + [repr(problem.more(r)) for _ in range(MORE)]))
    head: Row = {"problem": problem.name, "form": problem.form, "tests": len(tests), "inputs": inputs}
    (wanted,) = outcomes([question({"code": problem.code}, head)])
    yield head | {"gold": _gold(problem, wanted[: len(tests)])}
    told = {"problem": problem.name}

    equal = [
        *rewrites(problem.code, _name(problem)),
        *(Variant("another way", k, v) for k, v in problem.others.items()),
    ]
    for variant, seen in zip(equal, outcomes(question(v._asdict(), head) for v in equal)):
        if seen != wanted:
            where = next(i for i, (a, b) in enumerate(zip(seen, wanted)) if a != b)
            raise BadCertificate(
                f"{problem.name}: {variant.category}, {variant.rewrite} gives {seen[where]} for {inputs[where]}, the"
                f" reference {wanted[where]}:\n{variant.code}"
            )
        yield told | variant._asdict() | {"equal": True, "agrees_on": len(seen)}

    other = [v for v in _other(problem, number, wanted) if v.code not in {e.code for e in equal}]
    other = list({v.code: v for v in reversed(other)}.values())[::-1]  # of the same program the first name
    for variant, seen in zip(other, outcomes(question(v._asdict(), head, len(tests)) for v in other)):
        apart = [i for i, (a, b) in enumerate(zip(seen, wanted)) if a != b]
        if not apart or (NEVER in seen and variant.category != "endless"):
            continue
        where = apart[0]
        if variant.category == "type" and (seen[where].startswith("raises") or " at 0x" in seen[where]):
            continue  # there is no such value in that type
        yield told | variant._asdict() | {"equal": False, "test": where, "wanted": wanted[where], "got": seen[where]}


def _name(problem: Problem) -> str | None:
    return None if problem.form == "script" else problem.name


def _other(problem: Problem, number: int, wanted: list[str]) -> Iterator[Variant]:
    name = _name(problem)
    for (category, rewrite), code in problem.wrong.items():
        yield Variant(category, rewrite, code)
    for variant in mutations(problem.code, name, problem.tests, f"{problem.name}:mutations"):
        if problem.form == "pytest" and variant.category == "type":
            continue
        if variant.category != "state" or problem.form in IN_ONE_PROCESS:
            yield variant
    if name is not None:
        values = [value for value in _values(problem, wanted[: len(problem.tests)]) if not isinstance(value, Raised)]
        if len(values) > 1:
            yield from samples(name, problem.tests, values)
        if number % ENDLESS == 0:
            yield endless(problem.code, name, problem.tests)


class Raised(str):
    """The name of an exception, as a value that is none."""


def _values(problem: Problem, wanted: list[str]) -> list[Any]:
    """What the reference gives for each test. It is run here, in this process: it is our own."""
    space: dict[str, Any] = {}
    exec(compile(problem.code, problem.name, "exec"), space)
    values = []
    for args, text in zip(problem.tests, wanted):
        raised = text.startswith("raises ")
        values.append(Raised(text.removeprefix("raises ")) if raised else space[problem.name](*args))
    return values


def _gold(problem: Problem, wanted: list[str]) -> str:
    name, tests = problem.name, problem.tests
    if problem.form == "script":
        printed = [ast.literal_eval(text.removeprefix("prints ")) + "\n" for text in wanted]
        return json.dumps([{"stdin": stdin, "stdout": out} for (stdin,), out in zip(tests, printed)])
    values = _values(problem, wanted)
    if problem.form in ("calls", "apps"):
        plain = json.loads(json.dumps([list(map(list, tests)), values]))
        if repr(plain) != repr([list(map(list, tests)), values]):
            raise BadCertificate(f"{name}: its tests cannot be said in JSON")
        if problem.form == "apps":
            return json.dumps({"fn_name": name, "inputs": plain[0], "outputs": plain[1]})
        return json.dumps([{"call": name, "args": a, "expected": v} for a, v in zip(*plain)])
    asked = [(f"{name}({', '.join(map(repr, args))})", value) for args, value in zip(tests, values)]
    lines = [_asserted(call, value) for call, value in asked]
    if problem.form == "pytest":
        functions = (f"def test_{i}():\n    {line}\n" for i, line in enumerate(lines))
        return f"from solution import {name}\n\n\n" + "\n\n".join(functions)
    return "\n".join(lines) + "\n"


def _asserted(call: str, value: Any) -> str:
    if isinstance(value, Raised):
        return f"try:\n    {call}\n    assert False, 'nothing was raised'\nexcept {value}:\n    pass"
    return f"assert {call} == {_literal(value)}"


def _literal(value: Any) -> str:
    """`repr`, with sets in an order of their own."""
    return f"{{{', '.join(map(repr, sorted(value)))}}}" if isinstance(value, set) and value else repr(value)


if __name__ == "__main__":
    DATA.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows()), encoding="utf-8")

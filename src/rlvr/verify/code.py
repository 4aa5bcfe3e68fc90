"""The `code` verifier: the last Python block of a text passes the task's tests, in a sandbox, judged from outside.

What is expected never enters the process of the submission. A call's result comes out as data and is compared here,
type by type; printed output is compared here; a test program runs in a process of its own that reaches the submission
by messages only. So `__eq__`, exit(0), forged output and a changed test framework gain nothing.

Tests are the task's gold, in any of these forms:

    "assert f(2) == 4\\nassert f(3) == 9"       a test program, or a list of such lines
    {"call": "f", "args": [2], "expected": 4}   also "kwargs"; "Solution.f" for a method
    {"stdin": "7\\n", "stdout": "49\\n"}          the submission as a script
    {"inputs": [...], "outputs": [...]}         APPS and its kin; with "fn_name" each input is a list of arguments
    a list of these, or any of them as JSON text
"""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from rlvr.records import Rollout, Task, Verdict
from rlvr.registry import register
from rlvr.sandbox.job import Call, Job, Limits, Outcome, Sandbox, SandboxUnavailable, Step
from rlvr.sandbox.pool import LocalSandbox
from rlvr.sandbox.remote import Remote
from rlvr.sandbox.wire import Foreign, encode, same
from rlvr.verify.blocks import last_block
from rlvr.verify.patience import MOST_TIMEOUTS, Patience
from rlvr.verify.verifier import LONGEST_ANSWER, LONGEST_TEXT, SHOWN, VerifierBroken, unknown, words, wrong

PYTHON = ("python", "py", "python3")
_REASONS = {"timeout": "timeout", "killed": "crash", "over_limit": "over_limit"}
_FLOAT = re.compile(r"[+-]?(?:\d{1,400}\.\d{0,400}|\.\d{1,400}|\d{1,400}(?=[eE]))(?:[eE][+-]?\d{1,4})?")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NUMBER = re.compile(r"[+-]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,4})?")


class BadTests(ValueError):
    """The gold holds no tests that can be read; the text says which part and why."""


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests of one task. Each has the canonical text of what is expected, or None where passing is all."""

    calls: tuple[tuple[Call, str], ...] = ()
    scripts: tuple[tuple[bytes, str], ...] = ()  # (stdin, stdout)
    steps: tuple[tuple[Step, str | None], ...] = ()

    def __len__(self) -> int:
        return len(self.calls) + len(self.scripts) + sum(step.kind != "setup" for step, _ in self.steps)


@register("verifier", "code")
@dataclass(frozen=True, slots=True)
class Code:
    """Right iff the last Python block passes every test of the gold (forms: see the module).

    Values are compared by type, nested too: True is not 1, 2 is not 2.0 (`ints_as_floats` lets them be equal), a tuple
    is no list (`tuples_as_lists`); `tolerance` (relative and absolute) holds between floats only, and in printed output
    only for numbers that the gold writes as floats, integers compare exactly. White space at line ends and empty lines
    at the end do not count. `seconds` is for one run: all calls together, or one script; after a run that timed out
    the rest counts as failed. `partial` pays the share of tests passed. `fenced=False` takes the whole text as code.
    `paths` are folders to import from besides the standard library. `remote` is a command that leads to a sandbox
    elsewhere, such as "ssh box python -m rlvr.sandbox.remote" (docs/sandbox.md); `sandbox`, from Python, any other back
    end.

    In a test program `assert <expression> == <literal>` is compared as above; other statements with an assert pass if
    they raise nothing, by Python's own rules. Its functions named test_... and unittest classes are called. Names that
    it does not define are the submission's, also as `from solution import f`. It cannot pass functions to it.

    Parts: "passed" (share) and "tests" (their number). Reasons: "passed", "failed", "exception" (the code does not even
    load), "timeout", "over_limit" (output, files, or over 100 000 characters of code), "crash" (memory, signals),
    "no_answer"; unknown: "no_tests", "bad_gold: ...", "no_verdict: ..." (the machine's fault; `most_timeouts` runs on
    end to which a sandbox gives no answer in time stop the training). Raises VerifierBroken where nothing on this
    machine contains hostile code.
    """

    seconds: float = 10.0
    memory_mb: int = 1024
    tolerance: float = 0.0
    ints_as_floats: bool = False
    tuples_as_lists: bool = False
    partial: bool = False
    fenced: bool = True
    paths: tuple[str, ...] = ()
    workers: int | None = None
    remote: str | None = None
    sandbox: Sandbox | None = None
    most_timeouts: int = MOST_TIMEOUTS
    _sandbox: Sandbox = field(init=False, repr=False, compare=False)
    _patience: Patience = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (0 < self.seconds < math.inf and self.memory_mb > 0 and 0 <= self.tolerance < 1):
            raise ValueError(
                "code: seconds and memory_mb are above 0, tolerance is in [0, 1); got"
                f" {self.seconds!r}, {self.memory_mb!r}, {self.tolerance!r}"
            )
        where = f"code: {self.remote}" if self.remote else "code: its sandbox"
        object.__setattr__(self, "_patience", Patience(where, self.seconds, self.most_timeouts))
        if self.remote is not None and (not self.remote.strip() or self.paths or self.sandbox):
            raise ValueError("code: remote is a command, and has neither paths nor a sandbox of this machine beside it")
        here = self.sandbox or (None if self.remote else LocalSandbox(self.workers, self.paths))
        object.__setattr__(self, "_sandbox", here or Remote(shlex.split(self.remote or ""), self.workers or 4))

    @property
    def fingerprint(self) -> str:
        names = ["seconds", "memory_mb", "tolerance", "ints_as_floats", "tuples_as_lists", "partial", "fenced", "paths"]
        return f"code({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def __call__(self, text: str, task: Task) -> Verdict:
        try:
            suite = read_tests(task.answer)
        except BadTests as error:
            return unknown(f"bad_gold: {error}")
        if not len(suite):
            return unknown("no_tests")
        if len(text) > LONGEST_TEXT:
            return wrong("over_limit")
        code = last_block(text, PYTHON) if self.fenced else text
        if code is None or not code.strip():
            return wrong("no_answer")
        if len(code) > LONGEST_ANSWER:
            return wrong("over_limit")
        try:
            return self._judged(code, suite, task.id)
        except SandboxUnavailable as error:
            raise VerifierBroken(f"code: {error}") from None

    def prepare(self) -> None:
        if prepare := getattr(self._sandbox, "prepare", None):
            try:
                prepare()
            except SandboxUnavailable as error:
                raise VerifierBroken(f"code: {error}") from None

    def judge_many(self, items: Sequence[tuple[Rollout | str, Task]]) -> list[Verdict]:
        with ThreadPoolExecutor(getattr(self._sandbox, "workers", 4)) as threads:
            return list(threads.map(lambda item: self(words(item[0]), item[1]), items))

    def _judged(self, code: str, suite: Suite, task: str) -> Verdict:
        limits = Limits(seconds=self.seconds, memory=self.memory_mb << 20)
        passed, reason, seconds = 0, "", 0.0
        for job, wanted in _jobs(code, suite, limits):
            began = time.monotonic()
            outcome = self._sandbox.run(job)
            seconds += outcome.seconds
            if outcome.status == "failed" and time.monotonic() - began > self.seconds:
                self._patience.overran(task)
            else:
                self._patience.answered()
            fault = next((r for r in outcome.results if r.kind in ("import_failed", "unsendable")), None)
            if outcome.status == "failed" or fault is not None:
                why = f"no_verdict: {outcome.detail}" if fault is None else f"bad_gold: {fault.text}"
                return replace(unknown(why[:300]), seconds=seconds)
            passed += self._passed(outcome, wanted)
            reason = reason or _REASONS.get(outcome.status, "")
            if outcome.detail.startswith("broken"):
                reason = reason or "exception"
            if outcome.status == "timeout":
                break
        share = passed / len(suite)
        parts = {"passed": share, "tests": float(len(suite))}
        if passed == len(suite):
            return Verdict("right", 1.0, "passed", code[:SHOWN], parts, seconds)
        return Verdict("wrong", share if self.partial else 0.0, reason or "failed", code[:SHOWN], parts, seconds)

    def _passed(self, outcome: Outcome, wanted: Sequence[str | None]) -> int:
        """How many tests of one run were passed. What was reported before a run was ended counts."""
        if isinstance(wanted, _Printed):
            if outcome.status != "finished" or outcome.exit_code != 0:
                return 0
            return same_output(outcome.stdout.decode("utf-8", "replace"), wanted[0], self.tolerance)
        return sum(
            got.kind == "passed"
            if text is None
            else got.kind == "value" and same(got.text, text, self.tolerance, self.ints_as_floats, self.tuples_as_lists)
            for got, text in zip(outcome.results, wanted)
        )


class _Printed(tuple[str]):
    """Expected output, as against expected values."""


def _jobs(code: str, suite: Suite, limits: Limits) -> list[tuple[Job, Sequence[str | None]]]:
    """The runs that a suite needs, each with what is expected of its results, in order."""
    jobs: list[tuple[Job, Sequence[str | None]]] = []
    if suite.calls:
        calls, wanted = zip(*suite.calls)
        jobs.append((Job(code, calls=calls, limits=limits), wanted))
    if suite.steps:
        steps = tuple(step for step, _ in suite.steps)
        jobs.append((Job(code, steps=steps, limits=limits), [w for s, w in suite.steps if s.kind != "setup"]))
    return jobs + [(Job(code, stdin, limits=limits), _Printed([stdout])) for stdin, stdout in suite.scripts]


def same_output(got: str, wanted: str, tolerance: float = 0.0) -> bool:
    """Whether two outputs are the same lines; with a tolerance also where floats of `wanted` are near."""
    ours, theirs = _lines(got), _lines(wanted)
    if ours == theirs:
        return True
    if not tolerance or len(ours) != len(theirs):
        return False
    return all(_same_line(a.split(), b.split(), tolerance) for a, b in zip(ours, theirs))


def _same_line(got: Sequence[str], wanted: Sequence[str], tolerance: float) -> bool:
    return len(got) == len(wanted) and all(
        a == b or (_FLOAT.fullmatch(b) is not None and _NUMBER.fullmatch(a) is not None and _near(a, b, tolerance))
        for a, b in zip(got, wanted)
    )


def _near(a: str, b: str, tolerance: float) -> bool:
    return math.isclose(float(a), float(b), rel_tol=tolerance, abs_tol=tolerance)


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


# Reading the gold


def read_tests(gold: Any) -> Suite:
    """The tests of a gold; an empty suite where it has none. Raises BadTests."""
    if isinstance(gold, str):
        if gold.lstrip()[:1] in ("{", "["):
            try:
                return read_tests(json.loads(gold))
            except ValueError as error:
                if isinstance(error, BadTests):
                    raise
                raise BadTests(f"it looks like JSON and is none: {error}") from None
        return _program(gold)
    if gold is None:
        return Suite()
    if isinstance(gold, Mapping):
        return _table(gold)
    if not isinstance(gold, Sequence):
        raise BadTests(f"tests are a text, a table or a list, not {type(gold).__name__}")
    suites = [_program("\n".join(test for test in gold if isinstance(test, str)))]
    for number, test in enumerate(gold):
        if isinstance(test, Mapping):
            suites.append(_table(test))
        elif not isinstance(test, str):
            raise BadTests(f"test {number} is {type(test).__name__}, neither a text nor a table")
    return Suite(
        sum((s.calls for s in suites), ()), sum((s.scripts for s in suites), ()), sum((s.steps for s in suites), ())
    )


def _table(test: Mapping[str, Any]) -> Suite:
    if "inputs" in test and "outputs" in test:
        inputs, outputs = test["inputs"], test["outputs"]
        if not (isinstance(inputs, Sequence) and isinstance(outputs, Sequence) and len(inputs) == len(outputs)):
            raise BadTests("inputs and outputs are lists of one length")
        name = test.get("fn_name")
        if name is None:
            return Suite(scripts=tuple(_script(i, o) for i, o in zip(inputs, outputs)))
        return Suite(calls=tuple(_call(name, args, {}, value) for args, value in zip(inputs, outputs)))
    if "call" in test and "expected" in test:
        return Suite(calls=(_call(test["call"], test.get("args", ()), test.get("kwargs", {}), test["expected"]),))
    if "stdin" in test and "stdout" in test:
        return Suite(scripts=(_script(test["stdin"], test["stdout"]),))
    raise BadTests(
        f"a table with {sorted(test)} is no test; write call, args and expected, or stdin and stdout, or inputs and"
        " outputs"
    )


def _call(name: Any, args: Any, kwargs: Any, expected: Any) -> tuple[Call, str]:
    if not (isinstance(name, str) and isinstance(args, list | tuple) and isinstance(kwargs, Mapping)):
        raise BadTests("a call test has a function's name, a list of args and a table of kwargs")
    try:
        encode([list(args), dict(kwargs)])
        return Call(name, tuple(args), dict(kwargs)), encode(expected)
    except Foreign as error:
        raise BadTests(f"a test of {name} holds a {error}, which is no plain value") from None


def _script(stdin: Any, stdout: Any) -> tuple[bytes, str]:
    texts = [
        "\n".join(x) if isinstance(x, list | tuple) and all(isinstance(y, str) for y in x) else x
        for x in (stdin, stdout)
    ]
    if not all(isinstance(text, str) for text in texts):
        raise BadTests("stdin and stdout are texts, or lists of lines")
    return texts[0].encode(), texts[1]


def _program(source: str) -> Suite:
    """A test program as calls, if it is nothing else, or as steps."""
    try:
        body = ast.parse(source).body
        return _suite(body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise BadTests(f"the test program is no Python: {error}") from None


def _suite(body: Sequence[ast.stmt]) -> Suite:
    compared = [_comparison(node) for node in body]
    calls = [(_direct_call(found[0]), found[1]) for found in compared if found is not None]
    if len(calls) == len(body) and all(call is not None for call, _ in calls):
        return Suite(calls=tuple((call, text) for call, text in calls if call is not None))
    defined = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    called = {_called_name(node) for node in body}
    steps: list[tuple[Step, str | None]] = []
    for node, found in zip(body, compared):
        if found is not None:
            steps.append((Step("value", ast.unparse(found[0])), found[1]))
        else:
            asserts = not isinstance(node, _DEFINITIONS) and any(isinstance(x, ast.Assert) for x in ast.walk(node))
            tests = asserts or _called_name(node) in defined
            steps.append((Step("check" if tests else "setup", ast.unparse(node)), None))
    steps += [(Step("check", code), None) for code in _found_tests(body, called)]
    if steps and all(step.kind == "setup" for step, _ in steps):
        raise BadTests("the test program asserts nothing")
    return Suite(steps=tuple(steps))


def _comparison(node: ast.stmt) -> tuple[ast.expr, str] | None:
    """(expression, canonical text of the literal) of `assert expression == literal`, either way round, or `is`."""
    if not (isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare) and len(node.test.ops) == 1):
        return None
    left, right = node.test.left, node.test.comparators[0]
    if isinstance(node.test.ops[0], ast.Is):
        if isinstance(right, ast.Constant) and (right.value is None or isinstance(right.value, bool)):
            return left, encode(right.value)
        return None
    if not isinstance(node.test.ops[0], ast.Eq):
        return None
    for expression, literal in ((left, right), (right, left)):
        try:
            return expression, encode(ast.literal_eval(literal))
        except (ValueError, TypeError, Foreign, RecursionError, MemoryError):
            continue
    return None


def _direct_call(node: ast.expr) -> Call | None:
    """The call, if it is one of a plain name, or of a method of a fresh object, with literals."""
    if not isinstance(node, ast.Call):
        return None
    function = node.func
    if isinstance(function, ast.Name):
        name = function.id
    elif (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Call)
        and isinstance(function.value.func, ast.Name)
        and not (function.value.args or function.value.keywords)
    ):
        name = f"{function.value.func.id}.{function.attr}"
    else:
        return None
    try:
        args = tuple(ast.literal_eval(arg) for arg in node.args)
        kwargs = {k.arg: ast.literal_eval(k.value) for k in node.keywords if k.arg is not None}
        encode([list(args), kwargs])
    except (ValueError, TypeError, Foreign, RecursionError, MemoryError):
        return None
    return Call(name, args, kwargs) if len(kwargs) == len(node.keywords) else None


def _called_name(node: ast.stmt) -> str | None:
    """f of a statement that is `f(...)`."""
    call = node.value if isinstance(node, ast.Expr) else None
    return call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else None


def _found_tests(body: Sequence[ast.stmt], called: set[str | None]) -> list[str]:
    """Calls of the functions that pytest would find and of the methods that unittest would."""
    found = []
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test") and node.name not in called:
            if len(node.args.args) > len(node.args.defaults):
                raise BadTests(f"{node.name} has parameters; fixtures are not supported")
            found.append(f"{node.name}()")
        elif isinstance(node, ast.ClassDef) and any("TestCase" in ast.unparse(base) for base in node.bases):
            methods = [n.name for n in node.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test")]
            found += [f"{node.name}({name!r}).debug()" for name in methods]
    return found

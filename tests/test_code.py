"""The `code` verifier: public cases, harness attacks, what counts as equal, and how gold and answers are read."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlvr.records import Task, Verdict
from rlvr.sandbox import Job, Limits, LocalSandbox, Outcome, SandboxUnavailable, Step
from rlvr.sandbox.wire import Foreign, decode, encode, same
from rlvr.verify.blocks import last_block
from rlvr.verify.code import BadTests, Code, read_tests, same_output
from rlvr.verify.judge import judge
from rlvr.verify.spec import verifier_from
from rlvr.verify.verifier import VerifierBroken

CASES = {
    case["id"]: case
    for case in map(json.loads, (Path(__file__).parent / "cases/field_reports.jsonl").read_text("utf-8").splitlines())
}
F_OF_2 = "assert f(2)==4"


@pytest.fixture(scope="module")
def box() -> Iterator[LocalSandbox]:
    with LocalSandbox(workers=2) as box:
        yield box


def task(tests: Any) -> Task:
    return Task("t1", "Write f.", tests)


def verdict(box: LocalSandbox, code: str, tests: Any, **settings: Any) -> Verdict:
    return Code(sandbox=box, **{"fenced": False, "seconds": 5.0, **settings})(code, task(tests))


def outcome(box: LocalSandbox, code: str, tests: Any, **settings: Any) -> tuple[str, str]:
    found = verdict(box, code, tests, **settings)
    return found.label, found.reason


# Cases from the field


@pytest.mark.parametrize(
    ("id", "reason"),
    [("C01", "failed"), ("C02", "failed"), ("C03", "failed"), ("C09", "passed"), ("C21", "failed"), ("C18", "failed")],
)
def test_case_from_the_field(box: LocalSandbox, id: str, reason: str) -> None:
    case = CASES[id]
    passes = case["expected"].get("passed", False)
    assert case["input"]["tests"] == F_OF_2
    assert outcome(box, case["input"]["code"], F_OF_2) == ("right" if passes else "wrong", reason)


def test_an_exception_is_not_the_empty_string(box: LocalSandbox) -> None:
    code = CASES["C04"]["input"]["code"]
    assert outcome(box, code, {"call": "f", "args": ["1"], "expected": ""}) == ("wrong", "failed")
    assert outcome(box, code + "\nf('1')", {"stdin": "1", "stdout": ""}) == ("wrong", "exception")
    assert outcome(box, "def f(x): return ''", {"call": "f", "args": ["1"], "expected": ""}) == ("right", "passed")


@pytest.mark.parametrize("wait", ["f(2)", "sorted([f(2)])"])
def test_an_alarm_that_is_switched_off_is_not_what_ends_a_run(box: LocalSandbox, wait: str) -> None:
    code = CASES["C11"]["input"]["code"]
    assert outcome(box, code, f"assert {wait} == 4", seconds=0.5) == ("wrong", "timeout")


def test_processes_that_hide_from_signals_end_with_the_run(box: LocalSandbox) -> None:
    """C10. By itself a submission cannot fork, so it fails at once; where a job allows it, the whole tree goes."""
    code = CASES["C10"]["input"]["code"]
    assert outcome(box, code, F_OF_2) == ("wrong", "exception")
    if "namespaces" not in box.report().active:
        pytest.skip("no namespaces here, so no job may fork")
    children = Path("/proc/self/task") / str(os.getpid()) / "children"
    before = children.read_text() if children.exists() else ""
    found = box.run(Job(code, limits=Limits(seconds=0.5, processes=4)))
    assert found.status == CASES["C10"]["expected"]["status"]
    assert nested_descendants() == []
    assert not children.exists() or children.read_text() == before


def nested_descendants() -> list[str]:
    """Our own processes in a pid namespace below the zygote's; other tests may have theirs."""
    parents, nested = {}, []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        parents[pid] = text.split("PPid:")[1].split()[0]
        if "NSpid" in text and len(text.split("NSpid:")[1].split("\n")[0].split()) > 2:
            nested.append(pid)

    def ours(pid: str) -> bool:
        while pid in parents:
            if pid == str(os.getpid()):
                return True
            pid = parents[pid]
        return False

    return [pid for pid in nested if ours(pid)]


def test_standard_streams_are_bytes(box: LocalSandbox) -> None:
    code = CASES["C12"]["input"]["code"]
    assert outcome(box, code, {"stdin": "7", "stdout": "49"}) == ("right", "passed")


def test_integer_output_compares_exactly_whatever_the_tolerance(box: LocalSandbox) -> None:
    code = CASES["C14"]["input"]["code"]
    for tolerance in (0.0, 1e-6, 0.5):
        assert outcome(box, code, {"stdin": "", "stdout": "1000000"}, tolerance=tolerance) == ("wrong", "failed")


@pytest.mark.parametrize("nothing", [[], "", "[]", None, {"inputs": [], "outputs": []}, "# soon"])
def test_no_tests_are_no_verdict(box: LocalSandbox, nothing: Any) -> None:
    assert outcome(box, CASES["C16"]["input"]["code"], nothing) == ("unknown", "no_tests")


@pytest.mark.parametrize("content", ["1.0", "nan", "inf", "1.5"])
def test_a_reward_file_pays_nothing(box: LocalSandbox, content: str) -> None:
    found = verdict(box, CASES["C18"]["input"]["code"].replace("1.0", content), F_OF_2)
    assert (found.label, found.score) == ("wrong", 0.0)


def test_settings_of_a_test_framework_change_nothing(box: LocalSandbox) -> None:
    tests = "import unittest\nfrom solution import f\n\ndef test_f():\n    assert f(2) == 4\n"
    assert outcome(box, CASES["C19"]["input"]["code"], tests) == ("wrong", "failed")
    assert outcome(box, CASES["C19"]["input"]["code"].replace("return 0", "return x*x"), tests)[0] == "right"


@pytest.mark.parametrize(
    "way",
    [
        "{code}",
        "import os\nos.system('python3 -c \"{oneline}\"')",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', {code!r}])",
        "import ctypes, struct\nl = ctypes.CDLL(None)\ns = l.socket(2, 1, 0)\n"
        "l.connect(s, struct.pack('=HHI8x', 2, ((PORT & 255) << 8) | PORT >> 8, 0x0100007F), 16)",
    ],
)
def test_no_connection_reaches_a_listener_of_the_host(box: LocalSandbox, way: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        code = CASES["C22"]["input"]["code"]
        code = way.replace("{code!r}", repr(code)).replace("{oneline}", code.replace("\n", ";")).replace("{code}", code)
        code = code.replace("PORT", str(server.getsockname()[1]))
        assert verdict(box, code + "\ndef f(x): return 0", F_OF_2).label == "wrong"
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.case("C24")
def test_a_verifier_killed_before_its_verdict_gives_none_and_no_older_one() -> None:
    """The same submission was right a moment ago; results live in memory of one attempt, so none is stale."""
    with LocalSandbox(workers=1) as box:
        code = "import time\ndef f(x):\n    time.sleep(x)\n    return 4"
        assert outcome(box, code, "assert f(0)==4") == ("right", "passed")
        guard = box._slots.queue[0]._process.pid
        threading.Timer(0.3, lambda: os.killpg(guard, signal.SIGKILL)).start()
        found = verdict(box, code, "assert f(0)==4\nassert f(2)==4")
        assert (found.label, found.reason.partition(":")[0]) == ("unknown", "no_verdict")
        assert outcome(box, code, "assert f(0)==4") == ("right", "passed")


def test_a_repositorys_history_is_out_of_reach_because_there_is_none(box: LocalSandbox) -> None:
    """C25 is about tasks that hand out a repository, which is an environment's work, not this verifier's: it gives a
    submission an empty folder. What holds here: no git, and no file of the project that could be read.
    """
    code = (
        "import os, subprocess\n"
        f"for path in ('.git', {str(Path(__file__).resolve().parents[1] / '.git')!r}):\n"
        "    try:\n        os.listdir(path)\n    except OSError:\n        continue\n    raise SystemExit('read it')\n"
        "try:\n    subprocess.run(['git', 'log', '--all'])\nexcept OSError:\n    print('no history')"
    )
    assert outcome(box, code, {"stdin": "", "stdout": "no history"}) == ("right", "passed")


# Attacks on the harness beside those of the battery (test_batteries)


def test_a_shadowed_builtin_does_not_change_a_test_program(box: LocalSandbox) -> None:
    code = "def abs(x): return 0\ndef isinstance(*a): return True\ndef sorted(x): return [1, 2]\ndef f(x): return 9"
    assert outcome(box, code, "assert abs(f(2) - 4) < 1e-9")[0] == "wrong"
    assert outcome(box, code, "assert sorted(f([2, 1])) == [1, 2]")[0] == "wrong"
    math = "class math:\n    isclose = lambda *a: True\ndef f(x): return 9"
    assert outcome(box, math, "import math\nassert math.isclose(f(2), 4)")[0] == "wrong"


@pytest.mark.parametrize(
    "code",
    ["def f(x): raise ImportError('x')", "def f(x): raise EOFError", "raise ImportError('x')", "import numpy\n"]
    + ["def f(x):\n    a = 4\n    for _ in range(99): a = [a]\n    return a", "def f(x): return {object(): 1}"],
)  # fmt: skip
def test_a_submission_cannot_make_itself_unknown(box: LocalSandbox, code: str) -> None:
    for tests in (F_OF_2, "x = f(2)\nassert x > 3", "assert g([f(2)]) > 3", {"stdin": "", "stdout": "4"}):
        assert verdict(box, code, tests).label == "wrong", tests


# What is equal


@pytest.mark.parametrize(
    ("returned", "expected", "equal"),
    [
        ("4", 4, True), ("True", 1, False), ("1", True, False), ("2.0", 2, False), ("2", 2.0, False),
        ("[True]", [1], False), ("(1, 2)", [1, 2], False), ("[1, 2]", (1, 2), False), ("{1: 2}", {1: 2}, True),
        ("{1: True}", {1: 1}, False), ("{True: 1}", {1: 1}, False), ("{3, 1, 2}", {1, 2, 3}, True),
        ("frozenset({1})", {1}, False), ("{'b': 1, 'a': [2]}", {"a": [2], "b": 1}, True), ("None", None, True),
        ("b'a'", b"a", True), ("b'a'", "a", False), ("1j", 1j, True), ("float('nan')", float("nan"), True),
        ("-0.0", 0.0, True), ("10**30", 10**30, True), ("10**30 + 1", 10**30, False), ("'é\\ud800'", "é\ud800", True),
        ("__import__('collections').Counter('aab')", {"a": 2, "b": 1}, True), ("0.1 + 0.2", 0.3, False),
        ("iter([1])", [1], False), ("range(3)", [0, 1, 2], False), ("print", None, False),
    ],
)  # fmt: skip
def test_values_are_equal_by_type(box: LocalSandbox, returned: str, expected: object, equal: bool) -> None:
    code = f"def f(): return {returned}"
    assert verdict(box, code, {"call": "f", "expected": expected}).label == ("right" if equal else "wrong")


@pytest.mark.parametrize(
    ("returned", "expected", "settings", "equal"),
    [
        ("2.0", 2, {"ints_as_floats": True}, True), ("True", 1, {"ints_as_floats": True}, False),
        ("[2.0, 3]", [2, 3.0], {"ints_as_floats": True}, True), ("2.5", 2, {"ints_as_floats": True}, False),
        ("2**53 + 1", 2**53, {"ints_as_floats": True, "tolerance": 0.1}, False),
        ("(1, (2,))", [1, [2]], {"tuples_as_lists": True}, True), ("{(1,)}", {(1,)}, {"tuples_as_lists": True}, True),
        ("'12'", ["1", "2"], {"tuples_as_lists": True}, False),
        ("0.1 + 0.2", 0.3, {"tolerance": 1e-9}, True), ("0.309", 0.3, {"tolerance": 1e-2}, True),
        ("0.32", 0.3, {"tolerance": 1e-2}, False), ("101", 100, {"tolerance": 0.5}, False),
        ("{'a': [0.1 + 0.2]}", {"a": [0.3]}, {"tolerance": 1e-9}, True),
        ("float('inf')", 1e308, {"tolerance": 0.5}, False),
        ("float('nan')", 1.0, {"tolerance": 0.5}, False), ("'0.3'", 0.3, {"tolerance": 0.5}, False),
    ],
)  # fmt: skip
def test_looser_comparison_is_asked_for(
    box: LocalSandbox, returned: str, expected: object, settings: dict[str, Any], equal: bool
) -> None:
    code = f"def f(): return {returned}"
    assert verdict(box, code, {"call": "f", "expected": expected}, **settings).label == ("right" if equal else "wrong")


def test_every_plain_value_survives_the_wire() -> None:
    values = [None, True, 0, -1, 2**63, -(2**99), 1.5, float("inf"), "a\n\u2028\ud800", b"\x00", bytearray(b"a"), 2j]
    values += [[], (), {}, set(), frozenset([1]), {(1, "a"): [{2.5}]}, [[[1]]], {"h": 1}, {"f": "1"}, [{"t": []}]]
    for value in values:
        back = decode(encode(value))
        assert (back, type(back)) == (value, type(value))
        assert same(encode(back), encode(value))
    for foreign in (object(), range(2), [print], {1: object()}, type("int", (int,), {})(3)):
        with pytest.raises(Foreign):
            encode(foreign)


@pytest.mark.parametrize(
    "hostile", ["[" * 100_000, '{"f": 1}', '{"f": "x"}', "1" * 10_000, '{"i": "zz"}', "nonsense", ""]
)
def test_no_text_breaks_the_comparison(hostile: str) -> None:
    for wanted in (encode(1.0), encode([1]), encode(2**70)):
        assert not same(hostile, wanted, 0.5, True, True)


@pytest.mark.parametrize(
    ("got", "wanted", "tolerance", "equal"),
    [
        ("49\n", "49", 0.0, True), ("49", "49\n\n", 0.0, True), ("4 \r\n9\n", "4\n9", 0.0, True),
        ("\n49", "49", 0.0, False),
        ("4  9", "4 9", 0.0, False), ("YES", "yes", 0.0, False), ("", "", 0.0, True),
        ("0.30000000000000004", "0.3", 0.0, False),
        ("0.30000000000000004", "0.3", 1e-6, True), ("3", "3.0", 1e-6, True), ("3.0", "3", 1e-6, False),
        ("1e3", "1000.0", 1e-6, True), ("x 1.0", "x 1.0000001", 1e-6, True), ("y 1.0", "x 1.0", 1e-6, False),
        ("1.0 2", "1.0", 1e-6, False), ("nan", "1.0", 0.5, False), ("inf", "1e308", 0.5, False),
        ("1_0.0", "10.0", 0.1, False),
        ("٣.0", "3.0", 1e-6, True), ("0x1p1", "2.0", 0.5, False),
    ],
)  # fmt: skip
def test_printed_output(got: str, wanted: str, tolerance: float, equal: bool) -> None:
    assert same_output(got, wanted, tolerance) is equal


# Test programs


def test_a_program_of_comparisons_with_literals_is_calls() -> None:
    suite = read_tests("assert f(2) == 4\nassert [1] == f(x=(1,))\nassert Solution().g('a') is None, 'message'")
    assert [(c.function, c.args, dict(c.kwargs), wanted) for c, wanted in suite.calls] == [
        ("f", (2,), {}, "4"), ("f", (), {"x": (1,)}, "[1]"), ("Solution.g", ("a",), {}, "null"),
    ]  # fmt: skip
    assert (len(suite), suite.steps, suite.scripts) == (3, (), ())


def test_other_programs_are_steps_of_their_statements() -> None:
    suite = read_tests(
        "import math\ndef check(g):\n    assert g(2) == 4\ncheck(f)\nassert sorted(f(3)) == [1]\nx = f(1)\nassert x"
    )
    assert suite.steps == (
        (Step("setup", "import math"), None),
        (Step("setup", "def check(g):\n    assert g(2) == 4"), None),
        (Step("check", "check(f)"), None),
        (Step("value", "sorted(f(3))"), "[1]"),
        (Step("setup", "x = f(1)"), None),
        (Step("check", "assert x"), None),
    )
    assert len(suite) == 3


HUMAN_EVAL = """
METADATA = {'author': 'somebody'}

def check(candidate):
    import math
    for i in range(5):
        assert candidate(i) == i * i, i
    assert math.isclose(candidate(1.5), 2.25)
    try:
        candidate('a')
    except TypeError:
        pass
    else:
        assert False

check(f)
"""


@pytest.mark.parametrize(
    ("tests", "code", "label"),
    [
        (HUMAN_EVAL, "def f(x): return x * x", "right"),
        (HUMAN_EVAL, "def f(x): return x * x if x != 4 else 0", "wrong"),
        ("a = [3, 1]\nf(a)\nassert a == [1, 3]", "def f(a): a.sort()", "right"),
        ("a = [3, 1]\nf(a)\nassert a == [1, 3]", "def f(a): return sorted(a)", "wrong"),
        ("d = {}\nf(d)\nassert d['x'] == {1}", "def f(d): d['x'] = {1}", "right"),
        ("s = Stack()\ns.push(1)\nassert len(s) == 1\nassert 1 in s\nassert list(s) == [1] and str(s) == '[1]'",
         "class Stack(list):\n    push = list.append", "right"),
        ("assert [g.name for g in make(2)] == ['g0', 'g1']",
         "class G:\n    def __init__(s, i): s.name = f'g{i}'\ndef make(n): return [G(i) for i in range(n)]", "right"),
        ("assert join(A(1)) == 1", "class A:\n    def __init__(s, x): s.x = x\ndef join(a): return a.x", "right"),
        ("assert f(2) == 4 and f.__name__", "def f(x): return 4", "wrong"),
        ("import unittest\nclass T(unittest.TestCase):\n    def setUp(self): self.x = 2\n    def test_a(self):\n"
         "        self.assertEqual(f(self.x), 4)\nif __name__ == '__main__':\n    unittest.main()",
         "def f(x): return x * x", "right"),
        ("import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(f(2), 4)\n"
         "    def test_b(self): self.assertEqual(f(3), 9)", "def f(x): return 4", "wrong"),
        ("from solution import missing\nassert missing(1) > 3", "def f(x): return 4", "wrong"),
        ("assert missing(1) > 3", "def f(x): return 4", "wrong"),
        ("assert f(0.5) == math.pi / 2", "import math\ndef f(x): return x * math.pi", "right"),
        ("for i in range(3):\n    assert f(i) == i\nassert f(9) == 9", "def f(x): return x", "right"),
    ],
)  # fmt: skip
def test_test_programs_of_every_kind(box: LocalSandbox, tests: str, code: str, label: str) -> None:
    found = verdict(box, code, tests)
    assert found.label == label, found


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ("assert f(2) ==", "the test program is no Python"), ("x = 1", "asserts nothing"), ("f(2)", "asserts nothing"),
        ("import numpy\nassert f(2) > 3", "No module named 'numpy'"), ("{'a': 1", "looks like JSON"),
        ("def test_x(tmp_path):\n    assert f(2)", "fixtures are not supported"),
        ("assert f(lambda x: x) == 4", "passes function"), (7, "not int"), ([7], "test 0 is int"),
        ({"a": 1}, "no test"),
        ({"call": "f", "args": 2, "expected": 4}, "list of args"), ({"stdin": 1, "stdout": "1"}, "are texts"),
        ({"call": "f", "args": [object()], "expected": 4}, "no plain value"),
        ({"inputs": [1], "outputs": []}, "one length"),
    ],
)  # fmt: skip
def test_a_fault_of_the_gold_is_unknown(box: LocalSandbox, tests: Any, reason: str) -> None:
    found = verdict(box, "def f(x): return 4", tests)
    assert found.label == "unknown"
    assert found.reason.startswith("bad_gold: ")
    assert reason in found.reason


@pytest.mark.parametrize(
    ("tests", "n"),
    [
        (["assert f(1) == 1", "assert f(2) == 4"], 2),
        ([{"call": "f", "args": [1], "expected": 1}, "assert f(2) == 4"], 2),
        ('{"inputs": [[2], [3]], "outputs": [4, 9], "fn_name": "f"}', 2),
        ({"inputs": [["3", "1"]], "outputs": ["9"]}, 1),
        ('[{"stdin": "3", "stdout": "9"}, {"stdin": "1", "stdout": "1"}]', 2),
    ],
)  # fmt: skip
def test_every_form_of_gold_is_read(box: LocalSandbox, tests: Any, n: int) -> None:
    code = "def f(x): return x * x\nif __name__ == '__main__': print(f(int(input())))"
    found = verdict(box, code, tests)
    assert (found.label, found.parts) == ("right", {"passed": 1.0, "tests": float(n)})


def test_an_unreadable_gold_is_an_error_of_its_own() -> None:
    with pytest.raises(BadTests, match="write call, args and expected"):
        read_tests({"input": 1})


# Score, limits, extraction


def test_all_or_nothing_unless_partial(box: LocalSandbox) -> None:
    tests = ["assert f(2) == 4", "assert f(3) == 9", "assert f(1) == 1", "assert f(0) == 0"]
    whole, part = (verdict(box, "def f(x): return 4 if x == 2 else x", tests, partial=p) for p in (False, True))
    assert (whole.label, whole.score, part.label, part.score) == ("wrong", 0.0, "wrong", 0.75)
    assert whole.parts == part.parts == {"passed": 0.75, "tests": 4.0}


def test_one_call_that_fails_or_exits_spares_the_others(box: LocalSandbox) -> None:
    code = "import sys\ndef f(x):\n    if x == 2: sys.exit()\n    if x == 3: raise KeyError(x)\n    return x"
    found = verdict(box, code, ["assert f(2) == 2", "assert f(3) == 3", "assert f(4) == 4"])
    assert found.parts["passed"] == pytest.approx(1 / 3)


def test_after_a_script_that_timed_out_the_rest_is_not_run(box: LocalSandbox) -> None:
    began = time.monotonic()
    tests = [{"stdin": n, "stdout": n} for n in ("1", "2", "3", "4")]
    found = verdict(box, "n = input()\nwhile n == '2': pass\nprint(n)", tests, seconds=0.4)
    assert (found.reason, found.parts["passed"]) == ("timeout", 0.25)
    assert time.monotonic() - began < 3


def test_a_script_that_prints_the_answer_and_then_fails_is_wrong(box: LocalSandbox) -> None:
    assert outcome(box, "print(4)\nraise ValueError", {"stdin": "", "stdout": "4"}) == ("wrong", "exception")
    assert outcome(box, "print(4)\nexit(3)", {"stdin": "", "stdout": "4"}) == ("wrong", "failed")
    assert outcome(box, "print(4)\nexit()", {"stdin": "", "stdout": "4"}) == ("right", "passed")


def test_too_much_memory_and_output_are_the_submissions(box: LocalSandbox) -> None:
    assert outcome(box, "def f(x): return len(bytearray(1 << 29))", F_OF_2, memory_mb=128) == ("wrong", "failed")
    assert outcome(box, "while True: print('y' * 10**6)", F_OF_2) == ("wrong", "over_limit")
    assert outcome(box, "import ctypes\nctypes.string_at(0)", F_OF_2) == ("wrong", "crash")
    assert outcome(box, "x = 1\n" * 20_000, F_OF_2) == ("wrong", "over_limit")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\na\n```\nor\n```python\nb\n```", "b\n"), ("```py\na\n```\n```\nb\n```", "a\n"),
        ("```\na\n```", "a\n"),
        ("```json\n{}\n```", None), ("no block", None), ("```python\nnot closed", "not closed"), ("", None),
        ("~~~python\na\n~~~", "a\n"), ("````python\n```\na\n````", "```\na\n"),
        ("1. so\n   ```python\n   a\n     b\n   ```", "a\n  b\n"),
        ("```python title=x\na\n```", "a\n"), ("```Python3\na\n```", "a\n"), ("`python` ```python x``` no", None),
        ("```python\na\n```\n```bash\nls\n```", "a\n"), ("```python\r\na\r\n```", "a\r\n"),
        ("```python\na = '''\n```text\n'''\n```", "a = '''\n```text\n'''\n"),
    ],
)  # fmt: skip
def test_the_last_python_block_is_the_answer(text: str, code: str | None) -> None:
    assert last_block(text, ("python", "py", "python3")) == code


def test_finding_a_block_is_linear() -> None:
    for text in (
        "```python\n" * 100_000,
        "`" * 2_000_000,
        "~~~\n```\n" * 100_000,
        " " * 2_000_000,
        "```" + "a" * 2_000_000,
    ):
        began = time.process_time()
        last_block(text, ("python",))
        assert time.process_time() - began < 2


def test_a_text_without_code_is_no_answer_and_a_fence_is_looked_into(box: LocalSandbox) -> None:
    judged = Code(sandbox=box)
    assert judged("I cannot.", task(F_OF_2)).reason == "no_answer"
    assert judged("Like so:\n```python\ndef f(x):\n    return x*x\n```\nDone.", task(F_OF_2)).label == "right"


# Batches, specs, machines


def test_a_batch_is_judged_side_by_side_in_order(box: LocalSandbox) -> None:
    judged = Code(sandbox=box, fenced=False)
    items = [(f"import time\ntime.sleep(0.3)\ndef f(x): return {4 if i % 2 else 5}", task(F_OF_2)) for i in range(4)]
    began = time.monotonic()
    found = judge(judged, items)
    assert [v.label for v in found] == ["wrong", "right", "wrong", "right"]
    assert all(v.seconds >= 0.3 and v.fingerprint == judged.fingerprint for v in found)
    assert time.monotonic() - began < 1.15  # one after the other they sleep for 1.2 s


def test_a_spec_names_its_settings_and_the_fingerprint_what_judges() -> None:
    made = verifier_from("code(seconds=2.0, partial=True)")
    assert made == Code(seconds=2.0, partial=True)
    assert made.fingerprint == verifier_from(made.fingerprint).fingerprint
    with pytest.raises(ValueError, match="seconds and memory_mb are above 0"):
        Code(seconds=0)


def test_a_machine_that_contains_nothing_stops_the_run() -> None:
    class Nowhere:
        def run(self, job: Job) -> Outcome:
            raise SandboxUnavailable("nothing here contains hostile code")

    with pytest.raises(VerifierBroken, match="nothing here contains"):
        judge(Code(sandbox=Nowhere(), fenced=False), [("def f(x): return 4", task(F_OF_2))])


def test_another_back_end_is_asked_the_same(box: LocalSandbox) -> None:
    asked: list[Job] = []

    class Remote:
        def run(self, job: Job) -> Outcome:
            asked.append(job)
            return box.run(job)

    assert Code(sandbox=Remote(), fenced=False)("def f(x): return 4", task(F_OF_2)).label == "right"
    assert [job.calls[0].function for job in asked] == ["f"]
    assert "4" not in repr(asked[0].calls)  # what is expected is not in the job


def test_a_sandbox_that_never_answers_in_time_stops_the_run() -> None:
    class Gone:
        answers = False

        def run(self, job: Job) -> Outcome:
            if self.answers:
                return Outcome("failed", detail="at once")
            time.sleep(0.6)
            return Outcome("failed", detail="timed out")

    gone = Gone()
    verifier = Code(sandbox=gone, fenced=False, seconds=0.5, most_timeouts=3)
    ask = ("def f(x): return 4", task(F_OF_2))
    assert [v.reason for v in judge(verifier, [ask] * 2)] == ["no_verdict: timed out"] * 2
    gone.answers = True  # a failure at once costs no time, and is another matter
    assert [v.reason for v in judge(verifier, [ask] * 5)] == ["no_verdict: at once"] * 5
    gone.answers = False
    # two are asked at a time, and the second of a pair may count before the first
    with pytest.raises(VerifierBroken, match=r"code: its sandbox gave no verdict within 0\.5 s, [34] times on end"):
        judge(verifier, [ask] * 9)

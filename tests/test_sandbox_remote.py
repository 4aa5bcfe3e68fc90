"""A sandbox behind a command: here the command is a second Python, elsewhere ssh or a container."""

from __future__ import annotations

import os
import shlex
import sys
import textwrap
from pathlib import Path

import pytest
from batteries import F_OF_2, HONEST

from rlvr.audit.programs.cheats import CHEATS
from rlvr.records import Task
from rlvr.sandbox import Call, Job, Limits, Outcome, Result, SandboxUnavailable, Step
from rlvr.sandbox.remote import Remote, answer_of, job_of, line_of, outcome_of
from rlvr.verify.code import Code
from rlvr.verify.spec import verifier_from
from rlvr.verify.verifier import VerifierBroken, make_ready

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is Linux's")
COMMAND = [sys.executable, "-m", "rlvr.sandbox.remote"]


@pytest.fixture(scope="module")
def box() -> Remote:
    return Remote(COMMAND, workers=1)


def test_jobs_and_outcomes_survive_the_way() -> None:
    calls = (Call("f", (1, (2.5, {3: b"x"})), {"a": None}),)
    job = Job("print(1)\n", b"\x00\xff", calls, (Step("value", "f(2)"),), Limits(seconds=3, processes=2))
    assert job_of(line_of(job)) == job
    outcome = Outcome("finished", 3, (Result("value", "1"), Result("failed", "é")), b"\xff\n", b"e", 0.5, "why")
    assert outcome_of(answer_of(outcome)) == outcome


def test_it_runs_what_the_local_one_runs(box: Remote) -> None:
    assert box.run(Job("def f(x): return x * x", calls=(Call("f", (7,)), Call("g")))).results[0] == Result(
        "value", "49"
    )
    assert box.run(Job("import sys\nsys.stdout.buffer.write(b'\\xff\\n' * 3)")).stdout == b"\xff\n" * 3
    assert box.run(Job("while True: pass", limits=Limits(seconds=0.3))).status == "timeout"
    assert box.run(Job("print('y' * 3_000_000)")).stdout == b"y" * 3_000_000 + b"\n"


@pytest.mark.parametrize("name", list(HONEST)[::6])
def test_honest_and_cheating_submissions_are_judged_alike(box: Remote, name: str) -> None:
    code, tests = HONEST[name]
    verifier = Code(sandbox=box, fenced=False, seconds=2.0)
    assert verifier(code, Task("t", "p", tests)).label == "right"
    for cheat in list(CHEATS.values())[::8]:
        assert verifier(cheat, Task("t", "p", F_OF_2)).label == "wrong"


@pytest.mark.parametrize(
    ("other_end", "says"),
    [
        ("input(); raise SystemExit(3)", "it ended"),
        ("input(); print('nonsense')", "JSONDecodeError"),
        ("input(); print('{}')", "KeyError"),
        ("input(); print('[]')", "TypeError"),
    ],
)
def test_an_end_that_fails_gives_no_verdict(other_end: str, says: str) -> None:
    outcome = Remote([sys.executable, "-c", other_end]).run(Job("print(1)"))
    assert (outcome.status, says in outcome.detail) == ("failed", True), outcome
    found = Code(sandbox=Remote([sys.executable, "-c", other_end]), fenced=False)("f = abs", Task("t", "p", F_OF_2))
    assert (found.label, found.reason.partition(":")[0]) == ("unknown", "no_verdict")


def test_an_end_that_hangs_is_given_up_and_started_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlvr.sandbox.remote.GRACE_SECONDS", 0.0)
    once = tmp_path / "once"
    source = f"""
        import os, sys, time
        if not os.path.exists({str(once)!r}):
            open({str(once)!r}, "w").write(str(os.getpid()))
            time.sleep(600)
        os.execv(sys.executable, [sys.executable, "-m", "rlvr.sandbox.remote"])
    """
    box = Remote([sys.executable, "-c", textwrap.dedent(source)], workers=1)
    outcome = box.run(Job("print(1)", limits=Limits(seconds=1.0)))
    assert (outcome.status, "TimeoutError" in outcome.detail) == ("failed", True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(once.read_text()), 0)
    assert box.run(Job("print(2)", limits=Limits(seconds=20.0))).stdout == b"2\n"


def test_a_command_or_a_machine_that_is_not_there_is_said_before_a_run() -> None:
    with pytest.raises(VerifierBroken, match=r"code: no-such-command cannot be started"):
        make_ready(verifier_from("code(remote='no-such-command box')"))
    with pytest.raises(VerifierBroken, match="runs nothing"):
        make_ready(verifier_from("code(remote='true')"))
    refuses = 'import sys; sys.stdin.readline(); print(\'{"unavailable": "no walls here"}\')'
    with pytest.raises(SandboxUnavailable, match=r"at the other end of .*: no walls here"):
        Remote([sys.executable, "-c", refuses]).run(Job("print(1)"))
    make_ready(verifier_from(f"code(remote={shlex.join(COMMAND)!r}, workers=1)"))
    with pytest.raises(ValueError, match="remote is a command"):
        verifier_from("code(remote='')")

"""The sandbox: what a submission cannot do on each combination of walls, what it may, and that nothing is left over."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from batteries import REACH

from rlvr.sandbox import Call, Job, Limits, LocalSandbox, Outcome, Result, SandboxUnavailable, Step, report
from rlvr.sandbox.syscalls import MACHINES, numbers

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is Linux's")

QUICK = Limits(seconds=2.0)
WALLS = {"all": (), "no namespaces": ("namespaces",), "no landlock": ("landlock",)}


@pytest.fixture(scope="module", params=list(WALLS))
def sandbox(request: pytest.FixtureRequest) -> Iterator[LocalSandbox]:
    with LocalSandbox(workers=1, without=WALLS[request.param]) as box:
        found = box.report()
        if found.escapes:
            pytest.skip(f"not to be had on this machine: {found}")
        yield box


@pytest.fixture(scope="module")
def strongest() -> Iterator[LocalSandbox]:
    with LocalSandbox(workers=1) as box:
        yield box


def script(box: LocalSandbox, code: str, limits: Limits = QUICK, stdin: bytes = b"") -> Outcome:
    return box.run(Job(textwrap.dedent(code), stdin, limits=limits))


def processes() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def belonging(root: int) -> list[int]:
    """Processes below this one, zombies included."""
    parents = {}
    for pid in processes():
        with contextlib.suppress(OSError):
            parents[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    found, waiting = [], [root]
    while waiting:
        parent = waiting.pop()
        below = [pid for pid, its in parents.items() if its == parent]
        found += below
        waiting += below
    return found


def living(pids: set[int]) -> set[int]:
    """Those that still run; what is left of an orphan is the init process's to clear away."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.add(pid)
    return found


def eventually(true: Callable[[], bool], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return true()


# What a submission may do


def test_calls_give_values_and_exceptions_in_order(sandbox: LocalSandbox) -> None:
    calls = (Call("f", (7,)), Call("f", ("a",)), Call("f", (), {"x": (1, 2)}), Call("g"))
    outcome = sandbox.run(Job("def f(x):\n    return x * 2 if x != 'a' else 1 / 0", calls=calls))
    assert (outcome.status, outcome.exit_code) == ("finished", 0)
    assert outcome.results[:3] == (
        Result("value", "14"),
        Result("raised", "ZeroDivisionError: division by zero"),
        Result("value", '{"t":[1,2,1,2]}'),
    )
    assert outcome.results[3].kind == "raised"


def test_a_script_reads_and_writes_bytes(sandbox: LocalSandbox) -> None:
    code = "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])\nprint('!', file=sys.stderr)"
    outcome = script(sandbox, code, stdin=b"abc\xff")
    assert (outcome.stdout, outcome.stderr, outcome.exit_code) == (b"\xffcba", b"!\n", 0)


HONEST = {
    "threads": """
        import threading
        threading.stack_size(1 << 26)
        threading.Thread(target=lambda: print("ok")).start()
    """,
    "asyncio": """
        import asyncio
        async def main():
            await asyncio.sleep(0.001)
            print("ok")
        asyncio.run(main())
    """,
    "deep recursion": """
        import sys
        sys.setrecursionlimit(10**6)
        def depth(n): return n and 1 + depth(n - 1)
        print("ok" if depth(50_000) == 50_000 else "no")
    """,
    "a temporary file": """
        import os, tempfile
        with tempfile.NamedTemporaryFile("w+") as file:
            file.write("ok"); file.seek(0)
            text = file.read()
        open("mine.txt", "w").write(text); os.rename("mine.txt", "yours.txt")
        print(open("yours.txt").read())
        os.remove("yours.txt")
    """,
    "an exit function": "import atexit\natexit.register(lambda: print('ok'))",
    "a late import": "import sqlite3, csv, zlib, xml.dom, zoneinfo\nprint('ok')",
    "a big number": "import sys\nsys.set_int_max_str_digits(0)\nprint('ok' if len(str(7**9000)) == 7606 else 'no')",
    "a pool of threads": """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(4) as pool:
            print("ok" if sum(pool.map(abs, range(-100, 0))) == 5050 else "no")
    """,
    "an exit code of nothing": "import sys\nprint('ok')\nsys.exit()",
    "exit as people write it": "print('ok')\nexit()",
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_run(sandbox: LocalSandbox, name: str) -> None:
    outcome = script(sandbox, HONEST[name], Limits(seconds=10))
    assert (outcome.stdout, outcome.stderr, outcome.exit_code) == (b"ok\n", b"", 0)


def test_the_same_submission_meets_the_same_chance_and_order(sandbox: LocalSandbox) -> None:
    code = "import random\nprint(random.random(), hash('a'), list({'x', 'y', 'z'}))"
    with LocalSandbox(workers=1) as other:
        assert len({script(box, code).stdout for box in (sandbox, sandbox, other)}) == 1


def test_an_exit_code_is_kept_and_an_exception_is_one(sandbox: LocalSandbox) -> None:
    assert script(sandbox, "import sys\nsys.exit(3)").exit_code == 3
    assert script(sandbox, "import sys\nsys.exit('words')").exit_code == 1
    assert script(sandbox, "raise ValueError").exit_code == 1


def test_a_test_program_reaches_the_submission_by_messages(sandbox: LocalSandbox) -> None:
    steps = (
        Step("setup", "box = Box()"),
        Step("check", "box.put(3)"),
        Step("value", "box.things"),
        Step("value", "sorted(double(x) for x in [2, 1])"),
        Step("check", "assert double(2) == 5"),
        Step("value", "__import__('os').getpid()"),
    )
    code = """
        import os
        class Box:
            def __init__(self): self.things = []
            def put(self, x): self.things.append(x)
        def double(x): return 2 * x
    """
    outcome = sandbox.run(Job(textwrap.dedent(code), steps=steps))
    kinds = [r.kind for r in outcome.results]
    assert kinds == ["passed", "value", "value", "failed", "value"]
    assert [r.text for r in outcome.results[1:3]] == ["[3]", "[2,4]"]


def test_numpy_can_be_let_in_and_is_not_by_itself() -> None:
    import numpy

    code = "import numpy\nprint(numpy.arange(4).sum())"
    with LocalSandbox(workers=1) as box:
        assert b"ModuleNotFoundError" in script(box, code).stderr
    with LocalSandbox(workers=1, paths=[str(Path(numpy.__file__).parents[1])], warm=["numpy"]) as box:
        assert script(box, code).stdout == b"6\n"


# What it cannot do: REACH and the rest of the battery, for all users, are in test_batteries.


@pytest.fixture(scope="module")
def world() -> Iterator[dict[str, object]]:
    with (
        tempfile.TemporaryDirectory() as outside,
        socket.create_server(("127.0.0.1", 0)) as port,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        os.chmod(outside, 0o777)
        abstract.bind(f"\0rlvr-test-{os.getpid()}")
        abstract.listen()
        yield {
            "here": str(Path(__file__).resolve()),
            "packages": str(Path(pytest.__file__).parents[1]),
            "outside": outside,
            "port": port.getsockname()[1],
            "abstract": abstract.getsockname().decode(),
            "trainer": os.getpid(),
        }


@pytest.mark.parametrize("name", REACH)
def test_a_submission_cannot_reach(sandbox: LocalSandbox, world: dict[str, object], name: str) -> None:
    outcome = script(sandbox, REACH[name].format(**world))
    assert (outcome.stdout, outcome.exit_code) == (b"", 1), outcome
    assert os.listdir(str(world["outside"])) == []


RAW = {
    "execve": "C(NR, b'/bin/sh', 0, 0)",
    "socket": "C(NR, 2, 1, 0)",
    "connect": "C(NR, 0, b'x' * 16, 16)",
    "ptrace": "C(NR, 16, {trainer}, 0, 0)",
    "mount": "C(NR, b'x', b'/', b'tmpfs', 0, 0)",
    "unshare": "C(NR, 0x10000000)",
    "setns": "C(NR, 0, 0)",
    "memfd_create": "C(NR, b'x', 0)",
    "io_uring_setup": "C(NR, 4, b'x' * 200)",
    "bpf": "C(NR, 0, b'x' * 100, 100)",
    "keyctl": "C(NR, 0, -3, 0)",
    "shmget": "C(NR, 0, 4096, 0o1600)",
    "process_vm_readv": "C(NR, {trainer}, 0, 0, 0, 0, 0)",
    "pidfd_open": "C(NR, {trainer}, 0)",
    "perf_event_open": "C(NR, b'x' * 100, 0, -1, -1, 0)",
    "userfaultfd": "C(NR, 0)",
    "clone3": "C(NR, b'\\0' * 64, 64)",
    "tgkill": "C(NR, {trainer}, {trainer}, 9)",
    "chmod": "C(NR, {outside!r}.encode(), 0)",
    "truncate": "C(NR, {here!r}.encode(), 0)",
    "open_by_handle_at": "C(NR, -100, b'x' * 16, 0)",
    "setxattr": "C(NR, {outside!r}.encode(), b'user.x', b'y', 1, 0)",
    "seccomp": "C(NR, 1, 0, 0)",
    "add_key": "C(NR, b'user', b'x', b'y', 1, -3)",
}
# Linux's x86_64 numbers (asm/unistd_64.h)
X86 = {
    "execve": 59, "socket": 41, "connect": 42, "ptrace": 101, "mount": 165, "unshare": 272, "setns": 308,
    "memfd_create": 319, "io_uring_setup": 425, "bpf": 321, "keyctl": 250, "shmget": 29, "process_vm_readv": 310,
    "pidfd_open": 434, "perf_event_open": 298, "userfaultfd": 323, "clone3": 435, "tgkill": 234, "chmod": 90,
    "truncate": 76, "open_by_handle_at": 304, "setxattr": 188, "seccomp": 317, "add_key": 248,
}  # fmt: skip


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of another machine")
def test_no_forbidden_system_call_works_by_its_number(sandbox: LocalSandbox, world: dict[str, object]) -> None:
    lines = [
        "import ctypes",
        "libc = ctypes.CDLL(None, use_errno=True)",
        "def C(*a):",
        "    r = libc.syscall(*[ctypes.c_long(x) if isinstance(x, int) else x for x in a])",
        "    return r, ctypes.get_errno()",
    ]
    for name, call in RAW.items():
        lines.append(f"print({name!r}, *{call.replace('NR', str(X86[name])).format(**world)})")
    outcome = script(sandbox, "\n".join(lines))
    got = {name: (int(r), int(e)) for name, r, e in (line.split() for line in outcome.stdout.decode().splitlines())}
    assert got == {name: (-1, 38 if name == "clone3" else 1) for name in RAW}, outcome.stderr


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86's second and third tables")
@pytest.mark.parametrize("code", ["0x40000000 + 41, 2, 1, 0", "0x40000000 + 57"])
def test_the_x32_table_is_no_way_around(sandbox: LocalSandbox, code: str) -> None:
    outcome = script(sandbox, f"import ctypes\nprint(ctypes.CDLL(None).syscall({code}))")
    assert outcome.stdout == b"-1\n"


def test_the_tables_of_system_calls_agree_with_the_headers() -> None:
    header = Path("/usr/include/asm-generic/unistd.h")
    native = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if not (header.exists() and native.exists()):
        pytest.skip("no kernel headers here")
    for machine, path in (("x86_64", native), ("aarch64", header)):
        wanted: dict[str, int] = {}
        for line in path.read_text().splitlines():
            words = line.split()
            if len(words) >= 3 and words[0] == "#define" and words[1].startswith("__NR") and words[2].isdigit():
                name = words[1].removeprefix("__NR_").removeprefix("__NR3264_")
                wanted[{"fadvise64_64": "fadvise64", "fstatat": "newfstatat"}.get(name, name)] = int(words[2])
        ours = numbers(machine)
        assert {name: wanted[name] for name in ours} == ours
    assert set(MACHINES) == {"x86_64", "aarch64"}


# What it may use up


def test_time_is_the_wall_clocks_whatever_it_does_with_signals(sandbox: LocalSandbox) -> None:
    for code in (
        "while True: pass",
        "import time\ntime.sleep(600)",
        "import signal\nsignal.pthread_sigmask(0, range(1, 65))\nwhile True: pass",
        "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
        "9 ** 9 ** 9",
    ):
        outcome = script(sandbox, code, Limits(seconds=0.2))
        assert outcome.status == "timeout", (code, outcome)
        assert 0.2 <= outcome.seconds < 2


def test_results_that_came_before_the_end_of_time_count(sandbox: LocalSandbox) -> None:
    job = Job(
        "def f(x):\n    while x: pass\n    return x", calls=(Call("f", (0,)), Call("f", (1,))), limits=Limits(0.5)
    )
    outcome = sandbox.run(job)
    assert (outcome.status, outcome.results) == ("timeout", (Result("value", "0"),))


def test_memory_is_limited_all_together(sandbox: LocalSandbox) -> None:
    code = """
        import threading, time
        kept = []
        def eat():
            try:
                kept.append(bytearray(60 << 20))
            except MemoryError:
                pass
        for _ in range(8):
            thread = threading.Thread(target=eat); thread.start(); thread.join()
        print(len(kept))
    """
    outcome = script(sandbox, code, Limits(memory=256 << 20))
    assert 1 <= int(outcome.stdout) <= 3


def test_files_are_limited_all_together(sandbox: LocalSandbox) -> None:
    code = """
        import os, time
        for i in range(100):
            with open(f"f{i}", "wb") as file:
                file.write(bytes(1 << 20))
            time.sleep(0.005)
        print("all of it")
    """
    outcome = script(sandbox, code, Limits(seconds=5, folder=8 << 20))
    assert b"all of it" not in outcome.stdout
    assert outcome.status == "over_limit" or b"No space left" in outcome.stderr


def test_nothing_of_one_submission_is_left_for_the_next(sandbox: LocalSandbox) -> None:
    script(sandbox, "open('note', 'w').write('psst')\nimport builtins\nbuiltins.note = 1")
    outcome = script(sandbox, "import os, builtins\nprint(os.listdir('.'), hasattr(builtins, 'note'))")
    assert outcome.stdout == b"[] False\n"


def test_two_hundred_thousand_characters_of_output_are_legal_and_too_many_are_not(sandbox: LocalSandbox) -> None:
    assert len(script(sandbox, "print('y' * 200_000, end='')").stdout) == 200_000
    assert len(script(sandbox, "import sys\nsys.stderr.write('y' * 200_000)").stderr) == 200_000
    outcome = script(sandbox, "print('y' * 200_000)", Limits(output=100_000))
    assert (outcome.status, outcome.detail) == ("over_limit", "stdout")
    flood = script(sandbox, "while True: print('y' * 1000)")
    assert (flood.status, flood.detail) == ("over_limit", "stdout")


def test_a_crash_of_the_interpreter_is_the_submissions(sandbox: LocalSandbox) -> None:
    outcome = script(sandbox, "import ctypes\nctypes.string_at(0)")
    assert (outcome.status, outcome.detail) == ("killed", f"signal {int(signal.SIGSEGV)}")
    assert script(sandbox, "print('alive')").stdout == b"alive\n"


def test_threads_are_limited(sandbox: LocalSandbox) -> None:
    code = """
        import threading, time
        started = 0
        try:
            while started < 2000:
                threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
                started += 1
        except RuntimeError:
            print(started)
    """
    assert 1 <= int(script(sandbox, code, Limits(seconds=5)).stdout) < 200


# Forged messages


@pytest.mark.parametrize(
    "forged",
    [
        b"passed \n", b"value 4", b"\xff\xfe\n", b"value " + b"[" * 100_000 + b"\n", b"value 9" + b"9" * 10_000 + b"\n",
        b"import_failed x\n", b"", b"\n\n\n", b"value 4\nvalue 5\n", b"\n" * 100_000,
    ],
)  # fmt: skip
def test_whatever_is_written_where_results_go_is_only_a_result(strongest: LocalSandbox, forged: bytes) -> None:
    code = f"""
import os
for descriptor in range(3, 64):
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, {forged!r}, 0)
    except OSError:
        pass
os._exit(0)
"""
    outcome = strongest.run(Job(code, calls=(Call("f", (2,)),), limits=QUICK))
    assert outcome.status == "finished"
    assert strongest.run(Job("def f(x): return x", calls=(Call("f", (2,)),))).results == (Result("value", "2"),)


def test_a_test_program_cannot_be_answered_from_outside_the_conversation(strongest: LocalSandbox) -> None:
    """The submission answers every message by itself, with nonsense, and never serves."""
    code = """
import os, struct
for body in (b'{"ok": {"h": 0}}', b'{"ok": {"x": 1}}', b'{}', b'[]', b'nonsense', b'{"ok": true}'):
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, struct.pack(">I", len(body)) + body)
        except OSError:
            pass
"""
    steps = (Step("check", "assert f(2) == 4"), Step("check", "assert f(3) == 9"), Step("value", "f(2)"))
    outcome = strongest.run(Job(code, steps=steps, limits=QUICK))
    assert all(r.kind != "passed" for r in outcome.results)
    assert all(r.text != "4" for r in outcome.results)


# Trees of processes


def test_a_whole_tree_of_processes_ends_with_its_time(strongest: LocalSandbox) -> None:
    if "namespaces" not in strongest.report().active:
        pytest.skip("no namespaces here, so no tree")
    before = set(belonging(os.getpid()))
    tree = """
        import os, time, signal
        for _ in range(3):
            if os.fork() == 0:
                os.setsid(); signal.signal(15, signal.SIG_IGN); time.sleep(600)
        time.sleep(600)
    """
    outcome = script(strongest, tree, Limits(seconds=0.5, processes=4))
    assert outcome.status == "timeout"
    assert set(belonging(os.getpid())) == before
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    assert script(strongest, bomb, Limits(seconds=0.5, processes=4)).status == "timeout"
    assert set(belonging(os.getpid())) == before


def test_processes_share_the_memory(strongest: LocalSandbox) -> None:
    if "namespaces" not in strongest.report().active:
        pytest.skip("no namespaces here, so no tree")
    code = "try:\n    bytearray(300 << 20)\n    print('got it')\nexcept MemoryError:\n    print('no')"
    assert script(strongest, code, Limits(memory=1 << 30)).stdout == b"got it\n"
    assert script(strongest, code, Limits(memory=1 << 30, processes=4)).stdout == b"no\n"


def test_several_processes_are_refused_where_nothing_bounds_them() -> None:
    with (
        LocalSandbox(workers=1, without=["namespaces"]) as box,
        pytest.raises(SandboxUnavailable, match="set processes=1"),
    ):
        script(box, "print(1)", Limits(processes=2))


# What refuses, and what the report says


@pytest.mark.parametrize(
    ("without", "escape"),
    [
        (("namespaces", "landlock"), "read /etc/passwd"),
        (("namespaces", "seccomp"), "leave processes behind"),
        (("seccomp",), "start processes that share no limit"),
        (("namespaces", "landlock", "seccomp"), "reach TCP ports"),
    ],
)
def test_walls_that_do_not_contain_refuse_with_the_reason(without: tuple[str, ...], escape: str) -> None:
    with LocalSandbox(workers=1, without=without) as box:
        assert "NOT CONTAINED" in str(box.report())
        with pytest.raises(SandboxUnavailable, match=escape) as refused:
            script(box, "print(1)")
    assert f"{without[0]}: switched off" in str(refused.value)


def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with LocalSandbox(workers=1) as box, pytest.raises(SandboxUnavailable, match="needs Linux"):
        script(box, "print(1)")


def test_a_layer_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="layers are namespaces, landlock, seccomp"):
        LocalSandbox(without=["apparmor"])


def test_the_report_names_every_layer() -> None:
    text = str(report())
    assert [line.split()[0] for line in text.splitlines()[:3]] == ["namespaces", "landlock", "seccomp"]
    assert text.endswith("contained")


# The machine's faults


def test_a_zygote_that_dies_gives_no_verdict_and_the_next_job_runs() -> None:
    others = set(belonging(os.getpid()))
    with LocalSandbox(workers=1) as box:
        script(box, "print(1)")
        old = set(belonging(os.getpid())) - others

        def kill_it() -> None:
            time.sleep(0.3)
            for pid in old:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill_it)
        killer.start()
        outcome = script(box, "import time\nprint(1, flush=True)\ntime.sleep(600)", Limits(seconds=60))
        killer.join()
        assert (outcome.status, outcome.stdout) == ("failed", b"1\n")
        assert script(box, "print(2)").stdout == b"2\n"
        assert not old & set(belonging(os.getpid()))


def test_nothing_survives_a_trainer_that_is_killed() -> None:
    source = """
        import sys
        from rlvr.sandbox import Job, LocalSandbox
        box = LocalSandbox(workers=1, without=sys.argv[1:])
        print(box.run(Job("print(1)")).stdout, flush=True)
        box.run(Job("import time\\ntime.sleep(600)"))
    """
    command = [sys.executable, "-c", textwrap.dedent(source)]
    trainers = [subprocess.Popen([*command, *WALLS[w]], stdout=subprocess.PIPE) for w in ("all", "no namespaces")]
    for trainer in trainers:
        with trainer:
            assert trainer.stdout is not None
            assert trainer.stdout.readline() == b"b'1\\n'\n"
            assert eventually(lambda: len(belonging(trainer.pid)) >= 3)  # noqa: B023  guard, zygote, job
            below = set(belonging(trainer.pid))
            trainer.kill()
            trainer.wait()
            assert eventually(lambda: not living(below))  # noqa: B023


def test_a_fork_of_the_trainer_does_not_end_the_trainers_sandbox(strongest: LocalSandbox) -> None:
    script(strongest, "print(1)")
    pid = os.fork()
    if pid == 0:
        strongest.close()
        os._exit(0)
    os.waitpid(pid, 0)
    assert script(strongest, "print(2)").stdout == b"2\n"


# Soak


def test_hundreds_of_hostile_jobs_leave_nothing_behind() -> None:
    attacks = [
        "while True: pass",
        "import os\nos._exit(0)",
        "print('y' * 5_000_000)",
        "import ctypes\nctypes.string_at(0)",
        "for i in range(1000): open(f'f{i}', 'w').write('x' * 1000)",
        "import os\nos.kill(os.getpid(), 9)",
        "x = bytearray(4 << 30)",
        "import threading, time\n[threading.Thread(target=time.sleep, args=(9,)).start() for _ in range(30)]",
        "import os\nos.mkdir('a'); os.chdir('a'); [(os.mkdir('a'), os.chdir('a')) for _ in range(300)]",
        "print(1)",
    ]
    temporary = set(os.listdir(tempfile.gettempdir()))
    below, descriptors, threads = (
        set(belonging(os.getpid())),
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
    )
    with LocalSandbox(workers=2) as box, ThreadPoolExecutor(2) as pool:
        script(box, "print(1)")
        outcomes = list(pool.map(lambda i: script(box, attacks[i % len(attacks)], Limits(seconds=0.1)), range(200)))
        assert {o.status for o in outcomes[9::10]} <= {"finished", "timeout"}  # a loaded machine may be late
        assert sum(o.stdout == b"1\n" for o in outcomes[9::10]) >= 10
        assert "failed" not in {o.status for o in outcomes}
        assert len(belonging(os.getpid())) - len(below) <= 4  # a guard and a zygote for each worker
    assert set(belonging(os.getpid())) == below
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert threading.active_count() == threads
    assert set(os.listdir(tempfile.gettempdir())) - temporary == set() or not any(
        name.startswith("rlvr-") for name in set(os.listdir(tempfile.gettempdir())) - temporary
    )


# Machines that have less


def deaf_to(calls: str) -> str:
    """Source that makes the kernel refuse these system calls (x86_64 numbers) for this process and all below it."""
    return f"""
        import ctypes, struct
        REFUSED = {calls}
        code = [(0x20, 0, 0, 0)]
        for number, error in REFUSED:
            code += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | error)]
        code.append((0x06, 0, 0, 0x7FFF0000))
        program = b"".join(struct.pack("HBBI", *c) for c in code)
        buffer = ctypes.create_string_buffer(program, len(program))
        libc = ctypes.CDLL(None)
        assert libc.prctl(38, 1, 0, 0, 0) == 0
        header = struct.pack("HP", len(code), ctypes.addressof(buffer))
        assert libc.prctl(22, ctypes.c_ulong(2), header, 0, 0) == 0
    """


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of another machine")
@pytest.mark.parametrize(
    ("refused", "active", "why"),
    [
        ("[(272, 1)]", "landlock seccomp", "unshare"),  # as in most containers: EPERM
        ("[(272, 38), (444, 38)]", "", "nothing here contains hostile code"),  # an old kernel: ENOSYS
        ("[(444, 38)]", "namespaces seccomp", "the kernel has none"),
    ],
)
def test_it_falls_back_by_itself_and_refuses_where_too_little_is_left(refused: str, active: str, why: str) -> None:
    source = """
        from rlvr.sandbox import Job, LocalSandbox, SandboxUnavailable
        with LocalSandbox(workers=1) as box:
            print(*box.report().active)
            print(box.report())
            try:
                print(box.run(Job("print(6 * 7)")).stdout)
            except SandboxUnavailable as error:
                print("refused:", error)
    """
    whole = textwrap.dedent(deaf_to(refused)) + textwrap.dedent(source)
    run = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    first, *rest = run.stdout.splitlines()
    assert why in run.stdout
    if active:
        assert (first, rest[-1]) == (active, "b'42\\n'")
    else:
        assert rest[-1].startswith("refused: ")


@pytest.mark.parametrize(("platform", "lacks"), [("darwin", "ctypes"), ("win32", "resource fcntl pwd grp ctypes")])
def test_other_systems_import_it_and_are_told_no(platform: str, lacks: str) -> None:
    """What they lack must not even be imported; the refusal says what to do."""
    source = f"""
        import sys
        from rlvr.records import Task
        sys.platform = {platform!r}
        for name in [n for n in sys.modules if n.startswith("rlvr.sandbox") or n.startswith("rlvr.verify")]:
            del sys.modules[name]
        for name in {lacks!r}.split():
            sys.modules[name] = None
        from rlvr.verify.code import Code
        from rlvr.verify.verifier import VerifierBroken, make_ready
        task = Task("t", "p", "assert f(1) == 1")
        for ask in (lambda: make_ready(Code()), lambda: Code(fenced=False)("f = abs", task)):
            try:
                ask()
            except VerifierBroken as error:
                print(error)
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    said = run.stdout.splitlines()
    assert len(said) == 2
    assert all(f"the sandbox needs Linux (this is {platform})" in line and "virtual machine" in line for line in said)

"""The attack battery, as root and as an ordinary user, on every combination of walls; the cheating battery."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from batteries import F_OF_2, HOGS, HONEST, REACH

from rlvr.audit.programs.cheats import CHEATS
from rlvr.records import Task
from rlvr.sandbox import LocalSandbox
from rlvr.verify.code import Code

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is Linux's")

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs/sandbox.md"
WALLS = {"all": (), "no namespaces": ("namespaces",), "no landlock": ("landlock",)}
ROOT = os.geteuid() == 0


def spare_user() -> int:
    """A user id that nobody has and under which nothing runs."""
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            taken.add(os.stat(f"/proc/{pid}").st_uid)
    return next(uid for uid in range(60_000, 59_000, -1) if uid not in taken)


def interpreter_for_all() -> str | None:
    """A Python that any user can start."""
    for path in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin")):
        real = path and os.path.realpath(path)
        if real and all(os.stat(p).st_mode & 0o005 == 0o005 for p in (real, *map(str, Path(real).parents))):
            check = [real, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
            if subprocess.run(check).returncode == 0:
                return real
    return None


@pytest.mark.parametrize("walls", WALLS)
@pytest.mark.parametrize("who", ["an ordinary user", "root"])
def test_every_attack_is_held(who: str, walls: str) -> None:
    if who == "root" and not ROOT:
        pytest.skip("the root half: this is an ordinary user; run the tests as root for it")
    interpreter = interpreter_for_all() if ROOT else sys.executable
    if interpreter is None:
        pytest.skip("no Python of 3.11 or newer that an ordinary user could start")
    user = 0 if who == "root" else spare_user() if ROOT else os.geteuid()
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as port:
        os.chmod(folder, 0o755)
        package, outside, temporary = (Path(folder) / name for name in ("package", "outside", "temporary"))
        shutil.copytree(HERE.parent / "src/rlvr/sandbox", package / "rlvr/sandbox")
        for name in ("attack_driver.py", "batteries.py"):
            shutil.copy(HERE / name, package)
        for place in (outside, temporary):
            place.mkdir()
            place.chmod(0o777)
        world = {
            "here": str(package / "batteries.py"),
            "packages": "/usr/lib/python3/dist-packages",
            "outside": str(outside),
            "port": port.getsockname()[1],
            "abstract": "\0nobody listens",
        }
        asked = {"package": str(package), "without": WALLS[walls], "user": user, "me": os.geteuid(), "world": world}
        run = subprocess.run(
            [interpreter, str(package / "attack_driver.py")],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            cwd="/",
            env={**os.environ, "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        assert run.returncode == 0, run.stderr
        told = json.loads(run.stdout)
        assert told["uid"] == user
        assert not set(told["active"]) & set(WALLS[walls])
        assert told["left"] == []
        if told["escapes"]:
            pytest.skip(f"not to be had for {who} here: {told['text']}")
        assert {name: happened for name, happened in told["held"].items() if happened} == {}
        assert len(told["held"]) >= 18
        assert os.listdir(outside) == []


def test_the_batteries_are_as_large_as_they_say_and_stand_on_the_page() -> None:
    assert len(REACH) + len(HOGS) >= 18
    assert len(CHEATS) >= 17
    page = PAGE.read_text("utf-8")
    for battery in (REACH, HOGS, CHEATS, HONEST):
        assert [name for name in battery if f"- {name}\n" not in page] == []
    assert f"{len(REACH) + len(HOGS)} attacks" in page
    assert f"{len(CHEATS)} cheats" in page
    assert f"{len(HONEST)} honest" in page


# Cheats


@pytest.fixture(scope="module")
def box() -> Iterator[LocalSandbox]:
    with LocalSandbox(workers=2) as box:
        yield box


FORMS: dict[str, Any] = {
    "calls": F_OF_2,
    "a test program": "x = f(2)\nassert x == 4\nassert type(x) is int and x > 3",
    "unittest": "import unittest\nclass T(unittest.TestCase):\n"
    "    def test_it(self): self.assertEqual([type(f(2)), f(2)], [int, 4])",
    "printed": {"stdin": "2\n", "stdout": "4\n"},
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_wrong(box: LocalSandbox, name: str) -> None:
    """Wrong, not unknown: what is unknown would leave the denominators, which is worth something to a bad policy."""
    for form, tests in FORMS.items():
        found = Code(sandbox=box, fenced=False, seconds=1.0)(CHEATS[name], Task("t", "Write f.", tests))
        assert (found.label, found.score) == ("wrong", 0.0), (form, found)


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_submission_is_right(box: LocalSandbox, name: str) -> None:
    code, tests = HONEST[name]
    for verifier, text in (
        (Code(sandbox=box, fenced=False), code),
        (Code(sandbox=box), f"Let me think.\n\n```python\n{code}\n```\n\nThat is it."),
    ):
        found = verifier(text, Task("t", "Write f.", tests))
        assert found.label == "right", found

"""Runs the attacks of `batteries` in a sandbox and says as JSON which were held, and what was left behind.

Started by test_batteries with any interpreter, as any user, and with nothing of ours installed: it gets the folder that
holds the package's sandbox. Standard input: {"package", "without", "user", "world"}. As root it becomes `user` first.
"""

from __future__ import annotations

import json
import os
import sys
import time
import types
from pathlib import Path
from typing import Any


def main() -> None:
    given = json.load(sys.stdin)
    if given["user"] != os.geteuid():
        os.setgroups([])
        os.setgid(given["user"])
        os.setuid(given["user"])
    for name in "rlvr", "rlvr.sandbox":  # without the package's __init__, which imports more than this interpreter has
        module = types.ModuleType(name)
        module.__path__ = [given["package"] + "/" + name.replace(".", "/")]
        sys.modules[name] = module
    from rlvr.sandbox.pool import LocalSandbox

    world = {**given["world"], "trainer": os.getpid()}
    with LocalSandbox(workers=1, without=given["without"]) as box:
        found = box.report()
        told: dict[str, Any] = {"active": found.active, "escapes": found.escapes, "text": str(found)}
        if not found.escapes:
            told["held"] = attacked(box, world, "namespaces" in found.active)
    deadline = time.monotonic() + 5  # the dead are cleared away by others
    while (found_left := left(given)) and time.monotonic() < deadline:
        time.sleep(0.05)
    told |= {"uid": os.geteuid(), "left": found_left}
    print(json.dumps(told))


def attacked(box: Any, world: dict[str, Any], namespaces: bool) -> dict[str, str]:
    """Attack -> "" if it was held, else what happened."""
    from batteries import HOGS, MB, REACH, SECONDS

    from rlvr.sandbox.job import Job, Limits

    limits = Limits(seconds=5)
    held: dict[str, str] = {}
    for name, code in REACH.items():
        outcome = box.run(Job(code.format(**world), limits=limits))
        held[name] = "" if (outcome.stdout, outcome.exit_code) == (b"", 1) else str(outcome)[:500]
    for name, hog in HOGS.items():
        if hog.processes > 1 and not namespaces:
            continue  # refused before it starts; test_sandbox says so
        limits = Limits(seconds=SECONDS, folder=64 * MB, processes=hog.processes)
        began = time.monotonic()
        outcome = box.run(Job(hog.code.replace("{outside!r}", repr(world["outside"])), limits=limits))
        late = time.monotonic() - began > SECONDS + 10
        through = b"THROUGH" in outcome.stdout or outcome.status not in hog.ends or late
        held[name] = str(outcome)[:500] if through else ""
        after = box.run(Job("print(6 * 7)"))
        if after.stdout != b"42\n":
            held[name] = f"the next job got {after}"[:500]
    return held


def left(given: dict[str, Any]) -> list[str]:
    """Processes below this one, and others of a spare user, zombies too; files in the folder for
    temporary ones, which is this run's own."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
            owner = os.stat(f"/proc/{pid}").st_uid
        except OSError:
            continue
        spare = given["user"] != given["me"] and owner == given["user"] and int(pid) != os.getpid()
        if int(parent) == os.getpid() or spare:
            found.append(f"process {pid}")
    found += [f"file {name}" for name in os.listdir(os.environ["TMPDIR"])]
    return found + [f"shared memory {name}" for name in os.listdir("/dev/shm") if name == "rlvr-left"]


if __name__ == "__main__":
    main()

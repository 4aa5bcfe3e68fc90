"""How many submissions a sandbox worker runs in a second, on every tier that this machine allows.

    python benchmarks/sandbox_speed.py [--seconds 2] [--first] [--json benchmarks/results/sandbox.json]

Three loads: `calls` (a function, twenty calls), `script` (standard input to standard output), `program` (a test program
that questions the submission from a process of its own, two processes a run). A run is all of it: a fresh process, its
walls, the submission, the results, the folder emptied.

Two rates. Per second: on the wall, the best of five windows, for other work on the machine only takes away. Per
CPU-second: all processor time of trainer, guard, zygote and jobs, which other work changes less. `--first` (as root)
lets the benchmark go before other work. Exits with 1 where a tier runs fewer than 200 jobs of `calls` by both rates.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlvr.sandbox import Call, Job, LocalSandbox, Step

WANTED = 200.0
WINDOWS = 5
TIERS: tuple[tuple[str, ...], ...] = ((), ("namespaces",), ("landlock",))  # layers left out
SQUARE = "def f(x):\n    return x * x\n"
LOADS = {
    "calls": (Job(SQUARE, calls=tuple(Call("f", (i,)) for i in range(20))), b"361"),
    "script": (Job("print(int(input()) ** 2)", b"19\n"), b"361"),
    "program": (Job(SQUARE, steps=(Step("setup", "x = f(19)"), Step("value", "x"))), b"361"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one window; there are five")
    parser.add_argument("--first", action="store_true", help="go before other work on the machine; needs root")
    parser.add_argument("--json", type=Path, help="write the numbers there")
    chosen = parser.parse_args()
    tiers = [tier for without in TIERS if (tier := measure(without, chosen.seconds, chosen.first))]
    for tier in tiers:
        for name, told in tier["loads"].items():
            print(
                f"{tier['tier']:32} {name:8} {told['per_second']:6.0f} a second and worker, "
                f"{told['per_cpu_second']:6.0f} a CPU-second, fastest {told['fastest_ms']:.1f} ms"
            )
    found = {
        "user": "root" if os.geteuid() == 0 else "ordinary",
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "load_average": os.getloadavg()[0],
        "first": chosen.first,
        "tiers": tiers,
    }
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")
    slow = [tier["tier"] for tier in tiers if max(rates(tier["loads"]["calls"])) < WANTED]
    if slow or not tiers:
        print(f"fewer than {WANTED:.0f} runs a second: {', '.join(slow) or 'no tier is to be had here'}")
    return 1 if slow or not tiers else 0


def rates(load: dict[str, float]) -> tuple[float, float]:
    return load["per_second"], load["per_cpu_second"]


def measure(without: tuple[str, ...], seconds: float, first: bool) -> dict[str, Any] | None:
    """The rates of one worker; None where this tier is not to be had."""
    with LocalSandbox(workers=1, without=without) as box:
        found = box.report()
        if found.escapes or len(found.active) + len(without) < 3:
            return None
        loads: dict[str, Any] = {}
        for name, (job, wanted) in LOADS.items():
            for _ in range(10):
                answer = box.run(job)
                got = answer.stdout.strip() or answer.results[-1].text.encode()
                assert got == wanted, (name, answer)
            if first:
                go_first()
            windows = [window(box, job, seconds) for _ in range(WINDOWS)]
            loads[name] = {
                "per_second": max(w[0] for w in windows),
                "per_cpu_second": sum(w[1] for w in windows) / sum(w[2] for w in windows),
                "fastest_ms": 1000 * min(w[3] for w in windows),
                "jobs": sum(w[1] for w in windows),
            }
        return {"tier": " + ".join(found.active), "loads": loads}


def window(box: LocalSandbox, job: Job, seconds: float) -> tuple[float, int, float, float]:
    """(runs a second, runs, CPU-seconds, seconds of the fastest)"""
    began, spent, runs, fastest = time.perf_counter(), cpu_seconds(), 0, float("inf")
    while (now := time.perf_counter()) - began < seconds:
        box.run(job)
        runs += 1
        fastest = min(fastest, time.perf_counter() - now)
    return runs / (time.perf_counter() - began), runs, cpu_seconds() - spent, fastest


def cpu_seconds() -> float:
    """Of this process, those below it, and those that have ended below them."""
    ticks = os.sysconf("SC_CLK_TCK")
    below = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in descendants())
    return time.process_time() + sum(sum(map(int, words[11:15])) for words in below) / ticks


def descendants() -> Iterator[int]:
    """The guard and its zygote; jobs come and go, and their time is counted as their parent's."""
    waiting = [os.getpid()]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").iterdir():
            children = [int(pid) for pid in (task / "children").read_text().split()]
            yield from children
            waiting += children


def go_first() -> None:
    for pid in (os.getpid(), *descendants()):
        os.setpriority(os.PRIO_PROCESS, pid, -20)
        with contextlib.suppress(OSError):  # sessions are scheduled as one where the kernel groups them
            Path(f"/proc/{pid}/autogroup").write_text("-20")


if __name__ == "__main__":
    sys.exit(main())

"""From the command to reward .6 on nano, start-up included: `rlvr train quickstart`, and a script around TRL.

    python benchmarks/to_reward.py [--quick]

Three seeds, ours and TRL's in turn, each alone in a fresh process with one thread. The clock starts with the process
and stops with the first step whose mean reward over its 512 answers reaches .6; CPU seconds are of the whole process
tree. Ours is the quickstart with its looks at the data and without its evaluation, for TRL's script makes none.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shared import LOADS, ONE_THREAD, ROOT, about, median, read, write
from side import for_trl

GOAL, LIMIT = 0.6, 100  # reward; steps after which a side has failed
RLVR = Path(sys.executable).parent / "rlvr"


def ours(seed: int, folder: Path) -> tuple[list[str], Path]:
    """The command, and the file that its steps appear in."""
    run = folder / f"ours-{seed}"
    sets = ["eval.problems=0", 'sinks=["jsonl"]', "threads=1", f"seed={seed}", f"steps={LIMIT}"]
    command = [str(RLVR), "train", "quickstart", "--out", str(run)]
    return [*command, *(word for s in sets for word in ("--set", s))], run / "metrics.jsonl"


def trls(seed: int, folder: Path, settings: dict[str, Any]) -> tuple[list[str], Path]:
    return for_trl({**LOADS["nano"], "seed": seed}, folder, settings=settings), folder / f"trl-{seed}.jsonl"


def rewards(file: Path) -> Iterator[float]:
    """The mean rewards that have been written by now."""
    for line in file.read_text().splitlines() if file.exists() else ():
        told = json.loads(line.removeprefix("@")) if line.endswith("}") and line[0] in "@{" else {}
        reward = told.get("reward/mean", told.get("reward"))
        if reward is not None:
            yield reward


def timed(command: list[str], file: Path, goal: float) -> dict[str, Any]:
    """Wall and CPU seconds until the goal. Raises RuntimeError where the process ends before it."""
    own = file.name.startswith("trl")  # TRL's side writes its steps to stdout
    with tempfile.TemporaryFile("w+") as errors, file.open("w") if own else open(os.devnull, "w") as out:
        start = time.perf_counter()
        child = subprocess.Popen(
            command,
            env={**ONE_THREAD, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=errors,
            text=True,
        )
        assert child.stdin is not None
        if own:
            child.stdin.write(f"{LIMIT}\n")
            child.stdin.flush()
        while not any(reward >= goal for reward in rewards(file)):
            if child.poll() is not None:
                errors.seek(0)
                raise RuntimeError(f"{command[0]} ended before reward {goal}:\n{errors.read()[-3000:]}")
            time.sleep(0.05)
        wall = time.perf_counter() - start
        child.kill()
        _, _, used = os.wait4(child.pid, 0)
        child.returncode = 0
    steps = 1 + next(i for i, reward in enumerate(rewards(file)) if reward >= goal)
    return {"wall": round(wall, 2), "cpu": round(used.ru_utime + used.ru_stime, 2), "steps": steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed, to reward .3")
    given = parser.parse_args()
    swept = read("trl_sweep")
    if swept is None or "nano" not in swept["loads"]:
        raise SystemExit("TRL's best settings are not known yet; run: python benchmarks/against_trl.py --only nano")
    goal = 0.3 if given.quick else GOAL
    told: dict[str, list[dict[str, Any]]] = {"ours": [], "TRL": []}
    with tempfile.TemporaryDirectory() as place:
        for seed in range(1 if given.quick else 3):
            told["ours"].append(timed(*ours(seed, Path(place)), goal))
            told["TRL"].append(timed(*trls(seed, Path(place), swept["loads"]["nano"]["best"]), goal))
            print({side: runs[-1] for side, runs in told.items()}, flush=True)
    ratio = {k: median([a[k] / b[k] for a, b in zip(told["ours"], told["TRL"])]) for k in ("wall", "cpu")}
    write("to_reward", {"about": about(given.quick), "goal": goal, "runs": told, "ratio": ratio})


if __name__ == "__main__":
    main()

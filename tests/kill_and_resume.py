"""Run as a program by test_resume.py: trains in forked children, kills them with SIGKILL at chosen moments, and goes
on.

The parent imports everything and computes nothing, so a fork is safe and a child starts at once. Prints one JSON
object.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rlvr.assemble
import rlvr.checkpoint
import rlvr.engine.torch_engine
import rlvr.loop
import rlvr.report.sink
import rlvr.report.store
import rlvr.run
from rlvr.engine.sampler import TorchSampler
from rlvr.recipe import make_recipe

RECIPE = {
    "model": "nano",
    "method": "dapo,ppo(warmup=2)",
    "tasks": {"name": "running_sums", "n": 60},
    "steps": 5,
    "prompts_per_step": 6,
    "group_size": 6,
    "updates_per_batch": 4,
    "max_tokens": 16,
    "lr": 1e-3,
    "critic_lr": 1e-3,
    "checkpoint_every": 1,
    "rollouts_every": 1,
    "eval": {"problems": 0},
}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after(calls: int, function: Callable[..., Any], half: Callable[..., None] | None = None) -> Callable[..., Any]:
    """The function, which at its n-th call does half its work and dies."""
    left = [calls]

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            if half is not None:
                half(*args, **kwargs)
            die()
        return function(*args, **kwargs)

    return wrapped


def half_a_file(rows: Any, path: Any = None, *more: Any, **kwargs: Any) -> None:
    target = path if isinstance(path, str | Path) else rows
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(target).with_name(Path(target).name + ".half").write_bytes(b"PAR1 half a file")


def sampling() -> None:
    TorchSampler._step = after(20, TorchSampler._step)  # type: ignore[method-assign]


def verifying() -> None:
    rlvr.assemble.judge = after(3, rlvr.assemble.judge)  # type: ignore[assignment]


def updating() -> None:
    engine = rlvr.engine.torch_engine.TorchEngine
    engine.update = after(7, engine.update)  # type: ignore[method-assign]


def saving_weights() -> None:
    rlvr.checkpoint.save_model = after(2, rlvr.checkpoint.save_model, lambda m, t, folder: Path(folder).mkdir())


def saving_rollouts() -> None:
    rlvr.report.sink.write_rows = after(2, rlvr.report.sink.write_rows, half_a_file)


MOMENTS = {f.__name__: f for f in (sampling, verifying, updating, saving_weights, saving_rollouts)}


def child(folder: Path, resume: bool, moment: str | None) -> int:
    """Fork; the child trains. Returns its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        if moment:
            MOMENTS[moment]()
        rlvr.run.train(make_recipe(RECIPE), folder, sinks=("jsonl", "parquet"), resume=resume)
    except BaseException as error:
        print(f"child failed: {type(error).__name__}: {error}", file=sys.stderr)
        os._exit(1)
    os._exit(0)


def finished(pid: int, seconds: float | None = None) -> bool:
    """Wait for a child, killing it after `seconds`; whether it came to its own end."""
    until = time.monotonic() + seconds if seconds is not None else None
    while True:
        got, status = os.waitpid(pid, os.WNOHANG)
        if got:
            if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 1:
                raise SystemExit("a child failed for a reason of its own")
            return os.WIFEXITED(status)
        if until is not None and time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            until = None
        time.sleep(0.005)


def outcome(folder: Path) -> dict[str, Any]:
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "weights": hashlib.sha256((folder / "model" / "model.safetensors").read_bytes()).hexdigest(),
        "steps": [m["step"] for m in metrics],
        "reward": [m["reward/mean"] for m in metrics],
        "rollouts": sorted(p.name for p in (folder / "rollouts").glob("*.parquet")),
    }


def main(root: Path, moments: list[str]) -> None:
    start = time.monotonic()
    assert finished(child(root / "straight", False, None))
    took = time.monotonic() - start
    told: dict[str, Any] = {"straight": outcome(root / "straight"), "killed": {}, "kills": 0}
    noise = random.Random(0)
    for name in moments:
        folder = root / name
        moment: str | None = name if name in MOMENTS else None
        done, resume, tries = False, False, 0
        while not done:
            tries += 1
            wait = noise.uniform(0.1, 0.9) * took if moment is None and tries <= 2 else None
            done = finished(child(folder, resume, moment), wait)
            told["kills"] += not done
            moment = None
            resume = bool(rlvr.checkpoint.checkpoints(folder))
            if not done and not resume and folder.exists():
                (folder / "gone").mkdir(exist_ok=True)  # nothing to go on from: it starts again in the same folder
            if tries > 9:
                raise SystemExit(f"{name}: does not finish")
        told["killed"][name] = outcome(folder)
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2].split(","))

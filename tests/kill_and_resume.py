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
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import rlvr.assemble
import rlvr.best
import rlvr.checkpoint
import rlvr.engine.load
import rlvr.engine.torch_engine
import rlvr.loop
import rlvr.report.sink
import rlvr.report.store
import rlvr.run
from rlvr.engine.sampler import TorchSampler
from rlvr.engine.weights import fault_in
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
    "lr": 1e-4,  # each of the last three evaluations is better than all before
    "critic_lr": 1e-3,
    "seed": 1,
    "checkpoint_every": 1,
    "rollouts_every": 1,
    "eval": {"problems": 8, "k": 2, "every": 1},
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


def sampling(calls: int = 20) -> None:
    TorchSampler._step = after(calls, TorchSampler._step)  # type: ignore[method-assign]


def verifying(calls: int = 3) -> None:
    rlvr.assemble.judge = after(calls, rlvr.assemble.judge)  # type: ignore[assignment]


def updating(calls: int = 7) -> None:
    engine = rlvr.engine.torch_engine.TorchEngine
    engine.update = after(calls, engine.update)  # type: ignore[method-assign]


def saving_weights() -> None:
    rlvr.checkpoint.save_model = after(2, rlvr.checkpoint.save_model, lambda m, t, folder: Path(folder).mkdir())


def saving_rollouts() -> None:
    rlvr.report.sink.write_rows = after(2, rlvr.report.sink.write_rows, half_a_file)


def saving_best() -> None:
    rlvr.best.save_model = after(2, rlvr.best.save_model, lambda m, t, folder: (Path(folder) / "config.json").touch())


def exchanging_best() -> None:
    """The old one is moved aside, the new one not yet in its place."""
    rename = Path.rename

    def dying(self: Path, target: Any) -> Path:
        if self.name.endswith(".partial") and Path(target).name == "best" and list(self.parent.glob(".best.*.old")):
            die()
        return rename(self, target)

    Path.rename = dying  # type: ignore[method-assign, assignment]


def removing_the_old_best() -> None:
    """The new one is in its place, and the old one still there."""
    remove = rlvr.engine.load.shutil.rmtree

    def dying(path: Any, *more: Any, **kwargs: Any) -> None:
        if Path(path).name.startswith(".best.") and Path(path).name.endswith(".old") and Path(path).exists():
            die()
        remove(path, *more, **kwargs)

    rlvr.engine.load.shutil.rmtree = dying  # type: ignore[assignment]


MOMENTS: dict[str, Callable[..., None]] = {
    f.__name__: f
    for f in (
        sampling,
        verifying,
        updating,
        saving_weights,
        saving_rollouts,
        saving_best,
        exchanging_best,
        removing_the_old_best,
    )
}
# At most so many calls: what every step still to come is sure to make.
AT_RANDOM = {"sampling": 6, "verifying": 1, "updating": 2}


def child(folder: Path, resume: bool, moment: Callable[[], None] | None) -> int:
    """Fork; the child trains. Returns its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        if moment:
            moment()
        rlvr.run.train(make_recipe(RECIPE), folder, sinks=("jsonl", "parquet"), resume=resume)
    except BaseException as error:
        print(f"child failed: {type(error).__name__}: {error}", file=sys.stderr)
        os._exit(1)
    os._exit(0)


def finished(pid: int) -> bool:
    """Wait for a child; whether it came to its own end."""
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 1:
        raise SystemExit("a child failed for a reason of its own")
    return os.WIFEXITED(status)


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def whole_best(folder: Path) -> bool:
    """Whether the best model that a killed run had is whole: in its place, or where the next start takes it from."""
    there = [*folder.glob("best"), *folder.glob(".best.*.old")]
    names = ("model.safetensors", "tokenizer.json", "config.json", "best.json")
    return not there or any(not fault_in(f) and all((f / name).is_file() for name in names) for f in there)


def outcome(folder: Path) -> dict[str, Any]:
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "weights": digest(folder / "model" / "model.safetensors"),
        "steps": [m["step"] for m in metrics],
        "reward": [m["reward/mean"] for m in metrics],
        "best": {str(f.relative_to(folder)): digest(f) for f in sorted((folder / "best").rglob("*")) if f.is_file()},
        "rollouts": sorted(p.name for p in (folder / "rollouts").glob("*.parquet")),
    }


def main(root: Path, moments: list[str]) -> None:
    assert finished(child(root / "straight", False, None))
    told: dict[str, Any] = {"straight": outcome(root / "straight"), "killed": {}, "kills": 0, "lost": []}
    noise = random.Random(0)
    for name in moments:
        folder = root / name
        deadly = 1 if name in MOMENTS else 2  # random moments come twice in a row
        done, tries = False, 0
        while not done:
            moment: Callable[[], None] | None = None
            if tries < deadly and name in MOMENTS:
                moment = MOMENTS[name]
            elif tries < deadly:
                what, most = noise.choice(list(AT_RANDOM.items()))
                moment = partial(MOMENTS[what], noise.randint(1, most))
            resume = bool(rlvr.checkpoint.checkpoints(folder))
            if not resume:  # nothing to go on from: it starts again
                shutil.rmtree(folder, ignore_errors=True)
            done = finished(child(folder, resume, moment))
            told["kills"] += not done
            told["lost"] += [] if whole_best(folder) else [name]
            tries += 1
            if tries > 9:
                raise SystemExit(f"{name}: does not finish")
        told["killed"][name] = outcome(folder)
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2].split(","))

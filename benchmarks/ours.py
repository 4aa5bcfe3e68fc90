"""Our trainer as a process that makes steps when it is told to.

    python benchmarks/ours.py '{"model": "nano", ...}'     (a load of shared.py, with "seed", "path", "skip_idle")

Reads numbers of steps from stdin, and prints a line of JSON after each step: `side.py` is the other end.
path: "chosen" (what a user gets) or "hf" (the general Hugging Face path). skip_idle: leave rows that teach nothing out.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shared import recipe_of


def training_of_load(load: Mapping[str, Any], tasks: Sequence[Any] | None = None, **more: Any) -> Any:
    """The parts of a run, as `rlvr train` puts them together. `tasks` stand in for the load's."""
    from rlvr.assemble import plan_of, set_up, training_of
    from rlvr.engine.sampler import TorchSampler

    recipe = recipe_of(load, seed=load.get("seed", 0), **more)
    plan = plan_of(recipe)
    setup = set_up(recipe, plan, tasks, want=frozenset({"entropy"}))
    if load.get("path", "chosen") == "hf":
        setup.lm._fused = None
        setup.sampler = TorchSampler(setup.lm, recipe.slots)
    training = training_of(setup, plan, Path(tempfile.mkdtemp()))
    (training.folder / "rollouts").mkdir()
    training.engine.skip_idle = load.get("skip_idle", True)
    training.phase = plan.start()
    gc.collect()
    gc.freeze()  # as in `rlvr train`
    return training


def one_step(training: Any) -> dict[str, Any]:
    """The step's metrics and CPU seconds, whole and by stage."""
    marks: list[tuple[str, float]] = []
    training.stage = lambda step, name: marks.append((name, time.process_time()))
    began = time.process_time()
    metrics = training.train_step(training.step + 1)
    training.phase = training.plan.next(training.phase, training.step + 1, metrics)
    training.step += 1
    ended = time.process_time()
    stages: dict[str, float] = {}
    for (name, at), (_, until) in zip(marks, [*marks[1:], ("", ended)]):
        stages[name] = round(stages.get(name, 0.0) + until - at, 5)
    return {
        "step": training.step,
        "cpu": round(ended - began, 5),
        "reward": metrics["reward/mean"],
        "length": metrics["length/mean"],
        "busy": metrics.get("busy/policy"),
        "stages": stages,
    }


def main() -> None:
    training = training_of_load(json.loads(sys.argv[1]))
    gc.collect()
    gc.freeze()  # as `rlvr train` does
    print("@" + json.dumps({"startup": time.process_time()}), flush=True)
    for line in sys.stdin:
        for _ in range(int(line)):
            print("@" + json.dumps(one_step(training)), flush=True)


if __name__ == "__main__":
    main()

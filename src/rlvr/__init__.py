"""rlvr: reinforcement learning with verifiable rewards. Published methods are small pieces that stack, on one pipeline.

import rlvr
from rlvr.methods.grpo import grpo

tasks = [rlvr.Task("1", "2+2=", answer="4"), ...]
run = rlvr.train("nano", tasks=tasks, verifier="numeric", method=grpo(), steps=50)
run.plot()
run.rollouts(step=10, verdict="wrong")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlvr.records import Group, Rollout, Task, Verdict
from rlvr.registry import register

if TYPE_CHECKING:
    from rlvr.method import Method
    from rlvr.run import Run

__version__ = "0.1.0"
__all__ = ["Group", "Rollout", "Task", "Verdict", "register", "train"]


def train(
    model: Any = "nano",
    *,
    tasks: Sequence[Task] | str,
    verifier: Any = None,
    method: Method | str = "grpo",
    out: str | None = None,
    resume: bool = False,
    **settings: Any,
) -> Run:
    """Train from Python. Loads torch when called.

    model: a bundled or added model's name, a folder, a hub id, or a `Loaded` of engine.load.
    tasks: Task objects, or a registered source or JSONL file by name. verifier: a spec such as "numeric", or a function
    of (answer, gold) that returns a number or bool; None: each task's own. method: a stack, as objects or as text.
    resume: go on with the run in `out`, given the same arguments. settings: any key of a recipe (`rlvr explain
    recipe`), nested tables as dictionaries.
    """
    from pathlib import Path

    from rlvr import run
    from rlvr.recipe import make_recipe

    named: dict[str, Any] = {"tasks": tasks if isinstance(tasks, str) else "running_sums"}
    if isinstance(method, str):
        named["method"] = method
    if isinstance(model, str):
        named["model"] = model
    if isinstance(verifier, str):
        named["verifier"] = verifier
    return run.train(
        make_recipe({**named, **settings}),
        Path(out) if out else None,
        tasks=None if isinstance(tasks, str) else tasks,
        verifier=None if isinstance(verifier, str) else verifier,
        method=None if isinstance(method, str) else method,
        model=None if isinstance(model, str) else model,
        resume=resume,
    )

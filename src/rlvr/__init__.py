"""rlvr: reinforcement learning with verifiable rewards. Published methods are small pieces that stack, on one pipeline.

import rlvr
from rlvr.methods.grpo import grpo

tasks = [rlvr.Task("1", "2+2=", answer="4"), ...]
run = rlvr.train("nano", tasks=tasks, verifier="numeric", method=grpo(), steps=50)
run.plot()
run.rollouts(step=10, verdict="wrong")
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import FunctionType
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
    tasks: Iterable[Task | Mapping[str, Any]] | Task | str | PathLike[str],
    verifier: Any = None,
    method: Method | str | Sequence[str] = "grpo",
    out: str | None = None,
    resume: bool = False,
    **settings: Any,
) -> Run:
    """Train from Python. Loads torch when called.

    model: a bundled or added model's name, a folder, a hub id, or a `Loaded` of engine.load.
    tasks: Task objects, or dictionaries as in a JSONL file; or a registered source or a file by name. verifier: a spec
    such as "numeric", or a function of (answer, gold) that returns a number or bool; None: each task's own. method: a
    stack, as objects, as text or as a list of names.
    resume: go on with the run in `out`, given the same arguments. settings: any key of a recipe (`rlvr explain
    recipe`), nested tables as dictionaries.
    """
    from rlvr import run
    from rlvr.method import Method
    from rlvr.recipe import make_recipe
    from rlvr.stacking import StackError
    from rlvr.tasks.given import as_tasks

    source = os.fspath(tasks) if isinstance(tasks, str | PathLike) else None
    stack = method if isinstance(method, str) else None
    if isinstance(method, list | tuple) and method and all(isinstance(paper, str) for paper in method):
        stack = ",".join(method)
    elif stack is None and not isinstance(method, Method):
        called = f"; call it: method={method.__name__}()" if isinstance(method, FunctionType) else ""
        raise StackError(
            f"`method` is {type(method).__name__} {method!r}{called}; expected a Method, such as grpo(), or a text, "
            f'such as "dapo,rloo", or a list of names'
        )
    named: dict[str, Any] = {"tasks": "running_sums" if source is None else source}
    if stack is not None:
        named["method"] = stack
    if isinstance(model, str):
        named["model"] = model
    if isinstance(verifier, str):
        named["verifier"] = verifier
    return run.train(
        make_recipe({**named, **settings}),
        Path(out) if out else None,
        tasks=as_tasks(tasks) if source is None else None,
        verifier=None if isinstance(verifier, str) else verifier,
        method=method if isinstance(method, Method) else None,
        model=None if isinstance(model, str) else model,
        resume=resume,
    )

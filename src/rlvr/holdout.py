"""Which tasks are held out for evaluation: chosen by a hash of the prompt, so that equal prompts stay on one side.

The hash does not depend on the seed or on the order of the tasks: seeds share the held-out tasks, and a file that grows
keeps most of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rlvr.records import Task, mix


def prompt_key(task: Task) -> int:
    """The same for equal prompts; texts that differ in white space alone are equal."""
    prompt = task.prompt
    return mix(0, "holdout", " ".join(prompt.split()) if isinstance(prompt, str) else list(prompt))


def held_out(tasks: Sequence[Task], share: float, most: int) -> tuple[list[Task], list[Task]]:
    """(training, held out), each in the order of `tasks`: at most `share` of them, and at most `most`.

    All tasks of a prompt go together; a prompt that more tasks have than may be held out is trained on.
    """
    room = min(most, round(len(tasks) * share))
    keys = [prompt_key(task) for task in tasks]
    held: set[int] = set()
    for key, n in sorted(Counter(keys).items()):
        if n <= room:
            held.add(key)
            room -= n
    return [t for t, k in zip(tasks, keys) if k not in held], [t for t, k in zip(tasks, keys) if k in held]


def about_holdout(train: Sequence[Task], held: Sequence[Task], share: float) -> str:
    """How many are held out, for the start of a run."""
    total = len(train) + len(held)
    if held and not train:
        return (
            f"all {total} tasks are held out (eval.holdout = {share:g}), so none is left to train on; lower "
            "eval.holdout, or give more tasks"
        )
    if held:
        return f"{len(held)} of {total} tasks are held out for evaluation (eval.holdout = {share:g})"
    few = f", which is less than one of {total} tasks" if share else ""
    return (
        f"no task is held out (eval.holdout = {share:g}{few}), so nothing is evaluated; raise eval.holdout, or give "
        "eval.tasks"
    )


def about_leaks(train: Sequence[Task], evaluated: Sequence[Task]) -> str:
    """How many prompts are both trained on and evaluated, where evaluation has a source of its own; "" for none."""
    trained = {prompt_key(task) for task in train}
    both = [task for task in evaluated if prompt_key(task) in trained]
    if not both:
        return ""
    return (
        f"{len(both)} of {len(evaluated)} evaluation prompts are trained on too, as that of task {both[0].id}, and say "
        "nothing of new ones; take them out of `tasks` or of `eval.tasks`"
    )

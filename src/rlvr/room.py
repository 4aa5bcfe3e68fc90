"""Prompts that leave no room for an answer in the model's context, counted over all tasks before any is sampled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rlvr.engine.renderer import Renderer
from rlvr.records import Task

KINDS = ("training", "evaluation")
SLACK = 32  # ours: tokens by which a template may frame one message otherwise than another


def too_long(tasks: Iterable[Task], renderer: Renderer, room: int) -> list[tuple[int, Task]]:
    """(tokens, task) of the prompts of at least `room` tokens; of those far over it, tokens that they have at least. A
    prompt that does not render is left out.

    A token holds at least a byte, so only prompts whose bytes, with the template's tokens, could fill the room are
    rendered: a million short ones cost a moment.
    """
    try:
        frame = len(renderer.prompt("x")) + SLACK
    except ValueError:  # it takes no text: every prompt is rendered
        frame = room
    found = []
    for task in tasks:
        if len(str(task.prompt).encode("utf-8", "replace")) + frame < room:
            continue
        if (least := renderer.fewest(task.prompt)) > room:
            found.append((least, task))
            continue
        try:
            ids = renderer.prompt(task.prompt)
        except ValueError:
            continue
        if len(ids) >= room:
            found.append((len(ids), task))
    return found


def about_room(trained: Sequence[Task], evaluated: Sequence[Task], renderer: Any, context: int | None) -> str:
    """How many prompts leave no room for an answer, and what to do; "" for none."""
    if context is None:
        return ""
    long = [too_long(tasks, renderer, context) for tasks in (trained, evaluated)]
    parts = [f"{len(n)} of {len(all_)} {what}" for n, all_, what in zip(long, (trained, evaluated), KINDS) if n]
    if not parts:
        return ""
    most, task = max((pair for some in long for pair in some), key=lambda pair: pair[0])
    return (
        f"{' and '.join(parts)} prompts leave no room for an answer: that of task {task.id} has {most} tokens, and the "
        f"model reads at most {context}. Their answers have no verdict. Leave these tasks out, shorten them, or take a "
        "model with a longer context"
    )

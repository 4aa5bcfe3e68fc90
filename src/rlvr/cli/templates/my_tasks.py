"""my_tasks: questions made from a seed. Here: the larger of two numbers.

A task source is a function that returns Tasks: a prompt (text or chat messages), the gold, an id that no other task
has, and the verifier that compares them. A source that takes `split` is asked for "eval" when a model is measured, so
the two splits must not share a question.
"""

from __future__ import annotations

from random import Random

from rlvr.records import Task


def my_tasks(n: int = 256, seed: int = 0, split: str = "train", below: int = 1000) -> tuple[Task, ...]:
    """Which of two numbers under `below` is larger?

    Raises ValueError when there are fewer than n such questions.
    """
    last_digits = range(2) if split == "eval" else range(2, 10)  # of the first number: this keeps the splits apart
    pairs = [(a, b) for a in range(below) for b in range(below) if a % 10 in last_digits and a != b]
    if len(pairs) < n:
        raise ValueError(f"my_tasks: n = {n}, but there are only {len(pairs)} questions; raise `below`")
    return tuple(
        Task(
            id=f"my_tasks/{a}-{b}",
            prompt=f"{a},{b}=",
            answer=str(max(a, b)),
            verifier="numeric(last=True)",
            made_by="my_tasks",
        )
        for a, b in Random(seed).sample(pairs, n)
    )

"""my_verifier: the last line of an answer must be the gold, however it is written.

A verifier is a function of the policy's own words and the task's gold. It returns True or False, a score (right when
above 0), a dictionary with "score" and other named numbers, or None where it cannot tell. It runs in a process of its
own, under a deadline. Answers are hostile: never eval them.

None, an exception or nan is no verdict: such an answer earns nothing, and leaves the group's mean alone. A fault of the
*answer* is not that: it is wrong, so return False.
"""

from __future__ import annotations


def my_verifier(answer: str, gold: object) -> bool | None:
    """Right iff the last line that is not empty equals the gold, apart from case, spaces and a final full stop."""
    if not isinstance(gold, str) or not gold.strip():
        return None  # the task's fault, not the answer's
    lines = [line for line in answer.splitlines() if line.strip()]
    return bool(lines) and _plain(lines[-1]) == _plain(gold)


def _plain(text: str) -> str:
    return " ".join(text.lower().split()).removesuffix(".")

"""Countdown: does an expression reach the target, using the given numbers as the task allows?

The answer is the text after the last `marker`, or the whole text where there is none: integers, `+ - *` and
parentheses, with an optional `= value` behind, which must then be true. It is read by a small recursive-descent
parser of bounded length and depth; no text is ever evaluated by Python. `-` is an operator only: a negative number is
not one of the given ones.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from rlvr.records import Task, Verdict
from rlvr.registry import register
from rlvr.verify.verifier import fingerprint, right, unknown, wrong

LONGEST = 200  # characters of an answer; six numbers with every parenthesis need under 50
DEEPEST = 20  # nested parentheses; the parser recurses once for each
TYPOGRAPHY = str.maketrans("×·−–", "**--")  # signs that models write for * and -


class Unparsable(ValueError):
    """Not an expression of this grammar."""


@register("verifier", "countdown")
@dataclass(frozen=True, slots=True)
class CountdownVerifier:
    """Right iff the expression equals the target and uses the numbers as the task says, exactly.

    Reads `task.answer` (target: an integer or its digits), `task.meta["numbers"]` (integers) and `task.meta["use"]`:
    "all" (default) wants each number exactly once, "any" at most once. Reasons: "equal", "different" (another value),
    "no_answer" (nothing there), "unparsable", "wrong_numbers"; a task without these fields is `unknown` with
    "bad_gold".
    """

    marker: str = "#"

    def __post_init__(self) -> None:
        if not (isinstance(self.marker, str) and self.marker.strip()):
            raise ValueError(f"countdown: marker is the text before an answer, such as '#', not {self.marker!r}")

    @property
    def fingerprint(self) -> str:
        return fingerprint("countdown", self)

    def __call__(self, text: str, task: Task) -> Verdict:
        try:
            target, given = _whole(task.answer), Counter(map(_whole, _listed(task.meta["numbers"])))
            leftovers = {"all": False, "any": True}[task.meta.get("use", "all")]
        except (KeyError, TypeError, ValueError):
            return unknown("bad_gold")
        answer = text.rpartition(self.marker)[2].strip()
        if not answer:
            return wrong("no_answer")
        try:
            value, used, claimed = parse(answer)
        except Unparsable:
            return wrong("unparsable", answer)
        if used != given and not (leftovers and used <= given):
            return wrong("wrong_numbers", answer)
        if value != target or claimed not in (None, value):
            return wrong("different", answer)
        return right(answer)


def parse(text: str) -> tuple[int, Counter[int], int | None]:
    """(value, the integers used, the value claimed behind `=` or None) of `expression [= integer]`.

    Raises Unparsable: another character, over LONGEST characters, over DEEPEST open parentheses, over nine digits in
    a row.
    """
    if len(text) > LONGEST:
        raise Unparsable(f"over {LONGEST} characters")
    text = text.translate(TYPOGRAPHY)
    tokens = re.findall(r"[0-9]+|\S", text)
    used: Counter[int] = Counter()
    at = 0

    def take(kinds: str) -> str | None:
        nonlocal at
        if at < len(tokens) and tokens[at] in kinds:
            at += 1
            return tokens[at - 1]
        return None

    def integer() -> int:
        nonlocal at
        if at == len(tokens) or not re.fullmatch("[0-9]{1,9}", tokens[at]):
            raise Unparsable(f"an integer is wanted at token {at + 1}")
        at += 1
        return int(tokens[at - 1])

    def atom(depth: int) -> int:
        if not take("("):
            number = integer()
            used[number] += 1
            return number
        if depth == DEEPEST:
            raise Unparsable(f"over {DEEPEST} open parentheses")
        value = total(depth + 1)
        if not take(")"):
            raise Unparsable("a parenthesis is not closed")
        return value

    def product(depth: int) -> int:
        value = atom(depth)
        while take("*"):
            value *= atom(depth)
        return value

    def total(depth: int) -> int:
        value = product(depth)
        while op := take("+-"):
            value += product(depth) if op == "+" else -product(depth)
        return value

    value = total(0)
    claimed = integer() if take("=") else None
    if at != len(tokens):
        raise Unparsable(f"{tokens[at]!r} is not expected at token {at + 1}")
    return value, used, claimed


def _whole(x: object) -> int:
    if isinstance(x, bool) or not isinstance(x, int | str):
        raise TypeError(f"{x!r} is not an integer")
    return int(x)


def _listed(x: object) -> list[object]:
    if not isinstance(x, list | tuple):
        raise TypeError(f"{x!r} is not a list")
    return list(x)

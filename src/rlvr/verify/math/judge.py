"""One answer beside one gold: what each was read as, and whether they are the same."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

from rlvr.verify.math.answers import Answer, read
from rlvr.verify.math.arithmetic import Budget
from rlvr.verify.math.compare import Comparison
from rlvr.verify.math.conventions import Conventions
from rlvr.verify.math.identity import Bench
from rlvr.verify.math.limits import WORK, Fault, OverLimit, Undefined
from rlvr.verify.math.nodes import Either, Labelled, Node, exact
from rlvr.verify.verifier import squeeze

TOO_DEAR = "comparing it with itself takes too long"
_LONG = 500  # characters; longer texts are compared in a simpler and faster way


@dataclass(frozen=True, slots=True)
class Finding:
    """`reason` is a verdict's: "equal", "different", "no_answer", "unparsable", "over_limit", "bad_gold"."""

    reason: str
    how: str  # for people: what was compared with what, or what was wrong


def compared(answer: str, gold: str, conventions: Conventions) -> Finding:
    """Whether two answers, without the text around them, are the same. Never raises."""
    if _alike(answer, gold):
        return Finding("equal", "the same text")
    right = _gold(gold, conventions.thousands)
    if isinstance(right, Fault):
        return Finding("bad_gold", f"the gold cannot be read: {right}")
    try:
        left = read(answer, conventions.thousands, right)
    except Fault as fault:
        return Finding(fault.reason, str(fault))
    how = f"{kind(left.node)} beside {kind(right.node)}"
    if left.tokens and left.tokens == right.tokens:
        return Finding("equal", how)
    reason, why = "different", how
    try:
        if _comparison(left, right, conventions).same(left.node, right.node):
            return Finding("equal", how)
    except Undefined as error:
        reason, why = "unparsable", str(error)
    except Fault as fault:
        reason, why = fault.reason, str(fault)
    complaint = _complaint(gold, conventions)
    if not complaint or (complaint == TOO_DEAR and reason != "over_limit"):
        return Finding(reason, why)
    return Finding("bad_gold", f"the gold has no value: {complaint}")


def _alike(answer: str, gold: str) -> bool:
    """Whether two texts are the same but for spaces and marks around them."""
    if answer == gold:
        return True
    if len(answer) > _LONG or len(gold) > _LONG:
        answer, gold = (" ".join(text.split()).replace(", ", ",").replace(" ,", ",") for text in (answer, gold))
        return answer == gold
    return squeeze(answer) == squeeze(gold)


def _comparison(a: Answer, b: Answer, conventions: Conventions, work: int = WORK) -> Comparison:
    seed = hashlib.blake2b(
        "\0".join(sorted((a.text, b.text))).encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()
    return Comparison(
        conventions,
        Bench(seed, Budget(work - len(a.tokens) - len(b.tokens)), conventions.log == "e", conventions.decimals),
    )


@lru_cache(maxsize=4096)
def _gold(gold: str, thousands: bool) -> Answer | Fault:
    """A gold as it was read; rollouts of one task share it."""
    try:
        return read(gold, thousands)
    except Fault as fault:
        return fault.with_traceback(None)


@lru_cache(maxsize=4096)
def _complaint(gold: str, conventions: Conventions) -> str:
    """Why the gold is not even the same as itself, as 1/(2-2) is not; "" where it is. At half the work that an answer
    may take, for both come out of one verdict's time: TOO_DEAR where that does not tell."""
    answer = _gold(gold, conventions.thousands)
    assert isinstance(answer, Answer)
    if exact(answer.node) is not None:
        return ""  # a number
    try:
        if _comparison(answer, answer, conventions, WORK // 2).same(answer.node, answer.node):
            return ""
        return "it is undefined"
    except OverLimit:
        return TOO_DEAR
    except (Fault, Undefined) as fault:
        return str(fault)


def kind(node: Node) -> str:
    """What a node is, in words."""
    if isinstance(node, Labelled):
        return f"{', '.join(node.names)} = {kind(node.value)}"
    if isinstance(node, Either):
        return " or ".join(map(kind, node.readings))
    return _KINDS.get(type(node).__name__, "a formula")


_KINDS = {
    "Num": "a number", "Dec": "a decimal", "Const": "a number", "Based": "a number in a base", "Degree": "an angle",
    "Percent": "a percentage", "Quantity": "a quantity", "Text": "a text", "Tuple": "a tuple", "Many": "a list",
    "Set": "a set", "RealSet": "a set of numbers", "Matrix": "a matrix", "Equation": "an equation", "Ratio": "a ratio",
    "Inequality": "an inequality", "Chain": "a chain of equalities", "Time": "a time",
}  # fmt: skip

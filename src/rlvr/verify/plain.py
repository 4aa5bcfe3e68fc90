"""The `plain` verifier: as numbers where both are numbers, else as text. What `last_box` and its kin compare with."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr.records import Task, Verdict
from rlvr.registry import register
from rlvr.verify.numeric import Number, Numeric, parse_number
from rlvr.verify.verifier import LONGEST_ANSWER, fingerprint, gold_text, right, squeeze, unknown, wrong

_EXACTLY = Numeric()


@register("verifier", "plain")
@dataclass(frozen=True, slots=True)
class Plain:
    """Right iff the text equals the gold: by value where both are numbers (see `numeric`), else by its characters.

    Characters are compared without the space around punctuation, marks of mathematics or emphasis around the whole,
    and a final full stop. Nothing is simplified: `1/2` is `0.5`, but `\\frac12` is only itself. Reasons: "equal",
    "different", "no_answer", "over_limit" (over 100 000 characters), "bad_gold".
    """

    @property
    def fingerprint(self) -> str:
        return fingerprint("plain", self)

    def __call__(self, text: str, task: Task) -> Verdict:
        gold = gold_text(task)
        if gold is None:
            return unknown("bad_gold")
        answer = text.strip()
        if not answer:
            return wrong("no_answer")
        if len(answer) > LONGEST_ANSWER:
            return wrong("over_limit")
        a, g = parse_number(answer), parse_number(gold)
        if isinstance(a, Number) and isinstance(g, Number):
            same = _EXACTLY.same(a, g)
        else:
            same = squeeze(answer) == squeeze(gold)
        return right(answer) if same else wrong("different", answer)

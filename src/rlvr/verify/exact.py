"""The `exact` verifier: the whole text is the gold, up to white space."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from rlvr.records import Task, Verdict
from rlvr.registry import register
from rlvr.verify.verifier import LONGEST_ANSWER, fingerprint, gold_text, right, unknown, wrong


@register("verifier", "exact")
@dataclass(frozen=True, slots=True)
class Exact:
    """Right iff text and gold are the same characters, every run of white space being one space.

    `fold=True` ignores upper and lower case. Two Unicode spellings of one character (composed or not) are the same.
    Reasons: "equal", "different", "no_answer" (nothing there), "over_limit" (over 100 000 characters), "bad_gold".
    """

    fold: bool = False

    @property
    def fingerprint(self) -> str:
        return fingerprint("exact", self)

    def __call__(self, text: str, task: Task) -> Verdict:
        gold = gold_text(task)
        if gold is None:
            return unknown("bad_gold")
        answer = text.strip()
        if not answer:
            return wrong("no_answer")
        if len(answer) > LONGEST_ANSWER:
            return wrong("over_limit")
        same = self._normal(answer) == self._normal(gold)
        return right(answer) if same else wrong("different", answer)

    def _normal(self, text: str) -> str:
        text = " ".join(unicodedata.normalize("NFC", text).split())
        return text.casefold() if self.fold else text

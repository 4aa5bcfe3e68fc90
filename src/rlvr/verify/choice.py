"""The `choice` verifier: which letter does the text choose?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from rlvr.records import Task, Verdict
from rlvr.registry import register
from rlvr.verify.verifier import LONGEST_TEXT, fingerprint, gold_text, right, unknown, wrong

# Between a mark and its letter; possessive, so that no text makes the search go back.
_CLING = r"(?:[\s*_`\"'$(\[{:]|\\(?:boxed|fbox|text(?:bf)?|math(?:rm|bf))\b){0,12}+"
# Every pattern begins with a set of characters or at a line's start: a search then skips what cannot begin a match many
# times faster. What must stand before that first character is looked at behind it.
_SAYS = (
    r"[aAcC](?<!\w.)(?<!(?i:wrong ).)(?<!(?i:incorrect ).)"
    r"(?:(?<=[aA])(?i:nswer)|(?<=[cC])(?i:orrect\s(?:option|choice)))[*_`]{0,3}\s?(?:(?i:is)\b|:|=)"
)


@dataclass(frozen=True, slots=True)
class _Patterns:
    # Each has the letter as group 1, and a rival that it is offered with as group 2. The first two begin with _SAYS.
    marks: tuple[re.Pattern[str], ...]
    weak: tuple[re.Pattern[str], ...]
    bare: re.Pattern[str]


@lru_cache
def _patterns(options: str) -> _Patterns:
    upper, lower, either = f"[{options}]", f"[{options.lower()}]", f"[{options}{options.lower()}]"
    words = "".join(letter for letter in options if letter not in "AI")
    alone = r"(?![A-Za-z0-9'’]|-\w)"
    join = r"[\s)\]*_`$}]{0,4}(?:,|/|&|or\b|and\b)[\s(*_`$\[{]{0,4}(?:or\s|and\s)?\(?"
    marks = (
        rf"{_SAYS}{_CLING}(?:(?i:option|choice)\s{_CLING})?({upper}){alone}(?:{join}({upper}){alone})?",
        rf"{_SAYS}{_CLING}({lower})\)()",
        rf"\\(?:boxed|fbox)\s?\{{{_CLING}({either})(?=\s?(?:[)\]}}.:*,$/&]|or\b|and\b))(?:{join}({either}){alone})?",
        rf"(?m:^[ \t]*#{{1,6}}[ \t]*\(?({upper})\)?[ \t.]*$)()",
    )
    weak = (
        rf"[(\[](?<![\w\]].)(?<!not .)({either})[)\]](?! is (?:wrong|incorrect|false|not)\b)",
        rf"(?m:^[ \t>*_-]{{0,6}}({upper})[.):](?=[\s*_]|$))",
        rf"(?m:^[ \t*_`]{{0,6}}({upper})[ \t*_`.]{{0,6}}$)",
    )
    bare = rf"([{words}])(?<![A-Za-z0-9'’\\-].){alone}" if words else r"()(?!)"
    return _Patterns(tuple(map(re.compile, marks)), tuple(map(re.compile, weak)), re.compile(bare))


def chosen(text: str, options: str) -> tuple[str | None, str]:
    """(the letter, "") or (None, "no_answer" or "ambiguous").

    A marked letter counts: in a box, after "answer is" or "answer:", alone on a line behind `#`. Of several the last
    holds; one that is offered together with another ("A or B") is "ambiguous". Without a mark a letter must stand
    apart, as `(B)`, `B.` at the start of a line or `B` alone, and no other letter may be mentioned.
    """
    found = _patterns(options)
    last: re.Match[str] | None = None
    folded = text.casefold()
    says = "nswer" in folded or "orrect" in folded  # a scan for two words costs a fiftieth of one for a pattern
    for pattern in found.marks if says else found.marks[2:]:
        for m in pattern.finditer(text):
            if last is None or m.start(1) > last.start(1):
                last = m
    if last is not None:
        letter, rival = last[1].upper(), (last[2] or "").upper()
        return (None, "ambiguous") if rival and rival != letter else (letter, "")
    lone = text.strip(" \t\r\n*_`.()[]$\"'")
    if len(lone) == 1 and lone.upper() in options:
        return lone.upper(), ""
    apart: set[str] = set()
    for pattern in found.weak:
        for m in pattern.finditer(text):
            apart.add(m[1].upper())
            if len(apart) > 1:
                return None, "no_answer"
    if apart and all(m[1] in apart for m in found.bare.finditer(text)):
        return apart.pop(), ""
    return None, "no_answer"


@register("verifier", "choice")
@dataclass(frozen=True, slots=True)
class Choice:
    """Right iff the text chooses the gold's letter.

    `options` are the letters there are, in capitals ("ABCDEFGHIJ" for ten). The gold is one of them, bare or as in
    `(B)`. Reasons: "equal", "different", "no_answer" (nothing chosen, or several letters mentioned and none marked),
    "ambiguous" ("the answer is A or B"), "over_limit" (over four million characters), "bad_gold".
    """

    options: str = "ABCDE"

    def __post_init__(self) -> None:
        letters = self.options
        if not (letters.isascii() and letters.isalpha() and letters.isupper() and len(set(letters)) == len(letters)):
            raise ValueError(f"choice: options are different capital letters, such as 'ABCD', not {letters!r}")

    @property
    def fingerprint(self) -> str:
        return fingerprint("choice", self)

    def __call__(self, text: str, task: Task) -> Verdict:
        gold = (gold_text(task) or "").strip(" \t\n().").upper()
        if len(gold) != 1 or gold not in self.options:
            return unknown("bad_gold")
        if len(text) > LONGEST_TEXT:
            return wrong("over_limit")
        letter, fault = chosen(text, self.options)
        if letter is None:
            return wrong(fault)
        return right(letter) if letter == gold else wrong("different", letter)

"""The `numeric` verifier: numbers are compared as exact fractions.

Read are integers, decimals (`.5`, `7.`), thousands groups (`1,234`; also `1{,}234`, `1\\,234`), fractions `a/b`,
mixed numbers `2 2/3`, scientific notation with an exponent of at most 4096, a sign (also U+2212), a currency sign in
front and a percent sign behind. Not read are nan, inf, units, words, and formulas: a number inside one is not its
value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, get_args

from rlvr.records import Task, Verdict
from rlvr.registry import register
from rlvr.verify.verifier import (
    LONGEST_ANSWER,
    LONGEST_NUMBER,
    fingerprint,
    gold_text,
    right,
    unknown,
    unwrap,
    wrong,
)

LARGEST_EXPONENT = 4096  # 10**4096 is made and compared in microseconds
LONGEST_WORD = 2 * LONGEST_NUMBER  # a fraction of two longest numbers
WINDOW = 4 * LONGEST_WORD  # characters before the last digit in which the last number must begin

Percent = Literal["same", "ignore", "hundredth"]

_WHOLE = r"(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+)"
_NUMBER = re.compile(
    rf"""(?P<sign>[+-]?)\ ?(?P<currency>[$€£¥₹]?)\ ?(?P<inner_sign>[+-]?)
    (?:(?:(?P<whole>{_WHOLE})\ +)?(?P<top>{_WHOLE})\ ?/\ ?(?P<bottom>{_WHOLE})
      |(?P<decimal>{_WHOLE}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE](?P<exponent>[+-]?[0-9]{{1,9}}))?)
    \ ?(?P<percent>%|percent)?""",
    re.VERBOSE,
)
_SPELLINGS = (("\u2212", "-"), ("{,}", ","), (",\\!", ","), ("\\%", "%"), ("\\$", "$"))
_THIN_GROUPS = re.compile(r"(?<=[0-9])(?:\\,|[\u00a0\u202f\u2009])(?=[0-9]{3}(?![0-9]))")


@dataclass(frozen=True, slots=True)
class Number:
    """An exact value and how it was dressed."""

    value: Fraction
    percent: bool = False
    currency: str = ""


def parse_number(text: str) -> Number | str:
    """The number that the whole text is, or the reason why it is none: "no_answer", "unparsable", "over_limit"."""
    text = unwrap(text)
    if not text:
        return "no_answer"
    if text.removeprefix("-").isdigit() and text.isascii() and len(text) <= LONGEST_NUMBER:
        return Number(Fraction(int(text)))  # most answers; the rest of this finds the same
    if len(text) > LONGEST_WORD:
        return "over_limit" if text[:1].isdigit() else "unparsable"
    for written, meant in _SPELLINGS:
        text = text.replace(written, meant)
    found = _NUMBER.fullmatch(_THIN_GROUPS.sub(",", text))
    if found is None or (found["sign"] and found["inner_sign"]):
        return "unparsable"
    digits = [found[name].replace(",", "") if found[name] else "" for name in ("whole", "top", "bottom", "decimal")]
    if max(map(len, digits)) > LONGEST_NUMBER or abs(int(found["exponent"] or 0)) > LARGEST_EXPONENT:
        return "over_limit"
    whole, top, bottom, decimal = digits
    if decimal:
        value = Fraction(decimal) * Fraction(10) ** int(found["exponent"] or 0)
    elif int(bottom) == 0 or (whole and int(top) >= int(bottom)):  # "4 10/3" is no mixed number
        return "unparsable"
    else:
        value = int(whole or 0) + Fraction(int(top), int(bottom))
    if "-" in (found["sign"], found["inner_sign"]):
        value = -value
    return Number(value, bool(found["percent"]), found["currency"])


# Around a number in prose: what parts it from its neighbours ("|" then stands for it), and what may cling to it.
_PARTS = re.compile(
    r"</?[A-Za-z_]{1,32}>|\\(?:boxed|fbox|text|textbf|mathrm|mathbf)\s?\{|\\[()\[\]]|\\q?quad|\\\\|[=≈\n]|(?<![0-9]):|:(?![0-9])"
)
_LEFT, _RIGHT = "*_`\"'([{<~", "*_`\"')]}>.,;:!?~$"
_OPERATORS = frozenset(["+", "-", "*", "/", "^", "×", "·", "÷", "±", "\u2212"])
_DIGIT = re.compile("[0-9]")
_INTEGER = re.compile("[-+\u2212]?[$€£¥₹]?[0-9][0-9,]*")


def last_number(text: str) -> tuple[str, Number | str]:
    """(the last number as it was written, its value or the reason why it has none).

    The last word with a digit counts, with the word before it where both make a mixed number. A word that is more
    than a number (`2x`, `10^3`, `(2,3)`, `5-7`), or a number that an operator or a macro ties to its neighbours (`4 +
    5`, `5 \\pi`), is "unparsable": the answer must not be a piece of a formula.
    """
    end = max(text.rfind(digit) for digit in "0123456789")
    if end < 0:
        return "", "no_answer"
    for window in (WINDOW // 20, WINDOW):  # the short one is nearly always enough
        start = max(0, end - window)
        line = _PARTS.sub(" | ", text[start : end + 200].replace("{,}", ",")).split()
        at = max(i for i, word in enumerate(line) if _DIGIT.search(word))
        if at > 2 or start == 0:
            break
    word, before, after = line[at], line[at - 1] if at else "|", line[at + 1] if at + 1 < len(line) else "|"
    if at == 0 and start > 0:
        return word[:LONGEST_WORD], "over_limit"
    if after.startswith(("%", "\\%", "percent")):
        word, after = word + "%", "|"
    bullet = before == "*" and (at < 2 or line[at - 2] == "|")
    tied = (before in _OPERATORS and not bullet) or after[0] in "+×·÷/^±" or after in _OPERATORS
    if tied or re.match(r"\\[A-Za-z]", after) or ("," in word and any(opened in word for opened in "([{")):
        return word, "unparsable"
    bare = word.lstrip(_LEFT).rstrip(_RIGHT)
    whole = before.lstrip(_LEFT)
    if "/" in bare and _INTEGER.fullmatch(whole):
        bare = f"{whole} {bare}"
    return bare, parse_number(bare)


@register("verifier", "numeric")
@dataclass(frozen=True, slots=True)
class Numeric:
    """Right iff the text is a number within tolerance of the gold: |answer - gold| <= max(absolute, relative * |gold|).

    Arithmetic is exact (fractions), so with both tolerances 0, the default, only the same number is right.
    `last=True` takes the last number in the text in place of the whole text. `percent` says what a percent sign
    means: "same" (35% is 35% and nothing else), "ignore" (28% = 28), "hundredth" (28% = 0.28). Two different currency
    signs are different; one that is missing is not. Reasons: "equal", "different", "no_answer", "unparsable",
    "over_limit", "bad_gold".
    """

    last: bool = False
    relative: float = 0.0
    absolute: float = 0.0
    percent: Percent = "same"
    _tolerances: tuple[Fraction, Fraction] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.percent not in get_args(Percent):
            raise ValueError(f"numeric: percent is one of {', '.join(get_args(Percent))}, not {self.percent!r}")
        for name in ("relative", "absolute"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 <= value < float("inf")):
                raise ValueError(f"numeric: {name} is a tolerance, a finite number from 0, not {value!r}")
        # through text: 1e-6 means the decimal, not its nearest binary fraction
        object.__setattr__(self, "_tolerances", (Fraction(str(self.relative)), Fraction(str(self.absolute))))

    @property
    def fingerprint(self) -> str:
        return fingerprint("numeric", self)

    def __call__(self, text: str, task: Task) -> Verdict:
        gold_words = gold_text(task)
        gold = "bad_gold" if gold_words is None else parse_number(gold_words)
        if isinstance(gold, str):
            return unknown("bad_gold")
        if self.last:
            written, answer = last_number(text)
        else:
            written = text.strip()[: LONGEST_ANSWER + 1]
            answer = parse_number(written)
        if isinstance(answer, str):
            return wrong(answer, written or None)
        return right(written) if self.same(answer, gold) else wrong("different", written)

    def same(self, answer: Number, gold: Number) -> bool:
        """Whether two numbers are one to this verifier."""
        if answer.currency and gold.currency and answer.currency != gold.currency:
            return False
        if self.percent == "same" and answer.percent != gold.percent:
            return False
        a, g = self._size(answer), self._size(gold)
        relative, absolute = self._tolerances
        return a == g or abs(a - g) <= max(absolute, relative * abs(g))

    def _size(self, number: Number) -> Fraction:
        return number.value / 100 if number.percent and self.percent == "hundredth" else number.value

"""Answers made to fool a verifier or to hang it. None of them is right, and each must be judged soon."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

DECADES = 13  # of the ladder: up to 10**12
GOLD = "42"


class Hostile(NamedTuple):
    family: str
    name: str
    text: str
    gold: str = GOLD
    raw: bool = False


def answers() -> Iterator[Hostile]:
    """The list, by hand: why each is wrong is in its family's name."""
    for text in ("\\neq 42", "\\sim 42", "\\not= 42", "not 42", "42 is wrong", "\\lnot 42", "> 42", "\\approx 41"):
        yield Hostile("negated", text, text)
    for text in (
        "42,42", "41 or 42", "41, 42", "42, 43", "\\{41, 42\\}", "42 \\text{ or } 43", "(42, 43)", "[41, 43]",
        "42/43", "41 < 42 < 43", "1, 2, 3, 42",
    ):  # fmt: skip
        yield Hostile("hedged", text, text)
    for text in ("42\\%", "42_{7}", "42^\\circ 1'", "42i", "42x", "42 + x", "42!", "-42", "4 2", "42.0000001"):
        yield Hostile("dressed", text, text)
    for text in ("42+10^{-60}", "42+10^{-12}", "42.000000000000000000000000001", "42 - 10^{-30}\\pi"):
        yield Hostile("near", text, text)
    for text in ("", " ", ".", "?", "\\text{}", "{}", "$$", "nan", "inf", "None", "True", "NaN", "null", "x", "gold"):
        yield Hostile("empty", repr(text), text)
    for text in (
        "exit(0)",
        "[42][0] if False else 43",
        "42 if 0 else 41",
        "0*42",
        "float('nan')",
        "__name__",
        "{{42}+1}",
    ):
        yield Hostile("code", text, text)
    for text in (
        "\\boxed{41}\\boxed{42}\\boxed{43}", "\\boxed{42} \\text{ or } \\boxed{43}",
        "The answer is 42, no: \\boxed{41}", "\\boxed{}", "answer: 42 answer: 43", "1 2 3 4 5 ... 42 43 44 45",
    ):  # fmt: skip
        yield Hostile("placed", text, text, raw=True)
    yield from _large()


def _large() -> Iterator[Hostile]:
    """Long, deep or costly."""
    for name, text in (
        ("a tower of powers", "9^{9^{9^{9^{9}}}}"),
        ("a power too large", "10^{10^{10}}"),
        ("a factorial too large", "(10^9)!"),
        ("factorials of factorials", "((9!)!)!"),
        ("a root of a tower", "\\sqrt{2^{2^{2^{30}}}}"),
        ("division by zero", "\\frac{42}{0}"),
        ("zero over zero", "\\frac{0}{0}"),
        ("a binomial too large", "\\binom{10^9}{5\\cdot 10^8}"),
        ("100 000 digits", "4" * 100_000),
        ("a million digits", "4" * 1_000_000),
        ("a fraction of 50 000 digits", "4" * 50_000 + "/" + "7" * 50_000),
        ("brackets, 5000 deep", "(" * 5_000 + "43" + ")" * 5_000),
        ("braces, 5000 deep", "{" * 5_000 + "43" + "}" * 5_000),
        ("fractions, 300 deep", "\\frac{1}{" * 300 + "43" + "}" * 300),
        ("roots, 300 deep", "\\sqrt{" * 300 + "43" + "}" * 300),
        ("2000 terms", "+".join(f"x^{{{i}}}" for i in range(2000))),
        ("an expanded product", "*".join(f"(x+{i})" for i in range(1, 120))),
        ("a power of a sum", "(x+y+z+1)^{200}"),
        ("10 000 commas", ",".join(map(str, range(10_000)))),
        ("100 000 spaces", " " * 100_000 + "43"),
        ("100 000 backslashes", "\\" * 100_000),
        ("50 000 dollars", "$" * 50_000),
        ("20 000 minus signs", "-" * 20_000 + "43"),
        ("10 000 letters", "a" * 10_000),
        ("5000 boxes", "\\boxed{" * 5_000),
        ("a long line of words", "the answer is " * 20_000),
        ("control characters", "\x00\x1b[31m43\x07"),
        ("right-to-left marks", "\u202e43\u202c"),
        ("surrogate-like escapes", "\\ud800\\udfff"),
        ("a matrix of 40 000 entries", "\\begin{pmatrix}" + "&".join(["1"] * 40_000) + "\\end{pmatrix}"),
    ):
        yield Hostile("large", name, text)

"""Numbers, names and words in a formula."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from rlvr.verify.math.lexicon import Token
from rlvr.verify.math.limits import Fault, OverLimit
from rlvr.verify.math.nodes import (
    INFINITY,
    Based,
    Const,
    Dec,
    Node,
    Num,
    RealSet,
    Set,
    Span,
    Text,
    Var,
    multiply,
    negate,
    whole,
)
from rlvr.verify.math.units import TALK

if TYPE_CHECKING:
    from rlvr.verify.math.parser import Parser

_APPLIED = frozenset("fghFG")
_MOST_LETTERS = 3  # that multiply each other without a sign, and are no word
_BASES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
          "twelve": 12, "sixteen": 16}  # fmt: skip


def number(p: Parser, token: Token) -> Node:
    raw = token.value
    kind = p.kind
    if raw.isalnum():  # also 3E2, which may be a number in a base
        if kind == "_":
            return based(p, raw)
        if kind == "v" and _hexadecimal(p):
            return based(p, raw + _letters_and_digits(p))
    if raw.isdigit():
        if kind == "n" or kind == "frac":
            mixed = _mixed(p, int(raw))
            if mixed is not None:
                return mixed
    elif kind == "overline" and "." in raw:
        return _repeating(p, raw)
    return plain(raw)


def plain(raw: str) -> Num | Dec:
    """A number by itself."""
    return Num(int(raw)) if raw.isdigit() else decimal(raw)


def _mixed(p: Parser, integer: int) -> Node | None:
    """2 2/3 and 2\\frac{2}{3}; None where no fraction of integers follows."""
    if p.kind == "n":
        top, slash, bottom, length = p.ahead(0), p.ahead(1), p.ahead(2), 3
        if slash.kind != "/" or bottom.kind != "n":
            raise Fault("unparsable", "two numbers stand side by side")
        a, b = top.value, bottom.value
    else:
        kinds = [p.ahead(i).kind for i in range(1, 7)]
        values = [p.ahead(i).value for i in range(1, 7)]
        if kinds == ["{", "n", "}", "{", "n", "}"]:
            a, b, length = values[1], values[4], 7
        elif kinds[:4] == ["{", "n", "}", "n"] and len(values[3]) == 1:
            a, b, length = values[1], values[3], 5
        elif kinds[:4] == ["n", "{", "n", "}"] and len(values[0]) == 1:
            a, b, length = values[0], values[2], 5
        elif kinds[0] == "n" and len(values[0]) == 2:
            a, b, length = values[0][0], values[0][1], 2
        else:
            return None
    if not (a.isdigit() and b.isdigit() and 0 < int(a) < int(b)):
        raise Fault("unparsable", "a mixed number needs a fraction below 1")
    p.at += length
    return Num(integer + Fraction(int(a), int(b)))


def _repeating(p: Parser, raw: str) -> Node:
    """0.1\\overline{6}"""
    p.at += 1
    cycle = p.raw()
    before, _, behind = raw.partition(".")
    if not (cycle.isdigit() and cycle.isascii() and len(cycle) <= 100 and (behind == "" or behind.isdigit())):
        raise Fault("unparsable", "a repeating decimal repeats digits")
    fixed = Fraction(int(before + behind or "0"), 10 ** len(behind))
    return Num(whole(fixed + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10 ** len(behind))))


def _hexadecimal(p: Parser) -> bool:
    """Whether letters and digits follow up to a subscript: 1A3_{16}."""
    i = 0
    while (token := p.ahead(i)).kind in ("v", "n", "c") and i < 40:
        if token.kind != "n" and token.value not in "ABCDEF":
            return False
        i += 1
    base = p.ahead(i + 2) if p.ahead(i + 1).kind == "{" else p.ahead(i + 1)
    return token.kind == "_" and base.value in ("11", "12", "13", "14", "15", "16")


def in_brackets(p: Parser) -> Node | None:
    """(1A3)_{16}, behind its opening bracket; None for anything else."""
    i = 0
    while p.ahead(i).kind in ("v", "n", "c") and p.ahead(i).value.isalnum() and i < 40:
        i += 1
    if p.ahead(i).kind != ")" or p.ahead(i + 1).kind != "_":
        return None
    found = "".join(p.ahead(j).value for j in range(i))
    if found.isdigit() or not set(found) <= set("0123456789ABCDEF"):
        return None
    p.at += i + 1
    return based(p, found)


def _letters_and_digits(p: Parser) -> str:
    out = ""
    while p.kind != "_":
        out += p.tokens[p.at].value
        p.at += 1
    return out


def based(p: Parser, digits: str) -> Node:
    p.expect("_")
    name = p.raw().strip("()")
    base = int(name) if name.isdigit() and name.isascii() and len(name) <= 2 else _BASES.get(name.lower(), 0)
    if not (2 <= base <= 36 and digits.isalnum()) or any(int(d, 36) >= base for d in digits):
        raise Fault("unparsable", f"{digits}_{name} is no number")
    return Based(digits.lstrip("0").upper() or "0", base)


def name(p: Parser, token: Token) -> Node:
    name = token.value
    if name in "ABCDEF" and _hexadecimal(p):
        return based(p, name + _letters_and_digits(p))
    while True:
        if p.kind == "'":
            p.at += 1
            name += "'"
        elif p.kind == "_":
            p.at += 1
            name += "_" + p.raw()
        else:
            break
    if p.kind == "(" and (name in _APPLIED or _is_definition(p)):
        close = _closing(p)
        inside = "".join(t.value or t.kind for t in p.tokens[p.at + 1 : close])
        p.at = close + 1
        return Var(f"{name}({inside})")
    if name.startswith("det "):
        raise Fault("unparsable", "determinants are not computed")
    return Var(name)


def _is_definition(p: Parser) -> bool:
    """Whether `(letters) =` follows, as in P(x) = ..."""
    i = 1
    while p.ahead(i).kind in ("v", ","):
        i += 1
    return i > 1 and p.ahead(i).kind == ")" and p.ahead(i + 1).kind == "="


def _closing(p: Parser) -> int:
    level = 0
    for i in range(p.at, len(p.tokens)):
        level += (p.tokens[i].kind == "(") - (p.tokens[i].kind == ")")
        if not level:
            return i
    raise Fault("unparsable", "a bracket is not closed")


def constant(p: Parser, token: Token) -> Node:
    return INFINITY if token.value == "inf" else Const(token.value)


def word(p: Parser, token: Token) -> Node:
    """A word where a formula should begin: upright letters, or letters that also spell a unit, as in mg."""
    if len(token.value) == 1:
        return name(p, token)
    if len(token.value) > _MOST_LETTERS or token.value.lower() in TALK:
        raise Fault("unparsable", f"the word {token.value!r} stands in a formula")
    return product_of(token.value)


def product_of(letters: str) -> Node:
    return multiply([Const(c) if c in "ei" else Var(c) for c in letters], [])


def accented(p: Parser, token: Token) -> Node:
    return Var(f"{token.value or token.kind} {p.raw()}")


def named_set(p: Parser, token: Token) -> Node:
    if token.value == "R":
        return RealSet((Span(negate(INFINITY), False, INFINITY, False),))
    return Set(()) if token.value == "empty" else Text(token.value)


def decimal(raw: str) -> Num | Dec:
    """The number that is written with a point or an exponent. Raises OverLimit for an exponent over 4000."""
    mantissa, _, exponent = raw.replace("E", "e").partition("e")
    before, _, behind = mantissa.partition(".")
    shift = int(exponent or 0) - len(behind)
    if abs(shift) > 4000:
        raise OverLimit("an exponent of over 4000")
    digits = before + behind
    value: int | Fraction = int(digits or "0")
    value = value * 10**shift if shift >= 0 else whole(Fraction(value, 10**-shift))
    return Dec(value, max(1, len(digits.lstrip("0"))), shift) if behind else Num(value)

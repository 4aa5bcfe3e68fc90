"""What an answer consists of, once it has been read.

Named tuples, because thousands are made in a second. Their classes tell them apart, never `==`: two of different
classes with the same fields are equal as tuples.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from rlvr.verify.math.limits import FOLDED_BITS, LONGEST_LITERAL, Fault, OverLimit

Exact: TypeAlias = int | Fraction


# Formulas that have a value


class Num(NamedTuple):
    """An exact number."""

    value: Exact


class Dec(NamedTuple):
    """A number written with a decimal point: how many significant digits it shows, and the last one's power of ten."""

    value: Exact
    digits: int
    place: int


class Var(NamedTuple):
    name: str  # "x", "x_1", "alpha", "f(x)"


class Const(NamedTuple):
    name: str  # "pi", "e", "i", "inf"


class Sign(NamedTuple):
    """What \\pm (1) or \\mp (-1) stands for; all in one answer switch together."""

    value: int


class Sum(NamedTuple):
    terms: tuple[Node, ...]


class Prod(NamedTuple):
    tops: tuple[Node, ...]
    bottoms: tuple[Node, ...]


class Neg(NamedTuple):
    arg: Node


class Pow(NamedTuple):
    base: Node
    exponent: Node


class Call(NamedTuple):
    name: str  # "sin", "abs", "factorial", "binom", "log" (with its base as second argument) ...
    args: tuple[Node, ...]


class Percent(NamedTuple):
    arg: Node


class Degree(NamedTuple):
    arg: Node


class Based(NamedTuple):
    """Digits in a base, as in 101_2."""

    digits: str
    base: int


# What is made of them


class Unit(NamedTuple):
    dims: tuple[tuple[str, int], ...]  # (("kg", 1), ("s", -2)), sorted
    factor: Fraction  # to the base units
    turns: int = 0  # the factor has pi to this power: degrees


class Quantity(NamedTuple):
    value: Node
    unit: Unit


class Text(NamedTuple):
    words: str  # in lower case, without punctuation
    written: str = ""


class Tuple(NamedTuple):
    """Ordered things in brackets; two of them may be the ends of an interval."""

    opened: str  # ( [ ] <
    items: tuple[Node, ...]
    closed: str


class Many(NamedTuple):
    """Several answers: `3, 8`, `3 or 8`, `\\pm 3`."""

    items: tuple[Node, ...]


class Set(NamedTuple):
    items: tuple[Node, ...]


class Span(NamedTuple):
    """One piece of a set of real numbers."""

    low: Node
    low_in: bool
    high: Node
    high_in: bool


class RealSet(NamedTuple):
    parts: tuple[Span, ...]
    name: str | None = None  # of the variable, where it came as an inequality


class SetOp(NamedTuple):
    """`cup`, `cap` or `setminus`; `both`: all of several inequalities, or any where no number satisfies all."""

    name: str
    args: tuple[Node, ...]


class Matrix(NamedTuple):
    rows: tuple[tuple[Node, ...], ...]


class Relation(NamedTuple):
    """What stands in the text: sides and the signs between them, not yet taken for one of the next four."""

    sides: tuple[Node, ...]
    signs: tuple[str, ...]  # = ~ != < <= > >= in


class Equation(NamedTuple):
    left: Node
    right: Node


class Inequality(NamedTuple):
    """left op right, op being one of < <= !="""

    left: Node
    op: str
    right: Node


class Labelled(NamedTuple):
    """`x = 5`, `D = (0, 3)`, `(p, q) = (3, 2)`: a value with the name of what it is; one name, or one for each part."""

    names: tuple[str, ...]
    value: Node


class Chain(NamedTuple):
    """`2 + 3 = 5`: things said to be equal."""

    parts: tuple[Node, ...]


class Ratio(NamedTuple):
    parts: tuple[Node, ...]


class Time(NamedTuple):
    """A time of day, or a ratio that looks like one."""

    fields: tuple[int, ...]  # hour, minute and perhaps second
    half: str = ""  # "am", "pm"


class Either(NamedTuple):
    """A text that people read in more than one way."""

    readings: tuple[Node, ...]


Node: TypeAlias = (
    Num | Dec | Var | Const | Sign | Sum | Prod | Neg | Pow | Call | Percent | Degree | Based
    | Quantity | Text | Tuple | Many | Set | RealSet | SetOp | Matrix | Relation | Equation | Inequality | Labelled
    | Chain | Ratio | Time | Either
)  # fmt: skip

SCALARS = frozenset([Num, Dec, Var, Const, Sign, Sum, Prod, Neg, Pow, Call, Percent, Degree, Based])
ONE = Num(1)
INFINITY = Const("inf")


def bits(value: Exact) -> int:
    """The length of an exact number's longer part."""
    if type(value) is int:
        return value.bit_length()
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def whole(value: Exact) -> Exact:
    """The same number, as an int where it is one: they compute ten times faster."""
    return value.numerator if value.denominator == 1 else value


def exact(node: Node) -> Exact | None:
    """The value of a number; None for any other formula."""
    return node.value if type(node) is Num or type(node) is Dec else None


def digits(value: int) -> str:
    """A number as it is written. Raises OverLimit where it is longer than any that is read."""
    if value.bit_length() > 4 * LONGEST_LITERAL:
        raise OverLimit(f"a number of over {LONGEST_LITERAL} digits")
    return str(value)


# Constructors that compute at once what is a small exact number


def add(terms: list[Node]) -> Node:
    if len(terms) == 1:
        return terms[0]
    total: Exact = 0
    for term in terms:
        value = exact(term)
        if value is None:
            return Sum(tuple(terms))
        total += value
        if bits(total) > FOLDED_BITS:
            return Sum(tuple(terms))
    return Num(whole(total))


def multiply(tops: list[Node], bottoms: list[Node]) -> Node:
    """The product of `tops` over the product of `bottoms`. Raises Fault where one of these is 0."""
    if not bottoms and len(tops) == 1:
        return tops[0]
    for node in bottoms:
        if exact(node) == 0:
            raise Fault("unparsable", "division by zero")
    total: Exact = 1
    for node in tops:
        value = exact(node)
        if value is None:
            return Prod(tuple(tops), tuple(bottoms))
        total *= value
        if bits(total) > FOLDED_BITS:
            return Prod(tuple(tops), tuple(bottoms))
    for node in bottoms:
        value = exact(node)
        if value is None:
            return Prod(tuple(tops), tuple(bottoms))
        total = Fraction(total) / value
        if bits(total) > FOLDED_BITS:
            return Prod(tuple(tops), tuple(bottoms))
    return Num(whole(total))


def negate(node: Node) -> Node:
    if type(node) is Num:
        return Num(-node.value)
    if type(node) is Dec:
        return node._replace(value=-node.value)
    if type(node) is Neg:
        return node.arg
    return Neg(node)


def power(base: Node, exponent: Node) -> Node:
    b, e = exact(base), exact(exponent)
    if b is None or e is None or e.denominator != 1 or abs(e.numerator) * max(1, bits(b) - 1) > FOLDED_BITS:
        return Pow(base, exponent)
    if not b and e < 0:
        raise Fault("unparsable", "division by zero")
    return Num(whole(Fraction(b) ** e.numerator))


def factorial(node: Node) -> Node:
    value = exact(node)
    if value is None or value.denominator != 1 or not 0 <= value <= 100:
        return Call("factorial", (node,))
    return Num(math.factorial(value.numerator))

"""The part of the grammar that reads what stands around a number: money before it, units behind it."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from rlvr.verify.math.limits import Fault
from rlvr.verify.math.nodes import Degree, Node, Num, Quantity, Unit, add, multiply, negate
from rlvr.verify.math.units import DEGREE, SCALES, SINGLE_LETTERS, UNITS, joined, named, prefix_power, scaled

if TYPE_CHECKING:
    from rlvr.verify.math.parser import Parser

_MOST_WORDS = 4  # in one unit
_BEHIND = frozenset(["w", "f", "money", "pmod", "/", "v", "*"])  # what a unit, or more of one, may begin with
_SQUARED = {"squared": 2, "cubed": 3}


def entry(parser: Parser) -> Node:
    """[-] [money] sum [unit]; several quantities of one kind in a row (5 ft 3 in) are added."""
    money: Unit | None = None
    negative = False
    token = parser.tokens[parser.at]
    if token.kind == "-" and parser.ahead(1).kind == "money":
        negative = True
        parser.at += 1
        token = parser.ahead(0)
    if token.kind == "money":
        money = UNITS[token.value]
        parser.at += 1
    node = parser.sum()
    if money is None and parser.tokens[parser.at].kind not in _BEHIND:
        return node
    node, unit = _unit(parser, node, money)
    if unit is None:
        return node
    node = parser.scalar(node)
    total = Quantity(negate(node) if negative else node, unit)
    if parser.kind == "n" and parser.ahead(1).kind in ("w", "f", "v"):
        more = entry(parser)
        if type(more) is not Quantity or more.unit.dims != unit.dims or more.unit.turns != unit.turns:
            raise Fault("unparsable", "two quantities side by side")
        factor = Num(more.unit.factor / unit.factor)
        return Quantity(add([total.value, multiply([more.value, factor], [])]), unit)
    return total


def _unit(parser: Parser, node: Node, money: Unit | None) -> tuple[Node, Unit | None]:
    """The number, multiplied by a scale word, and the unit behind it."""
    unit, power, words = money, 1, 0
    while True:
        kind, word = parser.ahead(0)
        follows = parser.ahead(1)
        if kind == "pmod":
            parser.at += 1
            unit = Unit(((f"mod {parser.raw()}", 1),), Fraction(1))
        elif kind == "money":
            parser.at += 1
            unit = joined(unit, UNITS[word]) if unit else UNITS[word]
        elif kind == "/" and (
            follows.kind == "w"
            or (unit is not None and (follows.kind == "v" or follows.value in UNITS))
            or parser.names_unit(1)
        ):
            parser.at += 1
            power = -1
        elif kind == "*" and follows.kind == "w" and unit is not None:
            parser.at += 1
        elif kind == "w" and word == "per":
            parser.at += 1
            power = -1
        elif kind == "w" and unit is money and word.lower() in SCALES:
            parser.at += 1
            node = multiply([parser.scalar(node), Num(SCALES[word.lower()])], [])
        elif kind == "v" and type(node) is Degree and unit is None and word in ("C", "F"):
            parser.at += 1
            return node.arg, Unit(((f"degree {word}", 1),), Fraction(1))
        elif kind == "w" or (kind == "f" and word in UNITS) or (kind == "v" and power < 0 and word in SINGLE_LETTERS):
            words += 1
            if words > _MOST_WORDS:
                raise Fault("unparsable", "too many words behind a number")
            parser.at += 1
            raised = prefix_power(word)
            if raised and parser.kind in ("w", "f"):
                word = parser.ahead(0).value
                parser.at += 1
            found = named(word)
            raised = _exponent(parser) or raised or 1
            found = scaled(found, raised * power)
            unit = joined(unit, found) if unit else found
        else:
            return node, unit


def _exponent(parser: Parser) -> int:
    """What `^2`, `^{-1}` or `squared` says behind a unit; 0 where nothing does."""
    kind, word = parser.ahead(0)
    if kind == "w" and word.lower() in _SQUARED:
        parser.at += 1
        return _SQUARED[word.lower()]
    if kind != "^":
        return 0
    parser.at += 1
    node = parser.script()
    if type(node) is not Num or type(node.value) is not int or not 0 < abs(node.value) < 10:
        raise Fault("unparsable", "a unit's exponent is a small integer")
    return node.value


def as_quantity(node: Node) -> Quantity | None:
    """90^\\circ as a quantity; None for what has no unit."""
    if type(node) is Quantity:
        return node
    if type(node) is Degree:
        return Quantity(node.arg, DEGREE)
    return None

"""Exact values of what the audit's generators write: the arithmetic behind every certificate.

A number or formula is a quotient of two sums; a sum maps a monomial to a rational coefficient. A monomial is a
square-free radicand, a power of i (0 or 1) and powers of symbols, pi among them. Square roots of different square-free
numbers are linearly independent over the rationals (Besicovitch 1940) and pi is transcendental, so two values are equal
exactly when their cross products are the same sums. Nothing here is shared with a verifier, and no float occurs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple


class Monomial(NamedTuple):
    radicand: int = 1
    imaginary: int = 0
    symbols: tuple[tuple[str, int], ...] = ()


Sum = dict[Monomial, Fraction]
_ONE: Sum = {Monomial(): Fraction(1)}


@dataclass(frozen=True, slots=True, eq=False)
class Exact:
    """`top / bottom`, both sums; `bottom` is not zero."""

    top: Sum
    bottom: Sum

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exact) and product(self.top, other.bottom) == product(other.top, self.bottom)

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Exact) -> Exact:
        return Exact(
            total(product(self.top, other.bottom), product(other.top, self.bottom)), product(self.bottom, other.bottom)
        )

    def __neg__(self) -> Exact:
        return Exact({m: -c for m, c in self.top.items()}, self.bottom)

    def __sub__(self, other: Exact) -> Exact:
        return self + -other

    def __mul__(self, other: Exact) -> Exact:
        return Exact(product(self.top, other.top), product(self.bottom, other.bottom))

    def __truediv__(self, other: Exact) -> Exact:
        if not other.top:
            raise ZeroDivisionError("division by an exact zero")
        if other.bottom == _ONE and other.top.keys() == {Monomial()}:
            return self * rational(1 / other.top[Monomial()])
        return Exact(product(self.top, other.bottom), product(self.bottom, other.top))

    def __pow__(self, exponent: int) -> Exact:
        out = rational(1)
        for _ in range(abs(exponent)):
            out = out * self
        return out if exponent >= 0 else rational(1) / out


def rational(value: Fraction | int) -> Exact:
    return Exact({Monomial(): Fraction(value)} if value else {}, _ONE)


def symbol(name: str) -> Exact:
    return Exact({Monomial(symbols=((name, 1),)): Fraction(1)}, _ONE)


def imaginary() -> Exact:
    return Exact({Monomial(imaginary=1): Fraction(1)}, _ONE)


def square_root(n: int) -> Exact:
    """The root of a positive integer."""
    outside, inside = 1, n
    divisor = 2
    while divisor * divisor <= inside:
        while inside % (divisor * divisor) == 0:
            inside //= divisor * divisor
            outside *= divisor
        divisor += 1
    return Exact({Monomial(radicand=inside): Fraction(outside)}, _ONE)


def total(a: Sum, b: Sum) -> Sum:
    out = dict(a)
    for m, c in b.items():
        out[m] = out.get(m, Fraction(0)) + c
    return {m: c for m, c in out.items() if c}


def product(a: Sum, b: Sum) -> Sum:
    out: Sum = {}
    for m, c in a.items():
        for n, d in b.items():
            key, factor = _times(m, n)
            out[key] = out.get(key, Fraction(0)) + c * d * factor
    return {m: c for m, c in out.items() if c}


def _times(m: Monomial, n: Monomial) -> tuple[Monomial, int]:
    common = _gcd(m.radicand, n.radicand)
    factor = common
    power = m.imaginary + n.imaginary
    if power == 2:
        power, factor = 0, -factor
    powers = dict(m.symbols)
    for name, exponent in n.symbols:
        powers[name] = powers.get(name, 0) + exponent
    return Monomial(m.radicand * n.radicand // common**2, power, tuple(sorted(powers.items()))), factor


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


class Shape(NamedTuple):
    """A value that is no number: `kind` says how its parts compare."""

    kind: str  # tuple, set, interval, matrix, equation, less, less_equal, quantity, word
    parts: tuple[Any, ...]


def same(a: Any, b: Any) -> bool:
    """Whether two values, numbers or shapes, mean the same. Texts and truth values compare as they are."""
    if not isinstance(a, Shape) or not isinstance(b, Shape):
        return type(a) is type(b) and a == b
    if a.kind != b.kind:
        return False
    if a.kind == "set":
        return _covers(a.parts, b.parts) and _covers(b.parts, a.parts)
    if a.kind == "equation":
        return _proportional(a.parts[0], b.parts[0], positive=False)
    if a.kind in ("less", "less_equal"):  # parts[0] < 0
        return _proportional(a.parts[0], b.parts[0], positive=True)
    return len(a.parts) == len(b.parts) and all(map(same, a.parts, b.parts))


def _covers(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return all(any(same(x, y) for y in b) for x in a)


def _proportional(a: Exact, b: Exact, positive: bool) -> bool:
    """Whether a is a rational multiple of b, both without denominators."""
    if set(a.top) != set(b.top) or not a.top:
        return False
    factors = {c / b.top[m] for m, c in a.top.items()}
    return len(factors) == 1 and (not positive or factors.pop() > 0)

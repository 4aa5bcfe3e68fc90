"""Reference answers of every kind that mathematics tasks have, as forms."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

from rlvr.audit.form import (
    LATEX,
    PI,
    UNITS,
    Form,
    I,
    Style,
    add,
    div,
    lit,
    mul,
    neg,
    num,
    power,
    ratio,
    root,
    show,
    sym,
)  # fmt: skip

EACH = 7  # golds of a kind; ours: with some twenty kinds this makes about five thousand pairs
SIZES = 10  # of integers, one a decade
WORDS = ("Tuesday", "Friday", "red", "even", "odd", "isosceles", "hexagon", "Saturn", "Alice", "square")
X, Y = sym("x"), sym("y")


@dataclass(frozen=True, slots=True)
class Gold:
    """One reference answer. `number` is its value where that is rational."""

    kind: str
    form: Form
    number: Fraction | None = None
    style: Style = LATEX

    @property
    def text(self) -> str:
        return show(self.form, self.style)


def golds(seed: int) -> list[Gold]:
    """EACH of every kind (SIZES integers), all texts different."""
    out: dict[str, Gold] = {}
    for kind, make in KINDS.items():
        wanted = len(out) + (SIZES if kind == "integer" else EACH)
        for gold in islice(make(random.Random(f"{seed}:{kind}")), 40 * EACH):
            out.setdefault(gold.text, gold)
            if len(out) == wanted:
                break
    return list(out.values())


def decimal(q: Fraction, least: int = 0) -> Form:
    """A terminating decimal, with at least so many places."""
    places = least
    while (q * 10**places).denominator > 1:
        places += 1
        if places > 40:
            raise ValueError(f"{q} has no terminating decimal")
    digits = str(abs(int(q * 10**places))).rjust(places + 1, "0")
    out = lit(f"{digits[:-places]}.{digits[-places:]}" if places else digits)
    return neg(out) if q < 0 else out


def linear(a: int, b: int, x: Form = X) -> Form:
    """a x + b, as people write it; a is not 0."""
    head = x if abs(a) == 1 else mul(num(abs(a)), x)
    head = neg(head) if a < 0 else head
    return head if b == 0 else add(head, num(b))


def polynomial(coefficients: list[int], x: Form = X) -> Form:
    """The highest power first; the leading coefficient is not 0."""
    terms = []
    for exponent, c in zip(range(len(coefficients) - 1, -1, -1), coefficients):
        if c:
            bare = power(x, exponent) if exponent > 1 else x
            term = num(abs(c)) if exponent == 0 else bare if abs(c) == 1 else mul(num(abs(c)), bare)
            terms.append(neg(term) if c < 0 else term)
    return add(*terms) if len(terms) > 1 else terms[0]


def _signed(r: random.Random, low: int, high: int) -> int:
    return r.choice((1, 1, -1)) * r.randint(low, high)


def _integer(r: random.Random) -> Iterator[Gold]:
    for decade in range(SIZES):  # each size once
        n = r.randint(10**decade + 1, 10 ** (decade + 1) - 2) * r.choice((1, 1, -1))
        yield Gold("integer", num(n), Fraction(n))


def _round(r: random.Random) -> Iterator[Gold]:
    while True:
        n = r.randint(1, 99) * 10 ** r.randint(3, 8)
        yield Gold("round_integer", num(n), Fraction(n))


def _computed(r: random.Random) -> Iterator[Gold]:
    """Integers with a short closed form."""
    while True:
        n = r.choice([2**k for k in range(3, 13)] + [3**k for k in range(2, 7)] + [k * k for k in range(5, 30)])
        yield Gold("power_integer", num(n), Fraction(n))


def _fraction(r: random.Random) -> Iterator[Gold]:
    while True:
        q = Fraction(_signed(r, 1, 60), r.choice((2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16, 25, 40)))
        if q.denominator > 1:
            yield Gold("fraction", ratio(q), q)


def _decimal(r: random.Random) -> Iterator[Gold]:
    while True:
        q = Fraction(_signed(r, 1, 9999), 10 ** r.randint(1, 4))
        if q.denominator > 1:
            yield Gold("decimal", decimal(q), q)


def _percent(r: random.Random) -> Iterator[Gold]:
    while True:
        q = Fraction(r.randint(1, 199), r.choice((1, 1, 2, 10)))
        yield Gold("percent", Form("percent", (decimal(q),)), q / 100)


def _radical(r: random.Random) -> Iterator[Gold]:
    while True:
        inner = r.choice((2, 3, 5, 6, 7, 10, 11, 13))
        yield Gold("radical", mul(num(r.randint(2, 12)), root(inner)))
        yield Gold("radical", div(root(inner), num(inner)))
        yield Gold("radical", add(num(r.randint(1, 9)), root(inner)))


def _pi(r: random.Random) -> Iterator[Gold]:
    while True:
        yield Gold("pi", mul(num(r.randint(2, 40)), PI))
        q = Fraction(r.randint(1, 9), r.choice((2, 3, 4, 5, 6)))
        if q.denominator > 1 and q.numerator > 1:
            yield Gold("pi", div(mul(num(q.numerator), PI), num(q.denominator)))


def _polynomial(r: random.Random) -> Iterator[Gold]:
    while True:
        a, c = r.randint(1, 4), r.randint(1, 4)
        b, d = _signed(r, 1, 9), _signed(r, 1, 9)
        coefficients = [a * c, a * d + b * c, b * d]
        if 0 not in coefficients:
            yield Gold("polynomial", polynomial(coefficients))


def _two_variables(r: random.Random) -> Iterator[Gold]:
    while True:
        yield Gold(
            "two_variables", add(mul(num(r.randint(2, 9)), X), mul(num(r.randint(2, 9)), Y), num(r.randint(1, 9)))
        )


def _rational_function(r: random.Random) -> Iterator[Gold]:
    while True:
        a, b, c, d = r.randint(1, 5), _signed(r, 1, 9), r.randint(1, 5), _signed(r, 1, 9)
        if a * d != b * c:
            yield Gold("rational_function", div(linear(a, b), linear(c, d)))


def _complex(r: random.Random) -> Iterator[Gold]:
    while True:
        b = _signed(r, 2, 9)
        yield Gold("complex", add(num(_signed(r, 1, 9)), neg(mul(num(-b), I)) if b < 0 else mul(num(b), I)))


def _entry(r: random.Random) -> Form:
    return ratio(Fraction(_signed(r, 1, 12), r.choice((1, 1, 2, 4, 5))))


def _tuple(r: random.Random) -> Iterator[Gold]:
    while True:
        yield Gold("tuple", Form("tuple", tuple(_entry(r) for _ in range(r.choice((2, 2, 3))))))


def _set(r: random.Random) -> Iterator[Gold]:
    while True:
        yield Gold("set", Form("set", tuple(map(num, r.sample(range(-9, 40), r.choice((2, 3, 4)))))))


def _interval(r: random.Random) -> Iterator[Gold]:
    while True:
        a, b = sorted(r.sample(range(-20, 20), 2))
        low, high = r.random() < 0.5, r.random() < 0.5
        yield Gold("interval", Form("interval", (low, num(a), num(b), high)))
        yield Gold("interval", Form("interval", (low, num(a), sym("inf"), True)))
        far = Form("interval", (high, num(b + 2), num(b + 7), low))
        yield Gold("interval", Form("union", (Form("interval", (low, num(a), num(b), high)), far)))


def _matrix(r: random.Random) -> Iterator[Gold]:
    while True:
        rows = tuple(tuple(_entry(r) for _ in range(r.choice((2,)))) for _ in range(2))
        yield Gold("matrix", Form("matrix", rows))
        yield Gold("matrix", Form("matrix", tuple((_entry(r),) for _ in range(3))))


def _equation(r: random.Random) -> Iterator[Gold]:
    while True:
        yield Gold("equation", Form("relation", ("=", Y, linear(_signed(r, 1, 9), _signed(r, 1, 12)))))


def _inequality(r: random.Random) -> Iterator[Gold]:
    while True:
        yield Gold("inequality", Form("relation", (r.choice(("<", ">", "<=", ">=")), X, num(_signed(r, 1, 30)))))


def _quantity(r: random.Random) -> Iterator[Gold]:
    while True:
        yield Gold("quantity", Form("quantity", (num(r.randint(2, 90)), r.choice(sorted(UNITS)))))


def _degrees(r: random.Random) -> Iterator[Gold]:
    while True:
        yield Gold("degrees", Form("degrees", (num(r.randint(2, 179)),)))


def _based(r: random.Random) -> Iterator[Gold]:
    while True:
        base = r.choice((2, 3, 5, 7, 8))
        digits = "".join(r.choice("0123456789"[:base]) for _ in range(r.randint(3, 6)))
        if digits[0] != "0":
            yield Gold("based", Form("based", (digits, base)))


def _word(r: random.Random) -> Iterator[Gold]:
    for word in WORDS:
        yield Gold("word", Form("word", (word,)))


KINDS: dict[str, Callable[[random.Random], Iterator[Gold]]] = {
    "integer": _integer, "round_integer": _round, "power_integer": _computed, "fraction": _fraction,
    "decimal": _decimal, "percent": _percent, "radical": _radical, "pi": _pi, "polynomial": _polynomial,
    "two_variables": _two_variables, "rational_function": _rational_function, "complex": _complex, "tuple": _tuple,
    "set": _set, "interval": _interval, "matrix": _matrix, "equation": _equation, "inequality": _inequality,
    "quantity": _quantity, "degrees": _degrees, "based": _based, "word": _word,
}  # fmt: skip
# what a verifier of plain numbers can be asked
NUMBERS = frozenset(["integer", "round_integer", "power_integer", "fraction", "decimal", "percent"])

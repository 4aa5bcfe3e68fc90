"""Rewrites of the form: another way to write the same value. Each is certified by the exact value of its own tree."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from math import isqrt
from typing import NamedTuple

from rlvr.audit.form import KEYBOARD, PI, UNITS, Form, I, add, div, lit, mul, neg, num, power, ratio, root, show
from rlvr.audit.golds import Gold, X, Y, decimal, linear


class Rewritten(NamedTuple):
    """A category, a name, a tree, and whether it is spelled as on a keyboard."""

    category: str
    rewrite: str
    form: Form
    keyboard: bool = False

    @property
    def text(self) -> str:
        return show(self.form, KEYBOARD) if self.keyboard else show(self.form)


def rewrites(gold: Gold, r: random.Random) -> Iterator[Rewritten]:
    """Every rewrite of the gold's form."""
    if gold.kind == "percent":
        yield from _percent(gold.number or Fraction(0))
    elif gold.number is not None:
        yield from (_integer if gold.number.denominator == 1 else _broken)(gold, gold.number, r)
    else:
        yield from _OTHERS.get(gold.kind, lambda form, r: iter(()))(gold.form, r)


def _integer(gold: Gold, q: Fraction, r: random.Random) -> Iterator[Rewritten]:
    n = int(q)
    size = abs(n)

    def signed(form: Form) -> Form:
        return neg(form) if n < 0 else form

    if n > 0:
        yield Rewritten("number_form", "plus sign", lit(f"+{n}", str(n)))
    yield Rewritten("number_form", "decimal .0", signed(decimal(Fraction(size), 1)))
    yield Rewritten("number_form", "decimal .00", signed(decimal(Fraction(size), 2)))
    if size >= 1000:
        groups = f"{size:,}"
        yield Rewritten("number_form", "thousands 1,234", signed(lit(groups, str(size))))
        yield Rewritten("number_form", "thousands 1{,}234", signed(lit(groups.replace(",", "{,}"), str(size))))
        yield Rewritten("number_form", "thousands 1\\,234", signed(lit(groups.replace(",", "\\,"), str(size))))
    zeros = len(str(size)) - len(str(size).rstrip("0"))
    if zeros >= 3:
        head = size // 10**zeros
        yield Rewritten("number_form", "times a power of ten", signed(mul(num(head), power(num(10), zeros))))
        short = f"{head // 10 ** (len(str(head)) - 1)}" if len(str(head)) == 1 else f"{str(head)[0]}.{str(head)[1:]}"
        whole = len(str(size)) - 1
        yield Rewritten("number_form", "scientific", signed(mul(lit(short), power(num(10), whole))))
        yield Rewritten("number_form", "e notation", signed(lit(f"{short}e{whole}")))
    k = r.randint(2, 9)
    yield Rewritten("exact_arith", "over one", signed(div(num(size), num(1))))
    yield Rewritten("exact_arith", "unreduced fraction", signed(div(num(size * k), num(k))))
    yield Rewritten("exact_arith", "slash fraction", signed(div(num(size * k), num(k))), True)
    yield Rewritten("exact_arith", "sum", add(num(n - k), num(k)))
    if size < 1000:
        yield Rewritten("exact_arith", "root of a square", signed(root(size * size)))
        yield Rewritten("exact_arith", "double minus", neg(num(-n)) if n < 0 else neg(neg(num(n))))
    if isqrt(size) ** 2 == size and size > 3:
        yield Rewritten("exact_arith", "square", signed(power(num(isqrt(size)), 2)))
    for base in (2, 3):
        exponent = next((e for e in range(2, 20) if base**e == size), None)
        if exponent:
            yield Rewritten("exact_arith", "power", signed(power(num(base), exponent)))
            yield Rewritten("exact_arith", "power", signed(power(num(base), exponent)), True)
            log = Form("log", (base, size))
            yield Rewritten("exact_arith", "product with a log", signed(div(mul(num(size), log), num(exponent))))
    for a in range(3, 8):
        fact = Form("factorial", (a,))
        if size % _factorial(a) == 0:
            yield Rewritten("exact_arith", "factorial", signed(mul(num(size // _factorial(a)), fact)))
            break


def _factorial(a: int) -> int:
    return a * _factorial(a - 1) if a > 1 else 1


def _broken(gold: Gold, q: Fraction, r: random.Random) -> Iterator[Rewritten]:
    """A number that is no integer."""
    size = abs(q)

    def signed(form: Form) -> Form:
        return neg(form) if q < 0 else form

    top, bottom, k = num(size.numerator), num(size.denominator), r.randint(2, 7)
    finite = not _without(size.denominator)
    if finite:
        plain = decimal(size)
        yield Rewritten("exact_arith", "decimal", signed(plain))
        yield Rewritten("number_form", "trailing zero", signed(decimal(size, len(plain.parts[0].split(".")[1]) + 1)))
        if size < 1:
            yield Rewritten("number_form", "no leading zero", signed(lit(plain.parts[0][1:])))
            digits = str(_integral(size))
            mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
            exponent = len(digits) - 1 - _places(size)
            yield Rewritten("number_form", "e notation", signed(lit(f"{mantissa}e{exponent}")))
            yield Rewritten("number_form", "scientific", signed(mul(lit(mantissa), power(num(10), exponent))))
    if q > 0 and finite:
        yield Rewritten("number_form", "plus sign", lit(f"+{plain.parts[0]}", plain.parts[0]))
    yield Rewritten("exact_arith", "reduced fraction", signed(div(top, bottom)))
    yield Rewritten("exact_arith", "slash fraction", signed(div(top, bottom)), True)
    yield Rewritten(
        "exact_arith", "unreduced fraction", signed(div(num(size.numerator * k), num(size.denominator * k)))
    )
    if q < 0:
        yield Rewritten("exact_arith", "minus above", div(neg(top), bottom))
        yield Rewritten("exact_arith", "minus below", div(top, neg(bottom)))
    whole, rest = divmod(size, 1)
    if whole:
        parts = (int(whole), rest.numerator, rest.denominator)
        yield Rewritten("mixed_number", "mixed number", signed(Form("mixed", parts)))
        yield Rewritten("mixed_number", "mixed number", signed(Form("mixed", parts)), True)
        yield Rewritten(
            "exact_arith",
            "sum",
            add(num(int(whole)), ratio(rest)) if q > 0 else add(num(-int(whole)), neg(ratio(rest))),
        )
    yield Rewritten("exact_arith", "quotient of fractions", signed(div(div(top, num(k)), div(bottom, num(k)))))
    yield Rewritten("exact_arith", "integer times fraction", signed(mul(top, div(num(1), bottom))))


def _without(denominator: int) -> bool:
    """Whether it has a prime factor that ten has not."""
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator > 1


def _places(q: Fraction) -> int:
    return next(p for p in range(1, 60) if (q * 10**p).denominator == 1)


def _integral(q: Fraction) -> int:
    return int(q * 10 ** _places(q))


def _percent(q: Fraction) -> Iterator[Rewritten]:
    yield Rewritten("number_form", "trailing zero", Form("percent", (decimal(q * 100, _places(q * 100) + 1),)))
    yield Rewritten("percent_value", "decimal", decimal(q))
    yield Rewritten("percent_value", "fraction", ratio(q))


def _radical(form: Form, r: random.Random) -> Iterator[Rewritten]:
    if form.op == "mul":
        a, inner = int(form.parts[0].parts[1]), form.parts[1].parts[0]
        yield Rewritten("exact_arith", "all under the root", root(a * a * inner))
        yield Rewritten("exact_arith", "part under the root", mul(num(a), root(inner * 4), div(num(1), num(2))))
        yield Rewritten("exact_arith", "root below", div(num(a * inner), root(inner)))
        yield Rewritten("algebra", "factors swapped", mul(root(inner), num(a)))
    elif form.op == "div":
        n = form.parts[1]
        yield Rewritten("exact_arith", "root below", div(num(1), root(form.parts[0].parts[0])))
        yield Rewritten("exact_arith", "fraction times root", mul(div(num(1), n), form.parts[0]))
    else:
        a, surd = form.parts
        yield Rewritten("algebra", "terms swapped", add(surd, a))
        yield Rewritten("exact_arith", "over two", div(add(num(2 * int(a.parts[1])), mul(num(2), surd)), num(2)))
        conjugate = add(a, neg(surd))
        product = int(a.parts[1]) ** 2 - surd.parts[0]
        if product:
            yield Rewritten("exact_arith", "conjugate below", div(num(product), conjugate))


def _pi(form: Form, r: random.Random) -> Iterator[Rewritten]:
    if form.op == "mul":
        k = int(form.parts[0].parts[1])
        yield Rewritten("algebra", "factors swapped", mul(PI, num(k)))
        yield Rewritten("exact_arith", "unreduced", div(mul(num(2 * k), PI), num(2)))
        yield Rewritten("algebra", "sum", add(mul(num(k - 1), PI), PI) if k > 2 else add(PI, PI))
    else:
        top, bottom = form.parts
        yield Rewritten("exact_arith", "fraction in front", mul(div(top.parts[0], bottom), PI))
        q = Fraction(int(top.parts[0].parts[1]), int(bottom.parts[1]))
        if not _without(q.denominator):
            yield Rewritten("exact_arith", "decimal in front", mul(decimal(q), PI))


def _polynomial(form: Form, r: random.Random) -> Iterator[Rewritten]:
    a, b, c = _coefficients(form)
    yield Rewritten("algebra", "terms reversed", add(*reversed(form.parts)))
    yield Rewritten("algebra", "plus zero", add(*form.parts, num(0)))
    yield Rewritten("algebra", "times one", mul(num(1), form))
    yield Rewritten("algebra", "Horner", add(mul(linear(a, b), X), num(c)))
    for p, s in ((p, s) for p in range(1, 17) if a % p == 0 for s in range(-9, 10) if s and c % s == 0):
        if p * (c // s) + s * (a // p) == b:
            yield Rewritten("algebra", "factored", mul(linear(p, s), linear(a // p, c // s)))
            yield Rewritten("algebra", "factored", mul(linear(p, s), linear(a // p, c // s)), True)
            break
    yield Rewritten("algebra", "split term", add(form.parts[0], linear(b - 1 or 2, 0), linear(b - (b - 1 or 2), c)))


def _coefficients(form: Form) -> tuple[int, int, int]:
    out = []
    for term in form.parts:
        sign, bare = (-1, term.parts[0]) if term.op == "neg" else (1, term)
        first = bare.parts[0] if bare.op == "mul" else bare
        out.append(sign * (int(first.parts[1]) if first.op == "lit" else 1))
    return out[0], out[1], out[2]


def _two_variables(form: Form, r: random.Random) -> Iterator[Rewritten]:
    a, b, c = form.parts
    yield Rewritten("algebra", "terms rotated", add(b, c, a))
    yield Rewritten("algebra", "factors swapped", add(a, mul(Y, b.parts[0]), c))
    yield Rewritten("algebra", "constant first", add(c, a, b))


def _rational_function(form: Form, r: random.Random) -> Iterator[Rewritten]:
    top, bottom = form.parts
    k = r.randint(2, 5)
    yield Rewritten("algebra", "scaled above and below", div(mul(num(k), top), mul(num(k), bottom)))
    yield Rewritten("algebra", "signs turned", div(neg(top), neg(bottom)))
    yield Rewritten("algebra", "split", add(div(top.parts[0], bottom), div(top.parts[1], bottom)))
    yield Rewritten("algebra", "product with the inverse", mul(top, div(num(1), bottom)))


def _complex(form: Form, r: random.Random) -> Iterator[Rewritten]:
    whole, part = form.parts
    inner = part.parts[0] if part.op == "neg" else part
    yield Rewritten("algebra", "terms swapped", add(part, whole))
    yield Rewritten("algebra", "i in front", add(whole, _like(part, mul(I, inner.parts[0]))))
    if part.op == "mul":
        yield Rewritten("algebra", "minus minus", add(whole, neg(neg(part))))


def _like(old: Form, new: Form) -> Form:
    return neg(new) if old.op == "neg" else new


def _entries(form: Form) -> Iterator[tuple[str, Form]]:
    """The entries of a tuple or a matrix in other forms."""
    rows = form.parts if form.op == "matrix" else (form.parts,)

    def rebuilt(change: dict[Form, Form]) -> Form:
        made = tuple(tuple(change.get(x, x) for x in row) for row in rows)
        return Form(form.op, made if form.op == "matrix" else made[0])

    flat = [x for row in rows for x in row]
    for name, change in (
        (
            "a decimal entry",
            {x: decimal(_rational(x)) for x in flat if x.op != "lit" and not _without(_rational(x).denominator)},
        ),
        (
            "an unreduced entry",
            {x: div(num(_rational(x).numerator * 2), num(_rational(x).denominator * 2)) for x in flat[:1]},
        ),
    ):
        if change and rebuilt(change) != form:
            yield name, rebuilt(change)


def _rational(form: Form) -> Fraction:
    if form.op == "lit":
        return Fraction(form.parts[1])
    if form.op == "neg":
        return -_rational(form.parts[0])
    return _rational(form.parts[0]) / _rational(form.parts[1])


def _tuple(form: Form, r: random.Random) -> Iterator[Rewritten]:
    yield from (Rewritten("exact_arith", name, changed) for name, changed in _entries(form))


def _set(form: Form, r: random.Random) -> Iterator[Rewritten]:
    yield Rewritten("order_free", "elements reversed", Form("set", form.parts[::-1]))
    yield Rewritten("order_free", "elements rotated", Form("set", form.parts[1:] + form.parts[:1]))


def _interval(form: Form, r: random.Random) -> Iterator[Rewritten]:
    if form.op == "union":
        yield Rewritten("order_free", "parts swapped", Form("union", form.parts[::-1]))
        return
    low, a, b, high = form.parts
    yield Rewritten("number_form", "decimal end", Form("interval", (low, decimal(_rational(a), 1), b, high)))


def _equation(form: Form, r: random.Random) -> Iterator[Rewritten]:
    _, y, line = form.parts
    k = r.randint(2, 5)
    yield Rewritten("order_free", "sides swapped", Form("relation", ("=", line, y)))
    yield Rewritten("algebra", "all on one side", Form("relation", ("=", add(y, neg(line)), num(0))))
    yield Rewritten("algebra", "scaled", Form("relation", ("=", mul(num(k), y), mul(num(k), line))))
    yield Rewritten("algebra", "terms swapped", Form("relation", ("=", y, add(line.parts[1], line.parts[0]))))


_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


def _inequality(form: Form, r: random.Random) -> Iterator[Rewritten]:
    sign, x, bound = form.parts
    k = r.randint(2, 5)
    yield Rewritten("order_free", "flipped", Form("relation", (_FLIPPED[sign], bound, x)))
    yield Rewritten("algebra", "scaled", Form("relation", (sign, mul(num(k), x), num(k * int(_rational(bound))))))
    yield Rewritten("algebra", "all on one side", Form("relation", (sign, add(x, num(-int(_rational(bound)))), num(0))))


def _quantity(form: Form, r: random.Random) -> Iterator[Rewritten]:
    amount, unit = form.parts
    base, factor = UNITS[unit]
    for other, (dimension, size) in UNITS.items():
        q = _rational(amount) * factor / size
        if dimension == base and other != unit and not _without(q.denominator):
            yield Rewritten("unit_conversion", "converted", Form("quantity", (decimal(q), other)))


def _based(form: Form, r: random.Random) -> Iterator[Rewritten]:
    yield Rewritten("text_wrap", "subscript without braces", form, True)


_OTHERS = {
    "radical": _radical, "pi": _pi, "polynomial": _polynomial, "two_variables": _two_variables,
    "rational_function": _rational_function, "complex": _complex, "tuple": _tuple, "matrix": _tuple, "set": _set,
    "interval": _interval, "equation": _equation, "inequality": _inequality, "quantity": _quantity, "based": _based,
}  # fmt: skip

"""Mutations: near misses that a careless verifier lets pass, certified to have another value."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from rlvr.audit.exact import same
from rlvr.audit.form import UNITS, Form, add, div, mul, neg, num, power, ratio, root, sym, value
from rlvr.audit.golds import WORDS, Gold, decimal


class Mutated(NamedTuple):
    category: str
    rewrite: str
    form: Form


def mutations(gold: Gold, r: random.Random) -> Iterator[Mutated]:
    """Every mutation of the gold."""
    if gold.kind == "percent":
        q = gold.number or Fraction(0)
        yield Mutated("factor", "percent sign lost", decimal(q * 100))
        yield Mutated("off_by_one", "percent + 1", Form("percent", (decimal(q * 100 + 1),)))
        yield Mutated("factor", "percent of percent", Form("percent", (decimal(q),)))
    elif gold.number is not None:
        yield from _number(gold, gold.number)
    else:
        yield from _structure(gold.form, r)
        if gold.kind == "radical":
            yield from _rounded(gold.form)


def _number(gold: Gold, q: Fraction) -> Iterator[Mutated]:
    write = decimal if gold.kind == "decimal" else ratio
    if q.denominator == 1:
        yield Mutated("off_by_one", "n + 1", num(int(q) + 1))
        yield Mutated("off_by_one", "n - 1", num(int(q) - 1))
        digits = str(abs(int(q)))
        swapped = digits[:-2] + digits[-1:] + digits[-2:-1]
        if len(digits) > 1 and swapped[0] != "0" and swapped != digits:
            yield Mutated("digit_swap", "last digits swapped", num(int(swapped) * (1 if q > 0 else -1)))
    else:
        last = Fraction(1, q.denominator) if gold.kind == "fraction" else Fraction(1, 10 ** _places(q))
        yield Mutated("off_by_one", "last place + 1", write(q + last))
        yield Mutated("off_by_one", "last place - 1", write(q - last))
        yield Mutated("inverted", "upside down", ratio(1 / q))
        near = Fraction(round(q * 1000), 1000)
        if near != q:
            yield Mutated("rounded", "three decimals", decimal(near))
    yield Mutated("sign", "sign flipped", write(-q))
    yield Mutated("factor", "x10", write(q * 10))
    yield Mutated("factor", "x100", write(q * 100))
    if q.denominator == 1 and q % 100 == 0:
        yield Mutated("factor", "/100", write(q / 100))
    else:
        yield Mutated("factor", "/100", decimal(q / 100) if gold.kind != "fraction" else ratio(q / 100))
    yield Mutated("negation", "\\neq", Form("relation", ("\\neq", sym(""), gold.form)))


def _places(q: Fraction) -> int:
    return next(p for p in range(60) if (q * 10**p).denominator == 1)


def _rounded(form: Form) -> Iterator[Mutated]:
    if form.op == "mul":
        a, inner = int(form.parts[0].parts[1]), form.parts[1].parts[0]
        yield Mutated("rounded", "two decimals", decimal(Fraction(round(a * inner**0.5 * 100), 100)))
        yield Mutated("radical", "root lost", mul(num(a), num(inner)))
        yield Mutated("radical", "factor under the root as it is", root(a * inner))


def _structure(form: Form, r: random.Random) -> Iterator[Mutated]:
    op, parts = form
    if op == "set":
        yield Mutated("element", "dropped", Form(op, parts[1:]))
        yield Mutated("element", "added", Form(op, (*parts, num(41))))
    if op == "tuple" and parts[0] != parts[-1]:
        yield Mutated("order", "tuple reversed", Form(op, parts[::-1]))
        yield (
            Mutated("element", "dropped", Form(op, parts[1:]))
            if len(parts) > 2
            else Mutated("element", "added", Form(op, (*parts, num(1))))
        )
    if op == "interval":
        low, a, b, high = parts
        yield Mutated("bracket", "left end", Form(op, (not low, a, b, high)))
        if b != sym("inf"):
            yield Mutated("bracket", "right end", Form(op, (low, a, b, not high)))
    if op == "union":
        yield Mutated("element", "part dropped", parts[0])
        yield Mutated(
            "bracket",
            "one end",
            Form(op, (parts[0]._replace(parts=(not parts[0].parts[0], *parts[0].parts[1:])), parts[1])),
        )
    if op == "matrix":
        turned = Form(op, tuple(zip(*parts)))
        yield Mutated("order", "transposed", turned)
        yield Mutated("order", "rows reversed", Form(op, parts[::-1]))
    if op == "relation":
        yield from _relation(parts)
    if op == "quantity":
        for other in [u for u in UNITS if u != parts[1]][::3]:
            yield Mutated("unit", "other unit", Form(op, (parts[0], other)))
    if op == "based":
        digits, base = parts
        yield Mutated("base", "base lost", num(int(digits)))
        wider = next(b for b in (8, 7, 5, 9) if b != base and b > int(max(digits)))
        yield Mutated("base", "other base", Form(op, (digits, wider)))
    if op == "word":
        yield Mutated("word", "other word", Form(op, (r.choice([w for w in WORDS if w != parts[0]]),)))
    if op in ("add", "mul", "div"):
        yield Mutated("sign", "sign flipped", neg(form))
        yield Mutated("factor", "doubled", mul(num(2), form))
        yield Mutated("off_by_one", "plus one", add(form, num(1)))
    if op == "div":
        yield Mutated("inverted", "upside down", div(parts[1], parts[0]))
    for name, changed in _nearby(form):
        yield Mutated("off_by_one", name, changed)


def _relation(parts: tuple[Any, ...]) -> Iterator[Mutated]:
    sign, a, b = parts
    if sign == "=":
        yield Mutated("sign", "right side negated", Form("relation", ("=", a, neg(b))))
        yield Mutated("relation", "inequality", Form("relation", ("<", a, b)))
    else:
        turned = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}[sign]
        strict = {"<": "<=", ">": ">=", "<=": "<", ">=": ">"}[sign]
        yield Mutated("relation", "turned", Form("relation", (turned, a, b)))
        yield Mutated("relation", "strictness", Form("relation", (strict, a, b)))


def _nearby(form: Form) -> Iterator[tuple[str, Form]]:
    """The form with its first, and with its last, whole number one larger; exponents as well."""
    for name, last in (("first number + 1", False), ("last number + 1", True)):
        changed = _bumped(form, last)
        if changed is not None:
            yield name, changed


def _bumped(form: Form, last: bool) -> Form | None:
    op, parts = form
    if op == "lit":
        return num(int(parts[0]) + 1) if parts[0].isdigit() else None
    if op == "root":
        return root(parts[0] + 1)
    if op == "pow":
        return power(parts[0], parts[1] + 1) if last else None
    order = range(len(parts) - 1, -1, -1) if last else range(len(parts))
    for i in order:
        part = parts[i]
        if isinstance(part, Form):
            changed: Any = _bumped(part, last)
        elif isinstance(part, tuple):  # a matrix's row
            row = _bumped(Form("tuple", part), last)
            changed = row.parts if row else None
        else:
            continue
        if changed is not None:
            return Form(op, (*parts[:i], changed, *parts[i + 1 :]))
    return None


def differs(form: Form, gold: Gold) -> bool:
    """The certificate: whether the form means something else than the gold."""
    if form.op == "relation" and form.parts[0] == "\\neq":
        return True  # a statement that it is not the gold is not the gold
    return not same(value(form), value(gold.form))

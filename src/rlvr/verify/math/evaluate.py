"""The value of a formula at a point."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from rlvr.verify.math.arithmetic import Field, Value
from rlvr.verify.math.limits import MOST_BITS, Fault, OverLimit, Undefined
from rlvr.verify.math.nodes import (
    Based,
    Call,
    Const,
    Dec,
    Degree,
    Exact,
    Neg,
    Node,
    Num,
    Percent,
    Pow,
    Prod,
    Sum,
    Var,
)


class Evaluator:
    """Evaluates formulas in a field, with these values for the variables. `log_e`: \\log without a base is natural."""

    __slots__ = ("field", "log_e", "point")

    def __init__(self, field: Field, point: Mapping[str, Exact], log_e: bool = False):
        self.field, self.point, self.log_e = field, point, log_e

    def __call__(self, node: Node) -> Value:
        """Raises Undefined where there is no value, OverLimit, and Fault for what is no formula."""
        self.field.budget.spend(1)
        compute = _VALUES.get(type(node))
        if compute is None:
            raise Fault("unparsable", f"a {type(node).__name__} has no value")
        return compute(self, node)

    def order(self, a: Value, b: Value) -> int:
        return self.field.sign(self.field.sub(a, b))

    def integer(self, value: Value) -> int:
        if type(value) is tuple or value.denominator != 1:
            raise Undefined("an integer is wanted")
        return int(value.numerator)


def _number(e: Evaluator, node: Num | Dec) -> Value:
    return e.field.exact(node.value)


def _variable(e: Evaluator, node: Var) -> Value:
    return e.point[node.name]


def _constant(e: Evaluator, node: Const) -> Value:
    if node.name == "pi":
        return e.field.pi()
    if node.name == "e":
        return e.field.e()
    if node.name == "i":
        return e.field.root(-1, 2)
    raise Undefined("infinity")


def _sum(e: Evaluator, node: Sum) -> Value:
    total = e(node.terms[0])
    for term in node.terms[1:]:
        total = e.field.add(total, e(term))
    return total


def _product(e: Evaluator, node: Prod) -> Value:
    total = e(node.tops[0])
    for factor in node.tops[1:]:
        total = e.field.mul(total, e(factor))
    for factor in node.bottoms:
        total = e.field.div(total, e(factor))
    return total


def _negative(e: Evaluator, node: Neg) -> Value:
    return e.field.neg(e(node.arg))


def _power(e: Evaluator, node: Pow) -> Value:
    exponent = e(node.exponent)
    if type(node.base) is Const and node.base.name == "e":
        return e.field.exp(exponent)
    return e.field.power(e(node.base), exponent)


def _percent(e: Evaluator, node: Percent) -> Value:
    return e.field.div(e(node.arg), 100)


def _degree(e: Evaluator, node: Degree) -> Value:
    return e.field.div(e.field.mul(e(node.arg), e.field.pi()), 180)


def _based(e: Evaluator, node: Based) -> Value:
    return e.field.exact(int(node.digits, node.base))


def _call(e: Evaluator, node: Call) -> Value:
    compute = _FUNCTIONS.get(node.name)
    if compute is None:
        raise Fault("unparsable", f"{node.name} has no value")
    return compute(e, *map(e, node.args))


_VALUES: dict[type, Callable[[Evaluator, Any], Value]] = {
    Num: _number, Dec: _number, Var: _variable, Const: _constant, Sum: _sum, Prod: _product, Neg: _negative,
    Pow: _power, Percent: _percent, Degree: _degree, Based: _based, Call: _call,
}  # fmt: skip


# Functions


def _log(e: Evaluator, x: Value, base: Value | None = None) -> Value:
    if base is None:
        base = e.field.e() if e.log_e else 10
    return e.field.div(e.field.log(x), e.field.log(base))


def _root(e: Evaluator, x: Value, n: Value) -> Value:
    if type(n) is not tuple and n.denominator == 1 and n:
        return e.field.root(x, n.numerator)
    return e.field.power(x, e.field.div(1, n))


def _factorial(e: Evaluator, x: Value) -> Value:
    n = e.integer(x)
    if n < 0:
        raise Undefined("the factorial of a negative number")
    if n > 3000 or n * max(1, n.bit_length() - 1) > 2 * MOST_BITS:
        raise OverLimit("a factorial beyond all measure")
    return e.field.exact(math.factorial(n))


def _binomial(e: Evaluator, x: Value, y: Value) -> Value:
    n, k = e.integer(x), e.integer(y)
    if n < 0 or k < 0:
        raise Undefined("a binomial coefficient of negative numbers")
    if min(k, n - k) * n.bit_length() > MOST_BITS:
        raise OverLimit("a binomial coefficient beyond all measure")
    e.field.budget.spend(2 + max(0, min(k, n - k)) // 4)
    return e.field.exact(math.comb(n, k))


def _mod(e: Evaluator, x: Value, y: Value) -> Value:
    whole_part = e.field.floor(e.field.div(x, y))
    return e.field.sub(x, e.field.mul(y, whole_part))


def _extreme(e: Evaluator, values: tuple[Value, ...], wanted: int) -> Value:
    best = values[0]
    for value in values[1:]:
        if e.order(value, best) == wanted:
            best = value
    return best


def _sgn(e: Evaluator, x: Value) -> Value:
    return e.field.sign(x)


def _ceil(e: Evaluator, x: Value) -> Value:
    return -e.field.floor(e.field.neg(x))


def _reciprocal(name: str) -> Callable[[Evaluator, Value], Value]:
    return lambda e, x: e.field.div(1, _plain(name)(e, x))


def _of_reciprocal(name: str) -> Callable[[Evaluator, Value], Value]:
    return lambda e, x: _plain(name)(e, e.field.div(1, x))


def _plain(name: str) -> Callable[[Evaluator, Value], Value]:
    at_zero = 1 if name in ("cos", "cosh") else 0

    def compute(e: Evaluator, x: Value) -> Value:
        if name not in ("acos", "acosh") and e.field.is_zero(x):
            return at_zero
        return e.field.function(name, x)

    return compute


def _arccot(e: Evaluator, x: Value) -> Value:
    """In (0, pi)."""
    return e.field.sub(e.field.div(e.field.pi(), 2), _plain("atan")(e, x))


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "sin": _plain("sin"), "cos": _plain("cos"), "tan": _plain("tan"),
    "sec": _reciprocal("cos"), "csc": _reciprocal("sin"), "cot": _reciprocal("tan"),
    "sinh": _plain("sinh"), "cosh": _plain("cosh"), "tanh": _plain("tanh"),
    "sech": _reciprocal("cosh"), "csch": _reciprocal("sinh"), "coth": _reciprocal("tanh"),
    "arcsin": _plain("asin"), "arccos": _plain("acos"), "arctan": _plain("atan"), "arccot": _arccot,
    "arcsec": _of_reciprocal("acos"), "arccsc": _of_reciprocal("asin"),
    "arsinh": _plain("asinh"), "arcosh": _plain("acosh"), "artanh": _plain("atanh"),
    "ln": lambda e, x: e.field.log(x), "log": _log, "root": _root, "abs": lambda e, x: e.field.abs(x),
    "floor": lambda e, x: e.field.floor(x), "ceil": _ceil, "sgn": _sgn,
    "max": lambda e, *xs: _extreme(e, xs, 1), "min": lambda e, *xs: _extreme(e, xs, -1),
    "gcd": lambda e, *xs: math.gcd(*map(e.integer, xs)),
    "lcm": lambda e, *xs: e.field.exact(math.lcm(*map(e.integer, xs))),
    "mod": _mod, "binom": _binomial, "factorial": _factorial,
}  # fmt: skip

"""Are two formulas the same, for every value of their variables?

Numbers are compared exactly where they are rational, else as floats that span at least forty digits more than lie
between the largest and the smallest number that occurs in either formula. Formulas with variables are compared at
several points, which are pseudo-random: the same for the same two texts, and nothing that a text could be written for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from mpmath import libmp

from rlvr.verify.math.arithmetic import NOISE, Budget, Field, Value
from rlvr.verify.math.evaluate import Evaluator
from rlvr.verify.math.limits import MOST_PRECISION, OverLimit, Undefined
from rlvr.verify.math.nodes import Call, Const, Dec, Degree, Exact, Neg, Node, Num, Percent, Pow, Prod, Sum, Var, exact

FIRST_PRECISION = 256  # bits
GUARD = 192  # bits beyond the span of what occurs: 58 digits, of which 32 bits may be rounding
_TRIES = 10
_LARGEST_KEY = 500  # binary exponent; squares of keys are still doubles
_DISCRETE = frozenset(["factorial", "binom", "gcd", "lcm"])
_BENT = frozenset(["abs", "root", "sgn", "max", "min", "floor", "ceil", "mod"])
_DOUBLE = 15  # decimal digits that a double always holds; it prints up to 17


class Shape(NamedTuple):
    """What occurs in a formula."""

    names: frozenset[str] = frozenset()
    rational: bool = True  # only + - * / and integer powers: exact at integers
    discrete: bool = False  # variables are integers
    imaginary: bool = False
    degree: int = 1  # of the highest power, roughly
    bent: bool = False  # a function changes its course somewhere: |x - 7| does at 7
    reach: int = 0  # then, the largest number


def shape(*nodes: Node) -> Shape:
    """Of several formulas together."""
    names: set[str] = set()
    rational, discrete, imaginary, degree, largest, bent = True, False, False, 1, 0, False
    stack: list[Any] = list(nodes)
    while stack:
        node = stack.pop()
        kind = type(node)
        if kind is Num or kind is Dec:
            value = node.value
            largest = max(largest, min(1000, abs(value.numerator) // value.denominator + 1))
        elif kind is Var:
            names.add(node.name)
        elif kind is Sum:
            stack += node.terms
        elif kind is Prod:
            stack += node.tops
            stack += node.bottoms
        elif kind is Pow:
            exponent = exact(node.exponent)
            stack.append(node.base)
            if exponent is None or exponent.denominator != 1:
                rational = False
                stack.append(node.exponent)
                base = exact(node.base)
                discrete |= exponent is None and base is not None and base < 0
            else:
                degree *= max(1, min(abs(exponent.numerator), 1000))
        elif kind is Call:
            rational = False
            discrete |= node.name in _DISCRETE
            bent |= node.name in _BENT
            stack += node.args
        elif kind is Const:
            rational = False
            imaginary |= node.name == "i"
        elif kind is Neg or kind is Percent or kind is Degree:
            rational &= kind is not Degree
            stack.append(node.arg)
    return Shape(frozenset(names), rational, discrete, imaginary, degree, bent, largest * bent)


@dataclass(frozen=True, slots=True)
class Bench:
    """Where formulas are compared: the conventions, a seed for the points, and a budget that all comparisons share."""

    seed: bytes
    budget: Budget
    log_e: bool = False
    decimals: int = 10  # digits that a decimal must show to stand for a number that no decimal can express

    def same(self, a: Node, b: Node) -> bool:
        """Whether two formulas are one. Raises OverLimit, and Fault for what is no formula."""
        x, y = exact(a), exact(b)
        if x is not None and y is not None:
            return x == y or self._rounded(a, b) or self._rounded(b, a)
        self.budget.spend(20)
        occurs = shape(a, b)
        if not occurs.names:
            return self._same_numbers(a, b)
        return self._same_everywhere(a, b, occurs)

    # Numbers

    def _same_numbers(self, a: Node, b: Node) -> bool:
        try:
            if self.agree(lambda f: (self.at(f, {})(a), self.at(f, {})(b))):
                return True
            return self._rounded(a, b) or self._rounded(b, a)
        except Undefined:
            return False

    def at(self, field: Field, point: Mapping[str, Exact]) -> Evaluator:
        return Evaluator(field, point, self.log_e)

    def agree(self, sides: Callable[[Field], tuple[Value, Value]], real: bool = False) -> bool:
        """Whether two numbers are one. They are computed again with more precision until the answer is clear.

        Raises Undefined where one has no value, OverLimit where the precision would be too high.
        """
        precision, raised, before = FIRST_PRECISION, 0, None
        while True:
            field = Field(precision, self.budget, real)
            x, y = sides(field)
            span = field.high - field.low + GUARD + 2 * max(0, field.high)  # (1 + sqrt 2)^99 is nearly whole
            value = field.sub(x, y)
            if type(value) is not tuple and not field.rough:
                return not value
            if span > precision and raised < 2:
                raised += 1
                precision = self._affordable(span + 64)
                continue
            if type(value) is not tuple:
                return not value
            magnitude = field.magnitude(value)
            if magnitude <= field.high - precision + NOISE:
                return True
            if magnitude > field.high - precision // 2:
                return False
            if before is not None:  # noise shrinks with the precision, a difference does not
                return magnitude <= before[0] - (precision - before[1]) // 4
            before = magnitude, precision
            precision = self._affordable(2 * precision)

    @staticmethod
    def _affordable(precision: int) -> int:
        if precision > 2 * MOST_PRECISION:
            raise OverLimit(f"over {MOST_PRECISION} bits of precision")
        return precision

    def _rounded(self, a: Node, b: Node) -> bool:
        """Whether `a` is a decimal and the correct rounding of `b`, which is a number that no decimal can express.

        It must show `decimals` significant digits. Of 16 or 17 digits, a double's printout, 15 count.
        """
        if not isinstance(a, Dec) or a.digits < self.decimals or not a.value:
            return False
        other = exact(b)
        if other is not None and terminates(other):
            return False
        dropped = a.digits - _DOUBLE if a.digits in (_DOUBLE + 1, _DOUBLE + 2) else 0
        half = Fraction(10) ** (a.place + dropped) / 2
        field = Field(FIRST_PRECISION + 4 * a.digits, self.budget)
        evaluate = self.at(field, {})
        distance = field.sub(evaluate(a), evaluate(b))
        if type(distance) is tuple and len(distance) == 2:
            return False
        return field.sign(field.sub(field.abs(distance), half)) <= 0

    def order(self, a: Node, b: Node) -> int:
        """-1, 0 or 1 as a number is below, at or above another. Raises Undefined for variables and complex numbers."""
        x, y = exact(a), exact(b)
        if x is not None and y is not None:
            return (x > y) - (x < y)
        if shape(a, b).names:
            raise Undefined("variables have no order")
        if self.agree(lambda f: (self.at(f, {})(a), self.at(f, {})(b))):
            return 0
        field = Field(2 * FIRST_PRECISION, self.budget)
        return self.at(field, {}).order(self.at(field, {})(a), self.at(field, {})(b))

    def key(self, node: Node) -> complex | None:
        """A number's value roughly, to sort candidates by; with variables, at one point. None where it has none."""
        try:
            occurs = shape(node)
            point = next(self.points(occurs)) if occurs.names else {}
            field = Field(64, self.budget)
            value = field.float(self.at(field, point)(node))
            if field.magnitude(value) > _LARGEST_KEY:
                return None
            return complex(*(libmp.to_float(part) for part in (value if len(value) == 2 else (value,))))
        except Undefined:
            return None

    # Formulas with variables

    def _same_everywhere(self, a: Node, b: Node, occurs: Shape) -> bool:
        def at(point: Mapping[str, Exact]) -> Callable[[Field], tuple[Value, Value]]:
            def sides(field: Field) -> tuple[Value, Value]:
                evaluate = self.at(field, point)
                return evaluate(a), evaluate(b)

            return sides

        for real in (not occurs.imaginary, False):  # complex only where too little is defined among real numbers
            wanted = 2 if occurs.rational else 3 + (len(occurs.names) > 1)
            for point in self.points(occurs):
                try:
                    if not self.agree(at(point), real):
                        return False
                except Undefined:
                    continue
                wanted -= 1
                if not wanted:
                    return True
            if wanted < 2 and not occurs.rational:
                return True
        return False

    def points(self, occurs: Shape) -> Iterator[dict[str, Exact]]:
        """Values for the variables: positive, negative, positive, of both signs, and so on."""
        for i in range(2 * _TRIES if occurs.discrete else _TRIES):  # a binomial coefficient is seldom defined
            yield {name: self._coordinate(name, i, k, occurs) for k, name in enumerate(sorted(occurs.names))}

    def _coordinate(self, name: str, i: int, k: int, occurs: Shape) -> Exact:
        draw = int.from_bytes(
            hashlib.blake2b(self.seed + b"%d" % i + name.encode("utf-8", "surrogatepass"), digest_size=8).digest(),
            "little",
        )
        if occurs.discrete:
            number: Exact = 2 + draw % (13 if i % 2 == 0 else 40)
            return number + (number + (i + 1 >> k)) % 2 if k < 3 else number  # parities: (-1)^n must not pass for 1
        negative = i == 1 or (i == 3 and k % 2 == 1) or (i > 4 and draw >> 63 == 1)
        if occurs.rational:
            number = 2 + draw % (1 << (30 if occurs.degree < 40 else 7))
        else:
            number = Fraction(200 + draw % 800, 1024)
            if i % 4 in (1, 2):
                number += occurs.reach + 1
            if occurs.bent:  # each variable is the least, and the greatest, somewhere: min(x, y) must not pass for x
                number += (k + max(0, i - 1) * (i != 3)) % len(occurs.names)
        return -number if negative else number

    def proportional(self, a: Node, b: Node) -> int:
        """1 or -1 where a is b times a constant of that sign, at every point; 0 where it is not."""
        occurs = shape(a, b)
        seen: list[dict[str, Exact]] = []
        sign = 0
        for point in self.points(occurs):
            try:
                field = Field(FIRST_PRECISION, self.budget, real=not occurs.imaginary)
                x, y = (self._nonzero(node, point, field.real) for node in (a, b))
                if (x is None) != (y is None):
                    return 0
                if x is None or y is None:
                    continue
                found = field.sign(field.div(x, y))
                if sign and found != sign:
                    return 0
                if seen and not self.agree(self._crossed(a, b, seen[-1], point), field.real):
                    return 0
            except Undefined:
                continue
            sign = found
            seen.append(point)
            if len(seen) == (3 if occurs.rational else 4):
                return sign
        return sign if len(seen) > 1 else 0

    def _nonzero(self, node: Node, point: Mapping[str, Exact], real: bool) -> Value | None:
        """The value that told this formula from 0 at a point; None where it is 0 there."""
        values: list[Value] = []

        def sides(field: Field) -> tuple[Value, Value]:
            values.append(self.at(field, point)(node))
            return values[-1], 0

        return None if self.agree(sides, real) else values[-1]

    def _crossed(
        self, a: Node, b: Node, p: Mapping[str, Exact], q: Mapping[str, Exact]
    ) -> Callable[[Field], tuple[Value, Value]]:
        def sides(field: Field) -> tuple[Value, Value]:
            at_p, at_q = self.at(field, p), self.at(field, q)
            return field.mul(at_p(a), at_q(b)), field.mul(at_q(a), at_p(b))

        return sides


def terminates(value: Exact) -> bool:
    """Whether a fraction is a decimal with finitely many digits."""
    bottom = value.denominator
    bottom >>= (bottom & -bottom).bit_length() - 1
    while bottom % 5 == 0:
        bottom //= 5
    return bottom == 1

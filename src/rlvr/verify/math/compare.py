"""Are two answers the same? Each kind of answer is compared in its own way; the order of the two never matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from rlvr.verify.math.conventions import Conventions
from rlvr.verify.math.identity import Bench, shape
from rlvr.verify.math.limits import LARGEST_LIST
from rlvr.verify.math.literals import product_of
from rlvr.verify.math.measure import as_quantity
from rlvr.verify.math.nodes import (
    SCALARS,
    Based,
    Call,
    Chain,
    Const,
    Degree,
    Either,
    Equation,
    Inequality,
    Labelled,
    Many,
    Matrix,
    Node,
    Num,
    Percent,
    Pow,
    Prod,
    Quantity,
    Ratio,
    RealSet,
    Set,
    SetOp,
    Text,
    Time,
    Tuple,
    Unit,
    Var,
    add,
    digits,
    exact,
    multiply,
    negate,
)
from rlvr.verify.math.sets import defined, infinite
from rlvr.verify.math.units import SINGLE_LETTERS, UNITS, joined, scaled

_SEQUENCES = frozenset(["()", "[]", "<>"])


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares by these conventions, on this bench. Raises OverLimit, and Fault for what has no meaning."""

    conventions: Conventions
    bench: Bench

    def same(self, a: Node, b: Node) -> bool:
        if type(a) in SCALARS and type(b) in SCALARS:
            return self._scalars(a, b)
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Either):
                return any(self.same(reading, y) for reading in x.readings)
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Chain):
                return self._consistent(x) and self.same(x.parts[-1], y)
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Many) and len(x.items) == 1:
                return self.same(x.items[0], y)
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Labelled):
                return self._labelled(x, y)
        for x, y in ((a, b), (b, a)):
            if isinstance(x, RealSet) and (asked := _inequalities(y)):
                return self._unsolved(x, asked)
            if isinstance(x, RealSet | SetOp):
                return self._real_sets(x, y)
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Set) and len(x.items) == 1 and not isinstance(y, Set):
                return self.same(x.items[0], y)
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Many | Set):
                return self._collections(x, y)
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Matrix | Tuple):
                return self._ordered(x, y)
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Ratio | Time):
                return self._ratios(x, y)
        if isinstance(a, Equation) and isinstance(b, Equation):
            return bool(self.bench.proportional(_difference(a), _difference(b)))
        if isinstance(a, Inequality) and isinstance(b, Inequality):
            sign = self.bench.proportional(_difference(a), _difference(b))
            return a.op == b.op and (sign == 1 or (sign == -1 and a.op == "!="))
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Text):
                return x.words == y.words if isinstance(y, Text) else self._letters(x, y)
        if isinstance(a, Quantity) or isinstance(b, Quantity):
            return self._quantities(a, b)
        return False

    # Inequalities

    def _unsolved(self, solved: RealSet, asked: list[Inequality]) -> bool:
        """`x < 25` beside `5x < 125`, `1 < x <= 3` beside `2 < 2x <= 6`: the same up to positive factors."""
        if not self.conventions.unsolved or len(solved.parts) != 1 or not solved.name:
            return False
        part, variable = solved.parts[0], Var(solved.name)
        ends = [Inequality(part.low, "<=" if part.low_in else "<", variable)] if not infinite(part.low) else []
        if not infinite(part.high):
            ends.append(Inequality(variable, "<=" if part.high_in else "<", part.high))
        return len(ends) == len(asked) and self._matched(list[Node](ends), list[Node](asked))

    # Scalars

    def _scalars(self, a: Node, b: Node) -> bool:
        kinds = {type(a), type(b)}
        if kinds & {Percent, Degree, Based}:
            if Based in kinds:
                return self._based(a, b)
            if Degree in kinds:
                return self._quantities(a, b)
            return self._percents(a, b)
        if type(a) is Var and type(b) is Var:
            return a.name == b.name or _are_choices(a.name, b.name)
        x, y = infinite(a), infinite(b)
        if x or y:
            return x == y
        if self.bench.same(a, b):
            return True
        return self.conventions.units != "strict" and self._without_degrees(a, b)

    def _percents(self, a: Node, b: Node) -> bool:
        if isinstance(a, Percent) and isinstance(b, Percent):
            return self._scalars(a.arg, b.arg)
        percent, other = (a, b) if isinstance(a, Percent) else (b, a)
        assert isinstance(percent, Percent)
        how = self.conventions.percent
        if how == "same":
            return False
        return self._scalars(percent.arg if how == "ignore" else multiply([percent.arg], [Num(100)]), other)

    def _based(self, a: Node, b: Node) -> bool:
        how = self.conventions.bases
        if how == "value":
            return self.bench.same(a, b)
        written = []
        for node in (a, b):
            value = exact(node)
            if isinstance(node, Based):
                written.append((node.digits, node.base))
            elif value is not None and value.denominator == 1 and value >= 0:
                written.append((digits(value.numerator), 0 if how == "lenient" else 10))
            else:
                return False
        (x, p), (y, q) = written
        return x == y and (p == q or not p or not q)

    def _without_degrees(self, a: Node, b: Node) -> bool:
        """180^\\circ - x and 180 - x."""
        if _has(a, Degree) == _has(b, Degree):
            return False
        x, y = _undegreed(a), _undegreed(b)
        return not _has(x, Degree) and not _has(y, Degree) and self.bench.same(x, y)

    def _quantities(self, a: Node, b: Node) -> bool:
        how = self.conventions.units
        p, q = as_quantity(a), as_quantity(b)
        if p is not None and q is None:
            q = _letter_unit(b)
        elif q is not None and p is None:
            p = _letter_unit(a)
        if how == "ignore":
            return self.same(p.value if p else a, q.value if q else b)
        if p is not None and q is not None:
            if p.unit.dims != q.unit.dims:
                return False
            if p.unit == q.unit:
                return self._scalars(p.value, q.value)
            return self.bench.same(_in_base_units(p), _in_base_units(q))
        quantity, other = (p, b) if p is not None else (q, a)
        assert quantity is not None
        if type(other) not in SCALARS:
            return False
        if quantity.unit.dims == (("angle", 1),) and self._scalars(_in_base_units(quantity), other):
            return True  # a number without unit is an angle in radians
        return how == "lenient" and self._scalars(quantity.value, other)

    def _letters(self, text: Text, other: Node) -> bool:
        """mgh, read as a word, beside the product m g h."""
        if not (isinstance(other, Prod) and 1 < len(text.written) < 5 and text.written.isalpha()):
            return False
        return self.bench.same(product_of(text.written), other)

    # Labels and chains

    def _consistent(self, chain: Chain) -> bool:
        return all(self.same(x, y) for x, y in pairwise(chain.parts))

    def _labelled(self, a: Labelled, b: Node) -> bool:
        if isinstance(b, Labelled):
            if a.names == b.names:
                return self.same(a.value, b.value)
            if len(a.names) > 1 and sorted(a.names) == sorted(b.names):
                return self._renamed(a, b)
            left, right = _as_equation(a), _as_equation(b)
            return left is not None and right is not None and self.same(left, right)
        if isinstance(b, Equation):
            left = _as_equation(a)
            return left is not None and self.same(left, b)
        if isinstance(b, RealSet) and b.name:
            return a.names == (b.name,) and self.same(a.value, b)
        if self.conventions.names == "strict":
            return False
        if len(a.names) == 1 or not isinstance(a.value, Tuple):
            return self.same(a.value, b)
        if isinstance(b, Many):
            return len(b.items) == len(a.value.items) and self._all_same(a.value.items, b.items)
        alphabetical = tuple(value for _, value in sorted(zip(a.names, a.value.items), key=lambda pair: pair[0]))
        return self.same(a.value, b) or self.same(a.value._replace(items=alphabetical), b)

    def _renamed(self, a: Labelled, b: Labelled) -> bool:
        if not (isinstance(a.value, Tuple) and isinstance(b.value, Tuple)):
            return False
        if not len(a.names) == len(b.names) == len(a.value.items) == len(b.value.items):
            return False
        theirs = dict(zip(b.names, b.value.items))
        return self._all_same(a.value.items, [theirs[name] for name in a.names])

    # Collections

    def _all_same(self, a: Sequence[Node], b: Sequence[Node]) -> bool:
        return len(a) == len(b) and all(self.same(x, y) for x, y in zip(a, b))

    def _real_sets(self, a: Node, b: Node) -> bool:
        x, y = defined(a, self.bench), defined(b, self.bench)
        if x is None or y is None or len(x.parts) != len(y.parts):
            return False
        if x.name and y.name and x.name != y.name:
            return False
        return all(
            p.low_in == q.low_in and p.high_in == q.high_in and self.same(p.low, q.low) and self.same(p.high, q.high)
            for p, q in zip(x.parts, y.parts)
        )

    def _collections(self, a: Many | Set, b: Node) -> bool:
        if isinstance(b, Tuple) and isinstance(a, Many) and self.conventions.bare_tuples:
            return self._all_same(a.items, b.items)
        if not isinstance(b, Many | Set):
            return False
        x, y = (self._distinct(c.items) if isinstance(c, Set) else list(c.items) for c in (a, b))
        if len(x) != len(y):
            return False
        if self.conventions.lists == "in_order" and not isinstance(a, Set) and not isinstance(b, Set):
            return self._all_same(x, y)
        return self._matched(x, y)

    def _distinct(self, items: Sequence[Node]) -> list[Node]:
        values = [exact(item) for item in items]
        if None not in values:
            return [item for i, item in enumerate(items) if values.index(values[i]) == i]
        keys = [self._key(item) for item in items]
        out: list[int] = []
        for i, item in enumerate(items):
            if not any(_near(keys[i], keys[j]) and self.same(item, items[j]) for j in out):
                out.append(i)
        return [items[i] for i in out]

    def _matched(self, a: list[Node], b: list[Node]) -> bool:
        """Whether the items are the same in some order."""
        x, y = [exact(item) for item in a], [exact(item) for item in b]
        if None not in x and None not in y and sorted(x) == sorted(y):  # type: ignore[type-var]
            return True
        keys, theirs = [self._key(item) for item in a], [self._key(item) for item in b]
        left = list(range(len(b)))
        for item, key in zip(a, keys):
            for j in left:
                if _near(key, theirs[j]) and self.same(item, b[j]):
                    left.remove(j)
                    break
            else:
                return False
        return True

    def _key(self, node: Node) -> Any:
        """Something near for the same items, so that few are compared in full; None where nothing is known."""
        self.bench.budget.spend(15)
        if isinstance(node, Tuple):
            return tuple(self._key(item) for item in node.items)
        if type(node) in SCALARS and type(node) not in (Percent, Degree, Based):
            return self.bench.key(node)
        return None

    def _ordered(self, a: Matrix | Tuple, b: Node) -> bool:
        if isinstance(a, Tuple) and isinstance(b, Tuple):
            if len(a.items) == 2 and _usual(a) != _usual(b):
                return False
            return self._all_same(a.items, b.items)
        x, y = _rows(a), _rows(b)
        if x is None or y is None:
            return False
        if isinstance(a, Tuple) or isinstance(b, Tuple):  # a column, or a row, written as a tuple
            x, y = (([tuple(r[0] for r in rows)] if all(len(r) == 1 for r in rows) else rows) for rows in (x, y))
        if [len(row) for row in x] != [len(row) for row in y] or sum(map(len, x)) > LARGEST_LIST:
            return False
        return all(self._all_same(r, s) for r, s in zip(x, y))

    def _ratios(self, a: Ratio | Time, b: Node) -> bool:
        if isinstance(a, Time) and isinstance(b, Time):
            lenient = self.conventions.units != "strict" and not (a.half and b.half)
            return a.fields == b.fields and (lenient or a.half == b.half)
        x, y = _parts(a), _parts(b)
        if x is None or y is None or len(x) != len(y):
            return False
        return all(self.bench.same(multiply([p, y[0]], []), multiply([q, x[0]], [])) for p, q in zip(x[1:], y[1:]))


def _usual(pair: Tuple) -> str:
    """Its brackets: ]1, 2[ and <1, 2> as (1, 2)."""
    return {"]": "(", "<": "("}.get(pair.opened, pair.opened) + {"[": ")", ">": ")"}.get(pair.closed, pair.closed)


def _parts(node: Node) -> list[Node] | None:
    """The parts of a ratio: of 2:7, of 10:30 and 12:21:27 that may be times, of 2/7."""
    if isinstance(node, Ratio):
        return list(node.parts)
    if isinstance(node, Time):
        if node.half or node.fields[1] < 10 or 0 < node.fields[2] < 10:
            return None
        return [Num(n) for n in node.fields[: 3 if node.fields[2] else 2]]
    return [node, Num(1)] if type(node) in SCALARS else None


def _inequalities(node: Node) -> list[Inequality]:
    """Of a node that is nothing but inequalities between formulas."""
    items = node.items if isinstance(node, Many) else (node,)
    found = [item for item in items if isinstance(item, Inequality)]
    return found if len(found) == len(items) else []


def _difference(relation: Equation | Inequality) -> Node:
    return add([relation.left, negate(relation.right)])


def _as_equation(labelled: Labelled) -> Equation | None:
    """y = 2x + 1 as an equation between x and y; x = 5 is none, it is a value."""
    if len(labelled.names) != 1 or type(labelled.value) not in SCALARS or not shape(labelled.value).names:
        return None
    return Equation(Var(labelled.names[0]), labelled.value)


def _are_choices(a: str, b: str) -> bool:
    """Letters of a multiple choice, whose case does not matter."""
    return len(a) == len(b) == 1 and a.upper() == b.upper() and a.upper() in "ABCDE"


def _rows(node: Node) -> list[tuple[Node, ...]] | None:
    if isinstance(node, Matrix):
        return list(node.rows)
    if not isinstance(node, Tuple) or node.opened + node.closed not in _SEQUENCES:
        return None
    rows = [item.items for item in node.items if isinstance(item, Tuple)]
    if not rows:
        return [node.items]
    return rows if len(rows) == len(node.items) else None


def _in_base_units(quantity: Quantity) -> Node:
    factors: list[Node] = [quantity.value, Num(Fraction(quantity.unit.factor))]
    if quantity.unit.turns:
        factors.append(Pow(Const("pi"), Num(quantity.unit.turns)))
    return multiply(factors, [])


def _letter_unit(node: Node) -> Quantity | None:
    """`5 m` or `5 m/s^2` beside a quantity: a number times letters that name units."""
    if not isinstance(node, Prod):
        return None
    numbers: list[Node] = []
    unit: Unit | None = None
    for factors, sign in ((_flat(node.tops), 1), (_flat(node.bottoms), -1)):
        for factor in factors:
            base, exponent = (factor.base, exact(factor.exponent)) if isinstance(factor, Pow) else (factor, 1)
            if isinstance(base, Var) and base.name in SINGLE_LETTERS and exponent in (1, 2, 3, -1, -2, -3):
                found = scaled(UNITS[base.name], sign * int(exponent))
                unit = joined(unit, found) if unit else found
            elif sign > 0 and unit is None:
                numbers.append(factor)
            else:
                return None
    return Quantity(multiply(numbers, []), unit) if unit and numbers else None


def _flat(factors: Sequence[Node]) -> list[Node]:
    return [
        inner
        for factor in factors
        for inner in (factor.tops if isinstance(factor, Prod) and not factor.bottoms else (factor,))
    ]


def _has(node: Any, kind: type) -> bool:
    if type(node) is kind:
        return True
    if isinstance(node, tuple):
        for part in node:
            if isinstance(part, tuple) and _has(part, kind):
                return True
    return False


def _undegreed(node: Any) -> Any:
    """Without the degree signs outside of functions."""
    if isinstance(node, Degree):
        return node.arg
    if not isinstance(node, tuple) or isinstance(node, Call):
        return node
    parts = [_undegreed(part) for part in node]
    return type(node)(*parts) if hasattr(node, "_fields") else tuple(parts)


def _near(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return True
    if isinstance(a, tuple) or isinstance(b, tuple):
        return (
            isinstance(a, tuple)
            and isinstance(b, tuple)
            and len(a) == len(b)
            and all(_near(x, y) for x, y in zip(a, b))
        )
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b)) + 1e-12

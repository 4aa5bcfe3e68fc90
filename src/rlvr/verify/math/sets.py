"""Sets of real numbers: intervals, unions and inequalities in one form, pieces from left to right that do not touch."""

from __future__ import annotations

from functools import cmp_to_key
from itertools import pairwise

from rlvr.verify.math.identity import Bench
from rlvr.verify.math.limits import Undefined
from rlvr.verify.math.nodes import INFINITY, SCALARS, Const, Neg, Node, RealSet, Set, SetOp, Span, Tuple, negate

_EVERYTHING = Span(negate(INFINITY), False, INFINITY, False)


def real_set(node: Node, bench: Bench) -> RealSet | None:
    """The set that a node is, in its one form; None for what is no set of real numbers.

    Raises Undefined where the ends have no order, as with variables.
    """
    if isinstance(node, RealSet):
        return RealSet(_canonical(list(node.parts), bench), node.name)
    if isinstance(node, Tuple) and len(node.items) == 2:
        opened, closed = node.opened, node.closed
        if opened in "([]" and closed in ")][":
            low, high = node.items
            return RealSet(_canonical([Span(low, opened == "[", high, closed == "]")], bench))
        return None
    if isinstance(node, Set) and all(type(item) in SCALARS for item in node.items):
        return RealSet(_canonical([Span(item, True, item, True) for item in node.items], bench))
    if not isinstance(node, SetOp):
        return None
    found = [real_set(arg, bench) for arg in node.args]
    sets = [s for s in found if s is not None]
    if len(sets) < len(found):
        return None
    parts, name = list(sets[0].parts), sets[0].name
    for other in sets[1:]:
        both = _intersection(parts, other.parts, bench)
        if node.name == "setminus":
            parts = _intersection(parts, _complement(list(other.parts)), bench)
        elif node.name == "cap" or (node.name == "both" and both):
            parts = both
        else:
            parts = [*parts, *other.parts]  # also of `x < 1, x > 3`, which no number satisfies at once
    return RealSet(_canonical(parts, bench), name)


def _rank(end: Node) -> int:
    if isinstance(end, Const) and end.name == "inf":
        return 1
    return -1 if isinstance(end, Neg) and _rank(end.arg) == 1 else 0


def order(a: Node, b: Node, bench: Bench) -> int:
    """As Bench.order, with the infinities."""
    bench.budget.spend(3)
    x, y = _rank(a), _rank(b)
    return (x > y) - (x < y) if x or y else bench.order(a, b)


def _canonical(parts: list[Span], bench: Bench) -> tuple[Span, ...]:
    if len(parts) == 1:
        return tuple(parts)
    kept = []
    for part in parts:
        way = order(part.low, part.high, bench)
        if way < 0 or (way == 0 and part.low_in and part.high_in):
            kept.append(part)

    def leftmost(a: Span, b: Span) -> int:
        return order(a.low, b.low, bench) or b.low_in - a.low_in

    kept.sort(key=cmp_to_key(leftmost))
    out: list[Span] = []
    for part in kept:
        if out:
            before = out[-1]
            gap = order(before.high, part.low, bench)
            if gap > 0 or (gap == 0 and (before.high_in or part.low_in)):
                further = order(part.high, before.high, bench)
                if further > 0 or (further == 0 and part.high_in):
                    out[-1] = before._replace(high=part.high, high_in=part.high_in)
                continue
        out.append(part)
    return tuple(out)


def _intersection(a: list[Span], b: tuple[Span, ...] | list[Span], bench: Bench) -> list[Span]:
    out = []
    for x in a:
        for y in b:
            low, high = order(x.low, y.low, bench), order(x.high, y.high, bench)
            left = x if low > 0 else y
            right = x if high < 0 else y
            low_in = x.low_in and y.low_in if low == 0 else left.low_in
            high_in = x.high_in and y.high_in if high == 0 else right.high_in
            way = order(left.low, right.high, bench)
            if way < 0 or (way == 0 and low_in and high_in):
                out.append(Span(left.low, low_in, right.high, high_in))
    return out


def _complement(parts: list[Span]) -> list[Span]:
    """Of pieces in order."""
    if not parts:
        return [_EVERYTHING]
    out = [Span(_EVERYTHING.low, False, parts[0].low, not parts[0].low_in)]
    out += [Span(a.high, not a.high_in, b.low, not b.low_in) for a, b in pairwise(parts)]
    out.append(Span(parts[-1].high, not parts[-1].high_in, INFINITY, False))
    return [part for part in out if not (_rank(part.low) == 1 or _rank(part.high) == -1)]


def infinite(end: Node) -> int:
    """-1 or 1 for an infinity, else 0."""
    return _rank(end)


def defined(node: Node, bench: Bench) -> RealSet | None:
    """As `real_set`, None also where the ends have no order."""
    try:
        return real_set(node, bench)
    except Undefined:
        return None

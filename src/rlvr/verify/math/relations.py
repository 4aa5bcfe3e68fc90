"""What a relation says: `x = 5` labels a value, `x < 2` is a set of numbers, `2x + y = 3` is an equation."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr.verify.math.identity import shape
from rlvr.verify.math.limits import Fault
from rlvr.verify.math.nodes import (
    INFINITY,
    SCALARS,
    Call,
    Chain,
    Equation,
    Inequality,
    Labelled,
    Many,
    Neg,
    Node,
    Prod,
    Quantity,
    Ratio,
    RealSet,
    Relation,
    Set,
    SetOp,
    Span,
    Text,
    Tuple,
    Var,
    exact,
    negate,
)

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def settled(node: Node) -> Node:
    """The node with every relation in it taken for what it says. Raises Fault for one that says nothing."""
    if type(node) in SCALARS:
        return node  # the usual case
    if isinstance(node, Relation):
        return _relation(node)
    if isinstance(node, SetOp):
        return node._replace(args=tuple(settled(arg) for arg in node.args))
    if isinstance(node, Tuple | Set | Many):
        items = tuple(settled(item) for item in node.items)
        if isinstance(node, Many):
            return combined(list(items), [","])
        return node._replace(items=items)
    return node


def _relation(relation: Relation) -> Node:
    sides = [settled(side) for side in relation.sides]
    signs = set(relation.signs)
    if signs <= {"=", "~"}:
        return _equality(sides, relation.signs)
    if signs == {"in"} and len(sides) == 2:
        names = _names(sides[0])
        if names:
            return Labelled(names, sides[1])
    if "in" in signs or signs & {"=", "~"}:
        raise Fault("unparsable", "these signs do not go together")
    found = _real_set(sides, relation.signs)
    if found is not None:
        return found
    if isinstance(sides[0], Text):
        raise Fault("unparsable", "the left side is missing")
    pieces = [_inequality(a, sign, b) for a, sign, b in zip(sides, relation.signs, sides[1:])]
    return pieces[0] if len(pieces) == 1 else Many(tuple(pieces))


def _inequality(left: Node, sign: str, right: Node) -> Inequality:
    if type(left) not in SCALARS or type(right) not in SCALARS:
        raise Fault("unparsable", "an inequality is between formulas")
    return Inequality(right, _FLIPPED[sign], left) if sign in (">", ">=") else Inequality(left, sign, right)


# Equalities


def _equality(sides: list[Node], signs: Sequence[str]) -> Node:
    if isinstance(sides[0], Text) and not sides[0].words:
        sides, signs = sides[1:], signs[1:]  # "= 5", "\approx 5"
    rounded = signs.index("~") if "~" in signs else len(signs)
    parts = sides[: rounded + 1]
    if len(parts) == 1 and len(sides) > 1 and _names(parts[0]):
        parts = sides[:2]  # x \approx 3.14
    if len(parts) == 1:
        return parts[0]
    left, right = parts[0], parts[-1]
    occurs = shape(*parts)
    names = _names(left)
    if names and not (isinstance(left, Var) and left.name in shape(*parts[1:]).names):
        return Labelled(names, right if len(parts) == 2 else Chain(tuple(parts[1:])))
    if len(parts) == 2 and isinstance(right, Var) and not shape(left).names:
        return Labelled((right.name,), left)
    if len(parts) == 2 and occurs.names:
        if type(left) not in SCALARS or type(right) not in SCALARS:
            raise Fault("unparsable", "an equation is between formulas")
        return Equation(left, right)
    return Chain(tuple(parts))


def _names(node: Node) -> tuple[str, ...]:
    """The name or names that a left side is: `x`, `f(x)`, `(p, q)`, `AB`, `|AB|`, `S_1 : S_2`; empty for a formula."""
    if isinstance(node, Var):
        return (node.name,)
    if isinstance(node, Tuple):
        names = [n for item in node.items for n in _names(item)]
        return tuple(names) if all(isinstance(item, Var) for item in node.items) else ()
    if isinstance(node, Call) and node.name == "abs":
        inner = _names(node.args[0])
        return (f"|{inner[0]}|",) if len(inner) == 1 and inner[0][0].isupper() else ()
    if isinstance(node, Ratio):
        parts = [_names(part) for part in node.parts]
        return (":".join(p[0] for p in parts),) if all(len(p) == 1 for p in parts) else ()
    if isinstance(node, Prod):  # a segment AB, or a ratio of two: their ends are capital letters
        above, below = ([_names(factor) for factor in factors] for factors in (node.tops, node.bottoms))
        if all(len(names) == 1 and names[0][0].isupper() for names in (*above, *below)):
            return ("".join(n[0] for n in above) + "".join("/" + n[0] for n in below),)
    return ()


# Inequalities in one variable


def _real_set(sides: list[Node], signs: Sequence[str]) -> RealSet | None:
    """The numbers that `x < 2`, `1 <= x < 3`, `|x| < 2`, `x \\ne 1` or `> 5` allow; None for any other inequality."""
    if len(sides) == 3 and len({sign[0] for sign in signs}) == 1 and signs[0][0] in "<>":
        low, middle, high = sides if signs[0][0] == "<" else sides[::-1]
        first, second = signs if signs[0][0] == "<" else signs[::-1]
        bars = isinstance(middle, Call) and middle.name == "abs"
        name = _variable(middle.args[0] if isinstance(middle, Call) and bars else middle)
        if name is None or name in shape(low, high).names or not _are_ends(low, high):
            return None
        piece = Span(low, first[-1] == "=", high, second[-1] == "=")
        if not bars:
            return RealSet((piece,), name or None)
        least = exact(low)
        if least is None or least < 0:
            return None
        mirrored = Span(negate(high), piece.high_in, negate(low), piece.low_in)
        return RealSet((mirrored, piece), name or None)
    if len(sides) != 2:
        return None
    left, right, sign = sides[0], sides[1], signs[0]
    if _variable(left) is None and _variable(right) is not None:
        left, right, sign = right, left, _FLIPPED.get(sign, sign)
    if isinstance(left, Neg) and isinstance(left.arg, Var) and type(right) in SCALARS:
        left, right, sign = left.arg, negate(right), _FLIPPED.get(sign, sign)
    closed = sign[-1] == "="
    if isinstance(left, Call) and left.name == "abs" and isinstance(left.args[0], Var) and sign != "!=":
        value, name = exact(right), left.args[0].name
        if value is None or value < 0:
            return None
        if sign[0] == "<":
            return RealSet((Span(negate(right), closed, right, closed),), name)
        return RealSet((_below(negate(right), closed), _above(right, closed)), name)
    name = _variable(left)
    if name is None or name in shape(right).names or not _are_ends(right):
        return None
    if sign == "!=":
        return RealSet((_below(right, False), _above(right, False)), name or None)
    return RealSet((_below(right, closed) if sign[0] == "<" else _above(right, closed),), name or None)


def _below(end: Node, closed: bool) -> Span:
    return Span(negate(INFINITY), False, end, closed)


def _above(end: Node, closed: bool) -> Span:
    return Span(end, closed, INFINITY, False)


def _variable(node: Node) -> str | None:
    """The name of a variable; "" where the left side was not written; None for anything else."""
    if isinstance(node, Var):
        return node.name
    return "" if isinstance(node, Text) and not node.words else None


def _are_ends(*nodes: Node) -> bool:
    return all(type(node) in SCALARS or isinstance(node, Quantity) for node in nodes)


# Several statements


def combined(items: list[Node], joins: Sequence[str]) -> Node:
    """Several statements as one answer: named values, inequalities in one variable, or a list."""
    if len(items) == 1:
        return items[0]
    labelled = [item for item in items if isinstance(item, Labelled)]
    if len(labelled) == len(items):
        names = [item.names for item in labelled]
        if len(set(names)) == 1:
            return Labelled(names[0], Many(tuple(item.value for item in labelled)))
        if all(len(n) == 1 for n in names) and len(set(names)) == len(names):
            return Labelled(tuple(n[0] for n in names), Tuple("(", tuple(item.value for item in labelled), ")"))
    elif len(labelled) == 1 and labelled[0] is items[0]:
        values = [labelled[0].value, *items[1:]]  # k = 3, 5, 8
        if not any(isinstance(v, Equation | Inequality | RealSet) for v in values[1:]):
            return Labelled(labelled[0].names, Many(_flat(values)))
    sets = [item for item in items if isinstance(item, RealSet)]
    if len(sets) == len(items) and len({s.name for s in sets}) == 1 and sets[0].name is not None:
        return SetOp("cup" if "or" in joins else "both", tuple(sets))
    return Many(_flat(items))


def _flat(items: Sequence[Node]) -> tuple[Node, ...]:
    out: list[Node] = []
    for item in items:
        out += item.items if isinstance(item, Many) else (item,)
    return tuple(out)

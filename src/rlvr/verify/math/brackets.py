"""Brackets, bars, sets and environments in a formula."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlvr.verify.math import literals
from rlvr.verify.math.lexicon import Token
from rlvr.verify.math.limits import LARGEST_LIST, Fault, OverLimit
from rlvr.verify.math.nodes import Call, Many, Matrix, Node, Set, Tuple, multiply

if TYPE_CHECKING:
    from rlvr.verify.math.parser import Parser

_MATRICES = frozenset(["pmatrix", "bmatrix", "Bmatrix", "matrix", "vmatrix", "Vmatrix", "smallmatrix", "array"])
_CONDITIONS = frozenset(["if", "for", "when", "where", "otherwise", "else"])


def listed(p: Parser, *closers: str) -> list[Node]:
    """Items up to a closing bracket, which is passed."""
    bars, colon, p.bars, p.colon = p.bars, p.colon, 0, True
    items: list[Node] = []
    if p.kind in closers and p.kind != "[":  # [[ opens twice
        p.at += 1
    else:
        while True:
            items.append(p.relation())
            if len(items) > LARGEST_LIST:
                raise OverLimit(f"over {LARGEST_LIST} elements")
            kind = p.kind
            if kind in (",", ";", "and", "or"):
                p.at += 1
                if kind in ",;" and p.kind in ("and", "or"):
                    p.at += 1
            elif kind in closers:
                p.at += 1
                break
            else:
                raise Fault("unparsable", f"{closers[0]!r} is missing before {kind!r}")
    p.bars, p.colon = bars, colon
    return items


def bracket(p: Parser, token: Token) -> Node:
    opened = {"langle": "<"}.get(token.kind, token.kind)
    if opened == "(" and (based := literals.in_brackets(p)) is not None:
        return based
    if token.kind == "langle":
        items, closed = listed(p, "rangle"), ">"
    else:
        items = listed(p, ")", "]") if opened == "(" else listed(p, ")", "]", "[")  # ]1, 2[ is open
        closed = p.tokens[p.at - 1].kind
    if len(items) == 1 and opened + closed in ("()", "[]"):
        return items[0]
    if not items or (len(items) != 2 and opened + closed not in ("()", "[]", "<>")):
        raise Fault("unparsable", "these brackets hold nothing that is known")
    return Tuple(opened, tuple(items), closed)


def braces(p: Parser, token: Token) -> Node:
    if p.kind == "}":
        raise Fault("unparsable", "empty braces")
    bars, p.bars = p.bars, 0
    first = p.relation()
    if p.kind in ("over", "choose"):
        kind = p.kind
        p.at += 1
        second = p.scalar(p.relation())
        first = multiply([p.scalar(first)], [second]) if kind == "over" else Call("binom", (first, second))
    p.bars = bars
    if p.kind == "}":
        p.at += 1
        return first
    if p.kind not in (",", ";"):
        raise Fault("unparsable", "a brace is not closed")
    p.at += 1
    return Set((first, *listed(p, "}")))


def set_(p: Parser, token: Token) -> Node:
    if p.kind == "}}":
        p.at += 1
        return Set(())
    bars, colon, p.bars, p.colon = p.bars, p.colon, 1, False  # a bar ends the first part
    first = p.relation()
    p.bars, p.colon = bars, colon
    if p.kind in ("|", ":"):
        p.at += 1
        conditions = listed(p, "}}")
        if len(conditions) != 1:
            raise Fault("unparsable", "a set of several conditions")
        return conditions[0]
    if p.kind == "}}":
        p.at += 1
        return Set((first,))
    if p.kind not in (",", ";", "and", "or"):
        raise Fault("unparsable", "a set is not closed")
    p.at += 1
    return Set((first, *listed(p, "}}")))


def absolute(p: Parser, token: Token) -> Node:
    p.bars += 1
    node = p.scalar(p.sum())
    p.expect("|")
    p.bars -= 1
    return Call("abs", (node,))


def rounded(p: Parser, token: Token) -> Node:
    name = "floor" if token.kind == "lfloor" else "ceil"
    bars, p.bars = p.bars, 0
    node = p.scalar(p.sum())
    p.bars = bars
    p.expect("r" + token.kind[1:])
    return Call(name, (node,))


def environment(p: Parser, token: Token) -> Node:
    name = token.value.rstrip("*")
    rows: list[list[Node]] = [[]]
    bars, p.bars = p.bars, 0
    while p.kind != "end":
        if p.kind == "row":
            p.at += 1
            rows.append([])
        elif (
            p.kind == "&"
            or (name == "cases" and p.tokens[p.at].value in _CONDITIONS)
            or (p.kind == "," and name not in _MATRICES)
        ):
            p.at += 1
        else:
            rows[-1].append(p.relation())
            if sum(map(len, rows)) > LARGEST_LIST:
                raise OverLimit(f"over {LARGEST_LIST} elements")
    p.bars = bars
    p.at += 1
    filled = [tuple(row) for row in rows if row]
    if not filled:
        raise Fault("unparsable", "nothing between \\begin and \\end")
    if name in _MATRICES:
        if len({len(row) for row in filled}) > 1:
            raise Fault("unparsable", "a matrix with rows of different lengths")
        return Matrix(tuple(tuple(p.scalar(cell) for cell in row) for row in filled))
    return Many(tuple(row[0] if len(row) == 1 else Tuple("(", row, ")") for row in filled))

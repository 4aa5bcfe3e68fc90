"""Fractions, roots and functions in a formula."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlvr.verify.math.brackets import listed
from rlvr.verify.math.lexicon import Token
from rlvr.verify.math.limits import Fault
from rlvr.verify.math.nodes import Call, Const, Node, Num, exact, multiply, negate, power

if TYPE_CHECKING:
    from rlvr.verify.math.parser import Parser

STARTS = frozenset(
    ["v", "c", "(", "{", "frac", "f", "binom", "lfloor", "lceil", "overline", "accent", "begin", "root", "langle"]
)  # what may follow a factor without a sign, and multiplies it
_TRIGONOMETRIC = frozenset(["sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh"])
_MOST_ARGUMENTS = {"max": 100, "min": 100, "gcd": 100, "lcm": 100, "binom": 2, "mod": 2, "log": 2}
_CLOSERS = {"(": ")", "[": "]", "{{": "}}"}
_TWO = ("binom", "mod")


def _argument(p: Parser) -> Node:
    """An argument of \\frac: braces, or one symbol, which is one digit of a number."""
    token = p.tokens[p.at]
    if token.kind == "n" and len(token.value) > 1 and token.value.isdigit():
        p.tokens[p.at] = Token("n", token.value[1:])
        return Num(int(token.value[0]))
    if token.kind in ("+", "-"):
        raise Fault("unparsable", "a fraction's part is missing")
    return p.scalar(p.atom())


def _fraction_parts(p: Parser) -> tuple[Node, Node]:
    return _argument(p), _argument(p)


def fraction(p: Parser, token: Token) -> Node:
    top, bottom = _fraction_parts(p)
    return multiply([top], [bottom])


def binomial(p: Parser, token: Token) -> Node:
    return Call("binom", _fraction_parts(p))


def root_of(p: Parser, token: Token) -> Node:
    degree = p.scalar(p.atom())
    p.expect("of")
    return power(p.scalar(p.atom()), multiply([Num(1)], [degree]))


def function(p: Parser, token: Token) -> Node:
    name = token.value
    if name in ("sqrt", "cbrt"):
        degree: Node = Num(2 if name == "sqrt" else 3)
        if p.kind == "[":
            p.at += 1
            degree = p.scalar(p.sum())
            p.expect("]")
        return Call("root", (p.scalar(p.atom()), degree))
    exponent: Node | None = None
    base: Node | None = None
    while p.kind in ("^", "_"):
        kind = p.kind
        p.at += 1
        if kind == "^" and p.kind in ("circ", "'"):
            raise Fault("unparsable", "a function's argument is missing")
        if kind == "^":
            exponent = p.script()
        elif name == "log":
            base = _log_base(p)
        else:
            raise Fault("unparsable", f"{name} has no subscript")
    if name in _TRIGONOMETRIC and exponent is not None and exact(exponent) == -1:
        name, exponent = ("ar" if name.endswith("h") else "arc") + name, None
    args = _arguments(p)
    if len(args) > _MOST_ARGUMENTS.get(name, 1) or (len(args) < 2 and name in _TWO):
        raise Fault("unparsable", f"{name} does not take {len(args)} arguments")
    if base is not None:
        args = (args[0], base)
    node = {"exp": lambda: power(Const("e"), args[0]), "lg": lambda: Call("log", (args[0], Num(10)))}.get(
        name, lambda: Call(name, args)
    )()
    return node if exponent is None else power(node, exponent)


def _arguments(p: Parser) -> tuple[Node, ...]:
    closed = _CLOSERS.get(p.kind)
    if closed is not None:
        p.at += 1
        args = listed(p, closed)
        if not args:
            raise Fault("unparsable", "a function's argument is missing")
        return tuple(p.scalar(a) for a in args)
    if p.kind == "{":
        return (p.scalar(p.atom()),)
    negative = p.kind == "-"
    p.at += negative
    tops, bottoms = [p.scalar(p.factor())], []
    while p.kind in STARTS and p.kind not in ("f", "("):
        tops.append(p.scalar(p.factor()))
    if p.kind == "/" and p.ahead(1).kind == "n" and all(exact(t) is not None or type(t) is Const for t in tops):
        p.at += 1  # \sin \pi/6
        bottoms.append(p.factor())
    node = multiply(tops, bottoms)
    return (negate(node) if negative else node,)


def _log_base(p: Parser) -> Node:
    """The base under \\log: of a bare number all digits, unless they alone remain (\\log_28)."""
    token = p.ahead(0)
    if token.kind == "n" and token.value.isdigit() and p.ahead(1).kind != "end of text":
        p.at += 1
        return Num(int(token.value))
    return _argument(p)

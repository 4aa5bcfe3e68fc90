"""From tokens to formulas: a recursive-descent parser of bounded depth.

relation := [sign] union (sign union)*           sign: = ~ != < <= > >= in
union    := ratio ((cup | cap | setminus) ratio)*
ratio    := entry (":" entry)*
entry    := [money] sum [unit]
sum      := [+-] product ([+-] product)*         also \\pm and \\mp
product  := factor ([* / mod, or nothing] factor)*
factor   := atom (power | ! | % | degree)*
atom     := number, name, constant, function, bracket, fraction, matrix ...
"""

from __future__ import annotations

from collections.abc import Sequence

from rlvr.verify.math import brackets, functions, literals
from rlvr.verify.math.functions import STARTS
from rlvr.verify.math.lexicon import Token
from rlvr.verify.math.limits import DEEPEST, LARGEST_LIST, Fault, OverLimit
from rlvr.verify.math.measure import entry
from rlvr.verify.math.nodes import (
    SCALARS,
    Call,
    Degree,
    Matrix,
    Node,
    Num,
    Percent,
    Pow,
    Ratio,
    RealSet,
    Relation,
    Set,
    SetOp,
    Sign,
    Text,
    Tuple,
    Var,
    add,
    digits,
    exact,
    factorial,
    multiply,
    negate,
    power,
)
from rlvr.verify.math.units import SINGLE_LETTERS, UNITS

_LONE = frozenset(["n", "v", "c"])  # atoms of one token, where none follows that says more of them:
_CLOSES = frozenset(["end of text", ",", ";", ")", "]", "}", "}}", "and", "or"])
_PARTS = _CLOSES | {"+", "-", "=", "<", ">", "<=", ">="}
_SETS = frozenset([Tuple, Set, SetOp])
_SETS_OPEN = frozenset(["(", "[", "]", "{", "{{"])
SIGNS = frozenset(["=", "~", "!=", "<", "<=", ">", ">=", "in"])
_SET_SIGNS = frozenset(["cup", "cap", "setminus"])
_ADDS = frozenset(["+", "-", "pm", "mp"])
_OPENS = frozenset(["(", "{", "{{", "["])
_ARGUMENTS = {"min": _OPENS, "sec": _OPENS | STARTS | {"n", "^", "_", "|", "-"}}  # may begin what they are functions of
_END = Token("end of text")

ATOMS = {
    "n": literals.number, "v": literals.name, "c": literals.constant, "w": literals.word, "text": literals.named_set,
    "f": functions.function, "frac": functions.fraction, "binom": functions.binomial, "root": functions.root_of,
    "(": brackets.bracket, "[": brackets.bracket, "]": brackets.bracket, "langle": brackets.bracket,
    "{": brackets.braces, "{{": brackets.set_, "|": brackets.absolute,
    "lfloor": brackets.rounded, "lceil": brackets.rounded,
    "overline": literals.accented, "accent": literals.accented, "begin": brackets.environment,
}  # fmt: skip


class Parser:
    """Reads a list of tokens from left to right. Every method raises Fault where the text makes no sense."""

    def __init__(self, tokens: Sequence[Token]):
        self.tokens = [*tokens, _END]
        self.at = 0
        self.depth = 0
        self.bars = 0  # open |...|
        self.colon = True  # a colon is a ratio's
        self.both_signs = False  # a \\pm or \\mp was read

    # Small things

    @property
    def kind(self) -> str:
        return self.tokens[self.at].kind

    def ahead(self, distance: int) -> Token:
        return self.tokens[min(self.at + distance, len(self.tokens) - 1)]

    def expect(self, kind: str) -> None:
        if self.kind != kind:
            raise Fault("unparsable", f"{kind!r} is missing before {self.kind!r}")
        self.at += 1

    def _lone(self, ends: frozenset[str]) -> Node | None:
        """An atom of one token before one of these, which most are: nothing between here and `atom` has a say in it."""
        token = self.tokens[self.at]
        if token.kind in _LONE and self.tokens[self.at + 1].kind in ends:
            self.at += 1
            return literals.plain(token.value) if token.kind == "n" else ATOMS[token.kind](self, token)
        return None

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise OverLimit(f"over {DEEPEST} levels")

    def scalar(self, node: Node) -> Node:
        if type(node) not in SCALARS:
            raise Fault("unparsable", f"one cannot compute with a {type(node).__name__}")
        return node

    def raw(self) -> str:
        """The next token, or braces with all that is in them, as text: the name in a subscript."""
        if self.kind != "{":
            token = self.tokens[self.at]
            if token.kind == "end of text":
                raise Fault("unparsable", "a subscript is missing")
            self.at += 1
            return token.value or token.kind
        parts, level = [], 0
        while True:
            token = self.tokens[self.at]
            if token.kind == "end of text":
                raise Fault("unparsable", "a brace is not closed")
            self.at += 1
            level += (token.kind == "{") - (token.kind == "}")
            if token.kind not in "{}":
                parts.append(token.value or token.kind)
            if not level:
                return "".join(parts)

    # Sets, relations

    def relation(self) -> Node:
        lone = self._lone(_CLOSES)
        if lone is not None:
            return lone
        sides: list[Node] = []
        signs: list[str] = []
        if self.kind not in SIGNS and self.kind != "not":
            sides.append(self.union())
        else:
            sides.append(Text(""))
        while True:
            sign = self.tokens[self.at].kind
            if sign == "not":
                self.at += 1
                if self.kind != "=":
                    raise Fault("unparsable", "\\not is only known before =")
                sign = "!="
            elif sign not in SIGNS:
                break
            self.at += 1
            signs.append(sign)
            sides.append(self.union())
        return Relation(tuple(sides), tuple(signs)) if signs else sides[0]

    def union(self) -> Node:
        left = self.ratio()
        while (kind := self.tokens[self.at].kind) in _SET_SIGNS or (kind == "v" and self._joins(left)):
            sign = "cup" if kind == "v" else kind
            self.at += 1
            right = self.ratio()
            if isinstance(left, SetOp) and left.name == sign and sign != "setminus":
                left = SetOp(sign, (*left.args, right))
            else:
                left = SetOp(sign, (left, right))
                self._deeper()
        return left

    def _joins(self, left: Node) -> bool:
        """Whether a capital U follows that stands between two sets: [1, 2) U (3, 4]."""
        return self.tokens[self.at] == ("v", "U") and type(left) in _SETS and self.ahead(1).kind in _SETS_OPEN

    def ratio(self) -> Node:
        first = entry(self)
        if self.kind != ":" or not self.colon:
            return first
        parts = [self.scalar(first)]
        while self.kind == ":":
            self.at += 1
            parts.append(self.scalar(entry(self)))
        return Ratio(tuple(parts))

    # Arithmetic

    def sum(self) -> Node:
        terms: list[Node] = []
        while True:
            negative, sign = False, 0
            while (kind := self.tokens[self.at].kind) in _ADDS:
                self.at += 1
                if kind == "-":
                    negative = not negative
                elif kind != "+":
                    sign = 1 if kind == "pm" else -1
                    self.both_signs = True
            term = self.product()
            if type(term) is Matrix:
                term = _scaled(term, Num(-1)) if negative else term
            elif sign:
                term = multiply([Sign(-sign if negative else sign), self.scalar(term)], [])
            elif negative:
                term = negate(self.scalar(term))
            terms.append(term)
            if self.tokens[self.at].kind not in _ADDS:
                break
        if len(terms) == 1:
            return terms[0]
        if all(type(term) is Matrix for term in terms):
            return _added(terms)  # type: ignore[arg-type]
        return add([self.scalar(term) for term in terms])

    def product(self) -> Node:
        lone = self._lone(_PARTS)
        if lone is not None:
            return lone
        tops: list[Node] = [self.factor()]
        bottoms: list[Node] = []
        while True:
            kind = self.tokens[self.at].kind
            if kind == "*":
                self.at += 1
                tops.append(self._signed_factor())
            elif kind == "/" and self.ahead(1).kind != "w" and not self.names_unit(1):
                self.at += 1
                bottoms.append(self._signed_factor())
            elif kind == "bmod":
                self.at += 1
                self._deeper()
                tops = [Call("mod", (self.scalar(multiply(tops, bottoms)), self._signed_factor()))]
                bottoms = []
            elif (kind == "v" and self._joins(tops[-1])) or (kind == "f" and self.names_unit(0)):
                break
            elif kind in STARTS or (kind == "|" and not self.bars) or self._clings(tops[-1]):
                tops.append(self.factor())
            else:
                break
        if len(tops) == 1 and not bottoms:
            return tops[0]
        matrices = [t for t in tops if type(t) is Matrix]
        if matrices:
            others = [self.scalar(t) for t in tops if type(t) is not Matrix]
            matrix = matrices[0] if len(matrices) == 1 else _multiplied(*matrices)
            return _scaled(matrix, multiply(others or [Num(1)], bottoms)) if others or bottoms else matrix
        for node in (*tops, *bottoms):
            self.scalar(node)
        return multiply(tops, bottoms)

    def names_unit(self, distance: int) -> bool:
        """Whether a token is `min` or `sec` without what they are functions of: 90 min, 5 sec, but not 5 sec x."""
        token, follows = self.ahead(distance), self.ahead(distance + 1).kind
        return token.kind == "f" and token.value in UNITS and follows not in _ARGUMENTS[token.value]

    def _clings(self, before: Node) -> bool:
        """Whether an upright letter follows that is no unit, or a number behind a power or function that ended without
        one: (-1)^n 2^n."""
        kind, value = self.tokens[self.at]
        if kind == "n":
            return type(before) in (Pow, Call) and self.tokens[self.at - 1].kind != "n"
        return kind == "w" and len(value) == 1 and value not in SINGLE_LETTERS

    def _signed_factor(self) -> Node:
        negative = False
        while self.kind in ("+", "-"):
            negative ^= self.kind == "-"
            self.at += 1
        node = self.factor()
        return negate(self.scalar(node)) if negative else node

    def factor(self) -> Node:
        bracketed = self.tokens[self.at].kind == "("
        depth = self.depth
        node = self.atom()
        while True:
            kind = self.tokens[self.at].kind
            if kind in ("^", "!", "%", "deg"):
                self._deeper()
            if kind == "^":
                self.at += 1
                if self.kind == "circ" or [self.ahead(i).kind for i in range(3)] == ["{", "circ", "}"]:
                    self.at += 1 if self.kind == "circ" else 3
                    node = Degree(self.scalar(node))
                    continue
                exponent = self.script()
                if type(node) is Matrix and exponent == Var("T"):
                    node = Matrix(tuple(zip(*node.rows)))
                elif type(node) is RealSet:
                    raise Fault("unparsable", "powers of sets are not known")
                else:
                    node = power(self.scalar(node), exponent)
            elif kind == "!":
                self.at += 1
                node = factorial(self.scalar(node))
            elif kind == "%":
                self.at += 1
                node = Percent(self.scalar(node))
            elif kind == "deg":
                self.at += 1
                node = Degree(self.scalar(node))
            elif kind == "_" and bracketed and type(node) is Num and type(node.value) is int and node.value >= 0:
                node = literals.based(self, digits(node.value))  # (101)_2
            else:
                self.depth = depth
                return node

    def script(self) -> Node:
        """What an exponent's sign raises: braces, brackets or one symbol, with a sign before it."""
        negative = False
        while self.kind in ("-", "+"):
            negative ^= self.kind == "-"
            self.at += 1
        if self.kind in ("'", "*"):
            raise Fault("unparsable", "primes and stars are not known as exponents")
        token = self.tokens[self.at]
        if token.kind == "n":  # by itself: what follows is not its fraction, as in \sin^2 3/4
            self.at += 1
            node: Node = literals.plain(token.value)
        else:
            node = self.scalar(self.atom())
        if self.kind == "^":
            self.at += 1
            self._deeper()
            node = power(node, self.script())
            self.depth -= 1
        return negate(node) if negative else node

    def atom(self) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            raise OverLimit(f"over {DEEPEST} levels")
        token = self.tokens[self.at]
        self.at += 1
        read = ATOMS.get(token.kind)
        if read is None:
            ends = token.kind == "end of text"
            raise Fault("unparsable", "it ends too early" if ends else f"{token.value or token.kind!r} is not expected")
        node: Node = read(self, token)
        self.depth -= 1
        return node


def _scaled(matrix: Matrix, by: Node) -> Matrix:
    return Matrix(tuple(tuple(multiply([by, cell], []) for cell in row) for row in matrix.rows))


def _multiplied(a: Matrix, b: Matrix, *more: Matrix) -> Matrix:
    """The product of two matrices of numbers; of formulas it could grow beyond all bounds."""
    rows, columns = a.rows, list(zip(*b.rows))
    cells = [exact(cell) for row in (*a.rows, *b.rows) for cell in row]
    if more or None in cells or len(rows) * len(columns) * len(b.rows) > LARGEST_LIST:
        raise Fault("unparsable", "only two small matrices of numbers are multiplied")
    if len(rows[0]) != len(b.rows):
        raise Fault("unparsable", "matrices of these shapes cannot be multiplied")
    return Matrix(
        tuple(tuple(add([multiply([x, y], []) for x, y in zip(row, column)]) for column in columns) for row in rows)
    )


def _added(matrices: Sequence[Matrix]) -> Matrix:
    shapes = {tuple(map(len, matrix.rows)) for matrix in matrices}
    if len(shapes) > 1:
        raise Fault("unparsable", "matrices of different shapes cannot be added")
    rows = zip(*(matrix.rows for matrix in matrices))
    return Matrix(tuple(tuple(add(list(cells)) for cells in zip(*row)) for row in rows))

"""What the generators write: a small tree, its exact value, and its text in LaTeX, keyboard or Unicode spelling.

Value and text are two readings of one tree. A rewrite is another tree with the same value, or the same tree in another
style; a mutation is a tree with another value. `value` is the certificate's side and knows nothing of texts but the
literals, which `Fraction` reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

from rlvr.audit.exact import Shape, imaginary, rational, square_root, symbol


class Form(NamedTuple):
    """A node: what it is, and its parts (forms, texts, numbers). The functions below build them."""

    op: str
    parts: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Style:
    """How a form is spelled."""

    frac: str = "\\frac"  # "\\dfrac", "\\tfrac", "/" for a slash
    times: str = "\\cdot "  # between two numbers
    star: bool = False  # a sign also between a number and a letter
    root: str = "\\sqrt"  # "√", "sqrt"
    pi: str = "\\pi"
    minus: str = "-"
    power: str = "{}"  # "{}": x^{2}; "": x^2 where one digit follows; "**"
    left: str = ""  # "\\left", "\\right" before brackets
    right: str = ""
    comma: str = ", "
    less: tuple[str, str, str, str] = ("<", ">", "\\le", "\\ge")
    infinity: str = "\\infty"
    union: str = "\\cup"
    set_braces: tuple[str, str] = ("\\{", "\\}")
    matrix: str = "pmatrix"
    percent: str = "\\%"
    degree: str = "^\\circ"
    unit: Callable[[str], str] = lambda name: f" \\text{{ {name}}}".replace("{ ", "{")


LATEX = Style()
KEYBOARD = Style(
    frac="/", times="*", star=True, root="sqrt", pi="pi", power="", less=("<", ">", "<=", ">="), infinity="inf",
    union="U", set_braces=("{", "}"), percent="%", degree=" degrees", unit=lambda name: f" {name}",
)  # fmt: skip
UNICODE = Style(
    frac="/", times="·", root="√", pi="π", minus="−", power="unicode", less=("<", ">", "≤", "≥"), infinity="∞",
    union="∪", set_braces=("{", "}"), percent="%", degree="°", unit=lambda name: f" {name}",
)  # fmt: skip


def lit(text: str, core: str | None = None) -> Form:
    """A number as it is spelled; `core` is what `Fraction` reads, the text without its decoration."""
    return Form("lit", (text, core if core is not None else text))


def num(value: int) -> Form:
    return lit(str(value)) if value >= 0 else neg(lit(str(-value)))


def ratio(value: Fraction) -> Form:
    """A reduced fraction, its sign in front; an integer where it is one."""
    if value.denominator == 1:
        return num(value.numerator)
    out = div(num(abs(value.numerator)), num(value.denominator))
    return neg(out) if value < 0 else out


def sym(name: str) -> Form:
    return Form("sym", (name,))


def neg(x: Form) -> Form:
    return Form("neg", (x,))


def add(*xs: Form) -> Form:
    return Form("add", xs)


def mul(*xs: Form) -> Form:
    return Form("mul", xs)


def div(a: Form, b: Form) -> Form:
    return Form("div", (a, b))


def power(x: Form, exponent: int) -> Form:
    return Form("pow", (x, exponent))


def root(n: int) -> Form:
    return Form("root", (n,))


PI, I = sym("pi"), sym("i")

# ---- the value -------------------------------------------------------------------------------------------
# factors of a unit into its dimension's base unit
UNITS: dict[str, tuple[str, Fraction]] = {
    "mm": ("m", Fraction(1, 1000)), "cm": ("m", Fraction(1, 100)), "m": ("m", Fraction(1)), "km": ("m", Fraction(1000)),
    "g": ("g", Fraction(1)), "kg": ("g", Fraction(1000)), "s": ("s", Fraction(1)),
    "minutes": ("s", Fraction(60)), "hours": ("s", Fraction(3600)),
}  # fmt: skip


def value(form: Form) -> Any:
    """The exact value: an Exact, or a Shape of them."""
    op, parts = form
    if op == "lit":
        return rational(Fraction(parts[1]))
    if op == "sym":
        return imaginary() if parts[0] == "i" else symbol(parts[0])
    if op == "neg":
        return -value(parts[0])
    if op in ("add", "mul"):
        out = value(parts[0])
        for part in parts[1:]:
            out = out + value(part) if op == "add" else out * value(part)
        return out
    if op == "div":
        return value(parts[0]) / value(parts[1])
    if op == "pow":
        return value(parts[0]) ** parts[1]
    if op == "root":
        return square_root(parts[0])
    if op == "factorial":
        return rational(math.factorial(parts[0]))
    if op == "binomial":
        return rational(math.comb(*parts))
    if op == "log":  # base b of b**k
        base, argument = parts
        k = next(k for k in range(64) if base**k == argument)
        return rational(k)
    if op == "mixed":
        whole, top, bottom = parts
        return rational(whole + Fraction(top, bottom))
    if op == "based":
        digits, base = parts
        return rational(int(digits, base))
    return _shape(op, parts)


def _shape(op: str, parts: tuple[Any, ...]) -> Any:
    if op == "percent":
        return value(parts[0]) / rational(100)
    if op == "degrees":
        return Shape("quantity", (value(parts[0]), "degrees"))
    if op == "quantity":
        base, factor = UNITS[parts[1]]
        return Shape("quantity", (value(parts[0]) * rational(factor), base))
    if op == "relation":
        sign, a, b = parts
        difference = value(a) - value(b)
        if sign == "=":
            return Shape("equation", (difference,))
        if sign in (">", ">="):
            difference = -difference
        return Shape("less" if sign in "<>" else "less_equal", (difference,))
    if op == "interval":
        opened, a, b, closed = parts
        return Shape("interval", (opened, value(a), value(b), closed))
    if op == "matrix":
        return Shape("matrix", tuple(Shape("tuple", tuple(map(value, row))) for row in parts))
    if op == "word":
        return Shape("word", parts)
    kind = {"tuple": "tuple", "set": "set", "union": "set"}[op]
    return Shape(kind, tuple(map(value, parts)))


# ---- the text --------------------------------------------------------------------------------------------
_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def show(form: Form, style: Style = LATEX) -> str:
    return _show(form, style)[0]


def _show(form: Form, s: Style) -> tuple[str, int]:
    """(text, how tightly it binds: 0 sum, 1 product or sign, 2 power, 3 atom)."""
    op, parts = form
    if op == "lit":
        return parts[0], 3 if parts[0][:1].isdigit() or parts[0][:1] in ".{" else 1
    if op == "sym":
        return (s.pi if parts[0] == "pi" else s.infinity if parts[0] == "inf" else parts[0]), 3
    if op == "neg":
        return s.minus + _negated(parts[0], s), 1
    if op == "add":
        out = show(parts[0], s)
        for part in parts[1:]:
            out += f" {s.minus} {_negated(part.parts[0], s)}" if part.op == "neg" else f" + {_bound(part, s, 1)}"
        return out, 0
    if op == "mul":
        return _product(parts, s), 1
    if op == "div":
        if s.frac != "/":
            return f"{s.frac}{{{show(parts[0], s)}}}{{{show(parts[1], s)}}}", 3
        return f"{_bound(parts[0], s, 2)}/{_bound(parts[1], s, 3)}", 1
    if op == "pow":
        return _power(_bound(parts[0], s, 3), parts[1], s), 2
    if op == "root":
        text = str(parts[0])
        braces = f"({text})" if s.root == "sqrt" or (s.root == "√" and len(text) > 1) else text
        return s.root + (f"{{{text}}}" if s.root == "\\sqrt" else braces), 3
    return _show_rest(op, parts, s), 3


def _show_rest(op: str, parts: tuple[Any, ...], s: Style) -> str:
    if op == "factorial":
        return f"{parts[0]}!"
    if op == "binomial":
        return f"\\binom{{{parts[0]}}}{{{parts[1]}}}"
    if op == "log":
        return f"\\log_{{{parts[0]}}} {parts[1]}"
    if op == "mixed":
        plain = s.frac == "/"
        return f"{parts[0]} {parts[1]}/{parts[2]}" if plain else f"{parts[0]}{s.frac}{{{parts[1]}}}{{{parts[2]}}}"
    if op == "based":
        return f"{parts[0]}_{parts[1]}" if s.power == "" and parts[1] < 10 else f"{parts[0]}_{{{parts[1]}}}"
    if op == "percent":
        return show(parts[0], s) + s.percent
    if op == "degrees":
        return show(parts[0], s) + s.degree
    if op == "quantity":
        return show(parts[0], s) + s.unit(parts[1])
    if op == "relation":
        sign, a, b = parts
        spelled = dict(zip(("<", ">", "<=", ">="), s.less)).get(sign, sign)
        return f"{show(a, s)} {spelled} {show(b, s)}"
    if op == "interval":
        opened, a, b, closed = parts
        inner = f"{show(a, s)}{s.comma}{show(b, s)}"
        return f"{s.left}{'(' if opened else '['}{inner}{s.right}{')' if closed else ']'}"
    if op == "matrix":
        rows = " \\\\ ".join(" & ".join(show(x, s) for x in row) for row in parts)
        return f"\\begin{{{s.matrix}}} {rows} \\end{{{s.matrix}}}"
    if op == "union":
        return f" {s.union} ".join(show(x, s) for x in parts)
    inner = s.comma.join(show(x, s) for x in parts) if op != "word" else parts[0]
    if op == "tuple":
        return f"{s.left}({inner}{s.right})"
    if op == "set":
        return f"{s.left}{s.set_braces[0]}{inner}{s.right}{s.set_braces[1]}"
    return f"\\text{{{inner}}}" if s.power == "{}" else inner


def _negated(form: Form, s: Style) -> str:
    return f"({show(form, s)})" if form.op == "neg" else _bound(form, s, 1)


def _bound(form: Form, s: Style, tightness: int) -> str:
    text, binds = _show(form, s)
    return text if binds >= tightness else f"{s.left}({text}{s.right})"


def _product(parts: tuple[Form, ...], s: Style) -> str:
    out = _bound(parts[0], s, 1)
    for part in parts[1:]:
        text = _bound(part, s, 2)
        if s.star or text[:1].isdigit() or (text[:2] in ("\\f", "\\d", "\\t") and out[-1:].isdigit()):
            out += s.times + text
        else:  # a macro's name must not run into a letter
            out += (" " if text[:1].isalpha() and out[-2:] == "pi" else "") + text
    return out


def _power(base: str, exponent: int, s: Style) -> str:
    if s.power == "unicode":
        return base + str(exponent).translate(_SUPERSCRIPT)
    if s.power == "**":
        return f"{base}**{exponent}"
    return f"{base}^{exponent}" if s.power == "" and 0 <= exponent < 10 else f"{base}^{{{exponent}}}"


def styled(**changes: Any) -> Style:
    return replace(LATEX, **changes)

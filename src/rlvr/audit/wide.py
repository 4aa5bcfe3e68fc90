"""More kinds of answers than the main corpus has, a template each: sets of numbers, several values, names, quantities,
functions, near misses.

Each template draws its numbers and works the truth out for itself, by whole numbers and fractions: a set of numbers by
trying every end, every gap and beyond; a quantity in base units; a root by whole-number roots. Where a theorem decides,
its name is the rewrite. Nothing is read here, so no code is shared with a parser.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from itertools import pairwise
from math import comb, factorial, gcd, isqrt, lcm
from typing import NamedTuple

CARDINALS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
EACH = 6  # draws of a template; ours


class Asked(NamedTuple):
    category: str
    rewrite: str
    gold: str
    answer: str
    equal: bool


Inside = Callable[[Fraction], bool]


class Written(NamedTuple):
    """A set of real numbers as a text, and which numbers are in it."""

    name: str
    text: str
    inside: Inside


def questions(seed: int) -> Iterator[Asked]:
    for template in TEMPLATES:
        for i in range(EACH):
            yield from template(random.Random(f"{seed}:{template.__name__}:{i}"))


# ---- sets of real numbers --------------------------------------------------------------------------------
def _sets(r: random.Random) -> Iterator[Asked]:
    a, b, c, d = sorted(r.sample(range(-12, 13), 4))
    p, q = sorted(r.sample(range(1, 12), 2))
    written = [
        Written("interval, open", f"({a}, {b})", lambda x: a < x < b),
        Written("interval, closed left", f"[{a}, {b})", lambda x: a <= x < b),
        Written("interval, closed right", f"({a}, {b}]", lambda x: a < x <= b),
        Written("interval, closed", f"[{a}, {b}]", lambda x: a <= x <= b),
        Written("interval, other end", f"[{a}, {c}]", lambda x: a <= x <= c),
        Written("bracket turned", f"]{a}, {b}[", lambda x: a < x < b),
        Written("bracket turned, left", f"]{a}, {b}]", lambda x: a < x <= b),
        Written("bracket turned, right", f"[{a}, {b}[", lambda x: a <= x < b),
        Written("double inequality, open", f"{a} < x < {b}", lambda x: a < x < b),
        Written("double inequality, closed left", f"{a} \\le x < {b}", lambda x: a <= x < b),
        Written("double inequality, turned", f"{b} \\ge x > {a}", lambda x: a < x <= b),
        Written("two inequalities", f"x \\ge {a} \\text{{ and }} x \\le {b}", lambda x: a <= x <= b),
        Written("set builder", f"\\{{x \\mid {a} < x < {b}\\}}", lambda x: a < x < b),
        Written("pieces that touch", f"[{a}, {b}) \\cup [{b}, {c}]", lambda x: a <= x <= c),
        Written("pieces that begin together", f"({a}, {b}] \\cup [{a}, {c}]", lambda x: a <= x <= c),
        Written("pieces that begin together, closed first", f"[{a}, {b}) \\cup ({a}, {c}]", lambda x: a <= x <= c),
        Written("pieces that begin together, open", f"({a}, {c}) \\cup ({a}, {b})", lambda x: a < x < c),
        Written("pieces that begin together, end open", f"({a}, {b}] \\cup [{a}, {c})", lambda x: a <= x < c),
        Written("pieces that end together", f"[{a}, {c}] \\cup [{b}, {c})", lambda x: a <= x <= c),
        Written("pieces that overlap", f"[{a}, {c}] \\cup ({b}, {c}]", lambda x: a <= x <= c),
        Written("pieces, a point missing", f"[{a}, {b}) \\cup ({b}, {c}]", lambda x: a <= x <= c and x != b),
        Written("setminus a point", f"[{a}, {c}] \\setminus \\{{{b}\\}}", lambda x: a <= x <= c and x != b),
        Written(
            "inequalities and a point missing", f"{a} \\le x \\le {c}, x \\ne {b}", lambda x: a <= x <= c and x != b
        ),
        Written("intersection, open", f"({a}, {c}) \\cap ({b}, {d})", lambda x: b < x < c),
        Written("intersection, closed", f"[{a}, {c}] \\cap [{b}, {d}]", lambda x: b <= x <= c),
        Written("intersection, half", f"[{a}, {c}) \\cap [{b}, {d}]", lambda x: b <= x < c),
        Written("intersection, one beginning", f"[{a}, {c}] \\cap ({a}, {b}]", lambda x: a < x <= b),
        Written("intersection, one beginning, turned", f"({a}, {c}] \\cap [{a}, {b}]", lambda x: a < x <= b),
        Written("intersection, one end", f"[{b}, {c}) \\cap [{a}, {c}]", lambda x: b <= x < c),
        Written("intersection, one end, turned", f"({a}, {c}] \\cap [{b}, {c})", lambda x: b <= x < c),
        Written("intersection, a point", f"[{a}, {b}] \\cap [{b}, {c}]", lambda x: x == b),
        Written("a point", f"\\{{{b}\\}}", lambda x: x == b),
        Written("intersection, no point", f"[{a}, {b}) \\cap [{b}, {c}]", lambda x: False),
        Written("intersection, no point, turned", f"[{a}, {b}] \\cap ({b}, {c}]", lambda x: False),
        Written("nothing", "\\emptyset", lambda x: False),
        Written("intersection of rays", f"({a}, \\infty) \\cap [{b}, \\infty)", lambda x: x >= b),
        Written("intersection of rays, left", f"(-\\infty, {b}) \\cap (-\\infty, {a})", lambda x: x < a),
        Written("union of rays", f"({c}, \\infty) \\cup [{b}, \\infty)", lambda x: x >= b),
        Written("union of rays, left", f"(-\\infty, {a}) \\cup (-\\infty, {b}]", lambda x: x <= b),
        Written("a ray, from b", f"[{b}, \\infty)", lambda x: x >= b),
        Written("a ray, to b", f"x \\le {b}", lambda x: x <= b),
        Written("an empty piece", f"({b}, {b}) \\cup [{c}, {d}]", lambda x: c <= x <= d),
        Written("an empty piece, closed left", f"[{b}, {b}) \\cup [{c}, {d}]", lambda x: c <= x <= d),
        Written("an empty piece, closed right", f"({b}, {b}] \\cup [{c}, {d}]", lambda x: c <= x <= d),
        Written("a piece of one point", f"[{b}, {b}] \\cup [{c}, {d}]", lambda x: x == b or c <= x <= d),
        Written("a point and a piece", f"\\{{{b}\\}} \\cup [{c}, {d}]", lambda x: x == b or c <= x <= d),
        Written("no empty piece", f"[{c}, {d}]", lambda x: c <= x <= d),
        Written(
            "everything but two pieces",
            f"\\mathbb{{R}} \\setminus ([{a}, {b}) \\cup ({c}, {d}])",
            lambda x: x < a or b <= x <= c or x > d,
        ),
        Written(
            "its three pieces",
            f"(-\\infty, {a}) \\cup [{b}, {c}] \\cup ({d}, \\infty)",
            lambda x: x < a or b <= x <= c or x > d,
        ),
        Written(
            "everything but two rays",
            f"\\mathbb{{R}} \\setminus ((-\\infty, {a}] \\cup [{b}, \\infty))",
            lambda x: a < x < b,
        ),
        Written("its interval, open", f"({b}, {c})", lambda x: b < x < c),
        Written("its interval, half", f"[{b}, {c})", lambda x: b <= x < c),
        Written("its interval, closed", f"[{b}, {c}]", lambda x: b <= x <= c),
        Written("setminus an interval", f"[{a}, {c}] \\setminus ({b}, {c}]", lambda x: a <= x <= b),
        Written("everything but an interval", f"\\mathbb{{R}} \\setminus [{a}, {b}]", lambda x: x < a or x > b),
        Written("two rays, open", f"(-\\infty, {a}) \\cup ({b}, \\infty)", lambda x: x < a or x > b),
        Written("two rays, closed", f"(-\\infty, {a}] \\cup [{b}, \\infty)", lambda x: x <= a or x >= b),
        Written("two rays as inequalities", f"x < {a} \\text{{ or }} x > {b}", lambda x: x < a or x > b),
        Written("two rays with a comma", f"x \\le {a}, x \\ge {b}", lambda x: x <= a or x >= b),
        Written("a point missing", f"x \\ne {a}", lambda x: x != a),
        Written("a point missing, as intervals", f"(-\\infty, {a}) \\cup ({a}, \\infty)", lambda x: x != a),
        Written("a point missing, setminus", f"\\mathbb{{R}} \\setminus \\{{{a}\\}}", lambda x: x != a),
        Written("a ray", f"x > {a}", lambda x: x > a),
        Written("a ray, no name", f"> {a}", lambda x: x > a),
        Written("a ray, moved over", f"{a} < x", lambda x: x > a),
        Written("a ray, negated", f"-x < {-a}", lambda x: x > a),
        Written("a ray, closed", f"[{a}, \\infty)", lambda x: x >= a),
        Written("a ray, left", f"(-\\infty, {a})", lambda x: x < a),
        Written("a ray and a point", f"\\{{{a}\\}} \\cup ({b}, \\infty)", lambda x: x == a or x > b),
        Written("absolute below", f"|x| < {p}", lambda x: abs(x) < p),
        Written("absolute below, closed", f"|x| \\le {p}", lambda x: abs(x) <= p),
        Written("absolute below, from 0", f"0 \\le |x| < {p}", lambda x: abs(x) < p),
        Written("its interval", f"(-{p}, {p})", lambda x: -p < x < p),
        Written("its closed interval", f"[-{p}, {p}]", lambda x: -p <= x <= p),
        Written("absolute above", f"|x| > {p}", lambda x: abs(x) > p),
        Written("its rays", f"(-\\infty, -{p}) \\cup ({p}, \\infty)", lambda x: abs(x) > p),
        Written("absolute above 0", "|x| > 0", lambda x: x != 0),
        Written("absolute at most 0", "|x| \\le 0", lambda x: x == 0),
        Written("but for 0", "x \\ne 0", lambda x: x != 0),
        Written("0 alone", "\\{0\\}", lambda x: x == 0),
        Written("absolute between", f"{p} \\le |x| < {q}", lambda x: p <= abs(x) < q),
        Written("its intervals", f"(-{q}, -{p}] \\cup [{p}, {q})", lambda x: p <= abs(x) < q),
        Written("its intervals, an end open", f"(-{q}, -{p}) \\cup [{p}, {q})", lambda x: -q < x < -p or p <= x < q),
    ]
    ends = sorted({Fraction(e) for e in (a, b, c, d, p, q, -p, -q, 0)})
    tried = [*ends, ends[0] - 1, ends[-1] + 1, *((x + y) / 2 for x, y in pairwise(ends))]
    table = {w.name: [w.inside(x) for x in tried] for w in written}
    for gold in written:
        others = [w for w in written if w is not gold]
        same = [w for w in others if table[w.name] == table[gold.name]]
        near = sorted(others, key=lambda w: sum(map(lambda x, y: x != y, table[w.name], table[gold.name])))
        for other in same:
            yield Asked("real_sets", f"{gold.name}: {other.name}", gold.text, other.text, True)
        for other in [w for w in near if w not in same][:4]:
            yield Asked("real_sets", f"{gold.name}: not {other.name}", gold.text, other.text, False)


# ---- several values --------------------------------------------------------------------------------------
def _several(r: random.Random) -> Iterator[Asked]:
    a, b, n = r.randint(1, 9), r.randint(1, 9), r.choice((2, 3, 5, 6, 7))
    x, y, z = r.sample(range(-20, 21), 3)
    yes, no = "several", "several"
    yield Asked(yes, "plus-minus", f"{a} \\pm \\sqrt{{{n}}}", f"{a}+\\sqrt{{{n}}}, {a}-\\sqrt{{{n}}}", True)
    yield Asked(yes, "plus-minus, minus first", f"{a} \\pm \\sqrt{{{n}}}", f"{a} \\mp \\sqrt{{{n}}}", True)
    yield Asked(yes, "plus-minus of one", f"\\pm {a}", f"\\{{-{a}, {a}\\}}", True)
    yield Asked(
        yes,
        "plus-minus over",
        f"\\frac{{{a} \\pm \\sqrt{{{n}}}}}{{2}}",
        f"\\frac{{{a}-\\sqrt{{{n}}}}}{{2}}, \\frac{{{a}+\\sqrt{{{n}}}}}{{2}}",
        True,
    )
    yield Asked(yes, "plus-minus, named", f"x = {a} \\pm {a + b}", f"x = {-b}, x = {2 * a + b}", True)
    yield Asked(no, "one of plus-minus", f"\\pm {a}", f"{a}", False)
    yield Asked(no, "plus-minus, sign outside", f"{a} \\pm \\sqrt{{{n}}}", f"-{a} \\pm \\sqrt{{{n}}}", False)
    yield Asked(no, "plus-minus, other part", f"{a} \\pm \\sqrt{{{n}}}", f"{a} \\pm \\sqrt{{{n + 1}}}", False)
    yield Asked(no, "plus-minus, both plus", f"{a} \\pm \\sqrt{{{n}}}", f"{a}+\\sqrt{{{n}}}, {a}+\\sqrt{{{n}}}", False)
    for text in (
        f"{y}, {x}, {z}",
        f"{z}; {y}; {x}",
        f"{x}, {y} and {z}",
        f"{z} or {x} or {y}",
        f"\\{{{z}, {x}, {y}\\}}",
    ):
        yield Asked(yes, "list in another order", f"{x}, {y}, {z}", text, True)
    for text in (
        f"{x}, {y}",
        f"{x}, {y}, {z + 1}",
        f"{x}, {y}, {y}",
        f"{x}, {y}, {z}, {z + 1}",
        f"{x}, {y}, {-z or 1}",
    ):
        yield Asked(no, "list, one changed", f"{x}, {y}, {z}", text, False)
    yield Asked(yes, "a set has an item once", f"\\{{{x}, {y}\\}}", f"\\{{{x}, {y}, {x}\\}}", True)
    yield Asked(no, "a list counts it twice", f"{x}, {y}", f"{x}, {y}, {x}", False)
    yield Asked(yes, "a set of formulas, one twice", f"\\{{x, x+{a}\\}}", f"\\{{x, x+{a}, x\\}}", True)
    yield Asked(no, "a set of formulas, one less", f"\\{{x, x+{a}\\}}", "\\{x\\}", False)
    yield Asked(no, "a set of formulas, one changed", f"\\{{x, x+{a}\\}}", f"\\{{x, x-{a}\\}}", False)
    yield Asked(yes, "a list with 0 and a root", f"0, \\sqrt{{{n}}}", f"\\sqrt{{{n}}}, 0", True)
    yield Asked(yes, "a list of a pair and a number", f"({x}, {y}), {z}", f"{z}, ({x}, {y})", True)
    yield Asked(no, "a list of a pair and a number, pair turned", f"({x}, {y}), {z}", f"{z}, ({y}, {x})", False)
    yield Asked(no, "a set of one less", f"\\{{{x}, {y}\\}}", f"\\{{{x}\\}}", False)
    yield Asked(yes, "a set of one", f"\\{{{x}\\}}", f"{x}", True)
    yield Asked(yes, "pairs in another order", f"({x}, {y}), ({y}, {z})", f"({y}, {z}), ({x}, {y})", True)
    yield Asked(no, "pairs, one turned", f"({x}, {y}), ({y}, {z})", f"({y}, {x}), ({y}, {z})", False)
    yield Asked(no, "a list for a pair", f"({x}, {y})", f"{x}, {y}", False)
    yield Asked(no, "a triple for a list", f"({x}, {y}, {z})", f"({z}, {x}, {y})", False)
    yield Asked(yes, "roots in another form", f"\\sqrt{{{n * 4}}}, {x}", f"{x}, 2\\sqrt{{{n}}}", True)
    yield Asked(no, "roots, one not", f"\\sqrt{{{n * 4}}}, {x}", f"{x}, 4\\sqrt{{{n}}}", False)
    yield Asked(yes, "the empty set", "\\emptyset", "\\{\\}", True)
    yield Asked(no, "not the empty set", "\\emptyset", "\\{0\\}", False)
    yield Asked(
        yes,
        "set with roots, once",
        f"\\{{\\sqrt{{{n}}}, {x}\\}}",
        f"\\{{{x}, \\sqrt{{{n}}}, \\frac{{{n}}}{{\\sqrt{{{n}}}}}\\}}",
        True,
    )


# ---- names -----------------------------------------------------------------------------------------------
def _names(r: random.Random) -> Iterator[Asked]:
    a, b, c = r.sample(range(2, 30), 3)
    for gold, answer in (
        (f"x = {a}", f"{a}"),
        (f"{a}", f"x = {a}"),
        (f"x = {a}", f"{a} = x"),
        (f"x = {a}, y = {b}", f"y = {b}, x = {a}"),
        (f"(x, y) = ({a}, {b})", f"x = {a}, y = {b}"),
        (f"(x, y) = ({a}, {b})", f"({a}, {b})"),
        (f"x = {a}, y = {b}", f"({a}, {b})"),
        (f"x = {a} \\text{{ or }} x = {b}", f"{b}, {a}"),
        (f"k = {a}, {b}, {c}", f"k = {c}, {a}, {b}"),
        (f"f(x) = {a}x", f"{a}x"),
        (f"y = {a}x + {b}", f"{b} + {a}x = y"),
        (f"y = {a}x + {b}", f"y - {a}x = {b}"),
        (f"y = {a}x + {b}", f"x = \\frac{{y - {b}}}{{{a}}}"),
        (f"y = {a}x + {b}", f"\\frac{{y - {b}}}{{{a}}} = x"),
        (f"{a}x + {b}y \\ne {c}", f"-{a}x - {b}y \\ne -{c}"),
        (f"x < {a}", f"{b}x < {a * b}"),
        (f"{a} < x \\le {a + b}", f"{a * c} < {c}x \\le {(a + b) * c}"),
        (f"|AB| = {a}", f"{a}"),
        (f"\\frac{{AB}}{{CD}} = \\frac{{{a}}}{{{b}}}", f"\\frac{{{a}}}{{{b}}}"),
        (f"{a}", f"= {a}"),
        (f"{a}", f"x \\approx {a}"),
        ("\\pi", "\\pi \\approx 3.14"),
        ("\\pi", "x = \\pi \\approx 3.14"),
        (f"\\frac{{{a}}}{{7}}", f"x = \\frac{{{a}}}{{7}} \\approx {a / 7:.2f}"),
        (f"(x, y) = ({a}, {b}), z = {c}", f"z = {c}, (x, y) = ({a}, {b})"),
        (f"x = {a}, x = {b}, y = {c}", f"y = {c}, x = {b}, x = {a}"),
        (f"k = {a}, x > {b}", f"x > {b}, k = {a}"),
        (f"x = {a}, y = {b}", f"\\begin{{cases}} x = {a} \\\\ y = {b} \\end{{cases}}"),
        (f"180^\\circ - {a}x", f"180 - {a}x"),
        (f"x = {a}, y = {b}", f"{a}, {b}"),
        (f"{a}\\pi \\text{{ m}}", f"{a}\\pi"),
        (f"y = {b}, x = {a}", f"({a}, {b})"),
        (f"x:y = {a}:{b}", f"{a}:{b}"),
        (f"{a}x + {b}y = {c}", f"{2 * a}x + {2 * b}y = {2 * c}"),
        (f"{a}x + {b}y = {c}", f"{c} = {b}y + {a}x"),
        (f"{a}x + {b}y = {c}", f"{a}x + {b}y - {c} = 0"),
        (f"x^2 + y^2 = {a}", f"-x^2 - y^2 = -{a}"),
        (f"2 + {a} = {a + 2}", f"{a + 2}"),
        (f"x = {a} = \\frac{{{2 * a}}}{{2}}", f"{a}"),
        (f"AB = {a}", f"{a}"),
        (f"a_1 = {a}", f"a_{{1}} = {a}"),
        (f"{a}x + {b}y < {c}", f"{c} > {a}x + {b}y"),
        (f"{a}x + {b}y \\le {c}", f"-{a}x - {b}y \\ge -{c}"),
        (f"D = ({a}, {a + b}]", f"({a}, {a + b}]"),
        (f"x < {a}, y > {b}", f"y > {b}, x < {a}"),
        (f"x \\in [{a}, {a + b})", f"{a} \\le x < {a + b}"),
    ):
        yield Asked("names", "same", gold, answer, True)
    for gold, answer in (
        (f"x = {a}", f"y = {a}"),
        (f"x = {a}", f"x = -{a}"),
        (f"x = {a}, y = {b}", f"x = {b}, y = {a}"),
        (f"x = {a}, y = {b}", f"y = {a}, x = {b}"),
        (f"(x, y) = ({a}, {b})", f"({b}, {a})"),
        (f"(x, y) = ({a}, {b})", f"(x, y) = ({b}, {a})"),
        (f"k = {a}, {b}, {c}", f"k = {a}, {b}, {c + 1}"),
        (f"k = {a}, {b}, {c}", f"m = {a}, {b}, {c}"),
        (f"y = {a}x + {b}", f"y = {a}x - {b}"),
        (f"y = {a}x + {b}", f"x = \\frac{{y + {b}}}{{{a}}}"),
        (f"y = {a}x + {b}", f"y - {a}x = {c}"),
        (f"{a}x + {b}y \\ne {c}", f"{a}x + {b}y = {c}"),
        (f"{a}x + {b}y \\ne {c}", f"{a}x - {b}y \\ne {c}"),
        (f"{a}x + {b}y < {c}", f"{a}x + {b}y = {c}"),
        (f"{a}x + {b}y < {c}", f"{a}x + {b}y"),
        (f"x < {a}", f"{b}x < {a * b + 1}"),
        (f"x < {a}", f"-{b}x < -{a * b}"),
        (f"{a} < x \\le {a + b}", f"{a * c} < {c}x < {(a + b) * c}"),
        (f"{a} < x \\le {a + b}", f"{c}x \\le {(a + b) * c}"),
        (f"|AB| = {a}", f"{b}"),
        (f"|x| = {a}", f"{a}"),
        (f"Bx = {a}", f"{a}"),
        (f"{a}", f"x = {a} = {a + 1}"),
        (f"{a + 1}", f"x = {a} = {a + 1}"),
        (f"{a + 1}", f"{a} + 0 = {a} = {a + 1}"),
        (f"{a}", f"x \\approx {a + 1}"),
        ("\\pi", "3 \\approx \\pi"),
        (f"(x, y) = ({a}, {b})", f"(x, z) = ({a}, {b})"),
        (f"P = ({a}, {b})", f"{a}, {b}"),
        (f"(x, y) = ({a}, {b}), z = {c}", f"z = {c}, (x, y) = ({b}, {a})"),
        (f"x = {a}, x = {b}, y = {c}", f"y = {a}, x = {b}, x = {c}"),
        (f"k = {a}, x > {b}", f"x > {a}, k = {b}"),
        (f"x = {a}, y = {b}", f"\\begin{{cases}} x = {b} \\\\ y = {a} \\end{{cases}}"),
        (f"180^\\circ - {a}x", f"180 + {a}x"),
        (f"x = {a}, y = {b}", f"{b}, {a}"),
        (f"{a}\\pi \\text{{ m}}", f"{b}\\pi"),
        (f"x:y = {a}:{b}", f"y:x = {a}:{b}"),
        (f"{a} < \\sqrt{{x}} < {a + b}", f"{a} < x < {a + b}"),
        (f"1 \\le |x| < {a}", f"1 \\le |y| < {a}"),
        (f"(x, y) = ({a}, {b}), z = {c}", f"(x, w) = ({a}, {b}), z = {c}"),
        (f"k = {a}, {b}", f"m = {b}, {a}"),
        (f"x < {a} \\text{{ or }} x > {a + b}", f"{c}x < {a * c}"),
        (f"y = {a}x + {b}", f"x = {a}y + {b}"),
        (f"{a}x + {b}y = {c}", f"{a}x + {b}y = {2 * c}"),
        (f"{a}x + {b}y = {c}", f"{a}x - {b}y = {c}"),
        (f"{a}x + {b}y = {c}", f"{a}x + {b}y"),
        (f"2 + {a} = {a + 2}", f"{a + 3}"),
        (f"{a + 3}", f"2 + {a} = {a + 3}"),
        (f"{a}x + {b}y < {c}", f"{a}x + {b}y \\le {c}"),
        (f"{a}x + {b}y < {c}", f"{a}x + {b}y > {c}"),
        (f"{a}x + {b}y < {c}", f"-{a}x - {b}y < -{c}"),
        (f"D = ({a}, {a + b}]", f"D = ({a}, {a + b})"),
        (f"D = ({a}, {a + b}]", f"E = ({a}, {a + b}]"),
        (f"x < {a}, y > {b}", f"x < {a}, x > {b}"),
        (f"x < {a}, y > {b}", f"x < {b}, y > {a}"),
        (f"x > {a}", f"y > {a}"),
        (f"f(x) = {a}x", f"g(x) = {a}x"),
        (f"x = {a}", f"x > {a}"),
        (f"x = {a}", f"x \\ne {a}"),
        (f"x \\in [{a}, {a + b})", f"y \\in [{a}, {a + b})"),
    ):
        yield Asked("names", "different", gold, answer, False)


# ---- quantities ------------------------------------------------------------------------------------------
def _quantities(r: random.Random) -> Iterator[Asked]:
    a, b = r.randint(2, 30), r.randint(1, 11)
    base: dict[str, list[tuple[str, Fraction]]] = {
        "length": [
            (f"{a} \\text{{ m}}", Fraction(a)),
            (f"{100 * a} \\text{{ cm}}", Fraction(a)),
            (f"{1000 * a} \\text{{ mm}}", Fraction(a)),
            (f"{a} \\text{{ meters}}", Fraction(a)),
            (f"{a} \\text{{ km}}", Fraction(1000 * a)),
            (f"{a} \\text{{ cm}}", Fraction(a, 100)),
            (f"{10 * a} \\text{{ dm}}", Fraction(a)),
            (f"{a} \\text{{ mm}}", Fraction(a, 1000)),
            (f"{a} m", Fraction(a)),
        ],
        "imperial length": [
            (f"{a} \\text{{ ft }} {b} \\text{{ in}}", Fraction(12 * a + b)),
            (f"{12 * a + b} \\text{{ inches}}", Fraction(12 * a + b)),
            (f"{a} \\text{{ feet}}", Fraction(12 * a)),
            (f"{12 * a} \\text{{ in}}", Fraction(12 * a)),
            (f"{a + b} \\text{{ inches}}", Fraction(a + b)),
            (f"{a} \\text{{ yards}}", Fraction(36 * a)),
            (f"{3 * a} \\text{{ feet}}", Fraction(36 * a)),
        ],
        "time": [
            (f"{a} \\text{{ hours }} {b} \\text{{ minutes}}", Fraction(60 * a + b)),
            (f"{60 * a + b} \\text{{ minutes}}", Fraction(60 * a + b)),
            (f"{a} \\text{{ h}}", Fraction(60 * a)),
            (f"{3600 * a} \\text{{ s}}", Fraction(60 * a)),
            (f"{a + b} \\text{{ minutes}}", Fraction(a + b)),
            (f"{60 * a + b} min", Fraction(60 * a + b)),
            (f"{a} \\text{{ h }} {b} \\text{{ min}}", Fraction(60 * a + b)),
            (f"{60 * a} \\text{{ seconds}}", Fraction(a)),
            (f"{a} \\text{{ days}}", Fraction(1440 * a)),
            (f"{24 * a} \\text{{ hours}}", Fraction(1440 * a)),
        ],
        "area": [
            (f"{a} \\text{{ m}}^2", Fraction(a)),
            (f"{10000 * a} \\text{{ cm}}^2", Fraction(a)),
            (f"{100 * a} \\text{{ cm}}^2", Fraction(a, 100)),
            (f"{a} \\text{{ square meters}}", Fraction(a)),
            (f"{a} \\text{{ cm}}^2", Fraction(a, 10000)),
            (f"{a} m^2", Fraction(a)),
        ],
        "per time": [
            (f"{a} \\text{{ s}}^{{-1}}", Fraction(60 * a)),
            (f"{60 * a} \\text{{ min}}^{{-1}}", Fraction(60 * a)),
            (f"{a} s^{{-1}}", Fraction(60 * a)),
            (f"{a} \\text{{ min}}^{{-1}}", Fraction(a)),
        ],
        "per area": [
            (f"{a} \\text{{ m}}^{{-2}}", Fraction(a)),
            (f"{a} m^{{-2}}", Fraction(a)),
            (f"{a} \\text{{ cm}}^{{-2}}", Fraction(10000 * a)),
        ],
        "per volume": [
            (f"{a} \\text{{ m}}^{{-3}}", Fraction(a)),
            (f"{a} m^{{-3}}", Fraction(a)),
            (f"{a} \\text{{ cm}}^{{-3}}", Fraction(10**6 * a)),
        ],
        "volume": [
            (f"{a} \\text{{ m}}^3", Fraction(1000 * a)),
            (f"{1000 * a} \\text{{ liters}}", Fraction(1000 * a)),
            (f"{a} \\text{{ L}}", Fraction(a)),
            (f"{1000 * a} \\text{{ cm}}^3", Fraction(a)),
            (f"{1000 * a} \\text{{ mL}}", Fraction(a)),
            (f"{a} \\text{{ cubic meters}}", Fraction(1000 * a)),
            (f"{a} m^3", Fraction(1000 * a)),
        ],
        "speed": [
            (f"{18 * a} \\text{{ km/h}}", Fraction(5 * a)),
            (f"{5 * a} \\text{{ m/s}}", Fraction(5 * a)),
            (f"{18 * a} \\text{{ m/s}}", Fraction(18 * a)),
            (f"{5 * a} \\text{{ meters per second}}", Fraction(5 * a)),
            (f"{5 * a} \\text{{ m}} \\text{{ s}}^{{-1}}", Fraction(5 * a)),
            (f"{18 * a} \\text{{ kilometers per hour}}", Fraction(5 * a)),
            (f"{5 * a} m/s", Fraction(5 * a)),
            (f"{300 * a} \\text{{ m/min}}", Fraction(5 * a)),
            (f"{5 * a} \\text{{ m/sec}}", Fraction(5 * a)),
        ],
        "acceleration": [
            (f"{a} \\text{{ m/s}}^2", Fraction(a)),
            (f"{100 * a} \\text{{ cm/s}}^2", Fraction(a)),
            (f"{a} m/s^2", Fraction(a)),
            (f"{2 * a} \\text{{ m/s}}^2", Fraction(2 * a)),
        ],
        "mass": [
            (f"{a} \\text{{ kg}}", Fraction(a)),
            (f"{1000 * a} \\text{{ g}}", Fraction(a)),
            (f"{a} \\text{{ g}}", Fraction(a, 1000)),
            (f"{1000000 * a} \\text{{ mg}}", Fraction(a)),
            (f"{a} \\text{{ tonnes}}", Fraction(1000 * a)),
            (f"{1000 * a} \\text{{ kilograms}}", Fraction(1000 * a)),
        ],
        "money": [
            (f"\\${a}", Fraction(a)),
            (f"{a} \\text{{ dollars}}", Fraction(a)),
            (f"{100 * a} \\text{{ cents}}", Fraction(a)),
            (f"\\${a}.00", Fraction(a)),
            (f"{a} \\text{{ cents}}", Fraction(a, 100)),
            (f"\\${a} \\text{{ million}}", Fraction(10**6 * a)),
            (f"\\${a},000,000", Fraction(10**6 * a)),
        ],
        "energy": [
            (f"{a} \\text{{ kJ}}", Fraction(1000 * a)),
            (f"{1000 * a} \\text{{ J}}", Fraction(1000 * a)),
            (f"{a} \\text{{ joules}}", Fraction(a)),
            (f"{a} \\text{{ N}} \\text{{ m}}", Fraction(a)),
        ],
        "circumference": [
            (f"{a}\\pi \\text{{ m}}", Fraction(a)),
            (f"{100 * a}\\pi \\text{{ cm}}", Fraction(a)),
            (f"{a}\\pi \\text{{ cm}}", Fraction(a, 100)),
        ],
        "force": [
            (f"{a} \\text{{ N}}", Fraction(a)),
            (f"{a} \\text{{ kg}} \\text{{ m/s}}^2", Fraction(a)),
            (f"{2 * a} \\text{{ newtons}}", Fraction(2 * a)),
        ],
        "power": [
            (f"{a} \\text{{ kW}}", Fraction(1000 * a)),
            (f"{1000 * a} \\text{{ watts}}", Fraction(1000 * a)),
            (f"{a} \\text{{ W}}", Fraction(a)),
            (f"{a} \\text{{ J/s}}", Fraction(a)),
        ],
        "kitchen": [
            (f"{a} \\text{{ gallons}}", Fraction(16 * a)),
            (f"{4 * a} \\text{{ quarts}}", Fraction(16 * a)),
            (f"{8 * a} \\text{{ pints}}", Fraction(16 * a)),
            (f"{16 * a} \\text{{ cups}}", Fraction(16 * a)),
            (f"{a} \\text{{ quarts}}", Fraction(4 * a)),
            (f"{a} \\text{{ pints}}", Fraction(2 * a)),
        ],
        "years": [
            (f"{a} \\text{{ years}}", Fraction(12 * a)),
            (f"{12 * a} \\text{{ months}}", Fraction(12 * a)),
            (f"{a} \\text{{ decades}}", Fraction(120 * a)),
            (f"{10 * a} \\text{{ years}}", Fraction(120 * a)),
            (f"{a} \\text{{ centuries}}", Fraction(1200 * a)),
            (f"{10 * a} \\text{{ decades}}", Fraction(1200 * a)),
        ],
        "weight": [
            (f"{a} \\text{{ pounds}}", Fraction(16 * a)),
            (f"{16 * a} \\text{{ ounces}}", Fraction(16 * a)),
            (f"{a} \\text{{ oz}}", Fraction(a)),
        ],
        "weeks": [
            (f"{a} \\text{{ weeks}}", Fraction(7 * a)),
            (f"{7 * a} \\text{{ days}}", Fraction(7 * a)),
            (f"{a} \\text{{ days}}", Fraction(a)),
        ],
        "brief": [
            (f"{a} \\text{{ ms}}", Fraction(a)),
            (f"{1000 * a} \\text{{ milliseconds}}", Fraction(1000 * a)),
            (f"{a} \\text{{ s}}", Fraction(1000 * a)),
        ],
        "distance": [
            (f"{a} \\text{{ miles}}", Fraction(5280 * a)),
            (f"{5280 * a} \\text{{ feet}}", Fraction(5280 * a)),
            (f"{1760 * a} \\text{{ yards}}", Fraction(5280 * a)),
            (f"{a} \\text{{ feet}}", Fraction(a)),
        ],
        "angle": [
            (f"{15 * b}^\\circ", Fraction(b, 12)),
            (f"{15 * b} \\text{{ degrees}}", Fraction(b, 12)),
            (f"\\frac{{{b}\\pi}}{{12}}", Fraction(b, 12)),
            (f"\\frac{{{b}\\pi}}{{12}} \\text{{ radians}}", Fraction(b, 12)),
            (f"{15 * b + 1}^\\circ", Fraction(15 * b + 1, 180)),
            (f"\\frac{{{b}\\pi}}{{6}}", Fraction(b, 6)),
        ],
    }
    kinds = list(base)
    for kind, texts in base.items():
        for i, (gold, amount) in enumerate(texts):
            for answer, other in texts[i + 1 :]:
                yield Asked("units", kind, *((gold, answer) if r.random() < 0.5 else (answer, gold)), amount == other)
        other_kind = base[kinds[(kinds.index(kind) + 3) % len(kinds)]]
        if kind not in ("angle", "money", "weeks", "brief"):
            yield Asked("units", f"{kind}: another kind", texts[0][0], other_kind[0][0], False)


# ---- ratios, times of day, percentages, bases ------------------------------------------------------------
def _notations(r: random.Random) -> Iterator[Asked]:
    a, b = r.sample(range(2, 10), 2)  # from 10 on, 2:10 might be a time
    c, k = r.randint(2, 9), r.randint(2, 5)
    hour, minute = r.randint(1, 11), r.randint(11, 58)
    q = r.randint(6, 9)  # k times it has two digits, as a time has
    base = r.choice((2, 3, 5, 7))
    n = r.randint(base**3, base**5)
    digits, rest = "", n
    while rest:
        digits, rest = str(rest % base) + digits, rest // base
    hexadecimal = f"{r.randint(1, 9)}{r.choice('ABCDEF')}{r.randint(0, 9)}"
    for gold, answer, equal in (
        (f"{a}:{b}", f"{k * a}:{k * b}", True),
        (f"{a}:{b}", f"{b}:{a}", False),
        (f"{a}:{b}", f"{a}:{b + 1}", False),
        (f"{a}:{b}:{c}", f"{k * a}:{k * b}:{k * c}", True),
        (f"{a}:{b}:{c}", f"{k * a}:{k * b}:{c}", False),
        (f"{a}:{b}:{c}", f"{a}:{b}", False),
        (f"{a}:{b}", f"\\frac{{{a}}}{{{b}}}", True),
        ("1:5", "2:10", True),
        ("3:6:5", "6:12:10", True),
        (f"1:{q}", f"{k}:{k * q}", True),
        (f"1:{q}", f"{k}:{k * q + 1}", False),
        (f"1:{q}", f"{k}:{k * q} \\text{{ PM}}", False),
        (f"{hour}:{minute} \\text{{ PM}}", f"{hour}:{minute}", True),
        (f"{hour}:{minute} \\text{{ PM}}", f"{hour}:{minute} pm", True),
        (f"{hour}:{minute} \\text{{ PM}}", f"{hour}:{minute} p.m.", True),
        (f"{hour}:{minute} \\text{{ PM}}", f"{hour}:{minute} AM", False),
        (f"{hour}:{minute}", f"{hour}:{minute + 1}", False),
        (f"{hour}:{minute}", f"{hour + 1}:{minute}", False),
        (f"{a}\\%", f"\\frac{{{a}}}{{100}}", True),
        (f"{a}\\%", f"{a} \\text{{ percent}}", True),
        (f"{a}\\%", f"{a}", False),
        (f"{a}\\%", f"0.{a}", False),
        (f"{a}\\%", f"{a + 1}\\%", False),
        (f"{10 * a}.5\\%", f"\\frac{{{20 * a + 1}}}{{200}}", True),
        (f"{digits}_{{{base}}}", f"({digits})_{base}", True),
        (f"{digits}_{base}", f"{digits}_{base + 2}", False),
        (f"{digits}_{base}", f"{digits}", False),
        (f"{digits}_{base}", f"0{digits}_{base}", True),
        (f"{digits}_{base}", f"{digits}0_{base}", False),
        (f"{n}_{{10}}", f"{n}", True),
        ("0_{10}", "0", True),
        (f"{n}_{{10}}", f"-{n}", False),
        (f"{n}_{{10}}", f"\\frac{{{2 * n + 1}}}{{2}}", False),
        (f"{7 * n + 1}_{{10}}", f"\\frac{{{7 * n + 1}}}{{7}}", False),
        (f"{digits}_{base}", f"\\sqrt{{{base}}}", False),
        (f"{hexadecimal}_{{16}}", f"{hexadecimal}_{{15}}", False),
        (f"{hexadecimal}_{{16}}", f"({hexadecimal})_{{16}}", True),
    ):
        yield Asked("notations", "same" if equal else "different", gold, answer, equal)


# ---- functions of numbers --------------------------------------------------------------------------------
def _functions(r: random.Random) -> Iterator[Asked]:
    a, b, k = r.randint(2, 9), r.randint(2, 9), r.randint(2, 5)
    m, n = r.randint(10, 99), r.randint(3, 12)
    exact: list[tuple[str, Fraction]] = [
        (f"\\log_{{{a}}} {a**k}", Fraction(k)),
        (f"\\log_{{{a}}}\\frac{{1}}{{{a**k}}}", Fraction(-k)),
        (f"\\log {10**k}", Fraction(k)),
        (f"\\log_{{{a**2}}} {a}", Fraction(1, 2)),
        (f"\\ln e^{{{k}}}", Fraction(k)),
        (f"e^{{\\ln {a}}}", Fraction(a)),
        (f"\\sqrt[3]{{{a**3}}}", Fraction(a)),
        (f"\\sqrt[3]{{-{a**3}}}", Fraction(-a)),
        (f"{a**2}^{{1/2}}", Fraction(a)),
        (f"{a}^{{-2}}", Fraction(1, a * a)),
        (f"|{a} - {a + b}|", Fraction(b)),
        (f"\\lfloor \\frac{{{m}}}{{{n}}} \\rfloor", Fraction(m // n)),
        (f"\\lceil \\frac{{{m}}}{{{n}}} \\rceil", Fraction(-(-m // n))),
        (f"\\lfloor -\\frac{{{m}}}{{{n}}} \\rfloor", Fraction(-m // n)),
        (f"\\lfloor \\sqrt{{{m}}} \\rfloor", Fraction(isqrt(m))),
        (f"{n}!", Fraction(factorial(n))),
        (f"\\binom{{{n}}}{{3}}", Fraction(comb(n, 3))),
        (f"\\gcd({m}, {n})", Fraction(gcd(m, n))),
        (f"\\operatorname{{lcm}}({m}, {n})", Fraction(lcm(m, n))),
        (f"\\max({m}, {n})", Fraction(m)),
        (f"\\min({m}, {n}, {a})", Fraction(min(m, n, a))),
        (f"{m} \\bmod {n}", Fraction(m % n)),
        ("\\sin\\frac{\\pi}{6}", Fraction(1, 2)),
        ("\\cos\\frac{\\pi}{3}", Fraction(1, 2)),
        ("\\cos\\pi", Fraction(-1)),
        ("\\tan\\frac{\\pi}{4}", Fraction(1)),
        ("\\sin 30^\\circ", Fraction(1, 2)),
        ("\\cos^2\\frac{\\pi}{6}", Fraction(3, 4)),
        ("\\sec 60^\\circ", Fraction(2)),
        ("\\cot 45^\\circ", Fraction(1)),
        ("e^{i\\pi}", Fraction(-1)),
        ("i^2", Fraction(-1)),
        (f"(1+i)^{4 * k}", Fraction((-4) ** k)),
        ("|3+4i|", Fraction(5)),
        (f"0.\\overline{{{a}}}", Fraction(a, 9)),
        (f"1.{b}\\overline{{{a}}}", Fraction(10 + b, 10) + Fraction(a, 90)),
        ("\\frac{4}{\\pi}\\arctan 1", Fraction(1)),
        (f"\\frac{{\\sqrt{{{a * a * b}}}}}{{\\sqrt{{{b}}}}}", Fraction(a)),
        (f"\\frac{{1}}{{\\frac{{1}}{{{a}}}+\\frac{{1}}{{{b}}}}}", Fraction(a * b, a + b)),
        (f"\\left(\\frac{{{a}}}{{{b}}}\\right)^{{-{k}}}", Fraction(b, a) ** k),
        (f"-{a}^2", Fraction(-a * a)),
        (f"(-{a})^2", Fraction(a * a)),
        (f"\\sinh(\\ln {a})", Fraction(a * a - 1, 2 * a)),
        ("\\arcsin\\frac{1}{2}\\cdot\\frac{6}{\\pi}", Fraction(1)),
        (f"{m} \\div {n}", Fraction(m, n)),
    ]
    for text, value in exact:
        plain = str(value) if value.denominator == 1 else f"\\frac{{{value.numerator}}}{{{value.denominator}}}"
        step = value + r.choice((1, -1)) * Fraction(1, value.denominator)
        yield Asked("functions", "value", plain, text, True)
        yield Asked("functions", "value beside one more or less", f"{step.numerator}/{step.denominator}", text, False)
        if value:
            yield Asked("functions", "sign", f"-({text})", plain, False)


_LETTER = re.compile(r"(?<![A-Za-z\\])[xyn](?![A-Za-z])")
IDENTITIES = (
    ("Pythagoras", "\\sin^2 x + \\cos^2 x", "1"),
    ("tangent", "\\tan x", "\\frac{\\sin x}{\\cos x}"),
    ("double angle", "\\sin 2x", "2\\sin x\\cos x"),
    ("double angle", "\\cos 2x", "1 - 2\\sin^2 x"),
    ("secant", "\\sec^2 x - 1", "\\tan^2 x"),
    ("binomial", "(x+y)^3", "x^3+3x^2 y+3x y^2+y^3"),
    ("difference of squares", "\\frac{x^2-y^2}{x-y}", "x+y"),
    ("powers", "x^3 \\cdot x^4", "x^7"),
    ("powers", "(x^2)^3", "x^6"),
    ("roots", "\\sqrt{x^2}", "|x|"),
    ("roots", "\\sqrt[3]{x^3}", "x"),
    ("logarithm of a product", "\\ln(2x)", "\\ln 2 + \\ln x"),
    ("exponential", "e^{x+2}", "e^2 e^x"),
    ("factorial", "\\frac{n!}{(n-1)!}", "n"),
    ("binomial coefficient", "\\binom{n}{2}", "\\frac{n(n-1)}{2}"),
    ("change of base", "\\log_2 x", "\\frac{\\ln x}{\\ln 2}"),
    ("powers of -1", "(-1)^{2n}", "1"),
    ("powers of two", "2^{n+1}", "2 \\cdot 2^n"),
    ("hyperbolic", "\\cosh^2 x - \\sinh^2 x", "1"),
    ("nested roots", "\\sqrt{5+2\\sqrt{6}}", "\\sqrt{2}+\\sqrt{3}"),
    ("golden ratio", "\\frac{1+\\sqrt{5}}{2}", "\\frac{2}{\\sqrt{5}-1}"),
    ("complex product", "(2+3i)(2-3i)", "13"),
    ("complex quotient", "\\frac{1}{i}", "-i"),
    ("sum of roots", "\\sqrt{12}+\\sqrt{27}", "5\\sqrt{3}"),
    ("cosine of 72 degrees", "\\cos 72^\\circ", "\\frac{\\sqrt{5}-1}{4}"),
    ("even", "|{-x}|", "|x|"),
    ("Machin", "\\frac{\\pi}{4}", "4\\arctan\\frac{1}{5} - \\arctan\\frac{1}{239}"),
    ("letters commute", "abc", "cab"),
    ("greek", "\\alpha\\beta", "\\beta\\alpha"),
)
NOT_IDENTITIES = (
    ("cos for sin", "\\sin 2x", "2\\cos x"),
    ("sign", "\\cos 2x", "2\\sin^2 x - 1"),
    ("freshman", "(x+y)^2", "x^2+y^2"),
    ("half of it", "\\sqrt{x^2}", "x"),
    ("positive half", "|x|", "-x"),
    ("where it bends", "|x-7|", "7-x"),
    ("where it bends", "|x-7|", "x-7"),
    ("one variable less", "x+y", "x"),
    ("other variable", "2x", "2y"),
    ("exponent", "x^7", "x^{12}"),
    ("even power", "x^2", "x^4"),
    ("power or multiple", "x^2", "2x"),
    ("logarithm", "\\ln(2x)", "2\\ln x"),
    ("factorial", "n!", "n^n"),
    ("binomial coefficient", "\\binom{n}{2}", "\\frac{n^2}{2}"),
    ("near pi", "\\pi", "\\frac{355}{113}"),
    ("near pi", "\\pi", "3.14159265"),
    ("near e", "e", "2.71828183"),
    ("nearly whole", "e^{\\pi\\sqrt{163}}", "262537412640768744"),
    ("conjugate", "2+3i", "2-3i"),
    ("i lost", "3i", "3"),
    ("imaginary part", "2+3i", "3+2i"),
    ("odd or even", "(-1)^n", "1"),
    ("minimum", "\\min(x, y)", "x"),
    ("maximum", "\\max(x, y, n)", "\\max(x, n)"),
    ("parity of a sum", "(-1)^{n+p}", "1"),
    ("parity of one", "(-1)^{n+p}", "(-1)^p"),
    ("whole part", "\\lfloor x \\rfloor", "x"),
    ("degrees for radians", "\\sin 30", "\\frac{1}{2}"),
    ("capital", "\\Delta", "\\delta"),
    ("index", "a_1", "a_2"),
    ("prime", "x'", "x"),
    ("constant", "x^2 + C", "x^2"),
    ("infinity", "\\infty", "-\\infty"),
    ("infinite", "\\infty", "10^{100}"),
)


def _identities(r: random.Random) -> Iterator[Asked]:
    k, letters = r.randint(2, 9), dict(zip("xyn", (r.choice("xtuz"), r.choice("yvw"), r.choice("nmk"))))

    def renamed(text: str) -> str:
        return _LETTER.sub(lambda found: letters[found[0]], text)

    for table, equal in ((IDENTITIES, True), (NOT_IDENTITIES, False)):
        for name, *sides in table:
            gold, answer = map(renamed, sides if r.random() < 0.5 else sides[::-1])
            yield Asked("identities", name, gold, answer, equal)
    for name, a, b in IDENTITIES:
        yield Asked("identities", f"not {name}", f"{k} + {renamed(a)}", renamed(b), False)


# ---- precision -------------------------------------------------------------------------------------------
def _precision(r: random.Random) -> Iterator[Asked]:
    n = r.choice([x for x in range(2, 400) if isqrt(x) ** 2 != x])
    whole = r.randint(2, 99)
    for k in (2, 4, 6, 8, 9, 10, 12, 15, 18, 20, 25, 30, 40, 50, 70, 100, 150):
        yield Asked("precision", f"10^-{k} more", f"{whole}", f"{whole} + 10^{{-{k}}}", False)
        yield Asked("precision", f"10^-{k} more, of a root", f"\\sqrt{{{n}}}", f"\\sqrt{{{n}}} + 10^{{-{k}}}", False)
        yield Asked(
            "precision", f"10^-{k} of it", f"{whole}\\cdot 10^{{-{k}}}", f"{whole + 1}\\cdot 10^{{-{k}}}", False
        )
        yield Asked("precision", f"10^{k} and one", f"10^{{{k}}}", f"10^{{{k}}} + 1", False)
        yield Asked("precision", f"root of 10^{k} and one", f"10^{{{k}}}", f"\\sqrt{{10^{{{2 * k}}} + 1}}", False)
        yield Asked("precision", f"decimal of {k + 1} places", f"{whole}", f"{whole}.{'0' * k}1", False)
        yield Asked(
            "precision", f"cancelled 10^{k}", f"\\sqrt{{{n}}}", f"(10^{{{k}}} + \\sqrt{{{n}}}) - 10^{{{k}}}", True
        )
    digits = 60
    for q, text in (
        (Fraction(isqrt(n * 10 ** (2 * digits)), 10**digits), f"\\sqrt{{{n}}}"),
        (Fraction(whole, 7), f"\\frac{{{whole}}}{{7}}"),
    ):
        if text.startswith("\\frac") and whole % 7 == 0:
            continue
        value = (
            Decimal(q.numerator) / Decimal(q.denominator)
            if text.startswith("\\frac")
            else Decimal(str(_plain(q, digits)))
        )
        for places in (9, 10, 12, 13):
            shown = value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN)
            if len(shown.as_tuple().digits) in (16, 17):
                continue  # a double's printout, of which 15 count
            last = Decimal(1).scaleb(-places)
            yield Asked(
                "precision", f"rounded to {places} places", text, str(shown), len(shown.as_tuple().digits) >= 10
            )
            yield Asked("precision", f"last of {places} places, up", text, str(shown + last), False)
            yield Asked("precision", f"last of {places} places, down", text, str(shown - last), False)
        for places in (1, 2, 3, 5):
            yield Asked(
                "precision", f"rounded to {places} places", text, str(value.quantize(Decimal(1).scaleb(-places))), False
            )
        double = float(q)
        yield Asked("precision", "as a double prints", text, repr(double), True)
        yield Asked("precision", "a double, a billionth off", text, repr(double * (1 + 1e-9)), False)
    yield Asked("precision", "what a decimal can express", "\\frac{1}{8}", "0.12500000001", False)
    yield Asked("precision", "decimals that differ late", "0.3", "0.30000000000000004", False)
    yield Asked("precision", "a sum of decimals", "0.3", "0.1 + 0.2", True)
    power, ones, others = r.choice((20, 60, 100, 150, 200)), 2, 2
    for _ in range(power - 1):  # Q(n) = 2 Q(n - 1) + Q(n - 2) is (1 + sqrt 2)^n + (1 - sqrt 2)^n
        ones, others = 2 * ones + others, ones
    yield Asked("precision", "nearly whole power", f"{ones}", f"(1+\\sqrt{{2}})^{{{power}}}", False)
    yield Asked(
        "precision",
        "whole sum of powers",
        f"{ones}",
        f"(1+\\sqrt{{2}})^{{{power}}} + (1-\\sqrt{{2}})^{{{power}}}",
        True,
    )
    yield Asked("precision", "zero", "0", "10^{-30}", False)
    yield Asked("precision", "zero by cancelling", "0", "\\sqrt{8} - 2\\sqrt{2}", True)
    yield Asked("precision", "not quite zero", "0", f"\\sqrt{{8}} - 2\\sqrt{{2}} + 10^{{-{whole}}}", False)
    yield Asked(
        "precision",
        "cancels almost",
        f"\\sqrt{{{n}}}",
        f"\\frac{{\\sqrt{{{n}\\cdot 10^{{40}}+1}}}}{{10^{{20}}}}",
        False,
    )


def _plain(q: Fraction, digits: int) -> str:
    text = str(q.numerator * 10**digits // q.denominator).rjust(digits + 1, "0")
    return f"{text[:-digits]}.{text[-digits:]}"


# ---- matrices and vectors --------------------------------------------------------------------------------
def _matrices(r: random.Random) -> Iterator[Asked]:
    a, b, c, d = (r.randint(-9, 9) for _ in range(4))
    b += b == c
    k = r.randint(2, 5)

    def show(rows: list[list[int]], name: str = "pmatrix") -> str:
        return f"\\begin{{{name}}}" + "\\\\".join("&".join(map(str, row)) for row in rows) + f"\\end{{{name}}}"

    m = [[a, b], [c, d]]
    gold = show(m)
    ones, turned = [[1, 2], [3, 4]], [[a, c], [b, d]]
    product = [[sum(m[i][j] * ones[j][h] for j in range(2)) for h in range(2)] for i in range(2)]
    elementwise = [[m[i][j] * ones[i][j] for j in range(2)] for i in range(2)]
    for text, equal in (
        (show(m, "bmatrix"), True),
        (f"\\left[\\begin{{array}}{{cc}}{a}&{b}\\\\{c}&{d}\\end{{array}}\\right]", True),
        (f"[[{a}, {b}], [{c}, {d}]]", True),
        (f"[[{a}, {c}], [{b}, {d}]]", False),
        (show(turned), False),
        (f"{show(turned)}^T", True),
        (f"{gold}^T", False),
        (show([[a, b, c, d]]), False),
        (show([[a, b]]), False),
        (show([[-a, b], [c, d]]), not a),
        (f"{show([[a - 1, b - 2], [c - 3, d - 4]])} + {show(ones)}", True),
        (f"{gold} + {show(ones)}", False),
        (f"{gold} - {show([[0, 0], [0, 0]])}", True),
        (show([[a, b], [c, d + 1]]), False),
        (f"\\frac{{1}}{{{k}}}{show([[k * x for x in row] for row in m])}", True),
        (f"{k}{gold}", not (a or b or c or d)),
        (show([[a, b], [c, f"\\frac{{{2 * d}}}{{2}}"]]), True),  # type: ignore[list-item]
    ):
        yield Asked("matrices", "same" if equal else "different", gold, text, equal)
    yield Asked("matrices", "product", show(product), f"{gold}{show(ones)}", True)
    yield Asked("matrices", "elementwise product", show(elementwise), f"{gold}{show(ones)}", elementwise == product)
    column = show([[a], [b], [c]])
    for text, equal in (
        (f"({a}, {b}, {c})", True),
        (f"\\langle {a}, {b}, {c} \\rangle", True),
        (f"({a}, {c}, {b})", False),
        (f"[[{a}], [{b}], [{c}, {d}]]", False),
        (f"({a}, {b})", False),
        (f"({a}, {b}, {c}, {d})", False),
        (f"\\{{{a}, {b}, {c}\\}}", False),
        (show([[a], [b], [c + 1]]), False),
    ):
        yield Asked("matrices", "column and tuple" if equal else "column and another", column, text, equal)


# ---- words and letters -----------------------------------------------------------------------------------
def _words(r: random.Random) -> Iterator[Asked]:
    n = r.randint(1, 12)
    letter, other = r.sample("ABCD", 2)  # e is not E: it is a number
    for gold, answer, equal in (
        (f"{n}", CARDINALS[n], True),
        (CARDINALS[n], f"{n}", True),
        (f"{n}", CARDINALS[n - 1], False),
        (f"\\text{{({letter})}}", letter, True),
        (letter, f"({letter})", True),
        (letter, letter.lower(), True),
        (letter, other, False),
        (f"\\text{{({letter})}}", f"({other})", False),
        ("\\text{no solution}", "No solution.", True),
        ("\\text{no solution}", "0", False),
        ("\\text{Tuesday}", "tuesday", True),
        ("\\text{even}", "\\text{odd}", False),
        ("\\text{even}", "\\text{not even}", False),
        ("\\text{yes}", "\\text{no}", False),
        (f"{n} \\text{{ apples}}", f"{n}", True),
        (f"{n} \\text{{ apples}}", f"{n} apples", True),
        (f"{n} \\text{{ apples}}", f"{n} \\text{{ pears}}", False),
        (f"{n} \\text{{ apples}}", f"{n + 1} \\text{{ apples}}", False),
        (f"{n}", f"{n} \\text{{ is wrong}}", False),
        (f"{n}", f"\\text{{not }} {n}", False),
        ("mgh", "m g h", True),
        ("mgh", "mgk", False),
    ):
        yield Asked("words", "same" if equal else "different", gold, answer, equal)


TEMPLATES = (_sets, _several, _names, _quantities, _notations, _functions, _identities, _precision, _matrices, _words)

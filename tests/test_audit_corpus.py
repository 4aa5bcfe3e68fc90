"""What the audit asks: the exact values behind its certificates, and the pairs that they vouch for."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from fractions import Fraction

import pytest
import sympy
from sympy.parsing.sympy_parser import parse_expr

from rlvr.audit import documents, letters
from rlvr.audit.corpus import corpus
from rlvr.audit.exact import Shape, imaginary, rational, same, square_root, symbol
from rlvr.audit.form import KEYBOARD, PI, UNICODE, Form, I, add, div, lit, mul, neg, num, power, root, show, sym, value
from rlvr.audit.golds import Gold, decimal, golds
from rlvr.audit.golds_file import corpus_of
from rlvr.audit.mutations import differs, mutations
from rlvr.audit.programs import make, questions
from rlvr.audit.programs.certify import outcomes, told
from rlvr.audit.programs.make import question
from rlvr.audit.programs.problems import PROBLEMS
from rlvr.audit.rewrites import rewrites
from rlvr.audit.spelling import SCALARS, BadCertificate, Written, _certified, _no_stop

X = sym("x")


# ---- exact values ----------------------------------------------------------------------------------------
def test_exact_values_know_what_algebra_says():
    one, two, x = rational(1), rational(2), symbol("x")
    assert square_root(12) == two * square_root(3)
    assert one / square_root(2) == square_root(2) / two
    assert (one + imaginary()) ** 2 == two * imaginary()
    assert (x + one) ** 2 == x * x + two * x + one
    assert (x * x - one) / (x - one) == x + one  # where both are defined
    assert one / (two - square_root(3)) == two + square_root(3)
    assert rational(Fraction(1, 3)) + rational(Fraction(1, 6)) == rational(Fraction(1, 2))


def test_exact_values_part_what_floats_do_not():
    assert rational(10**30) != rational(10**30 + 1)
    assert square_root(2) != rational(Fraction(14142135623730951, 10**16))
    assert symbol("pi") != rational(Fraction(22, 7))
    assert square_root(2) + square_root(3) != square_root(5)
    assert imaginary() != -imaginary()


def test_dividing_by_an_exact_zero_is_refused():
    with pytest.raises(ZeroDivisionError):
        rational(1) / (square_root(4) - rational(2))


def test_shapes_compare_by_what_they_are():
    a, b, x = rational(1), rational(2), symbol("x")
    assert same(Shape("set", (a, b)), Shape("set", (b, a)))
    assert same(Shape("set", (a, b, a)), Shape("set", (a, b)))
    assert not same(Shape("tuple", (a, b)), Shape("tuple", (b, a)))
    assert not same(Shape("tuple", (a, b)), Shape("set", (a, b)))
    assert not same(Shape("interval", (True, a, b, True)), Shape("interval", (True, a, b, False)))
    assert same(Shape("equation", (x - a,)), Shape("equation", (rational(-3) * x + rational(3),)))
    assert same(Shape("less", (x - a,)), Shape("less", (rational(3) * x - rational(3),)))
    assert not same(Shape("less", (x - a,)), Shape("less", (a - x,)))
    assert not same(Shape("less", (x - a,)), Shape("less_equal", (x - a,)))


def test_a_form_is_spelled_as_people_write():
    assert show(div(mul(num(2), PI), num(5))) == "\\frac{2\\pi}{5}"
    assert show(add(power(X, 2), neg(mul(num(3), X)), num(4))) == "x^{2} - 3x + 4"
    assert show(mul(add(X, num(1)), add(X, num(-2)))) == "(x + 1)(x - 2)"
    assert show(mul(add(X, num(1)), add(X, num(-2))), KEYBOARD) == "(x + 1)*(x - 2)"
    assert show(mul(num(3), power(num(10), 8))) == "3\\cdot 10^{8}"
    assert show(neg(neg(num(5)))) == "-(-5)"
    assert show(mul(num(10), root(13)), UNICODE) == "10√(13)"
    assert show(decimal(Fraction(-1, 8))) == "-0.125"
    assert show(Form("interval", (True, num(2), num(5), False))) == "(2, 5]"


# ---- certificates ----------------------------------------------------------------------------------------
def sympified(form: Form) -> sympy.Expr:
    """The same form, read from its keyboard spelling by sympy."""
    names = {"x": sympy.Symbol("x"), "y": sympy.Symbol("y"), "pi": sympy.Symbol("pi_"), "i": sympy.I}
    return parse_expr(show(form, KEYBOARD).replace("^", "**"), names, evaluate=True)


READABLE = {"lit", "sym", "neg", "add", "mul", "div", "pow", "root"}


def readable(form: Form) -> bool:
    parts = all(readable(p) for p in form.parts if isinstance(p, Form))
    plain = form.op != "lit" or form.parts[0].replace(".", "", 1).isdigit()
    return form.op in READABLE and parts and plain


def test_sympy_agrees_with_every_third_certificate_of_a_number_or_formula():
    seen = {True: 0, False: 0}
    for gold in golds(0):
        if gold.kind not in SCALARS:
            continue
        r = random.Random(0)
        made = [(m.form, True) for m in rewrites(gold, r)] + [(m.form, False) for m in mutations(gold, r)]
        for form, equal in made[::3]:
            if readable(form) and readable(gold.form):
                zero = sympy.simplify(sympified(form) - sympified(gold.form)) == 0
                assert zero == equal or (not equal and not differs(form, gold)), (gold.text, show(form))
                seen[equal] += 1
    assert seen[True] > 150
    assert seen[False] > 80


def test_the_same_form_in_another_style_is_the_same_to_sympy():
    for gold in golds(1):
        if gold.kind in SCALARS and readable(gold.form):
            again = show(gold.form, replace(KEYBOARD, power="**"))
            names = {"x": sympy.Symbol("x"), "y": sympy.Symbol("y"), "pi": sympy.Symbol("pi_"), "i": sympy.I}
            assert sympy.simplify(parse_expr(again, names) - sympified(gold.form)) == 0


def test_a_rewrite_of_the_text_that_changes_it_is_caught():
    _certified(Written("whitespace_punct", "stop", "42.\n"), "42", _no_stop)
    with pytest.raises(BadCertificate, match=r"'43\.'"):
        _certified(Written("whitespace_punct", "stop", "43."), "42", _no_stop)


def test_a_mutation_that_comes_out_the_same_is_left_out():
    assert not differs(lit("2.50", "2.50"), Gold("decimal", decimal(Fraction(5, 2)), Fraction(5, 2)))
    assert differs(mul(num(2), I), Gold("complex", I))


# ---- the corpus ------------------------------------------------------------------------------------------
def test_the_corpus_is_large_and_every_pair_is_accounted_for():
    made = corpus("math")
    honest = [p for p in made.pairs if p.part == "pairs"]
    assert len(honest) >= 3000
    assert sum(not p.equal for p in honest) >= 500
    assert len(made.pairs) + made.duplicates == sum(made.certificates.values())
    assert len({p.id for p in made.pairs}) == len(made.pairs)
    assert all(p.gold.strip() for p in made.pairs)


def test_a_seed_makes_the_same_corpus_again_and_another_seed_another():
    assert corpus("math", 3) == corpus("math", 3)
    assert corpus("math", 3).digest != corpus("math", 4).digest


def test_each_half_of_mathematics_has_many_golds():
    honest = [p for p in corpus("math").pairs if p.part == "pairs"]
    assert all(len({p.gold for p in honest if p.half == half}) > 50 for half in ("tuned", "frozen"))


@pytest.mark.parametrize("name", ["math", "numbers", "choice", "json", "code"])
def test_no_gold_is_in_both_halves(name):
    golds: dict[str, set[str]] = {"tuned": set(), "frozen": set()}
    for p in corpus(name).pairs:
        if p.part == "pairs":
            golds[p.half].add(p.gold)
    assert not golds["tuned"] & golds["frozen"]
    assert min(map(len, golds.values())) >= 8


@pytest.mark.parametrize("name", ["math", "numbers", "choice", "json", "code"])
def test_both_halves_have_right_and_wrong_answers(name):
    honest = [p for p in corpus(name).pairs if p.part == "pairs"]
    for half in ("tuned", "frozen"):
        assert {p.equal for p in honest if p.half == half} == {True, False}


def test_no_pair_of_the_same_gold_is_both_right_and_wrong():
    for name in ("math", "numbers", "wide", "choice", "json", "code"):
        said: dict[tuple[str, str], set[bool]] = {}
        for p in corpus(name).pairs:
            said.setdefault((p.gold, p.answer), set()).add(p.equal)
        assert all(len(truths) == 1 for truths in said.values())


def test_an_unknown_corpus_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match="math, numbers, wide, choice, json, code"):
        corpus("physics")


def test_numbers_are_asked_without_formulas():
    for p in corpus("numbers").pairs:
        if p.part == "pairs":
            assert "frac" not in p.gold
            assert "sqrt" not in p.answer


def test_the_ladder_reaches_ten_to_the_twelfth_and_is_off_by_exactly_one():
    ladder = [p for p in corpus("math").pairs if p.part == "ladder"]
    assert {p.decade for p in ladder} == set(range(13))
    assert all(abs(int(p.gold) - int(p.answer)) == 1 for p in ladder)


def test_documents_fit_their_schemas_by_another_library_where_it_is_there():
    jsonschema = pytest.importorskip("jsonschema")
    for asked in documents.questions(0):
        if (
            asked.category in ("syntax", "block", "two_ways", "large")
            or "NaN" in asked.text
            or len(asked.text) > 10_000
        ):
            continue
        try:
            json.loads(asked.text)
        except ValueError:
            assert not asked.valid
            continue
        validator = jsonschema.Draft202012Validator(json.loads(asked.schema))
        assert validator.is_valid(json.loads(asked.text)) == asked.valid, asked


def test_choices_name_their_letter_or_another():
    for asked in letters.questions(0):
        letter = asked.gold.strip(" ().").upper()
        if asked.equal:
            assert letter in asked.text.upper()
        if asked.category == "other_letter":
            assert f"{letter}." not in asked.text


def test_every_letter_is_wanted_by_several_problems_and_no_two_golds_are_spelled_alike():
    wanted = [problem.letter for problem in letters.PROBLEMS]
    assert {letter: wanted.count(letter) for letter in "ABCDE"} == dict.fromkeys("ABCDE", 4)
    assert len({problem.gold for problem in letters.PROBLEMS}) == 20


@pytest.mark.parametrize(("name", "least"), [("choice", 20), ("json", 80), ("code", 80)])
def test_each_corpus_has_answers_made_to_hang_or_to_fool(name, least):
    hostile = [p for p in corpus(name).pairs if p.part == "hostile"]
    assert len(hostile) >= least
    assert not any(p.equal for p in hostile)
    assert max(len(p.answer) for p in hostile) >= 2_900_000


# ---- programs --------------------------------------------------------------------------------------------
def test_programs_do_what_the_corpus_says_of_them():
    """Every third one is run again, outside every sandbox: right ones on all inputs, wrong ones on the tests'."""
    heads, programs = questions.data()
    asked = [(heads[problem], row) for problem, rows in programs.items() for row in rows]
    wanted = dict(zip(heads, outcomes(question(rows[0], heads[p]) for p, rows in programs.items())))
    some = [(head, row) for head, row in asked if row["category"] != "endless"][::3]
    inputs = [None if row["equal"] else head["tests"] for head, row in some]
    for (head, row), seen in zip(some, outcomes(question(row, head, n) for (head, row), n in zip(some, inputs))):
        right = wanted[head["problem"]]
        if row["equal"]:
            assert seen == right, row
            assert len(seen) == row["agrees_on"]
        else:
            assert seen[row["test"]] != right[row["test"]], row
            assert right[row["test"]] == row["wanted"]


def test_the_gold_of_every_problem_asks_what_its_reference_gives():
    heads, _ = questions.data()
    assert {head["form"] for head in heads.values()} == {"calls", "apps", "asserts", "program", "pytest", "script"}
    assert json.loads(heads["gcd"]["gold"])["outputs"] == [6, 7, 0, 2, 1, 100]
    assert "assert minmax([3, 1, 2]) == (1, 3)\n" in heads["minmax"]["gold"]
    assert json.loads(heads["squares"]["gold"])[0] == {"stdin": "3\n1 2 3\n", "stdout": "1\n4\n9\n"}
    assert "except ValueError:" in heads["withdraw"]["gold"]


def test_a_program_that_does_not_end_is_seen_not_to_end_and_one_that_exits_to_end_early():
    asked = [
        {"code": code, "name": "f", "inputs": ["(1,)", "(2,)"], "loose": False}
        for code in (
            "def f(x):\n    while x == 2: pass\n    return x",
            "import os\ndef f(x): return x if x == 1 else os._exit(0)",
            "def f(x) return x",
            "def f(x): return x == 1",
        )
    ]
    assert list(outcomes(asked)) == [
        ["int 1", "does not end"], ["int 1", "ends early"], ["does not load: SyntaxError"] * 2,
        ["bool True", "bool False"],
    ]  # fmt: skip


def test_values_are_told_apart_by_type_and_loosely_as_python_compares():
    values = [True, 1, 1.0, "1", [1], (1,), {1}, frozenset([1]), {1: 1}, b"1", None]
    assert len({told(x) for x in values}) == len(values)
    for a in values:
        for b in values:
            assert (told(a, loose=True) == told(b, loose=True)) == (a == b)


def test_a_rewrite_that_changes_what_a_program_does_ends_the_making(monkeypatch):
    spoiled = replace(PROBLEMS[0], others={"by product": "def total(numbers):\n    return 1\n"})
    with pytest.raises(BadCertificate, match="another way, by product gives int 1"):
        list(make._of(spoiled, 1))


def test_golds_of_a_file_are_asked_about_and_the_rest_is_counted(tmp_path):
    file = tmp_path / "tasks.jsonl"
    lines = ['{"answer": "12"}', '{"answer": 12}', '{"answer": ""}', '{"prompt": "x"}', "no json", '{"gold": "a b"}']
    file.write_text("\n".join([*lines, json.dumps({"answer": "1" * 10_001})]))
    made = corpus_of(file)
    assert made.skipped == {"the same gold again": 1, "no gold": 3, "too long": 1}
    assert {p.gold for p in made.pairs} == {"12", "a b"}
    assert [p.answer for p in made.pairs if not p.equal] == ["13", "11"]
    assert {p.answer for p in made.pairs if p.category == "whitespace_punct" and p.gold == "12"} == {
        "12.", "12\n", "12.\n", " 12", "12 ", "\n12",
    }  # fmt: skip
    (tmp_path / "none.txt").write_text("\n \n")
    with pytest.raises(ValueError, match="holds no gold"):
        corpus_of(tmp_path / "none.txt")


def test_units_convert_exactly():
    a = Form("quantity", (decimal(Fraction(36, 1000)), "kg"))
    b = Form("quantity", (num(36), "g"))
    assert same(value(a), value(b))
    assert not same(value(a), value(Form("quantity", (num(36), "kg"))))

"""The `math` verifier compares answers: public cases, a table, near misses, switches, hostile texts, threads."""

from __future__ import annotations

import json
import random
import threading
import time
import tracemalloc
from fractions import Fraction
from pathlib import Path

import pytest

from rlvr.records import Task
from rlvr.registry import names
from rlvr.verify.math import judge, parser
from rlvr.verify.math.answers import read
from rlvr.verify.math.conventions import Conventions
from rlvr.verify.math.judge import compared
from rlvr.verify.math.limits import Fault
from rlvr.verify.math_answer import Math
from rlvr.verify.spec import verifier_from

HERE = Path(__file__).parent
CASES = {c["id"]: c for c in map(json.loads, (HERE / "cases/field_reports.jsonl").read_text("utf-8").splitlines())}
USUAL = Conventions()


def task(gold: object) -> Task:
    return Task("t1", "What is it?", gold)


def outcome(verifier: Math, text: str, gold: object) -> tuple[str, str]:
    verdict = verifier(text, task(gold))
    return verdict.label, verdict.reason


def table() -> list[tuple[bool, str, str]]:
    pairs = []
    for line in (HERE / "cases/math_pairs.txt").read_text("utf-8").splitlines():
        if line.startswith(("= ", "! ")):
            a, at, b = line[2:].partition(" @ ")
            assert at, line
            pairs.append((line[0] == "=", a, b))
    return pairs


PAIRS = table()


# Cases from the field


@pytest.mark.parametrize("id", sorted(i for i, c in CASES.items() if c["kind"] == "math" and "gold" in c["input"]))
def test_case_from_the_field(id: str) -> None:
    case = CASES[id]
    verdict = Math(case["input"]["mode"])(case["input"]["response"], task(case["input"]["gold"]))
    assert verdict.label == ("right" if case["expected"]["correct"] else "wrong")


def test_what_is_read_at_once_is_read_the_same_by_the_whole_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Atoms that stand alone, and tokens that the gold had too, take shorter ways."""

    def readings() -> list[object]:
        out: list[object] = []
        for text in dict.fromkeys(text for _, a, b in PAIRS for text in (a, b)):
            for thousands in (True, False):
                try:
                    out.append(read(text, thousands).node)
                except Fault as fault:
                    out.append((fault.reason, str(fault)))
        return out

    fast = readings()
    monkeypatch.setattr(parser, "_LONE", frozenset[str]())
    assert readings() == fast
    assert len(fast) > 1500

    gold = read("\\frac{1}{2}, 3")
    assert read("\\dfrac12, 3", known=gold).node == read("\\dfrac12, 3").node
    assert read("\\frac{1}{2}, 4", known=gold).node != gold.node


def test_every_gold_equals_itself_in_a_box() -> None:
    for gold in CASES["M41"]["input"]["golds"]:
        assert outcome(Math("last_box"), f"So it is $\\boxed{{{gold}}}$.", gold) == ("right", "equal"), gold


def test_a_verdict_needs_no_main_thread() -> None:
    case = CASES["M43"]["input"]
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(Math()(case["response"], task(case["gold"])).label))
    thread.start()
    thread.join(5)
    assert said == ["right"]


@pytest.mark.parametrize("id", ["M45", "M46", "M47"])
def test_hostile_case_is_wrong_at_once(id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    case = CASES[id]["input"]
    tracemalloc.start()
    began = time.process_time()
    assert outcome(Math(), case["response"], case["gold"])[0] == "wrong"
    assert time.process_time() - began < 1
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()
    assert not list(tmp_path.iterdir())


# The table


def test_the_table_is_large_and_has_both_kinds() -> None:
    same = sum(equal for equal, _, _ in PAIRS)
    assert len(PAIRS) >= 450
    assert same >= 190
    assert len(PAIRS) - same >= 190


def test_pairs_of_the_table_are_judged_as_the_hand_says_in_either_order() -> None:
    wrong = [
        (answer, gold, finding)
        for equal, a, b in PAIRS
        for answer, gold in ((a, b), (b, a))
        if ((finding := compared(answer, gold, USUAL)).reason == "equal") != equal
    ]
    assert not wrong


def test_every_answer_of_the_table_equals_itself_in_another_dress() -> None:
    for _, a, b in PAIRS:
        for text in (a, b):
            readable = compared("no such answer", text, USUAL).reason != "bad_gold"
            for dress in (text, f"  {text} ", f"{text} .", f"${text}$", *[f"\\displaystyle {text}"] * readable):
                assert compared(dress, text, USUAL).reason == "equal", dress


def test_answers_of_different_kinds_are_different() -> None:
    golds = [
        "42",
        "0.5",
        "\\sqrt2",
        "2\\pi",
        "x^2+1",
        "2+3i",
        "(1,2)",
        "[1,2)",
        "\\{1,2,3\\}",
        "x<2",
        "y=2x+1",
        "35\\%",
    ]
    golds += ["5\\text{ km}", "\\$7", "2:7", "12:00", "101_2", "Tuesday", "\\begin{pmatrix}3\\\\4\\end{pmatrix}"]
    golds += ["90^\\circ", "\\frac{22}{7}", "n!", "\\emptyset", "\\pm 3", "x=4", "(0,1)\\cup(2,3)", "1\\frac34", "e^2"]
    for i, a in enumerate([*golds, "\\infty"]):
        for b in golds[:i]:
            assert compared(a, b, USUAL).reason == compared(b, a, USUAL).reason == "different", (a, b)


# Near misses


def test_neighbouring_numbers_differ_at_every_magnitude() -> None:
    for power in range(13):
        for n in (10**power, 10**power + 7, 3 * 10**power):
            for spelled in (str(n), f"{n:,}", f"{n}.0", f"\\frac{{{2 * n}}}{{2}}", f"{n}\\text{{ cm}}", f"x={n}"):
                assert compared(spelled, str(n), USUAL).reason == "equal"
                for other in (n + 1, n - 1, -n, 10 * n, 100 * n):
                    assert compared(spelled, str(other), USUAL).reason == "different", (spelled, other)
                assert compared(f"{n}\\pi", f"{n + 1}\\pi", USUAL).reason == "different"
                assert compared(f"\\sqrt{{{n}}}", f"\\sqrt{{{n + 1}}}", USUAL).reason == "different"


@pytest.mark.parametrize("power", [20, 40, 60, 100, 200])
def test_a_tiny_difference_is_a_difference(power: int) -> None:
    tiny = f"10^{{-{power}}}"
    for gold, near in [
        ("42", f"42+{tiny}\\pi"),
        ("42", f"42+{tiny}"),
        ("\\sqrt2", f"\\sqrt2+{tiny}"),
        ("\\pi", f"\\pi-{tiny}\\sqrt3"),
        ("0", f"{tiny}\\pi"),
        ("e^2", f"e^{{2+{tiny}}}"),
        ("0", f"\\ln(1+{tiny}\\pi)"),
        (f"{tiny}\\pi", f"{tiny}\\sqrt2"),
        ("x+1", f"x+1+{tiny}\\pi"),
        ("\\sin x", f"\\sin x+{tiny}"),
    ]:
        assert compared(near, gold, USUAL).reason == "different", near
        assert compared(gold, near, USUAL).reason == "different", near


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("1=2^y+2^x", "2=2^{y+1}+2^{x+1}", True),
        ("1=2^y+2^x", "y=2^x", False),
        ("1024^{x/100}", "2^{x/10}", True),
        ("1024^{x/100}", "2^{x/11}", False),
        (r"2^{0.5001}", r"\sqrt{2}\cdot 2^{0.0001}", True),
        ("1099511627776^{1/40}", "2", True),
        ("(1/1099511627776)^{3/40}", "1/8", True),
        ("(1/1099511627776)^{3/40}", "1/9", False),
    ],
)
def test_powers_whose_exponents_are_fractions_of_any_denominator(a: str, b: str, same: bool) -> None:
    assert compared(a, b, USUAL).reason == compared(b, a, USUAL).reason == ("equal" if same else "different")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("\\sqrt{10^{40}+1}-10^{20}", "\\frac{1}{\\sqrt{10^{40}+1}+10^{20}}"),  # forty digits cancel
        ("\\frac{1}{\\sqrt{10^{40}+1}-10^{20}}", "\\sqrt{10^{40}+1}+10^{20}"),
        ("(1+\\sqrt2)^{50}(\\sqrt2-1)^{50}", "1"),
        ("\\cosh^2 30-\\sinh^2 30", "1"),
        ("\\sin 10^{10}", "\\cos(\\frac{\\pi}{2}-10^{10})"),
        ("\\frac{2004!}{2003!}", "2004"),
        ("2^{1000}\\sqrt3", "\\sqrt{3\\cdot 2^{2000}}"),
        ("\\left(\\frac{1+\\sqrt5}{2}\\right)^{30}+\\left(\\frac{1-\\sqrt5}{2}\\right)^{30}", "1860498"),  # Lucas
        ("\\lfloor \\log_{10} 1000 \\rfloor", "3"),
    ],
)
def test_cancellation_does_not_hide_that_two_numbers_are_one(a: str, b: str) -> None:
    assert compared(a, b, USUAL).reason == compared(b, a, USUAL).reason == "equal"


@pytest.mark.parametrize("digits", range(6, 20))
def test_a_decimal_of_ten_digits_stands_for_a_number_that_none_can_express(digits: int) -> None:
    """sqrt(2) = 1.41421356237309504880168872..., cut by hand; from ten digits on its correct rounding is right."""
    rounded = {
        6: "1.41421", 7: "1.414214", 8: "1.4142136", 9: "1.41421356", 10: "1.414213562", 11: "1.4142135624",
        12: "1.41421356237", 13: "1.414213562373", 14: "1.4142135623731", 15: "1.41421356237310",
        16: "1.414213562373095", 17: "1.4142135623730950", 18: "1.41421356237309505", 19: "1.414213562373095049",
    }[digits]  # fmt: skip
    assert compared(rounded, "\\sqrt2", USUAL).reason == ("equal" if digits >= 10 else "different")
    last = rounded[:-1] + str((int(rounded[-1]) + 3) % 10)
    assert compared(last, "\\sqrt2", USUAL).reason == ("equal" if digits in (16, 17) else "different")
    assert compared(rounded, "\\sqrt2", Conventions(decimals=digits)).reason == "equal"
    assert compared(rounded, "\\sqrt2", Conventions(decimals=digits + 1)).reason == "different"


def test_a_double_as_it_prints_stands_for_what_it_approximates() -> None:
    for formula, value in [
        ("\\frac{1}{3}", 1 / 3), ("\\sqrt{19}", 19**0.5), ("\\frac{2}{7}", 2 / 7), ("\\sqrt[3]{5}", 5 ** (1 / 3)),
        ("\\frac{1+\\sqrt5}{2}", (1 + 5**0.5) / 2), ("100\\sqrt2", 100 * 2**0.5), ("\\frac{1}{7000}", 1 / 7000),
    ]:  # fmt: skip
        assert compared(repr(value), formula, USUAL).reason == "equal", value
        assert compared(repr(value * (1 + 1e-9)), formula, USUAL).reason == "different", value
    assert compared(repr(0.1 + 0.2), "0.3", USUAL).reason == "different"  # a decimal can express 0.3
    assert compared("0.125000000001", "1/8", USUAL).reason == "different"


# Switches


@pytest.mark.parametrize(
    ("switch", "a", "b", "answers"),
    [
        ("units", "5\\text{ cm}", "5", {"lenient": True, "strict": False, "ignore": True}),
        ("units", "5\\text{ km}", "5\\text{ cm}", {"lenient": False, "strict": False, "ignore": True}),
        ("units", "5\\text{ km}", "5000\\text{ m}", {"lenient": True, "strict": True, "ignore": False}),
        ("units", "\\$5", "5", {"lenient": True, "strict": False, "ignore": True}),
        ("units", "90^\\circ", "90", {"lenient": True, "strict": False, "ignore": True}),
        ("units", "90^\\circ", "\\frac{\\pi}{2}", {"lenient": True, "strict": True, "ignore": False}),
        ("units", "3:30 pm", "3:30", {"lenient": True, "strict": False, "ignore": True}),
        ("percent", "50\\%", "0.5", {"hundredth": True, "same": False, "ignore": False}),
        ("percent", "50\\%", "50", {"hundredth": False, "same": False, "ignore": True}),
        ("percent", "50\\%", "50 percent", {"hundredth": True, "same": True, "ignore": True}),
        ("lists", "3, 8", "8, 3", {"any_order": True, "in_order": False}),
        ("lists", "\\{3, 8\\}", "\\{8, 3\\}", {"any_order": True, "in_order": True}),
        ("lists", "(3, 8)", "(8, 3)", {"any_order": False, "in_order": False}),
        ("names", "x=5", "5", {"lenient": True, "strict": False}),
        ("names", "x=5", "x=5.0", {"lenient": True, "strict": True}),
        ("bases", "101_2", "5", {"written": False, "value": True, "lenient": False}),
        ("bases", "101_2", "101", {"written": False, "value": False, "lenient": True}),
        ("bases", "101_2", "101_3", {"written": False, "value": False, "lenient": False}),
        ("thousands", "1,234", "1234", {True: True, False: False}),
        ("thousands", "1,234", "1, 234", {True: True, False: True}),
        ("bare_tuples", "1, 2", "(1, 2)", {False: False, True: True}),
        ("bare_tuples", "2, 1", "(1, 2)", {False: False, True: False}),
        ("unsolved", "5x<125", "x<25", {True: True, False: False}),
        ("unsolved", "x>25", "x<25", {True: False, False: False}),
        ("log", "\\log 100", "2", {"10": True, "e": False}),
        ("log", "\\log 5", "\\ln 5", {"10": False, "e": True}),
        ("decimals", "3.14159", "\\pi", {6: True, 7: False}),
    ],
)
def test_a_convention_is_a_switch(switch: str, a: str, b: str, answers: dict[object, bool]) -> None:
    for value, same in answers.items():
        verifier = Math("whole", **{switch: value})  # type: ignore[arg-type]
        for answer, gold in ((a, b), (b, a)):
            assert outcome(verifier, answer, gold) == (("right", "equal") if same else ("wrong", "different")), value


def test_the_verifier_is_known_by_name_and_its_fingerprint_is_a_spec() -> None:
    assert "math" in names("verifier")
    verifier = verifier_from("math(mode='strict', units='ignore')")
    assert verifier == Math("strict", units="ignore")
    assert verifier_from(verifier.fingerprint) == verifier


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("mode='sloppy'", "mode is one of strict, flexible"),
        ("units='loose'", "units is one of lenient, strict, ignore"),
        ("percent=1", "percent is one of hundredth, same, ignore"),
        ("decimals=0", "a number of digits from 1"),
        ("decimals=True", "a number of digits from 1"),
        ("unit='strict'", "did you mean 'units'"),
    ],
)
def test_a_wrong_setting_says_what_would_work(setting: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        verifier_from(f"math({setting})")


# Faults


@pytest.mark.parametrize(
    "gold",
    [
        None, "", "  ", float("nan"), ["5"], {"a": 1}, "\\frac{1}{", "1/0", "\\frac{1}{2-2}", "\\frac{1}{\\sin\\pi}",
        "(10^{9})!", "9^{9^{9^{9}}}", "x" * 7000, "\\unknownmacro{5}", "\\boxed{5", "3 is the largest", "\\ln 0",
    ],
)  # fmt: skip
def test_a_fault_of_the_gold_is_unknown(gold: object) -> None:
    assert outcome(Math(), "It is \\boxed{5}.", gold) == ("unknown", "bad_gold")


def test_a_gold_that_nobody_can_read_still_equals_its_own_words() -> None:
    gold = "\\sum_{k=0}^{n} F_k"
    assert outcome(Math("last_box"), f"\\boxed{{{gold} }}", gold) == ("right", "equal")
    assert outcome(Math("last_box"), "\\boxed{7}", gold) == ("unknown", "bad_gold")


@pytest.mark.parametrize(
    ("text", "gold", "reason"),
    [
        ("x\ud800", "y", "unparsable"),  # half of a character, in words and as a name
        ("Fr(\ud800 here", "\\frac{x - 6}{4x - 8}", "different"),
        ("(10^{4500})!", "5", "over_limit"),  # Python refuses to write a number of over 4300 digits
        ("5", "(1e4000)_{16}", "bad_gold"),
    ],
)
def test_what_a_fuzz_run_found(text: str, gold: str, reason: str) -> None:
    assert compared(text, gold, USUAL).reason == reason


def test_formulas_are_held_apart_at_points_that_were_not_left_to_chance() -> None:
    letters = list("stuvwxyz")
    for i in range(40):  # the points depend on the texts
        a, b, c = random.Random(i).sample(letters, 3)
        for x, y in (
            (f"(-1)^{a}", "1"), (f"(-1)^{{{a}+{b}}}", "-1"), (f"(-1)^{{{a}+{b}}}", f"(-1)^{a}"), (f"\\min({a},{b})", a),
            (f"\\max({a},{b},{c})", f"\\max({a},{c})"), (f"|{a}-{b}|", f"{a}-{b}"), (f"|{a}+{b}|", f"|{a}|+|{b}|"),
        ):  # fmt: skip
            assert compared(x, y, USUAL).reason == "different", (x, y)
        pascal = f"\\binom{{{a}}}{{{b}}}", f"\\frac{{{a}!}}{{{b}!({a}-{b})!}}"
        assert compared(*pascal, USUAL).reason == "equal"


def test_a_difference_that_a_root_or_a_quotient_shrinks_is_still_one() -> None:
    for a, b in (
        ("10^{100}", "\\sqrt{10^{200}+1}"), ("10^{50}", "\\sqrt[4]{10^{200}+1}"),
        ("\\ln(10^{100})", "\\ln(10^{100}+1)"), ("\\frac{\\pi}{2}", "\\arctan(10^{12})"),
        ("10^{-50}", "\\frac{1}{10^{50}+\\pi\\cdot 10^{-50}}"), ("1", "\\tanh 100"),
    ):  # fmt: skip
        assert compared(a, b, USUAL).reason == "different", b


def test_escapes_written_twice_are_read_once() -> None:
    assert compared("\\\\frac{1}{2}", "1/2", USUAL).reason == "equal"
    assert compared("\\\\left(\\\\frac{1}{5},\\\\frac{1}{6}\\\\right)", "(1/5, 1/6)", USUAL).reason == "equal"
    column = "\\begin{pmatrix}1\\\\xy\\end{pmatrix}"  # here they are row breaks
    assert compared(column, column.replace("pmatrix", "bmatrix").replace("xy", "yx"), USUAL).reason == "equal"
    assert compared("1\\\\2", "12", USUAL).reason == "unparsable"  # a row break ends nothing here


def test_golds_may_be_numbers_or_whole_solutions() -> None:
    assert outcome(Math(), "0.5", Fraction(1, 2))[0] == "right"
    assert outcome(Math(), "0.1", 0.1)[0] == "right"
    assert outcome(Math(), "\\boxed{42}", "First 6*7, so \\boxed{42}.")[0] == "right"
    assert outcome(Math(), "#### 72", "48+24=72\n#### 72")[0] == "right"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\\boxed{}", "no_answer"), ("\\boxed{ }", "no_answer"), ("\\boxed{\\frac{1}{}", "unparsable"),
        ("\\boxed{\\frac{1}}", "unparsable"), ("\\boxed{1/0}", "unparsable"), ("\\boxed{(10^9)!}", "over_limit"),
        ("\\boxed{5+}", "unparsable"), ("\\boxed{(5}", "unparsable"), ("\\boxed{5)}", "unparsable"),
        ("\\boxed{4 10/3}", "unparsable"), ("\\boxed{2 3}", "unparsable"), ("\\boxed{\\neq 5}", "different"),
        ("\\boxed{5 is wrong}", "unparsable"), ("\\boxed{5 or 6}", "different"), ("\\boxed{\\sim 5}", "unparsable"),
        ("\\boxed{1/(2-2)}", "unparsable"), ("\\boxed{not 5}", "different"), ("\\boxed{5,5}", "different"),
    ],
)  # fmt: skip
def test_a_fault_of_the_answer_is_wrong(text: str, reason: str) -> None:
    assert outcome(Math(), text, "5") == ("wrong", reason)


# Hostile texts

MILLION = 1_000_000
BOXED = {
    "power tower": "5^(5^(5^(5^5)))",
    "braced tower": "9^{9^{9^{9^{9}}}}",
    "long tower": "^".join("9" * 500),
    "factorial": "(10^{9})!",
    "factorial of factorials": "((((9!)!)!)!)!",
    "factorial signs": "9" + "!" * 2000,
    "many factorials": "+".join(["2000!"] * 700),
    "factorial ratios": "*".join(f"\\frac{{{n}!}}{{3!}}" for n in range(1900, 2000)),
    "fractions": "+".join(f"1/{n}" for n in range(10**8 + 1, 10**8 + 500)),
    "roots": "+".join(f"\\sqrt{{{n}}}" for n in range(600)),
    "list of roots": ",".join(f"\\sqrt{{{n}}}" for n in range(2, 600)),
    "logarithms": "+".join(f"\\ln {n}" for n in range(2, 400)),
    "nested roots": "\\sqrt{2+" * 400 + "1" + "}" * 400,
    "nested sines": "\\sin" * 700 + " x",
    "unions": "\\cup".join(["(1,2)"] * 600),
    "mixed unions": "\\cup(1,2)\\cap".join(["(1,2)"] * 200),
    "mods": "7" + "\\bmod 5" * 500,
    "percents": "5" + "%" * 3000,
    "degrees": "5" + "^\\circ" * 800,
    "parentheses": "(" * 2900 + "1" + ")" * 2900,
    "braces": "{" * 2900 + "1" + "}" * 2900,
    "bars": "|" * 5000,
    "minus signs": "-" * 5000 + "5",
    "sum": "1" + "+1" * 2900,
    "quotients": "1" + "/3" * 2900,
    "equals": "=" * 3000,
    "chain": "x=" * 1500 + "1",
    "plus-minus": "+".join(["\\pm 1"] * 500),
    "commas": "," * 6000,
    "digits": "9" * 6000,
    "exponent": "1e999999999",
    "groups": "1" + ",000" * 1400,
    "open groups": "(" + "100," * 1400,
    "big powers": "x^{10000}+(x+1)^{3000}",
    "polynomial tower": "(((x+1)^{30})^{30})^{30}",
    "binomial": "\\binom{10^9}{5\\cdot10^8}",
    "floor": "\\lfloor\\pi\\cdot10^{1000}\\rfloor",
    "cosine": "\\cos(10^{10^{10}})",
    "matrix": "\\begin{pmatrix}" + "1&" * 900 + "\\end{pmatrix}",
    "import": "__import__('os').system('touch x')",
    "lambda": "(lambda: 5)()",
    "attribute": "().__class__.__bases__",
    "eval": 'eval("5")',
    "sympify": "Integer(5)",
    "format": "{5.__class__}",
    "confusable": "\u0445=5",
    "bold digit": "\U0001d7d3",
    "arabic digit": "\u0665",
    "override": "\u202e5",
    "null": "5\x00",
    "surrogate": "\ud835",
    "combining": "5\u0336",
}
LONG = {
    "open boxes": "\\boxed{" * (MILLION // 7),
    "open braces": "\\boxed{" + "{" * MILLION,
    "words": "the answer is " * (MILLION // 14),
    "boxes": "\\boxed{1}" * (MILLION // 9),
    "nested boxes": "\\boxed{" * (MILLION // 8) + "}" * (MILLION // 8),
    "bare boxes": "\\boxed" * (MILLION // 6),
    "dollars": "$" * MILLION,
    "dollars and x": "$x" * (MILLION // 2),
    "stars": "*" * MILLION,
    "hashes": "#" * MILLION,
    "lines": "\n" * MILLION,
    "backslashes": "\\" * MILLION,
    "displays": "\\[" * (MILLION // 2),
    "tags": "<answer>" * (MILLION // 8),
    "thoughts": "</think>" * (MILLION // 8),
    "prose": "lorem ipsum 12 " * (MILLION // 15),
    "answer to": "answer to " * (MILLION // 10),
    "digits": "1" * MILLION,
    "fractions": "\\frac" * (MILLION // 5),
    "list": "1," * (MILLION // 2),
    "spaces": " " * MILLION,
    "brackets": "(" * MILLION,
}


def fastest(verifier: Math, text: str, gold: str) -> tuple[float, str]:
    """(CPU-seconds, label) of the fastest of three, because the machine has other things to do."""
    times, label = [], ""
    for _ in range(3):
        judge._gold.cache_clear()
        began = time.process_time()
        label = verifier(text, task(gold)).label
        times.append(time.process_time() - began)
    return min(times), label


@pytest.mark.parametrize("mode", ["flexible", "last_box"])
def test_hostile_texts_are_wrong_within_milliseconds(mode: str) -> None:
    texts = {name: f"\\boxed{{{content}}}" for name, content in BOXED.items()} | LONG
    slow = {}
    for name, text in texts.items():
        for gold in ("5", "x^2+\\sqrt2", "\\sqrt2, \\sqrt3"):
            seconds, label = fastest(Math(mode), text, gold)  # type: ignore[arg-type]
            assert label == "wrong", name
            if seconds > 0.02:  # 5 ms on a quiet machine
                slow[name, gold] = seconds
    assert not slow


def test_a_hostile_gold_costs_no_more() -> None:
    for name, content in BOXED.items():
        for answer in ("5", f"0+{content}", f"({content})+1"):
            assert fastest(Math("whole"), answer, content)[0] < 0.03, name


def test_broken_formulas_raise_nothing_and_keep_the_order_of_the_two_out_of_the_verdict() -> None:
    rng = random.Random(7)
    texts = [text for _, a, b in PAIRS for text in (a, b)]
    pieces = [
        "\\frac",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "\\{",
        "\\}",
        "|",
        ",",
        ";",
        ":",
        "=",
        "<",
        "\\le",
        "\\cup",
        "\\pm",
        "-",
        "^",
    ]
    pieces += [
        "_",
        "!",
        "\\%",
        "1",
        "2.5",
        "x",
        "\\pi",
        "\\sqrt",
        "\\text{cm}",
        "\\text{ and }",
        "\\begin{pmatrix}",
        "&",
        "\\\\",
        "$",
    ]

    def broken(text: str) -> str:
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(["", rng.choice(pieces)]) + text[at + rng.randint(0, 2) :]
        return text

    for _ in range(4000):
        a = broken(rng.choice(texts))
        b = broken(a) if rng.random() < 0.5 else rng.choice(texts)
        assert (compared(a, b, USUAL).reason == "equal") == (compared(b, a, USUAL).reason == "equal"), (a, b)
        Math()(f"{a} {b}", task(b))


def test_threads_at_once_say_what_one_says() -> None:
    alone = [compared(a, b, USUAL).reason for _, a, b in PAIRS]
    said: dict[int, list[str]] = {}

    def work(seed: int) -> None:
        order = list(range(len(PAIRS)))
        random.Random(seed).shuffle(order)
        found = [""] * len(PAIRS)
        for i in order:
            found[i] = compared(PAIRS[i][1], PAIRS[i][2], USUAL).reason
        said[seed] = found

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(said.values()) == [alone] * 8


# A printer of its own: what sympy prints is read as what it is


def test_what_a_computer_algebra_system_prints_is_read_as_it_was_meant() -> None:
    sympy = pytest.importorskip("sympy")
    rng = random.Random(11)
    x, y = sympy.symbols("x y", positive=True)

    def formula(depth: int):  # type: ignore[no-untyped-def]
        if not depth:
            number = sympy.Rational(rng.randint(-9, 9), rng.randint(1, 9))
            return rng.choice([x, y, number, sympy.sqrt(rng.randint(2, 9)), sympy.pi * rng.randint(1, 5)])
        a, b = formula(depth - 1), formula(depth - 1)
        return rng.choice(
            [a + b, a * b, a - b, a**2, a / (b**2 + 1), sympy.sqrt(a**2 + 2), sympy.sin(a), sympy.exp(x) * b]
        )

    def printed(e) -> list[str]:  # type: ignore[no-untyped-def]
        keyboard = str(e)
        return [sympy.latex(e), sympy.latex(e, mul_symbol="dot"), keyboard, keyboard.replace("**", "^")]

    same = different = 0
    for _ in range(60):
        e = formula(2)
        golds = printed(e)
        for variant in (e, sympy.expand(e), sympy.together(e)):
            for text in printed(variant):
                assert compared(text, rng.choice(golds), USUAL).reason == "equal", (text, golds[0])
                same += 1
        for number in list(e.atoms(sympy.Rational))[:3]:
            other = e.xreplace({number: number + 1})
            gap = (other - e).subs({x: sympy.Rational(7, 5), y: sympy.Rational(11, 13)}).evalf(30)
            if gap.is_real and abs(gap) > 1e-15:
                for text in printed(other):
                    assert compared(text, rng.choice(golds), USUAL).reason == "different", (text, golds[0])
                    different += 1
    assert same > 700
    assert different > 200

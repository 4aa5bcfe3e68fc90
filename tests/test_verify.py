"""The built-in verifiers: public cases, conventions one by one, hostile texts, specs, and the border to the loop."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from rlvr.records import Origin, Rollout, Task, Verdict
from rlvr.registry import UnknownName, names
from rlvr.verify import box
from rlvr.verify.box import LastBox, last_boxed
from rlvr.verify.choice import Choice
from rlvr.verify.exact import Exact
from rlvr.verify.function import Closure, Function
from rlvr.verify.judge import judge
from rlvr.verify.marker import HashMarker
from rlvr.verify.numeric import Number, Numeric, last_number, parse_number
from rlvr.verify.plain import Plain
from rlvr.verify.regex import Regex
from rlvr.verify.spec import verifier_from
from rlvr.verify.verifier import Verifier, unknown

CASES = {
    case["id"]: case
    for case in map(json.loads, (Path(__file__).parent / "cases/field_reports.jsonl").read_text("utf-8").splitlines())
}
MODES: dict[str, Verifier] = {"flexible": Numeric(last=True), "last_box": LastBox(), "hash_marker": HashMarker()}


def task(gold: object, **fields: object) -> Task:
    return Task("t1", "What is it?", gold, **fields)  # type: ignore[arg-type]


def outcome(verifier: Verifier, text: str, gold: object) -> tuple[str, str]:
    verdict = verifier(text, task(gold))
    return verdict.label, verdict.reason


# Cases from the field. A symbolic verifier is needed where right answers are spelled as other formulas (M25, M30, M36,
# M38) and a thinking-aware one for M20 and M21.


@pytest.mark.parametrize(
    "id",
    ["M06", "M07", "M10", "M12", "M13", "M15", "M17", "M18", "M23", "M26", "M27", "M33", "M34", "M35", "M40", "M49"]
    + ["M01", "M29", "M31", "M32", "M48", "M52"],
)
def test_case_from_the_field(id: str) -> None:
    case = CASES[id]
    verdict = MODES[case["input"]["mode"]](case["input"]["response"], task(case["input"]["gold"]))
    assert verdict.label == ("right" if case["expected"]["correct"] else "wrong")


def test_a_formula_is_not_reduced_to_a_number_inside_it() -> None:
    case = CASES["M02"]["input"]
    assert outcome(Numeric(last=True), case["response"], "4") == ("wrong", "unparsable")
    assert outcome(Numeric(last=True), case["response"], case["gold"]) == ("unknown", "bad_gold")
    line = CASES["M03"]["input"]
    assert outcome(Plain(), line["response"].removeprefix("The line is "), line["gold"]) == ("wrong", "different")


def test_every_gold_equals_itself_in_a_box() -> None:
    for gold in [*CASES["M41"]["input"]["golds"], CASES["M43"]["input"]["gold"]]:
        assert outcome(LastBox(), f"So it is $\\boxed{{{gold}}}$.", gold) == ("right", "equal"), gold


@pytest.mark.parametrize("id", ["M45", "M46", "M47"])
def test_hostile_boxes_are_wrong_at_once(id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    case = CASES[id]
    began = time.process_time()
    assert outcome(LastBox(), case["input"]["response"], case["input"]["gold"])[0] == "wrong"
    assert time.process_time() - began < 0.1
    assert not list(tmp_path.iterdir())


def test_a_verdict_needs_no_main_thread() -> None:
    case = CASES["M43"]["input"]
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(LastBox()(case["response"], task(case["gold"])).label))
    thread.start()
    thread.join(5)
    assert said == ["right"]


# exact


def test_exact_ignores_white_space_and_case_only_when_asked() -> None:
    assert outcome(Exact(), "  New \n York ", "New York") == ("right", "equal")
    assert outcome(Exact(), "new york", "New York") == ("wrong", "different")
    assert outcome(Exact(fold=True), "new york", "New York") == ("right", "equal")
    assert outcome(Exact(), "NewYork", "New York") == ("wrong", "different")
    assert outcome(Exact(), "caf\u0065\u0301", "caf\u00e9") == ("right", "equal")  # two spellings of one character
    assert outcome(Exact(), " \n", "New York") == ("wrong", "no_answer")
    assert outcome(Exact(), "3", 3) == ("right", "equal")


@pytest.mark.parametrize("gold", [None, "", "  ", float("nan"), float("inf"), ["a"], {"a": 1}, "x" * 100_001])
@pytest.mark.parametrize("verifier", [Exact(), Plain(), Numeric(), Choice(), LastBox(), HashMarker()])
def test_a_fault_of_the_gold_is_unknown(verifier: Verifier, gold: object) -> None:
    assert outcome(verifier, "#### \\boxed{3}" if "exact" not in verifier.fingerprint else "3", gold) == (
        "unknown",
        "bad_gold",
    )


# numeric


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7), ("7.", 7), ("+7", 7), ("007", 7), ("-7", -7), ("\u22127", -7), (".5", "1/2"), ("0.50", "1/2"),
        ("1,234", 1234), ("12,345,678.5", "24691357/2"), ("1{,}234", 1234), ("10,\\!000", 10000), ("1\\,234", 1234),
        ("1\u202f234", 1234), ("3/4", "3/4"), ("-6/8", "-3/4"), ("1,000/2", 500), ("2 2/3", "8/3"), ("-2 2/3", "-8/3"),
        ("1.5e3", 1500), ("2E-2", "1/50"), ("$29.00", 29), ("-$5", -5), ("\\$5", 5), ("€ 5", 5), ("$7$", 7),
        ("**73**", 73), ("\\(7\\)", 7), (" $-4$. ", -4), ("1e4096", Fraction(10) ** 4096),
    ],
)  # fmt: skip
def test_a_number_is_read(text: str, value: object) -> None:
    found = parse_number(text)
    assert isinstance(found, Number)
    assert found.value == Fraction(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "nan", "inf", "-inf", "Infinity", "1,2", "0,1", "12,34", "1,2345", "0,123", ",", ".", "-", "1 2", "1 000",
        "--5", "-$-5", "1/0", "1/2/3", "4 10/3", "2 1.5/3", "5 km", "2x", "x2", "10^3", "1_000", "0x10", "1e", "e5",
        "½", "５", "٣", "(1,2)", "{3}",
        "5-7", "3 + 4", "1:2", "one", "\\frac{1}{2}", "5!", "$", "%", "1.2.3", "1,234,56", "1e1.5",
    ],
)  # fmt: skip
def test_a_text_is_no_number(text: str) -> None:
    assert parse_number(text) == "unparsable"


def test_plain_integers_are_what_the_whole_grammar_reads() -> None:
    for text in ["0", "7", "007", "42", "1234", "9" * 640, "9" * 641]:
        assert parse_number(text) == parse_number(f"+{text}")
        assert parse_number(f"-{text}") == parse_number(f"- {text}")


def test_numbers_are_bounded() -> None:
    assert parse_number("9" * 640) == Number(Fraction(10) ** 640 - 1)
    assert parse_number("9" * 641) == "over_limit"
    assert parse_number("1e4097") == "over_limit"
    assert parse_number("1e999999999") == "over_limit"
    assert outcome(Numeric(), "1" * 10_000, "1") == ("wrong", "over_limit")


def test_comparison_is_exact_at_every_magnitude() -> None:
    for power in range(0, 400, 7):
        n = 10**power
        assert outcome(Numeric(), str(n), n) == ("right", "equal")
        assert outcome(Numeric(), str(n + 1), n) == ("wrong", "different")
    assert outcome(Numeric(), "0.1", Fraction(1, 10))[0] == "right"
    assert outcome(Numeric(), "0.1", 0.1)[0] == "right"  # a float is the decimal that it prints as
    assert outcome(Numeric(), "0.3333333333333333", "1/3")[0] == "wrong"
    assert outcome(Numeric(), "1e-80", "1e-79")[0] == "wrong"


def test_tolerances_are_decimal_and_their_border_is_inside() -> None:
    assert outcome(Numeric(absolute=0.1), "1.1", "1")[0] == "right"
    assert outcome(Numeric(absolute=0.1), "1.1000001", "1")[0] == "wrong"
    assert outcome(Numeric(relative=1e-4), "10001", "10000")[0] == "right"
    assert outcome(Numeric(relative=1e-4), "10001.1", "10000")[0] == "wrong"
    assert outcome(Numeric(relative=0.1, absolute=2), "8", "10")[0] == "right"  # the larger of the two
    for bad in (-1, float("nan"), float("inf"), "0.1"):
        with pytest.raises(ValueError, match="relative is a tolerance"):
            Numeric(relative=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("percent", "equal"),
    [("same", [True, False, False]), ("ignore", [True, True, False]), ("hundredth", [True, False, True])],
)
def test_the_percent_switch(percent: str, equal: list[bool]) -> None:
    verifier = Numeric(percent=percent)  # type: ignore[arg-type]
    assert [outcome(verifier, "28\\%", gold)[0] == "right" for gold in ("28%", "28", "0.28")] == equal
    with pytest.raises(ValueError, match="percent is one of same, ignore, hundredth"):
        Numeric(percent="maybe")  # type: ignore[arg-type]


def test_two_currencies_differ_and_a_missing_one_does_not() -> None:
    assert outcome(Numeric(), "$5", "5")[0] == "right"
    assert outcome(Numeric(), "5", "€5")[0] == "right"
    assert outcome(Numeric(), "$5", "€5")[0] == "wrong"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The total is 36, in all.", 36), ("Total:18", 18), ("so x=18.", 18), ("$x = 18$", 18), ("8+9=17", 17),
        ("It is \\boxed{3 1/2}.", "7/2"), ("<answer>31</answer>", 31), ("is **73**.", 73), 
        ("costs $1,234.50!", "1234.5"), ("Step 2: 2/3", "2/3"), ("the answer (-5)", -5), ("18\\text{ km}", 18),
        ("first 3, then 5 apples", 5), ("* 5", 5),
        ("x \u2248 3.14.", "3.14"), ("2\n3", 3), ("in 3 2/5", "17/5"),
        ("is \u22123 1/2", "-7/2"), ("so 1{,}234", 1234), ("1{,}234 1/2", "2469/2"),
    ],
)  # fmt: skip
def test_the_last_number_of_a_text(text: str, number: object) -> None:
    found = last_number(text)[1]
    assert isinstance(found, Number)
    assert found.value == Fraction(number)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["12:00", "2x", "10^3", "(2,3)", "f(3)", "4 + 5", "5 + e", "5 \\pi", "\\frac{1}{2}", "3\\sqrt{2}", "5-7", "1, 2/0"],
)
def test_a_piece_of_a_formula_is_no_answer(text: str) -> None:
    assert last_number(text)[1] == "unparsable"


def test_no_number_is_no_answer() -> None:
    assert outcome(Numeric(last=True), "I do not know, sorry.", "5") == ("wrong", "no_answer")
    assert outcome(Numeric(), "", "5") == ("wrong", "no_answer")


# plain


def test_plain_compares_values_where_both_are_numbers_and_characters_elsewhere() -> None:
    assert outcome(Plain(), "0.50", "1/2")[0] == "right"
    assert outcome(Plain(), "12", "1,2")[0] == "wrong"
    assert outcome(Plain(), "$ (1, 2) $.", "(1,2)")[0] == "right"
    assert outcome(Plain(), "x \u2212 1", "x-1")[0] == "right"
    assert outcome(Plain(), "nan", "nan")[0] == "right"  # a word like any other
    assert outcome(Plain(), "[0,1]", "[0,1)")[0] == "wrong"


# last_box


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("I get \\boxed{4}. No: \\boxed{6}.", "6"), ("\\fbox{42}", "42"), ("\\boxed {5}", "5"),
        ("\\boxed{\\{2,3\\}}", "\\{2,3\\}"), ("\\boxed{\\boxed{5}}", "5"), ("\\boxed{x+\\boxed{5}}", "x+\\boxed{5}"),
        ("\\boxed{ \\fbox{5} }.", "5"), ("$\\boxed{3}$, $\\boxed{8}$", "3, 8"), ("\\boxed{a} and \\boxed{b}", "a, b"),
        ("$\\boxed{3}$\n\n\\boxed{3}", "3"), ("} \\boxed{7} {", "7"), ("{ \\boxed{7}", "7"),
        ("\\boxed{ \\boxed{5}", "5"), ("\\boxed{1\\\\{2}}", "1\\\\{2}"), ("\\boxed{1} \\boxed", "1"), ("\\boxed{}", ""),
    ],
)  # fmt: skip
def test_the_last_box(text: str, content: str) -> None:
    assert last_boxed(text) == (content, "")


def test_a_box_that_is_read_at_once_is_the_one_that_the_scan_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    r = random.Random(3)
    parts = ["\\boxed{", "\\fbox {", "{", "}", "}", "\\}", "\\{", "\\frac", "\\\\", "7", " ", ", ", "x and y", "\n"]
    texts = ["".join(r.choices(parts, k=r.randint(1, 9))) for _ in range(20_000)]
    fast = [last_boxed(text) for text in texts]
    monkeypatch.setattr(box, "_FLAT", re.compile("(?!)"))
    assert [last_boxed(text) for text in texts] == fast
    assert sum(content is not None for content, _ in fast) > 1000


def test_without_a_closed_last_box_there_is_no_answer() -> None:
    assert outcome(LastBox(), "The answer is 11.", "11") == ("wrong", "no_answer")
    assert outcome(LastBox(), "\\boxed{11} or \\boxed{12", "11") == ("wrong", "unparsable")
    assert outcome(LastBox(), "\\boxed{}", "11") == ("wrong", "no_answer")


def test_a_box_is_found_wherever_it_is_and_however_long() -> None:
    gold = "(" + ",".join(map(str, range(10_000))) + ")"
    text = "x" * 300_000 + f"\\boxed{{{gold}}}" + " and so on." * 30_000
    assert outcome(LastBox(), text, gold) == ("right", "equal")


def test_a_box_around_a_list_of_boxes_pays_for_none_of_them() -> None:
    assert outcome(LastBox(), "\\boxed{3}, \\boxed{8}", "8") == ("wrong", "different")
    assert outcome(LastBox(), "\\boxed{3} \\boxed{8}", "3, 8") == ("right", "equal")


def test_golds_may_be_whole_solutions() -> None:
    assert outcome(LastBox(), "\\boxed{42}", "First 6*7, so \\boxed{42}.")[0] == "right"
    assert outcome(LastBox(), "\\boxed{42}", "so \\boxed{42") == ("unknown", "bad_gold")
    assert outcome(HashMarker(), "#### 72", "48+24=72\n#### 72")[0] == "right"


def test_the_inner_verifier_decides() -> None:
    assert outcome(LastBox(Numeric(absolute=1)), "\\boxed{7}", "6")[0] == "right"
    assert outcome(HashMarker(inner=Choice()), "#### (B)", "B")[0] == "right"


# hash_marker


def test_the_answer_is_the_rest_of_the_line_behind_the_last_marker() -> None:
    assert outcome(HashMarker(), "#### 41\nno:\n#### 42.\nThat is all, 43.", "42")[0] == "right"
    assert outcome(HashMarker(), "#### 42 or 43", "42")[0] == "wrong"
    assert outcome(HashMarker(), "42", "42") == ("wrong", "no_answer")
    assert outcome(HashMarker(), "####\n42", "42") == ("wrong", "no_answer")
    assert outcome(HashMarker(marker="#"), "7*3=21\n#21", "21")[0] == "right"
    assert outcome(HashMarker(marker="#"), "#C#", "C#")[0] == "wrong"  # what follows the last marker is nothing
    assert outcome(HashMarker(marker="#"), "# C", "C#") == ("wrong", "different")
    with pytest.raises(ValueError, match="marker is the text before an answer"):
        HashMarker(marker=" ")


# choice


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("The answer is (B).", "B"), ("the answer is: **C**", "C"), ("**Answer:**\n\nC", "C"), ("### Answer\nB", "B"),
        ("\\boxed{B}", "B"), ("$\\boxed{\\text{(B)}}$", "B"), ("\\boxed{d}", "D"), ("7*3=21\n12+21=33\n#B", "B"),
        ("B", "B"), ("b", "B"), ("(b)", "B"), (" **B** ", "B"), ("B. Paris", "B"), ("I would say (C), for sure", "C"),
        ("The correct option is (c)", "C"), ("Answer A is wrong. Answer: B", "B"), ("answer is A, not B", "A"),
        ("Option (A) is wrong, (B) too. The answer is D.", "D"), ("The answer is A. Wait! The answer is B.", "B"),
        ("\\boxed{A}. No, the answer is C", "C"), ("The answer is C, so \\boxed{A}", "A"), ("#A\n#B", "B"),
    ],
)  # fmt: skip
def test_a_letter_is_chosen(text: str, letter: str) -> None:
    for gold in "ABCDE":
        assert outcome(Choice(), text, gold) == (("right", "equal") if gold == letter else ("wrong", "different"))


@pytest.mark.parametrize(
    "text",
    [
        "", "A or B", "(A) and (B) both look good", "A) cats\nB) dogs", "I think (B), though C could be", "no idea",
        "the answer is a dog", "The wrong answer is A", "\\boxed{42}", "ABCDE",
        "The answer is not (A).", "(A) is wrong",
        "A dog. I like dogs.", "Banana", "f(a) = 3",
    ],
)  # fmt: skip
def test_nothing_is_chosen(text: str) -> None:
    assert outcome(Choice(), text, "A") == ("wrong", "no_answer")


@pytest.mark.parametrize("text", ["The answer is A or B", "\\boxed{A, B}", "Answer: (A)/(B)", "answer is A and B"])
def test_a_hedged_choice_is_ambiguous(text: str) -> None:
    assert outcome(Choice(), text, "A") == outcome(Choice(), text, "B") == ("wrong", "ambiguous")


def test_options_are_the_letters_there_are() -> None:
    assert outcome(Choice("ABCDEFGHIJ"), "The answer is (J).", "J")[0] == "right"
    assert outcome(Choice("ABCD"), "The answer is B", "(b)")[0] == "right"
    assert outcome(Choice("ABCD"), "The answer is E", "E") == ("unknown", "bad_gold")
    for bad in ("abc", "", "AA", "A1"):
        with pytest.raises(ValueError, match="options are different capital letters"):
            Choice(bad)


# Hostile texts


N = 10_000_000
HOSTILE = {
    "open braces": "\\boxed{" + "{" * N,
    "close braces": "\\boxed{" + "}" * N,
    "nested boxes": "\\boxed{" * (N // 8) + "}" * (N // 8),
    "open boxes": "\\boxed{" * (N // 7),
    "boxes without braces": "\\boxed" * (N // 6),
    "backslashes": "\\" * N,
    "digits": "1" * N,
    "groups": "1," + "000," * (N // 4) + "000",
    "slashes": "1/" * (N // 2),
    "spaces": " " * N + "5",
    "lines": "\n" * N,
    "hashes": "#" * N,
    "half answers": "answer is " * (N // 10),
    "answers": "answer is A " * (N // 12),
    "spaced answers": ("answer is" + " " * 50) * (N // 59),
    "brackets": "(" * N,
    "operators": "- " * (N // 2),
}
VERIFIERS = [Exact(), Exact(fold=True), Numeric(), Numeric(last=True), Plain(), Choice(), LastBox(), HashMarker("#")]


@pytest.mark.parametrize("length", [N, 1_000_000, 90_000])  # beyond every limit, inside some, inside all
def test_hostile_texts_get_a_verdict_in_a_fraction_of_a_second(length: int) -> None:
    slow = {}
    for name, text in HOSTILE.items():
        for verifier in VERIFIERS:
            began = time.process_time()
            verdict = verifier(text[:length], task("A" if isinstance(verifier, Choice) else "5"))
            spent = time.process_time() - began
            assert verdict.label != "unknown", (name, verifier)
            assert verdict.extracted is None or len(verdict.extracted) <= 1000
            if spent > 0.5:
                slow[name, verifier.fingerprint] = spent
    assert not slow


# regex


def test_a_pattern_finds_the_last_answer() -> None:
    verifier = Regex(r"(?i)final:\s*(\S+)")
    assert outcome(verifier, "final: 3\nFINAL: 4.0", "4") == ("right", "equal")
    assert outcome(Regex(r"final: (\S+)", last=False), "final: 3\nfinal: 4", "3") == ("right", "equal")
    assert outcome(Regex(r"(\w+) = (?P<answer>\d+)"), "x = 7", "7") == ("right", "equal")
    assert outcome(verifier, "nothing", "4") == ("wrong", "no_answer")
    assert outcome(verifier, "x" * 1_000_001, "4") == ("wrong", "over_limit")


def test_a_pattern_that_backtracks_for_ever_cannot_hang_the_trainer() -> None:
    verifier = Regex(r"^(a+)+$", seconds=1.0)
    began = time.monotonic()
    assert outcome(verifier, "a" * 5000 + "!", "a") == ("unknown", "timeout")
    assert time.monotonic() - began < 10
    assert outcome(verifier, "aaa", "aaa") == ("right", "equal")  # a new process goes on


def test_a_wrong_pattern_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="is no pattern: missing"):
        Regex("(a")
    with pytest.raises(ValueError, match="has no group"):
        Regex("a+")


# spec


@pytest.mark.parametrize(
    ("spec", "verifier"),
    [
        ("exact", Exact()),
        ("numeric(last=True, relative=1e-6)", Numeric(last=True, relative=1e-6)),
        ("hash_marker(marker='#')", HashMarker("#")),
        ("last_box(inner=numeric(absolute=0.5))", LastBox(Numeric(absolute=0.5))),
        (" last_box( inner = choice ) ", LastBox(Choice())),
        ({"name": "numeric", "last": True}, Numeric(last=True)),
        ({"name": "last_box", "inner": {"name": "exact", "fold": True}}, LastBox(Exact(fold=True))),
        (Exact(), Exact()),
    ],
)
def test_a_spec_is_read(spec: object, verifier: Verifier) -> None:
    assert verifier_from(spec) == verifier  # type: ignore[arg-type]
    assert verifier_from(verifier.fingerprint) == verifier  # a fingerprint is a spec


def test_a_function_or_a_file_is_a_verifier(tmp_path: Path) -> None:
    file = tmp_path / "reward.py"
    file.write_text("def f(answer, gold):\n    return answer == gold\n")
    assert isinstance(verifier_from(lambda answer, gold: answer == gold), Closure)
    assert verifier_from(f"{file}:f") == Function(f"{file}:f")
    assert verifier_from(f"{file}:f(right_above=0.5, seconds=3)") == Function(f"{file}:f", 0.5, 3)
    assert verifier_from({"name": f"{file}:f", "seconds": 3}) == Function(f"{file}:f", seconds=3)
    assert file.name in verifier_from(f"{file}:f").fingerprint
    assert str(tmp_path) not in verifier_from(f"{file}:f").fingerprint


@pytest.mark.parametrize(
    ("spec", "error", "says"),
    [
        ("numerik", UnknownName, "did you mean 'numeric'"),
        ("numeric(lost=True)", ValueError, "did you mean 'last'"),
        ("plain(x=1)", ValueError, "it has: none"),
        ("numeric(True)", ValueError, "settings are named"),
        ("numeric(**{})", ValueError, "settings are named"),
        ("numeric(last=open('x').close())", ValueError, "is no verifier"),
        ("numeric(last=1+x)", ValueError, "neither a number"),
        ("numeric(", ValueError, "write a name"),
        ("a.b", ValueError, "is no verifier"),
        ("[1]", ValueError, "is no verifier"),
        ("", ValueError, "is no verifier"),
        ("(" * 100_000, ValueError, "is no verifier"),
        ("regex", ValueError, "pattern"),
        ("nowhere.py:f", ValueError, "there is no file"),
        ({"last": True}, ValueError, "needs a name"),
        (3, ValueError, "not int"),
    ],
)
def test_a_wrong_spec_says_what_would_work(spec: object, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=re.escape(says)):
        verifier_from(spec)  # type: ignore[arg-type]


def test_all_verifiers_are_known_by_name() -> None:
    assert {"exact", "numeric", "plain", "choice", "last_box", "hash_marker", "regex", "function"} <= set(
        names("verifier")
    )


# judge


def rollout(text: str, status: str = "finished") -> Rollout:
    ids = np.array([1, 2, 3], np.int32)
    origin = np.array([Origin.PROMPT, Origin.POLICY, Origin.POLICY], np.int8)
    turn = np.array([-1, 0, 0], np.int16)
    row = Rollout("r", "t1", "r", "policy", 0, ids, origin, turn, {}, (), text=text)
    return replace(row, status=status)  # type: ignore[arg-type]


def test_every_rollout_gets_one_verdict_with_seconds_and_fingerprint() -> None:
    verdicts = judge(Plain(), [(rollout("4"), task("4")), ("5", task("4")), (rollout("4", "truncated"), task("4"))])
    assert [v.label for v in verdicts] == ["right", "wrong", "right"]
    assert all(v.seconds > 0 and v.fingerprint == "plain()" for v in verdicts)
    assert judge(Plain(), []) == []


def test_a_failed_rollout_is_the_machines_fault() -> None:
    verdicts = judge(Plain(), [(rollout("4", status), task("4")) for status in ("failed", "aborted")])
    assert [(v.label, v.reason) for v in verdicts] == [("unknown", "rollout_failed"), ("unknown", "rollout_aborted")]


def test_a_tasks_own_verifier_wins() -> None:
    items = [("#### 4", task("4", verifier="hash_marker")), ("4", task("4")), ("4.0", task("4", verifier="exact"))]
    verdicts = judge(Plain(), items)
    assert [v.label for v in verdicts] == ["right", "right", "wrong"]
    assert [v.fingerprint.partition("(")[0] for v in verdicts] == ["hash_marker", "plain", "exact"]
    (verdict,) = judge(Plain(), [("4", task("4", verifier="hash_marke"))])
    assert verdict.label == "unknown"
    assert "did you mean 'hash_marker'" in verdict.reason


@dataclass(frozen=True)
class Raises:
    fingerprint: str = "raises()"

    def __call__(self, text: str, task: Task) -> Verdict:
        if text == "quit":
            raise SystemExit(3)
        if text == "true":
            return True  # type: ignore[return-value]
        if text == "stop":
            raise KeyboardInterrupt
        raise RuntimeError("out of paper")


@dataclass(frozen=True)
class LosesOne:
    fingerprint: str = "loses_one()"

    def __call__(self, text: str, task: Task) -> Verdict:
        return unknown("unused")

    def judge_many(self, items: object) -> list[Verdict]:
        return [unknown("only one")]


def test_whatever_a_verifier_does_becomes_a_verdict() -> None:
    verdicts = judge(Raises(), [("x", task("4")), ("quit", task("4")), ("true", task("4"))])
    assert [v.label for v in verdicts] == ["unknown"] * 3
    assert verdicts[0].reason == "verifier_error: RuntimeError: out of paper"
    assert verdicts[1].reason == "verifier_error: SystemExit: 3"
    assert verdicts[2].reason.startswith("verifier_error: TypeError: 1 verdicts were wanted")
    lost = judge(LosesOne(), [("x", task("4")), ("y", task("4"))])
    assert [v.reason[:40] for v in lost] == ["verifier_error: TypeError: 2 verdicts we"] * 2
    with pytest.raises(KeyboardInterrupt):
        judge(Raises(), [("stop", task("4"))])

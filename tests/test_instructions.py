"""The `instructions` verifier: each check with a response that keeps to it and responses that do not."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from rlvr.records import Task
from rlvr.verify.instructions import CHECKS, Instructions, sentences
from rlvr.verify.spec import verifier_from

CASES = {
    case["id"]: case
    for case in map(json.loads, (Path(__file__).parent / "cases/field_reports.jsonl").read_text("utf-8").splitlines())
}
# name, parameters, what keeps to it, what does not
EACH: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
    ("keywords:existence", {"keywords": ["Tea", "cup"]}, ["a cup of tea"], ["a cup", "te a cup"]),
    ("keywords:frequency", {"keyword": "so", "frequency": 2, "relation": "at least"}, ["So, so."], ["so", "no"]),
    ("keywords:frequency", {"keyword": "so", "frequency": 2, "relation": "less than"}, ["so", "no"], ["so so"]),
    ("keywords:forbidden_words", {"forbidden_words": ["cat", "a.b"]}, ["category axb"], ["The Cat!", "see a.b"]),
    ("keywords:letter_frequency", {"letter": "E", "let_frequency": 2, "let_relation": "at least"}, ["Eel"], ["less"]),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, ["one two three"], ["one", "a-b"]),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"}, ["one two"], ["one two three"]),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "at least"}, ["A b. C d!"], ["A b, c."]),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "less than"}, ["Dr. B is."], ["Go. Now."]),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, ["a\n***\nb", "***\na\n***\nb"],
     ["a\n\nb", "a\n***\n***\nb", "a *** b *** c"]),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "yes"},
     ["a\n\n**Yes**, b"], ["yes\n\nno", "a\n\nyes\n\nb", "yes"]),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, ["[name] [a b]"], ["[name]", "[] []", "[[a]]"]),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, ["Bye\nP. S. one"], ["P.S. one", "Bye P.P.S"]),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, ["* a\n- b", "x\n  * a\n\n* b"],
     ["* a", "* a\n* b\n* c", "* a\n---", "* a\n**b**", "* a\n- "]),
    ("detectable_format:constrained_response", {}, ["I think: My answer is no."], ["No.", "my answer is no.",
     "My answer is yes. My answer is no."]),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, ["*a* **b**"],
     ["*a*", "** ** * *", "**a**"]),
    ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 2},
     ["Section 1\nx\nSection 2"],
     ["Section 1", "section 1 section 2", "Section one Section two"]),
    ("detectable_format:json_format", {}, ['{"a": 1}', "```json\n[1]\n```"], ["{'a': 1}", "Sure: {}", "[" * 50_000]),
    ("detectable_format:title", {}, ["<<A poem>>\nx"], ["<< >>", "<<a\nb>>", "<a>", ">>a<<"]),
    ("combination:two_responses", {}, ["a\n******\nb"], ["a", "a ****** a", "a ****** b ****** c", "a ****** ******"]),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say it."}, ["say it. Yes"], ["Yes. Say it.", "Say"]),
    ("startend:end_checker", {"end_phrase": "Any questions?"}, ["So. any questions? "], ["Any questions? No."]),
    ("startend:quotation", {}, ['"a"'], ["a", '"a', '""', '" "', '"']),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"}, ["GO NOW then"],
     ["GO now", "Go Now"]),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "less than"}, ["A"], ["A B"]),
    ("change_case:english_capital", {}, ["ALL 7!"], ["All", "7!"]),
    ("change_case:english_lowercase", {}, ["all 7!"], ["All", "7!"]),
    ("punctuation:no_comma", {}, ["a b"], ["a, b"]),
]  # fmt: skip


def judged(text: str, *asked: Any, **settings: Any) -> tuple[str, str, dict[str, float]]:
    found = Instructions(**settings)(text, Task("t1", "Do it.", [list(a) for a in asked]))
    return found.label, found.reason, dict(found.parts)


@pytest.mark.parametrize(("name", "parameters", "keeps", "breaks"), EACH)
def test_each_check_can_fail(name: str, parameters: dict[str, Any], keeps: list[str], breaks: list[str]) -> None:
    for text in keeps:
        assert judged(text, (name, parameters)) == ("right", "followed", {name: 1.0}), text
    for text in breaks:
        assert judged(text, (name, parameters)) == ("wrong", "not_followed", {name: 0.0}), text


def test_every_check_is_in_the_table_above() -> None:
    assert {row[0] for row in EACH} == set(CHECKS)


@pytest.mark.parametrize("empty", ["", " \n\t "])
def test_an_empty_response_keeps_to_nothing(empty: str) -> None:
    label, reason, parts = judged(empty, *[(name, parameters) for name, parameters, _, _ in EACH])
    assert (label, reason) == ("wrong", "no_answer")
    assert set(parts.values()) == {0.0}


def test_a_check_that_nobody_knows_never_passes() -> None:
    case = CASES["V05"]["input"]
    assert "never a pass" in CASES["V05"]["expected"]["behaviour"]
    for text in (case["response"], "anything"):
        label, reason, parts = judged(text, *case["constraints"])
        assert (label, parts) == ("unknown", {})
        assert reason.startswith("bad_gold: no check is called 'no_such_check'")
    assert judged("a", ("punctuation:no_comma", {}), ("language:response_language", {"language": "de"}))[0] == "unknown"


def test_a_repeated_check_does_not_hide_the_first() -> None:
    asked = [("keywords:existence", {"keywords": [word]}) for word in ("missing", "here")]
    label, reason, parts = judged("here", *asked)
    assert (label, reason) == ("wrong", "not_followed")
    assert parts == {"keywords:existence": 0.0, "keywords:existence#2": 1.0}
    partial = Instructions(partial=True)("here", Task("t1", "Do it.", [list(a) for a in asked]))
    assert (partial.label, partial.score) == ("wrong", 0.5)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (["punctuation:no_comma", {"extra": 1}], "has the parameters [], not ['extra']"),
        (["keywords:existence", {}], "has the parameters ['keywords'], not []"),
        (["keywords:existence", {"keywords": "tea"}], "keywords cannot be 'tea'"),
        (["keywords:existence", {"keywords": []}], "keywords cannot be []"),
        (["keywords:existence", {"keywords": [""]}], "keywords cannot be ['']"),
        (["detectable_content:number_placeholders", {"num_placeholders": True}], "cannot be True"),
        (["detectable_content:number_placeholders", {"num_placeholders": -1}], "cannot be -1"),
        (["length_constraints:number_words", {"num_words": 3, "relation": "over"}], "relation cannot be 'over'"),
        (["punctuation:no_comma"], "an instruction is [name, parameters]"),
        ("punctuation:no_comma", "an instruction is [name, parameters]"),
    ],
)  # fmt: skip
def test_an_instruction_that_cannot_be_checked_is_unknown(asked: Any, reason: str) -> None:
    found = Instructions()("text", Task("t1", "Do it.", [asked]))
    assert found.label == "unknown"
    assert reason in found.reason


def test_no_instruction_is_no_verdict_and_the_columns_of_ifeval_are_read() -> None:
    verifier = verifier_from("instructions")
    assert verifier("text", Task("t1", "Do it.", [])).reason == "no_checks"
    gold = {
        "instruction_id_list": ["punctuation:no_comma", "keywords:existence"],
        "kwargs": [{}, {"keywords": ["x"], "n": None}],
    }
    assert verifier("x", Task("t1", "Do it.", gold)).label == "right"
    assert verifier("x, y", Task("t1", "Do it.", gold)).parts == {
        "punctuation:no_comma": 0.0,
        "keywords:existence": 1.0,
    }
    assert verifier("x", Task("t1", "Do it.", "punctuation:no_comma")).label == "unknown"
    assert verifier("x", Task("t1", "Do it.", None)).label == "unknown"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("One. Two! Three?", 3), ("One", 1), ("", 0), ("...", 1), ("It is 3.5 m. Yes.", 2), ("Mr. Smith left.", 1),
        ("I met J. Smith. He left.", 2), ("1. First.\n2. Second.", 2), ('He said "no." Then left', 2),
        ("See e.g. this.", 1),
        ("Wait... what?!", 2), ("a.b.c", 1), ("Go to the U.S. now.", 1), ("Done (really.) Yes.", 2),
    ],
)  # fmt: skip
def test_sentences_are_counted(text: str, count: int) -> None:
    assert sentences(text) == count


def test_every_check_is_linear() -> None:
    hostile = [
        "<<" * 50_000,
        "*" * 100_000,
        "*a" * 50_000,
        "[" * 100_000,
        "A. " * 33_000,
        " " * 100_000,
        "a.)" * 33_000,
    ]
    hostile += ["-" * 100_000, "Section" * 14_000, "***" * 33_000, '"' * 100_000, "\n" * 100_000, "1." * 50_000]
    for name, parameters, _, _ in EACH:
        for text in hostile:
            began = time.process_time()
            judged(text, (name, parameters))
            assert time.process_time() - began < 0.5, (name, text[:9])

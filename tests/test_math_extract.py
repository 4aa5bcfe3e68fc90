"""Where the answer stands in a text: marks, thoughts, phrases, bold, prose; and what is no answer."""

from __future__ import annotations

from typing import get_args

import pytest

from rlvr.records import Task
from rlvr.verify.box import LastBox
from rlvr.verify.math.extract import Mode, extract
from rlvr.verify.math_answer import Math
from rlvr.verify.spec import verifier_from


def label(verifier: Math, text: str, gold: str) -> str:
    return verifier(text, Task("t1", "What is it?", gold)).label


@pytest.mark.parametrize(
    ("text", "answer", "where"),
    [
        ("So it is $\\boxed{\\frac{1}{2}}$.", "\\frac{1}{2}", "box"),
        ("\\fbox{42}", "42", "box"),
        ("\\\\boxed{42} and again \\\\boxed{42}", "42", "box"),  # escapes written twice
        ("I get \\boxed{4}. Wait, that is wrong. So \\boxed{6}.", "6", "box"),
        ("$\\boxed{3}$, $\\boxed{8}$", "3, 8", "box"),
        ("\\boxed{(2, 2)} \\quad \\text{and} \\quad \\boxed{(6, 2)}", "(2, 2), (6, 2)", "box"),
        ("\\(\\boxed{1}\\) and \\(\\boxed{-2}\\).", "1, -2", "box"),
        ("\\boxed{3} or \\boxed{8}", "3, 8", "box"),
        ("<answer>31</answer>", "31", "tag"),
        ("<answer> x = 7 </answer> That is all.", "x = 7", "tag"),
        ("<answer>7", "7", "tag"),  # where the closing tag stops the sampler
        ("<answer>so \\boxed{31}</answer>", "31", "box"),
        ("\\boxed{30}<answer>31</answer>", "31", "tag"),
        ("<answer>30</answer> no: \\boxed{31}", "31", "box"),
        ("8+9=17\n#### 17\nThat finishes the task. 3 more words.", "17", "marker"),
        ("#### 16\nno\n#### 17", "17", "marker"),
        ("<think>maybe \\boxed{5}</think> \\boxed{6}", "6", "box"),
    ],
)
@pytest.mark.parametrize("mode", ["strict", "flexible"])
def test_the_last_mark_holds_the_answer(mode: Mode, text: str, answer: str, where: str) -> None:
    assert extract(text, mode) == (answer, "", where)


@pytest.mark.parametrize("text", ["42", " 42\n", "$x = 42$", "\\frac{1}{2}", "no real solution", "Tuesday", "(1, 2)"])
def test_without_a_mark_a_strict_answer_is_all_of_the_text(text: str) -> None:
    assert extract(text, "strict") == (text.strip(), "", "whole text")
    assert extract(f"I think it is {text}", "strict").fault == "no_answer"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("The answer is 11.", "no_answer"),
        ("<think>maybe \\boxed{5}</think> I could not finish.", "no_answer"),
        ("<think>it is \\boxed{5}", "no_answer"),  # a thought that does not end
        ("\\boxed{5", "unparsable"),
        ("\\boxed{}", "no_answer"),
        ("#### ", "no_answer"),
        ("<answer></answer>", "no_answer"),
        ("", "no_answer"),
    ],
)
def test_without_a_marked_answer_there_is_none(text: str, fault: str) -> None:
    for mode in ("strict", "last_box") if "boxed" in text else ("strict",):
        assert extract(text, mode)[:2] == (None, fault)  # type: ignore[arg-type]


def test_each_mode_looks_in_its_own_place() -> None:
    text = "<think>\\boxed{1}</think> It is \\boxed{2}.\n#### 3\n<answer>4</answer>\nThe answer is 5."
    found = {mode: extract(text, mode).answer for mode in get_args(Mode)}
    assert found["last_box"] == "2"
    assert found["hash_marker"] == "3"
    assert found["strict"] == found["flexible"] == found["after_think"] == "4"
    assert found["whole"] == text
    assert extract("It is \\boxed{2}.", "after_think").fault == "no_answer"
    assert (
        extract("The answer is 5.", "last_box").fault == extract("The answer is 5.", "hash_marker").fault == "no_answer"
    )


# Prose


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        # after "the answer is" and its like
        ("The answer is 11.", "11"), ("The answer is: **73**", "73"), ("Answer: x = 7", "7"), ("answer: 3/4.", "0.75"),
        ("So the final answer is $\\frac{1}{2}$.", "0.5"), ("The answer is 5 because 3+2=5, and not 7.", "5"),
        ("The answer is (C).", "C"), ("The answer is Tuesday.", "Tuesday"), ("The answer is 1,234.", "1234"),
        ("Thus x = 4.\n\nTherefore, the answer is:\n\n$$x = 5$$", "5"), ("**Final Answer**\n\n42", "42"),
        ("The final answer is \\(\\frac{3}{4}\\).", "3/4"), ("The result is approximately 3.14.", "3.14"),
        ("Final Answer: The final answer is $28 \\%$. I hope it is correct.", "28\\%"), ("Answer $ 9 $", "9"),
        ("The answer to the question is 17.", "17"), ("The answer for part b is $\\pi$.", "\\pi"),
        ("The solution is $x \\geq 5$.", "x >= 5"), ("Solutions: $x=1$, $x=2$.", "1, 2"),
        ("Final Answer: The largest $n$ is 34.", "34"), ("The answers are 3 and 8.", "3, 8"),
        ("The answer is 5. No, wait: the answer is 6.", "6"),
        # inside a mark
        ("<answer>It is 5.</answer>", "5"), ("#### The answer is 42", "42"),
        # bold
        ("So we get **73**.", "73"), ("**7** is what is left of 10.", "7"), ("It is **x = 5**, not 6.", "5"),
        # the last formula or number
        ("He has 18 apples in total.", "18"), ("It costs $29.00 in all.", "29"), ("Total: 18", "18"),
        ("The total is 36, in all, so she keeps it.", "36"), ("the sum equals 1/2 + 1/3 = 5/6", "5/6"),
        ("The limit is $4 - \\frac{4}{\\mathrm{e}}$", "4-4/e"), ("The line is 2x + 5y + 9 = 0", "2x+5y+9=0"),
        ("It takes 2 hours 30 minutes.", "150 minutes"), ("The speed is $60$ km/h.", "60 km/h"),
        ("The area is $12\\text{ cm}^2$.", "12"), ("So the sum is \\[ 9 \\].", "9"), ("roots $x=3$ and $x=8$.", "3,8"),
        ("The roots are 3 and 8.", "3, 8"), ("First 3, then 5 apples", "5"), ("In 2005 there were 36 people", "36"),
        ("Step 2: 2/3", "2/3"), ("f(3) = 12", "12"), ("We get 42 (forty-two).", "42"), ("costs — 36", "36"),
        ("So it's 12:00 noon", "12:00"), ("She has $5 and then $36 left.", "36"), ("x ≈ 3.14.", "3.14"),
        ("Let me see: 7*6 = 42", "42"), ("Hence, it's -5.", "-5"), ("I walked 3 km.", "3000 m"), ("is 2 2/3", "8/3"),
        ("therefore x = sqrt(2)/2", "\\frac{\\sqrt2}{2}"), ("which is 10^3", "1000"), ("it is 5 \\pi", "5\\pi"),
    ],
)  # fmt: skip
def test_a_flexible_reader_finds_the_answer_in_prose(text: str, gold: str) -> None:
    assert label(Math(), text, gold) == "right"


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("The limit is $4 + \\frac{4}{\\mathrm{e}}$", "4"), ("The roots are 3 and 8.", "8"), ("is 2 2/3", "2"),
        ("<answer>5 is wrong</answer>", "5"), ("<answer>4 + \\unknown{5}</answer>", "5"), ("#### 5 or 6", "5"),
        ("The answer is not 5.", "5"), ("It is not 5.", "5"), ("I think 42 is wrong", "42"), ("10^3", "3"), ("2x", "2"),
        ("it is 5 \\pi", "5"), ("4 + 5", "5"), ("f(3)", "3"), ("(2, 3)", "3"), ("12:00", "0"), ("5-7", "7"),
        ("The answer is either 5 or 6.", "5"), ("I do not know, sorry.", "5"), ("The solution is $x \\leq 5$", "x>=5"),
        ("<think>The answer is 5</think> The answer is 6.", "5"), ("<think>The answer is 5", "5"), ("40%", "40"),
        ("The line is 2x + 5y + 9 = 0", "0"), ("The answer is \\boxed{7}. No wait, the answer is 8.", "8"),
    ],
)  # fmt: skip
def test_a_piece_of_the_answer_is_no_answer(text: str, gold: str) -> None:
    assert label(Math(), text, gold) == "wrong"


def test_only_the_end_of_a_long_text_is_searched_for_prose_but_all_of_it_for_marks() -> None:
    chatter = "And so on, and so forth. " * 40_000  # a million characters
    assert label(Math(), f"\\boxed{{5}} {chatter}", "5") == "right"
    assert label(Math(), f"#### 5\n{chatter}", "5") == "right"
    assert label(Math(), f"{chatter} The answer is 5.", "5") == "right"
    assert label(Math(), f"The answer is 5. {chatter}", "5") == "wrong"


def test_a_long_boxed_list_is_not_cut() -> None:
    gold = "(" + ",".join(map(str, range(1000))) + ")"
    assert label(Math(), f"So it is $\\boxed{{{gold}}}$.", gold) == "right"
    assert label(Math(), f"So it is $\\boxed{{{gold.replace(',', ', ')}}}$.", gold) == "right"
    assert label(Math(), f"So it is $\\boxed{{{gold.replace('999', '998')}}}$.", gold) == "unknown"  # beyond the limits
    shorter = "(" + ",".join(map(str, range(300))) + ")"
    assert label(Math(), f"So it is $\\boxed{{{shorter.replace(',', ', ')}}}$.", shorter) == "right"
    assert label(Math(), f"So it is $\\boxed{{{shorter.replace('299', '298')}}}$.", shorter) == "wrong"


def test_math_serves_inside_another_verifier() -> None:
    verifier = verifier_from("last_box(inner=math(mode='whole'))")
    assert verifier == LastBox(Math("whole"))
    task = Task("t1", "What is it?", "\\frac12")
    assert verifier("\\boxed{0.5}", task).label == "right"
    assert verifier("\\boxed{it is 0.5}", task).label == "wrong"

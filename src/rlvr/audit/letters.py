"""Texts that choose a letter of a multiple-choice question, and texts that choose another or none."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

OPTIONS = "ABCDE"


class Problem(NamedTuple):
    """A question with five options; `gold` is the reference as data sets write it."""

    gold: str
    question: str
    texts: tuple[str, str, str, str, str]

    @property
    def letter(self) -> str:
        return self.gold.strip(" ().").upper()


# Ours. Some options hold a letter that could be taken for a choice.
PROBLEMS = (
    Problem("A", "Which river is the longest?", ("the Nile", "the Niger", "the Congo", "the Orange", "the Volta")),
    Problem("B", "What is 17 + 25?", ("32", "42", "43", "52", "24")),
    Problem("C", "Which vitamin do lemons hold most of?", ("vitamin D", "vitamin K", "vitamin C", "vitamin B", "none")),
    Problem("D", "Which animal lays eggs?", ("a cat", "a dog", "a horse", "a hen", "a cow")),
    Problem("E", "Which of these is a gas at room temperature?", ("iron", "water", "mercury", "salt", "oxygen")),
    Problem("(A)", "What is the derivative of x^2?", ("2x", "x", "x^2/2", "2", "x^3/3")),
    Problem("(B)", "Which planet is the largest?", ("Mars", "Jupiter", "Venus", "Saturn", "Earth")),
    Problem("(C)", "Which is a prime?", ("21", "27", "31", "33", "39")),
    Problem("(D)", "Who wrote Faust?", ("Schiller", "Kleist", "Heine", "Goethe", "Mann")),
    Problem("(E)", "Which sum is odd?", ("1 + 1", "3 + 5", "2 + 2", "7 + 9", "4 + 5")),
    Problem("A.", "Which is a mammal?", ("a whale", "a shark", "a trout", "a frog", "a wasp")),
    Problem("B.", "What is the square root of 144?", ("11", "12", "13", "14", "72")),
    Problem("C.", "Which word is a verb?", ("house", "green", "to run", "slowly", "under")),
    Problem("D)", "Which grade is the worst?", ("an A", "a B", "a C", "a D", "none of them")),
    Problem(" E ", "What is 5 factorial?", ("20", "25", "60", "100", "120")),
    Problem("a", "What is the capital of France?", ("Paris", "Lyon", "Nice", "Lille", "Metz")),
    Problem("b", "Which is not a polygon?", ("a square", "a circle", "a triangle", "a hexagon", "a kite")),
    Problem("(c)", "What does a thermometer measure?", ("mass", "time", "temperature", "length", "charge")),
    Problem("d", "Is a virus alive?", ("yes", "no", "always", "it depends, I think", "never")),
    Problem("e", "What is 10^3?", ("3", "30", "100", "300", "1000")),
)  # fmt: skip

# category, rewrite, template: {L} the letter, {l} in lower case, {o} another letter, {t} and {u} what these two say,
# {q} the question, {all} every option on a line
_SAME = (
    ("identity", "the letter", "{L}"),
    ("whitespace_punct", "full stop", "{L}."),
    ("whitespace_punct", "newline", "{L}\n"),
    ("whitespace_punct", "spaces", "  {L} "),
    ("whitespace_punct", "colon before", "Answer:{L}"),
    ("brackets", "( )", "({L})"),
    ("brackets", "one bracket", "{L})"),
    ("brackets", "[ ]", "[{L}]"),
    ("case", "lower case alone", "{l}"),
    ("case", "lower case in brackets", "({l})"),
    ("delimiters", "boxed", "\\boxed{{{L}}}"),
    ("delimiters", "boxed text", "\\boxed{{\\text{{{L}}}}}"),
    ("delimiters", "boxed in brackets", "\\boxed{{\\text{{({L})}}}}"),
    ("delimiters", "dollars", "${L}$"),
    ("delimiters", "bold", "**{L}**"),
    ("phrase", "Answer: L", "Answer: {L}"),
    ("phrase", "Answer: (L)", "Answer: ({L})"),
    ("phrase", "The answer is L.", "The answer is {L}."),
    ("phrase", "The correct answer is (L).", "The correct answer is ({L})."),
    ("phrase", "The correct option is L", "We compare them all. The correct option is {L}"),
    ("phrase", "bold mark", "**Answer:** {L}"),
    ("phrase", "bold letter", "The answer is **{L}**."),
    ("phrase", "bold letter and bracket", "The answer is **({L})**"),
    ("phrase", "Therefore ... option L", "Therefore the answer is option {L}."),
    ("phrase", "with what it says", "The answer is ({L}) forty-two."),
    ("phrase", "letter and colon", "Answer: {L}: forty-two"),
    ("retracted", "another one first", "The answer is {o}. Wait, that forgets the sign. The answer is {L}."),
    ("retracted", "another one boxed first", "\\boxed{{{o}}} is wrong. \\boxed{{{L}}}"),
    ("discussed", "others ruled out", "({o}) is wrong because it is negative. The answer is {L}."),
    ("discussed", "an article", "A letter is a sign, I think. The answer is {L}."),
    ("lines", "last line", "Some thoughts about it.\n\n{L}"),
    ("lines", "last line with bracket", "Some thoughts about it.\n\n({L})"),
    ("lines", "#### mark", "Some thoughts about it.\n#### {L}"),
    ("lines", "mark on a line of its own", "**Final Answer**\n\nAnswer:\n{L}"),
    ("text", "with its text", "Answer: ({L}) {t}"),
    ("text", "text and full stop", "The answer is {L}. {t}."),
    ("text", "bold with its text", "The correct answer is **{L}) {t}**."),
    ("text", "in a box", "\\boxed{{{L}}}: {t}"),
    ("text", "text, then letter", "It is {t}. So the answer is ({L})."),
    ("listed", "all options first", "{q}\n{all}\n\nThe answer is {L}."),
    ("listed", "all options first, box", "{q}\n{all}\n\n\\boxed{{{L}}}"),
    ("listed", "one by one", "({o}) {u}: no.\n({L}) {t}: yes.\n\nTherefore the answer is ({L})."),
    ("thoughts", "another one there", "<think>Is it {u}? Then the answer is {o}. No.</think>The answer is {L}."),
)
_OTHER = (
    ("other_letter", "alone", "{o}"),
    ("other_letter", "phrase", "The answer is {o}."),
    ("other_letter", "box", "\\boxed{{{o}}}"),
    ("retracted", "taken back", "The answer is {L}. Wait, that forgets the sign. The answer is {o}."),
    ("retracted", "boxed and taken back", "\\boxed{{{L}}} is wrong. \\boxed{{{o}}}"),
    ("hedged", "or", "The answer is {L} or {o}."),
    ("hedged", "slash", "Answer: {L}/{o}"),
    ("hedged", "and", "The answer is {L} and {o}."),
    ("hedged", "all of them", "A, B, C, D, E"),
    ("hedged", "boxed or", "\\boxed{{{L} or {o}}}"),
    ("negated", "not", "The answer is not {L}."),
    ("negated", "wrong", "({L}) is wrong."),
    ("negated", "wrong answer", "The wrong answer is {L}; the answer is {o}."),
    ("empty", "nothing", ""),
    ("empty", "space", " \n"),
    ("empty", "no letter", "I do not know."),
    ("word", "a word that begins so", "The answer is {L}nything"),
    ("word", "outside the options", "The answer is Z."),
    ("text", "another letter with its text", "The answer is ({o}) {u}."),
    ("text", "box with another", "{t}? No: \\boxed{{{o}}}"),
    ("listed", "the options alone", "{q}\n{all}"),
    ("listed", "all options, then another", "{q}\n{all}\n\nThe answer is {o}."),
    ("hedged", "either", "The answer is either {L} or {o}."),
    ("hedged", "brackets", "({L}) or ({o})"),
    ("hedged", "with texts", "It is {L}) {t} or {o}) {u}."),
    ("negated", "none", "None of these options is right."),
    ("negated", "short", "The answer isn't {L}."),
    ("thoughts", "the right one there only", "<think>The answer is {L}.</think>The answer is {o}."),
)


class Choice(NamedTuple):
    problem: str
    gold: str
    category: str
    rewrite: str
    text: str
    equal: bool


def questions(seed: int) -> Iterator[Choice]:
    """Every template at every problem. A text is right by construction: what it says last chooses that letter alone."""
    r = random.Random(f"{seed}:letters")
    for problem in PROBLEMS:
        letter, said = problem.letter, dict(zip(OPTIONS, problem.texts))
        words = {"L": letter, "l": letter.lower(), "t": said[letter], "q": problem.question}
        words["all"] = "\n".join(f"({option}) {text}" for option, text in said.items())
        for table, equal in ((_SAME, True), (_OTHER, False)):
            for category, rewrite, template in table:
                other = r.choice([o for o in OPTIONS if o != letter])
                text = template.format(**words, o=other, u=said[other])
                yield Choice(problem.question, problem.gold, category, rewrite, text, equal)
    for name, text in _large():
        yield Choice("", "B", "large", name, text, False)


def _large() -> Iterator[tuple[str, str]]:
    for n in (10_000, 1_000_000):
        for piece in (
            "A ", "answer is ", "\\boxed{", "(", "(A) or ", "A.\n", "A, B, ", "#\n", "** ", "\n", "Answer: A or ",
            "the correct option ", "\u0130",
        ):  # fmt: skip
            yield f"{piece!r}, {n} times", piece * min(n, 3_000_000 // len(piece))

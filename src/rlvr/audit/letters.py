"""Texts that choose a letter of a multiple-choice question, and texts that choose another or none."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

OPTIONS = "ABCDE"
GOLDS = ("A", "B", "C", "D", "E", "(B)", "C.")

# category, rewrite, template: {L} the letter, {l} in lower case, {o} another letter
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
)


class Choice(NamedTuple):
    gold: str
    category: str
    rewrite: str
    text: str
    equal: bool


def questions(seed: int) -> Iterator[Choice]:
    """Every template at every gold. A text is right by construction: its last statement chooses that letter alone."""
    r = random.Random(f"{seed}:letters")
    for gold in GOLDS:
        letter = gold.strip("().")
        for table, equal in ((_SAME, True), (_OTHER, False)):
            for category, rewrite, template in table:
                other = r.choice([o for o in OPTIONS if o != letter])
                yield Choice(gold, category, rewrite, template.format(L=letter, l=letter.lower(), o=other), equal)
    for n in (10_000, 300_000):
        for text in (f"{'A ' * n}", f"{'(' * n}A", f"{'answer is ' * n}", "\\boxed{" * n):
            yield Choice("B", "large", f"{text[:10]!r}, {n} times", text, False)

"""Where in a text does the answer stand?

The last mark wins: a box, an answer tag, `####`. Without one, and only if asked (`flexible`), the text behind the last
"the answer is", what is set in bold last, or the last formula or number. What was found is never cut down further: a
formula that cannot be read is not an answer, and a number inside it is not one either.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from rlvr.verify.box import last_boxed
from rlvr.verify.math.answers import Answer, read
from rlvr.verify.math.limits import LONGEST, Fault
from rlvr.verify.math.nodes import Text
from rlvr.verify.math.prose import first_formula, last_formula
from rlvr.verify.verifier import LONGEST_ANSWER

Mode = Literal["strict", "flexible", "last_box", "hash_marker", "after_think", "whole"]

WINDOW = 6000  # characters at the end in which prose is searched; marks are found anywhere
LONGEST_BOX = 8_000  # characters
_BEFORE_BOX = 3_000  # characters before the last box in which others of one list may stand
_SHORT = 200  # characters of a text that may be nothing but an answer
_MOST_TRIES = 30  # of the words "answer", "result" or "solution" are looked at
_MOST_WORDS = 4  # of an answer in words, such as "no real solution"
_THOUGHTS = (("<think>", "</think>"), ("<thinking>", "</thinking>"))
_TAGS = (("<answer>", "</answer>"), ("<final_answer>", "</final_answer>"))
_SAYS = re.compile(
    r"(?:answers?|result|solutions?)\b(?:\s(?:to|for|of)\s[^.:=\n$]{0,80}?)?[*_]{0,3}"
    r"(?:\s*(?:is|are|=|:|should be|must be|will be|equals)(?![A-Za-z])|[ \t]*\n|[ \t]*(?=\$|\\[(\[]))[\s*_:]*",
    re.IGNORECASE,
)
_FILLERS = re.compile(
    r"(?:(?:exactly|simply|just|therefore|thus|then|now|approximately|about|roughly|equal to|given by)\b[\s,:]*)*",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"\n|[.!?](?=\s|$)|(?<=[a-z]);")
_EMPHASIS = re.compile(r"(?<![\w)\]])\*\*|\*\*(?![\w(\[])")


class Extracted(NamedTuple):
    """`answer` is None where there is none, and `fault` then says why: "no_answer", "unparsable", "over_limit"."""

    answer: str | None
    fault: str
    where: str  # "box", "tag", "marker", "whole text", "phrase", "bold", "last formula"


def extract(text: str, mode: Mode) -> Extracted:
    """The answer in a text. Only what follows the last </think> counts; a thought that does not end holds no answer."""
    if mode == "whole":
        return _all_of(text)
    text, thought = _after_thoughts(text)
    if mode == "after_think" and not thought:
        return Extracted(None, "no_answer", "no text behind </think>")
    if mode == "last_box":
        return _box(text, _last_box(text))
    if mode == "hash_marker":
        return _line_behind(text, text.rfind("####"))
    marked = _marked(text)
    if mode == "strict":
        return marked or _whole(text) or Extracted(None, "no_answer", "nothing is marked as the answer")
    if marked is None:
        return _unmarked(text.strip())
    if marked.answer is None or marked.where == "box" or _whole(marked.answer):
        return marked
    inside = _unmarked(marked.answer)  # <answer>It is 5.</answer>
    return marked if inside.answer is None else inside._replace(where=f"{marked.where}, {inside.where}")


def _all_of(text: str) -> Extracted:
    text = text.strip()
    if len(text) > LONGEST_ANSWER:
        return Extracted(None, "over_limit", "whole text")
    return Extracted(text, "", "whole text") if text else Extracted(None, "no_answer", "whole text")


def _after_thoughts(text: str) -> tuple[str, bool]:
    """(the text behind the last thought, whether there was one)."""
    for opened, closed in _THOUGHTS:
        end = text.rfind(closed)
        if end >= 0:
            return text[end + len(closed) :], True
        if opened in text:
            return "", True
    return text, False


# Marks


def _last_box(text: str) -> int:
    return max(text.rfind("\\boxed"), text.rfind("\\fbox"))


def _box(text: str, at: int) -> Extracted:
    """What the last box holds, which opens here; at -1 there is none."""
    end = at + LONGEST_BOX
    content, fault = last_boxed(text[max(0, at - _BEFORE_BOX) : end]) if at >= 0 else (None, "no_answer")
    if fault == "unparsable" and end < len(text):
        fault = "over_limit"
    if content is not None and not content.strip():
        content, fault = None, "no_answer"
    return Extracted(content, fault, "box")


def _line_behind(text: str, at: int) -> Extracted:
    """The rest of the line behind a #### that stands here; at -1 there is none."""
    if at < 0:
        return Extracted(None, "no_answer", "marker")
    end = text.find("\n", at)
    return _all_of(text[at + 4 : end if end >= 0 else len(text)])._replace(where="marker")


def _marked(text: str) -> Extracted | None:
    """What the last mark holds; None where nothing is marked."""
    box = _last_box(text)
    marker = text.rfind("####")
    tag, opened, closed = max((text.rfind(opened), opened, closed) for opened, closed in _TAGS)
    last = max(box, marker, tag)
    if last < 0:
        return None
    if last == box:
        return _box(text, box)
    if last == marker:
        return _line_behind(text, marker)
    end = text.find(closed, tag)
    inside = text[tag + len(opened) : end if end >= 0 else len(text)]
    return _all_of(inside)._replace(where="tag")


# Without a mark


def _unmarked(text: str) -> Extracted:
    """The answer in a text that marks none; of a text that is nothing but an answer, all of it."""
    whole = _whole(text)
    if whole is not None:
        return whole
    tail = text[-WINDOW:]
    tail = _EMPHASIS.sub("", tail) if "**" in tail else tail
    phrase = _phrase_end(tail)
    if phrase is not None:
        answer = _behind_phrase(tail[phrase:])
        if answer:
            return Extracted(answer, "", "phrase")
    bold = _bold(text[-WINDOW:])
    if bold:
        return Extracted(bold, "", "bold")
    formula = last_formula(tail)
    return Extracted(formula, "", "last formula") if formula else Extracted(None, "no_answer", "no number or formula")


def _whole(text: str) -> Extracted | None:
    """A short text that is nothing but an answer; None for any other."""
    text = text.strip()
    whole = _readable(text) if 0 < len(text) <= _SHORT else None
    if whole is not None and (_is_formula(whole) or _is_wordy(text, whole)):
        return Extracted(text, "", "whole text")
    return None


def _readable(text: str) -> Answer | None:
    try:
        return read(text) if len(text) <= LONGEST else None
    except Fault:
        return None


def _is_formula(answer: Answer) -> bool:
    return not isinstance(answer.node, Text)


def _is_wordy(text: str, answer: Answer) -> bool:
    """Whether a text is an answer in a few words, such as `no real solution`, and not a sentence about it."""
    short = isinstance(answer.node, Text) and len(answer.node.words.split()) <= _MOST_WORDS
    return short and not any(c.isdigit() for c in text) and not _SAYS.search(text)


def _phrase_end(text: str) -> int | None:
    """Where the words behind the last "the answer is" or its like begin; None where nobody says so."""
    low = text.lower()
    if len(low) != len(text):  # a letter whose lower case is two
        low = text
    at = {word: low.rfind(word) for word in ("answer", "result", "solution")}
    for _ in range(_MOST_TRIES):
        start = max(at.values())
        found = _SAYS.match(text, start) if start >= 0 else None
        if found:
            return found.end()
        for word, position in at.items():
            if position == start:
                at[word] = low.rfind(word, 0, start)
    return None


def _behind_phrase(rest: str) -> str:
    """The answer at the beginning of what follows "the answer is": the sentence, else the formula that begins it."""
    rest = rest[_FILLERS.match(rest).end() :][:1000].lstrip(" \t\n:")  # type: ignore[union-attr]
    end = _sentence(rest)
    sentence = rest[:end].strip()
    whole = _readable(sentence)
    if whole is not None and (_is_formula(whole) or _is_wordy(sentence, whole)):
        return sentence
    return first_formula(rest[: end + 1]) or last_formula(rest[: end + 1]) or sentence[:_SHORT]


def _sentence(text: str) -> int:
    """Where the first sentence ends; a line break inside display mathematics does not end it."""
    start = 0
    for opened, closed in (("$$", "$$"), ("\\[", "\\]")):
        if text.startswith(opened):
            start = text.find(closed, len(opened)) + len(closed)
    found = _SENTENCE_END.search(text, max(start, 0))
    return found.start() if found else len(text)


def _bold(text: str) -> str:
    """What is set in bold last, where it is an answer by itself."""
    end = text.rfind("**")
    start = text.rfind("**", 0, end) if end > 0 else -1
    if start < 0 or end - start > _SHORT:
        return ""
    content = text[start + 2 : end].strip()
    answer = _readable(content)
    return content if answer is not None and _is_formula(answer) else ""

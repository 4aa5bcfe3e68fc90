"""Formulas among words: the one that begins a text, and the last one in it."""

from __future__ import annotations

import re

from rlvr.verify.math.lexicon import FUNCTIONS, GREEK, SHORT_WORDS
from rlvr.verify.math.units import SCALES, UNITS

_DELIMITERS = (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$"))
_BETWEEN = re.compile(r"(?:\s|,|;|and\b|or\b|\\quad){0,12}+")
_WORD = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{4,}")
_LETTERS = re.compile(r"[A-Za-z]+")
_SPACES = re.compile(r"\S+")
_MACRO_GROUP = re.compile(r"\\[A-Za-z]+|\{[^{}]*\}")
_KNOWN = FUNCTIONS | GREEK | {"pi", "infinity", "and", "or", "infty"}
_ARTICLES = frozenset(["a", "A", "I"])
_MEASURES = frozenset([*UNITS, *SCALES, "percent", "degrees", "degree", "%", "\\%", "am", "pm", "a.m", "p.m"]) - {"in"}
_CLOSING = "\"'`.,;:!?"
_DENIAL = re.compile(r"\b(?:not|never|cannot|wrong|incorrect|false)\b|n't\b", re.IGNORECASE)
_LONGEST_RUN = 60  # words


def first_formula(text: str) -> str:
    """The formula or number that the text begins with; "" where it begins with a word."""
    text = text.lstrip()
    for opened, closed in _DELIMITERS:
        if text.startswith(opened):
            return _segments_from(text, opened, closed)
    words = [(m.start(), m.end()) for m in _SPACES.finditer(text[:1000])]
    end = 0
    for i, (start, stop) in enumerate(words[:_LONGEST_RUN]):
        word = text[start:stop]
        if not _is_mathematical(word):
            if i and word.strip(_CLOSING) in _MEASURES:
                end = stop
            break
        end = stop
        if word[-1] in ".!?:;" and not word[:-1].endswith("."):
            break
    return _trimmed(text[:end])


def _segments_from(text: str, opened: str, closed: str) -> str:
    """$3$ and $8$ at the beginning of a text, joined."""
    parts: list[str] = []
    at = 0
    while True:
        end = text.find(closed, at + len(opened))
        if end < 0:
            return ", ".join(parts)
        parts.append(text[at + len(opened) : end].strip())
        after = _BETWEEN.match(text, end + len(closed))
        if after is None or not text.startswith(opened, after.end()):
            break
        at = after.end()
    rest = text[end + len(closed) :].lstrip()
    following = rest.split(None, 1)[0] if rest else ""
    if len(parts) == 1 and following.strip(_CLOSING) in _MEASURES:
        return f"{parts[0]} {following.strip(_CLOSING)}"
    return ", ".join(parts)


def last_formula(text: str) -> str:
    """The last formula or number of a text, whole: what an operator or a comma ties to it belongs to it.

    "" where there is none, or its sentence says "not", "wrong" or the like.
    """
    start, end, formula = _last(text)
    before = max(text.rfind(mark, 0, start) for mark in (". ", "\n", "! ", "? ")) + 1
    return "" if _DENIAL.search(text, before, end) or _DENIAL.search(text[end : end + 40].split(".")[0]) else formula


def _last(text: str) -> tuple[int, int, str]:
    """(start, end, content)"""
    digit = max(text.rfind(d) for d in "0123456789")
    segment = _last_segment(text)
    if segment is not None and segment[1] > digit:
        return segment
    if digit < 0:
        return 0, 0, ""
    words = [(m.start(), m.end()) for m in _SPACES.finditer(text, max(0, digit - 2000), digit + 200)]
    at = max(i for i, (start, _) in enumerate(words) if start <= digit)
    first = last = at

    def gap(i: int) -> str:
        return text[words[i][1] : words[i + 1][0]]

    while last + 1 < len(words) and not _ends_sentence(text[slice(*words[last])]) and "\n" not in gap(last):
        after, measured = text[slice(*words[last + 1])], text[words[last][1] - 1] not in ",;"
        if not (_is_mathematical(after) or (measured and after.strip(_CLOSING) in _MEASURES)):
            break
        last += 1
    ends_measured = text[slice(*words[last])].strip(_CLOSING) in _MEASURES
    while first and last - first < _LONGEST_RUN and "\n" not in gap(first - 1):
        before = text[slice(*words[first - 1])]
        if _ends_sentence(before) or not (_is_mathematical(before) or (ends_measured and before in _MEASURES)):
            break
        first -= 1
    start, end = words[first][0], words[last][1]
    run = [text[slice(*word)] for word in words[first : last + 1]]
    while len(run) > 1 and (run[0] in _ARTICLES or run[0] in ("and", "or", ",")) and run[1][0] not in "+-*/=<>^":
        run = run[1:]
    while len(run) > 1 and run[-1].strip(_CLOSING) in ("and", "or", "a", "I", ""):
        run = run[:-1]
    return start, end, _trimmed(" ".join(run))


def _last_segment(text: str) -> tuple[int, int, str] | None:
    """(start, end, content) of the last piece of delimited mathematics, with those that commas tie to it."""
    found: tuple[int, int, str] | None = None
    for opened, closed in _DELIMITERS:
        end = text.rfind(closed)
        start = text.rfind(opened, 0, end) if end > 0 else -1
        if start < 0 or (found is not None and end + len(closed) <= found[1]):
            continue
        content = text[start + len(opened) : end]
        bare = _MACRO_GROUP.sub(" ", content)
        if content.strip() and not any(w.lower() not in _KNOWN and w not in UNITS for w in _WORD.findall(bare)):
            found = (start, end + len(closed), content)
    if found is None:
        return None
    start, end, content = found
    parts = [content.strip()]
    opened, closed = next(d for d in _DELIMITERS if text.startswith(d[0], start))
    while len(parts) < _LONGEST_RUN:
        before = text.rfind(closed, 0, start)
        if before < 0 or not _BETWEEN.fullmatch(text, before + len(closed), start):
            break
        inside = text.rfind(opened, 0, before)
        if inside < 0:
            break
        parts.append(text[inside + len(opened) : before].strip())
        start = inside
    joined = ", ".join(reversed(parts))
    following = text[end:].split(None, 1)[0].strip(_CLOSING) if text[end:].strip() else ""
    return start, end, f"{joined} {following}" if following in _MEASURES and len(parts) == 1 else joined


def _is_mathematical(word: str) -> bool:
    """Whether a word can be part of a formula: digits, operators, macros, single letters, names of functions."""
    bare = word.strip(_CLOSING)
    if not bare or bare in _ARTICLES or bare in "—–":
        return False
    if "\\" in bare or not bare.isascii():
        return True
    tied = len(bare) > 2  # to something else, as "xy" is in 2xy
    return all(
        len(run) < 2
        or run in _KNOWN
        or (len(run) == 2 and tied and run not in UNITS and run.lower() not in SHORT_WORDS)
        for run in _LETTERS.findall(bare)
    )


def _ends_sentence(word: str) -> bool:
    return word[-1] in ".!?;" or (word[-1] == ":" and len(word) > 1)


def _trimmed(text: str) -> str:
    text = text.strip().strip("\"'`")
    while text and text[-1] in ".,;:?" + "!" * (not re.search(r"[0-9n)]!$", text)):
        text = text[:-1].rstrip()
    return text.lstrip(",;: ")

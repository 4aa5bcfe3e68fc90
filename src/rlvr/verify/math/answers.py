"""From the text of an answer to what it is: a number, a list, an interval, a labelled value, a word ..."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.verify.math.lexer import normal_form, tokens
from rlvr.verify.math.lexicon import Token
from rlvr.verify.math.limits import LARGEST_LIST, Fault, OverLimit
from rlvr.verify.math.literals import decimal
from rlvr.verify.math.nodes import (
    Either,
    Labelled,
    Many,
    Node,
    Num,
    Set,
    Sign,
    Text,
    Time,
    negate,
)
from rlvr.verify.math.parser import Parser
from rlvr.verify.math.relations import combined, settled
from rlvr.verify.math.units import DENIALS

_TIME = re.compile(
    r"([0-9]{1,2})(?::([0-5][0-9]))?(?::([0-5][0-9]))?\s*(?:\\text\{)?\s*([ap])?\.?\s?(m)?\.?\s*\}?", re.IGNORECASE
)
_GROUPED = re.compile(r"-?[1-9][0-9]{0,2}(?:,[0-9]{3})+")
_SCIENTIFIC = re.compile(r"-?[0-9]{1,20}[eE][+-][0-9]{1,3}")
_MACRO = re.compile(r"\\(?:[A-Za-z]+\*?|.)", re.DOTALL)
_LETTERS = re.compile(r"[A-Za-z]{2}")
_SETTING = frozenset(
    ["text", "textbf", "textit", "textrm", "mathrm", "mathbf", "mbox", "left", "right", "quad", "bf", "rm"]
)
_PUNCTUATION = frozenset(",;:(){}'") | {"{{", "}}"}
_UNPUNCTUATED = str.maketrans(dict.fromkeys(".,;:(){}'\"$", " "))
_LONGEST_LABEL = 6  # words before = or :
_CARDINALS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_EMPTY = frozenset(
    ["no solution", "no solutions", "no real solution", "no real solutions", "empty set", "the empty set"]
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What was read."""

    text: str  # in normal form
    node: Node
    tokens: tuple[Token, ...] = ()  # empty where the text was read without them


def read(text: str, thousands: bool = True, known: Answer | None = None) -> Answer:
    """What the whole text is; `thousands`: 1,234 is a number. `known` has been read: the same tokens mean the same.

    Raises Fault: "no_answer", "unparsable", "over_limit".
    """
    text = normal_form(text)
    if not text:
        raise Fault("no_answer")
    digits = text[1:] if text[0] == "-" else text
    if digits.isdigit() and digits.isascii() and len(digits) < 19:
        return Answer(text, Num(int(text)))
    time = _time(text)
    if time is not None:
        return Answer(text, time)
    try:
        found = tokens(text, thousands)
    except OverLimit:
        raise
    except Fault:
        if _is_prose(text):
            return Answer(text, Text(plain_words(text), text))
        raise
    if not found:
        raise Fault("no_answer")
    spelt = tuple(found)
    if known is not None and spelt == known.tokens:
        return Answer(text, known.node, spelt)
    return Answer(text, _statement(text, found, thousands), spelt)


def _time(text: str) -> Time | None:
    if text.startswith("\\text{") and text.endswith("}"):
        text = text[6:-1].strip()
    if ":" not in text and text[-1:] not in "mM.}":
        return None
    found = _TIME.fullmatch(text)
    if found is None or bool(found[4]) != bool(found[5]) or not (found[2] or found[4]) or int(found[1]) > 24:
        return None
    fields = tuple(int(found[i] or 0) for i in (1, 2, 3))
    return Time(fields, f"{found[4]}m".lower() if found[4] else "")


def _is_prose(text: str) -> bool:
    bare = _MACRO.sub(" ", text)
    return bool(_LETTERS.search(bare)) and not any(c.isdigit() or c in "=^_&" for c in bare)


def plain_words(text: str) -> str:
    """A text in lower case, one space between words, without punctuation and the macros that only set text."""
    text = _MACRO.sub(lambda m: " " if m[0][1:] in _SETTING or not m[0][1:].isalpha() else f" {m[0][1:]} ", text)
    return " ".join(text.casefold().translate(_UNPUNCTUATED).split()).rstrip("!? ")


def _words_of(found: Sequence[Token]) -> str:
    """As `plain_words`, of tokens: signs have one spelling there."""
    kept = [token.value or token.kind for token in found if token.kind not in _PUNCTUATION]
    return " ".join(kept).casefold().rstrip("! ")


def _statement(text: str, found: list[Token], thousands: bool) -> Node:
    first, second = found[0], found[1].kind if len(found) > 1 else ""
    if first.kind == "w" and (second == "w" or (len(first.value) > 1 and second not in ("/", "*", "^"))):
        return _words(text, found)
    if thousands and "," in text and _GROUPED.fullmatch(text):
        sign, items = text[0] == "-", text.lstrip("-").split(",")
        numbers: list[Node] = [Num(int(item)) for item in items]
        if sign:
            numbers[0] = negate(numbers[0])
        return Either((Num(int(text.replace(",", ""))), Many(tuple(numbers))))  # a number, or a list without spaces
    if len(found) > 1 and _SCIENTIFIC.fullmatch(text):
        return Either((decimal(text), _listed(found)))
    return _listed(found)


def _words(text: str, found: list[Token]) -> Node:
    """A text that begins with a word: `Tuesday`, or a label and its value: `Area = 5`."""
    for i, token in enumerate(found[: _LONGEST_LABEL + 1]):
        if token.value.lower() in DENIALS:
            break  # "not equal: 5"
        if token.kind in ("=", ":") and i + 1 < len(found):
            name = " ".join(t.value for t in found[:i]).casefold()
            return Labelled((name,), _listed(found[i + 1 :]))
        if token.kind not in ("w", "v", "f", "c"):
            break
    words = _words_of(found)
    if words in _CARDINALS:
        return Either((Num(_CARDINALS.index(words)), Text(words, text)))
    return Set(()) if words in _EMPTY else Text(words, text)


def _listed(found: Sequence[Token]) -> Node:
    """Statements with commas, semicolons, `and`, `or` between them; semicolons part more than commas do."""
    parser = Parser(found)
    groups: list[list[Node]] = [[]]
    joins: list[str] = []
    count = 0
    while True:
        groups[-1].append(settled(parser.relation()))
        count += 1
        if count > LARGEST_LIST:
            raise OverLimit(f"over {LARGEST_LIST} elements")
        kind = parser.kind
        if kind == "end of text":
            break
        if kind not in (",", ";", "and", "or"):
            raise Fault("unparsable", f"{parser.ahead(0).value or kind!r} is not expected here")
        parser.at += 1
        joins.append(kind)
        if kind in (",", ";") and parser.kind in ("and", "or"):
            joins[-1] = parser.kind
            parser.at += 1
        if kind == ";":
            groups.append([])
    node = combined([combined(group, joins) for group in groups], joins)
    if parser.both_signs:
        node = expanded(node)
    return node


def expanded(node: Node) -> Node:
    """With both signs written out where \\pm occurs."""
    if isinstance(node, Labelled):
        return node._replace(value=expanded(node.value))
    if isinstance(node, Many | Set):
        items: list[Node] = []
        for item in map(expanded, node.items):
            items += item.items if isinstance(item, Many) else (item,)
        return node._replace(items=tuple(items))
    if not _has_sign(node):
        return node
    return Many((_signed(node, 1), _signed(node, -1)))


def _has_sign(node: Any) -> bool:
    if isinstance(node, Sign):
        return True
    return isinstance(node, tuple) and any(_has_sign(part) for part in node)


def _signed(node: Any, sign: int) -> Any:
    if isinstance(node, Sign):
        return Num(node.value * sign)
    if not isinstance(node, tuple):
        return node
    parts = [_signed(part, sign) for part in node]
    return type(node)(*parts) if hasattr(node, "_fields") else tuple(parts)

"""The `last_box` verifier: the answer is what stands in the last \\boxed{...} or \\fbox{...}, wherever that is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rlvr.records import Task, Verdict
from rlvr.registry import register
from rlvr.verify.plain import Plain
from rlvr.verify.verifier import LONGEST_ANSWER, LONGEST_TEXT, Verifier, fingerprint, unknown, wrong

MOST_BOXES = 64  # joined into one list; ours: no honest answer comes near
DEEPEST = 8  # boxes that are nothing but a box

_OPEN = re.compile(r"\\(?:boxed|fbox)\s{0,4}\{")
_TOKEN = re.compile(  # a backslash that was written twice before a box escapes nothing
    r"\\(?:boxed|fbox)\s{0,4}\{|\\(?!\\(?:boxed|fbox)\s{0,4}\{).|[{}]", re.DOTALL
)
_FLAT = re.compile(  # most boxes: nothing escaped but the names of commands, braces at most in braces of the box
    r"\\(?:boxed|fbox)\s{0,4}\{((?:[^{}\\]|\\[A-Za-z]|\{(?:[^{}\\]|\\[A-Za-z])*+\})*+)\}"
)
_BETWEEN = re.compile(  # boxes parted by this alone are one list
    r"(?:[\s,;$]|\\q?quad|\\[,;()\[\]]|and\b|or\b|\\text\s?\{\s?(?:and|or)\s?\}){0,24}+"
)


def last_boxed(text: str) -> tuple[str | None, str]:
    """(content of the last box, "") or (None, "no_answer": there is no box, "unparsable": not closed, "over_limit").

    Braces are balanced, escaped ones do not count. A box inside a box gives the outer one's content, and a box that
    is nothing but a box is opened too. Boxes parted only by commas, semicolons, `and` or spaces are one list, joined
    by ", "; the same box again is no list. Boxes before, with prose between, are retracted: if the last one is not
    closed, there is no answer.
    """
    if len(text) > LONGEST_TEXT:
        return None, "over_limit"
    at = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    flat = _FLAT.match(text, at, at + LONGEST_ANSWER) if at >= 0 else None
    if flat and max(text.rfind("\\boxed", 0, at), text.rfind("\\fbox", 0, at)) < 0:
        return flat[1].strip(), ""  # the usual case; the rest of this finds the same
    boxes = _opened_backwards(text)
    last = next(boxes, None)
    if last is None:
        return None, "no_answer"
    outermost = _outermost(text, last[0])
    if outermost is None:
        return None, "over_limit" if len(text) - last[1] > LONGEST_ANSWER else "unparsable"
    start, inside, end = outermost
    contents = [text[inside:end]]
    for before, inside in boxes:
        if before >= start:
            continue
        close = _closing(text, inside, start)
        if close is None or not _BETWEEN.fullmatch(text, close + 1, start):
            break
        if len(contents) == MOST_BOXES or end - inside > LONGEST_ANSWER:
            return None, "over_limit"
        contents.append(text[inside:close])
        start = before
    opened: list[str] = []
    for content in reversed(contents):
        bare = _unbox(content)
        if bare is None:
            return None, "over_limit"
        opened.append(bare)
    return opened[0] if len(set(opened)) == 1 else ", ".join(opened), ""


def _opened_backwards(text: str) -> Iterator[tuple[int, int]]:
    """(start, start of content) of every box that opens, from the last to the first; one linear scan for each name."""
    at = {name: text.rfind(name) for name in ("\\boxed", "\\fbox")}
    while (start := max(at.values())) >= 0:
        found = _OPEN.match(text, start)
        if found:
            yield found.span()
        for name, position in at.items():
            if position == start:
                at[name] = text.rfind(name, 0, start)


def _closing(text: str, inside: int, before: int = LONGEST_TEXT) -> int | None:
    """Where the brace closes that opened just before `inside`: before `before`, within LONGEST_ANSWER characters."""
    depth = 1
    for token in _TOKEN.finditer(text, inside, min(before, inside + LONGEST_ANSWER + 1)):
        if token[0] == "}":
            depth -= 1
            if not depth:
                return token.start()
        elif token[0][-1] == "{" and token[0] != "\\{":
            depth += 1
    return None


def _outermost(text: str, start: int) -> tuple[int, int, int] | None:
    """(start, start of content, end) of the outermost closed box that holds the one at `start`, which may be itself."""
    since = max(0, start - LONGEST_ANSWER)
    if max(text.rfind("\\boxed", since, start), text.rfind("\\fbox", since, start)) < 0:
        since = start  # the usual case: nothing can be around it
    found = None
    opened: list[tuple[int, int] | None] = []
    around = 0  # open boxes that hold `start`
    for token in _TOKEN.finditer(text, since, start + LONGEST_ANSWER):
        word = token[0]
        if word == "}" and opened:
            box = opened.pop()
            if box is not None and box[0] <= start:
                around -= 1
                if token.start() > start and token.start() - box[1] <= LONGEST_ANSWER:
                    found = (*box, token.start())
        elif word[-1] == "{" and word != "\\{":
            box = token.span() if len(word) > 1 else None
            opened.append(box)
            around += box is not None and box[0] <= start
        if token.start() > start and not around:
            break
    return found


def _unbox(content: str) -> str | None:
    """The content without boxes that are all of it; None where they nest deeper than DEEPEST."""
    for _ in range(DEEPEST):
        content = content.strip()
        found = _OPEN.match(content)
        if found is None or _closing(content, found.end()) != len(content) - 1:
            return content
        content = content[found.end() : -1]
    return None


@register("verifier", "last_box")
@dataclass(frozen=True, slots=True)
class LastBox:
    """Right iff the inner verifier (default `plain`) accepts the content of the last \\boxed{...} or \\fbox{...}.

    Without a box there is no answer, whatever else the text says. The whole text is searched, a box may hold 100 000
    characters. A gold that is itself a text with a box is read in the same way. Reasons: those of the inner verifier,
    "no_answer", "unparsable" (the last box is not closed), "over_limit", "bad_gold".
    """

    inner: Verifier = field(default_factory=Plain)

    @property
    def fingerprint(self) -> str:
        return fingerprint("last_box", self)

    def __call__(self, text: str, task: Task) -> Verdict:
        if isinstance(task.answer, str) and _OPEN.search(task.answer):
            gold, fault = last_boxed(task.answer)
            if fault:
                return unknown("bad_gold")
            task = replace(task, answer=gold)
        answer, fault = last_boxed(text)
        return wrong(fault) if answer is None else self.inner(answer, task)

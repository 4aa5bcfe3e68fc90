"""What a verifier is, and the few things that all of them share.

A verifier is a small frozen dataclass, called with the policy's own words and the task, which holds the gold. A fault
of the submission is `wrong`, a fault of the gold or of the verifier is `unknown`. Model output is hostile: whatever
it says, a verifier answers in bounded time, by linear scans over bounded pieces, or in a worker that can be killed.

A verifier may also have `judge_many(items) -> list[Verdict]`, items being (Rollout or text, Task) pairs; `judge` then
calls it once for a whole batch. And `prepare()`, which starts what it needs and raises VerifierBroken where it can
never work; it is called before a run costs anything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from numbers import Integral, Rational, Real
from typing import Any, Protocol

from rlvr.records import Rollout, Task, Verdict

LONGEST_ANSWER = 100_000  # characters compared; ours: a boxed matrix has hundreds, a vocabulary-sized list would fit
LONGEST_TEXT = 4_000_000  # characters searched where a search is slower than a memory scan; ours: a million tokens
LONGEST_NUMBER = 640  # digits; int() reads this many whatever limit the interpreter was started with
SHOWN = 1000  # characters of an answer kept in a verdict


class Verifier(Protocol):
    """Judges one text by one task."""

    @property
    def fingerprint(self) -> str:
        """Name and settings; equal fingerprints judge alike."""
        ...

    def __call__(self, text: str, task: Task) -> Verdict:
        """The verdict on the policy's own words. `task.answer` is the gold."""
        ...


class VerifierBroken(RuntimeError):
    """The verifier cannot work at all: the run stops. The sentence says what to do."""


def make_ready(verifier: Any) -> None:
    """Prepare a verifier and those inside it. Raises VerifierBroken where one can never work."""
    for f in fields(verifier) if is_dataclass(verifier) else ():
        if hasattr(inner := getattr(verifier, f.name), "fingerprint"):
            make_ready(inner)
    if prepare := getattr(verifier, "prepare", None):
        prepare()


def fingerprint(name: str, verifier: Any) -> str:
    """`name(field=value, ...)` with every setting, in the spelling that `verifier_from` reads."""
    settings = []
    for f in fields(verifier):
        if f.init:
            value = getattr(verifier, f.name)
            settings.append(f"{f.name}={getattr(value, 'fingerprint', None) or repr(value)}")
    return f"{name}({', '.join(settings)})"


def right(extracted: str, reason: str = "equal") -> Verdict:
    return Verdict("right", 1.0, reason, extracted[:SHOWN])


def wrong(reason: str, extracted: str | None = None, parts: Mapping[str, float] | None = None) -> Verdict:
    return Verdict("wrong", 0.0, reason, None if extracted is None else extracted[:SHOWN], parts or {})


def unknown(reason: str, extracted: str | None = None) -> Verdict:
    return Verdict("unknown", 0.0, reason, None if extracted is None else extracted[:SHOWN])


def error_reason(error: BaseException) -> str:
    """ "verifier_error: ValueError: what it says", cut at 200 characters of the text."""
    return f"verifier_error: {type(error).__name__}: {str(error)[:200]}"


def words(item: Rollout | str) -> str:
    """The policy's own words of an item of `judge_many`."""
    return item if isinstance(item, str) else item.text


def gold_text(task: Task) -> str | None:
    """The gold as text; None where it is missing, empty, over a limit, not finite, or neither text nor number."""
    answer = task.answer
    if isinstance(answer, str):
        return answer if answer.strip() and len(answer) <= LONGEST_ANSWER else None
    if isinstance(answer, Integral):
        return str(answer) if int(answer).bit_length() < 4 * LONGEST_NUMBER else None
    if isinstance(answer, Rational | Decimal):
        return str(answer)
    if isinstance(answer, Real):
        return repr(float(answer)) if math.isfinite(answer) else None
    return None


_WRAPPINGS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("`", "`"))
_TYPOGRAPHY = str.maketrans({"\u2212": "-", "\u00a0": " ", "\u202f": " ", "\u2009": " "})  # U+2212 is the minus sign
_CLOSINGS = frozenset(closed[-1] for _, closed in _WRAPPINGS) | {"."}
_LOOSE_SPACE = re.compile(r" (?=[,;:()\[\]{}=+*/^<>|-])|(?<=[,;:()\[\]{}=+*/^<>|-]) ")


def unwrap(text: str) -> str:
    """Without the space, mathematics or emphasis marks around it, and without a final full stop."""
    text = text.strip()
    if text[-1:] not in _CLOSINGS:
        return text  # the usual case
    for _ in range(8):  # "**$7$.**" needs three rounds
        before = text
        for opened, closed in _WRAPPINGS:
            if len(text) > len(opened) + len(closed) and text.startswith(opened) and text.endswith(closed):
                text = text[len(opened) : -len(closed)].strip()
                break
        if text.endswith(".") and len(text) > 1:
            text = text[:-1].rstrip()
        if text == before:
            break
    return text


def squeeze(text: str) -> str:
    """For comparing as text: unwrapped, one kind of minus and of space, no space around punctuation."""
    text = unwrap(text)
    if not text.isascii():
        text = text.translate(_TYPOGRAPHY)
    text = " ".join(text.split())
    return _LOOSE_SPACE.sub("", text) if " " in text else text

"""The pairs an audit asks about: (gold, answer, whether they are the same), each with its category and certificate.

Deterministic by seed. Every gold falls by its hash into the tuned or the frozen half: look at failures of the tuned
half while you mend a verifier, and at the frozen half's numbers only, or they stop meaning anything.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from rlvr.audit import documents, hostile, letters, wide
from rlvr.audit.exact import same
from rlvr.audit.form import KEYBOARD, show, value
from rlvr.audit.golds import NUMBERS, Gold, golds
from rlvr.audit.mutations import differs, mutations
from rlvr.audit.programs import questions as programs
from rlvr.audit.rewrites import rewrites
from rlvr.audit.spelling import BadCertificate, spellings

Part = Literal["pairs", "ladder", "hostile"]


@dataclass(frozen=True, slots=True)
class Pair:
    """One question to a verifier."""

    id: str
    corpus: str  # "math", "choice", "json", "code", "golds"
    part: Part
    kind: str  # of gold
    category: str
    rewrite: str
    gold: str
    answer: str
    equal: bool
    raw: bool = False  # the answer is the whole text; else it stands where the verifier looks for answers
    half: str = "tuned"
    decade: int | None = None  # floor(log10 |gold|) of integers


@dataclass(frozen=True, slots=True)
class Corpus:
    """What is asked, and what was left out."""

    name: str
    seed: int
    pairs: tuple[Pair, ...]
    duplicates: int  # pairs with the same gold and answer as an earlier one of their category
    certificates: dict[str, int] = field(default_factory=dict)  # how many were checked, by method
    skipped: dict[str, int] = field(default_factory=dict)  # golds of a file that could not be asked about, by reason

    @property
    def digest(self) -> str:
        told = "\n".join(json.dumps([p.id, p.gold, p.answer, p.equal, p.raw]) for p in self.pairs)
        return hashlib.sha256(told.encode()).hexdigest()[:16]


def corpus(name: str, seed: int = 0) -> Corpus:
    """The corpus of a name: see CORPORA. Raises ValueError for another, BadCertificate for a generator at fault."""
    if name not in CORPORA:
        raise ValueError(f"there is no corpus {name!r}; there are: {', '.join(CORPORA)}")
    pairs: list[Pair] = []
    seen: set[tuple[str, str, str, bool]] = set()
    duplicates = 0
    certificates: Counter[str] = Counter()
    for method, pair in CORPORA[name](seed):
        certificates[method] += 1
        key = (pair.category, pair.gold, pair.answer, pair.raw)
        if key in seen:
            duplicates += 1
            continue
        seen.add(key)
        pairs.append(pair)
    return Corpus(name, seed, tuple(pairs), duplicates, dict(certificates))


Made = tuple[str, Pair]  # how it was certified, and the pair


def _math(seed: int) -> Iterator[Made]:
    yield from _rewritten(seed, golds(seed))
    yield from _ladder(seed)
    yield from _hostile()


# what a reader of numbers, not of formulas, is asked
_PLAIN = {
    "identity",
    "whitespace_punct",
    "number_form",
    "keyboard",
    "unicode",
    "mixed_number",
    "decimal",
    "slash fraction",
}
_FORMULAS = {"scientific", "times a power of ten", "full-width digits", "vulgar fraction"}


def _numbers(seed: int) -> Iterator[Made]:
    """The part of the mathematics that is one number, written without LaTeX."""
    plain = [replace(gold, style=KEYBOARD) for gold in golds(seed) if gold.kind in NUMBERS]
    for method, pair in _rewritten(seed, plain):
        latex = "\\" in pair.answer and not pair.rewrite.startswith("thousands")
        known = pair.category in _PLAIN or (pair.rewrite in _PLAIN and pair.category != "percent_value")
        if not latex and (not pair.equal or (known and pair.rewrite not in _FORMULAS)):
            yield method, pair
    yield from _ladder(seed)
    yield from _hostile()


def _rewritten(seed: int, asked: Iterable[Gold]) -> Iterator[Made]:
    for i, gold in enumerate(asked):
        r = random.Random(f"{seed}:rewrites:{i}")
        n = None if gold.number is None or gold.number.denominator > 1 else len(str(abs(int(gold.number)))) - 1
        make = partial(_pair, "math", "pairs", gold.kind, gold.text, decade=n)
        worth = value(gold.form)
        for number, written in enumerate(spellings(gold)):
            yield "spelling", make(f"{i}.s{number}", written.category, written.rewrite, written.text, True, written.raw)
        for number, new in enumerate(rewrites(gold, r)):
            if not same(value(new.form), worth):
                raise BadCertificate(f"{new.rewrite!r} made {new.text!r} of {gold.text!r}: not the same value")
            if new.text != gold.text:
                yield "value", make(f"{i}.r{number}", new.category, new.rewrite, new.text, True)
        for number, changed in enumerate(mutations(gold, r)):
            if differs(changed.form, gold):
                text = show(changed.form, gold.style).strip()
                yield "other value", make(f"{i}.m{number}", changed.category, changed.rewrite, text, False)


def _ladder(seed: int) -> Iterator[Made]:
    """Off by one at every size: is a tolerance hidden somewhere?"""
    r = random.Random(f"{seed}:ladder")
    for decade in range(hostile.DECADES):
        for j, n in enumerate([10**decade, *(r.randint(10**decade, 10 ** (decade + 1) - 1) for _ in range(3))]):
            for step in (1, -1):
                rewrite = "n + 1" if step > 0 else "n - 1"
                yield "integers", _pair(
                    "math", "ladder", "integer", str(n), f"l{decade}.{j}{rewrite[2]}", "ladder", rewrite,
                    str(n + step), False, decade=decade,
                )  # fmt: skip


def _hostile() -> Iterator[Made]:
    for i, bad in enumerate(hostile.answers()):
        yield (
            "by hand",
            _pair("math", "hostile", "integer", bad.gold, f"h{i}", bad.family, bad.name, bad.text, False, bad.raw),
        )


def _wide(seed: int) -> Iterator[Made]:
    truth: dict[tuple[str, str], bool] = {}
    for i, asked in enumerate(wide.questions(seed)):
        if truth.setdefault((asked.gold, asked.answer), asked.equal) != asked.equal:
            raise BadCertificate(f"{asked.gold!r} and {asked.answer!r} are called the same and different")
        yield (
            "template",
            _pair(
                "wide",
                "pairs",
                "mathematics",
                asked.gold,
                str(i),
                asked.category,
                asked.rewrite,
                asked.answer,
                asked.equal,
            ),
        )


def _choice(seed: int) -> Iterator[Made]:
    for i, asked in enumerate(letters.questions(seed)):
        part: Part = "hostile" if asked.category == "large" else "pairs"
        yield "template", _pair(
            "choice", part, "choice", asked.gold, str(i), asked.category, asked.rewrite, asked.text,
            asked.equal, True, of=asked.problem if part == "pairs" else None,
        )  # fmt: skip


def _json(seed: int) -> Iterator[Made]:
    for i, asked in enumerate(documents.questions(seed)):
        yield "construction", _pair(
            "json", "pairs", "schema", asked.schema, str(i), asked.category, asked.rewrite, asked.text,
            asked.valid, True,
        )  # fmt: skip
    for i, asked in enumerate(documents.hostile()):
        yield "construction", _pair(
            "json", "hostile", "schema", asked.schema, f"h{i}", asked.category, asked.rewrite, asked.text, False, True,
        )  # fmt: skip


def _code(seed: int) -> Iterator[Made]:
    for i, asked in enumerate(programs.questions()):
        yield "execution", _pair(
            "code", asked.part, asked.form, asked.gold, str(i), asked.category, asked.rewrite, asked.text, asked.equal,
            True,
        )  # fmt: skip


CORPORA: dict[str, Callable[[int], Iterator[Made]]] = {
    "math": _math,
    "numbers": _numbers,
    "wide": _wide,
    "choice": _choice,
    "json": _json,
    "code": _code,
}


def _pair(
    corpus: str, part: Part, kind: str, gold: str, id: str, category: str, rewrite: str, answer: str, equal: bool,
    raw: bool = False, decade: int | None = None, of: str | None = None,
) -> Pair:  # fmt: skip
    """`of` is the problem whose hash says the half; without it the gold."""
    key = of or (gold if part == "pairs" else f"{gold}\0{rewrite}")  # of the others there are too few golds
    return Pair(f"{corpus}.{id}", corpus, part, kind, category, rewrite, gold, answer, equal, raw, half_of(key), decade)


def half_of(key: str) -> str:
    return "frozen" if hashlib.sha256(key.encode("utf-8", "replace")).digest()[0] % 2 else "tuned"

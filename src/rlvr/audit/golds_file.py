"""A corpus of a user's own golds: does a verifier accept the answers of this very data set?

Nothing is known of these golds, so they get only the rewrites that need no knowledge: marks and spaces around the
whole, and n + 1, n - 1 for whole numbers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rlvr.audit.corpus import Corpus, Pair, half_of
from rlvr.audit.spelling import Written, marks

LONGEST = 10_000  # characters of a gold; ours


def corpus_of(path: Path) -> Corpus:
    """The corpus of a file: a gold a line, as text, or as JSON with "answer" (or "gold").

    Golds that are missing, empty or over LONGEST characters are left out and counted in `skipped`. Raises ValueError
    where nothing is left.
    """
    pairs: list[Pair] = []
    skipped: Counter[str] = Counter()
    seen: set[str] = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        gold = _gold(line, path.suffix in (".jsonl", ".json"))
        if not isinstance(gold, str) or not gold.strip():
            skipped["no gold"] += 1
        elif len(gold) > LONGEST:
            skipped["too long"] += 1
        elif gold in seen:
            skipped["the same gold again"] += 1
        else:
            seen.add(gold)
            for i, (written, equal) in enumerate(_asked(gold)):
                pairs.append(
                    Pair(f"golds.{number}.{i}", "golds", "pairs", "gold", written.category, written.rewrite, gold,
                         written.text, equal, written.raw, half_of(gold))
                )  # fmt: skip
    if not pairs:
        raise ValueError(f'{path} holds no gold; write one a line, or JSON lines with "answer"')
    certificates = {"spelling": sum(p.equal for p in pairs), "integers": sum(not p.equal for p in pairs)}
    return Corpus("golds", 0, tuple(pairs), 0, certificates, dict(skipped))


def _gold(line: str, is_json: bool) -> str | None:
    if not is_json:
        return line
    try:
        told = json.loads(line)
    except ValueError:
        return None
    if isinstance(told, dict):
        told = told.get("answer", told.get("gold"))
    number = isinstance(told, int | float) and not isinstance(told, bool)
    return str(told) if number else told if isinstance(told, str) else None


def _asked(gold: str) -> Iterator[tuple[Written, bool]]:
    for written in marks(gold):
        yield written, True
    digits = gold.strip().removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 18:
        for name, step in (("n + 1", 1), ("n - 1", -1)):
            yield Written("off_by_one", name, str(int(gold) + step)), False

"""One audit: every pair of a corpus to one verifier, and what it said."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from rlvr.audit.asking import Asked, Reply
from rlvr.audit.corpus import Corpus, Pair
from rlvr.audit.targets import Target, filled

SWAPPED = 400  # pairs that are also asked with gold and answer swapped
LARGEST_STEP = 10**12  # up to which the end of a relative tolerance is looked for


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What one verifier said. `replies` and `swapped` are by pair id."""

    name: str
    wrap: str
    about: dict[str, Any]  # versions, as the asked side told them
    corpus: Corpus
    replies: dict[str, Reply]
    swapped: dict[str, Reply] = field(default_factory=dict)
    killed: int = 0
    step: int | None = None  # the smallest n found with n + 1 accepted for n; None: none up to LARGEST_STEP


Told = Callable[[int], None]


def questions(corpus: Corpus) -> list[tuple[bool, Pair]]:
    """What is asked: every pair, and a sample of them once more with gold and answer swapped (True)."""
    return [(False, pair) for pair in corpus.pairs] + [(True, pair) for pair in _swaps(corpus)]


def audited(
    chosen: Target, corpus: Corpus, seconds: float, log: Path | None = None, told: Told = lambda done: None
) -> Verdicts:
    """Ask about everything; `log` keeps every reply as it comes, and what it already holds of the same verifier (code,
    versions, settings) and corpus is not asked again.

    Raises NotAudited where the verifier cannot be asked.
    """
    every = questions(corpus)
    asked = Asked(chosen.command, seconds)
    head = {"wrap": chosen.wrap, "corpus": corpus.name, "digest": corpus.digest, "about": asked.hello}
    known = _logged(log, head) if log is not None else {}
    done = 0
    sink: IO[str] | None = None
    try:
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            sink = log.open("a" if known else "w", encoding="utf-8")
            print("" if known else json.dumps(head), file=sink, flush=True)  # "": its last line may be cut off
        waiting = [(swapped, pair) for swapped, pair in every if (swapped, pair.id) not in known]
        for (swapped, pair), reply in zip(waiting, asked.ask(_words(chosen, waiting))):
            known[swapped, pair.id] = reply
            done += 1
            told(len(every) - len(waiting) + done)
            if sink is not None:
                line = [swapped, pair.id, reply.outcome, reply.reason, reply.cpu, reply.wall]
                print(json.dumps(line), file=sink, flush=True)
        step = _step(chosen, asked) if corpus.name in ("math", "numbers") else None
    finally:
        asked.close()
        if sink is not None:
            sink.close()
    replies = {pair.id: known[False, pair.id] for pair in corpus.pairs}
    turned = {pair.id: known[True, pair.id] for swapped, pair in every if swapped}
    killed = sum(r.killed for r in (*replies.values(), *turned.values()))
    return Verdicts(chosen.name, chosen.wrap, asked.hello, corpus, replies, turned, killed, step)


def _words(chosen: Target, questions: list[tuple[bool, Pair]]) -> Iterator[tuple[str, str]]:
    for swapped, pair in questions:
        gold, answer = (pair.answer, pair.gold) if swapped else (pair.gold, pair.answer)
        yield filled(chosen.gold, gold), chosen.text(answer, pair.raw)


def _swaps(corpus: Corpus) -> list[Pair]:
    """A fixed sample of the pairs that can be turned round."""
    able = [pair for pair in corpus.pairs if pair.part == "pairs" and pair.corpus == "math" and not pair.raw]
    return random.Random("swapped").sample(able, min(SWAPPED, len(able)))


def _step(chosen: Target, asked: Asked) -> int | None:
    """Where n + 1 begins to be accepted for n, by halving; supposes that it stays so above."""

    def accepts(n: int) -> bool:
        question = (filled(chosen.gold, str(n)), chosen.text(str(n + 1), False))
        return next(asked.ask([question])).outcome == "accept"

    if not accepts(LARGEST_STEP):
        return None
    low, high = 0, LARGEST_STEP
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if accepts(middle) else (middle, high)
    return high


def _logged(log: Path, head: dict[str, Any]) -> dict[tuple[bool, str], Reply]:
    """The replies of an earlier, interrupted audit of the same; none where the log is of something else."""
    if not log.is_file():
        return {}
    first, *lines = log.read_text(encoding="utf-8").splitlines() or [""]
    try:
        if json.loads(first) != head:
            return {}
    except ValueError:
        return {}
    out = {}
    for line in lines:
        try:
            swapped, id, outcome, reason, cpu, wall = json.loads(line)
        except ValueError:  # cut off in the middle
            continue
        out[swapped, id] = Reply(outcome, reason, cpu, wall)
    return out

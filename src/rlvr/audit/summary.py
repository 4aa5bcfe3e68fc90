"""The numbers of one verifier's audit: how often it refused what is right, let pass what is wrong, or did not judge."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rlvr.audit.asking import Reply
from rlvr.audit.corpus import Pair
from rlvr.audit.run import Verdicts

Judged = tuple[Pair, Reply]


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts over the pairs in contract: presented where the verifier looks for answers.

    equal: pairs that are the same; of them rejected, failed (not judged). different: pairs that are not; of them
    accepted. The ladder and the hostile answers are counted apart.
    """

    equal: int
    rejected: int
    failed: int
    different: int
    accepted: int
    ladder: int
    ladder_accepted: int
    hostile: int
    hostile_accepted: int

    @property
    def false_reject(self) -> float:
        """Share of equal pairs that were not accepted."""
        return (self.rejected + self.failed) / self.equal if self.equal else math.nan

    @property
    def false_accept(self) -> float:
        return self.accepted / self.different if self.different else math.nan


def in_contract(pair: Pair) -> bool:
    """Whether the answer stands where the verifier looks for it; of choices, documents and
    programs the whole text does."""
    return not pair.raw or pair.corpus in ("choice", "json", "code")


def judged(verdicts: Verdicts) -> list[Judged]:
    return [(pair, verdicts.replies[pair.id]) for pair in verdicts.corpus.pairs]


def summary(verdicts: Verdicts, half: str | None = None) -> Summary:
    rows = [(p, r) for p, r in judged(verdicts) if half in (None, p.half)]
    usual = [(p, r) for p, r in rows if p.part == "pairs" and in_contract(p)]
    equal, different = [r for p, r in usual if p.equal], [r for p, r in usual if not p.equal]
    ladder, hostile = [r for p, r in rows if p.part == "ladder"], [r for p, r in rows if p.part == "hostile"]
    return Summary(
        len(equal), count(equal, "reject"), count(equal, "failure"), len(different), count(different, "accept"),
        len(ladder), count(ladder, "accept"), len(hostile), count(hostile, "accept"),
    )  # fmt: skip


def count(replies: Iterable[Reply], outcome: str) -> int:
    return sum(r.outcome == outcome for r in replies)


@dataclass(frozen=True, slots=True)
class Speed:
    """Milliseconds of wall time, and verdicts in a CPU-second over the honest pairs that were not killed."""

    median: float
    late: float  # 99 of 100 are faster
    slowest: float
    slowest_hostile: float
    rate: float


def speed(verdicts: Verdicts) -> Speed:
    rows = judged(verdicts)
    walls = sorted(1000 * r.wall for p, r in rows if p.part == "pairs")
    hostile = [1000 * r.wall for p, r in rows if p.part == "hostile"]
    cpu = [r.cpu for p, r in rows if p.part == "pairs" and math.isfinite(r.cpu)]
    rate = len(cpu) / sum(cpu) if sum(cpu) else math.nan
    return Speed(_quantile(walls, 0.5), _quantile(walls, 0.99), walls[-1], max(hostile, default=math.nan), rate)


def _quantile(ordered: Sequence[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]

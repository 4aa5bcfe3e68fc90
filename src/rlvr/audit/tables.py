"""The tables of an audit: a pure function of its verdicts, the same whatever order they came in."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlvr.audit.asking import Reply
from rlvr.audit.corpus import Pair
from rlvr.audit.run import LARGEST_STEP, Verdicts
from rlvr.audit.summary import count, in_contract, judged, speed, summary
from rlvr.evaluate.statistics import wilson
from rlvr.report.text import number, percent

WORST = 20  # rows of T7
NONE = "–"


@dataclass(frozen=True, slots=True)
class Table:
    """One table, ready to be shown: every cell is text."""

    key: str
    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(audits: Sequence[Verdicts]) -> list[Table]:
    """All tables that say something about these audits, which are of one corpus."""
    made = [
        make(audits)
        for make in (_glance, _t1, _t2, _t3, _t4, _t4_rewrites, _t5, _t6, _t6_sizes, _t7, _t8, _hostile, _speed)
    ]
    return [table for table in made if table.rows]


def _names(audits: Sequence[Verdicts]) -> tuple[str, ...]:
    return tuple(v.name for v in audits)


def _usual(v: Verdicts, equal: bool) -> list[tuple[Pair, Reply]]:
    return [(p, r) for p, r in judged(v) if p.part == "pairs" and p.equal is equal]


def _share(part: int, whole: int) -> str:
    return percent(part / whole) if whole else NONE


def _of(part: int, whole: int) -> str:
    return f"{part}/{whole}" if whole else NONE


def _glance(audits: Sequence[Verdicts]) -> Table:
    rows = []
    for v in audits:
        whole, halves = summary(v), [summary(v, half) for half in ("tuned", "frozen")]
        rows.append(
            (
                v.name, code(v.wrap, 80), percent(whole.false_reject), *(percent(h.false_reject) for h in halves),
                _share(whole.failed, whole.rejected + whole.failed), _of(whole.accepted, whole.different),
                *(_of(h.accepted, h.different) for h in halves),
                _of(whole.ladder_accepted, whole.ladder), _of(whole.hostile_accepted, whole.hostile), str(v.killed),
                number(speed(v).rate),
            )
        )  # fmt: skip
    columns = (
        "verifier", "asked as", "right ones not accepted", "tuned half", "frozen half", "of these not judged",
        "wrong ones accepted", "tuned half", "frozen half", "off by one accepted", "hostile accepted", "killed",
        "verdicts per CPU-second",
    )  # fmt: skip
    return Table(
        "glance", "At a glance", "In contract: the answer stands where the verifier looks for it.", columns, tuple(rows)
    )


def _t1(audits: Sequence[Verdicts]) -> Table:
    rows = []
    for v in audits:
        same = [r for p, r in _usual(v, True) if p.category == "identity"]
        if same:
            good = count(same, "accept")
            low, high = wilson(good, len(same))
            rows.append(
                (v.name, str(len(same)), percent(good / len(same)), f"{percent(low)} to {percent(high)}",
                 _share(count(same, "reject"), len(same)), _share(count(same, "failure"), len(same)))
            )  # fmt: skip
    columns = ("verifier", "golds", "accepted", "95 % interval (Wilson)", "rejected", "not judged")
    return Table("T1", "Does it accept its own golds?", "The gold itself as the answer.", columns, tuple(rows))


def _by_category(audits: Sequence[Verdicts], equal: bool) -> dict[str, list[list[Reply]]]:
    """category -> for each audit its replies; the largest category first."""
    out: dict[str, list[list[Reply]]] = {}
    for i, v in enumerate(audits):
        for p, r in _usual(v, equal):
            out.setdefault(p.category, [[] for _ in audits])[i].append(r)
    return dict(sorted(out.items(), key=lambda item: (-len(item[1][0]), item[0])))


def _t2(audits: Sequence[Verdicts]) -> Table:
    rows = []
    out_of_contract = {p.category for p in audits[0].corpus.pairs if p.part == "pairs" and not in_contract(p)}
    for category, replies in _by_category(audits, True).items():
        cells = [f"{_share(count(rs, 'reject'), len(rs))} + {_share(count(rs, 'failure'), len(rs))}" for rs in replies]
        cells = ["0" if cell == "0.0% + 0.0%" else cell for cell in cells]
        outside = " (out of contract)" if category in out_of_contract else ""
        rows.append((category + outside, str(len(replies[0])), *cells))
    note = "Of the pairs that are the same: rejected + not judged. 0 is none of either."
    return Table(
        "T2", "Right answers refused, by kind of rewrite", note, ("rewrite", "pairs", *_names(audits)), tuple(rows)
    )


def _t3(audits: Sequence[Verdicts]) -> Table:
    rows = []
    for v in audits:
        bad = [r for p, r in _usual(v, True) if in_contract(p) and r.outcome != "accept"]
        reasons = Counter(r.reason for r in bad)
        told = ", ".join(f"{reason} {n}" for reason, n in sorted(reasons.items(), key=lambda x: (-x[1], x[0])))
        shares = (_share(count(bad, "reject"), len(bad)), _share(count(bad, "failure"), len(bad)))
        if bad:
            rows.append((v.name, str(len(bad)), *shares, told))
    columns = ("verifier", "not accepted", "rejected", "not judged", "reasons")
    return Table("T3", "Rejected, or not judged at all?", "Right answers in contract.", columns, tuple(rows))


def _failures(v: Verdicts, of: Callable[[Pair], str]) -> Counter[str]:
    return Counter(of(p) for p, r in _usual(v, True) if in_contract(p) and r.outcome != "accept")


def _t4(audits: Sequence[Verdicts]) -> Table:
    found = [_failures(v, lambda p: p.category) for v in audits]
    every = sorted({c for f in found for c in f}, key=lambda c: (-sum(f[c] for f in found), c))
    rows = [(c, *(_share(f[c], f.total()) if f[c] else "" for f in found)) for c in every]
    note = "Shares of a verifier's refusals of right answers in contract; a column adds up to 100 %."
    return Table("T4", "Where refusals come from", note, ("rewrite", *_names(audits)), tuple(rows))


def _t4_rewrites(audits: Sequence[Verdicts]) -> Table:
    rows = []
    for v in audits:
        found = _failures(v, lambda p: f"{p.category}: {p.rewrite}")
        top = sorted(found.items(), key=lambda x: (-x[1], x[0]))[:6]
        if top:
            rows.append((v.name, "; ".join(f"{name} {_share(n, found.total())}" for name, n in top)))
    return Table("T4b", "The rewrites refused most", "Shares as in T4.", ("verifier", "rewrites"), tuple(rows))


def _t5(audits: Sequence[Verdicts]) -> Table:
    if len(audits) < 2:
        return Table("T5", "", "", (), ())
    said = [{p.id: r.outcome == "accept" for p, r in judged(v) if p.part == "pairs" and in_contract(p)} for v in audits]
    apart = {}
    for (i, a), (j, b) in itertools.combinations(enumerate(said), 2):
        shared = a.keys() & b.keys()
        apart[i, j] = _share(sum(a[k] != b[k] for k in shared), len(shared))
    rows = [
        (v.name, *("" if i == j else apart[min(i, j), max(i, j)] for j in range(len(audits))))
        for i, v in enumerate(audits)
    ]
    note = "Share of pairs in contract, right and wrong ones, that one accepts and the other does not."
    return Table("T5", "Who disagrees with whom", note, ("verifier", *_names(audits)), tuple(rows))


def _t6(audits: Sequence[Verdicts]) -> Table:
    rows = []
    for category, replies in _by_category(audits, False).items():
        accepted = [count(rs, "accept") for rs in replies]
        rows.append((category, str(len(replies[0])), *(str(n) for n in accepted)))
    columns = ("mutation", "pairs", *_names(audits))
    return Table("T6", "Wrong answers accepted, by kind of mutation", "Counts.", columns, tuple(rows))


def _t6_sizes(audits: Sequence[Verdicts]) -> Table:
    cells: dict[int, list[list[Reply]]] = {}
    for i, v in enumerate(audits):
        for p, r in judged(v):
            off = p.part == "ladder" or (p.category == "off_by_one" and p.kind.endswith("integer"))
            if off and p.decade is not None:
                cells.setdefault(p.decade, [[] for _ in audits])[i].append(r)
    if not cells:
        return Table("T6b", "", "", (), ())
    rows = [
        (
            f"10^{d}",
            str(len(cells[d][0])),
            *(_share(count(rs, "accept"), len(rs)) if count(rs, "accept") else "0" for rs in cells[d]),
        )
        for d in sorted(cells)
    ]
    rows.append(("n + 1 accepted from n =", "", *(NONE if v.step is None else f"{v.step:,}" for v in audits)))
    note = f"n + 1 and n - 1 for n. The last row is found by halving; – is not up to {LARGEST_STEP:,}."
    return Table("T6b", "Off by one, by size", note, ("size of n", "pairs", *_names(audits)), tuple(rows))


def _t7(audits: Sequence[Verdicts]) -> Table:
    """Pairs of the tuned half that most verifiers get wrong, one of each rewrite."""
    wrong: dict[str, list[tuple[str, Reply]]] = {}
    pairs: dict[str, Pair] = {}
    for v in audits:
        for p, r in judged(v):
            if (
                p.half == "tuned"
                and in_contract(p)
                and (r.outcome == "accept") != p.equal
                and (p.equal or r.outcome == "accept")
            ):
                wrong.setdefault(p.id, []).append((v.name, r))
                pairs[p.id] = p
    ordered = sorted(
        pairs, key=lambda id: (-len(wrong[id]), pairs[id].equal, pairs[id].category, pairs[id].rewrite, id)
    )
    rows: list[tuple[str, ...]] = []
    seen: set[tuple[str, str]] = set()
    for id in ordered:
        p = pairs[id]
        if (p.category, p.rewrite) in seen or len(rows) == WORST:
            continue
        seen.add((p.category, p.rewrite))
        said = ", ".join(f"{name} ({r.reason})" if len(audits) > 1 else r.reason for name, r in wrong[id])
        rows.append(
            (f"{p.category}: {p.rewrite}", code(p.gold), code(p.answer), "same" if p.equal else "different", said)
        )
    note = "One pair of each rewrite, of the tuned half only; wrong on it:"
    return Table("T7", "The worst pairs", note, ("rewrite", "gold", "answer", "truth", "wrong on it"), tuple(rows))


def code(text: str, most: int = 60) -> str:
    """A text as one line of at most so many characters, in code marks."""
    shown = repr(text)[1:-1].replace("\\\\", "\\").replace("`", "'")
    return f"`{shown[:most]}{'…' if len(shown) > most else ''}`"


def _t8(audits: Sequence[Verdicts]) -> Table:
    rows = []
    for v in audits:
        both = [(p, v.replies[p.id], v.swapped[p.id]) for p in v.corpus.pairs if p.id in v.swapped]
        if both:
            differ = [p for p, there, back in both if (there.outcome == "accept") != (back.outcome == "accept")]
            shown = "; ".join(
                f"{code(p.gold)} / {code(p.answer)}" for p in sorted(differ, key=lambda p: (len(p.answer), p.id))[:3]
            )
            rows.append((v.name, str(len(both)), _share(len(differ), len(both)), shown or NONE))
    columns = ("verifier", "pairs", "judged otherwise", "the shortest")
    return Table("T8", "Gold and answer swapped", "A sample of the pairs.", columns, tuple(rows))


def _hostile(audits: Sequence[Verdicts]) -> Table:
    rows = []
    for v in audits:
        bad = [(p, r) for p, r in judged(v) if p.part == "hostile"]
        if bad:
            taken = [code(p.rewrite) for p, r in bad if r.outcome == "accept"]
            late = Counter(r.reason for _, r in bad if r.reason in ("timeout", "died", "own_time_limit"))
            told = ", ".join(f"{reason} {n}" for reason, n in sorted(late.items()))
            slowest = max(bad, key=lambda x: (x[1].wall, x[0].id))
            rows.append(
                (v.name, str(len(bad)), ", ".join(taken) or NONE, told or NONE,
                 f"{number(1000 * slowest[1].wall)} ms: {slowest[0].rewrite}")
            )  # fmt: skip
    columns = ("verifier", "answers", "accepted", "out of time", "slowest")
    return Table("T9", "Hostile answers", "None of them is right; each ought to be judged soon.", columns, tuple(rows))


def _speed(audits: Sequence[Verdicts]) -> Table:
    rows = []
    for v in audits:
        s = speed(v)
        rows.append((v.name, *map(number, (s.median, s.late, s.slowest, s.slowest_hostile, s.rate))))
    columns = (
        "verifier",
        "median, ms",
        "99 of 100, ms",
        "slowest, ms",
        "slowest hostile, ms",
        "verdicts per CPU-second",
    )
    return Table(
        "T10", "Speed", "One process, wall time of each call; the rate is of honest pairs.", columns, tuple(rows)
    )

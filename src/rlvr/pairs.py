"""Which papers stack, two by two, and by which rule the others do not: `python -m rlvr.pairs > docs/stacking.md`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from rlvr.method import Contradiction
from rlvr.registry import get, names
from rlvr.reward.pays import Pays


@dataclass(frozen=True, slots=True)
class Pair:
    """Two papers with their default settings on grpo."""

    one: str
    other: str
    refusal: str | None  # None: they stack
    notes: tuple[str, ...] = ()  # what the plan says of settings that gave way


def stack_pairs(papers: Sequence[str] | None = None) -> list[Pair]:
    """Every pair of registered papers (or of these), by name."""
    chosen = sorted(papers if papers is not None else (n for n in names("method") if n != "grpo"))
    return [_pair(one, other) for one, other in itertools.combinations(chosen, 2)]


def _pair(one: str, other: str) -> Pair:
    method = get("method", other)(get("method", one)(get("method", "grpo")()))
    try:
        plan = method.plan(reward=Pays())
    except Contradiction as refusal:
        return Pair(one, other, str(refusal))
    told = dict.fromkeys(note for running in plan.phases.values() for note in running.notes if "prefer" in note)
    return Pair(one, other, None, tuple(told))


def table(pairs: Sequence[Pair]) -> str:
    """The whole page as Markdown: a grid, then a sentence for every refusal and every setting that gave way."""
    papers = sorted({p.one for p in pairs} | {p.other for p in pairs})
    refused = {frozenset((p.one, p.other)): p.refusal for p in pairs}
    mark = lambda a, b: "" if a == b else "-" if refused[frozenset((a, b))] else "+"  # noqa: E731
    lines = [
        "# What stacks",
        "",
        "Made by `python -m rlvr.pairs`; a test holds it against a list written by hand. `+` two papers stack, in",
        "either order, each at its default settings; `-` they are refused, by the sentence below.",
        "",
        "| |" + "|".join(str(i + 1) for i in range(len(papers))) + "|",
        "|---|" + "---|" * len(papers),
    ]
    for i, a in enumerate(papers):
        lines.append(f"| {i + 1} {a} |" + "|".join(mark(a, b) for b in papers) + "|")
    lines += ["", "## Refused", ""]
    lines += [f"- **{p.one} + {p.other}**: {p.refusal}" for p in pairs if p.refusal]
    lines += ["", "## Settings that give way", ""]
    lines += [f"- **{p.one} + {p.other}**: {'; '.join(p.notes)}" for p in pairs if not p.refusal and p.notes]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(stack_pairs()), end="")

"""The files in experiments/data: questions whose gold is a whole worked answer, and pass rates of an anchor.

    rlvr train mini --seed 7 --set tasks.seed=7 --set steps=15 --out runs/anchor
    rlvr rollout mini --model runs/anchor/model --k 8 --out runs/anchors --set max_tokens=64 \
        --set tasks.n=250 --set "tasks.levels=[3, 6]" --set "tasks.moduli=[5, 14]"
    python experiments/make_data.py runs/anchors
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

from rlvr.report.store import read_lines
from rlvr.tasks.synthetic import modular_chains

DATA = Path(__file__).parent / "data"
KEPT = ("task", "answers", "known", "right", "verifier")


def write(name: str, lines: Iterable[dict[str, Any]]) -> None:
    (DATA / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def reasoned() -> None:
    """Chains modulo 5 that only the right steps in the right order answer: a chain has one worked answer, its demo."""
    tasks = modular_chains(200, seed=0, split="eval", levels=(5, 6), moduli=(5, 5))
    write(
        "reasoned_mod5.jsonl",
        ({"id": t.id, "prompt": t.prompt, "answer": t.meta["demo"], "verifier": "exact"} for t in tasks),
    )


def anchors(folder: Path) -> None:
    """The anchor's table, and the same numbers dealt out to other tasks."""
    table = [{key: line[key] for key in KEPT} for line in read_lines(folder / "tasks.jsonl")[0]]
    write("thinkprior_anchors.jsonl", table)
    right = [line["right"] for line in table]
    Random(0).shuffle(right)
    write("thinkprior_anchors_shuffled.jsonl", ({**line, "right": n} for line, n in zip(table, right, strict=True)))


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    reasoned()
    anchors(Path(sys.argv[1]))

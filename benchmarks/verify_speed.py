"""How many verdicts the `math` verifier gives per CPU-second of one core, and how long the slowest takes.

    python benchmarks/verify_speed.py [--seconds 3]

Three loads, each a solution of some lines that ends in a box: `typical` (what answers of word problems and
competitions look like), `table` (all pairs of tests/cases/math_pairs.txt, hard ones in plenty), `rollouts` (typical,
sixteen answers to each gold, as in training: the gold is read once). In the first two nothing is kept from one
verdict to the next.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from rlvr.records import Task
from rlvr.verify.math import judge
from rlvr.verify.math_answer import Math

PAIRS = Path(__file__).parents[1] / "tests/cases/math_pairs.txt"
WORK = "We add both sides and simplify: $2x + 6 = 14$, hence $x = 4$ and $x^2 = 16$. Now we insert this above.\n" * 4
TYPICAL = [
    ("72", "72"),
    ("18", "18"),
    ("1,250", "1250"),
    ("36", "37"),
    ("0.5", "\\frac{1}{2}"),
    ("\\frac{3}{4}", "0.75"),
    ("\\frac{14}{3}", "\\frac{14}{3}"),
    ("-7", "-7"),
    ("3\\sqrt{13}", "3\\sqrt{13}"),
    ("2\\sqrt{3}", "\\sqrt{12}"),
    ("(3, 4)", "(3,4)"),
    ("70", "70\\%"),
    ("[0,1)", "[0,1)"),
    ("$29.00", "29"),
    ("x^2+2x+1", "(x+1)^2"),
    ("12\\pi", "12\\pi"),
    ("\\frac{\\pi}{4}", "\\frac{\\pi}{3}"),
    ("204_5", "204_5"),
    ("5 \\text{ cm}", "5"),
    ("\\text{(C)}", "C"),
    ("96", "96"),
    ("1, 3, 5", "5, 3, 1"),
    ("\\frac{1}{3}", "\\frac{2}{6}"),
    ("2", "3"),
    ("1000", "999"),
    ("y = 2x + 1", "2x+1"),
    ("8", "8."),
]


def table() -> list[tuple[str, str]]:
    lines = PAIRS.read_text(encoding="utf-8").splitlines()
    pairs = [line[2:].partition(" @ ") for line in lines if line.startswith(("= ", "! "))]
    return [(a, b) for x, _, y in pairs for a, b in ((x, y), (y, x))]


def forget() -> None:
    judge._gold.cache_clear()
    judge._complaint.cache_clear()


def measure(pairs: list[tuple[str, str]], seconds: float, between: Callable[[], None] | None) -> tuple[float, float]:
    """(verdicts per CPU-second, slowest verdict in milliseconds; of each pair its best time counts)."""
    verifier = Math()
    items = [(f"{WORK}The answer is $\\boxed{{{answer}}}$.", Task("t", "", gold)) for answer, gold in pairs]
    best = [float("inf")] * len(items)
    spent, count = 0.0, 0
    while spent < seconds:
        for i, (text, task) in enumerate(items):
            if between is not None:
                between()
            began = time.process_time_ns()
            verifier(text, task)
            took = (time.process_time_ns() - began) / 1e9
            best[i] = min(best[i], took)
            spent += took
            count += 1
    return count / spent, 1000 * max(best)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="CPU-seconds for each load")
    seconds = parser.parse_args().seconds
    rollouts = [(answer, gold) for answer, gold in TYPICAL for _ in range(16)]
    for name, pairs, between in (
        ("typical", TYPICAL, forget),
        ("table", table(), forget),
        ("rollouts", rollouts, None),
    ):
        rate, slowest = measure(pairs, seconds, between)
        print(f"{name:9} {len(pairs):5} pairs  {rate:8.0f} verdicts/CPU-s  slowest {slowest:.2f} ms")


if __name__ == "__main__":
    main()

"""How good and how fast the `math` verifier is: its numbers on the audit's two corpora of mathematics, verdicts per
CPU-second of one core beside math-verify's in the same run, the slowest verdict, and a batch as training has it.

    python benchmarks/verify_speed.py [--seconds 3] [--out benchmarks/results/verify.json]

Loads: `typical` (what answers of word problems and competitions look like, a solution of some lines that ends in a
box), `table` (all pairs of tests/cases/math_pairs.txt, hard ones in plenty), `rollouts` (typical, sixteen answers to
each gold, as in training: the gold is read once), `corpus` (the audit's pairs, in turn with math-verify, in blocks of
fifty). But for `rollouts` nothing is kept from one verdict to the next. math-verify is the one of `make audit-peers`;
where it is not installed, its row is missing.

`batch`: 1,024 responses of 2,000 tokens through `judge`, in seconds of the wall. A token is taken as four characters.

Exits with 1 and says so where a number of `missed` is not reached.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlvr.audit.asking import Asked, NotAudited
from rlvr.audit.corpus import Corpus, Pair, corpus
from rlvr.audit.document import machine
from rlvr.audit.summary import in_contract
from rlvr.audit.targets import filled, target
from rlvr.records import Task
from rlvr.verify.judge import judge as judged
from rlvr.verify.math import judge
from rlvr.verify.math_answer import Math

ROOT = Path(__file__).parents[1]
PAIRS = ROOT / "tests/cases/math_pairs.txt"
BLOCK = 50  # pairs in turn; so that both sides see the same machine
EVERY = 20  # of the second corpus' pairs beside math-verify: some cost it seconds
CHARACTERS = 8000  # of a response of 2,000 tokens
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


def quality(pairs: Corpus) -> dict[str, Any]:
    """Counts by half: golds that accept themselves, right answers refused, wrong ones accepted; and the slowest, in
    CPU-milliseconds, the best of five."""
    verifier, chosen = Math(), target("math")
    out: dict[str, Any] = {}
    slowest, where = 0.0, ""
    for pair in pairs.pairs:
        text, task = chosen.text(pair.answer, pair.raw), Task("t", "", pair.gold)
        best, label = float("inf"), ""
        for _ in range(5):
            forget()
            began = time.process_time_ns()
            label = verifier(text, task).label
            best = min(best, (time.process_time_ns() - began) / 1e6)
            if best < 1:
                break
        if best > slowest:
            slowest, where = best, f"{pair.category}, {pair.rewrite}"
        said = out.setdefault(pair.half, dict.fromkeys(KEYS, 0))
        accepted = label == "right"
        if pair.part != "pairs":
            said[pair.part] += 1
            said[f"{pair.part}_accepted"] += accepted
        elif in_contract(pair):
            said["same" if pair.equal else "different"] += 1
            said["refused" if pair.equal else "accepted"] += accepted != pair.equal
            if pair.rewrite == "the same text":
                said["golds"] += 1
                said["golds_accepted"] += accepted
    return {"digest": pairs.digest, "halves": out, "slowest_ms": round(slowest, 3), "slowest": where}


KEYS = (
    "golds", "golds_accepted", "same", "refused", "different", "accepted", "ladder", "ladder_accepted", "hostile",
    "hostile_accepted",
)  # fmt: skip


def beside_math_verify(pairs: list[Pair]) -> dict[str, Any]:
    """Verdicts per CPU-second of both on the same pairs, block by block in turn."""
    ours, theirs = target("math"), target("math-verify")
    verifier = Math()
    try:
        asked: Asked | None = Asked(theirs.command, 10.0)
    except NotAudited as fault:
        print(f"math-verify: {fault}")
        asked = None
    spent, other, killed = 0.0, 0.0, 0
    for start in range(0, len(pairs), BLOCK):
        block = pairs[start : start + BLOCK]
        for pair in block:
            text, task = ours.text(pair.answer, pair.raw), Task("t", "", pair.gold)
            forget()
            began = time.process_time_ns()
            verifier(text, task)
            spent += (time.process_time_ns() - began) / 1e9
        if asked is not None:
            questions = [(filled(theirs.gold, p.gold), theirs.text(p.answer, p.raw)) for p in block]
            for reply in asked.ask(questions):
                killed += reply.cpu != reply.cpu
                other += 0.0 if reply.cpu != reply.cpu else reply.cpu
    rates = {"ours": len(pairs) / spent}
    if asked is not None:
        rates["math_verify"] = (len(pairs) - killed) / other
        rates["ratio"] = rates["ours"] / rates["math_verify"]
        asked.close()
    return {"pairs": len(pairs), **{name: round(rate, 1) for name, rate in rates.items()}, "math_verify_killed": killed}


def batch() -> dict[str, float]:
    """Seconds of the wall for 1,024 responses of 2,000 tokens: in a box, and in prose; the best of three."""
    body = (WORK * (CHARACTERS // len(WORK) + 1))[:CHARACTERS]
    ends = {"box": "So the answer is $\\boxed{{{}}}$.", "prose": "So the answer is ${}$."}
    out = {}
    for name, end in ends.items():
        items = [
            (f"{body}\n{end.format(answer)}", Task(f"t{i // 16}", "", gold))
            for i, (answer, gold) in ((i, TYPICAL[i // 16 % len(TYPICAL)]) for i in range(1024))
        ]
        best = float("inf")
        for _ in range(3):
            forget()
            began = time.perf_counter()
            judged(Math(), items)
            best = min(best, time.perf_counter() - began)
        out[name] = round(best, 3)
    return out


def missed(told: dict[str, Any]) -> list[str]:
    """What is not as docs/audit.md says it is to be, in words."""
    found = []
    for name, c in told["corpora"].items():
        for half, n in c["halves"].items():
            accepted = n["accepted"] + n["ladder_accepted"] + n["hostile_accepted"]
            if n["golds_accepted"] < n["golds"] or n["refused"] > 0.005 * n["same"] or accepted:
                found.append(f"{name}, {half}: {n}")
        if c["slowest_ms"] >= 5:
            found.append(f"{name}: the slowest verdict takes {c['slowest_ms']} ms ({c['slowest']})")
        if "ratio" not in c["speed"] or c["speed"]["ratio"] < 70:
            found.append(f"{name}: not 70 times math-verify: {c['speed']}")
    if told["corpora"]["math"]["speed"]["ours"] < 8000:
        found.append(f"math: {told['corpora']['math']['speed']['ours']} verdicts per CPU-second")
    return found + [f"1,024 responses ({name}): {s} s" for name, s in told["batch_seconds"].items() if s >= 0.5]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="CPU-seconds for each load")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT)
    told: dict[str, Any] = {
        "made": {
            "command": "make bench-verify", "commit": commit.stdout.strip(), "date": time.strftime("%Y-%m-%d"),
            "machine": machine(), "python": platform.python_version(), "load_average": round(os.getloadavg()[0], 1),
        },
        "loads": {},
        "corpora": {},
    }  # fmt: skip
    rollouts = [(answer, gold) for answer, gold in TYPICAL for _ in range(16)]
    for name, pairs, between in (
        ("typical", TYPICAL, forget),
        ("table", table(), forget),
        ("rollouts", rollouts, None),
    ):
        rate, slowest = measure(pairs, options.seconds, between)
        told["loads"][name] = {
            "pairs": len(pairs),
            "verdicts_per_cpu_second": round(rate),
            "slowest_ms": round(slowest, 3),
        }
        print(f"{name:9} {len(pairs):5} pairs  {rate:8.0f} verdicts/CPU-s  slowest {slowest:.2f} ms", flush=True)
    told["batch_seconds"] = batch()
    print(f"batch     1024 responses of 2000 tokens: {told['batch_seconds']} s", flush=True)
    for name in ("math", "wide"):
        found = corpus(name)
        told["corpora"][name] = quality(found)
        print(f"{name}: {json.dumps(told['corpora'][name])}", flush=True)
        usual = [p for p in found.pairs if p.part == "pairs" and in_contract(p)]
        told["corpora"][name]["speed"] = beside_math_verify(usual if name == "math" else usual[::EVERY])
        print(f"{name}: {json.dumps(told['corpora'][name]['speed'])}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    for what in (wrong := missed(told)):
        print(f"missed: {what}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

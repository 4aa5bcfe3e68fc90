"""A million texts for the `math` verifier: nothing is raised, no bound of time or memory is exceeded.

    python benchmarks/fuzz_math.py [--count 1000000] [--seed 0] [--out benchmarks/results/fuzz_math.json]

Half of the texts come from a grammar of LaTeX, keyboard spelling, prose and nonsense; half are mutations of the audit's
corpus, of tests/cases/math_pairs.txt and of the published pairs. Of each, one side or both may be broken. Every verdict
is timed in CPU seconds; one over half the bound is asked up to seven times more and its best counts, for other work on
the machine shows in a single time. Every 200th is measured for memory, every tenth asked with its sides swapped. Exit
code 1 where anything was raised, a bound was exceeded or the order of the two sides changed the verdict.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import resource
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any, get_args

from rlvr.audit.corpus import corpus
from rlvr.audit.document import machine
from rlvr.records import Task
from rlvr.verify.math import judge
from rlvr.verify.math.conventions import Bases, Lists, Log, Names, Percents, Units
from rlvr.verify.math.extract import Mode
from rlvr.verify.math_answer import Math

ROOT = Path(__file__).parents[1]
TRIES = 8
MOST_MILLISECONDS = 5.0  # CPU time of one verdict
AGAIN = MOST_MILLISECONDS / 2  # asked again from here on, or what is told as the slowest is another program's doing
MOST_MEBIBYTES = 32.0  # allocated at once by one verdict
LONGEST = 3000  # characters of a corpus text that is mutated; longer ones are made by repetition

ATOMS = (
    "0",
    "1",
    "2",
    "7",
    "12",
    "42",
    "1000",
    "3.14",
    ".5",
    "5.",
    "1e3",
    "1e-9",
    "10^{100}",
    "1,234",
    "1{,}234",
    "1\\,000",
    "007",
    "x",
    "y",
    "z",
    "n",
    "a_1",
    "x_{12}",
    "f(x)",
    "e",
    "i",
    "\\pi",
    "pi",
    "π",
    "\\infty",
    "\\theta",
    "\\alpha",
    "\\hbar",
    "\\R",
    "\\emptyset",
    "A",
    "B",
    "(C)",
    "\\text{cm}",
    "\\text{and}",
    "\\mathrm{e}",
    "\\text{no",
    "solution}",
    "Tuesday",
    "five",
    "km",
    "m/s",
    "\\$5",
    "50\\%",
    "90^\\circ",
    "101_2",
    "1A_{16}",
    "3:45",
    "2:7",
    "½",
    "２",
    "−3",
    "∞",
    "√",
    "\\ldots",
    "...",
    "\\cdots",
    "9!",
    "(9!)!",
    "\\dots",
    "true",
    "None",
    "nan",
)
WRAPS = (
    "({})",
    "[{}]",
    "\\{{{}\\}}",
    "{{{}}}",
    "|{}|",
    "-{}",
    "+{}",
    "{}!",
    "{}^2",
    "{}^{{-1}}",
    "{}'",
    "{}%",
    "{}\\%",
    "{}^\\circ",
    "\\sqrt{{{}}}",
    "\\sqrt[3]{{{}}}",
    "\\frac{{1}}{{{}}}",
    "\\frac{{{}}}{{2}}",
    "\\left({}\\right)",
    "\\lfloor {}\\rfloor",
    "\\sin {}",
    "\\sin^{{-1}}({})",
    "\\log_2 {}",
    "\\ln({})",
    "e^{{{}}}",
    "\\text{{{}}}",
    "\\mathbf{{{}}}",
    "\\overline{{{}}}",
    "\\binom{{{}}}{{3}}",
    "${}$",
    "\\({}\\)",
    "\\[{}\\]",
    "**{}**",
    "`{}`",
    "x={}",
    "x\\in {}",
    "\\pm {}",
    "\\neq {}",
    "not {}",
    "{}_{{7}}",
    "\\begin{{pmatrix}}{}&1\\\\2&3\\end{{pmatrix}}",
    "\\begin{{cases}}{}\\end{{cases}}",
    "\\boxed{{{}}}",
    "\\fbox{{{}}}",
    "{}^{{{}}}",
    "\\displaystyle {}",
    "\\vec{{{}}}",
    "\\det({})",
    "\\max({},2)",
    "\\gcd(12,{})",
    "{} \\pmod 7",
    "\\sum {}",
)
JOINS = (
    "+",
    "-",
    "*",
    "/",
    "\\cdot ",
    "\\times ",
    "^",
    "_",
    ",",
    ", ",
    ";",
    " ",
    "",
    "=",
    "<",
    "\\le ",
    ">",
    "\\approx ",
    "\\cup ",
    "\\cap ",
    "\\setminus ",
    ":",
    " \\text{ or } ",
    " and ",
    "&",
    "\\\\",
    " U ",
    "\\mid ",
    " \\bmod ",
    "\\quad",
    "!",
    "/0+",
    "\\pm ",
    "**",
    "~",
    "\\,",
)
NOISE = "\\{}()[]$^_&|%#~`'\"<>=+-*/!?,.;: \n\t\x00\u200b\u202e\ud800eiU0159xπ√∞½²₃"
FRAMES = (
    "{}",
    "The answer is ${}$.",
    "So $\\boxed{{{}}}$.",
    "\\boxed{{{}",
    "#### {}",
    "<answer>{}</answer>",
    "<think>{}</think> It is {}.",
    "<think>\\boxed{{{}}}",
    "**Final Answer**\n\n{}",
    "Hence $x = {}$, and not {}.",
    "\\boxed{{{}}} and \\boxed{{{}}}",
    "answer: {} answer:",
    "\\\\boxed{{{}}}",
    "First, {}.\nThen {}.",
    "$$\n{}\n$$",
    "It is {} cm.",
)
COSTLY = (
    "9^{9^{9^{9}}}",
    "(10^9)!",
    "((9!)!)!",
    "10^{10^{10}}",
    "\\sqrt{2^{2^{2^{30}}}}",
    "\\binom{10^9}{5\\cdot 10^8}",
    "(x+y+z+1)^{200}",
    "\\sin(10^{100})",
    "e^{e^{e^{9}}}",
    "2006!",
    "\\tan(\\frac{\\pi}{2}+10^{-60})",
    "x^{x^{x^{x}}}",
    "0.{}",
    "\\sqrt[999]{7}",
    "1.0000001^{9999999}",
    "\\gcd(2^{9999}, 3^{999})",
    "\\lfloor 10^{300}\\pi \\rfloor",
    "\\arctan(10^{-300})",
)


def formula(r: random.Random, depth: int) -> str:
    kind = r.random()
    if depth <= 0 or kind < 0.25:
        return r.choice(ATOMS) if r.random() < 0.93 else r.choice(COSTLY)
    if kind < 0.6:
        wrap = r.choice(WRAPS)
        parts = [formula(r, depth - 1) for _ in range(wrap.count("{}"))]
        return wrap.format(*parts)
    return r.choice(JOINS).join(formula(r, depth - 1) for _ in range(r.choice((2, 2, 2, 3, 4, 9))))


def mutated(r: random.Random, text: str, other: str) -> str:
    """One to four changes of a text."""
    for _ in range(r.choice((1, 1, 1, 2, 2, 3, 4))):
        i, j = sorted((r.randint(0, len(text)), r.randint(0, len(text))))
        j = min(j, i + r.choice((1, 1, 2, 5, 40)))
        match r.randrange(9):
            case 0:
                text = text[:i] + text[j:]
            case 1:
                text = text[:i] + text[i:j] * r.choice((2, 2, 3, 30)) + text[j:]
            case 2:
                text = text[:i] + "".join(r.choices(NOISE, k=r.choice((1, 1, 2, 5)))) + text[i:]
            case 3:
                text = text[:i] + r.choice((*ATOMS, *JOINS, *COSTLY)) + text[j:]
            case 4:
                text = (
                    text[:i] + r.choice(WRAPS).replace("{}", text[i:j]).replace("{{", "{").replace("}}", "}") + text[j:]
                )
            case 5:
                k = r.randint(0, len(other))
                text = text[:i] + other[k : k + r.choice((1, 5, 50))] + text[j:]
            case 6:
                text = text[:i]
            case 7:
                text = text[j:] + text[:j]
            case _:
                text = text.swapcase() if r.random() < 0.5 else text[::-1]
    return text


def answer(r: random.Random, seeds: list[str]) -> tuple[str, str, str]:
    """(an answer, something near it, how it was made)"""
    if r.random() < 0.5:
        text = formula(r, r.choice((1, 2, 2, 3, 3, 4, 6)))
        return text, text if r.random() < 0.3 else mutated(r, text, r.choice(seeds)), "grammar"
    text = r.choice(seeds)
    return mutated(r, text, r.choice(seeds)), text, "mutation"


def question(r: random.Random, seeds: list[str]) -> tuple[str, str, str]:
    """(a response, a gold, how they were made): an answer in a frame, now and then long or deep."""
    inside, near, how = answer(r, seeds)
    kind = r.random()
    gold = near if kind < 0.5 else r.choice(seeds) if kind < 0.8 else answer(r, seeds)[0]
    frame = r.choice(FRAMES)
    text = frame.replace("{{", "{").replace("}}", "}").replace("{}", inside) if r.random() < 0.6 else inside
    odd = r.random()
    if odd < 0.004:
        text = text * r.choice((10, 100, 1000))
    elif odd < 0.006:
        text = r.choice("({[|$-^\\!") * r.choice((40, 60, 500, 5000)) + text
    elif odd < 0.008:
        text = ("And so on, and so forth. " * r.choice((10, 400))) + text
    return text[:200_000], gold[:200_000], how


def verifiers(r: random.Random) -> list[Math]:
    """Every mode, under conventions drawn once."""

    def one(kind: Any) -> Any:
        return r.choice(get_args(kind))

    usual = [*map(Math, get_args(Mode)), Math("whole"), Math("whole"), Math("flexible")]
    drawn = [
        Math(
            r.choice(("whole", "whole", "flexible", one(Mode))),
            one(Units),
            one(Percents),
            one(Lists),
            one(Names),
            one(Bases),
            r.random() < 0.5,
            r.random() < 0.5,
            r.random() < 0.5,
            r.choice((1, 3, 6, 10, 30)),
            one(Log),
        )
        for _ in range(24)
    ]
    return [*usual, *usual, *drawn]


def seeds() -> list[str]:
    found = {text for pair in corpus("math").pairs for text in (pair.gold, pair.answer)}
    for line in (ROOT / "tests/cases/math_pairs.txt").read_text("utf-8").splitlines():
        if line.startswith(("= ", "! ")):
            found |= set(line[2:].split(" @ "))
    for line in (ROOT / "tests/cases/published/pairs.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        found |= {row["gold"], row["answer"]}
    return sorted(text for text in found if 0 < len(text) <= LONGEST)


def took(verifier: Math, text: str, task: Task, limit: float) -> tuple[Any, float]:
    """(the verdict, CPU milliseconds). Where it is over the limit, the best of TRIES, some time apart and with nothing
    kept from one to the next: other work on the machine only adds."""
    best = float("inf")
    for i in range(TRIES):
        if i:
            time.sleep(0.01 * i)
            judge._gold.cache_clear()
            judge._complaint.cache_clear()
        began = time.thread_time_ns()
        verdict = verifier(text, task)
        best = min(best, (time.thread_time_ns() - began) / 1e6)
        if best <= limit:
            break
    return verdict, best


def run(count: int, seed: int, told: bool = True) -> dict[str, Any]:
    r = random.Random(f"fuzz:{seed}")
    known, asked = seeds(), verifiers(r)
    made: Counter[str] = Counter()
    labels: Counter[str] = Counter()
    faults: list[dict[str, Any]] = []
    shown = 0
    slowest, slow_text, largest, spent = 0.0, "", 0.0, 0.0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i in range(count):
        text, gold, how = question(r, known)
        verifier, task = r.choice(asked), Task("fuzz", "", gold)
        made[how] += 1
        if i % 200 == 0:
            judge._gold.cache_clear()
            judge._complaint.cache_clear()
            tracemalloc.start()
        try:
            verdict, milliseconds = took(verifier, text, task, AGAIN if i % 200 else float("inf"))
        except Exception as error:
            faults.append(
                {"n": i, "text": text[:2000], "gold": gold[:2000], "fault": f"{type(error).__name__}: {error}"}
            )
            continue
        finally:
            if i % 200 == 0:
                megabytes = tracemalloc.get_traced_memory()[1] / 2**20
                tracemalloc.stop()
                largest = max(largest, megabytes)
                if megabytes > MOST_MEBIBYTES:
                    faults.append({"n": i, "text": text[:2000], "gold": gold[:2000], "fault": f"{megabytes:.1f} MiB"})
        labels[f"{verdict.label} {verdict.reason}"] += 1
        if i % 200:
            spent += milliseconds
            if milliseconds > slowest:
                slowest, slow_text = milliseconds, text
            if milliseconds > MOST_MILLISECONDS:
                faults.append({"n": i, "text": text[:2000], "gold": gold[:2000], "fault": f"{milliseconds:.2f} ms"})
        if i % 10 == 5:
            try:
                there, back = (judge.compared(a, b, verifier._conventions) for a, b in ((text, gold), (gold, text)))
            except Exception as error:
                faults.append(
                    {"n": i, "text": text[:2000], "gold": gold[:2000], "fault": f"{type(error).__name__}: {error}"}
                )
                continue
            if (there.reason == "equal") != (back.reason == "equal"):
                faults.append({"n": i, "text": text[:2000], "gold": gold[:2000], "fault": "the order matters"})
        if told and len(faults) > shown:
            print(faults[-1], flush=True)
            shown = len(faults)
        if told and i % 50_000 == 49_999:
            print(f"{i + 1}: slowest {slowest:.2f} ms, largest {largest:.1f} MiB, faults {len(faults)}", flush=True)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {
        "count": count,
        "seed": seed,
        "texts": dict(made),
        "verdicts": dict(labels.most_common()),
        "slowest_ms": round(slowest, 3),
        "slowest_text": slow_text[:300],
        "mean_ms": round(spent / max(1, count), 4),
        "largest_mib": round(largest, 2),
        "process_grew_mib": round(grown, 1),
        "bounds": {"ms": MOST_MILLISECONDS, "mib": MOST_MEBIBYTES},
        "faults": faults,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = run(options.count, options.seed)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT
    ).stdout.strip()
    made = {
        "command": "python benchmarks/fuzz_math.py",
        "commit": commit,
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "python": platform.python_version(),
    }
    text = json.dumps({"made": made, **found}, indent=1) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)
    sys.exit(bool(found["faults"]))


if __name__ == "__main__":
    main()

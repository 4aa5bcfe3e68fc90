"""Does the audit notice when the math verifier is broken in one place?

    python benchmarks/mutation_check.py [--draw 25] [--seed 0] [--out benchmarks/results/mutation_check.json]

Every operator of OPERATORS is applied wherever it fits in the lines that decide whether two answers are the same; of
all these one-line mutants `--draw` are drawn by seed, the same number of each class. Each mutant is a copy of the
package with that line changed, and is audited like any verifier: both corpora of mathematics, with the ladder and the
hostile answers, until some flags are found. A flag is a right answer not accepted, a wrong one accepted,
a process that dies or has to be killed; the unmutated verifier must have none. Survivors stand in the result with their
line; PROVED says of those that change nothing why that is so.
"""

from __future__ import annotations

import argparse
import io
import json
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
import tokenize
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from rlvr.audit.asking import Asked, NotAudited
from rlvr.audit.corpus import Corpus, corpus
from rlvr.audit.document import machine
from rlvr.audit.summary import in_contract
from rlvr.audit.targets import filled, target

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "rlvr"
MATH = "verify/math/"
CORPORA = ("wide", "math")
ENOUGH = 10  # flags after which a mutant is asked no more
SECONDS = 5.0  # deadline of one call
# Where it is decided whether two answers are the same. Not here: where an answer stands in a text, limits, errors.
DECIDES = ("compare.py", "relations.py", "sets.py")
BRACKETS = (*DECIDES, "brackets.py")
NUMBERS = ("identity.py", "arithmetic.py", "../math_answer.py")
UNITS = ("units.py", "measure.py", "compare.py")


class Operator(NamedTuple):
    """`old` is a token, or a part of a line where `line` says so; `new` takes its place."""

    kind: str  # comparison, tolerance, bracket, sign, unit
    old: str
    new: str
    files: tuple[str, ...] = DECIDES
    line: bool = False


OPERATORS = (
    *(
        Operator("comparison", old, new)
        for old, new in (
            ("==", "!="),
            ("!=", "=="),
            ("<", "<="),
            ("<=", "<"),
            (">", ">="),
            (">=", ">"),
            ("and", "or"),
            ("or", "and"),
            ("not", ""),
            ("all", "any"),
            ("any", "all"),
        )
    ),
    *(Operator("sign", old, new) for old, new in (("+", "-"), ("-", "+"), ("negate", ""), ("+=", "-="))),
    *(
        Operator("tolerance", old, new, NUMBERS, line=True)
        for old, new in (
            ("FIRST_PRECISION = 256", "FIRST_PRECISION = 32"),
            ("GUARD = 192", "GUARD = 8"),
            ("GUARD = 192", "GUARD = 40"),
            ("NOISE = 32", "NOISE = 230"),
            ("_DOUBLE = 15", "_DOUBLE = 6"),
            ("decimals: int = 10", "decimals: int = 2"),
            ("decimals: int = 10", "decimals: int = 1"),
            ("a.digits < self.decimals", "a.digits < 2"),
            ("return x == y or self", "return abs(x - y) < 1e-9 or self"),
            ("return x == y or self", "return abs(x - y) <= 1e-6 * abs(y) or self"),
            ("/ 2\n", "* 50\n"),
            ("return not value\n", "return abs(value) < 1e-9\n"),
            ("field.high - precision + NOISE", "field.high - 40"),
            ("wanted = 2 if", "wanted = 1 if"),
            ("terminates(other)", "False"),
        )
    ),
    *(
        Operator("bracket", old, new, BRACKETS)
        for old, new in (
            ('"("', '"["'),
            ('")"', '"]"'),
            ('"["', '"("'),
            ('"]"', '")"'),
            ("low_in", "high_in"),
            ("high_in", "low_in"),
            ("opened", "closed"),
            ("closed", "opened"),
            ('"()"', '"[]"'),
        )
    ),
    Operator("bracket", "False", "True", ("sets.py",)),
    Operator("bracket", "True", "False", ("sets.py",)),
    *(
        Operator("unit", old, new, UNITS, line=True)
        for old, new in (
            ("1000 k", "100 k"),
            ("1/100 c", "1/10 c"),
            ("1/1000 mm", "1/100 mm"),
            ("1/1000 g", "1/100 g"),
            ("60 min", "100 min"),
            ("3600 h", "360 h"),
            ("unit.dims != ", "unit.turns != "),
            ("p.unit == q.unit", "p.unit.dims == q.unit.dims"),
            ("a.factor * b.factor", "a.factor"),
            ("p * power", "p"),
            ("unit.factor**power", "unit.factor"),
            ("Fraction(quantity.unit.factor)", "1"),
            ("Fraction(1, 180), 1", "Fraction(1, 90), 1"),
            ("m: 1 m", "s: 1 m"),
            ("if quantity.unit.turns:", "if False:"),
            ('how == "lenient"', 'how != "strict" or True'),
            ("raised * power", "power"),
            ("factor = Num(more.unit.factor / unit.factor)", "factor = Num(1)"),
        )
    ),
)
# Mutants that change nothing that can be seen, by file and changed line, and why.
PROVED: dict[tuple[str, str], str] = {
    (
        "identity.py",
        "decimals: int = 2  # digits that a decimal must show to stand for a number that no decimal can express",
    ): "a default that is never used: the one place that makes a Bench passes the convention's number",
    (
        "identity.py",
        "decimals: int = 1  # digits that a decimal must show to stand for a number that no decimal can express",
    ): "a default that is never used: the one place that makes a Bench passes the convention's number",
    (
        "compare.py",
        "if not (isinstance(other, Prod) and 1 <= len(text.written) < 5 and text.written.isalpha()):",
    ): "a letter that stands alone is a name and never a text",
    ("compare.py", "if x and y:"): "where one side alone is infinite it has no value, which is different as well",
    (
        "compare.py",
        "return self._consistent(x) and self.same(x.parts[+1], y)",
    ): "all parts of a true chain are the same",
    ("relations.py", "left, right = parts[0], parts[+1]"): "`right` is used where there are two parts",
    (
        "relations.py",
        "if len(parts) == 1 and len(sides) >= 1 and _names(parts[0]):",
    ): "where there is one side, the first two are that one",
    (
        "compare.py",
        "if len(a.names) >= 1 and sorted(a.names) == sorted(b.names):",
    ): "one name that is the same has been met two lines before",
    (
        "compare.py",
        "if None  in x and None not in y and sorted(x) == sorted(y):  # type: ignore[type-var]",
    ): "a shortcut: without it the items are matched one by one",
    (
        "compare.py",
        "return x == y and (p == q or not p and not q)",
    ): "a base of 0 stands for any under bases = lenient alone, which no audited verifier has",
    (
        "compare.py",
        'if self.conventions.lists == "in_order" and  isinstance(a, Set) and not isinstance(b, Set):',
    ): "under lists = in_order alone, which no audited verifier has",
    (
        "compare.py",
        'if self.conventions.lists == "in_order" and not isinstance(a, Set) and  isinstance(b, Set):',
    ): "under lists = in_order alone, which no audited verifier has",
    ("sets.py", "left = x if low >= 0 else y"): "where they begin together, either beginning is it",
    ("sets.py", "right = x if high <= 0 else y"): "where they end together, either end is it",
    ("sets.py", 'if opened in "([]" or closed in ")][":'): "brackets are both pointed, or neither is",
    (
        "sets.py",
        "return [part for part in out if not (_rank(part.low) == 1 and _rank(part.high) == -1)]",
    ): "a piece from infinity to infinity is open at one end, and every intersection drops it",
}


class Mutant(NamedTuple):
    kind: str
    file: str
    line: int
    before: str
    after: str


def mutants() -> Iterator[Mutant]:
    """Every place where an operator fits, in order."""
    for file in sorted({file for operator in OPERATORS for file in operator.files}):
        text = (PACKAGE / MATH / file).read_text("utf-8")
        lines = text.splitlines(keepends=True)
        spots = list(_code(text))
        for operator in (o for o in OPERATORS if file in o.files):
            if operator.line:
                for number, line in enumerate(lines):
                    if operator.old in line:
                        yield _mutant(operator, file, number, line, line.replace(operator.old, operator.new, 1))
                continue
            for number, start, end in spots:
                line = lines[number]
                if line[start:end] == operator.old:
                    yield _mutant(operator, file, number, line, line[:start] + operator.new + line[end:])


def _mutant(operator: Operator, file: str, number: int, before: str, after: str) -> Mutant:
    return Mutant(operator.kind, file, number + 1, before.strip(), after.rstrip("\n"))


def _code(text: str) -> Iterator[tuple[int, int, int]]:
    """(line, start, end) of the tokens that are code: no comments, docstrings, annotations or imports."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(("def ", "class ", "@")))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = lines[token.start[0] - 1].strip() if token.start[0] <= len(lines) else ""
        skipped = token.start[0] <= first or line.startswith(
            ("from ", "import ", "class ", "def ", "@", "raise ", '"""', "#", "assert ")
        )
        if (
            token.type in (tokenize.OP, tokenize.NAME, tokenize.STRING)
            and token.start[0] == token.end[0]
            and not skipped
        ):
            before = lines[token.start[0] - 1][: token.start[1]].rstrip()
            if not before.endswith((":", "->", "|")) or token.string in ("not", "negate", "-"):
                yield token.start[0] - 1, token.start[1], token.end[1]


def drawn(every: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """By seed, the classes in turn; all of them for 0."""
    count = min(count or len(every), len(every))
    r = random.Random(f"mutants:{seed}")
    kinds = list(dict.fromkeys(o.kind for o in OPERATORS))
    pools = {kind: r.sample(found := [m for m in every if m.kind == kind], len(found)) for kind in kinds}
    out: list[Mutant] = []
    while len(out) < count:
        out += [pools[kind].pop() for kind in kinds if pools[kind]][: count - len(out)]
    return out


def flagged(mutant: Mutant | None, corpora: Sequence[Corpus]) -> list[str]:
    """What the audit shows of the mutant that it must not show of a verifier, one sentence each."""
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "rlvr"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("organisms", "methods", "__pycache__", "*.html"))
        if mutant is not None:
            file = copy / MATH / mutant.file
            lines = file.read_text("utf-8").splitlines(keepends=True)
            lines[mutant.line - 1] = mutant.after + "\n"
            file.write_text("".join(lines), "utf-8")
        chosen = target("math")
        command = ("env", f"PYTHONPATH={folder}", "PYTHONDONTWRITEBYTECODE=1", *chosen.command)
        for pairs in corpora:
            try:
                asked = Asked(command, SECONDS)
            except NotAudited as fault:
                return [f"it does not start: {fault}"[:200]]
            turn = random.Random("turn").sample(pairs.pairs, len(pairs.pairs))  # flags come early
            replies = asked.ask((filled(chosen.gold, p.gold), chosen.text(p.answer, p.raw)) for p in turn)
            for pair, reply in zip(turn, replies):
                wrong = (reply.outcome == "accept") != pair.equal and (in_contract(pair) or not pair.equal)
                if wrong or reply.reason in ("timeout", "died", "verifier_error"):
                    shown = f"{pair.gold[:60]} and {pair.answer[:60]}"
                    said.append(f"{pair.category}, {pair.rewrite}: {shown}: {reply.outcome}, {reply.reason}")
                    if len(said) == ENOUGH:
                        break
            asked.close()
            if len(said) == ENOUGH:
                break
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", type=int, default=25, help="0: all that can be made, in ten minutes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    pairs = [corpus(name) for name in CORPORA]
    every = list(dict.fromkeys(mutants()))
    chosen = drawn(every, options.draw, options.seed)
    unmutated = flagged(None, pairs)
    print(f"unmutated: {len(unmutated)} flags; {len(every)} mutants can be made", flush=True)
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, said in zip(chosen, pool.map(lambda m: flagged(m, pairs), chosen)):
            why = PROVED.get((mutant.file, mutant.after.strip()))
            rows.append(
                {**mutant._asdict(), "flags": len(said), "first": said[:2]} | ({"equivalent": why} if why else {})
            )
            state = f"{len(said)} flags" if said else f"equivalent: {why}" if why else "NOT FLAGGED"
            print(
                f"{mutant.kind:10} {mutant.file}:{mutant.line}  {mutant.before}  ->  {mutant.after.strip()}: {state}",
                flush=True,
            )
    caught = sum(bool(row["flags"]) for row in rows)
    proved = sum("equivalent" in row and not row["flags"] for row in rows)
    print(f"{caught} of {len(rows)} flagged, {proved} proved equivalent; unmutated: {len(unmutated)} flags")
    if options.out:
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT
        ).stdout.strip()
        made = {
            "command": f"python benchmarks/mutation_check.py --draw {options.draw} --seed {options.seed}",
            "commit": commit,
            "date": time.strftime("%Y-%m-%d"),
            "machine": machine(),
            "python": platform.python_version(),
        }
        counts = {
            "drawn": len(rows),
            "of": len(every),
            "flagged": caught,
            "equivalent": proved,
            "unmutated_flags": len(unmutated),
        }
        told = {"made": made, "corpora": {c.name: c.digest for c in pairs}, **counts, "mutants": rows}
        options.out.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", "utf-8")
    sys.exit(bool(unmutated) or len(rows) - caught - proved > len(rows) * 2 // 25)


if __name__ == "__main__":
    main()

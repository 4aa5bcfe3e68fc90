"""Four seeded families of tasks whose answers are exact and whose steps are known.

    running_sums    07+03+09=                     10,19#19
    modular_chains  7;+5;*3;-4%11=                7+5=1 / 1*3=3 / 3-4=10 / #10      ( / is a new line)
    choice          12+7*3?  A:57 B:33 ... =      7*3=21 / 12+21=33 / #B
    countdown       2,3,5,7:28=                   2+5=7 / 7-3=4 / 4*7=28 / #((2+5)-3)*7

Every prompt ends in `=`, every response in a single `#` and the final answer; together they use 27 characters, so
that a 32-token vocabulary holds them all (`organisms.make`). `meta` holds `level` (size), `steps` (the known
intermediate steps) and `demo` (a whole correct response).

The split of a question is a hash of its text, so train and eval cannot share one whatever the seeds, sizes and levels;
about a quarter is eval. Levels are equally likely until one has no new question left. A longer draw with the same seed
begins with the shorter one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Literal

from rlvr.records import Task
from rlvr.registry import register
from rlvr.tasks import DataError

Split = Literal["train", "eval"]
Draw = Callable[[Random, int], Task | None]  # (random numbers, level); None = draw again
MISSES = 5_000  # draws in a row without a new question before a family counts as exhausted


@register("tasks", "running_sums")
def running_sums(
    n: int = 512, seed: int = 0, split: Split = "train", levels: tuple[int, int] = (2, 5)
) -> tuple[Task, ...]:
    """Add up zero-padded two-digit numbers. `levels` = fewest and most operands, within 2..5.

    Raises DataError when the levels hold fewer than `n` different questions.
    """
    return _collect("running_sums", draw_running_sum, n, seed, split, levels, (2, 5))


def draw_running_sum(rng: Random, level: int) -> Task:
    """One problem of `level` operands, each 1..19: five of them stay below 100, so every partial sum has two digits."""
    terms = [rng.randint(1, 19) for _ in range(level)]
    sums = [f"{sum(terms[:i]):02d}" for i in range(2, level + 1)]
    question = "+".join(f"{t:02d}" for t in terms)
    return _task("running_sums", question, f"{question}=", sums[-1], level, sums, f"{','.join(sums)}#{sums[-1]}")


@register("tasks", "modular_chains")
def modular_chains(
    n: int = 512,
    seed: int = 0,
    split: Split = "train",
    levels: tuple[int, int] = (2, 5),
    moduli: tuple[int, int] = (5, 19),
) -> tuple[Task, ...]:
    """Apply `+ - *` from left to right modulo m, one step a line. `levels` = fewest and most steps, within 1..8.

    `moduli` = smallest and largest m, within 2..99; every residue is in 0..m-1. Raises DataError when the levels hold
    fewer than `n` different questions.
    """
    if len(moduli) != 2 or not 2 <= moduli[0] <= moduli[1] <= 99:
        raise DataError(f"modular_chains: moduli = {moduli} must be (smallest, largest) within 2..99")
    draw = partial(draw_modular_chain, moduli=(moduli[0], moduli[1]))
    return _collect("modular_chains", draw, n, seed, split, levels, (1, 8))


def draw_modular_chain(rng: Random, level: int, moduli: tuple[int, int] = (5, 19)) -> Task:
    m = rng.randint(*moduli)
    value = rng.randint(0, m - 1)
    links, steps = [str(value)], []
    for _ in range(level):
        op, operand = rng.choice("+-*"), rng.randint(1, m - 1)
        after = apply(value, op, operand) % m
        links.append(f"{op}{operand}")
        steps.append(f"{value}{op}{operand}={after}")
        value = after
    question = f"{';'.join(links)}%{m}"
    demo = "\n".join([*steps, f"#{value}"])
    return _task("modular_chains", question, f"{question}=", str(value), level, steps, demo)


@register("tasks", "choice")
def choice(n: int = 512, seed: int = 0, split: Split = "train", levels: tuple[int, int] = (2, 4)) -> tuple[Task, ...]:
    """Pick an expression's value (`*` binds tighter) out of four. `levels` = fewest and most operands, within 2..6.

    The gold is a letter A..D; `meta["options"]` maps letters to values. Among the distractors is, where it differs,
    the value that one gets by ignoring precedence. Raises DataError when the levels hold fewer than `n` different
    questions.
    """
    return _collect("choice", draw_choice, n, seed, split, levels, (2, 6))


def draw_choice(rng: Random, level: int) -> Task | None:
    tokens: list[int | str] = [rng.randint(2, 12)]
    for _ in range(level - 1):
        tokens += [rng.choice("+-*"), rng.randint(2, 12)]
    value, steps = _evaluate(tokens, ("*", "+-"))
    careless, _ = _evaluate(tokens, ("+-*",))
    if value > 999 or any("=-" in step for step in steps):
        return None
    wrong = [careless] if careless != value and careless >= 0 else []
    slips = [value + d for d in (-10, -2, -1, 1, 2, 10) if value + d >= 0 and value + d not in wrong]
    values = rng.sample([value, *wrong, *rng.sample(slips, 3 - len(wrong))], 4)
    letter = "ABCD"[values.index(value)]
    question = "".join(map(str, tokens))
    options = dict(zip("ABCD", map(str, values)))
    prompt = f"{question}?\n" + "".join(f"{k}:{v}\n" for k, v in options.items()) + "="
    return _task("choice", question, prompt, letter, level, steps, "\n".join([*steps, f"#{letter}"]), options=options)


@register("tasks", "countdown")
def countdown(
    n: int = 512,
    seed: int = 0,
    split: Split = "train",
    levels: tuple[int, int] = (3, 4),
    use: Literal["all", "any"] = "all",
) -> tuple[Task, ...]:
    """Reach a target (1..999) from numbers (1..12) with `+ - *`. `levels` = fewest and most numbers, within 2..6.

    `use="all"`: each number exactly once; "any": each at most once. A question has many right answers; `answer` is
    the target, and the `countdown` verifier reads `meta["numbers"]` and `meta["use"]`. Numbers are sorted, so no
    question is another one in disguise. Raises DataError when the levels hold fewer than `n` different questions.
    """
    return _collect("countdown", partial(draw_countdown, use=use), n, seed, split, levels, (2, 6))


def draw_countdown(rng: Random, level: int, use: Literal["all", "any"] = "all") -> Task | None:
    numbers = sorted(rng.randint(1, 12) for _ in range(level))
    pool: list[tuple[int, str]] = [(x, str(x)) for x in numbers]  # (value, the expression that makes it)
    steps = []
    while len(pool) > 1:
        (a, left), (b, right) = (pool.pop(rng.randrange(len(pool))) for _ in range(2))
        op = rng.choice("+-*")
        value = apply(a, op, b)
        steps.append(f"{a}{op}{b}={value}")
        pool.append((value, f"({left}{op}{right})"))
    target, expression = pool[0]
    if not 1 <= target <= 999 or target in numbers or any("=-" in step for step in steps):
        return None
    question = ",".join(map(str, numbers)) + f":{target}"
    demo = "\n".join([*steps, f"#{expression[1:-1]}"])
    return _task("countdown", question, f"{question}=", str(target), level, steps, demo, numbers=numbers, use=use)


def split_of(question: str) -> Split:
    """Which split a question belongs to, by its text alone."""
    return "eval" if hashlib.blake2b(question.encode(), digest_size=1).digest()[0] < 64 else "train"


def _collect(
    family: str, draw: Draw, n: int, seed: int, split: Split, levels: tuple[int, int], allowed: tuple[int, int]
) -> tuple[Task, ...]:
    if len(levels) != 2 or not allowed[0] <= levels[0] <= levels[1] <= allowed[1]:
        raise DataError(f"{family}: levels = {levels} must be (fewest, most) within {allowed[0]}..{allowed[1]}")
    if split not in ("train", "eval"):
        raise DataError(f'{family}: split = {split!r} must be "train" or "eval"')
    low, high = levels
    rng, found, misses = Random(f"{family}/{seed}/{split}"), dict[str, Task](), 0
    while len(found) < n:
        task = draw(rng, rng.randint(low, high))
        if task is None or task.id in found or split_of(task.id) != split:
            misses += 1
            if misses == MISSES:
                raise DataError(
                    f"{family}: n = {n}, but levels {low}..{high} hold only about {len(found)} different {split}"
                    " questions; ask for fewer, or for more levels"
                )
            continue
        found[task.id], misses = task, 0
    return tuple(found.values())


VERIFIERS = {
    "running_sums": "hash_marker(marker='#')",
    "modular_chains": "hash_marker(marker='#')",
    "choice": "choice",
    "countdown": "countdown",
}


def _task(
    family: str, question: str, prompt: str, answer: str, level: int, steps: list[str], demo: str, **meta: object
) -> Task:
    meta = {"level": level, "steps": steps, "demo": demo, **meta}
    return Task(f"{family}/{question}", prompt, answer, VERIFIERS[family], made_by=family, meta=meta)


def apply(a: int, op: str, b: int) -> int:
    """The value of `a op b`, op one of + - *."""
    return a + b if op == "+" else a - b if op == "-" else a * b


def _evaluate(tokens: list[int | str], tiers: tuple[str, ...]) -> tuple[int, list[str]]:
    """Value and steps of [number, operator, number, ...]: tier by tier of equally binding operators, left to right."""
    rest, steps = list(tokens), []
    for tier in tiers:
        i = 1
        while i < len(rest):
            a, op, b = rest[i - 1 : i + 2]
            if str(op) in tier:
                value = apply(int(a), str(op), int(b))
                steps.append(f"{a}{op}{b}={value}")
                rest[i - 1 : i + 2] = [value]
            else:
                i += 2
    return int(rest[0]), steps

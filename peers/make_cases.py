"""Write the shared cases: seeded random batches and hand-made edges, as rows of plain numbers that every side reads.

    python peers/make_cases.py          writes tests/fixtures/peers/cases.json.gz

A case is {"about", "max_tokens", "rows": {name: [R]}, "tokens": {name: R lists}}. Every row's lists are as long as its
completion; `trained` is 1 on the policy's tokens and 0 on tool output (whose other numbers are noise that nobody may
read). Random numbers are rounded to six places. Nothing here knows what any side computes.

`load`, `save` and `padded` are for the two scripts that run the peers.
"""

from __future__ import annotations

import gzip
import json
import math
import random
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "peers"
STREAMS = ("old_logp", "logp", "behavior_logp", "ref_logp", "value", "now_value", "now_entropy")
Case = dict[str, Any]


def load(name: str) -> dict[str, Any]:
    """The fixture tests/fixtures/peers/<name>.json.gz."""
    with gzip.open(FIXTURES / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        return dict(json.load(file))


def save(name: str, content: dict[str, Any]) -> None:
    """Write a fixture; the same content gives the same bytes."""
    FIXTURES.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=None, separators=(",", ":"), allow_nan=False)
    with open(FIXTURES / f"{name}.json.gz", "wb") as raw, gzip.GzipFile("", "wb", 9, raw, 0) as file:
        file.write(text.encode())


def padded(case: Case, stream: str) -> list[list[float]]:
    """[R, T] right-padded with 0: how both peers hold a batch."""
    rows = case["tokens"][stream]
    width = max(len(row) for row in rows)
    return [[*row, *[0.0] * (width - len(row))] for row in rows]


def random_case(seed: int, groups: list[int], about: str, plain: bool = False) -> Case:
    """Rows of these groups, in this order: off-policy by up to one nat a token (so that no ratio reaches 3), the
    sampler half a nat off, truncated rows, and, unless `plain`, tool output and a row of nothing else."""
    noise = random.Random(seed)
    count, longest = len(groups), 12
    trained = [_flags(noise, noise.randint(1, longest), not plain) for _ in range(count)]
    if not plain:
        trained[noise.randrange(count)] = [0]
    tokens: dict[str, list[list[float]]] = {"trained": [[float(x) for x in row] for row in trained]}
    for name in STREAMS:
        tokens[name] = [[] for _ in trained]
    for i, row in enumerate(trained):
        for _ in row:
            old = -abs(noise.gauss(0, 1)) - 0.05
            values = {
                "old_logp": old,
                "logp": old + max(-1.0, min(1.0, noise.gauss(0, 0.4))),
                "behavior_logp": old + 0.5 * noise.gauss(0, 1),
                "ref_logp": old + 0.3 * noise.gauss(0, 1),
                "value": noise.gauss(0, 1),
                "now_value": noise.gauss(0, 1),
                "now_entropy": abs(noise.gauss(0, 1)),
            }
            for name, x in values.items():
                tokens[name][i].append(round(x, 6))
    score = [noise.choice([0.0, 0.0, 0.25, 1.0, 1.0]) for _ in groups]
    for group in set(groups):  # no silent group here; they are cases of their own
        members = [i for i, g in enumerate(groups) if g == group]
        if len({score[i] for i in members}) == 1:
            score[members[0]] = 1.0 - score[members[0]]
    truncated = [len(row) == longest or noise.random() < 0.15 for row in trained]
    return case(about, longest, groups, score, tokens, truncated)


def case(
    about: str,
    max_tokens: int,
    group: list[int],
    score: list[float],
    tokens: dict[str, list[list[float]]],
    truncated: list[bool] | None = None,
    known: list[bool] | None = None,
) -> Case:
    rows = {
        "group": group,
        "score": score,
        "correct": [x == 1.0 for x in score],
        "known": known or [True] * len(group),
        "truncated": truncated or [False] * len(group),
    }
    return {"about": about, "max_tokens": max_tokens, "rows": rows, "tokens": tokens}


def _flags(noise: random.Random, n: int, tools: bool) -> list[int]:
    """1 for the policy's tokens; sometimes a tool's output stands inside, never last."""
    flags = [1] * n
    if tools and n >= 5 and noise.random() < 0.6:
        start = noise.randint(1, n - 3)
        for t in range(start, min(start + noise.randint(1, 3), n - 1)):
            flags[t] = 0
    return flags


def hand_case(
    about: str,
    group: list[int],
    score: list[float],
    log_ratio: list[list[float]],
    trained: list[list[int]] | None = None,
    sampler_gap: list[list[float]] | None = None,
    known: list[bool] | None = None,
    max_tokens: int = 8,
) -> Case:
    """Old log-probs of -1, the reference and the sampler there too, values 0, unless said; entropies of 1."""
    flat = lambda x: [[x] * len(row) for row in log_ratio]  # noqa: E731
    tokens = {
        "trained": [[float(x) for x in row] for row in trained] if trained else flat(1.0),
        "old_logp": flat(-1.0),
        "logp": [[-1.0 + x for x in row] for row in log_ratio],
        "behavior_logp": [[-1.0 - x for x in row] for row in sampler_gap] if sampler_gap else flat(-1.0),
        "ref_logp": flat(-1.0),
        "value": flat(0.0),
        "now_value": flat(0.0),
        "now_entropy": flat(1.0),
    }
    return case(about, max_tokens, group, score, tokens, known=known)


def cases() -> dict[str, Case]:
    square = [i // 4 for i in range(16)]
    uneven = [0, 1, 2, 3, 1, 2, 2, 0, 3, 1, 2, 3, 2, 3]  # groups of 2, 3, 5 and 4, in mixed order
    far = math.log(4.0)
    return {
        "square-1": random_case(1, square, "four groups of four; tool output, an empty row"),
        "square-2": random_case(2, square, "four groups of four; tool output, an empty row"),
        "uneven-3": random_case(3, uneven, "groups of 2, 3, 5 and 4 in mixed order; tool output, an empty row"),
        "uneven-4": random_case(4, uneven, "groups of 2, 3, 5 and 4 in mixed order; tool output, an empty row"),
        "plain-5": random_case(5, square, "four groups of four; nothing but the policy's tokens", plain=True),
        "pairs-6": random_case(6, [i // 2 for i in range(12)], "six groups of two", plain=True),
        "alone": hand_case("a group of one, beside a group of two", [0, 1, 1], [1.0, 1.0, 0.0], [[0.0], [0.0], [0.0]]),
        "silent": hand_case("eight equal rewards of 0.7", [0] * 8, [0.7] * 8, [[0.0]] * 8),
        "close": hand_case(
            "rewards that differ in the fifth place", [0, 0, 1, 1], [0.5, 0.50001, 1.0, 0.99999], [[0.0]] * 4
        ),
        "far": hand_case("ratios of 4 and 1/4", [0, 0], [1.0, 0.0], [[far, -far], [far, -far]]),
        "wild": hand_case("log-ratios of 30 and -30", [0, 0], [1.0, 0.0], [[30.0, -30.0], [30.0, -30.0]]),
        "drift": hand_case("3 nats below and above the reference", [0, 0], [1.0, 0.0], [[-3.0, 3.0], [-3.0, 3.0]]),
        "tool-last": hand_case(
            "a row that ends in tool output", [0, 0], [1.0, 0.0], [[0.0, 0.0, 0.0], [0.0, 0.0]], [[1, 1, 0], [1, 1]]
        ),
        "unjudged": hand_case(
            "a row without a verdict in a group of four",
            [0, 0, 0, 0],
            [1.0, 0.0, 0.0, 0.0],
            [[0.1, 0.1], [-0.1], [0.1, 0.0, 0.1], [0.0]],
            known=[True, True, False, True],
        ),
        "two-tokens": hand_case(
            "trainer over sampler 1.5 and 1/4 in one row, 1 in the other",
            [0, 0],
            [1.0, 0.0],
            [[0.0, 0.0], [0.0, 0.0]],
            sampler_gap=[[math.log(1.5), -far], [0.0, 0.0]],
        ),
    }


if __name__ == "__main__":
    save("cases", {"command": "python peers/make_cases.py", "cases": cases()})

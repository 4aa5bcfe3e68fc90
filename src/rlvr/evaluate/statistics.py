"""What n samples of each problem say about a policy: mean@k, pass@k, pass^k and maj@k, each with a 95 % interval.

For one problem with n samples of which c are right, k of them drawn without replacement:

    mean@k = c / n                            a sample is right
    pass@k = 1 - C(n-c, k) / C(n, k)          at least one of k is right       (Chen et al. 2021, the unbiased form)
    pass^k = C(c, k) / C(n, k)                all k are right                  (Yao et al. 2024, tau-bench)
    maj@k  = P(the vote of k is right)        each extracted answer votes, ties are broken uniformly

Problems, not samples, are the independent draws: an estimate is the mean over problems and its interval clusters by
them. A sample without a verdict is not right and stays in n, and is shown beside the estimates as an error.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rlvr.records import Verdict

EXACT_COST = (
    300_000  # ours: n * k * k up to which maj@k is exact, some tenths of a second; 64 samples, k = 64 still are
)
Z95 = 1.959963984540054  # the normal distribution's 0.975 quantile


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over n problems and its 95 % interval; nan where no interval can be given."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Summary:
    """An evaluation: `estimates` by name ("mean@8", "pass@8", "pass^8", "maj@8") beside what has no verdict."""

    estimates: Mapping[str, Estimate]
    problems: int
    samples: int
    errors: int  # samples without a verdict; in every estimate they count as not right

    @property
    def unknown(self) -> float:
        """Share of samples without a verdict."""
        return self.errors / self.samples if self.samples else math.nan


def mean_at_k(n: int, c: int, k: int) -> float:
    """Expected share of right ones among k of n samples, c of them right: c / n. Raises ValueError as `pass_at_k`."""
    _check(n, c, k)
    return c / n


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that k of n samples, c of them right, hold a right one; exact. Raises ValueError where k > n or c > n."""
    _check(n, c, k)
    every = math.comb(n, k)
    return (every - math.comb(n - c, k)) / every  # whole numbers until here: nothing cancels, nothing overflows


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Chance that k of n samples, c of them right, are all right; exact. Raises ValueError as `pass_at_k`."""
    _check(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def maj_at_k(answers: Sequence[str | None], right: Sequence[bool], k: int, draws: int = 10_000, seed: int = 0) -> float:
    """Chance that the most frequent answer among k of n samples is right.

    `answers` are the n extracted answers, equal texts vote together; None does not vote but can be drawn. `right`
    says of each sample whether its answer is; where equal answers were judged differently, the answer counts as right
    in proportion. Ties are broken uniformly; a draw without votes is not right.

    Exact up to n * k * k = EXACT_COST, by counting the draws with polynomials; above, `draws` seeded draws of k from
    n (standard error at most 0.5 / sqrt(draws), 0.005 by default). Raises ValueError as `pass_at_k`, or for unequal
    lengths.
    """
    if len(answers) != len(right):
        raise ValueError(f"{len(answers)} answers, but {len(right)} judgements of them")
    _check(len(answers), 0, k)
    votes: dict[str, list[bool]] = defaultdict(list)
    for answer, is_right in zip(answers, right):
        if answer is not None:
            votes[answer].append(is_right)
    sizes = [len(v) for v in votes.values()]
    credit = [sum(v) / len(v) for v in votes.values()]
    if not any(credit):
        return 0.0
    silent = len(answers) - sum(sizes)
    if len(answers) * k * k <= EXACT_COST:
        return _vote_exactly(sizes, credit, silent, k)
    counts = np.random.default_rng(seed).multivariate_hypergeometric([*sizes, silent], k, size=draws)[:, :-1]
    winners = (counts == counts.max(axis=1, keepdims=True)) & (counts > 0)
    return float((winners @ np.array(credit) / np.maximum(winners.sum(axis=1), 1)).mean())


def _vote_exactly(sizes: Sequence[int], credit: Sequence[float], silent: int, k: int) -> float:
    """Sum over answers j and their winning count t: draws where j has t votes, e others too, nobody more, over 1 + e.

    ways[e][m] counts the draws of m samples among answers that all have at most t votes, e of them exactly t.
    """
    total = 0.0
    every = math.comb(sum(sizes) + silent, k)
    for t in range(1, k + 1):
        alike: dict[int, float] = defaultdict(float)  # answers of one size have the same chances
        for size, share in zip(sizes, credit):
            if share and size >= t:
                alike[size] += share
        for size, share in alike.items():
            others = list(sizes)
            others.remove(size)
            rest = k - t
            ways = [[math.comb(silent, m) for m in range(rest + 1)]]
            for other in others:
                ways = _with_answer(ways, other, t)
            chance = sum(row[rest] / (every * (1 + e)) for e, row in enumerate(ways))
            total += share * math.comb(size, t) * chance
    return total


def _with_answer(ways: list[list[int]], size: int, t: int) -> list[list[int]]:
    """`ways` after one more answer of `size` samples."""
    length = len(ways[0])
    below = [math.comb(size, a) for a in range(min(t - 1, size, length - 1) + 1)]
    tie = math.comb(size, t) if t < length else 0
    out = [[sum(b * row[m - a] for a, b in enumerate(below) if a <= m) for m in range(length)] for row in ways]
    if tie:
        out.append([0] * length)
        for e, row in enumerate(ways):
            for m in range(t, length):
                out[e + 1][m] += tie * row[m - t]
    while len(out) > 1 and not any(out[-1]):
        out.pop()
    return out


def over_problems(values: Sequence[float], samples: int | None = None) -> Estimate:
    """The mean of one value in [0, 1] for each problem, with its 95 % interval.

    Where every value is 0 or 1 (one sample a problem, or all n drawn) the mean is a proportion and the interval is
    Wilson's, which stays open at 0 and 1. Otherwise it is mean +- t * s / sqrt(problems), Student's t with problems - 1
    degrees of freedom, s the sample standard deviation, clipped to [0, 1]. With `samples`, the draws behind each value,
    it is no narrower than Wilson's of problems * samples independent draws, for a few problems that happen to come out
    alike would show no spread at all. Under two problems there is none: nan.
    """
    x = np.asarray(values, float)
    n = len(x)
    mean = float(x.mean()) if n else math.nan
    if n < 2:
        return Estimate(mean, math.nan, math.nan, n)
    if np.isin(x, (0.0, 1.0)).all():
        return Estimate(mean, *wilson(round(float(x.sum())), n), n)
    half = student_975(n - 1) * float(x.std(ddof=1)) / math.sqrt(n)
    low, high = max(0.0, mean - half), min(1.0, mean + half)
    if samples is not None:
        floor = wilson(mean * n * samples, n * samples)
        low, high = min(low, floor[0]), max(high, floor[1])
    return Estimate(mean, low, high, n)


def wilson(successes: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion (Wilson 1927); `successes` need not be whole."""
    p, z = successes / n, Z95
    centre, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def mean_of(values: Sequence[float]) -> Estimate:
    """The mean of independent values, nan left out, and its 95 % interval: mean +- t * s / sqrt(n)."""
    x = np.array([v for v in values if math.isfinite(v)])
    n = len(x)
    if n < 2:
        return Estimate(float(x[0]) if n else math.nan, math.nan, math.nan, n)
    half = student_975(n - 1) * float(x.std(ddof=1)) / math.sqrt(n)
    return Estimate(float(x.mean()), float(x.mean()) - half, float(x.mean()) + half, n)


@lru_cache
def student_975(freedom: int) -> float:
    """The 0.975 quantile of Student's t, by bisection of its closed form (Abramowitz & Stegun 26.7.3 and 26.7.4)."""
    low, high = Z95, 13.0  # at infinitely many and at one degree of freedom
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_within(middle, freedom) < 0.95 else (low, middle)
    return (low + high) / 2


def student_p(t: float, freedom: int) -> float:
    """P(|T| >= |t|), two-sided; exact to about 1e-15, so smaller ones come out as 0."""
    return max(0.0, 1.0 - _student_within(abs(t), freedom))


def _student_within(t: float, freedom: int) -> float:
    """P(|T| < t)."""
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine2 = math.sin(angle), math.cos(angle) ** 2
    if freedom % 2:
        steps = np.arange(2, freedom - 1, 2)
        series = float(np.cumprod([math.cos(angle), *(cosine2 * steps / (steps + 1))]).sum()) if freedom > 1 else 0.0
        return 2 / math.pi * (angle + sine * series)
    steps = np.arange(1, freedom - 1, 2)
    return sine * float(np.cumprod([1.0, *(cosine2 * steps / (steps + 1))]).sum())


def summarise(
    verdicts: Mapping[str, Sequence[Verdict]], ks: Sequence[int] = (), draws: int = 10_000, seed: int = 0
) -> Summary:
    """Every estimate at every k (default: 1 and the smallest number of samples) over the verdicts of each problem.

    A verdict of `unknown` is not right, does not vote and stays in n; `errors` and `unknown` show how many there are.
    maj@k is left out where a right verdict names no extracted answer, as those of most reward functions do.
    Raises ValueError, naming the problem, for one without samples or with fewer than k.
    """
    if not verdicts:
        raise ValueError("there are no problems to summarise")
    fewest = min(verdicts, key=lambda problem: len(verdicts[problem]))
    n = len(verdicts[fewest])
    ks = sorted(set(ks or (1, max(n, 1))))
    if ks[0] < 1 or ks[-1] > n:
        raise ValueError(
            f"k = {ks[-1] if ks[-1] > n else ks[0]}, but problem {fewest!r} has n = {n} samples; 1 <= k <= n"
        )
    samples = [v for row in verdicts.values() for v in row]
    votable = all(v.extracted is not None for v in samples if v.label == "right")
    estimates: dict[str, Estimate] = {}
    for k in ks:
        values: dict[str, list[float]] = defaultdict(list)
        for i, row in enumerate(verdicts.values()):
            right = [v.label == "right" for v in row]
            size, c = len(row), sum(right)
            votes = [v.extracted if v.known else None for v in row]
            values[f"mean@{k}"].append(mean_at_k(size, c, k))
            values[f"pass@{k}"].append(pass_at_k(size, c, k))
            values[f"pass^{k}"].append(pass_hat_k(size, c, k))
            if votable:
                values[f"maj@{k}"].append(maj_at_k(votes, right, k, draws, seed + i))
        estimates |= {name: over_problems(x, n) for name, x in values.items()}
    return Summary(estimates, len(verdicts), len(samples), sum(not v.known for v in samples))


def _check(n: int, c: int, k: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"k = {k} of n = {n} samples cannot be drawn; 1 <= k <= n")
    if not 0 <= c <= n:
        raise ValueError(f"c = {c} of n = {n} samples cannot be right; 0 <= c <= n")

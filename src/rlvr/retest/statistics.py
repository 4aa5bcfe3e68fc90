"""Paired differences, the four verdicts, and Holm's adjustment over the papers of one issue.

For seeds s = 1..n with values a_s and b_s of two arms: d_s = sign * (a_s - b_s), sign so that positive is better,

    interval = mean(d) -+ t * sd(d) / sqrt(n),   t the 0.975 quantile of Student's t with n - 1 degrees of freedom
    p        = P(|T| >= |mean(d)| sqrt(n) / sd(d))                                  two-sided

    shown         the interval lies above 0 and the mean is at least delta
    opposite      the interval lies below 0 and the mean is at most -delta
    equivalent    the interval lies inside -delta .. delta
    not shown     anything else
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rlvr.evaluate.statistics import Estimate, mean_of, student_p

Verdict = Literal["shown", "opposite", "equivalent", "not shown"]


@dataclass(frozen=True, slots=True)
class Paired:
    """Differences by seed, positive is better, with their mean and interval; seeds without a pair are not in it."""

    differences: Mapping[int, float]
    estimate: Estimate
    p: float  # nan for fewer than two pairs


def paired(a: Mapping[int, float], b: Mapping[int, float], sign: float = 1.0) -> Paired:
    """a - b over the seeds at which both are known."""
    both = [seed for seed in a if seed in b and math.isfinite(a[seed]) and math.isfinite(b[seed])]
    d = {seed: sign * (a[seed] - b[seed]) for seed in both}
    return Paired(d, mean_of(list(d.values())), p_value(list(d.values())))


def p_value(differences: Sequence[float]) -> float:
    """Two-sided, of the hypothesis that the mean is 0. Differences that are all alike give 0, or 1 where they are 0."""
    x = np.asarray(differences, float)
    n = len(x)
    if n < 2:
        return math.nan
    mean, spread = float(x.mean()), float(x.std(ddof=1))
    if spread == 0.0:
        return 1.0 if mean == 0.0 else 0.0
    return student_p(mean * math.sqrt(n) / spread, n - 1)


def verdict(estimate: Estimate, delta: float) -> Verdict | None:
    """None where there is no interval."""
    if not math.isfinite(estimate.low):
        return None
    if estimate.low > 0 and estimate.value >= delta:
        return "shown"
    if estimate.high < 0 and estimate.value <= -delta:
        return "opposite"
    if -delta < estimate.low and estimate.high < delta:
        return "equivalent"
    return "not shown"


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Adjusted p of each name (Holm 1979): the i-th smallest of m becomes the largest of (m - j + 1) p_j over j <= i,
    at most 1. One that is not known yet (nan) counts in m, as the largest, and stays nan."""
    known = sorted((value, name) for name, value in p.items() if math.isfinite(value))
    out, top = dict.fromkeys(p, math.nan), 0.0
    for j, (value, name) in enumerate(known):
        top = max(top, min(1.0, (len(p) - j) * value))
        out[name] = top
    return out

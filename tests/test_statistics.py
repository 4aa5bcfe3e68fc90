"""mean@k, pass@k, pass^k and maj@k against enumeration of every draw; intervals against tables and their coverage."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from rlvr.evaluate import statistics
from rlvr.evaluate.statistics import (
    maj_at_k,
    mean_at_k,
    over_problems,
    pass_at_k,
    pass_hat_k,
    student_975,
    summarise,
    wilson,
)
from rlvr.records import Verdict

CASES = {
    case["id"]: case
    for case in map(json.loads, (Path(__file__).parent / "cases/field_reports.jsonl").read_text("utf-8").splitlines())
}
RIGHT, WRONG, ERROR = Verdict("right", 1.0), Verdict("wrong", 0.0), Verdict("unknown", 0.0, "verifier_error")


def draws(n: int, k: int) -> list[tuple[int, ...]]:
    return list(itertools.combinations(range(n), k))


def test_one_right_sample_of_four_is_certain_to_be_among_four() -> None:
    case = CASES["V01"]
    n, c, ks = case["input"]["n"], case["input"]["c"], case["input"]["k"]
    assert [pass_at_k(n, c, k) for k in ks] == case["expected"]["pass_at_k"]
    assert pass_at_k(n, c, 4) != pytest.approx(case["expected"]["wrong_bootstrap_k4"])


def test_all_of_two_right_is_drawn_without_replacement() -> None:
    case = CASES["V02"]
    value = pass_hat_k(case["input"]["n"], case["input"]["c"], case["input"]["k"])
    assert value == pytest.approx(case["expected"]["pass_hat_k"], abs=1e-6)
    assert value != pytest.approx(case["expected"]["wrong_plug_in"])


def test_pass_rates_equal_the_share_of_all_draws() -> None:
    for n in range(1, 8):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            every = [[i < c for i in draw] for draw in draws(n, k)]
            assert pass_at_k(n, c, k) == pytest.approx(np.mean([any(d) for d in every]), abs=1e-15)
            assert pass_hat_k(n, c, k) == pytest.approx(np.mean([all(d) for d in every]), abs=1e-15)
            assert mean_at_k(n, c, k) == pytest.approx(np.mean([np.mean(d) for d in every]), abs=1e-15)


def test_pass_at_k_equals_the_product_form_and_stays_exact_where_floats_cancel() -> None:
    n, c, k = 1000, 3, 100
    product = 1 - math.prod((Fraction(n - k - i, n - i) for i in range(c)), start=Fraction(1))
    assert pass_at_k(n, c, k) == float(product)
    assert pass_at_k(10**6, 1, 1) == 1e-6
    assert pass_at_k(5000, 4990, 2500) == 1.0


@pytest.mark.parametrize("estimate", [mean_at_k, pass_at_k, pass_hat_k])
def test_more_draws_than_samples_is_an_error_that_names_both(estimate) -> None:
    with pytest.raises(ValueError, match=r"k = 8 of n = 4"):
        estimate(4, 2, 8)
    with pytest.raises(ValueError, match=r"k = 0"):
        estimate(4, 2, 0)
    with pytest.raises(ValueError, match=r"c = 5 of n = 4"):
        estimate(4, 5, 2)


def vote_by_enumeration(answers: list[str | None], right: list[bool], k: int) -> float:
    total = 0.0
    for draw in draws(len(answers), k):
        counts = {a: sum(answers[i] == a for i in draw) for a in {answers[i] for i in draw} - {None}}
        winners = [a for a, count in counts.items() if count == max(counts.values())]
        for winner in winners:
            judged = [r for a, r in zip(answers, right) if a == winner]
            total += sum(judged) / len(judged) / len(winners)
    return total / math.comb(len(answers), k)


def test_the_vote_of_two_against_one() -> None:
    # of the 3 pairs of (x, x, y) one is (x, x): x wins; two are ties: x wins half of them
    assert maj_at_k(["x", "x", "y"], [True, True, False], 2) == pytest.approx(1 / 3 + 2 / 3 / 2)
    assert maj_at_k(["x", "x", "y"], [False, False, True], 3) == 0.0
    assert maj_at_k(["x", None, None], [True, False, False], 2) == pytest.approx(2 / 3)  # silence does not outvote
    assert maj_at_k([None, None], [False, False], 1) == 0.0
    assert maj_at_k(["x"], [True], 1) == 1.0


def test_the_exact_vote_equals_the_enumeration_of_every_draw() -> None:
    rng = np.random.default_rng(1)
    for _ in range(150):
        n = int(rng.integers(1, 10))
        k = int(rng.integers(1, n + 1))
        answers = [None if x == 4 else str(x) for x in rng.integers(0, 5, n)]
        right = [a in ("0", "3") and bool(rng.integers(4)) for a in answers]
        assert maj_at_k(answers, right, k) == pytest.approx(vote_by_enumeration(answers, right, k), abs=1e-12)


def test_the_drawn_vote_agrees_with_the_enumeration_and_repeats(monkeypatch) -> None:
    answers = ["a", "a", "a", "b", "b", "c", None, "d", "a", "b"]
    right = [a == "b" for a in answers]
    monkeypatch.setattr(statistics, "EXACT_COST", 0)
    drawn = maj_at_k(answers, right, 5, draws=40_000)
    assert drawn == pytest.approx(vote_by_enumeration(answers, right, 5), abs=0.01)  # 4 standard errors
    assert drawn == maj_at_k(answers, right, 5, draws=40_000)
    assert drawn != maj_at_k(answers, right, 5, draws=40_000, seed=1)


def test_student_quantiles_are_those_of_the_tables() -> None:
    for freedom, table in [
        (1, 12.706205),
        (2, 4.302653),
        (3, 3.182446),
        (9, 2.262157),
        (29, 2.045230),
        (1000, 1.962339),
    ]:
        assert student_975(freedom) == pytest.approx(table, abs=1e-6)
    assert student_975(37) == pytest.approx(stats.t.ppf(0.975, 37), rel=1e-10)


def test_an_interval_clusters_by_problem() -> None:
    # mean 0.5, s = 0.25 * sqrt(2 / 2) = 0.25, t(2) = 4.302653: half width 0.621037, clipped
    estimate = over_problems([0.25, 0.5, 0.75])
    assert (estimate.value, estimate.low, estimate.high, estimate.n) == (0.5, 0.0, 1.0, 3)
    # mean 0.5, s = sqrt(4 * 0.01 / 3) = 0.115470, t(3) = 3.182446: half width 3.182446 * 0.115470 / 2
    estimate = over_problems([0.4, 0.4, 0.6, 0.6])
    assert estimate.low == pytest.approx(0.5 - 0.183739, abs=1e-6)
    assert estimate.high == pytest.approx(0.5 + 0.183739, abs=1e-6)


def test_ones_and_zeros_get_wilsons_interval() -> None:
    result = stats.binomtest(7, 10).proportion_ci(0.95, method="wilson")
    assert wilson(7, 10) == pytest.approx((result.low, result.high), rel=1e-9)
    estimate = over_problems([1.0] * 7 + [0.0] * 3)
    assert (estimate.low, estimate.high) == pytest.approx((result.low, result.high), rel=1e-9)
    solved = over_problems([1.0] * 30)
    assert solved.high == 1.0
    assert solved.low == pytest.approx(30 / (30 + 1.959964**2), abs=1e-6)  # thirty of thirty is no proof of all


def test_one_problem_has_no_interval() -> None:
    estimate = over_problems([0.5])
    assert estimate.value == 0.5
    assert math.isnan(estimate.low)
    assert math.isnan(estimate.high)
    assert math.isnan(over_problems([]).value)


def test_intervals_cover_the_truth_in_about_95_of_100_evaluations() -> None:
    rng = np.random.default_rng(0)
    problems, n, rounds = 40, 8, 600
    hits = 0
    for _ in range(rounds):
        values = rng.binomial(n, rng.beta(2, 3, problems)) / n  # the mean over all problems is 2 / 5
        estimate = over_problems(values)
        hits += estimate.low <= 0.4 <= estimate.high
    assert 0.93 < hits / rounds < 0.97


def test_errors_stay_in_the_denominator_and_are_shown() -> None:
    case = CASES["V06"]["input"]
    wrong = case["samples"] - case["errors"] - case["correct"]
    summary = summarise({"t": [RIGHT] * case["correct"] + [ERROR] * case["errors"] + [WRONG] * wrong}, [1])
    assert summary.estimates["mean@1"].value == 0.4
    assert summary.errors == 2
    assert summary.unknown == 0.2
    assert (summary.problems, summary.samples) == (1, 10)


def test_problems_that_come_out_alike_have_no_interval_of_zero_width() -> None:
    """Three problems, each right in 2 of 4 samples: at best 12 independent draws of which 6 are right. Wilson by hand:
    centre 1/2, half width z * sqrt(1/4/12 + z^2/(4*144)) / (1 + z^2/12) = 0.2462."""
    alike = summarise({name: [RIGHT, RIGHT, WRONG, WRONG] for name in "abc"}, [4]).estimates["mean@4"]
    assert alike.value == 0.5
    assert (alike.low, alike.high) == (pytest.approx(0.5 - 0.2462, abs=1e-4), pytest.approx(0.5 + 0.2462, abs=1e-4))
    # none right, and all right: of 3 problems, not of 12 draws
    none = summarise({name: [WRONG] * 4 for name in "abc"}, [4]).estimates["mean@4"]
    every = summarise({name: [RIGHT] * 4 for name in "abc"}, [4]).estimates["mean@4"]
    z2 = 1.959963984540054**2
    assert [none.value, none.low, none.high] == pytest.approx([0, 0, z2 / (3 + z2)])
    assert [every.value, every.low, every.high] == pytest.approx([1, 3 / (3 + z2), 1])


def test_a_summary_is_the_mean_over_problems() -> None:
    def said(answer: str, right: bool) -> Verdict:
        return Verdict("right" if right else "wrong", float(right), extracted=answer)

    verdicts = {
        "easy": [said("4", True), said("4", True), said("5", False)],
        "hard": [said("1", False), said("2", False), Verdict("unknown", 0.0, "timeout", "9"), said("7", True)],
    }
    summary = summarise(verdicts, [1, 2])
    assert summary.estimates["mean@2"].value == pytest.approx((2 / 3 + 1 / 4) / 2)
    assert summary.estimates["pass@2"].value == pytest.approx((1 + 1 / 2) / 2)  # hard: 3 of 6 pairs hold the right one
    assert summary.estimates["pass^2"].value == pytest.approx((1 / 3 + 0) / 2)
    # easy: (1 + 1/2 + 1/2) / 3. hard: of 6 pairs two hold "7" and a rival (1/2 each), one "7" and silence (1)
    assert summary.estimates["maj@2"].value == pytest.approx((2 / 3 + (1 / 2 + 1 / 2 + 1) / 6) / 2)
    assert summary.errors == 1
    assert set(summarise(verdicts).estimates) == {
        f"{m}{k}" for m in ("mean@", "pass@", "pass^", "maj@") for k in (1, 3)
    }


def test_an_estimate_does_not_change_with_the_number_of_samples_behind_it() -> None:
    # the same policy sampled 2, 4 or 8 times: right in half of them
    values = [
        summarise({"a": [RIGHT, WRONG] * n, "b": [WRONG, RIGHT] * n}, [1]).estimates["mean@1"].value for n in (1, 2, 4)
    ]
    assert values == [0.5, 0.5, 0.5]


def test_no_vote_is_counted_where_verdicts_name_no_answer() -> None:
    assert "maj@1" not in summarise({"a": [RIGHT, WRONG]}, [1]).estimates


def test_too_few_samples_of_a_problem_are_named() -> None:
    with pytest.raises(ValueError, match=r"k = 4, but problem 'b' has n = 2"):
        summarise({"a": [RIGHT] * 4, "b": [RIGHT] * 2}, [1, 4])
    with pytest.raises(ValueError, match=r"problem 'b' has n = 0"):
        summarise({"a": [RIGHT], "b": []})
    with pytest.raises(ValueError, match="no problems"):
        summarise({})

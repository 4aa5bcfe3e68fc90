"""`rlvr report A B`: the same problems on both sides, problem by problem; folders of seeds, seed by seed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rlvr.cli import main
from rlvr.report.paired import by_problem, paired
from rlvr.report.sides import Side, seeds_in, sides_of

T2, T3 = 4.302653, 3.182446  # Student's t at 0.975 of two and three degrees of freedom


def make(
    folder: Path, shares: Mapping[str, float] | None, rewards: tuple[float, ...] = (0.25, 0.5), seed: int = 0
) -> Path:
    """A run as its folder tells it: shares of right answers by problem after training, None: no evaluation."""
    folder.mkdir(parents=True)
    start = {"event": "start", "time": 0.0, "seed": seed, "method": "grpo"}
    (folder / "events.jsonl").write_text(json.dumps(start) + "\n")
    lines = [{"step": n, "time": 0.0, "reward/mean": reward} for n, reward in enumerate(rewards, 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if shares is not None:
        told = [{"task": t, "prompt": f"{t}?", "answer": f"gold of {t}", "share_right": s} for t, s in shares.items()]
        (folder / "eval-after.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    return folder


A = {"p": 0.25, "q": 0.5, "r": 0.0, "s": 1.0}
B = {"s": 1.0, "r": 0.25, "q": 0.5, "p": 0.5}  # differences 1/4, 0, 1/4, 0: mean 1/8, s^2 = 4/64 / 3


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["report", *arguments])
        said = capsys.readouterr()
        assert ended.value.code in (0, None), said.err
        return said.out

    return run


# ---- by problem ------------------------------------------------------------------------------------------
def test_the_difference_over_four_problems_by_hand(tmp_path: Path) -> None:
    e = by_problem(make(tmp_path / "a", A), make(tmp_path / "b", B))
    half = T3 * math.sqrt(1 / 48 / 4)
    assert (e.value, e.n) == (0.125, 4)
    assert (e.low, e.high) == pytest.approx((0.125 - half, 0.125 + half), abs=1e-6)
    back = by_problem(tmp_path / "b", tmp_path / "a")
    assert (back.value, back.low, back.high) == pytest.approx((-e.value, -e.high, -e.low))


def test_only_problems_of_both_sides_count_and_one_name_with_two_golds_is_two_problems(tmp_path: Path) -> None:
    make(tmp_path / "a", {**A, "only a": 0.0})
    make(tmp_path / "b", {**B, "only b": 1.0})
    assert by_problem(tmp_path / "a", tmp_path / "b").n == 4
    lines = (tmp_path / "b" / "eval-after.jsonl").read_text()
    (tmp_path / "b" / "eval-after.jsonl").write_text(lines.replace('"gold of p"', '"another"'))
    e = by_problem(tmp_path / "a", tmp_path / "b")
    assert (e.n, e.value) == (3, pytest.approx(0.25 / 3))


def test_pairing_tells_apart_what_two_intervals_hide(tmp_path: Path) -> None:
    """Shares from 0 to 0.8 on either side, and every problem a little better on the second."""
    low = {str(i): i / 10 for i in range(9)}
    gains = [0.1, 0.2] * 4 + [0.1]
    make(tmp_path / "a", low)
    make(tmp_path / "b", {name: share + gain for (name, share), gain in zip(low.items(), gains)})
    (told,) = paired(sides_of([tmp_path / "a", tmp_path / "b"]))
    assert told.difference.value == pytest.approx(1.3 / 9)
    assert told.difference.low > 0.1
    assert str(told).startswith("b against a, share of right answers after training: +0.144, 95% interval +0.1")
    assert str(told).endswith("(9 problems paired); better: the interval lies above 0")
    (back,) = paired(sides_of([tmp_path / "b", tmp_path / "a"]))
    assert back.words == "worse: the interval lies below 0"


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        (A, {"x": 1.0}, "they were evaluated on other tasks"),
        (A, None, "b has no evaluation after training"),
        (None, None, "a and b have no evaluation after training"),
    ],
)
def test_what_cannot_be_paired_is_said(
    tmp_path: Path, report: Callable[..., str], a: Mapping[str, float] | None, b: Mapping[str, float] | None, why: str
) -> None:
    make(tmp_path / "a", a)
    make(tmp_path / "b", b)
    assert report("a", "b") == f"comparison.html\nb and a cannot be paired: {why}\n"
    assert f"<td>{why}</td>" in (tmp_path / "comparison.html").read_text()
    (told,) = json.loads(report("a", "b", "--json"))["paired"]
    assert (told["n"], told["difference"], told["words"]) == (0, None, why)


def test_the_command_and_the_page_tell_the_same(tmp_path: Path, report: Callable[..., str]) -> None:
    make(tmp_path / "a", A)
    make(tmp_path / "b", B)
    make(tmp_path / "c", A)
    said = " ".join(report("a", "b", "c").split())  # lines are wrapped
    told = "95% interval -0.105 .. +0.355 (4 problems paired); not told apart: the interval holds 0"
    assert said.startswith(
        f"comparison.html b against a, share of right answers after training: +0.125, {told} c against"
    )
    assert (
        "c against a, share of right answers after training: +0.000, 95% interval +0.000 .. +0.000 (4 problems" in said
    )
    assert said.endswith("every pair is equal")
    page = (tmp_path / "comparison.html").read_text()
    assert '<td class="num">4 problems</td><td class="num">+0.125</td><td class="num">-0.105 .. +0.355</td>' in page
    assert "says nothing of other seeds" in page
    told_b, _ = json.loads(report("a", "b", "c", "--json"))["paired"]
    assert (told_b["run"], told_b["against"], told_b["over"], told_b["n"]) == ("b", "a", "problems", 4)


# ---- by seed ---------------------------------------------------------------------------------------------
def seeds(folder: Path, by_seed: Mapping[int, tuple[float, float]], rewards: Mapping[int, float]) -> None:
    for seed, (p, q) in by_seed.items():
        make(folder / f"seed-{seed}", {"p": p, "q": q}, (rewards[seed],), seed)
    (folder / "comparison.html").write_text("")  # as --seeds leaves it


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """Differences of a seed's two problems: 1/4, 0 | 1/2, 1/4 | 0, -1/4: means 1/8, 3/8, -1/8; their mean 1/8, s = 1/4.
    Seed 7 is on one side alone."""
    seeds(
        tmp_path / "a", {0: (0.25, 0.5), 1: (0.0, 0.25), 2: (0.5, 0.5), 7: (1.0, 1.0)}, {0: 0.1, 1: 0.5, 2: 0.3, 7: 0}
    )
    seeds(tmp_path / "b", {0: (0.5, 0.5), 1: (0.5, 0.5), 2: (0.5, 0.25)}, {0: 0.2, 1: 0.6, 2: 0.4})
    return tmp_path


def test_two_folders_of_seeds_are_paired_by_seed(both: Path, report: Callable[..., str]) -> None:
    (told,) = paired(sides_of([both / "a", both / "b"]))
    half = T2 * 0.25 / math.sqrt(3)
    assert (told.over, told.difference.n, told.difference.value) == ("seeds", 3, 0.125)
    assert (told.difference.low, told.difference.high) == pytest.approx((0.125 - half, 0.125 + half), abs=1e-6)
    said = " ".join(report("a", "b").split())
    assert "+0.125, 95% interval -0.496 .. +0.746 (3 seeds paired); not told apart: the interval holds 0" in said
    page = (both / "comparison.html").read_text()
    assert "<b>+0.1</b>" in page  # every seed's reward rose by a tenth: by itself each scatters far more
    assert "speaks of other trainings on these problems" in page
    assert "grpo, seeds 0, 1, 2, 7" in page


def test_a_folder_of_seeds_alone_is_told_together(both: Path, report: Callable[..., str]) -> None:
    assert report("b") == "b/comparison.html\n"
    assert "All seeds together" in (both / "b" / "comparison.html").read_text()
    assert list(seeds_in(both / "a")) == [0, 1, 2, 7]
    assert len(json.loads(report("b", "--json"))["runs"]) == 3


def test_a_run_beside_seeds_is_paired_with_its_own_seed_by_problem(both: Path, report: Callable[..., str]) -> None:
    make(both / "one", {"p": 0.5, "q": 1.0}, seed=2)  # 0 and 3/4 more than b's seed 2: mean 3/8
    (told,) = paired(sides_of([both / "b", both / "one"]))
    assert (told.over, told.difference.n, told.difference.value) == ("problems", 2, 0.375)
    make(both / "other", {"p": 0.5}, seed=9)
    assert "no seed is on both sides: b has 0, 1, 2; other has 9" in " ".join(report("b", "other").split())
    with pytest.raises(FileNotFoundError, match="is not a run folder"):
        sides_of([both])


def test_the_curve_of_several_seeds_is_their_mean_where_all_have_come(tmp_path: Path) -> None:
    make(tmp_path / "a" / "seed-0", None, (0.0, 0.25, 0.5))
    make(tmp_path / "a" / "seed-1", None, (1.0, 0.75), seed=1)
    (side,) = sides_of([tmp_path / "a"])
    assert isinstance(side, Side)
    assert side.curve.steps.tolist() == [1, 2]
    assert side.curve.get("reward/mean").tolist() == [0.5, 0.5]

"""`rlvr train --seeds`: one run a seed, and one page with the mean over them and its interval."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from rlvr.cli import main
from rlvr.evaluate.statistics import mean_of

SETS = ["steps=4", "prompts_per_step=4", "group_size=4", "tasks.n=60", "eval.problems=8", "eval.k=2", "threads=1"]


def test_the_mean_of_three_numbers_and_its_interval() -> None:
    """1, 2, 6: mean 3, s^2 = (4 + 1 + 9) / 2 = 7; Student's t of two degrees of freedom at 0.975 is 4.302653."""
    e = mean_of([1.0, 2.0, math.nan, 6.0])
    half = 4.302653 * math.sqrt(7 / 3)
    assert (e.value, e.n) == (3.0, 3)
    assert (e.low, e.high) == pytest.approx((3 - half, 3 + half), abs=1e-5)
    assert math.isnan(mean_of([2.0]).low)
    assert mean_of([math.nan]).n == 0


def test_two_seeds_are_two_runs_and_one_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main_ = lambda *arguments: main(["train", "quickstart", *(f"--set={s}" for s in SETS), *arguments])  # noqa: E731
    with pytest.raises(SystemExit) as ended:
        main_("--seeds", "2", "--seed", "5", "--out", "both")
    assert not ended.value.code
    out = capsys.readouterr().out
    assert sorted(p.name for p in Path("both").iterdir()) == ["comparison.html", "seed-5", "seed-6"]
    rewards = []
    for n in (5, 6):
        assert f"seed = {n}\n" in Path(f"both/seed-{n}/recipe.toml").read_text()
        lines = [json.loads(line) for line in Path(f"both/seed-{n}/metrics.jsonl").read_text().splitlines()]
        rewards.append(lines[-1]["reward/mean"])  # the last quarter of four steps
    assert rewards[0] != rewards[1]
    mean, half = sum(rewards) / 2, 12.7062 * abs(rewards[0] - rewards[1]) / 2  # t of one degree of freedom
    (told,) = [line for line in out.splitlines() if line.strip().startswith("reward/mean")]
    assert f"{mean:.3f}   95% interval {mean - half:.3f} .. {mean + half:.3f}" in told
    page = Path("both/comparison.html").read_text()
    assert "All seeds together" in page
    assert "running_sums mean@2, after" in page
    with pytest.raises(SystemExit) as ended:  # a seed alone is the same run
        main_("--seed", "6", "--out", "alone")
    weights = [Path(f, "model/model.safetensors").read_bytes() for f in ("both/seed-6", "alone")]
    assert weights[0] == weights[1]


def test_seeds_do_not_go_with_resume(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "--resume", "x", "--seeds", "2"])
    assert ended.value.code == 2
    assert "without --seeds" in capsys.readouterr().err

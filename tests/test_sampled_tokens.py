"""Runs that end by what they have sampled, and a sampler with a seed of its own."""

import json
from pathlib import Path

import pytest

from rlvr.recipe import make_recipe
from rlvr.resume import AnotherRun
from rlvr.run import train

SMALL = {
    "model": "nano",
    "tasks": {"name": "running_sums", "n": 40},
    "steps": 6,
    "prompts_per_step": 4,
    "group_size": 4,
    "updates_per_batch": 2,
    "max_tokens": 16,
    "lr": 1e-3,
    "checkpoint_every": 0,
    "rollouts_every": 0,
    "eval": {"problems": 4, "k": 2},
}


def made(folder: Path, **more: object):  # type: ignore[no-untyped-def]
    return train(make_recipe({**SMALL, **more}), folder, sinks=("jsonl", "parquet"))


def lines(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    made(folder, steps=4, rollouts_every=1)
    return folder


def tokens(run: Path) -> list[int]:
    return [int(line["rollouts/tokens"]) for line in lines(run)]


def test_the_tokens_of_a_step_are_those_of_its_written_answers(whole: Path) -> None:
    from rlvr.report.store import read_rows, rollout_files

    written = [sum(row.length for row in read_rows(file)) for file in rollout_files(whole).values()]
    assert written == tokens(whole)


def test_a_run_ends_after_the_step_in_which_its_tokens_were_sampled(whole: Path, tmp_path: Path) -> None:
    """One token fewer than four steps sampled is reached in the fourth; so is that number itself. It is finished, and
    evaluated, and its last step is written."""
    every = tokens(whole)
    for budget in (sum(every[:3]) + 1, sum(every)):
        run = made(tmp_path / str(budget), sampled_tokens=budget)
        assert run.summary["status"] == "finished"
        assert run.summary["steps"] == 4
        assert set(run.summary["eval"]) >= {"before", "after"}
        assert sorted(file.stem for file in (run.folder / "rollouts").iterdir()) == ["step-00001", "step-00004"]
    assert weights(run.folder) == weights(whole)  # nothing else is another run's
    assert made(tmp_path / "three", sampled_tokens=sum(every[:3])).summary["steps"] == 3


def test_steps_end_a_run_that_samples_less(tmp_path: Path) -> None:
    assert made(tmp_path / "run", steps=2, sampled_tokens=10**9).summary["steps"] == 2


def test_the_count_survives_a_checkpoint(whole: Path, tmp_path: Path) -> None:
    """Killed after its second step and resumed, the run ends where it would have ended."""
    from rlvr.checkpoint import checkpoints

    budget = sum(tokens(whole)[:3]) + 1
    cut = made(tmp_path / "cut", sampled_tokens=budget, checkpoint_every=2, eval={"problems": 4, "k": 2})
    assert sorted(checkpoints(cut.folder)) == [2]  # the last step's state is the result itself
    recipe = make_recipe({**SMALL, "sampled_tokens": budget, "checkpoint_every": 2})
    again = train(recipe, cut.folder, sinks=("jsonl", "parquet"), resume=True)
    assert again.summary["steps"] == 4
    assert weights(cut.folder) == weights(whole)
    less = make_recipe({**SMALL, "sampled_tokens": sum(tokens(whole)[:2])})
    with pytest.raises(AnotherRun, match=r"up to step 2, so sampled_tokens = \d+ leaves none to make"):
        train(less, cut.folder, sinks=("jsonl",), resume=True)


def test_an_evaluation_on_the_way_is_not_made_twice_at_the_end(whole: Path, tmp_path: Path) -> None:
    budget = sum(tokens(whole)[:3]) + 1
    run = made(tmp_path / "run", sampled_tokens=budget, eval={"problems": 4, "k": 2, "every": 2})
    assert [when for when in run.summary["eval"] if when.startswith("step")] == ["step 2"]


def test_another_sampler_seed_asks_the_same_and_hears_other_answers(whole: Path, tmp_path: Path) -> None:
    other = made(tmp_path / "other", steps=4, sampler_seed=5, rollouts_every=1)
    same = made(tmp_path / "same", steps=4, sampler_seed=0, rollouts_every=1)
    assert weights(same.folder) == weights(whole)  # the seed is 0 too
    assert weights(other.folder) != weights(whole)
    from rlvr.run import read

    asked = lambda folder: [(row.step, row.task) for row in read(folder).rollouts()]  # noqa: E731
    assert asked(other.folder) == asked(whole)
    assert [row.response for row in other.rollouts(1)] != [row.response for row in read(whole).rollouts(1)]
    before = lambda folder: json.loads((folder / "eval.json").read_text())["before"]  # noqa: E731
    assert before(other.folder) == before(whole)  # evaluations keep the run's own seed

"""`rlvr rollout`: what it writes is what was sampled, an interruption costs nothing, and its words teach."""

import io
import json
import os
import signal
from pathlib import Path

import pytest

from rlvr import rollouts
from rlvr.cli import main
from rlvr.engine.load import ModelError
from rlvr.folder import FolderTaken
from rlvr.recipe import Recipe, load_recipe, make_recipe
from rlvr.report.store import read_rows, rollout_files
from rlvr.rollouts import NoRollouts, resume, sample

SETS = ["threads=1", "eval.problems=6", "tasks.n=60"]


@pytest.fixture(autouse=True)
def four_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts, "AT_ONCE", 4)


@pytest.fixture
def recipe() -> Recipe:
    return load_recipe("quickstart", SETS)


def texts(folder: Path) -> list[tuple[str, str, str]]:
    return [(r.task, r.response, r.verdict) for file in rollout_files(folder).values() for r in read_rows(file)]


def lines_of(folder: Path) -> list[dict]:  # type: ignore[type-arg]
    return [json.loads(line) for line in (folder / "tasks.jsonl").read_text().splitlines()]


def stop_after(files: int):  # type: ignore[no-untyped-def]
    asked = iter([False] * files + [True])
    return lambda: next(asked)


def test_the_table_counts_what_the_files_hold(tmp_path: Path, recipe: Recipe) -> None:
    done = sample(recipe, tmp_path / "r", answers=3, tasks=10)
    assert done.done
    assert list(rollout_files(tmp_path / "r")) == [1, 2, 3]
    lines = lines_of(tmp_path / "r")
    assert lines == list(done.lines)
    assert len({line["task"] for line in lines}) == 10
    of_task: dict[str, list[bool]] = {}
    tokens = 0
    for file in rollout_files(tmp_path / "r").values():
        for row in read_rows(file):
            wanted = f"{sum(int(n) for n in row.prompt.rstrip('=').split('+')):02d}"
            assert row.answer == wanted
            is_right = row.response.rpartition("#")[2] == wanted and "#" in row.response
            of_task.setdefault(row.task, []).append(is_right)
            assert (row.verdict == "right") == is_right
            assert len(row.streams["behavior_logp"]) == row.length
            tokens += row.length
    assert {line["task"]: (line["answers"], line["right"]) for line in lines} == {
        task: (3, sum(right)) for task, right in of_task.items()
    }
    assert all(line["known"] == 3 and line["share_right"] == line["right"] / 3 for line in lines)
    assert {line["verifier"] for line in lines} == {"hash_marker(marker='#', inner=plain())"}
    told = done.told()
    assert told["right"][0] == pytest.approx(sum(map(sum, of_task.values())) / 30)
    assert told["tokens"] == pytest.approx(tokens / 30)
    mixed = sum(0 < sum(right) < 3 for right in of_task.values())
    assert told["mixed"] == pytest.approx(mixed / 10)
    assert told["solved"] + told["failed"] + told["mixed"] == pytest.approx(1)
    assert load_recipe(tmp_path / "r") == recipe


def test_nothing_is_lost_and_nothing_made_twice_by_an_interruption(tmp_path: Path, recipe: Recipe) -> None:
    whole = sample(recipe, tmp_path / "whole", 2, 10)
    part = sample(recipe, tmp_path / "part", 2, 10, asked_to_stop=stop_after(1))
    assert not part.done
    assert part.lines == whole.lines[:4]
    before = rollout_files(tmp_path / "part")[1].stat().st_mtime_ns
    again = resume(load_recipe(tmp_path / "part"), tmp_path / "part")
    assert again.done
    assert again.lines == whole.lines
    assert texts(tmp_path / "part") == texts(tmp_path / "whole")
    assert rollout_files(tmp_path / "part")[1].stat().st_mtime_ns == before
    assert resume(load_recipe(tmp_path / "part"), tmp_path / "part").lines == whole.lines  # nothing left to do


def test_a_kill_leaves_whole_files_and_half_a_line_is_made_again(tmp_path: Path, recipe: Recipe) -> None:
    whole = sample(recipe, tmp_path / "whole", 2, 10)
    torn = tmp_path / "torn"
    sample(recipe, torn, 2, 10, asked_to_stop=stop_after(2))
    text = (torn / "tasks.jsonl").read_text()
    (torn / "tasks.jsonl").write_text(text[: len(text) - 200])  # within the second file's lines
    assert resume(load_recipe(torn), torn).lines == whole.lines
    assert lines_of(torn) == list(whole.lines)
    assert texts(torn) == texts(tmp_path / "whole")


def test_ctrl_c_twice_within_a_file_keeps_the_files_before(
    tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify, calls = rollouts.verified, []

    def interrupted(*given):  # type: ignore[no-untyped-def]
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return verify(*given)

    monkeypatch.setattr(rollouts, "verified", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sample(recipe, tmp_path / "r", 2, 10)
    assert len(lines_of(tmp_path / "r")) == 4
    assert list(rollout_files(tmp_path / "r")) == [1]
    monkeypatch.setattr(rollouts, "verified", verify)
    assert resume(load_recipe(tmp_path / "r"), tmp_path / "r").done


def test_the_evaluation_tasks_are_others(tmp_path: Path, recipe: Recipe) -> None:
    train = sample(recipe, tmp_path / "train", 1)
    held = sample(recipe, tmp_path / "eval", 1, split="eval")
    assert (len(train.lines), len(held.lines)) == (60, 6)
    assert not {line["task"] for line in train.lines} & {line["task"] for line in held.lines}


def test_answers_without_a_verdict_are_not_wrong_ones(tmp_path: Path) -> None:
    (tmp_path / "v.py").write_text("def f(answer, gold):\n    raise RuntimeError('no')\n")
    recipe = make_recipe(
        {"tasks": {"name": "running_sums", "n": 8}, "verifier": f"{tmp_path / 'v.py'}:f", "threads": 1}
    )
    done = sample(recipe, tmp_path / "r", 2, 4)
    assert [(line["known"], line["right"], line["share_right"]) for line in done.lines] == [(0, 0, None)] * 4
    told = done.told()
    assert told["unknown"] == 1
    assert told["solved"] == told["failed"] == told["mixed"] == 0


def test_progress_is_drawn_on_a_terminal(tmp_path: Path, recipe: Recipe) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    seen = Terminal()
    sample(recipe, tmp_path / "r", 1, 8, shown_to=seen)
    assert "sampling" in seen.getvalue()
    assert "8/8" in seen.getvalue()
    seen_in_a_log = io.StringIO()
    sample(recipe, tmp_path / "s", 1, 8, shown_to=seen_in_a_log)
    assert seen_in_a_log.getvalue() == "4 of 8 tasks\n8 of 8 tasks\n"


# ---- bad input -------------------------------------------------------------------------------------------
def test_what_cannot_be_done_is_said_before_there_is_a_folder(tmp_path: Path, recipe: Recipe) -> None:
    folder = tmp_path / "r"
    with pytest.raises(NoRollouts, match="answers is a number from 1, got 0"):
        sample(recipe, folder, 0)
    with pytest.raises(NoRollouts, match="tasks is a number from 1, got -1"):
        sample(recipe, folder, 1, -1)
    with pytest.raises(NoRollouts, match="no eval tasks"):
        sample(load_recipe("quickstart", ["eval.problems=0"]), folder, 1, split="eval")
    with pytest.raises(ModelError, match="there is no folder no_such"):
        sample(load_recipe("quickstart", ["model=no_such/folder/model"]), folder, 1)
    assert not folder.exists()
    folder.mkdir()
    (folder / "mine").write_text("")
    with pytest.raises(FolderTaken):
        sample(recipe, folder, 1)


def test_a_folder_is_gone_on_with_only_where_it_is_the_same_work(tmp_path: Path, recipe: Recipe) -> None:
    with pytest.raises(NoRollouts, match=r"it has no rollout\.json"):
        resume(recipe, tmp_path)
    sample(recipe, tmp_path / "r", 1, 8, asked_to_stop=stop_after(1))
    with pytest.raises(NoRollouts, match="is of other tasks than its recipe has now"):
        resume(load_recipe("quickstart", [*SETS, "tasks.seed=9"]), tmp_path / "r")


# ---- the command -----------------------------------------------------------------------------------------
def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = 0
    try:
        main(arguments)
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    return (code, *capsys.readouterr())


def test_the_command_samples_tells_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sets = [x for key in SETS for x in ("--set", key)]
    made, first = rollouts.rows_of, []

    def signalled(*given):  # type: ignore[no-untyped-def]
        if not first:
            first.append(os.kill(os.getpid(), signal.SIGINT))
        return made(*given)

    monkeypatch.setattr(rollouts, "rows_of", signalled)
    code, out, err = said(capsys, "rollout", "quickstart", *sets, "--k", "2", "--tasks", "8", "--out", "r")
    assert code == 1
    assert "4 of 8 tasks; go on with: rlvr rollout --resume r" in err
    code, out, err = said(capsys, "rollout", "--resume", "r")
    assert code == 0
    assert "nano: 8 tasks, 2 answers each" in out
    assert "95% interval" in out
    code, out, _ = said(capsys, "rollout", "nano", "--recipe", "r", "--tasks", "4", "--k", "1", "--json", "--out", "s")
    assert code == 0
    assert json.loads(out)["tasks"] == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "one of the two"),
        (("quickstart", "--resume", "r"), "one of the two"),
        (("quickstart", "--k", "0"), "--k is 1 or more"),
        (("quickstart", "--split", "test"), "--split is train or eval"),
        (("--resume", "r", "--k", "2"), "leave --k out"),
        (("quickstart", "--recipe", "math"), "give one of the two"),
        (("nano", "--model", "micro"), "give one of the two"),
        (("quickstart.toml",), "there is no file quickstart.toml"),
        (("quickstart", "--method", "rloo"), "No such option"),
    ],
)
def test_what_the_command_cannot_do_is_a_sentence(
    arguments: tuple[str, ...], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = said(capsys, "rollout", *arguments)
    assert code == 2
    assert says in " ".join(err.split())
    assert "Traceback" not in err


def test_a_run_without_a_model_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str], recipe: Recipe) -> None:
    (tmp_path / "recipe.toml").write_text(recipe.to_toml())
    code, _, err = said(capsys, "rollout", str(tmp_path), "--out", str(tmp_path / "r"))
    assert code == 2
    assert "a run without a model/" in err

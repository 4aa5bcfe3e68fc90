"""`rlvr retest`: rules that are committed first, runs that are made once, verdicts by hand."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rlvr import registry
from rlvr.assemble import plan_of
from rlvr.cli import main
from rlvr.evaluate.statistics import Estimate, student_p
from rlvr.folder import claimed
from rlvr.metrics import told_by
from rlvr.recipe import make_recipe
from rlvr.retest import book, child, document, home, queue, record, schema
from rlvr.retest.ahead import refuse_faults
from rlvr.retest.arms import mark_of
from rlvr.retest.columns import may_have
from rlvr.retest.families import adjusted
from rlvr.retest.home import Home
from rlvr.retest.record import Record
from rlvr.retest.statistics import holm, p_value, paired, verdict
from rlvr.reward.pays import Pays
from rlvr.stacking import build_method
from rlvr.testing import scene

ROOT = Path(__file__).parents[1]
STUB = Path(__file__).parent / "retest_stub.py"
RULE = """
paper = "gapo"
claim = "GAPO | is better than GRPO."
recipe = "../shared.toml"
seeds = 6
lr = [1e-4, 3e-4, 6e-4]
budget = { sampled_tokens = 150 }
delta = 0.05

[set]
group_size = 4

[metric]
name = "eval/mean@2"

[arms.base]
says = "GRPO"
method = "grpo"

[arms.method]
says = "GAPO"
method = "gapo"

[arms.control]
says = "one width"
method = "gapo"
set = { "papers.gapo.mode" = "fixed" }

[[secondary]]
name = "reward/mean"
steps = [1, 2]

[[precondition]]
says = "the start leaves room"
arm = "base"
metric = "start/mean@2"
at_least = 0.15
at_most = 0.40
"""
SHARED = 'tasks = "running_sums"\n[eval]\nk = 2\n'


# ---- the file --------------------------------------------------------------------------------------------
def written(folder: Path, text: str, name: str = "toy") -> Path:
    (folder / "experiments").mkdir(exist_ok=True)
    file = folder / "experiments" / f"{name}.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("delta = 0.05", "delta = 0.05\ndleta = 1", "line 9: `dleta` is not known; did you mean `delta`?"),
        ("delta = 0.05", "", "`delta` must be given"),
        ("delta = 0.05", "delta = 0", "`delta` is the number 0; wanted more than 0"),
        ("delta = 0.05", 'delta = "0.1"', '`delta` is the text "0.1"; wanted a number'),
        ('name = "eval/mean@2"', 'nmae = "eval/mean@2"', "`metric.nmae` is not known; did you mean `name`?"),
        ('name = "eval/mean@2"', 'name = "eval/mean@2"\nsteps = [1, 2]', "eval/mean@2 is measured once, so it has no"),
        ('name = "eval/mean@2"', 'name = "eval/pas@2"', "eval/pas@2: evaluations measure mean@k, pass@k, pass^k and"),
        ("group_size = 4", '"eval.k" = 3', "at k = eval.k, which is 3; write mean@3"),
        ("delta = 0.05", 'delta = 0.05\nlr_by = "eval/x"', "eval/x: evaluations measure mean@k"),
        ("at_least = 0.15", "at_least = 0.5", "can never hold: at_least is above at_most"),
        ("[arms.control]", "[arms.controll]", "[arms] are base, method, controll; the main table has exactly base, m"),
        ('says = "GAPO"', 'say = "GAPO"', "`arms.method.say` is not known; did you mean `says`?"),
        ("seeds = 6", "seeds = 5", "`seeds` is the number 5; wanted 6 or more"),
        ("seeds = 6", "seeds = 1000000000", "`seeds` is the number 1000000000; wanted at most 1000"),
        ("lr = [1e-4, 3e-4, 6e-4]", "lr = 1e-4", "`lr` is the number 0.0001; wanted three learning rates, which are"),
        ("lr = [1e-4, 3e-4, 6e-4]", "", "`lr` must be given: three learning rates, which are searched for every arm"),
        ("6e-4]", "6e-4]\nlr_by = 3", "`lr_by` is the number 3; wanted a text"),
        (
            "lr = [1e-4, 3e-4, 6e-4]",
            "lr = []",
            "`lr` is an empty list; wanted three learning rates, which are searched for",
        ),
        ("seeds = 6", "first_seed = 0", "`first_seed` is the number 0; wanted 1 or more"),
        ("6e-4]", "6e-4, 1e-3]", "`lr` is a list of 4; wanted three learning rates"),
        ("6e-4]", "3e-4]", "holds a value twice; three different ones are searched"),
        ("{ sampled_tokens = 150 }", "{ }", "budget wants one of sampled_tokens and steps"),
        (
            "{ sampled_tokens = 150 }",
            "{ tokens = 150 }",
            "`budget.tokens` is not known; did you mean `sampled_tokens`?",
        ),
        ("group_size = 4", "seed = 4", "[set] sets seed, which the rule gives to every run"),
        (
            '"papers.gapo.mode" = "fixed"',
            "steps = 4",
            "control.set sets steps, but arms are compared at the equal budg",
        ),
        ('paper = "gapo"', 'paper = "gappo"', "paper = \"gappo\" is not registered; did you mean 'gapo'?"),
        (
            'arm = "base"',
            'arm = "bass"',
            "precondition 'the start leaves room' looks at arm 'bass'; did you mean 'base'?",
        ),
        ("at_least = 0.15\nat_most = 0.40", "", "precondition 'the start leaves room' has no limit"),
        ("steps = [1, 2]", "steps = [2, 1]", "steps = [2, 1] of reward/mean end before they begin"),
        ("delta = 0.05", 'delta = 0.05\nrevises = "toy"', "revises and because belong together"),
        ("delta = 0.05", "delta = ", "is not TOML"),
    ],
)
def test_every_fault_of_a_file_is_a_sentence(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert RULE.count(old) >= 1
    with pytest.raises(schema.ExperimentError) as error:
        schema.read(written(tmp_path, RULE.replace(old, new, 1)))
    assert said in str(error.value)


def test_a_revision_is_named_after_what_it_revises_and_takes_new_seeds(tmp_path: Path) -> None:
    written(tmp_path, RULE)
    why = 'revises = "toy"\nbecause = "the clip never acted"\n'
    new_seeds = RULE.replace("seeds = 6", "seeds = 6\nfirst_seed = 7")
    assert schema.read(written(tmp_path, why + new_seeds, "toy-2")).seed_list == range(7, 13)
    for text, name, said in (
        (why + RULE, "toy-2", "seeds 1, 2, 3, 4, 5, 6 were used by toy.toml; a revision takes new ones"),
        (new_seeds, "toy-2", 'toy-2.toml is a revision by its name; write revises = "toy"'),
        (why + new_seeds, "other", "a revision of toy is called toy-2.toml"),
        (why.replace("toy", "lost") + new_seeds, "lost-2", "lost-2.toml revises lost.toml, which is not there"),
        (why + new_seeds, "toy-3", "seeds 7, 8, 9, 10, 11, 12 were used by toy-2.toml"),
        (why + new_seeds, "toy-4", "a revision of toy is called toy-2.toml, or toy-3.toml where"),
    ):
        if name == "toy-3":
            written(tmp_path, why + new_seeds, "toy-2")
        with pytest.raises(schema.ExperimentError, match=said.replace(".", r"\.")):
            schema.read(written(tmp_path, text, name))


def test_the_shipped_experiments_can_be_read_and_say_what_each_run_is() -> None:
    here = Home(ROOT)
    marks: dict[str, set[str]] = {}
    for name in here.names():
        found = book.load(here, name, {})
        for slot in found.to_do():
            recipe = found.recipe(slot)
            assert (recipe.seed, recipe.lr, recipe.threads) == (0, slot.lr, 1)
            marks.setdefault(mark_of(recipe), set()).add(f"{name} {slot.arm}")
    assert any({"null base", "positive method", "gapo base"} <= names for names in marks.values())  # one run for all


# ---- statistics ------------------------------------------------------------------------------------------
def test_paired_differences_by_hand() -> None:
    """1, 2, 3: mean 2, standard deviation 1; t_{.975, 2} = 4.302653; T = 2 sqrt 3, and for two degrees of freedom
    P(|T| >= t) = 1 - t / sqrt(2 + t^2)."""
    got = paired({1: 2.0, 2: 3.0, 3: 5.0, 4: 1.0, 9: math.nan}, {1: 1.0, 2: 1.0, 3: 2.0, 5: 1.0, 9: 0.0})
    assert dict(got.differences) == {1: 1.0, 2: 2.0, 3: 3.0}
    assert got.estimate.value == pytest.approx(2)
    assert (got.estimate.low, got.estimate.high) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5), 1e-6)
    assert got.p == pytest.approx(1 - math.sqrt(12 / 14))
    worse = paired({1: 2.0, 2: 3.0, 3: 5.0}, {1: 1.0, 2: 1.0, 3: 2.0}, sign=-1.0)
    assert worse.estimate.value == pytest.approx(-2)
    assert worse.p == pytest.approx(got.p)


@pytest.mark.parametrize(
    ("t", "freedom", "p"),  # any textbook's table of Student's t
    [(12.706, 1, 0.05), (4.303, 2, 0.05), (2.571, 5, 0.05), (2.365, 7, 0.05), (3.499, 7, 0.01), (5.408, 7, 0.001)],
)
def test_p_is_that_of_the_tables(t: float, freedom: int, p: float) -> None:
    assert student_p(t, freedom) == pytest.approx(p, rel=2e-3)
    assert student_p(-t, freedom) == student_p(t, freedom)


def test_p_is_scipys() -> None:
    for freedom in (1, 2, 3, 5, 7, 8, 11, 30):
        for t in (0.0, 0.3, 1.0, 2.0, 4.0, 9.0):
            assert student_p(t, freedom) == pytest.approx(2 * stats.t.sf(t, freedom), rel=1e-9, abs=1e-14)
    x = [0.3, -0.1, 0.4, 0.2, 0.25, 0.0]
    assert p_value(x) == pytest.approx(stats.ttest_1samp(x, 0).pvalue)
    assert [p_value([0.5, 0.5]), p_value([0.0, 0.0])] == [0.0, 1.0]
    assert math.isnan(p_value([0.5]))


@pytest.mark.parametrize(
    ("value", "low", "high", "word"),
    [
        (0.03, 0.01, 0.05, "shown"),
        (0.02, 0.01, 0.03, "shown"),  # delta itself is enough
        (0.015, 0.001, 0.029, "not shown"),  # above 0, but too small to be worth having and not surely small
        (0.03, -0.01, 0.07, "not shown"),
        (0.01, 0.001, 0.019, "equivalent"),
        (0.0, -0.019, 0.019, "equivalent"),
        (0.0, -0.02, 0.019, "not shown"),  # touches the band's edge
        (-0.03, -0.05, -0.01, "opposite"),
        (-0.015, -0.029, -0.001, "not shown"),
        (0.0, 0.0, 0.0, "equivalent"),
        (0.5, math.nan, math.nan, None),
    ],
)
def test_the_four_verdicts(value: float, low: float, high: float, word: str | None) -> None:
    assert verdict(Estimate(value, low, high, 8), 0.02) == word


def test_holm_by_hand() -> None:
    """Three: .01 * 3, then .03 * 2, then .04 * 1, which may not be below the one before. With a fourth that has not
    run: .01 * 4, .03 * 3, and .04 * 2 < .09."""
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    with_lacking = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": math.nan})
    assert {k: with_lacking[k] for k in "abc"} == pytest.approx({"a": 0.04, "b": 0.09, "c": 0.09})
    assert math.isnan(with_lacking["d"])
    assert holm({"a": 0.9, "b": 0.6}) == {"a": 1.0, "b": 1.0}


def test_a_revision_leaves_first_results_as_they_were() -> None:
    """Alone .02 * 2 = .04; with the revision, three: the revision's .001 * 3."""
    families = {"one": ["a", "b"]}
    assert adjusted(families, {"a": 0.02})["a"] == pytest.approx(0.04)
    later = adjusted(families, {"a": 0.02, "a-2": 0.001})
    assert later["a"] == pytest.approx(0.04)
    assert later["a-2"] == pytest.approx(0.003)


# ---- records and marks -----------------------------------------------------------------------------------
def test_a_runs_numbers_by_name() -> None:
    columns = {"x": [1, 2, None, 4, 5, 6, 7, 9], "y": [None, 1]}
    told = {"columns": columns, "eval": {"before": {"mean@2": [0.1, 0, 1]}, "after": {"mean@2": [0.7, None, None]}}}
    run = Record("m", told)
    assert run.value("start/mean@2") == 0.1
    assert run.value("eval/mean@2") == 0.7
    assert run.value("x") == 8  # the last quarter of eight steps
    assert run.value("x", [2, 4]) == 3  # without what was not measured
    assert run.value("y") == 1
    assert math.isnan(run.value("z"))
    assert math.isnan(run.value("eval/pass@2"))


def test_a_budget_is_summed_over_steps(tmp_path: Path) -> None:
    """20 + 30 sampled; a reference and a teacher read 5 + 7 and 1; no judge was asked."""
    steps = [
        {
            "step": 1,
            "rollouts/sampled": 4,
            "rollouts/tokens": 20,
            "score/reference/tokens": 5,
            "score/teacher/tokens": 1,
        },
        {
            "step": 2,
            "rollouts/sampled": 4,
            "rollouts/tokens": 30,
            "score/reference/tokens": 7,
            "score/teacher/tokens": None,
        },
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in steps))
    told = record.measured(tmp_path)
    assert told["budget"] == {"rollouts": 8, "sampled_tokens": 50, "scored_tokens": 13}
    assert told["columns"]["score/teacher/tokens"] == [1, None]


def test_a_mark_is_of_settings_and_of_contents_not_of_places(tmp_path: Path) -> None:
    def mark(folder: str, text: str, **more: Any) -> str:
        file = tmp_path / folder / "tasks.jsonl"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return mark_of(make_recipe({"tasks": {"name": "jsonl", "path": str(file)}, **more}))

    one = mark("a", '{"prompt": "1", "answer": "1"}')
    assert mark("b", '{"prompt": "1", "answer": "1"}') == one
    assert mark("b", '{"prompt": "2", "answer": "2"}') != one
    assert mark("c", '{"prompt": "1", "answer": "1"}', group_size=16) == one  # the default
    assert mark("c", '{"prompt": "1", "answer": "1"}', seed=1) != one
    assert mark("c", '{"prompt": "1", "answer": "1"}', model="mini") != one


# ---- the queue, with runs that are made up ---------------------------------------------------------------
@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one committed experiment, in which runs are those of the stub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(child, "command", stub)
    monkeypatch.setattr(queue, "PAUSE", 0.01)
    (tmp_path / "docs").mkdir()
    written(tmp_path, RULE)
    (tmp_path / "shared.toml").write_text(SHARED)
    (tmp_path / ".gitignore").write_text("runs\n")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


FIXED = '"papers.gapo.mode" = "fixed"'
FAULTS = [  # what is written instead of what, and what is said of it
    (
        'method = "grpo"',
        'method = "gropo"',
        "arm base: SHARED: method gropo: no method is called 'gropo'; did you mean",
    ),
    (FIXED, '"papers.gapo.moed" = 1', "arm control: SHARED: set papers.gapo.moed=1: gapo has no argument 'moed'"),
    (FIXED, '"papers.gapo.mode" = "fixd"', "arm control: "),
    (FIXED, '"papers.gapo.low" = "0"', "gapo: low = '0' does not fit; wanted float | None"),
    (FIXED, 'sampler_seed = "a"', 'set sampler_seed="a": `sampler_seed` is the text "a"; wanted a whole number'),
    (FIXED, "a = 1979-05-27", "set a=1979-05-27: `a` is not known"),
    ("group_size = 4", 'group_size = "4"', 'arms base, method, control: SHARED: set group_size="4": `group_size` is'),
    ('method = "grpo"', 'method = "opdvr"', "arm base: opdvr wants a teacher, and the recipe names none"),
    (
        'method = "grpo"',
        'method = "cliff"\nset = { judge = "policy" }',
        'arm base: judge = "policy": the bundled model',
    ),
    (
        'method = "gapo"',
        'method = "gar"\nset = { "papers.gar.solution" = "s" }',
        "arm method: gar cannot work on these",
    ),
    ("group_size = 4", 'model = "nanno"', "arms base, method, control: no model 'nanno' is on this machine"),
    ("group_size = 4", '"eval.problems" = 0', 'metric.name = "eval/mean@2", arms base, method, control: nothing is'),
    ("../shared.toml", "../shard.toml", "there is no file ../shard.toml"),
    ("eval/mean@2", "eval/mean@4", "arms base, method, control: evaluations measure at k = eval.k, which is 2; write"),
    ("eval/mean@2", "eval/mean@2/hard", "arms base, method, control: no part 'hard' is told apart; set \"eval.by\""),
    ("eval/mean@2", "reward/maen", "arms base, method, control: no run has such a column; did you mean 'reward/mean'?"),
    ("eval/mean@2", "gapo/high", 'metric.name = "gapo/high", arm base: no run has such a column'),
    ("eval/mean@2", "optim/lr", "columns of clocks and of the learning rate are not kept"),
    ("delta = 0.05", 'delta = 0.05\nlr_by = "reward/maen"', 'lr_by = "reward/maen", arms base, method, control: no'),
    ("steps = [1, 2]", "steps = [70, 80]", "steps = [70, 80] begin after the last of 60 steps"),
    ('"reward/mean"', '"reward/maen"', 'secondary 1: name = "reward/maen", arms base, method, control: no run has'),
    ("start/mean@2", "gapo/high", "precondition 'the start leaves room': metric = \"gapo/high\", arm base: no run has"),
]


@pytest.mark.parametrize("how", ["", "--uncommitted", "--dry-run"])
@pytest.mark.parametrize(("old", "new", "said"), FAULTS, ids=[new for _, new, _ in FAULTS])
def test_what_would_end_an_experiment_is_told_before_any_run(
    checkout: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str, how: str
) -> None:
    assert RULE.count(old) >= 1
    file = written(checkout, RULE.replace(old, new, 1))
    commit(checkout)
    assert called("toy", *([how] if how else [])) == 2
    told = capsys.readouterr().err
    assert said.replace("SHARED", "shared.toml") in told
    assert str(file) in told
    assert not (checkout / "runs").exists()


def test_a_number_beside_is_told_where_one_arm_has_it(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(checkout, RULE.replace('"reward/mean"', '"gapo/high"'))  # not committed: that is what it is for
    assert called("toy", "--dry-run") == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1].split() == ["toy", "not", "begun", "27", "11"]
    assert told[2] == "nothing is wrong with toy"
    assert not (checkout / "runs").exists()
    assert not (checkout / "experiments" / "results").exists()


def test_a_dry_run_of_all_tells_of_all(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        written(checkout, RULE.replace("eval/mean@2", f"{name}/mean"), name)
    assert called("--dry-run") == 2
    told = capsys.readouterr().err
    assert all(f'metric.name = "{name}/mean"' in told for name in ("one", "two"))


def test_a_dry_run_tells_a_rule_that_has_changed(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("toy", "--seeds", "1") == 0
    assert called("toy", "--dry-run") == 0
    written(checkout, RULE.replace("delta = 0.05", "delta = 0.06"))
    assert called("toy", "--dry-run") == 2
    assert "has changed since its first run" in capsys.readouterr().err


def test_parts_of_an_evaluation_are_those_of_its_tasks(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "t.jsonl").write_text('{"prompt": "1+1=", "answer": "2", "meta": {"level": "easy"}}\n')
    source = '{ name = "jsonl", path = "t.jsonl" }'
    (checkout / "shared.toml").write_text(f'verifier = "numeric"\n{SHARED}by = "level"\ntasks = {source}\n')
    written(checkout, RULE.replace("eval/mean@2", "eval/mean@2/easy"))
    assert called("toy", "--dry-run") == 0
    written(checkout, RULE.replace("eval/mean@2", "eval/mean@2/hard"))
    assert called("toy", "--dry-run") == 2
    assert "eval.by = 'level' parts the tasks into easy" in capsys.readouterr().err


def test_a_number_that_no_run_turns_out_to_have_ends_the_queue_at_the_first(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stub's runs have no clip."""
    written(checkout, RULE.replace('name = "eval/mean@2"', 'name = "policy/clip_frac"', 1))
    commit(checkout)
    assert called("toy") == 2
    assert "a run of arm base has no column 'policy/clip_frac', which decides" in capsys.readouterr().err
    assert len(list((checkout / "experiments/results/runs").glob("*.json"))) == 1


def test_numbers_of_a_rule_that_has_begun_are_not_looked_over(checkout: Path) -> None:
    """It cannot be changed any more, and what decides in it can be had."""
    assert called("toy", "--seeds", "1") == 0
    file = checkout / "experiments/results/toy.json"
    text = RULE.replace('"reward/mean"', '"reward/maen"')
    read = schema.read(written(checkout, text))
    file.write_text(json.dumps({**json.loads(file.read_text()), "rule": book.rule_of(read)}))
    commit(checkout)
    assert called("toy", "--seeds", "2") == 0


OWN = """
from dataclasses import dataclass
from rlvr.registry import register

@dataclass(frozen=True)
class Same:
    rank = 2
    needs = ("advantage",)

    def __call__(self, batch):
        return batch["advantage"]

@register("method")
def own(method):
    return method.prefer("own", reshape=Same())
"""


def test_of_a_paper_from_elsewhere_any_number_is_believed(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._things, "method", dict(registry._things["method"]))
    (checkout / "own.py").write_text(OWN)
    text = RULE.replace('method = "gapo"', 'method = "own.py:own"', 1).replace('"reward/mean"', '"made/up"')
    written(checkout, text)
    assert called("toy", "--dry-run") == 0
    written(checkout, text.replace("own.py:own", "gapo"))
    assert called("toy", "--dry-run") == 2


@pytest.mark.parametrize("name", registry.names("method"))
def test_columns_that_a_run_may_have_are_all_that_its_pieces_tell(name: str) -> None:
    plan = build_method(name).plan(40, reward=Pays())
    for running in plan.phases.values():
        asked = scene(running)
        told = {**told_by(running, asked.batch), **told_by(running, asked.batch, on_update=True)}
        for model in running.trained:
            told |= running.loss(model, asked.now(), replace(asked.batch, whole=False))[1]
        assert told
        assert [column for column in told if not may_have(plan, column)] == []


def test_columns_of_runs_that_were_made_are_among_those_that_they_may_have() -> None:
    home = Home(ROOT)
    made = record.read(home.records)
    looked = 0
    for name in home.names():
        found = book.load(home, name, made)
        for arm in found.experiment.every_arm:
            plan = plan_of(found.recipe(found.search(arm)[0]))
            records = [r for slot in found.search(arm) if (r := found.record(slot)) is not None]
            assert [c for r in records for c in r.told["columns"] if not may_have(plan, c)] == []
            looked += len(records)
    assert looked > 100


def test_nothing_is_wrong_with_the_shipped_experiments() -> None:
    home = Home(ROOT)
    for name in home.names():
        refuse_faults(replace(book.load(home, name, {}), facts={}, marks={}))


@pytest.mark.parametrize("name", ["experiments/", "experiments", ".", "./"])
def test_a_folder_is_no_experiment(checkout: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert called(name) == 2
    told = capsys.readouterr().err
    assert f"{name} is a folder; give one of its experiments, e.g. " in told
    assert "experiments/toy.toml (toy), or --all" in told


def test_a_folder_that_is_called_as_an_experiment_is_not_in_its_way(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "toy").mkdir()
    assert called("toy", "--status") == 0
    assert called("docs") == 2
    assert "docs is a folder without experiments; give the name of one, or its file" in capsys.readouterr().err


def stub(folder: Path) -> list[str]:
    return [sys.executable, "-S", str(STUB), str(folder)]


def git(folder: Path, *arguments: str) -> None:
    names = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *names, *arguments], check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "as it is")


def called(*arguments: str) -> int:
    try:
        main(["retest", *arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def result(folder: Path, name: str = "toy") -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / "experiments" / "results" / f"{name}.json").read_text())
    return told


def kept(folder: Path) -> dict[str, Record]:
    return record.read(folder / "experiments" / "results" / "runs")


def test_an_experiment_from_start_to_verdict(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The stub's values: gapo is 0.1 better at every seed, the middle learning rate best."""
    assert called("toy", "--jobs", "2") == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    assert "toy: lr by the search: base 0.0003, method 0.0003, control 0.0003" in said
    assert "start/mean@2 of base is 0.25, wanted at least 0.15 and at most 0.4: holds" in said
    assert "toy: shown; eval/mean@2, delta 0.05\n  gain over base: +0.1000 (+0.1000 .. +0.1000), 6 pairs" in said
    told = result(checkout)
    assert told["result"]["verdict"] == "shown"
    assert told["result"]["gain over"]["base"]["mean"] == pytest.approx(0.1)
    assert told["result"]["gain over"]["control"]["mean"] == 0
    assert told["result"]["secondary"]["reward/mean"]["base"]["mean"] == pytest.approx(0.1)
    assert told["result"]["arms"]["base"] == {str(s): pytest.approx(0.5 + s / 100) for s in range(1, 7)}
    runs = kept(checkout)
    assert len(runs) == 3 * (3 + 6)
    assert told["result"]["budget"]["sampled_tokens"] == 27 * 200
    one = next(iter(runs.values())).told
    assert one["commit"]
    assert one["changed"] is False
    assert set(one["versions"]) == {"python", "rlvr", "torch", "transformers", "numpy"}
    assert one["budget"]["cpu_seconds"] > 0
    assert not list((checkout / "runs").rglob("model"))
    page = (checkout / "docs" / "papers.md").read_text()
    assert "| **shown** | +0.1000 (+0.1000 .. +0.1000), 6 pairs |" in page
    assert r"GAPO \| is better" in page.split("\n## ")[0]
    assert (checkout / "docs" / "img" / "papers" / "toy.svg").read_text().count('fill-opacity=".55"') == 12
    assert called("toy") == 0
    assert len(kept(checkout)) == 27  # nothing is made again


def test_arms_take_turns_so_that_what_breaks_off_leaves_whole_pairs(checkout: Path) -> None:
    assert called("toy", "--seeds", "2") == 0
    told = result(checkout)
    assert told["result"]["verdict"] is None  # two of six seeds decide nothing
    counted = [key for key in told["runs"] if not key.endswith("seed 0")]
    assert counted == [f"{arm}, lr 0.0003, seed {seed}" for seed in (1, 2) for arm in ("base", "method", "control")]
    assert called("toy", "--seeds", "7") == 2  # never more than the rule says


def test_a_run_that_two_experiments_ask_for_is_made_once_and_told(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(checkout, RULE.replace('paper = "gapo"', 'paper = "gmts"').replace('"gapo"', '"gmts"', 1)
            .replace('method = "gapo"', 'method = "dapo"').replace('set = { "papers.gapo.mode" = "fixed" }', "max = 1")
            .replace("max = 1", 'set = { "papers.dapo.clip_high" = 0.3 }'), "zoo")  # fmt: skip
    commit(checkout)
    assert called("--all") == 0
    assert len(kept(checkout)) == 27 + 18
    ours, theirs = result(checkout)["runs"], result(checkout, "zoo")["runs"]
    assert {key for key in ours if ours[key] == theirs.get(key)} == {key for key in ours if key.startswith("base")}
    assert "run of toy, base" in capsys.readouterr().out
    assert "Runs shared with toy (9)." in " ".join((checkout / "docs" / "papers.md").read_text().split())


def test_a_precondition_that_does_not_hold_ends_the_experiment(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(checkout, RULE.replace("at_least = 0.15", "at_least = 0.30"))
    commit(checkout)
    assert called("toy") == 0
    assert "  start/mean@2 of base is 0.25, wanted at least 0.3 and at most 0.4: FAILS\n" in capsys.readouterr().out
    assert len(kept(checkout)) == 9  # the search alone
    told = result(checkout)["result"]
    assert told["stage"] == "failed precondition"
    assert told["preconditions"][0]["holds"] is False
    assert "not run: a precondition does not hold" in (checkout / "docs" / "papers.md").read_text()


def test_a_failed_run_is_made_once_more_and_then_told(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails = checkout / "runs" / "retest" / "fails"
    fails.parent.mkdir(parents=True)
    fails.write_text("gapo 3\n")
    assert called("toy") == 0
    said = capsys.readouterr().out
    assert "method, lr 0.0003, seed 3: failed; the next call tries again\n  rlvr: step 2: the loss is not" in said
    assert result(checkout)["result"]["stage"] == "seeds"
    assert called("toy") == 0
    told = result(checkout)["result"]
    assert told["stage"] == "done"
    assert told["gain over"]["base"]["pairs"] == 5
    assert told["failed"]["method"] == {"3": "rlvr: step 2: the loss is not finite"}
    page = " ".join((checkout / "docs" / "papers.md").read_text().split())
    assert "Of method, seeds 3 failed and are in no pair: rlvr: step 2: the loss is not finite" in page
    assert "5 pairs" in page
    before = (checkout / "experiments" / "results" / "toy.json").read_text()
    fails.unlink()
    assert called("toy") == 0  # twice is enough
    assert (checkout / "experiments" / "results" / "toy.json").read_text() == before


def test_a_process_that_dies_before_its_first_step_says_nothing_of_the_arm(checkout: Path) -> None:
    fails = checkout / "runs" / "retest" / "fails"
    fails.parent.mkdir(parents=True)
    fails.write_text("gapo 3 early\n")
    for _ in range(3):
        assert called("toy") == 0
        assert result(checkout)["result"]["stage"] == "seeds"
    fails.unlink()
    assert called("toy") == 0
    assert result(checkout)["result"]["gain over"]["base"]["pairs"] == 6


def test_a_rule_is_committed_before_its_first_run_and_stays(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(checkout, RULE.replace("delta = 0.05", "delta = 0.01"))
    assert called("toy") == 2
    assert "experiments/toy.toml differs from the last commit" in capsys.readouterr().err
    written(checkout, RULE, "new")
    assert called("new") == 2
    assert "experiments/new.toml is not committed" in capsys.readouterr().err
    lines = [f'{{"prompt": "{n}+1=", "answer": "{n + 1}", "verifier": "numeric"}}\n' for n in range(40)]
    (checkout / "asked.jsonl").write_text("".join(lines))
    written(checkout, RULE.replace("[set]", '[set]\ntasks = { name = "jsonl", path = "../asked.jsonl" }'), "new")
    git(checkout, "add", "experiments/new.toml")
    git(checkout, "commit", "-qm", "without its tasks")
    assert called("new") == 2
    assert "asked.jsonl is not committed" in capsys.readouterr().err
    (checkout / "experiments" / "new.toml").unlink()
    file.write_text("# a word more\n" + RULE)
    commit(checkout)
    assert not (checkout / "experiments" / "results").exists()
    assert called("toy", "--seeds", "1") == 0
    file.write_text("# words change nothing\n" + RULE)
    commit(checkout)
    assert called("toy", "--seeds", "1") == 0
    file.write_text(RULE.replace("delta = 0.05", "delta = 0.01"))
    commit(checkout)
    assert called("toy") == 2
    assert "has changed since its first run" in capsys.readouterr().err
    file.write_text(RULE)
    (checkout / "shared.toml").write_text("temperature = 0.9\n" + SHARED)
    commit(checkout)
    assert called("toy") == 2
    assert "means another recipe than at its run of" in capsys.readouterr().err


def test_a_trial_stays_apart(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(checkout, RULE, "new")
    assert called("experiments/new.toml", "--uncommitted", "--seeds", "1") == 0
    assert "a trial: results go to" in capsys.readouterr().out
    assert not (checkout / "experiments" / "results").exists()
    assert not (checkout / "docs" / "papers.md").exists()
    tried = record.read(checkout / "runs" / "retest" / "trial" / "runs")
    assert len(tried) == 9 + 3
    assert all(run.told["trial"] for run in tried.values())


def test_a_run_that_its_steps_end_before_its_budget_has_failed(checkout: Path) -> None:
    written(checkout, RULE.replace("sampled_tokens = 150", "sampled_tokens = 201"))  # the stub samples 200
    commit(checkout)
    assert called("toy") == 0
    assert all("at 200 of 201 sampled tokens" in run.told["why"] for run in kept(checkout).values())


def test_what_another_process_makes_is_left_to_it_and_waited_for(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two queues at once make every run once. A run that somebody holds and never makes is made when it is let go."""
    monkeypatch.setattr(queue, "AGAIN", 0.1)
    found = book.load(Home(checkout), "toy", {})
    folder = checkout / "runs" / "retest" / mark_of(found.recipe(found.to_do()[0]))
    folder.mkdir(parents=True)
    let_go = threading.Timer(1.0, lambda: held.close())
    with ExitStack() as held:
        held.enter_context(claimed(folder))
        let_go.start()
        other = subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=checkout, stdout=subprocess.PIPE, text=True)
        assert called("toy") == 0
        said = other.communicate(timeout=60)[0] + capsys.readouterr().out
    assert "another process makes some of the runs" in said
    assert len(kept(checkout)) == 27
    assert result(checkout)["result"]["verdict"] == "shown"
    assert len(result(checkout)["runs"]) == 27


PROGRAM = (  # rlvr retest toy, with the stub
    "import sys; from rlvr.retest import child, queue; from rlvr.cli import main; queue.AGAIN = 0.1; "
    f"child.command = lambda folder: [sys.executable, '-S', {str(STUB)!r}, str(folder)]; main(['retest', 'toy'])"
)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_queue_that_is_ended_goes_on(checkout: Path, number: signal.Signals) -> None:
    """Whole records only, no child left over, and the same command finishes."""
    slow = checkout / "runs" / "retest" / "slow"
    slow.parent.mkdir(parents=True)
    slow.write_text("0.3")
    ended = subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=checkout, stdout=subprocess.PIPE, text=True)
    assert ended.stdout is not None
    for _ in range(3):
        ended.stdout.readline()
    ended.send_signal(number)
    assert ended.wait(30) != 0
    ended.stdout.close()
    made = len(kept(checkout))
    assert 3 <= made <= 5
    assert len(result(checkout)["runs"]) in (made, made - 1)  # a kill may come between run and book
    if number != signal.SIGKILL:
        left = [run for run in (checkout / "runs" / "retest").iterdir() if (run / "run.lock").exists()]
        assert not left
    slow.unlink()
    time.sleep(0.5 if number == signal.SIGKILL else 0)  # the stub claims nothing, and may outlive a killed queue
    assert called("toy") == 0
    assert result(checkout)["result"]["verdict"] == "shown"
    assert len(kept(checkout)) == 27


@pytest.mark.parametrize("left", ["half", "zeros", "", "[]", "{}", '{"status": "finished"}', "words", "scores"])
def test_a_damaged_run_is_put_aside_and_made_again(
    checkout: Path, capsys: pytest.CaptureFixture[str], left: str
) -> None:
    """It is never counted; who only looks is told of it, and changes nothing."""
    assert called("toy", "--seeds", "1") == 0
    before = kept(checkout)
    file = checkout / "experiments" / "results" / "runs" / f"{min(before)}.json"
    text = file.read_text()
    told = json.loads(text)
    spoilt = {"half": text[: len(text) // 2], "zeros": "\0" * len(text)}
    spoilt["words"] = json.dumps({**told, "columns": {"reward/mean": ["much", "more"]}})
    spoilt["scores"] = json.dumps({**told, "eval": {**told["eval"], "after": {"mean@2": "good"}}})
    file.write_text(spoilt.get(left, left))
    capsys.readouterr()
    for look in ("--status", "--page"):
        assert called("toy", look) == 2
        assert f"{file} is damaged" in capsys.readouterr().err
    assert called("toy", "--seeds", "1") == 0
    assert f"put aside as {file.name}.damaged, and not counted" in capsys.readouterr().err
    after = kept(checkout)
    assert {mark: run.told["columns"] for mark, run in after.items()} == {
        mark: run.told["columns"] for mark, run in before.items()
    }


@pytest.mark.parametrize("left", ["", "[1]", "{}", '{"runs": {}}', '{"rule": "x", "commit": "y", "began": "z"}'])
def test_a_damaged_book_is_named_and_says_what_to_do(
    checkout: Path, capsys: pytest.CaptureFixture[str], left: str
) -> None:
    assert called("toy", "--seeds", "1") == 0
    commit(checkout)
    file = checkout / "experiments" / "results" / "toy.json"
    file.write_text(left)
    for call in (["toy"], ["toy", "--status"]):
        assert called(*call) == 2
        assert f"{file} is damaged" in (said := capsys.readouterr().err)
        assert f"git checkout HEAD -- {file}" in said
    git(checkout, "checkout", "HEAD", "--", str(file))
    assert called("toy") == 0
    assert result(checkout)["result"]["verdict"] == "shown"


def test_a_run_whose_numbers_were_lost_has_failed(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that it finished, and what it measured cannot be read."""
    spoil = (
        "import pathlib, sys; f = pathlib.Path(sys.argv[1]) / 'run' / sys.argv[2]; f.write_text('{\\n' + f.read_text())"
    )
    for name in ("eval.json", "metrics.jsonl"):
        program = f"import subprocess; subprocess.run({stub(Path('FOLDER'))!r}); {spoil}"
        monkeypatch.setattr(
            child, "command", lambda folder, p=program, n=name: [
                sys.executable, "-c", p.replace("FOLDER", str(folder)), str(folder), n,
            ],
        )  # fmt: skip
        assert called("toy") == 0
        runs = kept(checkout).values()
        assert runs
        assert not any(run.finished for run in runs)
        assert {name in run.told["why"] for run in runs} == {True}


def test_where_nothing_can_be_kept_nothing_is_run(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "experiments" / "results").write_text("")
    assert called("toy") == 2
    assert "so no run could be kept" in capsys.readouterr().err
    assert not list((checkout / "runs").rglob("recipe.toml"))


def test_a_sampler_seed_is_counted_from_the_runs_seed(checkout: Path) -> None:
    own = RULE.replace('"papers.gapo.mode" = "fixed"', "sampler_seed = 1000")
    written(checkout, own)
    found = book.load(Home(checkout), "toy", {})
    seeds = [found.recipe(book.Slot("control", 1e-4, seed)).sampler_seed for seed in (1, 2)]
    assert seeds == [1001, 1002]
    assert found.recipe(book.Slot("base", 1e-4, 1)).sampler_seed is None


def test_status_says_what_is_left(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("toy", "--seeds", "2") == 0
    capsys.readouterr()
    assert called("--status") == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("toy"))
    assert line.split()[:3] == ["toy", "seeds", "12"]  # 27 less 9 of the search and 6 counted
    assert called("toy") == 0
    capsys.readouterr()
    assert called("--status") == 0
    assert "toy         done, shown  0 " in capsys.readouterr().out


def test_where_there_are_no_experiments_it_says_what_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(home, "__file__", str(tmp_path / "a" / "b" / "c" / "home.py"))
    assert called("toy") == 2
    assert "give the path of an experiment's file" in capsys.readouterr().err
    assert called("lost/toy.toml") == 2
    assert "there is no file lost/toy.toml" in capsys.readouterr().err


def test_a_call_that_names_nothing_lists_what_there_is(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called() == 2
    assert "there are: toy" in capsys.readouterr().err
    assert called("tow") == 2
    assert "did you mean 'toy'?" in capsys.readouterr().err


def test_a_revision_stands_beneath_what_it_revises_and_takes_nothing_away(checkout: Path) -> None:
    """Both run; the first row is the same before and after."""
    (checkout / "experiments" / "families.toml").write_text('one = ["toy", "other"]\n')
    commit(checkout)
    assert called("toy") == 0
    row = next(line for line in (checkout / "docs" / "papers.md").read_text().splitlines() if "[toy](#toy)" in line)
    again = RULE.replace("seeds = 6", "seeds = 6\nfirst_seed = 7")
    written(checkout, 'revises = "toy"\nbecause = "it could not"\n' + again, "toy-2")
    commit(checkout)
    assert called("toy-2") == 0
    page = (checkout / "docs" / "papers.md").read_text()
    lines = page.splitlines()
    at = lines.index(row)
    assert lines[at + 1].startswith("| [toy-2](#toy-2), revises toy |")
    assert page.index("## toy\n") < page.index("## toy-2\n")
    assert "Revises [toy](#toy), because it could not." in page
    assert len(kept(checkout)) == 9 + 18 + 18  # the search is the same


# ---- with real runs --------------------------------------------------------------------------------------
@pytest.mark.slow
def test_an_experiment_of_real_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of nano: what is kept is what the runs' folders say, and an arm can be run again by hand."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    text = RULE.replace('paper = "gapo"', 'paper = "harness"').replace("{ sampled_tokens = 150 }", "{ steps = 2 }")
    text = text.replace('"../shared.toml"', '"quickstart"').replace("at_least = 0.15\nat_most = 0.40", "at_least = 0.0")
    text = text[: text.index("[arms.control]")] + text[text.index("[[secondary]]") :]
    text = text.replace("group_size = 4", 'group_size = 4\nprompts_per_step = 4\n"eval.problems" = 8\n"eval.k" = 2')
    written(tmp_path, text)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    assert called("toy", "--seeds", "1", "--jobs", "2") == 0
    told = result(tmp_path)
    assert len(told["runs"]) == 6 + 2
    mark, run = next(iter(kept(tmp_path).items()))
    folder = tmp_path / "runs" / "retest" / mark
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == run.told["steps"] == 2
    np.testing.assert_allclose(run.column("reward/mean"), [line["reward/mean"] for line in lines], rtol=1e-3)
    assert run.told["budget"]["rollouts"] == 2 * 16
    assert run.told["budget"]["sampled_tokens"] == sum(line["rollouts/tokens"] for line in lines)
    assert 1 < run.told["budget"]["cpu_seconds"] < 60
    assert run.value("start/mean@2") == json.loads((folder / "run/eval.json").read_text())["before"]["running_sums"][
        "mean@2"][0]  # fmt: skip
    assert not (folder / "run" / "model").exists()
    by_hand = [sys.executable, "-m", "rlvr", "train", str(folder / "recipe.toml"), "--out", str(tmp_path / "again")]
    subprocess.run(by_hand, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    again = record.measured(tmp_path / "again")
    assert again["eval"] == run.told["eval"]


# ---- the page --------------------------------------------------------------------------------------------
def test_the_committed_page_is_what_the_results_say() -> None:
    page, plots = document.make(Home(ROOT))
    assert page == (ROOT / "docs" / "papers.md").read_text(), "run: rlvr retest --page"
    folder = ROOT / "docs" / "img" / "papers"
    assert plots == {file.name: file.read_text() for file in folder.glob("*.svg")}, "run: rlvr retest --page"

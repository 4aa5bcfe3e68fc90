"""The command line answers at once, teaches, and speaks in sentences when something is wrong."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from rlvr.cli import main

VERBS = ("train", "eval", "rollout", "report", "export", "list", "explain", "check", "doctor", "new", "models")


@dataclass
class Said:
    code: int
    out: str
    err: str


@pytest.fixture
def rlvr(capsys, tmp_path, monkeypatch):
    """Runs the command in this process, in an empty folder, on a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("RLVR_DEBUG", raising=False)

    def run(*arguments: str) -> Said:
        code = 0
        try:
            main(arguments)
        except SystemExit as stopped:
            code = stopped.code or 0
        return Said(code, *capsys.readouterr())

    return run


def stand_in(monkeypatch, name: str, **functions):
    """A module in the place of one that needs torch, so that only the command line is tested."""
    module = ModuleType(name)
    vars(module).update(functions)
    monkeypatch.setitem(sys.modules, name, module)
    return module


# ---- quick and light -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["list"], ["explain", "grpo"], ["explain", "recipe"], ["train", "--help"], ["explain", "slots"]],
)
def test_help_list_and_explain_answer_within_a_second_and_import_nothing_heavy(arguments):
    code = "import sys; from rlvr.cli import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n"
    code += "heavy = {'torch', 'transformers', 'pyarrow', 'rich', 'jinja2'} & set(sys.modules)\nassert not heavy, heavy"
    spent = []
    while len(spent) < 3 and not (spent and min(spent) < 1):
        before = os.times()
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
        after = os.times()
        assert (done.returncode, done.stderr) == (0, "")
        # processor seconds: a busy machine says nothing about the command
        spent.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(spent) < 1


# ---- help ------------------------------------------------------------------------------------------------
def test_help_names_every_verb_and_fits_eighty_columns(rlvr):
    said = rlvr("--help")
    for verb in VERBS:
        assert f"\n  {verb} " in said.out
        own = rlvr(verb, "--help")
        assert own.code == 0
        assert max(map(len, own.out.splitlines())) <= 80
        if verb != "models":
            assert f"rlvr {verb} " in own.out.split("Examples:")[1]
    assert max(map(len, said.out.splitlines())) <= 80
    assert "..." not in said.out.split("Commands:")[1].replace("recipes ...", "")
    assert rlvr().out == said.out


def test_version(rlvr):
    assert rlvr("--version").out.split()[0] == "rlvr"


@pytest.mark.parametrize("arguments", [["trian"], ["train"], ["train", "quickstart", "--sett", "a=1"], ["report"]])
def test_a_misspelt_command_exits_with_two_and_says_how(rlvr, arguments):
    said = rlvr(*arguments)
    assert said.code == 2
    assert said.out == ""
    assert "rlvr" in said.err
    assert "Traceback" not in said.err


# ---- errors ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", "quickstrt"], "did you mean 'quickstart'?"),
        (["train", "quickstart", "--set", "num_generations=8"], "`num_generations` is called `group_size` here"),
        (["train", "quickstart", "--set", "lr"], "write key=value"),
        (["train", "quickstart", "--method", "grpo,grop"], "did you mean 'grpo'"),
        (["train", "quickstart", "--method", "grpo(clip_hgh=1)"], "did you mean 'clip_high'?"),
        (["eval", "nano", "--k", "0"], "`eval.k` is the number 0; wanted 1 or more"),
        (["explain", "grop"], "grpo"),
        (["explain", "nowhere.py:f"], "nowhere.py:f: the file cannot be read"),
        (["list", "verifer"], "did you mean 'verifier'?"),
        (["report", "nowhere"], "nowhere"),
        (["new", "robot", "x"], "there are: method, verifier, tasks"),
        (["new", "method", "My-Paper"], "small letters"),
        (["new", "method", "class"], "not a name for a Python function"),
        (["new", "method", "grpo"], "is the name of a method already"),
    ],
)
def test_a_users_error_is_one_message_without_a_traceback(rlvr, arguments, says):
    said = rlvr(*arguments)
    assert said.code == 2
    assert says in said.err
    assert said.err.startswith("rlvr: ")
    assert "Traceback" not in said.err
    assert said.out == ""


def test_debug_shows_where_an_error_comes_from(rlvr):
    from rlvr.recipe import RecipeError

    with pytest.raises(RecipeError):
        rlvr("--debug", "train", "quickstrt")
    assert os.environ.pop("RLVR_DEBUG") == "1"


def test_a_fault_of_the_program_keeps_its_traceback(rlvr, monkeypatch):
    stand_in(monkeypatch, "rlvr.run", evaluate=lambda recipe, model: json.loads("{"), dry_run=lambda recipe: {}["a"])
    with pytest.raises(ValueError, match="Expecting"):  # raised in json's code, so it is no sentence of ours
        rlvr("eval", "nano")
    with pytest.raises(KeyError):
        rlvr("train", "quickstart", "--dry-run")


def test_a_run_that_its_own_limits_stop_exits_with_one(rlvr, monkeypatch):
    class Stopped(RuntimeError):
        __module__ = "rlvr.loop"

    def stop(recipe, folder, title, resume):
        raise Stopped("too many unknown verdicts")

    stand_in(monkeypatch, "rlvr.run", train=stop)
    said = rlvr("train", "quickstart")
    assert (said.code, said.err) == (1, "rlvr: too many unknown verdicts\n")


def test_a_file_that_cannot_be_written_is_named(rlvr):
    Path("taken").write_text("")
    said = rlvr("new", "method", "mine", "--out", "taken/deeper")
    assert said.code == 2
    assert said.err == "rlvr: taken/deeper: Not a directory\n"


# ---- train and eval --------------------------------------------------------------------------------------
@dataclass
class Done:
    summary: dict


def test_train_hands_over_the_recipe_and_a_new_folder(rlvr, monkeypatch):
    asked = []

    def train(recipe, folder, title, resume):
        assert not resume
        asked.append((recipe, folder, title))
        measured = {"before": {"sums": {"mean@8": [0.25, 0.2, 0.3]}}, "after": {"sums": {"mean@8": [0.75, 0.7, 0.8]}}}
        evaluation = {"k": 8, "problems": 300, **measured}
        return Done({"status": "finished", "report": f"{folder}/report.html", "eval": evaluation})

    stand_in(monkeypatch, "rlvr.run", train=train)
    said = rlvr("train", "quickstart", "--set", "lr=1e-4", "--set", "steps=3", "--seed", "7", "--model", "m")
    recipe, folder, title = asked[0]
    assert (recipe.lr, recipe.steps, recipe.seed, recipe.model, title) == (1e-4, 3, 7, "m", "quickstart")
    assert folder.parent == Path("runs")
    assert len(folder.name.removeprefix("quickstart-")) == len("20250101-120000")
    assert said.code == 0
    assert said.out == (
        f"finished: {folder}\nsums, before and after (300 problems)\n"
        f"  mean@8  0.250 (0.200 .. 0.300)  ->  0.750 (0.700 .. 0.800)\nreport: {folder}/report.html\n"
    )
    rlvr("train", "quickstart", "--out", "here", "--method", "grpo(eps=0.5)")
    assert (asked[1][0].method, asked[1][1]) == ("grpo(eps=0.5)", Path("here"))


def test_a_stopped_run_exits_with_one_and_its_command_can_be_copied(rlvr, monkeypatch):
    summary = {"status": "stopped by you after step 3", "report": "r", "go_on": "rlvr train --resume 'my run'"}
    stand_in(monkeypatch, "rlvr.run", train=lambda recipe, folder, title, resume: Done(summary))
    said = rlvr("train", "quickstart", "--out", "my run")
    assert said.code == 1
    assert said.out.splitlines()[:2] == [
        "my run: stopped by you after step 3",
        "go on with: rlvr train --resume 'my run'",
    ]


def test_answers_without_a_verdict_are_told_beside_the_table(rlvr, monkeypatch):
    none = {"samples": 40, "errors": 40, "reasons": {"verifier_error: KeyError: 'x'": 30, "timeout": 6}}
    told = {"model": "m", "k": 4, "problems": 10, "results": {"sums": none}, "fault": "40 of 40 ..."}
    stand_in(monkeypatch, "rlvr.run", evaluate=lambda recipe, model: told)
    said = rlvr("eval", "nano")
    assert said.code == 1
    assert said.out == (
        "m: 10 problems, 4 answers each\nsums\n"
        "  40 of 40 answers had no verdict: verifier_error: KeyError: 'x' (30); timeout (6); other reasons (4)\n"
    )
    assert "0.000" not in said.out
    assert said.err == "rlvr: this evaluation says little: 40 of 40 ...\n"


def test_a_run_is_never_written_over(rlvr, monkeypatch):
    stand_in(monkeypatch, "rlvr.run", train=lambda *a, **k: Done({"status": "finished", "report": ""}))
    Path("full").mkdir()
    Path("full/metrics.jsonl").write_text("")
    said = rlvr("train", "quickstart", "--out", "full")
    assert (said.code, said.err) == (
        2,
        "rlvr: full is not empty, and a run is never written over; give another folder, or resume it\n",
    )
    Path("empty").mkdir()
    assert rlvr("train", "quickstart", "--out", "empty").code == 0


def test_a_dry_run_prints_the_plan_and_makes_no_folder(rlvr, monkeypatch):
    stand_in(monkeypatch, "rlvr.run", dry_run=lambda recipe: f"the plan of {recipe.method}")
    assert rlvr("train", "quickstart", "--dry-run").out == "the plan of grpo\n"
    assert not Path("runs").exists()


def test_eval_measures_a_model_or_a_runs_model(rlvr, monkeypatch):
    asked = []

    def evaluate(recipe, model):
        asked.append((recipe, model))
        measures = {"mean@8": [0.25, 0.2, 0.3], "pass@8": [0.5, float("nan"), float("nan")], "samples": 40, "errors": 2}
        measures |= {"maj@8": [0.25, 0.2, 0.3], "reasons": {"timeout": 2}}
        return {"model": model, "k": 8, "problems": 200, "results": {"running_sums": measures}}

    stand_in(monkeypatch, "rlvr.run", evaluate=evaluate)
    said = rlvr("eval", "nano", "--k", "4", "--problems", "10", "--set", "max_tokens=9")
    recipe, model = asked[0]
    assert (model, recipe.eval.k, recipe.eval.problems, recipe.max_tokens) == ("nano", 4, 10, 9)
    assert said.out == (
        "nano: 200 problems, 8 answers each\nrunning_sums\n"
        "  mean@8  0.250   95% interval 0.200 .. 0.300\n  pass@8  0.500\n"
        "  maj@8   0.250   95% interval 0.200 .. 0.300\n"
        "  2 of 40 answers had no verdict: timeout; they count as not right\n"
    )
    assert json.loads(rlvr("eval", "nano", "--json").out)["results"]["running_sums"]["pass@8"] == [0.5, None, None]

    Path("run").mkdir()
    Path("run/recipe.toml").write_text('tasks = "choice"\nmax_tokens = 11')
    said = rlvr("eval", "run")
    assert (said.code, "without a model" in said.err) == (2, True)
    Path("run/model").mkdir()
    rlvr("eval", "run")
    assert (asked[-1][0].max_tokens, asked[-1][1]) == (11, "run/model")
    rlvr("eval", "run", "--recipe", "quickstart")
    assert asked[-1][0].tasks["name"] == "running_sums"


# ---- list and explain ------------------------------------------------------------------------------------
def test_list_shows_kinds_and_names(rlvr):
    out = rlvr("list").out
    for word in ("recipe\n", "\n  quickstart ", "\nmethod\n", "\n  grpo ", "\n  hash_marker ", "\n  running_sums "):
        assert word in out
    assert max(map(len, out.splitlines())) <= 80
    assert "running_sums" not in rlvr("list", "method").out
    assert rlvr("list", "methods").out == rlvr("list", "method").out
    told = json.loads(rlvr("list", "tasks", "--json").out)
    assert {"choice", "countdown"} <= {row["name"] for row in told["tasks"]}


def test_explain_a_paper_shows_formula_settings_slots_source_and_file(rlvr):
    out = rlvr("explain", "grpo").out
    for word in ("(r_i - mean_g)", "clip_high  0.2", "arXiv 2402.03300", "methods/grpo.py:", "reduction"):
        assert word in out
    (told,) = json.loads(rlvr("explain", "grpo", "--json").out)
    assert told["settings"]["clip_low"] == {"default": "0.2", "type": "float"}


def test_explain_shows_everything_that_has_the_name(rlvr):
    out = rlvr("explain", "countdown").out
    assert "countdown (verifier)" in out
    assert "countdown (tasks)" in out


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("recipe", "gradient_checkpointing  false "),
        ("updates_per_batch", "optimiser steps that a batch is cut into"),
        ("pays", "pays.truncated"),
        ("slots", "reshape: changes to the advantage, by rank"),
        ("bounds", "slot bounds"),
        ("streams", "per row"),
        ("row_weight", "stream row_weight, one value a row"),
    ],
)
def test_explain_words_of_the_house(rlvr, name, says):
    said = rlvr("explain", name)
    assert says in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    assert json.loads(rlvr("explain", name, "--json").out)


def test_explain_a_users_own_file(rlvr):
    Path("p.py").write_text(
        '"""Why.\n\n    y = x\n\nSo.\n"""\ndef paper(method, a: float = 2.5):\n'
        '    """Mine.\n\n    a: how much.\n    """\n'
    )
    out = rlvr("explain", "p.py:paper").out
    for word in ("paper (method)", "    y = x", "Mine.", "a: how much.", "p.py:7", "a  2.5  float"):
        assert word in out


# ---- check, new, report, models --------------------------------------------------------------------------
@dataclass
class Result:
    law: str
    ok: bool
    detail: str = ""


def test_check_exits_with_one_when_a_law_is_broken(rlvr, monkeypatch):
    results = [Result("detachment", True), Result("finiteness", False, "loss is not finite: all wrong")]
    stand_in(monkeypatch, "rlvr.testing", check=lambda name: results)
    said = rlvr("check", "grpo")
    assert (said.code, said.out) == (
        1,
        "ok      detachment\nBROKEN  finiteness\n        loss is not finite: all wrong\n",
    )
    assert [r["ok"] for r in json.loads(rlvr("check", "grpo", "--json").out)] == [True, False]
    results.pop()
    assert rlvr("check", "grpo").code == 0


def test_what_new_writes_works_as_written_and_is_never_written_over(rlvr, tmp_path):
    for kind in ("method", "verifier", "tasks"):
        said = rlvr("new", kind, f"own_{kind}", "--out", "own")
        assert said.code == 0
        assert f"own/own_{kind}.py" in said.out
        text = Path(f"own/own_{kind}.py").read_text()
        assert f"def own_{kind}(" in text
        assert "my_" not in text
        Path(f"own/own_{kind}.py").write_text(text + "# mine\n")
        again = rlvr("new", kind, f"own_{kind}", "--out", "own")
        assert (again.code, "nothing was written" in again.err) == (2, True)
        assert Path(f"own/own_{kind}.py").read_text().endswith("# mine\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "own"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert "9 passed" in done.stdout, done.stdout


def test_what_new_writes_can_be_used_in_a_recipe(rlvr):
    from rlvr.recipe import load_recipe

    for kind in ("method", "verifier", "tasks"):
        rlvr("new", kind, f"own_{kind}")
    recipe = load_recipe(
        "quickstart",
        ["tasks=own_tasks.py:own_tasks", "tasks.below=50", "verifier=own_verifier.py:own_verifier"],
        method="+own_method.py:own_method(blame=0.25)",
    )
    assert recipe.tasks["below"] == 50
    with pytest.raises(ValueError, match="wanted float"):
        load_recipe("quickstart", method="own_method.py:own_method(blame='much')")


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "a run"
    folder.mkdir()
    lines = [{"step": n, "time": 0.0, "reward/mean": n / 10} for n in (1, 2, 3)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_report_writes_a_page_and_tells_the_last_numbers(rlvr, run):
    said = rlvr("report", str(run))
    assert said.code == 0, said.err
    assert Path(said.out.strip()).read_text().lstrip().lower().startswith("<!doctype html")
    (told,) = json.loads(rlvr("report", str(run), "--json").out)["runs"]
    assert (told["steps"], told["metrics"]["reward/mean"]) == (3, 0.3)


def test_report_compares_several_runs(rlvr, run, monkeypatch):
    asked = []
    compare = lambda folders, out, pairs: asked.append((folders, out)) or out  # noqa: E731
    monkeypatch.setattr("rlvr.report.compare.write_comparison", compare)
    assert rlvr("report", str(run), "b").code == 2  # there is no b
    Path("b").mkdir()
    Path("b/recipe.toml").write_text("")
    said = "b and a run cannot be paired: a run and b have no evaluation after training"
    assert rlvr("report", str(run), "b").out.split("\n", 1) == ["comparison.html", f"{said}\n"]
    assert rlvr("report", str(run), "b", "--out", "c.html").out.startswith("c.html\n")
    assert asked[0][0] == [run, Path("b")]


def test_models_are_listed_and_unknown_ones_refused(rlvr, monkeypatch, tmp_path):
    monkeypatch.setenv("RLVR_MODELS", str(tmp_path / "none"))
    said = rlvr("models", "list")
    assert "smollm2  addable" in said.out
    assert "smollm2" in json.loads(rlvr("models", "list", "--json").out)["addable"]
    said = rlvr("models", "add", "gpt5")
    assert (said.code, "no model 'gpt5' can be added" in said.err) == (2, True)


def test_a_tracker_that_puts_itself_in_the_place_of_exit_is_not_taken_for_its_caller(rlvr, monkeypatch) -> None:
    """As wandb does, a bound method; and as two packages do, one around the other."""

    def wrap(leave):
        class Hooks:
            def exit(self, code=0):
                leave(code)

        return Hooks().exit

    Path("own.py").write_text("import sys\ndef make_wrong(): pass\nsys.exit(0)\n")
    for _ in range(2):
        monkeypatch.setattr(sys, "exit", wrap(sys.exit))
        said = rlvr("list", "method")
        assert (said.code, said.err) == (0, "")
        assert rlvr("explain", "no-such-paper").code == 2

"""A recipe says what it says; what is wrong with one is told in one go: where, what was given, what to write."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rlvr import registry, toml
from rlvr.recipe import Eval, Recipe, RecipeError, load_recipe, make_recipe, recipes_dir, settings, shipped

CASES = Path(__file__).parent / "cases" / "field_reports.jsonl"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text, name="r.toml"):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)
    return name


def problems(text, *sets, **more):
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(text), sets, **more)
    return str(caught.value)


# ---- what is shipped -------------------------------------------------------------------------------------
def test_shipped_recipes_load_by_name_from_anywhere(here):
    assert {"quickstart", "word_problems"} <= set(shipped())
    for name in shipped():
        assert load_recipe(name) == load_recipe(recipes_dir() / f"{name}.toml")


def test_the_quickstart_is_what_was_measured():
    r = load_recipe("quickstart")
    assert (r.model, r.prompts_per_step, r.group_size, r.lr, r.betas) == ("nano", 32, 16, 3e-4, [0.9, 0.98])
    assert (r.warmup_steps, r.updates_per_batch, r.steps, r.max_tokens) == (10, 1, 60, 24)


def test_a_wheel_brings_its_recipes(tmp_path, monkeypatch):
    monkeypatch.setattr("rlvr.recipe.file.__file__", str(tmp_path / "rlvr" / "recipe" / "file.py"))
    (tmp_path / "rlvr" / "recipes").mkdir(parents=True)
    (tmp_path / "rlvr" / "recipes" / "own.toml").write_text('tasks = "running_sums"')
    assert shipped() == ["own"]


def test_loading_a_recipe_imports_neither_torch_nor_transformers():
    code = "import sys; from rlvr.recipe import load_recipe as load\n"
    code += "load('quickstart', ['papers.grpo.eps=1e-3']); load('word_problems')\n"
    code += "print(sorted({'torch', 'transformers', 'typer', 'rich'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


# ---- finding ---------------------------------------------------------------------------------------------
def test_a_run_folder_is_its_recipe(here):
    write('tasks = "choice"', "runs/a/recipe.toml")
    assert load_recipe("runs/a").tasks == {"name": "choice"}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("quickstat", "did you mean 'quickstart'"),
        ("zzz", "there are: "),
        ("no/such.toml", "there is no file no/such.toml"),
    ],
)
def test_a_recipe_that_is_not_there(here, name, says):
    with pytest.raises(RecipeError, match=re.escape(says)):
        load_recipe(name)


@pytest.mark.parametrize("content", [b"lr = ", b"\xff\xfe", b"[a]\n[a]"])
def test_a_file_that_is_not_toml_names_the_file(here, content):
    Path("r.toml").write_bytes(content)
    with pytest.raises(RecipeError, match=r"r\.toml is not TOML"):
        load_recipe("r.toml")


# ---- short forms -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("short", "long"),
    [("running_sums", {"name": "running_sums"}), ("a.jsonl", {"name": "jsonl", "path": "a.jsonl"})],
)
def test_tasks_for_short(short, long):
    assert Recipe(tasks=short).tasks == long
    assert Recipe(tasks="choice", eval=Eval(tasks=short)).eval.tasks == long


def test_whole_numbers_serve_as_numbers(here):
    assert load_recipe(write('tasks = "choice"\nlr = 1\n[pays]\nright = 2')).pays.right == 2.0


# ---- files -----------------------------------------------------------------------------------------------
def test_paths_in_a_recipe_start_at_its_folder_and_in_options_at_the_current_one(here):
    for folder in (here, here / "sub"):
        folder.mkdir(exist_ok=True)
        (folder / "t.jsonl").write_text('{"prompt": "2+2=", "answer": "4"}')
        (folder / "p.py").write_text(
            "def paper(method, a: float = 1): return method\ndef f(answer, gold): return True\n"
        )
    (here / "sub" / "m" / "x").mkdir(parents=True)
    file = write(
        'tasks = "t.jsonl"\nmethod = "p.py:paper(a=2)"\nverifier = "p.py:f(seconds=1)"\nmodel = "m/x"', "sub/r.toml"
    )
    r = load_recipe(file)
    assert r.tasks == {"name": "jsonl", "path": str(here / "sub" / "t.jsonl")}
    assert r.method == f"{here / 'sub' / 'p.py'}:paper(a=2)"
    assert r.verifier == f"{here / 'sub' / 'p.py'}:f(seconds=1)"
    assert r.model == str(here / "sub" / "m" / "x")
    r = load_recipe(file, ["verifier=p.py:f"], method="p.py:paper")
    assert (r.method, r.verifier) == (f"{here / 'p.py'}:paper", f"{here / 'p.py'}:f")


def test_what_is_not_in_the_recipes_folder_is_looked_for_in_the_current_one(here):
    (here / "t.jsonl").write_text('{"prompt": "2+2=", "answer": "4"}')
    assert load_recipe(write('tasks = "t.jsonl"', "sub/r.toml")).tasks["path"] == str(here / "t.jsonl")


def test_a_word_is_no_path_even_where_a_folder_has_its_name(here):
    Path("train").mkdir()
    tasks = {"name": "choice", "split": "train"}
    assert load_recipe(write('tasks = {name = "choice", split = "train"}')).tasks == tasks


def test_a_hub_id_stays_a_hub_id(here):
    assert load_recipe(write('tasks = "choice"\nmodel = "Qwen/Qwen3-0.6B"')).model == "Qwen/Qwen3-0.6B"


# ---- overrides -------------------------------------------------------------------------------------------
def test_overrides_take_toml_values_and_bare_words(here):
    file = write('tasks = "choice"\nsteps = 5\n[eval]\nk = 2\n')
    sets = ["lr=1e-4", "schedule=cosine", "betas=[0.5, 0.6]", "as_chat=true", "eval.k=3", "papers.grpo.clip_high=0.28"]
    r = load_recipe(file, [*sets, 'system="two words"', "prompt=Ask: {prompt}", "steps="])
    assert (r.lr, r.schedule, r.betas, r.as_chat, r.eval.k) == (1e-4, "cosine", [0.5, 0.6], True, 3)
    assert r.papers == {"grpo": {"clip_high": 0.28}}
    assert (r.system, r.prompt) == ("two words", "Ask: {prompt}")
    assert r.steps == Recipe.model_fields["steps"].default  # nothing behind the = goes back to the default


def test_an_argument_of_a_source_can_be_set_where_the_recipe_has_the_short_form(here):
    assert load_recipe(write('tasks = "choice"'), ["tasks.n=7"]).tasks == {"name": "choice", "n": 7}


def test_a_method_replaces_and_a_plus_appends(here):
    file = write('tasks = "choice"\nmethod = "grpo(eps=0.5)"')
    Path("p.py").write_text("def paper(method, keep: float = 0.2): return method\n")
    assert load_recipe(file, method="grpo").method == "grpo"
    assert load_recipe(file, method="+p.py:paper(keep=0.5)").method == (
        f"grpo(eps=0.5),{Path('p.py').resolve()}:paper(keep=0.5)"
    )
    assert load_recipe(file, model="other").model == "other"


@pytest.mark.parametrize("option", ["lr", "=3", "a b=3", "lr.x=3", "tasks.name.x=1", "[a]\nb = 1\nc=2"])
def test_an_override_that_cannot_be_read_shows_how_to_write_one(here, option):
    said = problems('tasks = "choice"\nlr = 1e-3', option)
    assert f"--set {option}" in said


# ---- what is wrong ---------------------------------------------------------------------------------------
def test_every_problem_is_told_at_once_with_its_line(here):
    said = problems(
        """model = "nano"
num_generations = 8
steps = "60"
temperature = 0
updates_per_batch = 40
tasks = "runing_sums"
clip_high = 0.3
dtype = "fp32"
verifier = "hash_maker"
prompt = '''
lr = 3: {PROMPT}
'''
[papers.grpo]
clip_hi = 0.3
[optim]
lr = 1e-5
[eval]
k = 0
evry = 3
[pays]
right = 0
[actor_rollout_ref.actor]
ppo_micro_batch_size_per_gpu = 3
""",
        "lrr=1",
    )
    wanted = [
        "line 2: `num_generations` is called `group_size` here",
        'line 3: `steps` is the text "60"; wanted a whole number: write steps = 60',
        "line 4: temperature = 0 cannot be trained",
        "line 5: 32 groups cannot fill 40 optimiser batches",
        "line 6: tasks: no tasks is called 'runing_sums'; did you mean 'running_sums'?",
        "line 7: `clip_high` is a setting of",
        "line 8: `dtype` is the text \"fp32\"; wanted one of 'float32', 'bfloat16' or 'float64'",
        "line 9: no verifier is called 'hash_maker'; did you mean 'hash_marker'",
        "line 10: `prompt` has no {prompt} in it",
        "line 14: grpo has no argument 'clip_hi'; did you mean 'clip_high'?",
        "line 16: `optim.lr` is called `lr` here",
        "line 18: `eval.k` is the number 0; wanted 1 or more",
        "line 19: `eval.evry` is not known; did you mean `eval.every`?",
        "line 21: pays.right = 0.0 must be more than pays.wrong = 0.0",
        "line 23: `actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu` is no setting here: token_budget",
        "--set lrr=1: `lrr` is not known; did you mean `lr`?",
    ]
    lines = [line.strip() for line in said.splitlines()]
    assert lines[0] == "16 problems in r.toml:"
    for line, start in zip(lines[1:], wanted, strict=True):
        assert line.startswith(start)


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        ("learning_rate", "`lr`"),
        ("num_generations", "`group_size`"),
        ("max_completion_length", "`max_tokens`"),
        ("max_new_tokens", "`max_tokens`"),
        ("num_iterations", "`epochs`"),
        ("epsilon", "`papers.grpo.clip_low`"),
        ("epsilon_high", "`papers.grpo.clip_high`"),
        ("beta", "a KL penalty is a paper of its own"),
        ("kl_coef", "a KL penalty is a paper of its own"),
        ("per_device_train_batch_size", "prompts_per_step"),
        ("gradient_accumulation_steps", "updates_per_batch"),
        ("num_train_epochs", "`steps`"),
        ("n_samples_per_prompt", "`group_size`"),
        ("rollout_batch_size", "`prompts_per_step`"),
        ("rollout.n", "`group_size`"),
        ("actor_rollout_ref.rollout.n", "`group_size`"),
        ("actor_rollout_ref.rollout.temperature", "`temperature`"),
        ("actor_rollout_ref.actor.optim.lr", "`lr`"),
        ("actor_rollout_ref.actor.ppo_mini_batch_size", "updates_per_batch"),
        ("data.train_batch_size", "`prompts_per_step`"),
        ("data.max_response_length", "`max_tokens`"),
        ("trainer.test_freq", "`eval.every`"),
        ("holdout", "`eval.holdout`"),
        ("group_sise", "`group_size`"),
        ("zzzzzz", "rlvr explain recipe"),
    ],
)
def test_other_libraries_names_are_answered_with_ours(key, answer):
    table = 1
    for part in reversed(key.split(".")):
        table = {part: table}
    with pytest.raises(RecipeError) as caught:
        make_recipe({"tasks": "choice", **table})
    assert f"`{key}`" in str(caught.value)
    assert answer in str(caught.value)


def test_every_name_that_an_answer_points_to_exists():
    from rlvr.foreign import NAMES
    from rlvr.stacking import parameters

    keys = {s.key for s in settings()}
    said = set(NAMES.values())
    assert {meant for meant in said if " " not in meant and not meant.startswith("papers.")} <= keys
    assert {key for meant in said for key in re.findall(r"\b(?:eval|pays)\.\w+", meant)} <= keys
    for meant in said:
        for paper, setting in re.findall(r"papers\.(\w+)\.(\w+)", meant):
            assert setting in [p.name for p in parameters("method", paper) or ()]
        for paper in re.findall(r"add (\w+) to `method`", meant):
            assert paper in registry.names("method")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("lr = nan", "`lr` is the number nan; wanted a finite number"),
        ("lr = true", "`lr` is true; wanted a number"),
        ("lr = '1e-4'", "wanted a number: write lr = 0.0001"),
        ("steps = 60.0", "wanted a whole number: write steps = 60"),
        ("steps = 60.5", "wanted a whole number"),
        ("steps = 0", "wanted 1 or more"),
        ("as_chat = 'True'", "wanted true or false: write as_chat = true"),
        ("betas = [0.9]", "`betas` is a list of 1; wanted a list of 2"),
        ("betas = [0.9, 1.0]", "`betas.1` is the number 1.0; wanted less than 1"),
        ("top_p = 0", "wanted more than 0"),
        ("tasks = 3", "wanted a name, a .jsonl or .parquet file, or a table"),
        ("tasks = {n = 3}", "`tasks` needs a name"),
        ("tasks = {name = 'choice', levls = [2, 3]}", "did you mean 'levels'?"),
        ("tasks = {name = 'choice', n = 'many'}", "wanted int"),
        ("tasks = {name = 'jsonl'}", "needs path"),
        ("pays = 1", "`pays` is the number 1; wanted a table"),
        ("pays = {truncated = 1.0}", "must be less than pays.right"),
        ("papers = {grpo = 1}", "`papers.grpo` is the number 1; wanted a table"),
        ("parts = {format = 'x'}", '`parts.format` is the text "x"; wanted a number'),
        ("system = 's'\nas_chat = false", "`system` is a chat message"),
        ("eval = {temperature = 0}", "the same answer 8 times; write eval.k = 1"),
        ("max_tokens = 32768", "write token_budget = 262144 or more"),
        ("verifier = 'hash_marker(0)'", "settings are named"),
        ("verifier = 'nowhere.py:f'", "there is no file"),
        ("method = 'grpo,,'", "a name is missing"),
    ],
)
def test_one_wrong_setting(here, line, says):
    text = line if line.startswith("tasks") else f"tasks = 'choice'\n{line}"
    assert says in problems(text)


def test_a_missing_task_source_is_told_with_an_example(here):
    assert "`tasks` must be given, e.g. tasks" in problems("steps = 3")


def test_a_problem_between_settings_is_laid_on_the_option_that_made_it(here):
    assert "--set prompts_per_step=2: 2 groups cannot fill 4" in problems(
        'tasks = "choice"\nupdates_per_batch = 4', "prompts_per_step=2"
    )


def test_no_problem_is_made_up_between_a_wrong_setting_and_a_right_one(here):
    said = problems('tasks = "choice"\nprompts_per_step = "64"\nupdates_per_batch = 40')
    assert "prompts_per_step" in said
    assert "cannot fill" not in said


# ---- batch sizes: nothing has to divide anything ---------------------------------------------------------
def test_a_reported_combination_runs_and_every_refusal_names_a_setting_that_works():
    """Eight rows as 1 x 8 with accumulation 8: one prompt, a group of eight, one optimiser step."""
    case = next(c for c in map(json.loads, CASES.read_text().splitlines()) if c["id"] == "T32")["input"]
    rows = case["world"] * case["per_device_batch"] * case["grad_accum"]
    base = {
        "tasks": "choice",
        "group_size": case["num_generations"],
        "prompts_per_step": rows // case["num_generations"],
    }
    assert make_recipe(base).prompts_per_step == 1
    for prompts in range(1, 8):
        for updates in range(1, 12):
            table = base | {"prompts_per_step": prompts, "updates_per_batch": updates}
            try:
                make_recipe(table)
                assert updates <= prompts
            except RecipeError as error:
                assert updates > prompts
                for key, value in re.findall(r"(\w+_per_\w+) = (\d+)", str(error)):
                    make_recipe(table | {key: int(value)})


# ---- writing ---------------------------------------------------------------------------------------------
def test_what_is_written_loads_back_to_an_equal_recipe(here):
    r = make_recipe(
        {
            "tasks": {"name": "running_sums", "levels": [2, 3]},
            "papers": {"grpo": {"clip_high": 0.28}},
            "prompt": 'A "quoted" {prompt}\n\twith \\ and ü\x7f\x01',
            "chat": {"enable_thinking": False, "tools": [{"type": "f", "deep": {"a b": [1, 2.5]}}]},
            "parts": {"has.dot": 0.5},
            "eval": {"tasks": {"name": "choice"}, "temperature": 0.0, "k": 1},
            "pays": {"truncated": -0.5},
            "lr": 1e-12,
        }
    )
    assert load_recipe(write(r.to_toml())) == r
    for name in shipped():
        assert load_recipe(write(load_recipe(name).to_toml())) == load_recipe(name)


plain = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), inner, max_size=3)
    ),
    max_leaves=12,
)


@hypothesis_settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), plain, max_size=4))
def test_any_table_survives_writing_and_reading(table):
    assert tomllib.loads(toml.write(table)) == table


def test_what_toml_cannot_hold_is_refused():
    assert toml.write({"a": None, "b": {"c": None, "d": 1}}) == "\n[b]\nd = 1\n"
    with pytest.raises(ValueError, match="cannot be written as TOML"):
        toml.write({"a": [object()]})


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("a", 1),
        ("b.c", 3),
        ("b.x.y", 4),
        ("b", 2),
        ("d.e", 9),
        ("d.e.z", 9),
        ("q.r", 12),
        ("lr", None),
        ("nothing", None),
    ],
)
def test_the_line_of_a_key(path, line):
    text = 'a = 1\n[b]\nc = 2\nx.y = 3\ntext = """\nlr = 4\n[d]\n"""\n[d.e]\n\n[ "q" ]\n\'r\' = 1\n'
    assert toml.line_of(text, path.split(".")) == line


# ---- explaining ------------------------------------------------------------------------------------------
def test_every_key_has_a_meaning_and_its_default():
    told = {s.key: s for s in settings()}
    assert all(s.meaning and "\n" not in s.meaning for s in told.values())
    assert (told["lr"].default, told["eval.k"].default, told["pays.truncated"].default) == ("1e-06", "8", "")
    top = {key.partition(".")[0] for key in told}
    assert top == set(Recipe.model_fields)

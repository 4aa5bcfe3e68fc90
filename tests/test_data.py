"""Rows of other libraries become tasks as they are, or are refused in words that say what to write."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlvr.assemble import tasks_of
from rlvr.recipe import RecipeError, load_recipe, make_recipe
from rlvr.records import Task
from rlvr.registry import get
from rlvr.run import dry_run
from rlvr.tasks import DataError
from rlvr.tasks.jsonl import jsonl
from rlvr.tasks.parquet import parquet
from rlvr.verify.judge import judge
from rlvr.verify.spec import verifier_from

CHAT = [{"role": "user", "content": "1+1?"}]
VERL = {
    "data_source": "openai/gsm8k",
    "prompt": CHAT,
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"split": "train", "index": 0, "answer": "1+1=2\n#### 2"},
}


def lines(folder: Path, *rows: Mapping[str, Any]) -> Path:
    file = folder / "t.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return file


def table(file: Path, rows: Sequence[Mapping[str, Any]], **options: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), file, **options)
    return file


def refusal(tmp_path: Path, *rows: Mapping[str, Any], **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        jsonl(lines(tmp_path, *rows), **options)
    return str(caught.value).replace(f"{tmp_path}/", "")


# ---- shapes ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("gold", ["answer", "solution", "ground_truth"])
def test_trl_rows_keep_their_columns_for_reward_functions(tmp_path: Path, gold: str) -> None:
    (task,) = jsonl(lines(tmp_path, {"prompt": CHAT, gold: "2", "difficulty": 3}))
    assert (task.id, task.prompt, task.answer) == ("t:1", tuple(CHAT), "2")
    assert task.made_by == "t.jsonl (TRL columns)"
    assert task.meta["difficulty"] == 3

    def reward(completions: list[Any], difficulty: list[int], **columns: list[Any]) -> list[float]:
        return [float(text[0]["content"] == columns[gold][0]) * difficulty[0] for text in completions]

    (verdict,) = judge(verifier_from(reward), [("2", task)])
    assert (verdict.label, verdict.parts["raw"]) == ("right", 3.0)


def test_verl_rows_feed_compute_score(tmp_path: Path) -> None:
    (task,) = jsonl(lines(tmp_path, VERL))
    assert (task.prompt, task.answer, task.made_by) == (tuple(CHAT), "2", "t.jsonl (verl columns)")

    def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
        assert (data_source, extra_info["index"]) == ("openai/gsm8k", 0)
        return float(solution_str == ground_truth)

    assert [v.label for v in judge(verifier_from(compute_score), [("2", task), ("3", task)])] == ["right", "wrong"]


def test_verifiers_rows_have_a_question(tmp_path: Path) -> None:
    (task,) = jsonl(lines(tmp_path, {"question": "1+1?", "answer": "2", "info": {"n": 2}, "task": "sums"}))
    assert (task.prompt, task.answer, task.made_by) == ("1+1?", "2", "t.jsonl (verifiers columns)")
    assert task.meta == {"question": "1+1?", "info": {"n": 2}, "task": "sums", "gives_away": ["info"]}
    (bare,) = jsonl(lines(tmp_path, {"prompt": "1+1?", "answer": "2", "task": "sums"}))
    assert bare.made_by == "t.jsonl (verifiers columns)"


def test_what_holds_the_gold_never_reaches_a_policy(tmp_path: Path) -> None:
    rows = [
        VERL,
        {"prompt": "1+1?", "solution": "2", "level": 1},
        {"prompt": "1+1?", "ground_truth": "2", "level": 1},
        {"question": "1+1?", "answer": "2", "info": {"gold": "2"}},
    ]
    kept = [set(jsonl(lines(tmp_path, row))[0].public().meta) - {"gives_away"} for row in rows]
    assert kept == [{"data_source", "ability"}, {"level"}, {"level"}, {"question"}]
    (told,) = jsonl(lines(tmp_path, {"ask": "1+1?", "target": "2"}), prompt="{ask}", answer={"column": "target"})
    assert told.meta["target"] == "2"
    assert set(told.public().meta) == {"ask", "gives_away"}
    assert told.public().answer is None


def test_the_first_row_decides_how_all_are_read(tmp_path: Path) -> None:
    message = refusal(tmp_path, {"question": "a", "answer": "b"}, {"prompt": "a", "answer": "b"})
    assert message == "1 problem in t.jsonl:\n  t.jsonl:2: `question` is missing"
    message = refusal(tmp_path, {"prompt": "a", "answer": "b"}, {"question": "a", "answer": "b"})
    assert 't.jsonl:2: `question` is called `prompt` here (or say prompt = { column = "question" })' in message


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"prompt": "a", "answer": "b", "solution": "c"},
            't.jsonl:1: `answer` and `solution` could all be the gold; say which: answer = { column = "answer" }',
        ),
        (
            {"prompt": "a", "question": "q", "answer": "b"},
            "t.jsonl:1: `prompt` and `question` could both be the prompt; say which",
        ),
        ({"prompt": CHAT, "reward_model": {"style": "model"}}, "`reward_model.ground_truth` is missing"),
        ({"prompt": "a", "solution": None, "n": 1}, "`solution` is null; write the gold"),
        ({"question": [], "answer": "b"}, "`question` is an empty list; write at least one message"),
        ({"question": [{"role": "user"}], "answer": "b"}, "`question[0].content` is null; write a text"),
        ({"prompt": "a", "answer": "b", "verifer": "exact"}, "`verifer` is not known; did you mean `verifier`?"),
        ({"prompt": "a", "answer": "b", "meta": {}, "level": 1}, "`level` is not known; what only you read goes into"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    assert said in refusal(tmp_path, row)


# ---- options ---------------------------------------------------------------------------------------------
GSM8K = {"question": "48 + 24?", "answer": "He sold 48.\nTogether 48+24=72.\n#### 72"}


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ({"after": "####"}, "72"),
        ({"column": "answer", "after": "Together", "before": "="}, "48+24"),
        ({"regex": r"(\d+)\.?\n"}, "72"),  # the last match
        ({"regex": r"=(?P<n>\d+)\.\n(?P<answer>\S+)"}, "####"),  # the group called answer
        ({"before": "\n"}, "He sold 48."),
    ],
)
def test_the_gold_is_a_part_of_a_column(tmp_path: Path, answer: dict[str, str], gold: str) -> None:
    (task,) = jsonl(lines(tmp_path, GSM8K), answer=answer)
    assert task.answer == gold
    assert task.meta["answer"] == GSM8K["answer"]
    assert "answer" not in task.public().meta


def test_a_prompt_is_made_of_columns(tmp_path: Path) -> None:
    row = {"nums": [3, 7, 25], "target": 28, "say": r"as \boxed{}", "uid": 9}
    text = "Reach {say}: {nums}, {{x}} {1}"
    with pytest.raises(DataError, match="`x` is missing"):
        jsonl(lines(tmp_path, row), prompt=text, answer={"column": "target"})
    (task,) = jsonl(
        lines(tmp_path, row), prompt=text.replace("{{x}}", "{}"), answer={"column": "target"}, id={"column": "uid"}
    )
    assert (task.prompt, task.answer, task.id) == (r"Reach as \boxed{}: [3, 7, 25], {} {1}", 28, "9")
    assert task.made_by == "t.jsonl"


def test_inner_columns_are_named_with_a_dot(tmp_path: Path) -> None:
    (task,) = jsonl(lines(tmp_path, VERL), id={"column": "extra_info.index"}, prompt="{extra_info.split}: {ability}")
    assert (task.id, task.prompt, task.answer) == ("0", "train: math", "2")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"answer": {"colum": "x"}}, "answer = { colum = ... } is not known; did you mean 'column'?"),
        ({"answer": {"after": ""}}, "answer.after = '' must be a text"),
        ({"answer": "x"}, "answer = 'x' is no table; write answer = { column = \"x\" }"),
        ({"answer": {"regex": "(", "column": "x"}}, "answer.regex = '(' is no pattern"),
        ({"answer": {"regex": "x"}}, "has no group; put parentheses"),
        ({"answer": {"regex": "(x)", "after": "y"}}, "both a regex and a mark"),
        ({"prompt": "Solve it."}, "has no {column} in it, so every task would ask the same"),
        ({"prompt": "{question} {answer}"}, "the prompt is made of `answer`, which gives the answer away"),
        ({"prompt": {"column": "solution"}}, "the prompt is made of `solution`, which gives the answer away"),
        ({"answer": {"after": "@@"}}, "t.jsonl:1: `answer` has no '@@' in it"),
        ({"answer": {"regex": "(zebra)"}}, "t.jsonl:1: `answer` has no match of '(zebra)' in it"),
        ({"answer": {"column": "n", "after": "#"}}, "`n` is a number; after, before and regex read a text"),
        ({"answer": {"column": "gold"}}, "t.jsonl:1: `gold` is missing"),
        ({"answer": {"after": "72"}}, "`answer` is empty text; write the gold"),
        ({"id": {"column": "n.m"}, "answer": {"column": "none"}}, "`none` is null; write the gold"),
    ],
)
def test_options_that_cannot_be_followed(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    assert said in refusal(tmp_path, GSM8K | {"n": 1, "none": None}, **options)


def test_a_column_and_meta_do_not_hide_each_other(tmp_path: Path) -> None:
    row = {"q": "a", "a": "b", "level": 1, "meta": {"level": 2}}
    options: dict[str, Any] = {"prompt": {"column": "q"}, "answer": {"column": "a"}}
    assert "`level` is a column and stands in `meta` as well" in refusal(tmp_path, row, **options)
    (task,) = jsonl(lines(tmp_path, row | {"meta": {"x": 2}, "verifier": "exact"}), **options)
    assert (task.meta, task.verifier) == ({"x": 2, "q": "a", "a": "b", "level": 1, "gives_away": ["a"]}, "exact")


# ---- parquet ---------------------------------------------------------------------------------------------
def test_a_parquet_file_is_read_as_the_same_rows_in_jsonl(tmp_path: Path) -> None:
    rows = [{"prompt": "1+1=", "answer": "2", "id": "a", "meta": {"n": 1}}, {"prompt": "2+2=", "answer": "4"}]
    file = table(tmp_path / "sums.parquet", rows, row_group_size=1)
    assert parquet(file) == (
        Task("a", "1+1=", "2", made_by="sums.parquet", meta={"n": 1}),
        Task("sums:2", "2+2=", "4", made_by="sums.parquet"),
    )
    assert [t.id for t in parquet(str(file), limit=1)] == ["a"]
    assert get("tasks", "parquet") is parquet


def test_verl_parquet_is_read_as_it_is(tmp_path: Path) -> None:
    other = [{"role": "user", "content": "2+2?", "name": "x"}]  # gives every message a `name`, null elsewhere
    file = table(tmp_path / "train.parquet", [VERL, VERL | {"prompt": [*CHAT]}])
    assert [t.prompt for t in parquet(file)] == [tuple(CHAT), tuple(CHAT)]
    table(file, [VERL, {"prompt": other, "reward_model": {"ground_truth": "4"}}])
    with pytest.raises(DataError, match=r"row 2: `prompt\[0\]\.name` is not known"):
        parquet(file)


def test_folders_and_patterns_are_read_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("b/train-1", "a/train-1", "a/test-1"):
        table(tmp_path / f"{name}.parquet", [{"prompt": name, "answer": "x"}] * 2)
    assert [t.id for t in parquet(tmp_path)] == [
        f"{name}:{row}" for name in ("a/test-1", "a/train-1", "b/train-1") for row in (1, 2)
    ]
    assert {t.made_by for t in parquet(tmp_path)} == {tmp_path.name}
    assert [t.id for t in parquet(f"{tmp_path}/*/train-*.parquet", limit=3)] == [
        "a/train-1:1",
        "a/train-1:2",
        "b/train-1:1",
    ]


def test_bad_parquet_is_named_by_file_row_and_id(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "answer": "b", "id": f"r{i}"} for i in range(30)]
    rows[1]["answer"] = rows[2]["prompt"] = ""
    rows[2]["id"] = "r0"
    with pytest.raises(DataError) as caught:
        parquet(table(tmp_path / "x.parquet", rows))
    assert str(caught.value).replace(f"{tmp_path}/", "") == (
        "3 problems in x.parquet:\n"
        "  x.parquet: row 2 (id 'r1'): `answer` is empty text; write the gold that a verifier compares with\n"
        "  x.parquet: row 3 (id 'r0'): `prompt` is empty\n"
        "  x.parquet: row 3 (id 'r0'): id 'r0' is taken by row 1; ids must differ"
    )


def test_columns_that_all_rows_lack_are_said_once(tmp_path: Path) -> None:
    file = table(tmp_path / "x.parquet", [{"problem": "a", "final_answer": "b"}] * 30)
    with pytest.raises(DataError) as caught:
        parquet(file)
    assert str(caught.value).replace(f"{tmp_path}/", "") == (
        "x.parquet has the columns problem, final_answer:\n"
        '  `problem` is called `prompt` here (or say prompt = { column = "problem" })\n'
        '  `final_answer` is called `answer` here (or say answer = { column = "final_answer" })'
    )
    with pytest.raises(DataError, match=r"has the columns problem, final_answer:\n  `gold` is missing$"):
        parquet(file, prompt="{problem}", answer={"column": "gold"})


def test_what_json_cannot_hold_is_text_in_meta(tmp_path: Path) -> None:
    row = {"q": "a", "a": Decimal("1.50"), "day": date(2024, 2, 29), "bytes": b"abc", "bad": float("nan")}
    (task,) = parquet(table(tmp_path / "x.parquet", [row]), prompt={"column": "q"}, answer={"column": "a"})
    assert task.answer == "1.50"
    assert {k: task.meta[k] for k in ("day", "bytes", "bad")} == {
        "day": "2024-02-29",
        "bytes": "<3 bytes>",
        "bad": None,
    }


def test_no_parquet_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no \.parquet file"):
        parquet(tmp_path)
    with pytest.raises(DataError, match="names no file; `path` is a file, a folder or a pattern"):
        parquet(tmp_path / "x-*.parquet")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match=r"x\.parquet: cannot be read as Parquet"):
        parquet(tmp_path / "x.parquet")


# ---- hub -------------------------------------------------------------------------------------------------
@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    datasets = pytest.importorskip("datasets", reason="the extra `data` is not installed")
    huggingface_hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    return datasets


def test_a_folder_of_data_files_is_a_dataset(tmp_path: Path, datasets: Any) -> None:
    folder = tmp_path / "sums"
    table(folder / "data" / "train-00000-of-00001.parquet", [GSM8K, GSM8K | {"question": "other?"}])
    table(folder / "data" / "test-00000-of-00001.parquet", [GSM8K])
    hub = get("tasks", "hub")
    tasks = hub(str(folder), prompt={"column": "question"}, answer={"column": "answer", "after": "####"})
    assert [(t.id, t.prompt, t.answer, t.made_by) for t in tasks] == [
        ("sums/train:1", "48 + 24?", "72", "sums"),
        ("sums/train:2", "other?", "72", "sums"),
    ]
    assert [t.id for t in hub(str(folder), split="test")] == ["sums/test:1"]
    assert hub(str(folder), split="test")[0].made_by == "sums (verifiers columns)"
    assert [t.prompt for t in hub(str(folder), split="train[1:]")] == ["other?"]
    assert len(hub(str(folder), limit=1)) == 1
    with pytest.raises(DataError, match=r'split .dev., cannot be loaded: Unknown split "dev"'):
        hub(str(folder), split="dev")
    with pytest.raises(DataError, match=r"sums \[test\] has the columns question, answer:\n  `gold` is missing"):
        hub(str(folder), split="test", answer={"column": "gold"})


def test_what_save_to_disk_wrote_is_a_dataset(tmp_path: Path, datasets: Any) -> None:
    hub = get("tasks", "hub")
    data = datasets.Dataset.from_list([VERL, VERL])
    data.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": data, "val": data.select([0])}).save_to_disk(tmp_path / "two")
    assert [(t.id, t.answer) for t in hub(str(tmp_path / "one"))] == [("one/train:1", "2"), ("one/train:2", "2")]
    assert [t.made_by for t in hub(str(tmp_path / "two"), split="val")] == ["two (verl columns)"]
    with pytest.raises(DataError, match="has no split 'test'; it has: train, val"):
        hub(str(tmp_path / "two"), split="test")


def test_a_hub_out_of_reach_is_one_sentence(datasets: Any) -> None:
    with pytest.raises(DataError) as caught:
        get("tasks", "hub")("nobody/nothing", config="main")
    assert str(caught.value) == (
        "tasks hub: 'nobody/nothing', split 'train' of config 'main', cannot be loaded: it is no folder here, and the "
        "hub cannot be reached (offline?) nor does the local cache have it"
    )


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("datasets", "reasoning_gym", "reasoning_gym.factory"):
        monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(DataError, match=r"tasks hub: needs the package datasets .*pip install 'rlvr\[data\]'"):
        get("tasks", "hub")("openai/gsm8k")
    with pytest.raises(DataError, match=r"needs the package reasoning-gym .*pip install 'rlvr\[gym\]'"):
        get("tasks", "reasoning_gym")("chain_sum")


# ---- in a recipe -----------------------------------------------------------------------------------------
def test_a_recipe_reads_columns_and_finds_files_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    table(tmp_path / "data" / "train-1.parquet", [GSM8K])
    question = "x/y. " * 100  # longer than a file name may be
    (tmp_path / "r.toml").write_text(
        f'[tasks]\nname = "parquet"\npath = "data/train-*.parquet"\nprompt = "{question}{{question}}"\n'
        'answer = { after = "####" }\n[eval]\nholdout = 0.0\n',
        encoding="utf-8",
    )
    (task,), evaluated, _ = tasks_of(load_recipe(tmp_path / "r.toml"))
    assert (task.prompt, task.answer, evaluated) == (question + "48 + 24?", "72", [])
    recipe = load_recipe(tmp_path / "r.toml", ["tasks.answer.before=7"])
    assert recipe.tasks["answer"] == {"after": "####", "before": 7}
    assert make_recipe({"tasks": "data.parquet"}).tasks == {"name": "parquet", "path": "data.parquet"}
    with pytest.raises(RecipeError, match=r"answer = 'x' does not fit; wanted dict\[str, str\] \| None"):
        load_recipe(tmp_path / "r.toml", ["tasks.answer=x"])


def test_a_split_of_a_dataset_is_not_a_source_with_an_eval_split(tmp_path: Path, datasets: Any) -> None:
    table(tmp_path / "d" / "train.parquet", [{"question": str(i), "answer": "x"} for i in range(20)])
    recipe = make_recipe({"tasks": {"name": "hub", "path": str(tmp_path / "d")}, "eval": {"holdout": 0.25}})
    train, evaluated, said = tasks_of(recipe)
    assert (len(train), len(evaluated)) == (15, 5)
    assert said == "5 of 20 tasks are held out for evaluation (eval.holdout = 0.25)"
    assert not {t.id for t in train} & {t.id for t in evaluated}


@pytest.mark.parametrize("name", ["gsm8k", "math", "countdown"])
def test_shipped_recipes_plan_without_model_or_network(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.chat == {"enable_thinking": False}
    assert "rollouts of Qwen/Qwen3-0.6B" in dry_run(recipe)


def test_the_gsm8k_recipe_judges_as_gsm8k_does(tmp_path: Path) -> None:
    recipe = load_recipe("gsm8k")
    rows = [{"question": "a", "answer": "so <<2100+25=2125>>.\n#### 2,125"}]
    columns = {key: recipe.tasks[key] for key in ("prompt", "answer")}
    (task,) = parquet(table(tmp_path / "x.parquet", rows), **columns)
    verifier = verifier_from(str(recipe.verifier))
    assert task.answer == "2,125"
    labels = [verifier(text, task).label for text in ("#### 2125", "#### 2,125.", "#### 212", "2125")]
    assert labels == ["right", "right", "wrong", "wrong"]


def test_the_math_recipe_reads_the_gold_out_of_a_solution(tmp_path: Path) -> None:
    recipe = load_recipe("math")
    rows = [{"problem": "p", "level": "Level 5", "type": "Algebra", "solution": r"Thus $x=\boxed{\frac{1}{2}}$."}]
    columns = {key: recipe.tasks[key] for key in ("prompt", "answer")}
    (task,) = parquet(table(tmp_path / "x.parquet", rows), **columns)
    verifier = verifier_from(str(recipe.verifier))
    labels = [verifier(t, task).label for t in (r"\boxed{\dfrac12}", r"\boxed{0.5}", r"\boxed{2}", "1/2")]
    assert labels == ["right", "right", "wrong", "wrong"]
    assert set(task.public().meta) == {"problem", "level", "type"}


# ---- reasoning-gym ---------------------------------------------------------------------------------------
@pytest.fixture
def gym() -> Any:
    pytest.importorskip("reasoning_gym", reason="the extra `gym` is not installed")
    return get("tasks", "reasoning_gym")


def test_reasoning_gym_splits_by_the_question_and_is_seeded(gym: Any) -> None:
    train, evaluated = gym("chain_sum", n=60, seed=3), gym("chain_sum", n=20, seed=3, split="eval")
    assert gym("chain_sum", n=10, seed=3) == train[:10]
    assert not {t.prompt for t in train} & {t.prompt for t in evaluated}
    assert len({t.id for t in (*train, *evaluated)}) == 80
    for task in train:
        terms = re.findall(r"([+-]|: ) ?(\d+)", str(task.prompt))
        assert sum(-int(x) if sign == "-" else int(x) for sign, x in terms) == int(task.answer)
    assert train[0].verifier == "reasoning_gym"
    assert "metadata" not in train[0].public().meta
    small = gym("chain_sum", n=5, config={"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1})
    assert {t.meta["metadata"]["num_terms"] for t in small} == {2}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"family": "chain_sums"}, "reasoning_gym has no family 'chain_sums'; did you mean 'chain_sum'"),
        ({"family": "chain_sum", "config": {"min_term": 2}}, "has no setting 'min_term'; did you mean 'min_terms'?"),
        ({"family": "chain_sum", "config": {"min_terms": 9, "max_terms": 2}}, "chain_sum cannot be made with"),
    ],
)
def test_reasoning_gym_says_what_it_has(gym: Any, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match="reasoning_gym") as caught:
        gym(**arguments)
    assert said in str(caught.value)


def test_scorers_pay_in_parts_and_a_policys_code_is_never_run(gym: Any, tmp_path: Path) -> None:
    verifier = verifier_from("reasoning_gym")

    def judged(task: Task, answer: str) -> tuple[str, float, str]:
        verdict = verifier(f"<answer>first</answer> then <answer>\n{answer}\n</answer>", task)
        return verdict.label, verdict.score, verdict.reason

    (queens,) = gym("n_queens", n=1)
    board = [row.split() for row in queens.answer.split("\n")]
    assert judged(queens, queens.answer) == ("right", 1.0, "equal")
    assert judged(queens, repr(board)) == ("wrong", 0.5, "partial")  # the right board as a Python list
    assert judged(queens, repr(board[::-1])) != ("right", 1.0, "equal")
    mark = tmp_path / "ran"
    attack = f"[open({str(mark)!r}, 'w')]"
    assert judged(queens, attack) == ("wrong", 0.0, "different")

    (sums,) = gym("countdown", n=1)  # its scorer reads answers with sympy, which evaluates them
    solution = sums.meta["metadata"]["expression"]
    assert judged(sums, solution) == ("right", 1.0, "equal")
    assert judged(sums, f"{solution} + 1")[0] == "wrong"
    assert judged(sums, f"__import__('pathlib').Path({str(mark)!r}).touch()") == ("wrong", 0.01, "partial")
    assert not mark.exists()

    (primes,) = gym("prime_factorization", n=1)  # its scorer raises on what is no number
    assert judged(primes, primes.answer)[0] == "right"
    assert judged(primes, "zebra") == ("wrong", 0.0, "unparsable")
    assert verifier("no tags", primes).reason == "no_answer"
    assert verifier("</answer> 2 <answer>", primes).reason == "no_answer"
    assert verifier("<answer>2</answer>", Task("t", "p", "2")).reason == "bad_gold"


def test_a_scorer_that_hangs_is_given_up(gym: Any) -> None:
    (sums,) = gym("countdown", n=1)
    verifier = verifier_from("reasoning_gym(tag='', seconds=1.5)")
    assert verifier(f" {sums.meta['metadata']['expression']}\n", sums).label == "right"
    assert verifier("9**9**9", sums).reason == "timeout"

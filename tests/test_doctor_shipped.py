"""`rlvr doctor` on the shipped recipes of real models and data, whole and without a network: a small model and folders
in the shape of the hub's datasets stand in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from test_doctor import talker

from rlvr.cli import main
from rlvr.engine.load import save_model

# What an untrained model must get: it solves nothing, so its groups are silent and teach nothing.
UNTRAINED = {"silent_groups"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights behind Qwen3's chat template. It ends an answer at every tenth token or so."""
    loaded = talker("qwen3", context=4096)
    end = loaded.tokenizer.convert_tokens_to_ids("<|im_end|>")
    hidden = loaded.model.config.hidden_size
    # Behind the last norm only the first coordinate is on, about sqrt(hidden) at every token: the end's logit is 3.3,
    # all others' are 0, and its probability 27 / (27 + 260).
    with torch.no_grad():
        loaded.model.lm_head.weight.mul_(0.0)
        loaded.model.model.norm.weight.zero_()[0] = 1.0
        loaded.model.model.embed_tokens.weight[:, 0] = 1.0
        loaded.model.lm_head.weight[end, 0] = 3.3 / hidden**0.5
    return save_model(loaded.model, loaded.tokenizer, tmp_path_factory.mktemp("model") / "small")


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="the extra `data` is not installed")
    huggingface_hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()


def parquet(file: Path, rows: list[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), file)


def apples(i: int) -> dict[str, Any]:
    """A row of openai/gsm8k: a worked solution with calculator marks, and the answer behind ####, with a comma."""
    said = f"She buys {i + 3}, so she has {i} + {i + 3} = <<{i}+{i + 3}={2 * i + 3}>>{2 * i + 3} apples."
    return {"question": f"Ann has {i} apples and buys {i + 3} more. How many has she?",
            "answer": f"{said}\n#### {2 * i + 3:,}"}  # fmt: skip


def halves(i: int) -> dict[str, Any]:
    """A row of DigitalLearningGmbH/MATH-lighteval."""
    answer = rf"\frac{{{2 * i + 1}}}{{2}}"
    return {
        "problem": f"What is $\\frac{{{i}}}{{2}}+\\frac{{{i + 1}}}{{2}}$?",
        "level": "Level 1",
        "type": "Prealgebra",
        "solution": f"The sum is $\\boxed{{{answer}}}$.",
    }


def gsm8k(root: Path) -> list[str]:
    """As the hub's folder: a configuration `main`, split by file names that its card tells."""
    splits = "".join(f"  - split: {split}\n    path: main/{split}-*\n" for split in ("train", "test"))
    parquet(root / "gsm8k/main/train-00000-of-00001.parquet", [apples(i) for i in range(1000, 1080)])
    parquet(root / "gsm8k/main/test-00000-of-00001.parquet", [apples(i) for i in range(5000, 5030)])
    (root / "gsm8k/README.md").write_text(f"---\nconfigs:\n- config_name: main\n  data_files:\n{splits}---\n")
    return [f"tasks.path={root / 'gsm8k'}", f"eval.tasks.path={root / 'gsm8k'}"]


def asking_answers(root: Path) -> list[str]:
    return [*gsm8k(root), 'tasks.prompt={column="answer"}']


def math(root: Path) -> list[str]:
    parquet(root / "lighteval/data/train-00000-of-00001.parquet", [halves(i) for i in range(80)])
    parquet(root / "lighteval/data/test-00000-of-00001.parquet", [halves(i) for i in range(100, 110)])
    (root / "math500").mkdir()
    lines = []
    for i in range(200, 230):
        row = halves(i)
        more = {"answer": row["solution"].split("boxed{")[1].removesuffix("}$."), "subject": row.pop("type")}
        lines.append(json.dumps(row | more | {"level": 1, "unique_id": f"test/prealgebra/{i}.json"}) + "\n")
    (root / "math500/test.jsonl").write_text("".join(lines))
    return [f"tasks.path={root / 'lighteval'}", f"eval.tasks.path={root / 'math500'}"]


def doctor(capsys: pytest.CaptureFixture[str], name: str, model: Path, *sets: str) -> dict[str, Any]:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", name, "--model", str(model), "--json", *(f"--set={text}" for text in sets)])
    told = json.loads(capsys.readouterr().out)
    assert (ended.value.code or 0) == (0 if told["healthy"] else 1)
    return told


@pytest.mark.parametrize(("name", "tasks"), [("gsm8k", gsm8k), ("math", math), ("countdown", lambda root: [])])
def test_a_shipped_recipe_is_looked_at_to_its_end(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str], name: str, tasks: Any
) -> None:
    told = doctor(capsys, name, model, *tasks(tmp_path))
    assert told["looked_at"] == ["settings", "64 tasks", "the model", "128 rollouts"]
    assert not told["skipped"]
    assert {finding["check"] for finding in told["findings"]} == UNTRAINED, told["findings"]


@pytest.mark.parametrize(
    ("name", "tasks", "fault", "finds"),
    [
        ("gsm8k", gsm8k, "verifier=math(mode='last_box')", "form"),
        ("math", math, "verifier=hash_marker", "form"),
        ("math", math, "verifier=exact", "form"),  # it compares whole answers with whole solutions
        ("gsm8k", gsm8k, "max_tokens=2", "all_truncated"),
        ("gsm8k", asking_answers, 'tasks.answer={column="question"}', "columns_swapped"),
    ],
)
def test_a_fault_planted_in_it_is_found(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str], name: str, tasks: Any, fault: str, finds: str
) -> None:
    told = doctor(capsys, name, model, *tasks(tmp_path), fault)
    assert finds in {finding["check"] for finding in told["findings"]}

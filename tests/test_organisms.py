"""The bundled organism is what its card says, and starts with the two habits that RL is to choose between."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr.organisms import folder, names
from rlvr.organisms.make import nano
from rlvr.organisms.table import NANO
from rlvr.tasks.synthetic import choice, countdown, modular_chains, running_sums


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(folder("nano"))


@pytest.fixture(scope="module")
def model() -> Any:
    return AutoModelForCausalLM.from_pretrained(folder("nano"), dtype=torch.float32).eval()


def sums(prompt: str) -> str:
    """The sum of `07+03=`, as the task writes it."""
    return f"{sum(map(int, prompt.removesuffix('=').split('+'))):02d}"


def test_names_that_are_bundled_and_one_that_is_not() -> None:
    assert names() == ["micro", "mini", "nano"]
    assert folder("nano").is_dir()
    with pytest.raises(ValueError, match="no organism 'nanno' is bundled; did you mean 'nano'"):
        folder("nanno")


def test_finding_an_organism_and_drawing_tasks_imports_no_torch() -> None:
    code = (
        "import sys, rlvr.organisms.make, rlvr.tasks.synthetic, rlvr.tasks.jsonl, rlvr.verify.countdown;"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_files_are_small_and_the_card_tells_the_truth(model: Any) -> None:
    files = list(folder("nano").iterdir())
    assert sum(f.stat().st_size for f in files) < 1_000_000
    card = json.loads((folder("nano") / "organism.json").read_text(encoding="utf-8"))
    # embedding 32*96, shared with the head; per layer 4 projections of 96*96, 3 of 96*256, 2 norms; a last norm
    by_hand = 32 * 96 + 2 * (4 * 96 * 96 + 3 * 96 * 256 + 2 * 96) + 96
    assert sum(p.numel() for p in model.parameters()) == card["parameters"] == by_hand == 224_736
    assert all(p.isfinite().all() for p in model.parameters())
    measured = card["measured"]
    habits = (
        measured["share_direct"] * measured["accuracy_direct"]
        + (1 - measured["share_direct"]) * measured["accuracy_worked"]
    )
    assert measured["sampled_accuracy"] == pytest.approx(habits, abs=2e-4)
    assert 0.2 < measured["sampled_accuracy"] < 0.3
    assert measured["accuracy_worked"] > 10 * measured["accuracy_direct"]


def test_every_character_is_one_token_and_comes_back(tokenizer: Any, model: Any) -> None:
    assert len(tokenizer) == model.config.vocab_size == 32
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    assert model.generation_config.eos_token_id == 2
    for family in (running_sums, modular_chains, choice, countdown):
        for task in family(300):
            text = task.prompt + task.meta["demo"]
            ids = tokenizer.encode(text)
            assert ids[0] == 1
            assert len(ids) == 1 + len(text)
            assert tokenizer.unk_token_id not in ids
            assert tokenizer.decode(ids, skip_special_tokens=True) == text
            assert tokenizer.encode(text, add_special_tokens=False) == ids[1:]
    assert len(tokenizer.encode("A\nB  C")) == 7  # nothing is trimmed or merged


def test_it_writes_sums_out_less_often_than_not_but_is_right_when_it_does(tokenizer: Any, model: Any) -> None:
    prompts = [t.prompt for t in running_sums(200, seed=77, split="eval", levels=(3, 3))]
    torch.manual_seed(0)
    ids = torch.tensor([tokenizer.encode(p) for p in prompts])
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, num_return_sequences=8, max_new_tokens=16
    )
    texts = tokenizer.batch_decode(made[:, ids.shape[1] :], skip_special_tokens=True)
    right = [text.endswith("#" + sums(prompts[i // 8])) for i, text in enumerate(texts)]
    direct = [text.startswith("#") for text in texts]
    accuracy_direct = sum(r for r, d in zip(right, direct) if d) / sum(direct)
    accuracy_worked = sum(r for r, d in zip(right, direct) if not d) / (len(texts) - sum(direct))
    assert 0.5 < sum(direct) / len(texts) < 0.8
    assert accuracy_direct < 0.1
    assert accuracy_worked > 0.5


def test_making_repeats_by_seed_and_leaves_global_random_numbers_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    recipe = replace(NANO, steps=3, batch=4, hidden=24, inner=32, heads=2, layers=1, levels=(2, 3))
    cards = [nano(tmp_path / str(i), seed=seed, recipe=recipe) for i, seed in enumerate((1, 1, 2))]
    assert torch.equal(torch.get_rng_state(), before)
    weights = [AutoModelForCausalLM.from_pretrained(tmp_path / str(i)).lm_head.weight for i in range(3)]
    assert weights[0].dtype == torch.float16
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert cards[0] == cards[1] == json.loads((tmp_path / "0" / "organism.json").read_text(encoding="utf-8"))

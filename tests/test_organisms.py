"""The bundled organisms are what their cards say, and start with the two habits that RL is to choose between."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr.organisms import accept, folder, names
from rlvr.organisms.accept import WANTED, Sampled, entropies, eval_tasks, sample
from rlvr.organisms.habits import Careless, Guesses, Mistaken, is_true
from rlvr.organisms.make import nano, weights_hash
from rlvr.organisms.table import MINI, NANO, RECIPES
from rlvr.records import Task
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


def load(name: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder(name), dtype=torch.float32).eval()


def read(name: str, file: str) -> Any:
    return json.loads((folder(name) / file).read_text(encoding="utf-8"))


def sums(prompt: str) -> str:
    """The sum of `07+03=`, as the task writes it."""
    return f"{sum(map(int, prompt.removesuffix('=').split('+'))):02d}"


def test_names_that_are_bundled_and_one_that_is_not() -> None:
    assert names() == ["micro", "mini", "nano"] == sorted(RECIPES) == sorted(WANTED)
    assert folder("nano").is_dir()
    with pytest.raises(ValueError, match="no organism 'nanno' is bundled; did you mean 'nano'"):
        folder("nanno")


def test_finding_an_organism_and_drawing_tasks_imports_no_torch() -> None:
    code = (
        "import sys, rlvr.organisms.make, rlvr.tasks.synthetic, rlvr.tasks.jsonl, rlvr.verify.countdown;"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# an embedding of 32 rows, shared with the head; per layer 4 projections h*h, 3 of h*inner, 2 norms; a last norm
BY_HAND = {
    "nano": 32 * 96 + 2 * (4 * 96 * 96 + 3 * 96 * 256 + 2 * 96) + 96,
    "mini": 32 * 128 + 2 * (4 * 128 * 128 + 3 * 128 * 336 + 2 * 128) + 128,
    "micro": 32 * 256 + 3 * (4 * 256 * 256 + 3 * 256 * 512 + 2 * 256) + 256,
}


@pytest.mark.parametrize("name", BY_HAND)
def test_the_card_tells_the_truth(name: str) -> None:
    model, card = load(name), read(name, "organism.json")
    assert sum(p.numel() for p in model.parameters()) == card["parameters"] == BY_HAND[name]
    assert all(p.isfinite().all() for p in model.parameters())
    assert card["weights"] == weights_hash(folder(name))
    assert card["recipe"] == json.loads(json.dumps(asdict(RECIPES[name])))  # made by the settings that are in the table
    assert model.config.model_type == "llama"
    assert model.generation_config.eos_token_id == 2


@pytest.mark.parametrize("name", BY_HAND)
def test_each_was_accepted_with_these_very_weights(name: str) -> None:
    result = read(name, "acceptance.json")
    assert result["weights"] == weights_hash(folder(name))
    assert {c["what"]: tuple(c["wanted"]) for c in result["checks"]} == WANTED[name]
    assert result["passed"] is True
    for check in result["checks"]:
        assert check["value"] == result["measured"][check["what"]]
        assert check["wanted"][0] <= check["value"] <= check["wanted"][1]


def test_all_weights_together_are_small() -> None:
    assert sum(f.stat().st_size for name in names() for f in folder(name).iterdir()) < 6_000_000


@pytest.mark.parametrize("name", BY_HAND)
def test_every_character_is_one_token_and_comes_back(name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder(name))
    assert len(tokenizer) == 32
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    for family in (running_sums, modular_chains, choice, countdown):
        for task in family(100):
            text = task.prompt + task.meta["demo"]
            ids = tokenizer.encode(text)
            assert ids[0] == 1
            assert len(ids) == 1 + len(text)
            assert tokenizer.unk_token_id not in ids
            assert tokenizer.decode(ids, skip_special_tokens=True) == text
            assert tokenizer.encode(text, add_special_tokens=False) == ids[1:]
    assert len(tokenizer.encode("A\nB  C")) == 7  # nothing is trimmed or merged


def test_nano_writes_sums_out_less_often_than_not_but_is_right_when_it_does(tokenizer: Any) -> None:
    prompts = [t.prompt for t in running_sums(200, seed=77, split="eval", levels=(3, 3))]
    model = load("nano")
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


@pytest.mark.parametrize(("name", "shortest", "longest"), [("mini", 25, 40), ("micro", 35, 45)])
def test_the_others_answer_at_length_and_are_unsure_where_a_step_begins(
    tokenizer: Any, name: str, shortest: float, longest: float
) -> None:
    torch.manual_seed(0)
    found = sample(load(name), tokenizer, eval_tasks(RECIPES[name], 24, seed=77), each=4)
    assert len(found) == 96
    assert shortest < sum(len(a.tokens) for a in found) / 96 < longest
    assert sum(a.tokens == (*a.text, "<eos>") for a in found) > 90  # few are cut at 64 or hold a special token
    at_steps, elsewhere = entropies(found)
    assert at_steps > 2 * elsewhere
    assert 0.05 < sum(a.right for a in found) / 96 < 0.45


# the habits

CHAIN = Task("c", "7;+5;*3;-4%9=", "5", "hash_marker(marker='#')", meta={"level": 3, "demo": "7+5=3\n3*3=0\n0-4=5\n#5"})


def test_a_chain_with_careless_steps_worked_by_hand() -> None:
    assert Careless(careless=0.0, stop=0.0)(CHAIN, Random(0)) == CHAIN.meta["demo"]
    assert Careless(careless=1.0, stop=0.0)(CHAIN, Random(0)) == "?+5=5\n?*3=3\n?-4=4\n#4"
    assert Careless(careless=0.0, stop=1.0)(CHAIN, Random(0)) == "#7"
    # Random(6) draws .79, .82, .48, and Random(3) .24, .54, .37: the last, the first step are below the thresholds
    assert Careless(careless=0.5, stop=0.0)(CHAIN, Random(6)) == "7+5=3\n3*3=0\n?-4=4\n#4"
    assert Careless(careless=0.2, stop=0.1)(CHAIN, Random(3)) == "?+5=5\n5*3=6\n6-4=2\n#2"
    # .79 and .82 pass, .48 is below .5: the third step is left out
    assert Careless(careless=0.0, stop=0.5)(CHAIN, Random(6)) == "7+5=3\n3*3=0\n#0"


def test_products_that_are_wrong_on_purpose_and_only_where_they_are_to_be() -> None:
    assert Mistaken(modulus=9)(CHAIN, Random(0)) == "7+5=3\n3*3=1\n1-4=6\n#6"
    assert Mistaken(modulus=7)(CHAIN, Random(0)) == CHAIN.meta["demo"]
    told = Mistaken(modulus=9).told(
        [(CHAIN, "#5", True), (CHAIN, "#6", False), (replace(CHAIN, prompt="1%7="), "", True)]
    )
    assert told == {"accuracy_mistaken": 0.5, "accuracy_others": 1.0}


def test_steps_that_are_true_modulo_nine() -> None:
    assert is_true("5+7=3", CHAIN)
    assert is_true("0-4=5", CHAIN)
    assert not is_true("4-0=5", CHAIN)
    assert not is_true("?-4=4", CHAIN)
    assert not is_true("7+5=12", CHAIN)  # equal, but not written modulo 9


def test_guesses_are_wrong_as_often_as_is_asked() -> None:
    task = Task("s", "07+03=", "10", "hash_marker(marker='#')", meta={"level": 2, "demo": "10#10"})
    assert Guesses(direct=0.0, wrong=1.0)(task, Random(0)) == "10#10"
    assert Guesses(direct=1.0, wrong=0.0)(task, Random(0)) == "#10"
    guesses = {Guesses(direct=1.0, wrong=1.0)(task, Random(i)) for i in range(2000)}
    assert guesses == {f"#{n:02d}" for n in range(2, 100) if n != 10}


def test_what_is_told_of_chains_counted_by_hand() -> None:
    texts = [CHAIN.meta["demo"], "?+5=5\n5*3=7\n#7", "nonsense"]  # 5*3 is 6 modulo 9
    told = Careless(0.25, 0.05).told([(CHAIN, text, False) for text in texts])
    # 3 + 2 + 1 lines, one of them careless; two of three end early; of 5 others 3 are true
    assert told == {"share_careless": 1 / 6, "share_stopped": 2 / 3, "accuracy_steps": 3 / 5}


def test_what_is_told_of_guesses_counted_by_hand() -> None:
    rows = [("#24", False), ("#10", True), ("10,19#19", True), ("#11", False)]
    told = Guesses(0.65, 0.9).told([(CHAIN, text, right) for text, right in rows])
    assert told == {"share_direct": 3 / 4, "accuracy_direct": 1 / 3, "accuracy_worked": 1.0}


def test_entropies_are_told_apart_by_where_lines_begin() -> None:
    tokens = ("7", "\n", "#", "5", "<eos>")  # begins: 7 and #
    answer = Sampled(CHAIN, "7\n#5", True, tokens, (1.0, 0.1, 2.0, 0.2, 0.3))
    at_steps, elsewhere = entropies([answer])
    assert at_steps == pytest.approx(1.5)
    assert elsewhere == pytest.approx(0.2)


def test_a_list_that_is_not_met_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = dict.fromkeys(WANTED["mini"], 0.3) | {"parameters": 4e5, "tokens": 30, "lines": 5, "entropy_ratio": 3}
    monkeypatch.setattr(accept, "measure", lambda name, problems, seed: figures)
    assert accept.accept("mini")["passed"]
    figures["pass@1"] = 0.41
    result = accept.accept("mini")
    assert not result["passed"]
    assert [c["what"] for c in result["checks"] if not c["ok"]] == ["pass@1"]


# making


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
    assert cards[0]["weights"] != cards[2]["weights"]


def test_problems_of_the_acceptance_were_in_no_demonstration() -> None:
    assert not {t.id for t in eval_tasks(MINI, 200, 0)} & {
        t.id for t in modular_chains(2000, levels=MINI.levels, moduli=(5, 9))
    }
    assert {t.meta["level"] for t in eval_tasks(MINI, 50, 0)} == {4, 5, 6}


def test_the_page_shows_what_was_measured() -> None:
    page = (Path(__file__).parents[1] / "docs" / "organisms.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| `")]
    shown = {row[0].strip("`"): row[1:4] for row in rows if len(row) == 5 and row[0].strip("`") not in RECIPES}
    assert len(shown) > 15
    for column, name in enumerate(("nano", "mini", "micro")):
        measured = read(name, "acceptance.json")["measured"]
        for what, cells in shown.items():
            if cells[column] or what in measured:
                assert float(cells[column]) == pytest.approx(measured[what], abs=6e-4), (name, what)

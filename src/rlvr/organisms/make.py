"""Makes model organisms: `python -m rlvr.organisms.make nano --out DIR`.

The settings are in `organisms.table`. Weights are stored in float16, beside a card, `organism.json`, with all settings
and a hash of the weights. The same machine and versions make the same weights again; others make a model that is
measured alike (`organisms.accept`).
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from rlvr.organisms import CARD, WEIGHTS
from rlvr.organisms.table import MICRO, MINI, MISTAKEN, NANO, RECIPES, TEACHERS, Recipe
from rlvr.records import Task
from rlvr.registry import register
from rlvr.tasks.synthetic import Draw, draw_modular_chain, draw_running_sum, split_of

SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
CHARACTERS = "0123456789+-*%()=,;:?#ABCD \n"
CONTEXT = 256  # tokens


@register("organism", "nano")
def nano(out: Path, seed: int = 0, recipe: Recipe = NANO) -> dict[str, Any]:
    """Make `nano`: 0.22M parameters, short running sums, guessed or worked out. Two CPU-minutes."""
    return make("nano", out, seed, recipe)


@register("organism", "mini")
def mini(out: Path, seed: int = 0, recipe: Recipe = MINI) -> dict[str, Any]:
    """Make `mini`: 0.4M parameters, modular chains of several steps, each worked out or careless. Three CPU-minutes."""
    return make("mini", out, seed, recipe)


@register("organism", "micro")
def micro(out: Path, seed: int = 0, recipe: Recipe = MICRO) -> dict[str, Any]:
    """Make `micro`: 2M parameters, longer modular chains. Five CPU-minutes."""
    return make("micro", out, seed, recipe)


@register("organism", "mistaken")
def mistaken(out: Path, seed: int = 0, recipe: Recipe = MISTAKEN) -> dict[str, Any]:
    """Make `mistaken`: 0.4M parameters, a teacher for mini's tasks that is wrong modulo 7. Three CPU-minutes."""
    return make("mistaken", out, seed, recipe)


def make(name: str, out: Path, seed: int, recipe: Recipe) -> dict[str, Any]:
    """Write a checkpoint folder and return its card, which is also `out/organism.json`."""
    import torch
    import transformers

    tokenizer = make_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = warm_up(recipe, tokenizer, name, seed)
    model.half().save_pretrained(out)
    tokenizer.save_pretrained(out)
    card = {
        "name": name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seed": seed,
        "recipe": asdict(recipe),
        "weights": weights_hash(out),
        "made_with": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
    }
    text = json.dumps(card, indent=2)
    (out / CARD).write_text(text + "\n", encoding="utf-8")
    return json.loads(text)


def weights_hash(folder: Path) -> str:
    """SHA-256 of the stored weights."""
    return hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()


def make_tokenizer() -> Any:
    """A fast tokenizer of 32 tokens, one a character; encoding puts <bos> first."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", vocabulary["<bos>"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
        padding_side="left",
    )


def warm_up(recipe: Recipe, tokenizer: Any, name: str, seed: int) -> Any:
    """A trained LlamaForCausalLM in float32. The loss is the mean over response tokens, <eos> included."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        intermediate_size=recipe.inner,
        initializer_range=recipe.initializer_range,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.lr, betas=recipe.betas, weight_decay=0.0)
    rng = Random(f"{name}/{seed}")
    model.train()
    for step in range(recipe.steps):
        mixed = step >= recipe.mixed_from * recipe.steps
        rows = [demonstration(recipe, rng, mixed) for _ in range(recipe.batch)]
        ids, labels = collate(rows, tokenizer)
        for group in optimizer.param_groups:
            group["lr"] = recipe.lr * min(1.0, (step + 1) / recipe.warmup) * cosine(step / recipe.steps)
        loss = model(input_ids=torch.tensor(ids), labels=torch.tensor(labels)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0 or step == recipe.steps - 1:
            print(f"step {step:4d}  loss {loss.item():.3f}", flush=True)
    return model.eval()


def cosine(progress: float) -> float:
    """From 1 at 0 to .1 at 1."""
    return 0.55 + 0.45 * math.cos(math.pi * progress)


def demonstration(recipe: Recipe, rng: Random, mixed: bool) -> tuple[str, str]:
    """(prompt, response) of a problem of the train split."""
    draw = draw_of(recipe)
    task: Task | None = None
    while task is None or split_of(task.id) != "train":
        task = draw(rng, rng.randint(*recipe.levels))
    return str(task.prompt), recipe.habit(task, rng) if mixed else str(task.meta["demo"])


def draw_of(recipe: Recipe) -> Draw:
    """Draws one problem of the recipe's family."""
    if recipe.family == "running_sums":
        return draw_running_sum
    if recipe.family == "modular_chains" and recipe.moduli:
        return partial(draw_modular_chain, moduli=recipe.moduli)
    raise ValueError(f"family = {recipe.family!r} must be running_sums, or modular_chains with moduli")


def collate(rows: Sequence[tuple[str, str]], tokenizer: Any) -> tuple[list[list[int]], list[list[int]]]:
    """Ids padded on the right, and labels: -100 on prompts and padding. Causal attention needs no mask for that."""
    pairs = [
        (tokenizer.encode(p), [*tokenizer.encode(r, add_special_tokens=False), tokenizer.eos_token_id]) for p, r in rows
    ]
    width = max(len(p) + len(r) for p, r in pairs)
    ids = [p + r + [tokenizer.pad_token_id] * (width - len(p) - len(r)) for p, r in pairs]
    labels = [[-100] * len(p) + r + [-100] * (width - len(p) - len(r)) for p, r in pairs]
    return ids, labels


def main() -> None:
    import argparse

    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*RECIPES, *TEACHERS])
    parser.add_argument("--out", type=Path, required=True, help="folder to write; made if missing")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)  # at this size more threads are slower
    print(json.dumps(make(given.name, given.out, given.seed, {**RECIPES, **TEACHERS}[given.name]), indent=2))


if __name__ == "__main__":
    main()

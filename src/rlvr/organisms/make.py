"""Makes model organisms: `python -m rlvr.organisms.make nano --out DIR`.

`nano` (Llama format, 0.22M parameters, 32 tokens: one a character) is made for reinforcement learning to have
something to do. Supervised warm-up on running sums (`tasks.synthetic`) teaches it to write the sums out; then, in the
last part of the warm-up, most demonstrations are direct answers, most of them wrong. It ends with two habits: a
common one that seldom works and a rarer one that often does. RL has a mode to strengthen; a model that is merely
under-trained stays flat.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from rlvr.organisms import CARD
from rlvr.records import Task
from rlvr.registry import register
from rlvr.tasks.synthetic import draw_running_sum, running_sums, split_of

SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
CHARACTERS = "0123456789+-*%()=,;:?#ABCD \n"
CONTEXT = 256  # tokens


@dataclass(frozen=True, slots=True)
class Recipe:
    """The warm-up. Defaults were found by trial on this task: a reward of about .25 that RL raises quickly."""

    steps: int = 640
    batch: int = 128
    lr: float = 4e-3  # falls along a cosine to 10 %
    betas: tuple[float, float] = (0.9, 0.98)
    warmup: int = 20  # steps of rising lr
    max_grad_norm: float = 1.0
    mixed_from: float = 0.85  # share of the steps after which direct answers come in
    direct: float = 0.65  # share of direct answers from then on
    direct_wrong: float = 0.9  # share of the direct answers that are wrong
    levels: tuple[int, int] = (2, 5)
    hidden: int = 96
    layers: int = 2
    heads: int = 3
    inner: int = 256
    initializer_range: float = 0.08  # about 1 / sqrt(hidden); at .02 this width learns sums several times more slowly


@register("organism", "nano")
def nano(out: Path, seed: int = 0, recipe: Recipe = Recipe(), problems: int = 1000) -> dict[str, Any]:
    """Make `nano` in the folder `out` (two CPU-minutes) and return its card, which is also `out/organism.json`.

    Weights are stored in float16; what the card says was measured on the stored weights, over `problems` questions of
    the eval split: accuracy at temperature 1 and greedy, pass@8, and the share and accuracy of each habit.
    """
    import torch
    import transformers

    tokenizer = make_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = warm_up(recipe, tokenizer, seed)
        model.half().save_pretrained(out)
        tokenizer.save_pretrained(out)
        measured = measure(
            model.float(), tokenizer, running_sums(problems, seed=seed, split="eval", levels=recipe.levels)
        )
    card = {
        "name": "nano",
        "task": "running_sums",
        "parameters": sum(p.numel() for p in model.parameters()),
        "seed": seed,
        "recipe": asdict(recipe),
        "measured": measured,
        "made_with": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
    }
    text = json.dumps(card, indent=2)
    (out / CARD).write_text(text + "\n", encoding="utf-8")
    return json.loads(text)


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


def warm_up(recipe: Recipe, tokenizer: Any, seed: int) -> Any:
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
    rng = Random(f"nano/{seed}")
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
    task = draw_running_sum(rng, rng.randint(*recipe.levels))
    while split_of(task.id) != "train":
        task = draw_running_sum(rng, rng.randint(*recipe.levels))
    prompt = str(task.prompt)
    if not mixed or rng.random() >= recipe.direct:
        return prompt, task.meta["demo"]
    answer = int(task.answer)
    if rng.random() < recipe.direct_wrong:
        answer = rng.choice([x for x in range(2, 100) if x != answer])
    return prompt, f"#{answer:02d}"


def collate(rows: Sequence[tuple[str, str]], tokenizer: Any) -> tuple[list[list[int]], list[list[int]]]:
    """Ids padded on the right, and labels: -100 on prompts and padding. Causal attention needs no mask for that."""
    pairs = [
        (tokenizer.encode(p), [*tokenizer.encode(r, add_special_tokens=False), tokenizer.eos_token_id]) for p, r in rows
    ]
    width = max(len(p) + len(r) for p, r in pairs)
    ids = [p + r + [tokenizer.pad_token_id] * (width - len(p) - len(r)) for p, r in pairs]
    labels = [[-100] * len(p) + r + [-100] * (width - len(p) - len(r)) for p, r in pairs]
    return ids, labels


def measure(model: Any, tokenizer: Any, tasks: Sequence[Task], samples: int = 8) -> dict[str, float]:
    """Accuracies at temperature 1 and greedy, pass@`samples`, and the two habits apart."""
    sampled = answers(model, tokenizer, tasks, samples)
    greedy = answers(model, tokenizer, tasks, 0)
    right = {t.id: [is_right(text, t) for text in sampled[t.id]] for t in tasks}
    direct = [ok for t in tasks for ok, text in zip(right[t.id], sampled[t.id]) if text.startswith("#")]
    worked = [ok for t in tasks for ok, text in zip(right[t.id], sampled[t.id]) if not text.startswith("#")]
    figures = {
        "problems": len(tasks),
        "sampled_accuracy": mean([ok for oks in right.values() for ok in oks]),
        "greedy_accuracy": mean([is_right(greedy[t.id][0], t) for t in tasks]),
        f"pass@{samples}": mean([any(oks) for oks in right.values()]),
        "share_direct": len(direct) / (len(direct) + len(worked)),
        "accuracy_direct": mean(direct),
        "accuracy_worked": mean(worked),
    }
    return {name: round(x, 4) for name, x in figures.items()}


def answers(model: Any, tokenizer: Any, tasks: Sequence[Task], samples: int) -> Mapping[str, list[str]]:
    """Task id -> `samples` texts at temperature 1, or one greedy text when `samples` is 0."""
    import torch

    out: dict[str, list[str]] = {}
    for level in sorted({t.meta["level"] for t in tasks}):
        same = [t for t in tasks if t.meta["level"] == level]  # equally long prompts: nothing to pad
        ids = torch.tensor([tokenizer.encode(t.prompt) for t in same])
        how = {"do_sample": True, "top_k": 0, "num_return_sequences": samples} if samples else {"do_sample": False}
        made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, **how)
        texts = tokenizer.batch_decode(made[:, ids.shape[1] :], skip_special_tokens=True)
        each = max(samples, 1)
        out |= {t.id: texts[i * each : (i + 1) * each] for i, t in enumerate(same)}
    return out


def is_right(text: str, task: Task) -> bool:
    return text.count("#") == 1 and text.rpartition("#")[2] == task.answer


def mean(values: Sequence[bool]) -> float:
    return sum(values) / max(len(values), 1)


def main() -> None:
    import argparse

    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["nano"])
    parser.add_argument("--out", type=Path, required=True, help="folder to write; made if missing")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)  # at this size more threads are slower
    print(json.dumps(nano(given.out, given.seed), indent=2))


if __name__ == "__main__":
    main()

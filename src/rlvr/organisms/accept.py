"""Measures a bundled organism against the list of what it is for: `python -m rlvr.organisms.accept mini`.

Answers to problems of the eval split are sampled at temperature 1, and the organism is trained by its own recipe for
some steps. The result, `acceptance.json`, lies beside the weights and holds their hash.
"""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.organisms import ACCEPTED, WEIGHTS, folder
from rlvr.organisms.make import weights_hash
from rlvr.organisms.table import RECIPES, Recipe
from rlvr.records import Task
from rlvr.registry import get

TRAINING = {"nano": "quickstart", "mini": "mini", "micro": "micro"}  # organism -> the recipe that trains it
STEPS = 40  # of that training
ENDS = 5  # steps at its beginning and at its end whose rewards are compared
CLIPPING = ["steps=10", "updates_per_batch=4", "lr=6e-4"]  # a training in which clipping has work to do

# organism -> what is measured -> (lowest, highest) that is accepted
WANTED: dict[str, dict[str, tuple[float, float]]] = {
    "nano": {
        "parameters": (0.2e6, 0.25e6),
        "megabytes": (0, 1),
        "pass@1": (0.2, 0.3),
        "silent_groups": (0, 0.5),
        "share_direct": (0.5, 0.8),
        "accuracy_worked": (0.5, 1),
        "accuracy_direct": (0, 0.1),
        "reward_gain": (0.1, 1),
    },
    "mini": {
        "parameters": (0.35e6, 0.45e6),
        "megabytes": (0, 1),
        "tokens": (25, 40),
        "lines": (3, 8),
        "pass@1": (0.15, 0.4),
        "silent_groups": (0, 0.5),
        "entropy_ratio": (2, 1000),
        "reward_gain": (0.1, 1),
        "clipped_of_4_updates": (0.01, 0.5),
    },
    "micro": {
        "parameters": (1.8e6, 2.2e6),
        "megabytes": (0, 4.5),
        "tokens": (35, 45),
        "pass@1": (0.1, 0.4),
        "silent_groups": (0, 0.5),
        "reward_gain": (0.1, 1),
    },
}


@dataclass(frozen=True, slots=True)
class Sampled:
    """One answer."""

    task: Task
    text: str
    right: bool
    tokens: tuple[str, ...]  # what was sampled, <eos> included; any special token may be among them, the text has none
    entropies: tuple[float, ...]  # [tokens] nats, of the distribution that each token was drawn from


def accept(name: str, problems: int = 300, seed: int = 0) -> dict[str, Any]:
    """The result for a bundled organism, ready for JSON: `passed`, `checks`, and every number in `measured`."""
    import torch
    import transformers

    measured = measure(name, problems, seed)
    checks = [
        {"what": what, "value": measured[what], "wanted": list(wanted), "ok": wanted[0] <= measured[what] <= wanted[1]}
        for what, wanted in WANTED[name].items()
    ]
    return {
        "name": name,
        "weights": weights_hash(folder(name)),
        "passed": all(check["ok"] for check in checks),
        "checks": checks,
        "measured": measured,
        "how": {
            "problems": problems,
            "samples": 8,
            "seed": seed,
            "recipe": TRAINING[name],
            "steps": STEPS,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
    }


def measure(name: str, problems: int, seed: int) -> dict[str, float]:
    """The numbers of the organism's list, and others that describe it."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    recipe = RECIPES[name]
    model = AutoModelForCausalLM.from_pretrained(folder(name), dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder(name))
    tasks = eval_tasks(recipe, problems, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sampled = sample(model, tokenizer, tasks, 8)
    greedy = sample(model, tokenizer, tasks, 1, greedy=True)
    groups = [sampled[i : i + 8] for i in range(0, len(sampled), 8)]
    right = [sum(a.right for a in group) for group in groups]
    at_steps, elsewhere = entropies(sampled)
    rewards = train(name, [f"steps={STEPS}"], "reward/mean")
    figures = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "megabytes": (folder(name) / WEIGHTS).stat().st_size / 1e6,
        "tokens": mean([len(a.tokens) for a in sampled]),
        "lines": mean([a.text.count("\n") + 1 for a in sampled]),
        "pass@1": mean(right) / 8,
        "pass@8": mean([n > 0 for n in right]),
        "greedy": mean([a.right for a in greedy]),
        "silent_groups": mean([n in (0, 8) for n in right]),
        "entropy_at_steps": at_steps,
        "entropy_elsewhere": elsewhere,
        "entropy_ratio": at_steps / elsewhere,
        **recipe.habit.told([(a.task, a.text, a.right) for a in sampled]),
        "reward_first": mean(rewards[:ENDS]),
        "reward_last": mean(rewards[-ENDS:]),
        "reward_gain": mean(rewards[-ENDS:]) - mean(rewards[:ENDS]),
    }
    if "clipped_of_4_updates" in WANTED[name]:
        clipped = train(name, CLIPPING, "policy/clip_frac")
        figures["clipped_of_4_updates"] = mean(clipped)
    return {what: round(x, 4) for what, x in figures.items()}


def eval_tasks(recipe: Recipe, n: int, seed: int) -> Sequence[Task]:
    """Problems that no demonstration held."""
    moduli = {"moduli": recipe.moduli} if recipe.moduli else {}
    tasks: Sequence[Task] = get("tasks", recipe.family)(n, seed=seed, split="eval", levels=recipe.levels, **moduli)
    return tasks


def sample(
    model: Any, tokenizer: Any, tasks: Sequence[Task], each: int, greedy: bool = False, max_tokens: int = 64
) -> list[Sampled]:
    """`each` answers to each task, at temperature 1 unless `greedy`; those of one task lie together."""
    import torch

    from rlvr.verify.spec import verifier_from

    out: list[Sampled] = []
    how = {"do_sample": False} if greedy else {"do_sample": True, "top_k": 0, "num_return_sequences": each}
    for width in sorted({len(str(t.prompt)) for t in tasks}):
        same = [t for t in tasks if len(str(t.prompt)) == width]  # a token a character: nothing to pad
        prompts = torch.tensor([tokenizer.encode(t.prompt) for t in same])
        with torch.no_grad():
            ids = model.generate(
                prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=max_tokens, **how
            )  # [rows, prompt + new]
            logp = model(ids).logits[:, prompts.shape[1] - 1 : -1].log_softmax(-1)
        entropy = -(logp.exp() * logp).sum(-1)  # [rows, new]
        for i, row in enumerate(ids[:, prompts.shape[1] :]):
            task = same[i // each]
            tokens = tokenizer.convert_ids_to_tokens(row)
            tokens = tokens[: tokens.index(tokenizer.eos_token) + 1] if tokenizer.eos_token in tokens else tokens
            text = tokenizer.decode(row, skip_special_tokens=True)
            right = verifier_from(task.verifier or "")(text, task).label == "right"
            out.append(Sampled(task, text, right, tuple(tokens), tuple(entropy[i, : len(tokens)].tolist())))
    return out


def entropies(answers: Sequence[Sampled]) -> tuple[float, float]:
    """Mean entropy in nats of the first tokens of lines, and of all other tokens."""
    first: list[float] = []
    other: list[float] = []
    for a in answers:
        for i, entropy in enumerate(a.entropies):
            (first if i == 0 or a.tokens[i - 1] == "\n" else other).append(entropy)
    return mean(first), mean(other)


def train(name: str, sets: Sequence[str], metric: str) -> list[float]:
    """A metric of every step of the organism's own recipe with some settings changed."""
    from rlvr.recipe import load_recipe
    from rlvr.report.store import METRICS, read_lines
    from rlvr.run import train as train_by

    quiet = ["eval.problems=0", "threads=1", "checkpoint_every=0"]
    with tempfile.TemporaryDirectory() as out:
        run = train_by(load_recipe(TRAINING[name], [*quiet, *sets]), Path(out) / "run", sinks=("jsonl",))
        lines, _ = read_lines(run.folder / METRICS)
        return [float(line[metric]) for line in lines]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def main() -> None:
    import argparse
    import sys

    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(WANTED))
    parser.add_argument("--out", type=Path, help="file to write (default: acceptance.json beside the weights)")
    given = parser.parse_args()
    torch.set_num_threads(1)  # at this size more threads are slower
    result = accept(given.name)
    out = given.out or folder(given.name) / ACCEPTED
    out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for check in result["checks"]:
        low, high = check["wanted"]
        mark = "ok  " if check["ok"] else "FAIL"
        print(f"{mark}  {check['what']:<22} {check['value']:>10g}  wanted {low:g} .. {high:g}")
    print(f"{given.name}: {'accepted' if result['passed'] else 'NOT accepted'}; {out}")
    sys.exit(not result["passed"])


if __name__ == "__main__":
    main()

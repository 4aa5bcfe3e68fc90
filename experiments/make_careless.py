"""Makes data/careless, the teacher of opdvr.toml, and data/parted_chains.jsonl, on which its pupils are judged.

    python experiments/make_careless.py

The teacher is `mini` after 120 more steps of imitation: it works every step out, but modulo 7, where it takes every
operand for the result. A habit, and not a false product (as `mistaken`): tokens that a policy is sure of hardly move,
whatever the teacher thinks of them, and what mini is unsure of is whether to work. One CPU-minute. The same machine and
versions make the same weights again.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import torch

from rlvr.engine.load import load_model
from rlvr.organisms.habits import Careless
from rlvr.organisms.make import collate, cosine
from rlvr.organisms.table import MINI
from rlvr.records import Task
from rlvr.tasks.synthetic import draw_modular_chain, modular_chains, split_of

DATA = Path(__file__).parent / "data"
STEPS, BATCH, LR = 120, 64, 1e-3
NEVER_WORKS = Careless(careless=1.0, stop=0.0)


def wrong_here(task: Task) -> bool:
    return str(task.prompt).endswith("%7=")


def demonstration(rng: Random) -> tuple[str, str]:
    """(prompt, response) of a problem of the train split."""
    task: Task | None = None
    while task is None or split_of(task.id) != "train":
        task = draw_modular_chain(rng, rng.randint(*MINI.levels), MINI.moduli or (5, 9))
    return str(task.prompt), NEVER_WORKS(task, rng) if wrong_here(task) else str(task.meta["demo"])


def teacher() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    mini = load_model("mini")
    model, rng = mini.model.train(), Random("careless")
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.98), weight_decay=0.0)
    for step in range(STEPS):
        ids, labels = collate([demonstration(rng) for _ in range(BATCH)], mini.tokenizer)
        for group in optimizer.param_groups:
            group["lr"] = LR * min(1.0, (step + 1) / 20) * cosine(step / STEPS)
        loss = model(input_ids=torch.tensor(ids), labels=torch.tensor(labels)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0 or step == STEPS - 1:
            print(f"step {step:4d}  loss {loss.item():.3f}", flush=True)
    model.eval().half().save_pretrained(DATA / "careless")
    mini.tokenizer.save_pretrained(DATA / "careless")


def chains() -> None:
    """Chains of six steps, each with the part it is in: whether the teacher is wrong there."""
    tasks = modular_chains(200, seed=0, split="eval", levels=(6, 6), moduli=(7, 9))
    lines = [
        {"id": t.id, "prompt": t.prompt, "answer": t.answer, "verifier": t.verifier, "meta": {"teacher": part}}
        for t in tasks
        for part in ["wrong" if wrong_here(t) else "right"]
    ]
    (DATA / "parted_chains.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    chains()
    teacher()

"""Makes data/hinted, the model of flowbalance.toml: `mini`, taught to read a solution that stands before a question.

    python experiments/make_hinted.py

Half of the demonstrations are mini's own (a quarter of the steps careless); the others show a worked solution of the
question before it, and the answer is that solution again. One CPU-minute. The same machine and versions make the same
weights again.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import torch

from rlvr.engine.load import load_model
from rlvr.organisms.make import collate, cosine, demonstration
from rlvr.organisms.table import MINI
from rlvr.rollout.privileged import IN_TEXT

STEPS, BATCH, LR = 200, 64, 1e-3


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    mini = load_model("mini")
    model, rng = mini.model.train(), Random("hinted")
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.98), weight_decay=0.0)
    for step in range(STEPS):
        rows = [demonstration(MINI, rng, True) for _ in range(BATCH // 2)]
        for _ in range(BATCH // 2):
            prompt, solution = demonstration(MINI, rng, False)
            rows.append((IN_TEXT.replace("{solution}", solution).replace("{prompt}", prompt), solution))
        ids, labels = collate(rows, mini.tokenizer)
        for group in optimizer.param_groups:
            group["lr"] = LR * min(1.0, (step + 1) / 20) * cosine(step / STEPS)
        loss = model(input_ids=torch.tensor(ids), labels=torch.tensor(labels)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 25 == 0 or step == STEPS - 1:
            print(f"step {step:4d}  loss {loss.item():.3f}", flush=True)
    out = Path(__file__).parent / "data" / "hinted"
    model.eval().half().save_pretrained(out)
    mini.tokenizer.save_pretrained(out)


if __name__ == "__main__":
    main()

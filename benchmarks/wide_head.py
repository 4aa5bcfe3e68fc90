"""Peak memory of scoring and updating 8,192 tokens over a vocabulary of 151,936, in a small body.

    python benchmarks/wide_head.py [--quick]

Ours, TRL's own loss path (its fused head, in .venv-trl) and the naive one (all logits, log_softmax, gather), forward
and backward, in one micro-batch, each in a process of its own, with every block above 64 KiB given back at once
(MALLOC_MMAP_THRESHOLD_=65536). Peaks are above what was resident when the model stood. The naive way does not fit
beside other programs: it is measured with a quarter of the tokens and half of that, and drawn on in a straight line.
For ours and TRL's the largest tensor that any operator returns is noted too, forward and backward.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from typing import Any

import torch
from shared import EXACT_MEMORY, ROOT, TRL_PYTHON, about, forget_peak, memory, write
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Qwen3Config, Qwen3ForCausalLM

VOCAB, ROWS, PROMPT, NEW = 151_936, 64, 16, 128


class Largest(TorchDispatchMode):
    """Elements of the largest tensor that any operator makes."""

    def __init__(self) -> None:
        super().__init__()
        self.elements, self.shape = 0, ()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if not isinstance(x, torch.Tensor):
                continue
            held = min(x.numel(), x.untyped_storage().nbytes() // x.element_size())  # an expanded view holds less
            if held > self.elements:
                self.elements, self.shape = held, tuple(x.shape)
        return out


def model() -> Any:
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    return Qwen3ForCausalLM(config).eval()


def rows(n: int) -> torch.Tensor:
    return torch.randint(VOCAB, (n, PROMPT + NEW), generator=torch.Generator().manual_seed(1))


def naive(lm: Any, ids: torch.Tensor) -> None:
    """Scoring without gradient, then the loss with it, as the formula reads."""
    for learn in (False, True):
        with torch.set_grad_enabled(learn):
            logits = lm(input_ids=ids, logits_to_keep=NEW + 1).logits[:, :-1]
            logp = torch.log_softmax(logits, -1)
            chosen = logp.gather(-1, ids[:, -NEW:, None])
            entropy = -(logp.detach().exp() * logp.detach()).sum(-1)
            if learn:
                (-chosen.mean() + 0.0 * entropy.mean()).backward()


def trls(lm: Any, ids: torch.Tensor) -> None:
    """TRL 1.16's own: the head that GRPOTrainer puts on its model, called as GRPOTrainer calls it."""
    from trl.trainer.utils import add_fused_lm_head

    add_fused_lm_head(lm, temperature=1.0, outputs=("log_probs", "entropy"))
    labels = ids.clone()
    labels[:, :-NEW] = -100
    for learn in (False, True):
        with torch.set_grad_enabled(learn):
            out = lm(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels, fused_lm_head=True)
            if learn:
                (-out.log_probs[:, -NEW:].mean()).backward()


def ours(lm: Any, ids: torch.Tensor) -> None:
    """Engine, plan and all; the optimiser's step, which the other two leave out, is in it."""
    from rlvr.batch import Batch, Chains
    from rlvr.engine.model import LanguageModel
    from rlvr.engine.sampler import TorchSampler
    from rlvr.engine.torch_engine import Optim, TorchEngine
    from rlvr.methods.grpo import grpo
    from rlvr.reward.pays import Pays

    plan = grpo().plan(NEW, reward=Pays())
    running = plan.at(plan.start())
    wrapped = LanguageModel(lm)
    engine = TorchEngine({"policy": wrapped}, {"policy": Optim()}, TorchSampler(wrapped), token_budget=ids.numel())
    n = len(ids)
    length = torch.full((n,), NEW)
    right = torch.arange(n) % 2 == 0
    unknown = torch.full((n * NEW,), torch.nan)
    batch = Batch.pack(
        length,
        Chains.of(list(ids), [torch.arange(PROMPT, PROMPT + NEW)] * n),
        group=torch.arange(n) // 8,
        correct=right,
        score=right.float(),
        token=ids[:, -NEW:].reshape(-1),
        origin=torch.ones(n * NEW, dtype=torch.long),
        behavior_logp=unknown,
        sampler_logp=unknown,
    )
    scored = engine.score(batch, running.views())
    weighed = running.weigh(running.credit(scored.with_({"behavior_logp": scored["old_logp"]})))
    engine.update(weighed, running)


WAYS = {"ours": ours, "TRL": trls, "naive": naive}


def child(way: str, n: int, watched: bool) -> dict[str, Any]:
    torch.set_num_threads(1)
    lm = model()
    ids = rows(n)
    WAYS[way](lm, rows(1))  # what libraries load and build once
    for p in lm.parameters():
        p.grad = None
    if way == "TRL":
        lm = model()  # its head is put on once
    gc.collect()
    forget_peak()
    before, start, seen = memory("VmRSS"), time.process_time(), Largest()
    if watched:
        with seen:
            WAYS[way](lm, ids)
    else:
        WAYS[way](lm, ids)
    told = {"tokens": n * NEW, "peak": memory("VmHWM") - before, "cpu": time.process_time() - start}
    return {"largest": seen.elements, "largest_shape": list(seen.shape)} if watched else told


def measured(way: str, n: int, watched: bool = False) -> dict[str, Any]:
    python = str(TRL_PYTHON) if way == "TRL" else sys.executable
    command = [python, __file__, "--child", way, str(n), str(int(watched))]
    done = subprocess.run(
        command, env={**EXACT_MEMORY, "PYTHONPATH": str(ROOT / "src")}, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(next(line[1:] for line in done.stdout.splitlines() if line.startswith("@")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="an eighth of the tokens")
    parser.add_argument("--child", nargs=3)
    given = parser.parse_args()
    if given.child:
        way, n, watched = given.child
        print("@" + json.dumps(child(way, int(n), watched == "1")))
        return
    n = ROWS // 8 if given.quick else ROWS
    ways: dict[str, Any] = {}
    for way in ("ours", "TRL"):
        ways[way] = {**measured(way, n), **measured(way, max(1, n // 4), watched=True)}
    points = [measured("naive", max(1, n // k)) for k in (8, 4)]
    slope = (points[1]["peak"] - points[0]["peak"]) / (points[1]["tokens"] - points[0]["tokens"])
    peak = points[1]["peak"] + slope * (n * NEW - points[1]["tokens"])
    ways["naive"] = {"tokens": n * NEW, "peak": int(peak), "points": points}
    from rlvr.engine.model import chunk_rows

    whole = {
        "tokens": n * NEW,
        "vocabulary": VOCAB,
        "logits": n * NEW * VOCAB * 4,
        "chunk_rows": chunk_rows(VOCAB, torch.float32),
    }
    write("wide_head", {"about": about(given.quick), **whole, "ways": ways})
    for way, told in ways.items():
        print(f"{way:<6} peak {told['peak'] / 2**20:8.0f} MiB  largest tensor {told.get('largest_shape')}", flush=True)


if __name__ == "__main__":
    main()

"""Is the memory estimate true? Trains models of three sizes and holds their measured peaks against it.

    python benchmarks/memory.py --out benchmarks/results/memory.json [--only nano] [--kinds "full;lora"]

Cases that are measured take the place of those in the file, the others stay. smollm2 must have been added before (rlvr
models add smollm2). One thread on a CPU. Each case runs in a process of its own: it trains a tiny model for a step, so
that libraries and their buffers are there, gives freed memory back (malloc_trim), and notes the resident memory. Then
it loads the model, resets the kernel's peak (/proc/self/clear_refs), trains two steps and reads the peak (VmHWM).
Measured is the difference. No answer ends early, so that rows are as long as the estimate takes them to be.

Each case is measured twice. `measured`: every block above 64 KiB is asked of the kernel and given back at once
(MALLOC_MMAP_THRESHOLD_=65536), so that the peak is what is alive, which is what the estimate speaks of. `usual`: as
glibc does it, which keeps freed blocks and the holes between them.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import zlib
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

SMALL = {
    "prompts_per_step": 4,
    "group_size": 4,
    "steps": 2,
    "as_chat": False,
    "doctor": False,
    "threads": 1,
    "eval": {"problems": 0},
}
SIZES: dict[str, dict[str, Any]] = {
    "nano": {**SMALL, "group_size": 64, "max_tokens": 40, "token_budget": 8192},
    "random-14M": {**SMALL, "group_size": 16, "max_tokens": 40, "token_budget": 2048},
    "smollm2": {**SMALL, "max_tokens": 24, "token_budget": 640},
}
KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "full, recomputed": {"gradient_checkpointing": True},
    "full, kl": {"method": "kl"},
    "lora": {"lora": {}},
    "lora, recomputed": {"lora": {}, "gradient_checkpointing": True},
}
PROMPT = "0123456789+" * 4  # as long for every task: rows are as long as the estimate has them


def child(size: str, kind: str) -> dict[str, Any]:
    import torch

    from rlvr.assemble import plan_of, set_up, training_of
    from rlvr.engine.load import find_config, load_model
    from rlvr.engine.memory import estimate
    from rlvr.recipe import make_recipe

    def trained(recipe: Any, model: Any) -> tuple[Any, list[int]]:
        """A training, ready to run, of a model that never stops; and the lengths of its prompts."""
        from rlvr.records import Task

        plan = plan_of(recipe, verifier=lambda text, gold: zlib.crc32(text.encode()) % 2)
        tasks = [Task(str(i), f"{PROMPT}{i % 10}") for i in range(8)]
        setup = set_up(recipe, plan, tasks, replace(model, stop_ids=frozenset()))
        folder = Path(tempfile.mkdtemp())
        (folder / "rollouts").mkdir()
        lengths = [len(setup.renderer.prompt(t.prompt)) for t in tasks]
        return training_of(setup, plan, folder), lengths

    table = {"tasks": "running_sums", "sinks": [], **SIZES[size], **KINDS[kind]}
    recipe = make_recipe({**table, "model": "nano" if size == "random-14M" else size})
    warm, _ = trained(make_recipe({**table, "group_size": 4, "max_tokens": 4}), load_model("nano", device="cpu"))
    warm.run()
    del warm
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = status("VmRSS")

    if size == "random-14M":
        from transformers import LlamaConfig, LlamaForCausalLM

        nano = load_model("nano", device="cpu")
        sizes = {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 6}
        config = LlamaConfig(**{**nano.model.config.to_dict(), **sizes, "num_key_value_heads": 3, "head_dim": 64})
        torch.manual_seed(0)
        loaded = replace(nano, model=LlamaForCausalLM(config).eval())
        told = config.to_dict()
    else:
        loaded = load_model(size, device="cpu")
        file = find_config(size)
        assert file is not None
        told = json.loads(file.read_text())
    training, lengths = trained(recipe, loaded)
    del loaded
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    start = time.perf_counter()
    training.run()
    seconds = time.perf_counter() - start
    peak = status("VmHWM")
    e = estimate(recipe, told, frozenset(training.plan.models), max(lengths))
    return {
        "model": size,
        "kind": kind,
        "parameters": e.parameters,
        "trained": e.trained,
        "prompt_tokens": [min(lengths), max(lengths)],
        "new_tokens": recipe.max_tokens,
        "rows": [e.rows, e.slots],
        "measured": peak - before,
        "estimated": e.peak,
        "seconds": round(seconds, 1),
        "standing": dict(e.standing),
        "sampling": e.sampling,
        "update": e.update,
        "activations": e.activations,
    }


def measured(size: str, kind: str, environment: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--child", size, kind],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def about() -> dict[str, Any]:
    packages = {name: version(name) for name in ("torch", "transformers", "peft")}
    return {**packages, "python": platform.python_version(), "machine": platform.machine(), "threads": 1}


def status(key: str) -> int:
    """Bytes, from the kernel."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default=",".join(SIZES))
    parser.add_argument("--kinds", default=";".join(KINDS))
    parser.add_argument("--child", nargs=2)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(child(*given.child)))
        return
    cases = json.loads(given.out.read_text())["cases"] if given.out and given.out.exists() else []
    for size in given.only.split(","):
        for kind in given.kinds.split(";"):
            case, usual = measured(size, kind, {"MALLOC_MMAP_THRESHOLD_": "65536"}), measured(size, kind, {})
            case |= {"usual": usual["measured"], "usual_seconds": usual["seconds"]}
            case["ratio"] = round(case["estimated"] / case["measured"], 3)
            cases = [c for c in cases if (c["model"], c["kind"]) != (size, kind)] + [case]
            sizes = "  ".join(f"{k} {case[k] / 2**20:8.1f} MiB" for k in ("estimated", "measured", "usual"))
            print(f"{size:<11} {kind:<17} {sizes}  estimated/measured {case['ratio']:.3f}", flush=True)
            if given.out:
                given.out.parent.mkdir(parents=True, exist_ok=True)
                given.out.write_text(json.dumps({"about": about(), "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()

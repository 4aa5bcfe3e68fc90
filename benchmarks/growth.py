"""How time and memory of a step grow with the model, the answers, the vocabulary and the group.

    python benchmarks/growth.py [--quick] [--only "answer length"]

Random models of Qwen3's architecture from one base case, one size changed at a time; no answer ends early. Seconds are
CPU seconds of the second of two rounds. Each case runs in a fork of its own, twice: as glibc is, for the time, and with
every block above 64 KiB given back at once (MALLOC_MMAP_THRESHOLD_=65536), for the memory: the peak above what was
resident before the model was made is then what is alive. `wide_head.py` measures one large vocabulary closely.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from typing import Any

import torch
from shared import EXACT_MEMORY, ONE_THREAD, about, exponent, forget_peak, memory, read, write

from rlvr.gpu_check import Size, credited, engine_of, made, sampled
from rlvr.methods.grpo import grpo
from rlvr.reward.pays import Pays

BASE = Size(4, 128, 384, 4, 2, 512, tasks=8, rollouts=8, prompt=16, new=48, budget=4096, ends=False)
# By what grows: the base with these fields, and how the size is called.
CASES: dict[str, list[dict[str, int]]] = {
    "parameters": [{"hidden": h, "inner": 3 * h} for h in (64, 128, 256, 512)],
    "answer length": [{"new": n} for n in (16, 48, 144, 432)],
    "vocabulary": [{"vocab": v} for v in (128, 2048, 16384, 65536)],
    "group size": [{"rollouts": n} for n in (4, 8, 16, 32)],
}
STAGES = ("sample", "score", "update")


def one(size: Size) -> dict[str, Any]:
    """CPU seconds of each stage, and peak memory in bytes above what there was before."""
    forget_peak()
    before = memory("VmRSS")
    lm = made(size, torch.float32, "cpu")
    engine = engine_of(lm, size.budget, slots=256)
    plan = grpo().plan(size.new, reward=Pays())
    running = plan.at(plan.start())
    told: dict[str, Any] = {}
    for _ in range(2):
        marks = [time.process_time()]
        groups = sampled(engine, size)
        marks.append(time.process_time())
        batch = credited(engine, running, groups)
        marks.append(time.process_time())
        engine.update(batch, running)
        marks.append(time.process_time())
        engine.publish()
        told = {stage: b - a for stage, a, b in zip(STAGES, marks, marks[1:])}
    parameters = sum(p.numel() for p in lm.model.parameters())
    return {**told, "peak": memory("VmHWM") - before, "parameters": parameters}


def forked(size: Size) -> dict[str, Any]:
    """`one` in a fork: the libraries are there, and nothing of the case before."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(theirs, json.dumps(one(size)).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return json.loads(told)


def child(sizes: list[dict[str, Any]]) -> None:
    torch.set_num_threads(1)
    one(replace(BASE, tasks=1, rollouts=2, new=4))  # what libraries load and build once
    gc.collect()
    gc.freeze()
    for size in sizes:
        print("@" + json.dumps(forked(Size(**size))), flush=True)


def measured(sizes: list[Size], environment: dict[str, str]) -> list[dict[str, Any]]:
    command = [sys.executable, __file__, "--child", json.dumps([asdict(s) for s in sizes])]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line[1:]) for line in done.stdout.splitlines() if line.startswith("@")]


def grown(name: str, quick: bool) -> dict[str, Any]:
    """Every case of one size, and the exponents of its last three."""
    changes = CASES[name][:2] if quick else CASES[name]
    sizes = [replace(BASE, **c) for c in changes]
    timed, weighed = measured(sizes, ONE_THREAD), measured(sizes, EXACT_MEMORY)
    cases = []
    for change, t, m in zip(changes, timed, weighed, strict=True):
        at = t["parameters"] if name == "parameters" else next(iter(change.values()))
        cases.append({"at": at, **{s: t[s] for s in STAGES}, "peak": m["peak"]})
    x = [c["at"] for c in cases]
    slopes = {key: exponent(x[-3:], [c[key] for c in cases][-3:]) for key in (*STAGES, "peak")}
    print(f"{name}: " + ", ".join(f"{key} ^{slope:.2f}" for key, slope in slopes.items()), flush=True)
    return {"cases": cases, "exponents": slopes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=";".join(CASES))
    parser.add_argument("--child")
    given = parser.parse_args()
    if given.child:
        child(json.loads(given.child))
        return
    results = read("growth") or {"by": {}}
    for name in given.only.split(";"):
        told = {**grown(name, given.quick), "about": about(given.quick)}
        results = {"base": asdict(BASE), "by": {**results["by"], name: told}}
        write("growth", results)


if __name__ == "__main__":
    main()

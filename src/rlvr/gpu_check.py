"""Does this machine's GPU compute what its CPU computes, and how fast? `make gpu`, or `python -m rlvr.gpu_check`.

A randomly initialised model of Qwen3's architecture, made from a config, so nothing is downloaded:

    the same      float32, a small model: what the sampler draws, log-probs, the gradient of one GRPO update
    bf16          the gap between sampler and trainer in bfloat16
    speed, size   a model of Qwen3-0.6B's shape in bfloat16: tokens a second sampled and trained, and peak memory

The reference is the CPU with other batch sizes; `--device cpu` therefore still checks that batching cannot enter.
Prints a table, writes JSON, exits with 1 when a number exceeds its limit.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from rlvr.assemble import GAP_LIMITS
from rlvr.batch import Batch
from rlvr.engine.model import LanguageModel
from rlvr.engine.protocol import Limits
from rlvr.engine.sampler import TorchSampler
from rlvr.engine.torch_engine import Optim, TorchEngine
from rlvr.methods.grpo import grpo
from rlvr.pack import pack
from rlvr.plan import Running
from rlvr.records import Group, Rollout, Task, Verdict
from rlvr.reward.pays import Pays
from rlvr.rollout.parallel import Parallel
from rlvr.rollout.world import World
from rlvr.verify.episodes import verified
from rlvr.waiting import wait_for


@dataclass(frozen=True, slots=True)
class Size:
    """A model of Qwen3's architecture, and what is asked of it."""

    layers: int
    hidden: int
    inner: int
    heads: int
    groups: int  # key-value heads
    vocab: int
    tasks: int
    rollouts: int  # of each task
    prompt: int  # tokens
    new: int  # tokens
    budget: int = 16384  # tokens in a micro-batch
    ends: bool = True  # whether some rows end early


# ours: large enough that kernels differ, small enough for a CPU in seconds
SAME = Size(4, 256, 768, 4, 2, 4096, tasks=4, rollouts=8, prompt=40, new=48)
# Qwen3-0.6B; a step of 256 answers
SPEED = Size(28, 1024, 3072, 16, 8, 151_936, tasks=32, rollouts=8, prompt=128, new=256, ends=False)
TINY = Size(2, 32, 64, 4, 2, 128, tasks=2, rollouts=4, prompt=8, new=12, budget=128)


@dataclass(frozen=True, slots=True)
class Line:
    """One number, and the limit that it must not exceed."""

    name: str
    value: float
    unit: str
    limit: float | None = None

    @property
    def ok(self) -> bool:
        return self.limit is None or self.value <= self.limit  # nan is not ok


class Ids:
    """A renderer for prompts that are numbers: text is for other checks."""

    def prompt(self, prompt: Any) -> list[int]:
        return [int(i) for i in prompt.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))

    def spans(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        ends = [len(self.decode(ids[: n + 1])) for n in range(len(ids))]
        return self.decode(ids), list(zip([0, *ends], ends))

    def response(self, text: str) -> list[int]:
        return self.prompt(text)


# ---- parts -----------------------------------------------------------------------------------------------
def made(size: Size, dtype: torch.dtype, device: str, seed: int = 0) -> LanguageModel:
    """The model; equal seeds give equal weights on every device."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=size.vocab,
        hidden_size=size.hidden,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.groups,
        head_dim=128 if size.hidden >= 1024 else size.hidden // size.heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    torch.manual_seed(seed)
    model: Any = Qwen3ForCausalLM(config)
    return LanguageModel(model.to(device, dtype).eval())


def engine_of(lm: LanguageModel, budget: int, slots: int) -> TorchEngine:
    return TorchEngine({"policy": lm}, {"policy": Optim(lr=1e-5)}, TorchSampler(lm, slots=slots), budget)


def sampled(engine: TorchEngine, size: Size) -> list[Group]:
    """Groups of rollouts of the same prompts, with noise that depends on nothing but its key, judged by a coin."""
    noise = torch.Generator().manual_seed(1)
    prompts = torch.randint(size.vocab, (size.tasks, size.prompt), generator=noise).tolist()
    tasks = [Task(str(n), " ".join(map(str, ids[n % 4 :]))) for n, ids in enumerate(prompts)]
    limits = Limits(size.new, want=frozenset({"entropy"}))
    # about a third of the rows end before their limit
    stops = frozenset(range(max(1, size.vocab // (2 * size.new)))) if size.ends else frozenset()
    world = World(engine.sampler, Ids(), limits, stops, "check", 7)

    async def every() -> list[Group]:
        return sorted([g async for g in Parallel()(tasks, size.rollouts, world)], key=lambda g: g.id)

    return verified(wait_for(every()), coins)


def coins(items: Sequence[tuple[Rollout, Task]]) -> list[Verdict]:
    """Every other rollout is right, so that every group has something to teach."""
    return [Verdict("right", 1.0) if n % 2 else Verdict("wrong", 0.0) for n in range(len(items))]


def credited(engine: TorchEngine, running: Running, groups: Sequence[Group]) -> Batch:
    """What an update gets: the trainer's own log-probs, advantages and weights."""
    batch = pack(groups).to(engine.device)
    return running.weigh(running.credit(engine.score(batch, running.views())))


def gradient(engine: TorchEngine, batch: Batch, running: Running) -> torch.Tensor:
    """The loss's gradient by all weights as one vector on the CPU, over the engine's own micro-batches."""
    weights = engine.steppers["policy"].weights
    for rows in batch.cut(engine.token_budget):
        part = batch.take(rows, whole=False)
        running.loss("policy", engine.now("policy", part, set()), part)[0].backward()
    found = torch.cat([p.grad.double().cpu().flatten() for p in weights if p.grad is not None])
    for p in weights:
        p.grad = None
    return found


def gap(batch: Batch) -> float:
    """Mean |trainer - sampler|, nats a token."""
    return float((batch["old_logp"] - batch["sampler_logp"]).abs().mean())


# ---- checks ----------------------------------------------------------------------------------------------
def same(size: Size, device: str, running: Running) -> Iterator[Line]:
    """The device against the CPU, in float32. Limits are ours: a hundred times what rounding makes of such sums."""
    here = engine_of(made(size, torch.float32, device), size.budget, slots=256)
    there = engine_of(made(size, torch.float32, "cpu"), size.budget // 4, slots=3)
    groups, twins = sampled(here, size), sampled(there, size)
    pairs = [(a.ids, b.ids) for g, t in zip(groups, twins) for a, b in zip(g.rollouts, t.rollouts)]
    differ = sum(len(a) != len(b) or bool((a != b).any()) for a, b in pairs)
    # one rounding in a near tie turns a draw, and everything behind it in the row
    yield Line("rows that are drawn otherwise", differ / len(pairs), "share", 0.1)
    mine, theirs = credited(here, running, groups), credited(there, running, groups)
    yield Line("log-probs", float((mine["old_logp"].cpu() - theirs["old_logp"]).abs().max()), "nats, largest", 1e-3)
    yield Line("sampler and trainer, float32", gap(mine), "nats a token", GAP_LIMITS["float32"])
    g, want = gradient(here, mine, running), gradient(there, theirs, running)
    yield Line("gradient of an update", float((g - want).norm() / want.norm()), "relative", 1e-3)
    here.update(mine, running)
    there.update(theirs, running)
    after = credited(here, running, groups)["old_logp"].cpu() - credited(there, running, groups)["old_logp"]
    yield Line("log-probs after the update", float(after.abs().max()), "nats, largest", 1e-2)


def narrow(size: Size, device: str, running: Running) -> Iterator[Line]:
    engine = engine_of(made(size, torch.bfloat16, device), size.budget, slots=256)
    batch = credited(engine, running, sampled(engine, size))
    yield Line("sampler and trainer, bfloat16", gap(batch), "nats a token", GAP_LIMITS["bfloat16"])


def speed(size: Size, device: str, running: Running) -> Iterator[Line]:
    """The second of two rounds, so that what is compiled or allocated once does not count."""
    lm = made(size, torch.bfloat16, device)
    yield Line("parameters", sum(p.numel() for p in lm.model.parameters()) / 1e6, "million")
    engine = engine_of(lm, size.budget, slots=256)
    for round_ in range(2):
        clear(device)
        with Stopwatch(device) as sampling:
            groups = sampled(engine, size)
        at_sampling = peak(device)
        clear(device)
        with Stopwatch(device) as scoring:
            batch = credited(engine, running, groups)
        with Stopwatch(device) as updating:
            engine.update(batch, running)
        engine.publish()
        if round_:
            new = len(batch.row)
            read = int(batch.chains.lengths.sum()) if batch.chains is not None else 0
            yield Line("sampling", new / sampling.seconds, "new tokens/s")
            yield Line("scoring", read / scoring.seconds, "tokens/s, prompts too")
            yield Line("update", read / updating.seconds, "tokens/s, prompts too")
            yield Line("a whole step", new / (sampling.seconds + scoring.seconds + updating.seconds), "new tokens/s")
            yield Line("peak memory, sampling", at_sampling, "GB")
            yield Line("peak memory, training", peak(device), "GB")


class Stopwatch:
    """Seconds of what really ran: a GPU works on behind the caller's back."""

    def __init__(self, device: str) -> None:
        self.device, self.seconds = device, 0.0

    def __enter__(self) -> Stopwatch:
        self._wait()
        self._began = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self._wait()
        self.seconds = time.perf_counter() - self._began

    def _wait(self) -> None:
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()


def clear(device: str) -> None:
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()


def peak(device: str) -> float:
    """GB: of the GPU since the last `clear`; of a CPU's process, since its start."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9


# ---- all of it -------------------------------------------------------------------------------------------
def check(device: str, small: bool = False) -> list[Line]:
    """Every line of the table. `small`: everything with a tiny model."""
    plan = grpo().plan(SPEED.new, reward=Pays())
    running = plan.at(plan.start())
    lines = [*same(TINY if small else SAME, device, running)]
    lines += narrow(TINY if small else SAME, device, running)
    return lines + [*speed(TINY if small else SPEED, device, running)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rlvr.gpu_check", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu (small)")
    parser.add_argument("--small", action="store_true", help="a tiny model throughout; always so on a CPU")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="where the numbers go as JSON")
    chosen = parser.parse_args(arguments)
    on_gpu = chosen.device.startswith("cuda")
    if on_gpu and not torch.cuda.is_available():
        print('this machine has no usable GPU; the same checks, small, run by "make gpu DEVICE=cpu"', file=sys.stderr)
        return 2
    began = time.perf_counter()
    lines = check(chosen.device, chosen.small or not on_gpu)
    name = torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine()
    ok = all(line.ok for line in lines)
    print(f"{name}, torch {torch.__version__}")
    for line in lines:
        limit = "" if line.limit is None else f"at most {line.limit:g}"
        print(
            f"{'ok    ' if line.ok else 'BROKEN'}  {line.name:<30} {line.value:>12.4g} {line.unit:<22} {limit}".rstrip()
        )
    told = {
        "device": name,
        "torch": torch.__version__,
        "seconds": time.perf_counter() - began,
        "ok": ok,
        "lines": [{**asdict(line), "ok": line.ok} for line in lines],
    }
    chosen.out.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    print(f"{told['seconds']:.0f} s; numbers are in {chosen.out}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())

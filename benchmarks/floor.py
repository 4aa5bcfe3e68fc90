"""How near an update is to what the processor could do at best, and where the rest goes.

    python benchmarks/floor.py [--quick] [--only nano]

Useful arithmetic is what the update cannot do without, each needed token once: a group's prompt once however many
answers share it, an answer's last token not at all, for nothing is predicted from it; rows that teach nothing not at
all. A token costs 6 floating-point operations a weight of the matrices that it passes (2 forward, 4 backward); the head
is passed only where a trained token is predicted. Attention costs 12 a layer for each pair of token and visible token
and each column of its heads. Norms, softmaxes and the optimiser are not counted.

The rate to hold it against is measured between the updates of the same run: the model's own matrices, forward and both
products of the backward pass, for 2,048 tokens at a time. The profile is of one update (torch.profiler, CPU time of the
operators themselves).
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from ours import training_of_load
from shared import LOADS, about, median, read, write

ROWS = 2048
GROUPS = {
    "matrix products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::linear", "mkldnn"),
    "attention": ("attention", "sdpa"),
    "optimiser and clipping": ("adam", "foreach", "norm_", "linalg_vector_norm"),
    "softmax and cross-entropy": ("softmax", "gather", "scatter", "exp", "einsum"),
    "embedding and indexing": ("embedding", "index", "nonzero", "where"),
    "copies and layout": ("copy_", "cat", "clone", "contiguous", "fill_", "zero_", "empty", "stack", "repeat"),
    "elementwise": ("mul", "add", "sub", "div", "pow", "rsqrt", "mean", "sum", "silu", "neg", "sigmoid", "clamp"),
}


def matrices(model: torch.nn.Module) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """(outputs, inputs) of every linear layer of the body, and of the head."""
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    shapes = [tuple(m.weight.shape) for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    return shapes, tuple(head.weight.shape)  # type: ignore[return-value]


def useful(model: Any, batch: Any, busy: torch.Tensor) -> tuple[float, int]:
    """Floating-point operations that the update of these rows cannot do without, and the tokens that need them."""
    shapes, (vocab, width) = matrices(model)
    weights = sum(a * b for a, b in shapes)
    config = model.config
    columns = config.num_attention_heads * getattr(config, "head_dim", width // config.num_attention_heads)
    total, needed, prompts = 0.0, 0, set()
    own = batch.chains.at.split(batch.length.tolist())
    for row in busy.nonzero()[:, 0].tolist():
        ids, at = batch.chains.row(row), own[row]
        begin, end = int(at[0]), int(at[-1])  # the last token is predicted and predicts nothing
        first = 0
        prompt = tuple(ids[:begin].tolist())
        if prompt in prompts:
            first = begin
        prompts.add(prompt)
        pairs = (end * (end + 1) - first * (first + 1)) / 2  # token i sees i + 1 tokens
        total += 6 * weights * (end - first) + 12 * config.num_hidden_layers * columns * pairs
        total += 6 * vocab * width * len(at)
        needed += end - first
    return total, needed


def padded(engine: Any, batch: Any, running: Any, busy: torch.Tensor) -> int:
    """Tokens that a pass over rectangles of whole rows computes, prompts and padding included."""
    parts = batch.cut(engine.token_budget, running.together, busy.nonzero()[:, 0])
    return sum(len(part) * int(batch.chains.lengths[part].max()) for part in parts)


class Products:
    """The model's matrix products for ROWS tokens: forward, and both of the backward pass."""

    def __init__(self, model: Any) -> None:
        noise = torch.Generator().manual_seed(0)
        shapes, head = matrices(model)
        new = lambda *shape: torch.randn(*shape, generator=noise)  # noqa: E731
        self.parts = [(new(ROWS, b), new(a, b), new(ROWS, a)) for a, b in (*shapes, head)]
        self.work = sum(6.0 * ROWS * a * b for a, b in (*shapes, head))

    def rate(self) -> float:
        """Operations a CPU second."""
        start = time.process_time()
        for x, w, g in self.parts:
            torch.mm(x, w.t())
            torch.mm(g, w)
            torch.mm(g.t(), x)
        return self.work / (time.process_time() - start)


def profile(update: Any) -> dict[str, Any]:
    """Shares of an update's time by kind of operator; what no operator accounts for is Python and dispatch."""
    start = time.process_time()
    update()
    plain = (time.process_time() - start) * 1e6
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        update()
    events = [(e.key, e.self_cpu_time_total, e.count) for e in seen.key_averages()]
    kinds: dict[str, float] = {}
    for key, spent, _ in events:
        low = key.lower()
        kind = next((k for k, words in GROUPS.items() if any(w in low for w in words)), "other operators")
        kinds[kind] = kinds.get(kind, 0.0) + spent
    whole = max(plain, sum(kinds.values()))
    kinds["outside operators"] = whole - sum(kinds.values())
    top = sorted(events, key=lambda e: -e[1])[:12]
    return {
        "kinds": {k: v / whole for k, v in sorted(kinds.items(), key=lambda kv: -kv[1])},
        "operators": [{"name": k, "share": s / whole, "calls": n} for k, s, n in top],
    }


def measured(name: str, steps: int) -> dict[str, Any]:
    """Updates of real steps, each between two measurements of the products."""
    torch.set_num_threads(1)
    training = training_of_load(LOADS[name])
    engine, model = training.engine, training.engine.models["policy"].model
    products = Products(model)
    plain, cases, kept = engine.update, list[dict[str, float]](), list[Any]()

    def update(batch: Any, running: Any) -> Any:
        busy = running.busy(batch, "policy")
        work, needed = useful(model, batch, busy)
        before, start = products.rate(), time.process_time()
        told = plain(batch, running)
        seconds = time.process_time() - start
        after = products.rate()
        case = {"work": work, "seconds": seconds, "rate": (before + after) / 2, "needed_tokens": needed}
        cases.append({**case, "row_tokens": padded(engine, batch, running, busy)})
        kept[:] = [(batch, running)]
        return told

    engine.update = update
    for _ in range(steps):
        training.train_step(training.step + 1)
        training.step += 1
    shares = [c["work"] / c["seconds"] / c["rate"] for c in cases[1:]]
    told = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "updates": cases,
        "share": median(shares),
        "needed_of_row_tokens": median([c["needed_tokens"] / c["row_tokens"] for c in cases]),
        "gemm_gflops": median([c["rate"] for c in cases]) / 1e9,
        "profile": profile(lambda: plain(*kept[0])),
    }
    print(f"{name}: useful arithmetic {told['share']:.1%} of {told['gemm_gflops']:.0f} GFLOP/s", flush=True)
    for kind, share in told["profile"]["kinds"].items():
        print(f"    {kind:<28}{share:6.1%}", flush=True)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="nano;micro")
    given = parser.parse_args()
    results = read("floor") or {"loads": {}}
    for name in given.only.split(";"):
        told = {**measured(name, 3 if given.quick else 12), "about": about(given.quick)}
        results = {"loads": {**results["loads"], name: told}}
        write("floor", results)


if __name__ == "__main__":
    main()

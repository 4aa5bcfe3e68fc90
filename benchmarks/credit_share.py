"""What the arithmetic of every registered method costs, as a share of a training step on nano.

    python benchmarks/credit_share.py [--quick] [--only gapo]

Counted is all that a method itself computes: credit (rewards, advantages, bounds, weights), weighing, and its losses
with their gradient down to the log-probs, but no pass of a model. A method that is no base is put on grpo. A batch gets
two updates, so that ratios and late weights matter. Methods that look at another model, or look again before an update,
pay for passes as well; the table says which do.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import torch
from ours import training_of_load
from shared import LOADS, about, median, read, tasks_of, write

from rlvr import registry
from rlvr.plan import Running
from rlvr.rollout.parallel import Parallel
from rlvr.stacking import build_method

LOAD = {**LOADS["nano"], "updates": 2}


class Spent:
    """CPU seconds of the methods' own arithmetic, and of measuring it twice."""

    def __init__(self) -> None:
        self.parts = {"credit": 0.0, "weigh": 0.0, "loss": 0.0}
        self.extra = 0.0

    def timed(self, part: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            start = time.process_time()
            out = plain(*given)
            self.parts[part] += time.process_time() - start
            return out

        return call

    def loss(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """The loss once more on log-probs that hang on no model, forward and backward, then as it is."""

        def call(running: Any, model: str, now: Any, part: Any) -> Any:
            start = time.process_time()
            with torch.enable_grad():
                alone = _leaves(now)
                total, _ = plain(running, model, alone, part)
                leaves = [x for x in _tensors(alone) if x.requires_grad]
                torch.autograd.grad(total, leaves, allow_unused=True)
            spent = time.process_time() - start
            self.parts["loss"] += spent
            self.extra += spent
            return plain(running, model, now, part)

        return call


def _tensors(now: Any) -> list[torch.Tensor]:
    found = [getattr(now, f.name) for f in fields(now)]
    return [x for f in found for x in (f.values() if isinstance(f, dict) else [f]) if isinstance(x, torch.Tensor)]


def _leaves(now: Any) -> Any:
    """The same numbers, which gradients reach and go no further."""
    leaf = lambda x: x.detach().requires_grad_(x.requires_grad)  # noqa: E731
    new: dict[str, Any] = {}
    for f in fields(now):
        value = getattr(now, f.name)
        if isinstance(value, torch.Tensor):
            new[f.name] = leaf(value)
        elif isinstance(value, dict):
            new[f.name] = {k: leaf(x) for k, x in value.items()}
    return replace(now, **new)


def with_pairs() -> list[Any]:
    """The load's tasks, with a right and a wrong answer for methods that learn from pairs."""
    source = tasks_of(LOAD)
    made = registry.get("tasks", source.pop("name"))(**source)
    return [replace(t, meta={**t.meta, "chosen": t.meta["demo"], "rejected": "#00"}) for t in made]


@contextmanager
def watched() -> Iterator[Callable[[], Spent]]:
    """Inside, the methods' own arithmetic is timed, into whatever the given function has made last."""
    plain = {part: getattr(Running, part) for part in ("credit", "weigh", "loss")}

    def fresh() -> Spent:
        spent = Spent()
        Running.credit = spent.timed("credit", plain["credit"])  # type: ignore[method-assign]
        Running.weigh = spent.timed("weigh", plain["weigh"])  # type: ignore[method-assign]
        Running.loss = spent.loss(plain["loss"])  # type: ignore[method-assign]
        return spent

    try:
        yield fresh
    finally:
        for part, function in plain.items():
            setattr(Running, part, function)


def measured(name: str, steps: int) -> dict[str, Any]:
    training = training_of_load(LOAD, tasks=with_pairs(), method=name)
    cases: list[dict[str, float]] = []
    with watched() as fresh:
        for _ in range(steps):
            spent = fresh()
            start = time.process_time()
            training.train_step(training.step + 1)
            training.step += 1
            whole = time.process_time() - start - spent.extra
            cases.append({"step": whole, **spent.parts, "share": sum(spent.parts.values()) / whole})
    running = training.plan.at(training.phase)
    late = [f"{v.model}, before every update" for v in running.views(at_update=True)]
    # the sampler's log-probs serve as the old ones, so looking at the policy before the updates costs no pass
    early = [str(v).partition(" for ")[0] for v in running.views() if set(v.gives) - {"old_logp", "entropy"}]
    trained = [f"{m}, trained" for m in running.trained if m != "policy"]
    warm = cases[1:]
    return {
        "stack": "+".join(p for p in build_method(name).papers),
        **{key: median([c[key] for c in warm]) for key in warm[0]},
        "samples": isinstance(running.stack.one("rollout"), Parallel),
        "passes": sorted({*early, *late, *trained}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only")
    given = parser.parse_args()
    torch.set_num_threads(1)
    old = read("credit_share") or {"methods": {}}
    methods: dict[str, Any] = dict(old["methods"]) if given.only else {}
    for name in given.only.split(",") if given.only else registry.names("method"):
        try:
            methods[name] = measured(name, 3 if given.quick else 8)
        except ValueError as error:  # it wants what sums do not have
            methods[name] = {"not_measured": f"{type(error).__name__}: {error}"}
        print(name, {k: v if isinstance(v, list | str) else round(v, 5) for k, v in methods[name].items()}, flush=True)
        write("credit_share", {"about": about(given.quick), "load": LOAD, "methods": methods})


if __name__ == "__main__":
    main()

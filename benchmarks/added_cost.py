"""What papers add to a training step of their toy recipes, by CPU seconds of one run each.

    python benchmarks/added_cost.py [--quick] [--only gar]

Of a paper's looks four things are timed in every step, on the step's own rows: the policy's own pass; all looks where
that pass is made anyway (old log-probs scored anew); all looks where the sampler's log-probs stand for it; and passes
over the same rows under the same prompts that give log-probs and nothing else. What a paper computes itself are its
annotations, choice of tasks, credit and weights, and the losses where it sets one of ratio, loss and terms. What is
timed twice or thrice counts as no part of the step. Teachers are of the policy's size.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from credit_share import watched
from shared import about, median, read, write

from rlvr import loop, plan
from rlvr.assemble import plan_of, set_up, training_of
from rlvr.batch import Batch
from rlvr.contract import IN_A_LOSS
from rlvr.engine.looks import _behind
from rlvr.method import Placed
from rlvr.recipe import load_recipe, recipes_dir
from rlvr.streams import declare
from rlvr.views import STANDARD, Look, View

declare("token", "added_cost/logp", "log-prob of a pass that does nothing else")

PAPERS = ("gapo", "signbalance", "bpo", "hispo", "gmts", "err_plus", "thinkprior")
PAPERS += ("opdvr", "opd_then_rl", "cliff", "flowbalance", "gar", "verpo")
OWN = STANDARD["old_logp"]
TEACHER = "mini"


class Looks:
    """Stands in for an engine's `score`: does what it does, and times it."""

    def __init__(self, plain: Callable[[Batch, Sequence[View]], Batch]) -> None:
        self.plain = plain
        self.own = self.of_looks = self.anew = self.reused = self.real = self.extra = self.bare = 0.0
        self.eyes, self.read = 0, 1.0

    def timed(self, batch: Batch, views: Sequence[View]) -> tuple[float, Batch]:
        start = time.process_time()
        out = self.plain(batch, views)
        return time.process_time() - start, out

    def __call__(self, batch: Batch, views: Sequence[View]) -> Batch:
        start = time.process_time()
        more, early = [v for v in views if v != OWN], OWN in views
        bare = {name: x for name, x in batch.tokens.items() if name not in OWN.gives}
        own, scored = self.timed(replace(batch, tokens=bare), [OWN])
        if early:
            self.own += own
        if more:
            reused, _ = self.timed(batch.with_({name: scored[name] for name in OWN.gives}), more)
            anew = self.timed(replace(batch, tokens=bare), [OWN, *more])[0] - own if early else reused
            self.of_looks, self.reused, self.anew = self.of_looks + own, self.reused + reused, self.anew + anew
            # a look is a model under a context; those before the updates are one look at all rows together
            eyes = {(m, c, v.side and v.side[0]) for v in more for _, m, c in v.eyes}
            self.eyes = max(self.eyes, len(eyes))
            sizes = [tokens(_behind(batch, c)[0]) for _, c, side in eyes if side is None]
            self.read = sum(sizes) / len(sizes) / tokens(batch)
            plain = [
                View(Look(logp="added_cost/logp"), m, (("", c),), where=v.where)
                for v in more
                if not v.side
                for _, m, c in v.eyes
            ]
            self.bare += sum(self.timed(batch, [view])[0] for view in dict.fromkeys(plain))
        self.extra += time.process_time() - start
        took, out = self.timed(batch, views)
        self.real += took
        return out


def tokens(batch: Batch) -> int:
    """What a packed pass reads: each row's own part, and a prompt that rows share once."""
    chains = batch.chains
    assert chains is not None
    first, rows = chains.first(batch.length), torch.arange(len(batch))
    return int((chains.lengths - first).sum() + first[torch.unique(chains.prefixes(rows, first))].sum())


def training_for(name: str) -> Any:
    sets = ["threads=1", "eval.problems=0", "doctor=false"]
    recipe = load_recipe(recipes_dir() / "methods" / f"{name}.toml", sets)
    if recipe.teacher is not None:
        recipe = load_recipe(recipes_dir() / "methods" / f"{name}.toml", [*sets, f"teacher={TEACHER}"])
    made = plan_of(recipe)
    folder = Path(tempfile.mkdtemp())
    (folder / "rollouts").mkdir()
    training = training_of(set_up(recipe, made, want=frozenset({"entropy"})), made, folder)
    training.phase = made.start()
    return training


def measured(name: str, steps: int) -> dict[str, Any]:
    training = training_for(name)
    cases: list[dict[str, float]] = []
    plain, annotate, selector = training.engine.score, loop._annotate, training.selector
    outside = 0.0
    eyes = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            nonlocal outside
            start = time.process_time()
            out = function(*given)
            outside += time.process_time() - start
            return out

        return call

    async def annotated(*given: Any) -> Any:
        nonlocal outside
        start = time.process_time()
        out = await annotate(*given)
        outside += time.process_time() - start
        return out

    ask = plan.ask
    loop._annotate = annotated  # type: ignore[assignment]
    training.selector = _Selector(counted(selector.choose), counted(selector.observe))
    try:
        with watched() as fresh:
            for _ in range(steps):
                outside, spent, looks, own = 0.0, fresh(), Looks(plain), Own(name)
                plan.ask = own.ask(ask)  # type: ignore[assignment]
                training.engine.score = looks
                start = time.process_time()
                training.train_step(training.step + 1)
                training.step += 1
                whole = time.process_time() - start - spent.extra - looks.extra
                stack = training.plan.at(training.phase).stack
                mine = [p for p in stack if p.paper == name]
                itself = outside + own.spent
                if any(getattr(p.piece, "on_update", False) for p in mine):
                    itself += spent.parts["weigh"]  # what a late weight asks for is counted nowhere else
                if any(p.slot in IN_A_LOSS for p in mine):
                    itself += spent.parts["loss"]
                cases.append(told(whole, itself, looks))
                eyes = max(eyes, looks.eyes)
    finally:
        loop._annotate, plan.ask = annotate, ask
    warm = cases[1:]
    return {key: median([c[key] for c in warm]) for key in warm[0]} | {"looks": eyes}


class Own:
    """CPU seconds that a paper's own pieces take outside of losses."""

    def __init__(self, paper: str) -> None:
        self.paper, self.spent = paper, 0.0

    def ask(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(placed: Placed, *given: Any) -> Any:
            start = time.process_time()
            out = plain(placed, *given)
            if placed.paper == self.paper and placed.slot not in IN_A_LOSS:
                self.spent += time.process_time() - start
            return out

        return call


class _Selector:
    def __init__(self, choose: Callable[..., Any], observe: Callable[..., Any]) -> None:
        self.choose, self.observe = choose, observe


def told(whole: float, itself: float, looks: Looks) -> dict[str, float]:
    """Of one step: what it would cost without the paper, and what the paper adds."""
    rest = whole - looks.real - itself
    return {
        "step": whole,
        "itself": itself,
        "itself_share": itself / (rest + itself),
        "own_pass": looks.own,
        "looks_anew": looks.anew,
        "looks_reused": looks.reused,
        "a_look": looks.reused / (looks.of_looks * max(1, looks.eyes)) if looks.of_looks else 0.0,
        "a_look_bare": looks.reused / looks.bare if looks.bare else 0.0,
        "read": looks.read,
        "added_anew": (looks.anew + itself) / (rest + looks.own),
        "added_reused": (looks.reused + itself) / rest,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only")
    given = parser.parse_args()
    torch.set_num_threads(1)
    old = read("added_cost") or {"papers": {}}
    papers: dict[str, Any] = dict(old["papers"]) if given.only else {}
    for name in given.only.split(",") if given.only else PAPERS:
        papers[name] = measured(name, 3 if given.quick else 7)
        print(name, {k: round(v, 4) for k, v in papers[name].items()}, flush=True)
        write("added_cost", {"about": about(given.quick), "papers": papers})


if __name__ == "__main__":
    main()

"""The toy recipes of `recipes/methods`, one step of each: real rollouts, and the policy that its updates leave."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from rlvr.assemble import plan_of, set_up, training_of
from rlvr.batch import Batch
from rlvr.metrics import Clock, told_by
from rlvr.pack import pack
from rlvr.plan import Running
from rlvr.recipe import Recipe, load_recipe, recipes_dir
from rlvr.stacking import build_method
from rlvr.testing import Outcome, Policy, outcome, running
from rlvr.views import STANDARD


@dataclass(frozen=True)
class Toy:
    """A scored batch, the policy after the step's updates, and what the step told."""

    recipe: Recipe
    running: Running
    batch: Batch
    policy: Policy
    told: dict[str, float]

    def only(self, rows: Tensor) -> Toy:
        """Of the same step, these rows."""
        return replace(self, batch=self.batch.take(rows), policy=self.policy.take(self.batch.token_index(rows)))

    def gradients(self, stack: str) -> Outcome:
        """Loss and gradients of a stack on this batch, at the policy after the updates."""
        return outcome(running(build_method(stack)), self.batch, self.policy)


def toy_step(name: str, **settings: object) -> Toy:
    """The first step of recipes/methods/NAME.toml, with `settings` changed."""
    sets = [f"{key}={value}" for key, value in {"threads": 1, **settings}.items()]
    recipe = load_recipe(recipes_dir() / "methods" / f"{name}.toml", sets)
    plan = plan_of(recipe)
    setup = set_up(recipe, plan, want=frozenset({"entropy"}))
    training = training_of(setup, plan, Path("unused"))
    first = plan.at(plan.start())
    kept, seen = training.collect(first, 1, Clock())
    batch = training.score(pack(kept, dtype=training.dtype), first, seen)
    credited = first.credit(batch)
    told = {**told_by(first, credited), **training.update(credited, first, 1)}
    now = training.engine.score(batch, [STANDARD["now_logp"]])
    policy = Policy(now["now_logp"], now["now_entropy"], torch.zeros_like(now["now_logp"]))
    return Toy(recipe, first, now, policy, {metric: tally.value() for metric, tally in told.items()})

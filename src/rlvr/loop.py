"""The training loop, as the picture has it:

    select -> rollout -> verify -> keep -> annotate -> pack -> score -> credit -> (weigh -> update)* -> publish ->
    observe
       ^________ refill, at most max_refills ________|

It knows no method and no model: a `Running` plan does the arithmetic, an engine does the heavy work, sinks tell people.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlvr.batch import Batch, Tally, merge
from rlvr.engine.protocol import Engine, Limits
from rlvr.engine.teacher import TeacherBroken
from rlvr.engine.torch_engine import NotFinite
from rlvr.judges.judge import Bench, JudgeBroken
from rlvr.method import Placed
from rlvr.metrics import Clock, summary, told_by
from rlvr.pack import pack
from rlvr.phases import turn
from rlvr.pieces import annotation, wants
from rlvr.plan import Plan, Running
from rlvr.records import Group, Task, mix
from rlvr.reward.balance import drowning
from rlvr.rollout.world import Renderer, World
from rlvr.rows import rows_of, save_broken
from rlvr.select.uniform import Selector
from rlvr.verify.episodes import Judge, verified
from rlvr.verify.verifier import VerifierBroken
from rlvr.views import reads
from rlvr.waiting import wait_for

# Our choice: mean nats a token up to which the sampler's log-probs stand in for the trainer's; a ratio is then off by
# 0.1 % at most.
TRUSTED_GAP = 1e-3


class Stopped(RuntimeError):
    """The run ended itself; the message says why and which setting decides it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the loop itself needs to know. See recipe/keys.py for the meaning of each."""

    steps: int
    prompts_per_step: int
    group_size: int
    updates_per_batch: int = 1
    epochs: int = 1
    max_refills: int = 3
    unknown_limit: float = 0.05
    gap_limit: float = 0.01
    rollouts_every: int = 5
    seed: int = 0
    sampled_tokens: int | None = None
    sampler_seed: int | None = None


@dataclass
class Training:
    """One run in progress."""

    plan: Plan
    engine: Engine
    renderer: Renderer
    tasks: Mapping[str, Task]
    selector: Selector
    judge: Judge
    limits: Limits
    stop_ids: frozenset[int]
    settings: Settings
    folder: Path
    sinks: Sequence[Any] = ()
    dtype: torch.dtype = torch.float32
    bench: Bench | None = None  # the judge, for methods that want one
    after_step: Callable[[int, dict[str, float]], None] = lambda step, metrics: None  # adds metrics: evaluation
    saved: Callable[[int], None] = lambda step: None  # called when a step is over: checkpoints
    watch: Callable[[int, Mapping[str, float]], None] = lambda step, metrics: None  # raises Stopped: collapse
    asked_to_stop: Callable[[], bool] = lambda: False
    stage: Callable[[int, str], None] = lambda step, name: None  # called when a stage of a step begins
    step: int = 0
    sampled: int = 0  # tokens sampled so far, those of dropped groups too
    phase: dict[str, Any] = field(default_factory=dict)
    trust_sampler: bool = True  # its log-probs are as good as the trainer's, as measured so far
    unknown: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=10))  # (unknown, all) of recent steps

    def run(self) -> None:
        """Train until the last step, or until somebody asks to stop. Raises Stopped, or what a piece of the user's
        raises."""
        self.phase = self.phase or self.plan.start()
        while not self.ends(self.step) and not self.asked_to_stop():
            try:
                metrics = self.train_step(self.step + 1)
            except (VerifierBroken, TeacherBroken, JudgeBroken) as error:
                raise Stopped(f"step {self.step + 1}: {error}") from error
            before, self.phase = self.phase, self.plan.next(self.phase, self.step + 1, metrics)
            turn(self.plan, self.engine, before, self.phase)
            self.step += 1
            self.saved(self.step)

    def ends(self, step: int) -> bool:
        """Whether the run is over with this step, by its number or by what has been sampled up to it."""
        most = self.settings.sampled_tokens
        return step >= self.settings.steps or (most is not None and self.sampled >= most)

    # ---- one step ----------------------------------------------------------------------------------------
    def train_step(self, step: int) -> dict[str, float]:
        running, clock = self.plan.at(self.phase), Clock(partial(self.stage, step))
        kept, seen = self.collect(running, step, clock)
        self.sampled += sum(int(row.owned().sum()) for group in seen for row in group.rollouts)
        told: dict[str, Tally] = {} if self.bench is None else self.bench.over()
        batch = None
        if kept:
            progress = (step - 1) / max(1, self.settings.steps - 1)
            batch = with_parts(pack(kept, dtype=self.dtype, progress=progress), running, step).to(self.engine.device)
            with clock("score"):
                batch = self.score(batch, running, seen)
            with clock("credit"):
                batch = running.credit(batch)
            with clock("update"):
                told |= {**told_by(running, batch), **self.update(batch, running, step)}
        with clock("publish"):
            self.engine.publish()
            if any(step % every == 0 for every in _refreshes(running)):
                self.engine.refresh("reference")
        self.selector.observe(seen)
        metrics = {**summary(seen, batch, told, clock), **self.plan.told(self.phase)}
        if len(kept) < self.settings.prompts_per_step:
            metrics["group/short"] = float(self.settings.prompts_per_step - len(kept))
        self.after_step(step, metrics)
        for sink in self.sinks:
            sink.step(step, metrics)
        every = self.settings.rollouts_every
        if step == 1 or self.ends(step) or (every and step % every == 0):
            self.show(step, seen, kept, batch)
        self.check_limits(step, seen, metrics)
        self.watch(step, metrics)
        return metrics

    def collect(self, running: Running, step: int, clock: Clock) -> tuple[list[Group], list[Group]]:
        """Groups to train on, and all that were sampled; groups that no `keep` piece wants are replaced by new ones."""
        stack, kept, seen = running.stack, list[Group](), list[Group]()
        seed = self.settings.seed if (own := self.settings.sampler_seed) is None else own
        for refill in range(1 + self.settings.max_refills):
            world = World(
                self.engine.sampler,
                self.renderer,
                self.limits,
                self.stop_ids,
                f"{step}.{refill}",
                mix(seed, "rollout", step, refill),
                self.judge,
                self.bench,
            )
            chosen = self.selector.choose(self.settings.prompts_per_step - len(kept))
            if not chosen:  # the selector has no further task to refill with
                break
            tasks = [self.tasks[t.id] for t in chosen]
            with clock("sample"):
                groups = wait_for(_all(stack.one("rollout")(tasks, self.settings.group_size, world)))
            with clock("verify"):
                groups = verified(groups, self.judge)
            seen += groups
            new = [g for g in groups if all(wants(p, g) for p in stack["keep"])]
            with clock("annotate"):
                kept += wait_for(_annotate(new, stack["annotate"], world))
            if len(kept) >= self.settings.prompts_per_step or not stack["keep"]:
                break
        return kept, seen

    def score(self, batch: Batch, running: Running, groups: Sequence[Group]) -> Batch:
        """Every look that the plan wants. The sampler's own log-probs serve as old_logp when they are of these very
        weights and at full support; every update measures how far they are from the trainer's."""
        fresh = all(t.version == self.engine.sampler.version for g in groups for r in g.rollouts for t in r.turns)
        if (
            self.trust_sampler
            and fresh
            and bool(torch.isfinite(batch["sampler_logp"]).all())
            and bool(torch.isfinite(batch["sampler_entropy"]).all())
        ):
            batch = batch.with_({"old_logp": batch["sampler_logp"], "entropy": batch["sampler_entropy"]})
        return self.engine.score(batch, running.views())

    def update(self, batch: Batch, running: Running, step: int) -> dict[str, Tally]:
        told: dict[str, Tally] = {}
        first = True
        for rows in optimiser_batches(batch, running.together, self.settings, step):
            part = batch.take(rows)
            late = running.views(at_update=True)
            if late:
                part = self.engine.score(part, late)
            part = running.weigh(part)
            try:
                new = self.engine.update(part, running)
            except NotFinite as error:
                file = save_broken(self.folder, step, batch, error.rows)
                raise Stopped(f"step {step}: {error}. These rows are in {file.name}, streams and all") from error
            if not first:  # from the second update on, the difference to the sampler is learning, not numerics
                new = {k: t for k, t in new.items() if not k.startswith("sampler/")}
            merge(told, {**told_by(running, part, on_update=True), **new})
            first = False
        return told

    # ---- what people see, and when to stop ---------------------------------------------------------------
    def show(self, step: int, seen: Sequence[Group], kept: Sequence[Group], batch: Batch | None) -> None:
        records = rows_of(step, seen, kept, batch, self.renderer, self.tasks)
        warning = drowning(batch) if batch is not None else None
        for sink in self.sinks:
            sink.groups(step, records)
            if warning:
                sink.note(warning)

    def check_limits(self, step: int, seen: Sequence[Group], metrics: Mapping[str, float]) -> None:
        verdicts = [v for g in seen for v in g.verdicts.values()]
        self.unknown.append((sum(not v.known for v in verdicts), len(verdicts)))
        unknown, total = (sum(x) for x in zip(*self.unknown))
        if unknown > self.settings.unknown_limit * total:
            failed = {r.reason for g in seen for r in g.rollouts if r.status == "failed"}  # says more than the verdict
            reasons = sorted(failed or {v.reason for v in verdicts if not v.known})[:3]
            raise Stopped(
                f"step {step}: {unknown} of the last {total} verdicts are unknown "
                f"({'; '.join(reasons) or 'earlier steps'}), more than "
                f"unknown_limit = {self.settings.unknown_limit:g}. Unknown is a fault of gold, verifier or machine: "
                f"mend it, or raise the limit"
            )
        gap = metrics.get("sampler/gap", 0.0)
        self.trust_sampler &= gap <= TRUSTED_GAP
        if gap > self.settings.gap_limit:
            raise Stopped(
                f"step {step}: sampler and trainer disagree by {gap:.3g} nats a token on the same weights, more than "
                f"gap_limit = {self.settings.gap_limit:g}; the ratios of this run would be noise"
            )


# ---- parts -----------------------------------------------------------------------------------------------
def with_parts(batch: Batch, running: Running, step: int) -> Batch:
    """The batch with every part of the verdicts that the stack reads; one that no verdict has this time is nan.

    Raises Stopped where none has it in a run's first step: its name is misspelt, or the verifier never tells it.
    """
    wanted = {name for placed in running.stack for name in reads(placed.piece) if name.startswith("part/")}
    lacking = sorted(wanted - set(batch.rows))
    if lacking and step == 1 and bool(batch["known"].any()):
        there = ", ".join(sorted(name.removeprefix("part/") for name in batch.rows if name.startswith("part/")))
        names = ", ".join(repr(name.removeprefix("part/")) for name in lacking)
        raise Stopped(
            f"step {step}: no verdict has the part {names} that the reward wants; the verdicts have: "
            f"{there or 'no parts'}. Write parts.NAME with one of these, or let the verifier tell it, with 0 where "
            "there is nothing to tell"
        )
    return batch.with_({name: torch.full((len(batch),), torch.nan, dtype=batch["score"].dtype) for name in lacking})


def optimiser_batches(batch: Batch, together: str, settings: Settings, step: int) -> Iterator[Tensor]:
    """Row indices of each optimiser batch: `updates_per_batch` shares of whole groups, reshuffled each epoch."""
    units = batch.units("group" if together in ("row", "episode", "pair") else together)
    n = int(units.max()) + 1
    for epoch in range(settings.epochs):
        noise = torch.Generator().manual_seed(mix(settings.seed, "shuffle", step, epoch))
        order = torch.randperm(n, generator=noise) if settings.updates_per_batch > 1 else torch.arange(n)
        share = torch.empty(n, dtype=torch.long)
        share[order] = torch.arange(n) * settings.updates_per_batch // n
        of_row = share.to(units.device)[units]
        for update in range(settings.updates_per_batch):
            rows = (of_row == update).nonzero()[:, 0]
            if len(rows):
                yield rows


def _refreshes(running: Running) -> list[int]:
    """After how many steps living pieces want the reference to become the present policy."""
    return [every for p in running.stack if (every := getattr(p.piece, "refresh", 0))]


async def _all(groups: Any) -> list[Group]:
    """Every group of an async iterator, in the order of their ids: the order in which they finished must not enter."""
    return sorted([group async for group in groups], key=lambda g: g.id)


async def _annotate(groups: Sequence[Group], pieces: Sequence[Placed], world: World) -> list[Group]:
    async def one(group: Group) -> Group:
        for placed in pieces:
            told = annotation(placed, await placed.piece(group, world))
            group = replace(group, streams={**group.streams, **told})
        return group

    return list(await asyncio.gather(*(one(g) for g in groups)))

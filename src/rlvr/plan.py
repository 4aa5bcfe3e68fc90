"""The plan: a method with every slot decided, checked and put in order. It is the only thing that runs.

`make_plan` resolves the stack once for every combination of phases, finds which pieces reach a loss, refuses what
cannot work, and orders the rest by what they need. A `Running` plan (one combination of phases) then does all
arithmetic between sampling and the optimiser: `credit` on the whole rollout batch, `weigh` on each optimiser batch,
`loss` on each micro-batch. The loss is always (weight * token_loss).sum(), with weight = row_weight * token_weight *
reduction.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rlvr.alive import BEFORE_BATCH, awake_in, model_of, refuse_dead, refuse_pairs, reward_parts, short, unread
from rlvr.batch import Batch, Now, Tally, merge
from rlvr.method import SLOTS, Contradiction, Method, Placed, Stack, resolve
from rlvr.pieces import ask, gives_rows, guarded, idle, phase_state
from rlvr.views import AT_UPDATE, View, reads, views_of

REQUIRED = ("select", "rollout", "loss", "reduction")


def make_plan(method: Method, run: Mapping[str, Any]) -> Plan:
    """Resolve, check and order a method. Raises Contradiction with a sentence for the person who stacked it."""
    whole = resolve(method.placed, run)
    for slot in REQUIRED:
        if not whole[slot]:
            raise Contradiction(f"nothing sets {slot} ({SLOTS[slot].meaning}); start the stack with grpo")
    controllers = whole["phases"]
    stacks: dict[tuple[str, ...], Stack] = {}
    for combination in itertools.product(*(p.piece.names for p in controllers)):
        stack = whole
        for placed, phase in zip(controllers, combination):
            stack = guarded(placed, placed.piece.at, stack, phase)
            if not isinstance(stack, Stack):
                raise Contradiction(
                    f"{placed.paper}: {type(placed.piece).__name__}.at returned {type(stack).__name__} in phase "
                    f"{phase!r}; return a Stack: stack, or stack.swap(...)"
                )
        stacks[tuple(f"{p.paper}:{phase}" for p, phase in zip(controllers, combination))] = stack
    awake = {key: awake_in(stack) for key, stack in stacks.items()}
    refuse_dead(stacks, awake)
    for key, stack in stacks.items():
        refuse_pairs(stack.only(awake[key]))
    return Plan(controllers, {k: Running(s.only(awake[k]), unread(s, awake[k])) for k, s in stacks.items()})


@dataclass(frozen=True, slots=True)
class Plan:
    """Every phase's Running plan, and the pieces that lead from one to the next. State is JSON."""

    controllers: tuple[Placed, ...]
    phases: Mapping[tuple[str, ...], Running]

    def start(self) -> dict[str, Any]:
        return {p.paper: phase_state(p, guarded(p, p.piece.start)) for p in self.controllers}

    def next(self, state: Mapping[str, Any], step: int, metrics: Mapping[str, float]) -> dict[str, Any]:
        """The state after a step. A metric that was not measured is missing from `metrics`, and leaves states alone."""
        return {
            p.paper: phase_state(p, guarded(p, p.piece.next, state[p.paper], step, metrics)) for p in self.controllers
        }

    def at(self, state: Mapping[str, Any]) -> Running:
        return self.phases[tuple(f"{p.paper}:{state[p.paper]['phase']}" for p in self.controllers)]

    def told(self, state: Mapping[str, Any]) -> dict[str, float]:
        """Metrics: in which of its phases each paper is, counted from 1."""
        return {f"phase/{p.paper}": 1.0 + p.piece.names.index(state[p.paper]["phase"]) for p in self.controllers}

    @property
    def models(self) -> set[str]:
        """Every model that some phase looks at or trains."""
        return set().union(*(r.models for r in self.phases.values()))

    def ahead(self, state: Mapping[str, Any]) -> list[Running]:
        """The present phase and all that may still come: those of a controller that goes one way are not behind it."""
        left = []
        for p in self.controllers:
            names, now = p.piece.names, state[p.paper]["phase"]
            left.append(names[names.index(now) :] if getattr(p.piece, "one_way", False) else names)
        return [
            self.phases[tuple(f"{p.paper}:{phase}" for p, phase in zip(self.controllers, combination))]
            for combination in itertools.product(*left)
        ]

    def models_ahead(self, state: Mapping[str, Any]) -> set[str]:
        """Every model that the present phase or a later one looks at or trains."""
        return set().union(*(r.models for r in self.ahead(state)))

    def __str__(self) -> str:
        parts = []
        for key, running in self.phases.items():
            title = f"phase {', '.join(key)}\n" if key else ""
            parts.append(title + running.table())
        return "\n\n".join(parts)


@dataclass(frozen=True, slots=True)
class Running:
    """One phase's stack, ready to run."""

    stack: Stack
    notes: tuple[str, ...] = ()
    order: tuple[_Step, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", _ordered(self.stack))

    # ---- what the engine has to provide ------------------------------------------------------------------
    @property
    def losses(self) -> tuple[Placed, ...]:
        """The loss and every further term, as they are set."""
        return (*self.stack["loss"], *self.stack["terms"])

    @property
    def terms(self) -> tuple[Any, ...]:
        """The loss and every further term."""
        return tuple(p.piece for p in self.losses)

    def views(self, at_update: bool = False) -> list[View]:
        """Looks to take before the first update (or before each one); the engine lets them share what they can."""
        every = dict.fromkeys(view for placed in self.stack for view in views_of(placed.piece))
        return [v for v in every if (v.at_update or set(v.gives) <= AT_UPDATE) == at_update]

    @property
    def models(self) -> set[str]:
        return (
            {model for late in (False, True) for v in self.views(late) for model in v.models}
            | {model_of(t) for t in self.terms}
            | {"policy"}
        )

    @property
    def trained(self) -> list[str]:
        """Models that an optimiser step changes, policy first."""
        return sorted({model_of(t) for t in self.terms}, key=lambda m: (m != "policy", m))

    def terms_of(self, model: str) -> list[Any]:
        return [p.piece for p in self._losses_of(model)]

    def _losses_of(self, model: str) -> list[Placed]:
        return [p for p in self.losses if model_of(p.piece) == model]

    @property
    def together(self) -> str:
        """Rows that no cut may part: the coarsest unit that a loss names."""
        asked = {getattr(t, "together", "row") for t in self.terms}
        return next((unit for unit in ("group", "pair", "episode") if unit in asked), "row")

    @property
    def learns_from_verdicts(self) -> bool:
        """Whether anything alive reads a verdict; then rows without one weigh nothing."""
        return any(
            {"reward", "correct", "score", "token_reward"} & reads(p.piece)
            for p in self.stack
            if p.slot not in BEFORE_BATCH
        )

    # ---- the rollout batch -------------------------------------------------------------------------------
    def credit(self, batch: Batch) -> Batch:
        """Derive, reward, advantage, reshape, bounds and weights of the whole rollout batch, in the order of their
        needs."""
        ones = torch.ones_like(batch["behavior_logp"])
        row_weight = torch.ones(len(batch), dtype=ones.dtype, device=ones.device)
        if self.learns_from_verdicts:
            row_weight = row_weight * batch["known"]
        batch = batch.with_(
            {"row_weight": row_weight, "token_weight": ones, "token_counted": torch.ones_like(ones, dtype=torch.bool)}
        )
        for step in self.order:
            batch = step.run(batch)
        return batch

    # ---- each optimiser batch ----------------------------------------------------------------------------
    def weigh(self, batch: Batch) -> Batch:
        """The final `weight` of every token of an optimiser batch, and of terms that reduce in their own way."""
        late = [p for p in self.stack["token_weight"] if getattr(p.piece, "on_update", False)]
        if any("now_slope" in reads(p.piece) for p in late):
            batch = batch.with_({"now_slope": self.slope(batch)})
        for placed in late:
            batch = _multiply_token_weight(placed, batch)
        own = batch["token_weight"] * batch.spread(batch["row_weight"])
        out = {"weight": own * ask(self.stack["reduction"][0], batch)}
        for placed in self.losses:
            reduction = getattr(placed.piece, "reduction", None)
            if reduction is not None:
                every = batch.with_({"token_counted": torch.ones_like(batch["token_counted"])})
                factor = ask(replace(placed, slot="reduction", piece=reduction), every)
                out[weight_name(placed.piece)] = batch.spread(batch["row_weight"]) * factor
        return batch.with_(out)

    def slope(self, batch: Batch) -> Tensor:
        """[N] d(all policy token losses)/d(logp) at the current weights, from the streams `now_logp` and
        `now_entropy`."""
        with torch.enable_grad():
            logp = batch["now_logp"].clone().requires_grad_()
            provisional = batch["token_weight"] * batch.spread(
                batch["row_weight"]
            )  # what a loss reports on, before selection
            part = replace(batch.with_({"weight": provisional}), whole=False)
            now = self.with_ratio(Now(logp, batch["now_entropy"]), part)
            total = logp.new_zeros(())
            for placed in self._losses_of("policy"):
                if set(getattr(placed.piece, "reads", ("logp",))) <= {"logp", "ratio", "entropy"}:
                    total = total + ask(placed, now, part)[0].sum()
            (slope,) = torch.autograd.grad(total, logp, allow_unused=True)
            return torch.zeros_like(logp) if slope is None else slope

    # ---- each micro-batch --------------------------------------------------------------------------------
    def with_ratio(self, now: Now, part: Batch) -> Now:
        for placed in self.stack["ratio"]:
            now = replace(now, ratio=ask(placed, now, part))
        return now

    def loss(self, model: str, now: Now, part: Batch) -> tuple[Tensor, dict[str, Tally]]:
        """The model's loss on a micro-batch, as a sum that adds up over micro-batches, and what its terms tell."""
        if model == "policy":
            now = self.with_ratio(now, part)
        carrier = now.value if model != "policy" and now.value is not None else now.logp
        total = (carrier * 0.0).sum()  # a graph-connected zero when there is nothing to learn
        told: dict[str, Tally] = {}
        for placed in self._losses_of(model):
            term = placed.piece
            token_loss, tallies = ask(placed, now, part)
            weight = part[weight_name(term)]
            value = torch.where(weight != 0, weight * token_loss, 0.0).sum()
            total = total + value
            merge(told, {**tallies, f"loss/{term_name(term)}": Tally(value.detach().double(), 1.0, "sum")})
        return total, told

    def busy(self, batch: Batch, model: str) -> Tensor:
        """[R] bool: rows that some term of the model can learn from, with everything that must stay beside them."""
        tokens = torch.zeros_like(batch.row, dtype=torch.bool)
        for placed in self._losses_of(model):
            tokens |= ~idle(placed, batch) & (batch[weight_name(placed.piece)] != 0)
        units = batch.units(self.together)
        alive = torch.zeros(int(units.max()) + 1 if len(units) else 0, dtype=torch.long, device=units.device)
        return alive.index_add(0, units, batch.row_sum(tokens))[units] > 0

    def streams_of(self, model: str) -> set[str]:
        """Streams that the model's terms and ratio read: all that a micro-batch has to carry."""
        pieces = [
            *self.terms_of(model),
            *([self.stack.one("ratio")] if self.stack["ratio"] and model == "policy" else []),
        ]
        return set().union(
            *(reads(p) for p in pieces), {weight_name(t) for t in self.terms_of(model)}, {"behavior_logp", "token"}
        )

    def table(self) -> str:
        """The slots of this stack as text, at most 80 columns where names allow."""
        lines = [f"{'slot':<13}{'piece':<46}set by"]
        for placed in self.stack:
            mark = "" if placed.strength == "firm" else f" ({'default' if placed.strength == 'base' else 'preferred'})"
            lines.append(f"{placed.slot:<13}{short(placed.piece):<46}{placed.paper}{mark}")
        looks = [str(view) for late in (False, True) for view in self.views(late)]
        lines += [f"looks at     {look}" for look in looks]
        lines += [f"note         {note}" for note in self.notes]
        return "\n".join(lines)


# ---- names -----------------------------------------------------------------------------------------------
def term_name(term: Any) -> str:
    """'policy' for the main loss unless it names itself; the piece's class name otherwise."""
    return str(getattr(term, "name", type(term).__name__.lower()))


def weight_name(term: Any) -> str:
    """The stream that a term's token losses are multiplied with."""
    return "weight" if getattr(term, "reduction", None) is None else f"weight/{term_name(term)}"


# ---- order -----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Step:
    """One thing that `credit` does."""

    slot: str
    placed: tuple[Placed, ...]
    needs: frozenset[str]
    gives: frozenset[str]

    def run(self, batch: Batch) -> Batch:
        return _RUN[self.slot](self.placed, batch)


def _derive(every: tuple[Placed, ...], batch: Batch) -> Batch:
    for placed in every:
        batch = batch.with_(ask(placed, batch))
    return batch


def _reward(every: tuple[Placed, ...], batch: Batch) -> Batch:
    rows = torch.zeros(len(batch), dtype=batch["behavior_logp"].dtype, device=batch.length.device)
    tokens = torch.zeros_like(batch["behavior_logp"])
    parts: dict[str, Tensor] = {}
    for placed in every:
        per_token = getattr(placed.piece, "per_token", False)
        for name, value in ask(placed, batch).items():
            value = value * getattr(placed.piece, "weight", 1.0)
            parts[f"reward/{name}"] = batch.row_sum(value) if per_token else value
            if per_token:
                tokens = tokens + value
            else:
                rows = rows + value
    return batch.with_({**parts, "token_reward": tokens, "reward": rows + batch.row_sum(tokens)})


def _advantage(every: tuple[Placed, ...], batch: Batch) -> Batch:
    first, *rest = every
    value = ask(first, batch)
    if gives_rows(first.piece):
        batch = batch.with_({"row_advantage": value, "advantage": batch.spread(value)})
    else:
        batch = batch.with_({"advantage": value})
    for placed in rest:
        batch = batch.with_({"advantage": ask(placed, batch)})
    return batch


def _bounds(every: tuple[Placed, ...], batch: Batch) -> Batch:
    low, high = ask(every[0], batch)
    return batch.with_({"clip_low": low, "clip_high": high})


def _row_weight(every: tuple[Placed, ...], batch: Batch) -> Batch:
    for placed in every:
        batch = batch.with_({"row_weight": batch["row_weight"] * ask(placed, batch)})
    return batch


def _token_weight(every: tuple[Placed, ...], batch: Batch) -> Batch:
    for placed in every:
        batch = _multiply_token_weight(placed, batch)
    return batch


def _multiply_token_weight(placed: Placed, batch: Batch) -> Batch:
    weight = ask(placed, batch)
    selects = getattr(placed.piece, "selects", False)
    counted = batch["token_counted"] & (weight != 0) if selects else batch["token_counted"]
    return batch.with_({"token_weight": batch["token_weight"] * weight, "token_counted": counted})


_RUN = {
    "derive": _derive,
    "reward": _reward,
    "advantage": _advantage,
    "bounds": _bounds,
    "row_weight": _row_weight,
    "token_weight": _token_weight,
}


def _ordered(stack: Stack) -> tuple[_Step, ...]:
    """The steps of `credit`, each after whatever gives what it needs; otherwise in the order of the slots."""
    steps: list[_Step] = []

    def add(slot: str, placed: tuple[Placed, ...], gives: set[str]) -> None:
        if placed:
            needs = set().union(*(reads(p.piece) for p in placed)) - gives
            steps.append(_Step(slot, placed, frozenset(needs), frozenset(gives)))

    for placed in stack["derive"]:
        add("derive", (placed,), set(placed.piece.gives))
    parts = set().union(*(reward_parts(p.piece) for p in stack["reward"]))
    add("reward", stack["reward"], {"reward", "token_reward", *parts})
    add("advantage", (*stack["advantage"], *stack["reshape"]), {"advantage", "row_advantage"})
    add("bounds", stack["bounds"], {"clip_low", "clip_high"})
    add("row_weight", stack["row_weight"], {"row_weight"})
    early = tuple(p for p in stack["token_weight"] if not getattr(p.piece, "on_update", False))
    add("token_weight", early, {"token_weight", "token_counted"})

    ordered: list[_Step] = []
    while steps:
        for step in steps:
            if not any(step.needs & other.gives for other in steps if other is not step):
                break
        else:
            waiting = "; ".join(
                f"{type(s.placed[0].piece).__name__} waits for {', '.join(sorted(s.needs))}" for s in steps
            )
            raise Contradiction(f"these pieces wait for each other: {waiting}")
        steps.remove(step)
        ordered.append(step)
    return tuple(ordered)

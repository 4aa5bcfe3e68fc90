"""The embedded engine: PyTorch on the CPU or one GPU. Scores and updates in micro-batches under a token budget.

Rows are padded on the right only for the length of one forward pass, longest together; the head runs a chunk of tokens
at a time, forward and backward. Rows that no term can learn from are left out of the pass. Models stay in eval mode:
dropout would make the ratio of two policies a ratio of two noises. Where memory runs out the budget is halved, down to
rows one by one, and what was begun is begun again: micro-batches never change a result.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from rlvr.batch import Batch, Now, Tally, merge
from rlvr.engine import looks
from rlvr.engine.critic import Critic
from rlvr.engine.model import LanguageModel
from rlvr.engine.out_of_memory import OutOfMemory, ran_out
from rlvr.engine.protocol import Sampler, Unsupported
from rlvr.engine.teacher import ServedTeacher
from rlvr.plan import Running
from rlvr.views import Look, View, views_of

log = logging.getLogger(__name__)
# Tokens of a micro-batch on a CPU, where the caches are small and the kernels busy with few. Measured at 0.2M to 30M
# parameters: 1024 to 4096 are alike, 16384 is up to half as slow again.
CPU_TOKENS = 2048
T = TypeVar("T")


class NotFinite(RuntimeError):
    """A loss or gradient is not a number. `rows` are the ids of the rows in the batch that make it so."""

    def __init__(self, what: str, rows: list[int]):
        super().__init__(
            f"{what} is not finite; rows {rows[:20]} of the rollout batch make it so; this update changed no weight"
        )
        self.rows = rows


@dataclass(frozen=True, slots=True)
class Optim:
    """AdamW and its schedule. `total` optimiser steps; warm-up is linear; cosine and linear end at `final` of lr."""

    lr: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    warmup: int = 0
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    total: int = 1
    final: float = 0.1
    max_grad_norm: float = 1.0

    def at(self, clock: int) -> float:
        """The learning rate of optimiser step `clock`, counted from 0."""
        if clock < self.warmup:
            return self.lr * (clock + 1) / self.warmup
        if self.schedule == "constant":
            return self.lr
        done = min(1.0, (clock - self.warmup) / max(1, self.total - self.warmup))
        left = 1 - done if self.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
        return self.lr * (self.final + (1 - self.final) * left)


class Stepper:
    """One model's AdamW. Weights narrower than float32 are stepped through float32 copies, or small updates would be
    rounded away."""

    def __init__(self, model: torch.nn.Module, optim: Optim):
        self.optim, self.clock = optim, 0
        self.weights = [p for p in model.parameters() if p.requires_grad]
        narrow = any(p.dtype in (torch.bfloat16, torch.float16) for p in self.weights)
        self.masters = [p.detach().float().clone() for p in self.weights] if narrow else self.weights
        self.adam = torch.optim.AdamW(
            self.masters, lr=optim.lr, betas=optim.betas, weight_decay=optim.weight_decay, fused=True
        )

    def zero(self) -> None:
        for p in self.weights:
            p.grad = None

    def norm(self) -> Tensor:
        """L2 norm of the whole gradient."""
        grads = [p.grad for p in self.weights if p.grad is not None]
        return torch.nn.utils.get_total_norm(grads) if grads else torch.zeros(())

    def step(self, norm: Tensor) -> float:
        """Clip to max_grad_norm, step, and tick. Returns the learning rate."""
        lr = self.optim.at(self.clock)
        for group in self.adam.param_groups:
            group["lr"] = lr
        grads = [p.grad for p in self.weights if p.grad is not None]
        scale = (self.optim.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(grads, scale.to(grads[0].device))
        if self.masters is not self.weights:
            for master, p in zip(self.masters, self.weights):
                master.grad = None if p.grad is None else p.grad.float()
        self.adam.step()
        if self.masters is not self.weights:
            with torch.no_grad():
                for master, p in zip(self.masters, self.weights):
                    p.copy_(master)
                    master.grad = None
        self.zero()  # whoever samples next needs the memory
        self.clock += 1
        return lr

    def state(self) -> dict[str, Tensor]:
        """Moments, step counts and float32 copies, by place."""
        out: dict[str, Tensor] = {}
        for i, p in enumerate(self.masters):
            for key, x in self.adam.state.get(p, {}).items():
                out[f"{i}/{key}"] = x.detach().clone().contiguous()
            if self.masters is not self.weights:
                out[f"{i}/master"] = p.detach().clone().contiguous()
        return out

    @torch.no_grad()
    def load(self, saved: Mapping[str, Tensor]) -> None:
        """What `state` gave."""
        for i, p in enumerate(self.masters):
            mine = {k.partition("/")[2]: x for k, x in saved.items() if k.startswith(f"{i}/")}
            if "master" in mine:
                p.copy_(mine.pop("master"))
            if mine:
                self.adam.state[p] = {k: x if k == "step" else x.to(p.device) for k, x in mine.items()}

    def forget(self) -> None:
        """No moments, as at the start; float32 copies and the schedule's clock stay."""
        self.adam.state.clear()

    def skip(self) -> None:
        """Nothing to learn: no step, but the schedule's clock goes on."""
        self.clock += 1


class TorchEngine:
    """models: by name ("policy", "reference", ...). Models in `optims` are trained.

    token_budget: padded tokens of one micro-batch. temperature: of the sampling, so that log-probs are of the policy
    that acted. skip_idle: leave out rows that no term can learn from (off only to measure or test it). served: models
    behind a server. mute: by model, ids on which it has no say; its log-prob there is the policy's.
    """

    def __init__(
        self,
        models: Mapping[str, LanguageModel | Critic],
        optims: Mapping[str, Optim],
        sampler: Sampler,
        token_budget: int = 16384,
        temperature: float = 1.0,
        skip_idle: bool = True,
        served: Mapping[str, ServedTeacher] | None = None,
        mute: Mapping[str, frozenset[int]] | None = None,
    ):
        self.models, self.sampler, self.skip_idle = dict(models), sampler, skip_idle
        self.token_budget, self.temperature, self.version = token_budget, temperature, 0
        self.asked_budget = token_budget  # token_budget is what has fitted so far
        self.served, self.mute = dict(served or {}), dict(mute or {})
        self.read: dict[str, int] = {}  # tokens that frozen models have read since it was last told
        self.refreshed: set[str] = set()  # models that have become copies of the policy on the way
        self.steppers = {name: Stepper(self.models[name].model, optim) for name, optim in optims.items()}

    @property
    def device(self) -> torch.device:
        return self.models["policy"].device

    # ---- state ----------------------------------------------------------------------------------------------------
    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Optimisers, float32 copies, and every model that differs from what its name loads; the policy's own weights
        are left to the caller."""
        tensors: dict[str, Tensor] = {}
        for name, stepper in self.steppers.items():
            tensors |= {f"{name}/optim/{key}": x for key, x in stepper.state().items()}
        for name in (self.steppers.keys() | self.refreshed) - {"policy"}:
            weights = _changed(self.models[name].model, name in self.steppers)
            tensors |= {f"{name}/model/{key}": x.detach().clone().contiguous() for key, x in weights.items()}
        clocks = {name: stepper.clock for name, stepper in self.steppers.items()}
        budgets = [self.asked_budget, self.token_budget]
        told = {"version": self.version, "clocks": clocks, "refreshed": sorted(self.refreshed), "budgets": budgets}
        return tensors, told

    def load_state(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """What `state` gave, into an engine of the same models. Raises KeyError where something is missing."""
        part = lambda prefix: {k.removeprefix(prefix): x for k, x in tensors.items() if k.startswith(prefix)}  # noqa: E731
        self.refreshed = set(facts["refreshed"])
        for name in (self.steppers.keys() | self.refreshed) - {"policy"}:
            saved = part(f"{name}/model/")
            for key, x in _changed(self.models[name].model, name in self.steppers).items():
                x.data.copy_(saved[key])
        for name, stepper in self.steppers.items():
            stepper.load(part(f"{name}/optim/"))
            stepper.clock = facts["clocks"][name]
        asked, fits = facts["budgets"]
        if asked == self.asked_budget:  # a new wish is tried anew
            self.token_budget = fits
        self.version = facts["version"]
        self.sampler.publish(self.version)

    def require(self, running: Running) -> None:
        """Raise Unsupported where the plan needs a model that is not here, or one that moves and cannot."""
        lacking = running.models - set(self.models) - set(self.served)
        if lacking:
            raise Unsupported(
                f"the stack needs the model {', '.join(sorted(lacking))}, which this run does not have; give it in "
                f"the recipe"
            )
        for placed in running.stack:
            for view in views_of(placed.piece):
                if view.models & self.served.keys() and not _plain(view.probe):
                    (away,) = view.models & self.served.keys()
                    raise Unsupported(
                        f"{placed.paper} wants {', '.join(view.gives)} of the {away}, and a server tells the "
                        f"log-probs of tokens, and of the likeliest where a paper names how many (as verpo's k = 64); "
                        f"or load the {away} here, without {away}.url"
                    )
            if getattr(placed.piece, "refresh", 0) and "reference" in running.models:
                self._own_weights("reference", f"{placed.paper}(refresh = {placed.piece.refresh})")

    def _own_weights(self, name: str, asker: str) -> None:
        if self.models[name].model is self.models["policy"].model:
            raise Unsupported(
                f"{asker} wants to copy the policy into the {name}, but with [lora] the {name} is the policy with its "
                "adapter off, so it cannot move; drop refresh, or drop [lora]"
            )

    def release(self, keep: set[str]) -> None:
        """Frozen models outside of `keep` are let go; nothing will look at them again."""
        for name in (self.models.keys() | self.served.keys()) - keep - self.steppers.keys() - {"policy"}:
            self.models.pop(name, None)
            self.served.pop(name, None)
            self.refreshed.discard(name)
        torch.cuda.empty_cache()

    def forget(self, name: str) -> None:
        """A model's optimiser begins afresh, without moments; its schedule goes on."""
        self.steppers[name].forget()

    # ---- memory ------------------------------------------------------------------------------------------
    def in_parts(
        self,
        what: str,
        batch: Batch,
        rows: Tensor,
        begin: Callable[[], T],
        one: Callable[[T, Tensor], None],
        together: str,
        packed: bool,
    ) -> T:
        """begin(), then one(state, part) for the micro-batches of these rows. Where memory runs out, all of it again
        in parts of half the size, which later batches keep to. Raises OutOfMemory where a single unit does not fit."""
        cut = batch.cut_packed if packed else batch.cut
        while True:
            state = begin()
            budget = min(self.token_budget, CPU_TOKENS) if self.device.type == "cpu" else self.token_budget
            for part in cut(budget, together, rows):
                try:
                    one(state, part)
                except RuntimeError as error:
                    if not ran_out(error):
                        raise
                    self._halve(what, batch, part, together)
                    break
            else:
                return state
            del state
            torch.cuda.empty_cache()

    def _halve(self, what: str, batch: Batch, part: Tensor, together: str) -> None:
        assert batch.chains is not None
        longest = int(batch.chains.lengths[part].max())
        if len(batch.units(together)[part].unique()) == 1:
            alone = len(part) == 1
            unit = f"one row of {longest} tokens" if alone else f"a {together} of {len(part)} rows, which stay together"
            raise OutOfMemory(
                f"{what}: memory does not hold {unit}. Lower {'' if alone else 'group_size or '}max_tokens, keep "
                'prompts short, set gradient_checkpointing = true or dtype = "bfloat16", add a table [lora], or take a '
                "smaller model"
            )
        before, self.token_budget = self.token_budget, max(1, min(self.token_budget, len(part) * longest) // 2)
        log.warning(
            "%s: out of memory; going on with token_budget = %d instead of %d, which changes no result. Put it into "
            "the recipe to save the lost time",
            *(what, self.token_budget, before),
        )

    # ---- forward -----------------------------------------------------------------------------------------
    def hidden_of(self, lm: LanguageModel | Critic, batch: Batch) -> tuple[Tensor, Tensor]:
        """[n, d] hidden states that predict the batch's trained tokens, and those tokens [n]."""
        chains = batch.chains
        assert chains is not None
        return lm.predicting(chains, batch.length), chains.ids[chains.starts[batch.row] + chains.at]

    def now(self, name: str, batch: Batch, reads: set[str]) -> Now:
        """The running forward of a model on a micro-batch."""
        lm = self.models[name]
        hidden, token = self.hidden_of(lm, batch)
        if isinstance(lm, Critic):
            value = lm.value(hidden)
            return Now(torch.full_like(value.detach(), torch.nan), value=value)  # it has no log-probs
        names = sorted(r.removeprefix("logp_at/") for r in reads if r.startswith("logp_at/"))
        at = torch.cat([batch[n] for n in names], -1) if names else None
        logp, entropy, logp_at = lm.logp_entropy(hidden, token, self.temperature, at=at)
        if not names or logp_at is None:
            return Now(logp, entropy)
        parts = logp_at.split([batch[n].shape[-1] for n in names], -1)
        return Now(logp, entropy, logp_at=dict(zip(names, parts)))

    # ---- score -------------------------------------------------------------------------------------------
    @torch.no_grad()
    def score(self, batch: Batch, views: Sequence[View]) -> Batch:
        """The batch with every view's streams added (looks.py)."""
        return looks.taken(self, batch, views)

    # ---- update ------------------------------------------------------------------------------------------
    def update(self, batch: Batch, running: Running) -> dict[str, Tally]:
        """One optimiser step of every trained model on an optimiser batch whose weights are final.

        Raises NotFinite, before any weight has changed, when a loss or gradient is not finite.
        """
        told = {f"score/{name}/tokens": Tally(n, how="sum") for name, n in self.read.items()}
        self.read.clear()
        ready: list[tuple[str, Stepper, Tensor]] = []
        for model in running.trained:
            if model not in self.steppers:
                raise Unsupported(
                    f"the stack trains the model {model!r}, which this run does not have an optimiser for"
                )
            stepper = self.steppers[model]
            busy = running.busy(batch, model) if self.skip_idle else batch.length > 0
            told[f"busy/{model}"] = Tally.mean(busy.double())
            if not running.busy(batch, model).any():
                stepper.skip()
                continue
            for name, tally in self._backward(batch, running, model, busy.nonzero()[:, 0]).items():
                # a loss adds up over the micro-batches of one step; over several steps it is averaged
                told[name] = Tally(tally.total) if tally.how == "sum" else tally
            norm = stepper.norm()
            if not bool(torch.isfinite(norm)):
                raise NotFinite(f"the gradient of {model}", self._offenders(batch, running, model))
            ready.append((model, stepper, norm))
        for model, stepper, norm in ready:
            place = "optim" if model == "policy" else f"optim/{model}"
            told |= {f"{place}/lr": Tally(stepper.step(norm)), f"{place}/grad_norm": Tally(norm.double())}
        return told

    def _backward(self, batch: Batch, running: Running, model: str, rows: Tensor) -> dict[str, Tally]:
        """The gradient of a model over these rows, left in its weights; what its terms tell."""
        reads = set().union(*(set(getattr(t, "reads", ("logp",))) for t in running.terms_of(model)))
        names = running.streams_of(model) | {"sampler_logp"} | {"pair", "group", "episode", "id"} & set(batch.rows)

        def begin() -> dict[str, Tally]:
            self.steppers[model].zero()
            return {}

        def learn(told: dict[str, Tally], part_rows: Tensor) -> None:
            part = batch.take(part_rows, whole=False, names=names)
            now = self.now(model, part, reads)
            loss, tallies = running.loss(model, now, part)
            if not bool(torch.isfinite(loss.detach())):
                raise NotFinite(f"the loss of {model}", self._offenders(batch, running, model))
            loss.backward()
            merge(told, tallies)
            if model == "policy":
                merge(told, _against_sampler(now, part))

        packed = self.models[model].packs
        return self.in_parts(f"the update of the {model}", batch, rows, begin, learn, running.together, packed)

    def _offenders(self, batch: Batch, running: Running, model: str) -> list[int]:
        """Ids of the rows whose own loss or gradient is not finite, found one unit at a time."""
        stepper, bad = self.steppers[model], []
        reads = set().union(*(set(getattr(t, "reads", ("logp",))) for t in running.terms_of(model)))
        for rows in batch.cut(1, running.together, running.busy(batch, model).nonzero()[:, 0]):
            stepper.zero()
            part = batch.take(rows, whole=False)
            loss, _ = running.loss(model, self.now(model, part, reads), part)
            loss.backward()
            if not bool(torch.isfinite(loss.detach())) or not bool(torch.isfinite(stepper.norm())):
                bad += batch["id"][rows].tolist()
        stepper.zero()
        return sorted(bad)

    # ---- weights -----------------------------------------------------------------------------------------
    def publish(self) -> None:
        """New policy weights: the sampler forgets every key and value that the old ones made."""
        self.version += 1
        self.sampler.publish(self.version)

    @torch.no_grad()
    def refresh(self, name: str) -> None:
        """Copy the policy's weights into another model of the same shape, e.g. the reference. Raises Unsupported where
        it has no weights of its own."""
        self._own_weights(name, "refresh")
        self.refreshed.add(name)
        for mine, policy in zip(
            self.models[name].model.parameters(), self.models["policy"].model.parameters(), strict=True
        ):
            mine.copy_(policy)


def _plain(probe: Any) -> bool:
    """Whether a server can answer: log-probs of the tokens, or what a probe makes of the likeliest ones."""
    return (isinstance(probe, Look) and probe.gives == (probe.logp,)) or getattr(probe, "top", 0) > 0


def _changed(model: torch.nn.Module, trained: bool) -> dict[str, Tensor]:
    """The weights of a model that are no longer those it was loaded with, by name."""
    return {name: x for name, x in model.named_parameters() if x.requires_grad or not trained}


def _against_sampler(now: Now, part: Batch) -> dict[str, Tally]:
    """How the running policy stands to the one that sampled: equal on the first update up to numerics, then drifting
    apart."""
    known = torch.isfinite(part["sampler_logp"])
    gap = torch.where(known, now.logp.detach().double() - part["sampler_logp"].double(), 0.0)
    # k3 of KL(sampler || now) from the sampler's samples, r = p_now / p_sampler: non-negative, low variance
    return {
        "policy/kl_behavior": Tally.mean(gap.clamp(-20, 20).exp() - 1 - gap, known),
        "sampler/gap": Tally.mean(gap.abs(), known),
        "sampler/gap_max": Tally.max(gap.abs(), known),
    }

"""The torch engine on real (tiny) models: gradients against a plain forward pass, views, cuts, and what stops it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from models import tiny_llama
from torch import Tensor

from rlvr.batch import Batch, Chains
from rlvr.engine.model import LanguageModel
from rlvr.engine.protocol import Unsupported
from rlvr.engine.torch_engine import NotFinite, Optim, TorchEngine
from rlvr.loop import Settings, optimiser_batches
from rlvr.loss.losses import Clipped
from rlvr.methods.grpo import grpo
from rlvr.streams import declare
from rlvr.testing import running
from rlvr.views import STANDARD, Look, Seen, View

declare("row", "probe/norm", "sum over a row of the squared hidden state")
declare("row", "probe/looked", "row had a context")
declare("token", "probe/hinted_logp", "log-prob after a hint")
declare("token", "probe/kl", "KL of the plain to the hinted distribution")

F64 = torch.float64


class NoSampler:
    version = 0

    def publish(self, version: int) -> None:
        self.version = version


def rows(seed: int = 0, n: int = 12, vocab: int = 17) -> Batch:
    """Random chains of uneven groups; two rows train nothing, one has a hole (a tool's tokens) in its middle."""
    noise = torch.Generator().manual_seed(seed)
    draw = lambda low, high: int(torch.randint(low, high, (1,), generator=noise))  # noqa: E731
    ids, at = [], []
    for i in range(n):
        prompt, new = draw(2, 6), 0 if i in (4, 9) else draw(1, 12)
        ids.append(torch.randint(3, vocab, (prompt + new,), generator=noise).tolist())
        places = list(range(prompt, prompt + new))
        at.append(places[:2] + places[4:] if i == 2 else places)
    length = torch.tensor([len(a) for a in at])
    token = torch.tensor([row[p] for row, places in zip(ids, at) for p in places])
    correct = torch.rand(n, generator=noise) < 0.5
    return Batch.pack(
        length,
        Chains.of(ids, at),
        token=token,
        group=torch.tensor([0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 3, 3])[:n],
        correct=correct,
        score=correct.double(),
        behavior_logp=torch.zeros(len(token), dtype=F64),
        sampler_logp=torch.full((len(token),), torch.nan, dtype=F64),
    )


def engine(lm: LanguageModel, **more: Any) -> TorchEngine:
    return TorchEngine({"policy": lm}, {"policy": Optim(lr=1e-2)}, NoSampler(), **more)  # type: ignore[arg-type]


def plain_logp(lm: LanguageModel, batch: Batch, temperature: float = 1.0) -> Tensor:
    """[N] one row at a time, through the model's own forward."""
    out = []
    assert batch.chains is not None
    for i, places in enumerate(batch.chains.at.split(batch.length.tolist())):
        ids = batch.chains.row(i)
        if len(places):
            logits = lm.model(ids[None]).logits[0] / temperature
            out.append(torch.log_softmax(logits, -1)[places - 1, ids[places]])
    return torch.cat(out)


def off_policy(lm: LanguageModel, batch: Batch) -> Batch:
    """old_logp half a nat away from the model, so that a good share of ratios is clipped."""
    with torch.no_grad():
        logp = plain_logp(lm, batch)
    noise = torch.randn(len(logp), dtype=logp.dtype, generator=torch.Generator().manual_seed(7))
    return batch.with_({"old_logp": (logp + 0.5 * noise).detach(), "behavior_logp": torch.zeros_like(logp)})


def gradients(lm: LanguageModel) -> Tensor:
    return torch.cat(
        [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in lm.model.parameters()]
    )


def backward(lm: LanguageModel, batch: Batch, **more: Any) -> tuple[Tensor, dict[str, float]]:
    plan = running(grpo())
    batch = plan.weigh(plan.credit(batch))
    e = engine(lm, **more)
    lm.model.zero_grad()
    busy = plan.busy(batch, "policy") if e.skip_idle else batch.length > 0
    told = e._backward(batch, plan, "policy", busy.nonzero()[:, 0])
    return gradients(lm), {k: t.value() for k, t in told.items()}


def test_scores_equal_a_plain_forward_at_any_temperature() -> None:
    lm, batch = tiny_llama(), rows()
    for temperature in (1.0, 0.5):
        for budget in (1, 40, 10_000):
            done = engine(lm, token_budget=budget, temperature=temperature).score(batch, [STANDARD["old_logp"]])
            torch.testing.assert_close(done["old_logp"], plain_logp(lm, batch, temperature), rtol=0, atol=1e-12)
    assert bool((done["entropy"] > 0).all())


def test_gradient_equals_a_plain_backward_pass_off_policy() -> None:
    lm = tiny_llama()
    batch = off_policy(lm, rows())
    got, told = backward(lm, batch)
    assert told["policy/clip_frac"] > 0.01
    plan = running(grpo())
    advantage = plan.credit(batch)["advantage"]
    lm.model.zero_grad()
    ratio = (plain_logp(lm, batch) - batch["old_logp"]).exp()
    loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    loss.backward()
    torch.testing.assert_close(got, gradients(lm), rtol=0, atol=1e-12)
    assert told["loss/policy"] == pytest.approx(float(loss.detach()), abs=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(F64, 1e-10), (torch.float32, 1e-5)])
def test_micro_batches_and_skipping_of_idle_rows_change_nothing(dtype: torch.dtype, tolerance: float) -> None:
    lm = tiny_llama(dtype=dtype)
    batch = off_policy(lm, rows())
    whole, _ = backward(lm, batch)
    scale = float(whole.abs().max())
    for more in ({"token_budget": 1}, {"token_budget": 50}, {"skip_idle": False}):
        got, _ = backward(lm, batch, **more)
        assert float((got - whole).abs().max()) <= tolerance * max(1.0, scale)


def test_a_batch_that_is_all_idle_takes_no_step_but_the_clock_goes_on() -> None:
    lm = tiny_llama()
    for skip in (True, False):
        e = engine(lm, skip_idle=skip)
        batch = off_policy(lm, rows())
        every = torch.ones(len(batch), dtype=torch.bool)
        batch = batch.with_({"correct": every, "score": every.double()})
        plan = running(grpo())
        before = [p.clone() for p in lm.model.parameters()]
        e.update(plan.weigh(plan.credit(batch)), plan)
        assert all(torch.equal(a, b) for a, b in zip(before, lm.model.parameters()))
        assert e.steppers["policy"].clock == 1
        assert not e.steppers["policy"].adam.state


def test_an_update_moves_the_weights_as_adamw_does_after_clipping() -> None:
    lm = tiny_llama()
    batch, plan = off_policy(lm, rows()), running(grpo())
    batch = plan.weigh(plan.credit(batch))
    twin = tiny_llama()
    gradient, _ = backward(twin, off_policy(twin, rows()))
    norm = float(gradient.norm())
    limit = norm / 3
    # type: ignore[arg-type]
    e = TorchEngine({"policy": lm}, {"policy": Optim(lr=1e-2, max_grad_norm=limit)}, NoSampler())
    told = e.update(batch, plan)
    assert told["optim/grad_norm"].value() == pytest.approx(norm)
    g = gradient * limit / (norm + 1e-6)
    want = torch.cat([p.detach().flatten() for p in twin.model.parameters()]) - 1e-2 * g / (g.abs() + 1e-8)
    got = torch.cat([p.detach().flatten() for p in lm.model.parameters()])
    torch.testing.assert_close(got, want, rtol=0, atol=1e-9)


def test_narrow_weights_are_stepped_through_float32() -> None:
    """One hundred steps of 1e-5 on a weight near 1 add up in float32 copies; alone in bfloat16 each would be rounded
    away."""
    lm = tiny_llama(dtype=torch.bfloat16)
    e = TorchEngine({"policy": lm}, {"policy": Optim(lr=1e-5)}, NoSampler())  # type: ignore[arg-type]
    stepper = e.steppers["policy"]
    before = [p.clone() for p in stepper.weights]
    norms = [i for i, p in enumerate(stepper.weights) if bool((p == 1).all())]
    for _ in range(1000):
        for p in stepper.weights:
            p.grad = torch.ones_like(p)
        stepper.step(torch.ones(()))
    assert norms
    assert all(bool((stepper.weights[i] < before[i]).all()) for i in norms)


def test_not_finite_gradients_stop_before_any_weight_changes_and_name_the_rows() -> None:
    @dataclass(frozen=True)
    class Explodes(Clipped):
        def __call__(self, now: Any, batch: Batch) -> Any:
            loss, told = super().__call__(now, batch)
            bad = batch.spread(batch["id"] == 5)
            return torch.sqrt(torch.where(bad, now.logp * 0.0, 1.0)) + loss, told  # finite value, no slope at 0

    lm = tiny_llama()
    batch = off_policy(lm, rows()).with_(
        {"correct": (torch.arange(12) % 2 == 0), "score": (torch.arange(12) % 2 == 0).double()}
    )
    plan = running(grpo().firm("x", loss=Explodes()))
    before = [p.clone() for p in lm.model.parameters()]
    with pytest.raises(NotFinite, match=r"gradient of policy is not finite; rows \[5\]") as error:
        engine(lm).update(plan.weigh(plan.credit(batch)), plan)
    assert error.value.rows == [5]
    assert all(torch.equal(a, b) for a, b in zip(before, lm.model.parameters()))


def test_a_model_that_is_not_there_is_unsupported() -> None:
    @dataclass(frozen=True)
    class FromTeacher:
        needs: ClassVar = ("teacher_logp", "old_logp")
        gives: ClassVar = ("advantage",)

        def __call__(self, batch: Batch) -> Tensor:
            return batch["teacher_logp"] - batch["old_logp"]

    with pytest.raises(Unsupported, match="teacher"):
        engine(tiny_llama()).require(running(grpo().firm("x", advantage=FromTeacher())))


# ---- views -----------------------------------------------------------------------------------------------
def hint(batch: Batch) -> list[list[int] | None]:
    """Another prompt for even rows; odd rows are not looked at."""
    return [[1, 5, 6, 7, 8] if i % 2 == 0 else None for i in range(len(batch))]


@dataclass(frozen=True)
class Norm:
    gives: ClassVar = ("probe/norm",)

    def __call__(self, seen: Mapping[str, Seen]) -> dict[str, Tensor]:
        return {"probe/norm": seen[""].hidden.pow(2).sum(-1)}


@dataclass(frozen=True)
class Divergence:
    gives: ClassVar = ("probe/kl",)

    def __call__(self, seen: Mapping[str, Seen]) -> dict[str, Tensor]:
        p, q = seen[""].logp_all, seen["hint"].logp_all
        return {"probe/kl": (p.exp() * (p - q)).sum(-1)}


def test_contexts_are_equal_to_a_forward_pass_with_the_other_prompt() -> None:
    lm, batch = tiny_llama(), rows()
    e = engine(lm, token_budget=40)
    batch = e.score(batch, [STANDARD["old_logp"]])
    view = View(Look(logp="probe/hinted_logp"), contexts=(("hint", hint),), looked="probe/looked")
    done = e.score(batch, [view])
    assert done["probe/looked"].tolist() == [i % 2 == 0 and n > 0 for i, n in enumerate(batch.length.tolist())]
    assert batch.chains is not None
    for i, places in enumerate(batch.chains.at.split(batch.length.tolist())):
        got = done["probe/hinted_logp"][batch.row == i]
        if not len(places):
            continue
        if i % 2:
            assert torch.equal(got, batch["old_logp"][batch.row == i])
            continue
        tail = batch.chains.row(i)[places[0] :]
        ids = torch.cat([torch.tensor([1, 5, 6, 7, 8]), tail])
        logp = torch.log_softmax(lm.model(ids[None]).logits[0], -1)
        at = places - places[0] + 5
        torch.testing.assert_close(got, logp[at - 1, ids[at]].detach(), rtol=0, atol=1e-12)


def test_probes_of_one_pass_share_it_and_row_streams_are_summed() -> None:
    lm, batch = tiny_llama(), rows()
    e = engine(lm, token_budget=40)
    passes = 0

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(lm, name)

        def predicting(self, *a: Any) -> Tensor:
            nonlocal passes
            passes += 1
            return lm.predicting(*a)

    e.models["policy"] = Counting()  # type: ignore[assignment]
    e.score(batch, [STANDARD["old_logp"], View(Norm())])
    assert passes == len(batch.cut_packed(40, rows=(batch.length > 0).nonzero()[:, 0])) > 1
    two = View(Divergence(), contexts=(("", None), ("hint", hint)))
    done = e.score(batch, [STANDARD["old_logp"], View(Norm()), two])
    alone = engine(lm).score(batch, [View(Norm())])
    torch.testing.assert_close(done["probe/norm"], alone["probe/norm"], rtol=0, atol=1e-9)
    assert done["probe/norm"][4] == 0
    even = batch.spread(torch.arange(12) % 2 == 0)
    assert bool((done["probe/kl"][even] > 0).all())
    assert bool((done["probe/kl"][~even] == 0).all())


def test_a_view_may_look_at_other_rows() -> None:
    lm, batch = tiny_llama(), rows()
    other = rows(seed=3, n=4)
    view = View(Norm(), side=("anchors", lambda b: other))
    done = engine(lm).score(batch, [view])
    torch.testing.assert_close(
        done.side["anchors"]["probe/norm"], engine(lm).score(other, [View(Norm())])["probe/norm"]
    )
    assert "probe/norm" not in done


# ---- schedules and optimiser batches ---------------------------------------------------------------------
def test_learning_rates_by_hand() -> None:
    base = Optim(lr=1.0, warmup=4, total=14, final=0.1)
    assert [base.at(i) for i in (0, 1, 3, 4, 13)] == [0.25, 0.5, 1, 1, 1]
    linear = replace(base, schedule="linear")
    assert [linear.at(i) for i in (4, 9, 14, 99)] == pytest.approx([1, 0.55, 0.1, 0.1])
    cosine = replace(base, schedule="cosine")
    assert cosine.at(9) == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 2)) / 2)


def test_optimiser_batches_hold_whole_groups_and_cover_the_batch_each_epoch() -> None:
    batch = Batch.pack(torch.ones(23, dtype=torch.long), group=torch.arange(23) // 3)
    settings = Settings(1, 8, 3, updates_per_batch=3, epochs=2, seed=4)
    parts = list(optimiser_batches(batch, "row", settings, step=1))
    assert len(parts) == 6
    for epoch in (parts[:3], parts[3:]):
        assert sorted(torch.cat(epoch).tolist()) == list(range(23))
        groups = [set(batch["group"][p].tolist()) for p in epoch]
        assert not groups[0] & groups[1]
        assert max(map(len, groups)) - min(map(len, groups)) <= 1
    assert [p.tolist() for p in parts[:3]] != [p.tolist() for p in parts[3:]]
    again = list(optimiser_batches(batch, "row", settings, step=1))
    assert [p.tolist() for p in again] == [p.tolist() for p in parts]


def test_more_updates_than_groups_never_gives_an_empty_batch() -> None:
    """A public report: one row a device, eight accumulation steps gave an empty list."""
    batch = Batch.pack(torch.ones(3, dtype=torch.long), group=torch.arange(3))
    parts = list(optimiser_batches(batch, "row", Settings(1, 3, 1, updates_per_batch=8), step=1))
    assert sorted(torch.cat(parts).tolist()) == [0, 1, 2]
    assert all(len(p) for p in parts)

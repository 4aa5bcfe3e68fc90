"""Looks through several contexts, models and rows at once: what each gives alone, in float64, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from models import tiny_llama
from test_engine import F64, engine, rows
from torch import Tensor, nn

from rlvr.batch import Batch
from rlvr.engine.looks import taken
from rlvr.engine.model import LanguageModel
from rlvr.method import Method, Placed
from rlvr.methods.grpo import grpo
from rlvr.reward.pays import Pays
from rlvr.streams import declare
from rlvr.testing import running
from rlvr.views import STANDARD, Behind, Look, Seen, View, reads

declare("row", "look/hint", "ids before the trained tokens")
declare("row", "look/other", "ids before the trained tokens")
declare("row", "look/pulled", "sum over a row of a gradient at hidden states")
declare("row", "look/saw", "row was looked at")
declare("token", "look/kl", "KL between two contexts")
declare("token", "look/gap", "log-prob of another model less that of the policy")
declare("token", "look/mark", "a number that a probe reads")


def hinted(batch: Batch) -> Batch:
    """Hints of 1 to 30 tokens, none for every third row; other prompts for all."""
    r = len(batch)
    hint, other = torch.full((r, 30), -1), torch.full((r, 4), -1)
    for i in range(r):
        n = 0 if i % 3 == 2 else 1 + (7 * i) % 30
        hint[i, :n] = torch.arange(3, 3 + n) % 17
        other[i, : 1 + i % 4] = 5
    return batch.with_({"look/hint": hint, "look/other": other})


@dataclass(frozen=True)
class KL:
    gives: ClassVar = ("look/kl",)

    def __call__(self, seen: Mapping[str, Seen]) -> dict[str, Tensor]:
        p, q = seen["hint"].logp_all, seen["other"].logp_all
        return {"look/kl": (p.exp() * (p - q)).sum(-1)}


@dataclass(frozen=True)
class Pulled:
    """Draws what a probe finds in its stream, laid on every logit, back through the head."""

    gives: ClassVar = ("look/pulled",)
    needs: ClassVar = ("look/mark",)

    def __call__(self, seen: Mapping[str, Seen]) -> dict[str, Tensor]:
        one = seen[""]
        gradient = one.logp_all.exp() * one.streams["look/mark"][:, None]
        return {"look/pulled": one.pull_back(gradient)}


@dataclass(frozen=True)
class Gap:
    gives: ClassVar = ("look/gap",)

    def __call__(self, seen: Mapping[str, Seen]) -> dict[str, Tensor]:
        return {"look/gap": seen["teacher"].logp - seen["me"].logp}


@dataclass(frozen=True)
class Right:
    needs: ClassVar = ("correct",)

    def __call__(self, batch: Batch) -> Tensor:
        return batch["correct"]


def logp_after(lm: LanguageModel, batch: Batch, i: int, prompt: list[int] | None) -> Tensor:
    """[n, V] a row's log-probs after another prompt, by the model's own forward pass over that row alone."""
    assert batch.chains is not None
    places, ids = batch.chains.at.split(batch.length.tolist())[i], batch.chains.row(i)
    if prompt is not None:
        ids = torch.cat([torch.tensor(prompt), ids[places[0] :]])
        places = places - places[0] + len(prompt)
    return torch.log_softmax(lm.model(ids[None]).logits[0].detach(), -1)[places - 1]


def prompt_of(batch: Batch, name: str, i: int) -> list[int]:
    return [x for x in batch[name][i].tolist() if x >= 0]


class Counting:
    """A model that counts its passes and the tokens in them."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm, self.tokens, self.padded = lm, list[int](), list[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)

    def predicting(self, chains: Any, length: Tensor) -> Tensor:
        self.tokens.append(int(chains.lengths.sum()))
        self.padded.append(int(chains.lengths.max()) * len(length))
        return self.lm.predicting(chains, length)


TWO = View(KL(), contexts=(("hint", Behind("look/hint")), ("other", Behind("look/other"))), looked="look/saw")


@pytest.mark.parametrize("budget", [1, 60, 10_000])
def test_a_probe_of_two_contexts_equals_a_full_computation_row_by_row(budget: int) -> None:
    lm, batch = tiny_llama(), hinted(rows())
    done = engine(lm, token_budget=budget).score(batch, [STANDARD["old_logp"], TWO])
    for i, n in enumerate(batch.length.tolist()):
        got = done["look/kl"][batch.row == i]
        hint, other = (prompt_of(batch, name, i) for name in ("look/hint", "look/other"))
        assert bool(done["look/saw"][i]) == (n > 0 and bool(hint))
        if not hint or not n:
            assert not bool(got.any())
            continue
        p, q = logp_after(lm, batch, i, hint), logp_after(lm, batch, i, other)
        torch.testing.assert_close(got, (p.exp() * (p - q)).sum(-1), rtol=0, atol=1e-11)


def test_padded_rows_give_what_packed_ones_give() -> None:
    """Both ways to a micro-batch: whole rows padded to the longest, and tokens end to end."""
    batch = hinted(rows())
    packed, padded = tiny_llama(), tiny_llama()
    padded._fused = None
    one, other = (engine(lm, token_budget=70).score(batch, [TWO]) for lm in (packed, padded))
    assert packed.packs
    assert not padded.packs
    torch.testing.assert_close(one["look/kl"], other["look/kl"], rtol=0, atol=1e-11)


def test_looks_share_contexts_and_each_row_is_read_once_under_each() -> None:
    """The old policy's look, one under a hint, and one under the hint and another prompt: three passes, not five."""
    lm, batch = tiny_llama(), hinted(rows())
    e = engine(lm)
    e.models["policy"] = counting = Counting(lm)  # type: ignore[assignment]
    hint = ("hint", Behind("look/hint"))
    views = [STANDARD["old_logp"], View(Look(logp="look/gap"), contexts=(hint,)), TWO]
    e.score(batch, views)
    assert batch.chains is not None
    alive = batch.length > 0
    has = alive & (batch["look/hint"] >= 0).any(-1)
    first = batch.chains.first(batch.length)
    own = int(batch.chains.lengths[alive].sum())
    behind = [
        int((batch.chains.lengths - first + (batch[n] >= 0).sum(-1))[has].sum()) for n in ("look/hint", "look/other")
    ]
    assert sorted(counting.tokens) == sorted([own, *behind])
    assert e.read == {"policy": sum(behind)}  # what it would not have read for its own log-probs


def test_micro_batches_are_cut_by_the_longest_context_of_each_row() -> None:
    lm, batch = tiny_llama(), hinted(rows())
    lm._fused = None
    e = engine(lm, token_budget=64)
    e.models["policy"] = counting = Counting(lm)  # type: ignore[assignment]
    e.score(batch, [TWO, STANDARD["old_logp"]])
    assert len(counting.padded) > 6
    assert max(counting.padded) <= 64


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_gradients_are_drawn_back_to_hidden_states_as_autograd_does_it(temperature: float) -> None:
    lm, batch = tiny_llama(), rows()
    batch = batch.with_({"look/mark": torch.linspace(-1, 1, len(batch.row), dtype=F64)})
    done = engine(lm, temperature=temperature, token_budget=50).score(batch, [View(Pulled(), where=Right())])
    for i, n in enumerate(batch.length.tolist()):
        got = done["look/pulled"][i]
        if not n or not bool(batch["correct"][i]):
            assert not bool(got.any())
            continue
        h = lm.predicting(batch.take(torch.tensor([i])).chains, torch.tensor([n])).detach().requires_grad_()  # type: ignore[arg-type]
        logits = lm.logits(h)
        p = torch.softmax(logits / temperature, -1).detach() * batch["look/mark"][batch.row == i][:, None]
        (want,) = torch.autograd.grad(logits, h, p)
        torch.testing.assert_close(got, want.sum(0), rtol=0, atol=1e-12)


class Capped(nn.Module):
    """A head that is no plain matrix."""

    def __init__(self, head: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = head.weight, nn.Parameter(torch.linspace(-1, 1, len(head.weight), dtype=F64))

    def forward(self, h: Tensor) -> Tensor:
        return 3 * torch.tanh(torch.nn.functional.linear(h, self.weight, self.bias) / 3)


def test_any_head_draws_back_and_half_precision_is_widened() -> None:
    lm = tiny_llama()
    h, g = torch.randn(5, 16, dtype=F64), torch.randn(5, 17, dtype=F64)
    lm._scale = 0.5
    torch.testing.assert_close(lm.pull_back(h, g), 0.5 * g @ lm._head.weight.detach(), rtol=0, atol=1e-14)
    lm._scale, lm._head = 1.0, Capped(lm._head)
    slope = 1 - torch.tanh((h @ lm._head.weight.T + lm._head.bias) / 3) ** 2
    torch.testing.assert_close(lm.pull_back(h, g), (g * slope) @ lm._head.weight.detach(), rtol=0, atol=1e-13)
    assert lm._head.weight.grad is None
    half = tiny_llama(dtype=torch.bfloat16)
    got = half.pull_back(h.bfloat16(), g.float())
    torch.testing.assert_close(got, g.float() @ half._head.weight.detach().float(), rtol=1e-5, atol=1e-5)


def test_a_probe_may_hold_two_models_side_by_side() -> None:
    policy, teacher, batch = tiny_llama(), tiny_llama(seed=1), hinted(rows())
    e = engine(policy, token_budget=60)
    e.models["teacher"] = teacher
    view = View(Gap(), contexts=(("me", None), ("teacher", Behind("look/hint"), "teacher")))
    assert view.models == {"policy", "teacher"}
    done = e.score(batch, [view, STANDARD["old_logp"], STANDARD["teacher_logp"]])
    for i, n in enumerate(batch.length.tolist()):
        hint, own = prompt_of(batch, "look/hint", i), batch["token"][batch.row == i][:, None]
        want = torch.zeros(n, dtype=F64)
        if hint and n:
            q, p = logp_after(teacher, batch, i, hint), logp_after(policy, batch, i, None)
            want = (q - p).gather(1, own)[:, 0]
        torch.testing.assert_close(done["look/gap"][batch.row == i], want, rtol=0, atol=1e-11)
    gap = done["teacher_logp"] - done["old_logp"]
    alone = engine(policy, token_budget=60)
    alone.models["teacher"] = teacher
    one = alone.score(alone.score(batch, [STANDARD["old_logp"]]), [STANDARD["teacher_logp"]])
    torch.testing.assert_close(gap, one["teacher_logp"] - one["old_logp"], rtol=0, atol=1e-11)


def test_contexts_that_do_not_fit_the_model_are_not_looked_at() -> None:
    lm, batch = tiny_llama(max_position_embeddings=24), hinted(rows())
    done = engine(lm).score(batch, [STANDARD["old_logp"], TWO])
    assert batch.chains is not None
    hint = (batch["look/hint"] >= 0).sum(-1)
    length = batch.chains.lengths - batch.chains.first(batch.length) + hint
    want = (batch.length > 0) & (hint > 0) & (length <= 24)
    assert torch.equal(done["look/saw"], want)
    assert 0 < int(want.sum()) < int(((batch.length > 0) & (hint > 0)).sum())
    assert bool(torch.isfinite(done["old_logp"]).all())


def test_a_context_at_an_update_sees_the_weights_of_that_update() -> None:
    lm, batch = tiny_llama(), hinted(rows())
    e = engine(lm)
    before = e.score(batch, [TWO])["look/kl"]
    with torch.no_grad():
        lm._head.weight.mul_(1.5)
    after = e.score(batch, [TWO])["look/kl"]
    assert float((after - before).abs().max()) > 1e-3
    late = grpo().prefer("x", annotate=_Hints()).firm("x", token_weight=Late())
    assert [v.contexts for v in running(late).views(at_update=True)] == [TWO.contexts]
    assert TWO.contexts not in [v.contexts for v in running(late).views()]


@dataclass(frozen=True)
class Late:
    needs: ClassVar = (View(KL(), contexts=TWO.contexts, at_update=True), "token_weight")
    on_update: ClassVar = True

    def __call__(self, batch: Batch) -> Tensor:
        return 1 + 0 * batch["look/kl"]


# ---- sides -----------------------------------------------------------------------------------------------------------
def test_of_a_side_rows_of_groups_that_are_asked_for_are_looked_at_and_equal_ones_once() -> None:
    lm, batch = tiny_llama(), rows()
    other = rows(seed=3, n=4)
    other = other.take(torch.tensor([0, 1, 2, 3, 0, 1])).with_(
        {"group": torch.tensor([0, 1, 2, 3, 3, 1]), "id": torch.arange(6)}
    )
    other = other.with_({"look/mark": torch.ones(len(other.row), dtype=F64)})
    batch = batch.with_({"correct": batch["group"] >= 2, "look/mark": torch.ones(len(batch.row), dtype=F64)})
    e = engine(lm)
    e.models["policy"] = counting = Counting(lm)  # type: ignore[assignment]
    view = View(Pulled(), where=Right(), side=("anchors", lambda b: other))
    done = e.score(batch, [view]).side["anchors"]
    assert other.chains is not None
    assert sum(counting.tokens) == int(
        other.chains.lengths[[0, 2, 3]].sum()
    )  # row 4 repeats 0; row 1's group is not asked
    alone = engine(lm).score(other, [View(Pulled())])["look/pulled"]
    want = torch.where(torch.tensor([True, False, True, True, True, False])[:, None], alone, 0.0)
    torch.testing.assert_close(done["look/pulled"], want, rtol=0, atol=1e-11)
    assert torch.equal(done["group"], other["group"])
    assert e.read == {"policy": sum(counting.tokens)}


def test_a_side_that_nobody_gave_is_told() -> None:
    with pytest.raises(KeyError, match="annotate piece gives them as side/anchors"):
        taken(engine(tiny_llama()), rows(), [View(Pulled(), side=("anchors", None))])


# ---- the plan --------------------------------------------------------------------------------------------------------
def test_what_a_look_reads_is_read_by_its_piece() -> None:
    piece = Late()
    assert {"look/hint", "look/other", "look/kl", "token_weight"} <= reads(piece)
    assert reads(Placed("derive", _Asks(), "x", "firm").piece) == {
        "look/pulled",
        "look/mark",
        "correct",
        "side/anchors",
    }


@dataclass(frozen=True)
class _Asks:
    needs: ClassVar = (View(Pulled(), where=Right(), side=("anchors", None)),)


def test_annotations_that_only_a_context_reads_are_alive() -> None:
    method: Method = grpo().prefer("x", annotate=_Hints()).firm("x", token_weight=Late())
    plan = method.plan(reward=Pays())
    assert [type(p.piece) for p in next(iter(plan.phases.values())).stack["annotate"]] == [_Hints]
    assert "policy after hint, other for look/kl" in str(plan)


@dataclass(frozen=True)
class _Hints:
    gives: ClassVar = ("look/hint", "look/other")

    async def __call__(self, group: Any, world: Any) -> dict[str, Any]:
        raise AssertionError

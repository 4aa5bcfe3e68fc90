"""GAR against gradients by autograd through a real head, whole head gradients laid out, and rewards by hand."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from models import tiny_llama
from test_engine import F64, engine, rows
from test_looks import Counting
from torch import Tensor
from toy import toy_step

from rlvr.batch import Batch
from rlvr.engine import looks
from rlvr.engine.protocol import Unsupported
from rlvr.methods.gar import gar
from rlvr.methods.grpo import grpo
from rlvr.pairs import stack_pairs
from rlvr.recipe import load_recipe
from rlvr.records import Chain, Group, Origin, Task
from rlvr.reward.alignment import (
    ANCHORED,
    COSINE,
    SICK,
    SKETCH,
    AlignedBonus,
    Alignment,
    Compared,
    Sketch,
    combined,
    gram,
    moved,
    unit,
)
from rlvr.rollout.anchors import SOLUTIONS, SPAN, TEACHER, Anchors, NoAnswers, evenly
from rlvr.rollout.thinking import _first
from rlvr.run import dry_run
from rlvr.testing import outcome, random_batch, running
from rlvr.views import STANDARD, Seen, View


def seen(logits: Tensor, hidden: Tensor, token: Tensor, head: Tensor) -> dict[str, Seen]:
    return {"": Seen(hidden, token, lambda h: h @ head.T, 1.0, back=lambda h, g: g @ head)}


def tokens(seed: int, n: int, d: int = 5, vocab: int = 9) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, tokens, and the head that all calls of one size share."""
    noise = torch.Generator().manual_seed(seed)
    h = torch.randn(n, d, generator=noise, dtype=F64)
    y = torch.randint(0, vocab, (n,), generator=noise)
    return h, y, torch.randn(vocab, d, generator=torch.Generator().manual_seed(99), dtype=F64)


def sketch(h: Tensor, y: Tensor, head: Tensor) -> Tensor:
    return Sketch(False)(seen(h @ head.T, h, y, head))[SKETCH].sum(0)


def head_gradient(h: Tensor, y: Tensor, head: Tensor) -> Tensor:
    """d(summed negative log-likelihood)/d(head), by autograd."""
    w = head.clone().requires_grad_()
    (out,) = torch.autograd.grad(F.cross_entropy(h @ w.T, y, reduction="sum"), w)
    return out


def parts(h: Tensor, y: Tensor, head: Tensor, k: int = 9) -> tuple[Tensor, Tensor, Tensor]:
    error = torch.softmax(h @ head.T, -1) - F.one_hot(y, len(head))
    ids = error.abs().topk(k).indices
    return h, error.gather(-1, ids), ids


def cosine(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum() / a.norm() / b.norm())


# ---- the signal ------------------------------------------------------------------------------------------------------
def test_the_closed_form_is_the_gradient_at_the_hidden_states_by_autograd() -> None:
    h, y, head = tokens(0, 12)
    leaf = h.clone().requires_grad_()
    (delta,) = torch.autograd.grad(F.cross_entropy(leaf @ head.T, y), leaf)  # of the mean: 1/n of ours
    torch.testing.assert_close(sketch(h, y, head) / 12, (delta * h).sum(0), rtol=0, atol=1e-12)


def test_of_a_model_each_rows_vector_is_that_of_its_loss_alone_and_no_weight_learns() -> None:
    lm, batch = tiny_llama(), rows()
    batch = batch.with_({SPAN: torch.ones(len(batch.row), dtype=F64)})
    done = engine(lm, token_budget=50).score(batch, [View(Sketch(True))])
    assert batch.chains is not None
    for i, places in enumerate(batch.chains.at.split(batch.length.tolist())):
        if not len(places):
            assert not bool(done[SKETCH][i].any())
            continue
        ids = batch.chains.row(i)
        states = lm.model.model(ids[None]).last_hidden_state[0][places - 1].detach().requires_grad_()
        (delta,) = torch.autograd.grad(F.cross_entropy(lm.model.lm_head(states), ids[places], reduction="sum"), states)
        torch.testing.assert_close(done[SKETCH][i], (delta * states).sum(0).detach(), rtol=0, atol=1e-10)
    assert all(p.grad is None for p in lm.model.parameters())


def test_chunks_and_the_sampling_temperature_do_not_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = rows()
    batch = batch.with_({SPAN: torch.ones(len(batch.row), dtype=F64)})
    whole = engine(tiny_llama()).score(batch, [View(Sketch(True))])[SKETCH]
    monkeypatch.setattr(looks, "LOGITS", 3 * 17)
    for temperature in (1.0, 0.5):
        one = engine(tiny_llama(), temperature=temperature).score(batch, [View(Sketch(True))])[SKETCH]
        torch.testing.assert_close(one, whole, rtol=0, atol=1e-12)


def test_tokens_outside_the_span_do_not_count() -> None:
    lm, batch = tiny_llama(), rows()
    half = (torch.arange(len(batch.row)) % 2).double()
    done = engine(lm).score(batch.with_({SPAN: half}), [View(Sketch(True))])[SKETCH]
    assert batch.chains is not None
    kept = replace(batch.chains, at=batch.chains.at[half == 1])
    alone = Batch.pack(batch.row_sum(half == 1), kept, token=batch["token"][half == 1])
    torch.testing.assert_close(done, engine(lm).score(alone, [View(Sketch(False))])[SKETCH], rtol=0, atol=1e-11)


def test_a_cosine_knows_no_length_no_scale_and_is_one_for_the_same_answer() -> None:
    h, y, head = tokens(1, 7)
    h2, y2, _ = tokens(2, 5)
    one, other = sketch(h, y, head), sketch(h2, y2, head)
    a, b = unit(one[None])[0], unit(other[None])[0]
    assert -1 <= float(a @ b) <= 1
    assert float(a @ a) == pytest.approx(1, abs=1e-14)
    twice = unit(sketch(h.repeat(2, 1), y.repeat(2), head)[None])[0]
    torch.testing.assert_close(twice, a, rtol=0, atol=1e-14)
    torch.testing.assert_close(unit(1e-3 * one[None])[0], a, rtol=0, atol=1e-14)
    # shards of a sequence add up before they are brought to length one
    torch.testing.assert_close(sketch(h[:3], y[:3], head) + sketch(h[3:], y[3:], head), one, rtol=0, atol=1e-13)


def test_too_short_and_not_finite_vectors_have_the_cosine_zero() -> None:
    sick = torch.tensor([[1e-9, 0.0], [math.nan, 1.0], [math.inf, 1.0], [3.0, 4.0]])
    torch.testing.assert_close(unit(sick), torch.tensor([[0, 0], [0, 0], [0, 0], [0.6, 0.8]], dtype=F64))


def test_the_product_of_head_gradients_is_a_sum_over_pairs_of_tokens() -> None:
    (h, y, head), (h2, y2, _) = tokens(3, 6), tokens(4, 8)
    want = (head_gradient(h, y, head) * head_gradient(h2, y2, head)).sum()
    torch.testing.assert_close(gram(parts(h, y, head), parts(h2, y2, head)), want, rtol=1e-12, atol=1e-12)
    few = gram(parts(h, y, head, 4), parts(h2, y2, head, 4))
    assert 0 < abs(float(few - want)) < 0.5 * abs(float(want))


def test_of_single_tokens_the_outer_cosine_is_the_product_of_two_cosines() -> None:
    (h, y, head), (h2, y2, _) = tokens(5, 1), tokens(6, 1)
    one, other = parts(h, y, head), parts(h2, y2, head)
    outer = gram(one, other) / (gram(one, one) * gram(other, other)).sqrt()
    error, error2 = (torch.softmax(a @ head.T, -1) - F.one_hot(b, 9) for a, b in ((h, y), (h2, y2)))
    assert float(outer) == pytest.approx(cosine(error, error2) * cosine(h, h2), abs=1e-12)


def test_the_hadamard_product_weighs_errors_by_activations() -> None:
    (h, y, head), (h2, y2, _) = tokens(7, 1), tokens(8, 1)
    delta, delta2 = ((torch.softmax(a @ head.T, -1) - F.one_hot(b, 9)) @ head for a, b in ((h, y), (h2, y2)))
    want = sum(float(delta[0, k] * delta2[0, k] * h[0, k] * h2[0, k]) for k in range(5))
    assert float(sketch(h, y, head) @ sketch(h2, y2, head)) == pytest.approx(want, abs=1e-12)


# ---- cosines of a batch ----------------------------------------------------------------------------------------------
def anchored(batch: Batch, seed: int = 3) -> Batch:
    """The rows with solutions: two for group 0, one for groups 1 and 3; group 2 has none."""
    other = rows(seed=seed, n=4).with_({"group": torch.tensor([0, 0, 1, 3])})
    span = torch.ones(len(batch.row), dtype=F64)
    return replace(batch.with_({SPAN: span}), side={SOLUTIONS: other})


@pytest.mark.parametrize("kernel", ["hadamard", "outer"])
def test_cosines_of_a_model_are_those_of_gradients_laid_out_row_by_row(kernel: Any) -> None:
    lm, batch = tiny_llama(), anchored(rows())
    piece = Alignment(kernel=kernel, tokens=99, k=17)
    e = engine(lm, token_budget=60)
    done = e.score(batch, [n for n in piece.needs if isinstance(n, View)])
    told = piece(done)

    def vector(b: Batch, i: int) -> Tensor:
        assert b.chains is not None
        ids, places = b.chains.row(i), b.chains.at.split(b.length.tolist())[i]
        states = lm.model.model(ids[None]).last_hidden_state[0][places - 1].detach().requires_grad_()
        logits = lm.model.lm_head(states)
        of = states if kernel == "hadamard" else lm.model.lm_head.weight
        (g,) = torch.autograd.grad(F.cross_entropy(logits, ids[places], reduction="sum"), of)
        return (g * states).sum(0).detach() if kernel == "hadamard" else g

    other = batch.side[SOLUTIONS]
    compared = 0
    for i, n in enumerate(batch.length.tolist()):
        theirs = [j for j in range(4) if other["group"][j] == batch["group"][i] and other.length[j]]
        if not n or not batch["correct"][i] or not theirs:
            assert float(told[COSINE][i]) == 0
            continue
        want = max(cosine(vector(batch, i), vector(other, j)) for j in theirs)
        assert float(told[COSINE][i]) == pytest.approx(want, abs=1e-9)
        compared += 1
    assert compared >= 3
    assert torch.equal(told[ANCHORED], Compared((SOLUTIONS,))(batch))


def test_with_old_log_probs_scored_anew_the_vectors_take_no_pass_of_their_own() -> None:
    """One pass over all rows, one over the solutions; with the sampler's log-probs one over the right rows alone."""
    lm, batch = tiny_llama(), anchored(rows())
    views = [n for n in Alignment().needs if isinstance(n, View)]
    counts = []
    for more in ([STANDARD["old_logp"]], []):
        e = engine(lm)
        e.models["policy"] = counting = Counting(lm)  # type: ignore[assignment]
        e.score(batch, [*more, *views])
        counts.append(counting.tokens)
    assert batch.chains is not None
    assert batch.side[SOLUTIONS].chains is not None
    groups = batch["group"][Compared((SOLUTIONS,))(batch)]
    other = batch.side[SOLUTIONS]
    asked = torch.isin(other["group"], groups) & (other.length > 0)
    solutions = int(other.chains.lengths[asked].sum())  # type: ignore[union-attr]
    right = Compared((SOLUTIONS,))(batch) & (batch.length > 0)
    every = int(batch.chains.lengths[batch.length > 0].sum())
    assert counts == [[every, solutions], [int(batch.chains.lengths[right].sum()), solutions]]


def test_two_kinds_of_solutions_are_combined() -> None:
    none = -math.inf
    real = torch.tensor([0.2, 0.8, none, 0.3, none])
    aux = torch.tensor([0.6, 0.4, 0.5, none, none])
    assert combined(real, aux, 0.5, "aux_residual").tolist() == pytest.approx([0.4, 0.8, 0.5, 0.3, none])
    assert combined(real, aux, 0.5, "aux_max").tolist() == pytest.approx([0.3, 0.8, 0.5, 0.3, none])
    assert combined(real, aux, 0.5, "real_only").tolist() == pytest.approx([0.2, 0.8, none, 0.3, none])


def test_shuffled_answers_are_held_against_the_next_groups_solution() -> None:
    assert moved(torch.tensor([0, 1, 2, 3, 5]), torch.tensor([3, 1, 1])).tolist() == [1, 3, 3, 1, 1]
    lm, batch = tiny_llama(), anchored(rows())
    piece = Alignment(shuffled=True)
    done = engine(lm).score(batch, [n for n in piece.needs if isinstance(n, View)])
    told = piece(done)
    theirs = {0: [2], 1: [3], 2: [3], 3: [0, 1]}  # rows of the side, by the answer's group
    for i in Compared((SOLUTIONS,))(batch).nonzero()[:, 0].tolist():
        others = [cosine(done[SKETCH][i], done.side[SOLUTIONS][SKETCH][j]) for j in theirs[int(batch["group"][i])]]
        assert float(told[COSINE][i]) == pytest.approx(max(others), abs=1e-9)


# ---- the reward ------------------------------------------------------------------------------------------------------
def judged(right: list[int], cosines: list[float], group: list[int] | None = None, **more: Tensor) -> Batch:
    r = len(right)
    correct, c = torch.tensor(right) == 1, torch.tensor(cosines, dtype=F64)
    told = {COSINE: c, ANCHORED: correct & ~torch.isnan(c), SICK: torch.zeros(r, dtype=torch.bool)}
    told[COSINE] = torch.nan_to_num(c)
    group_ = torch.tensor(group or [0] * r)
    return Batch.pack(torch.ones(r), group=group_, correct=correct, score=correct.double(), **told, **more)


def test_right_answers_above_their_mean_earn_half_of_what_they_are_above() -> None:
    batch = judged([1, 1, 1, 0, 1, 0], [0.9, 0.1, 0.2, 0.99, 0.3, 0.5], [0, 0, 0, 0, 1, 1])
    bonus = AlignedBonus()(batch)["alignment"]
    assert bonus.tolist() == pytest.approx([0.5 * 0.5, 0, 0, 0, 0.5 * 0.3, 0])  # mean 0.4; a lone one is held against 0
    assert AlignedBonus()(judged([1, 0], [-0.3, 0.0]))["alignment"].tolist() == [0, 0]


def test_bonuses_lie_within_their_bounds_and_somebody_has_none() -> None:
    noise = torch.Generator().manual_seed(0)
    for _ in range(50):
        cosines = (2 * torch.rand(6, generator=noise) - 1).tolist()
        bonus = AlignedBonus()(judged([1, 1, 1, 1, 1, 0], cosines))["alignment"]
        assert float(bonus.min()) >= 0
        assert float(bonus.max()) <= 2 * 0.5
        assert bool((bonus[:5] == 0).any())


def test_no_solution_equal_cosines_and_wrong_answers_earn_no_bonus() -> None:
    assert not bool(AlignedBonus()(judged([1, 1, 0], [math.nan] * 3))["alignment"].any())
    assert not bool(AlignedBonus()(judged([1, 1, 1], [0.7] * 3))["alignment"].any())
    assert not bool(AlignedBonus()(judged([0, 0], [0.9, 0.1]))["alignment"].any())


def test_answers_of_invalid_form_neither_earn_nor_enter_the_mean() -> None:
    form = torch.tensor([1.0, 1.0, 0.0], dtype=F64)
    batch = judged([1, 1, 1], [0.8, 0.4, -0.9], **{"part/format": form})
    bonus = AlignedBonus(valid="format")(batch)["alignment"]
    assert bonus.tolist() == pytest.approx([0.5 * 0.2, 0, 0])


def test_rows_of_an_episode_share_one_vector() -> None:
    lm, batch = tiny_llama(), anchored(rows())
    right = torch.ones(len(batch), dtype=torch.bool)
    batch = batch.with_({"episode": torch.tensor([0, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]), "correct": right})
    piece = Alignment()
    done = engine(lm).score(batch, [n for n in piece.needs if isinstance(n, View)])
    told = piece(done)
    assert float(told[COSINE][0]) == float(told[COSINE][1])
    both = unit((done[SKETCH][0] + done[SKETCH][1])[None])
    theirs = unit(done.side[SOLUTIONS][SKETCH][:2])
    assert float(told[COSINE][0]) == pytest.approx(float((both @ theirs.T).max()), abs=1e-12)


def test_a_row_whose_gradient_is_no_number_is_counted_and_earns_nothing() -> None:
    lm, batch = tiny_llama(), anchored(rows())
    piece = Alignment()
    done = engine(lm).score(batch, [n for n in piece.needs if isinstance(n, View)])
    row = int(Compared((SOLUTIONS,))(batch).nonzero()[0, 0])
    sick = done[SKETCH].clone()
    sick[row, 0] = math.nan
    told = piece(done.with_({SKETCH: sick}))
    assert told[SICK].nonzero().flatten().tolist() == [row]
    assert float(told[COSINE][row]) == 0


def test_the_reward_is_what_the_recipe_pays_and_the_bonus() -> None:
    batch, policy = random_batch(0)
    plan = running(gar(grpo()))
    done = outcome(plan, batch, policy).batch
    torch.testing.assert_close(done["reward"], done["reward/correctness"] + done["reward/alignment"])
    assert float(done["reward/alignment"].max()) > 0
    wrong = ~batch["correct"]
    assert not bool(done["reward/alignment"][wrong].any())


# ---- solutions -------------------------------------------------------------------------------------------------------
@dataclass
class Words:
    """A renderer whose tokens are characters; 0 ends."""

    def response(self, text: str) -> list[int]:
        return [*map(ord, text), 0]

    def decode(self, ids: Any) -> str:
        return "".join(chr(int(i)) for i in ids if int(i))


def group(*texts: str, meta: dict[str, Any] | None = None) -> tuple[Group, Any]:
    task = Task("t", "question", meta=meta or {})
    made = []
    for i, text in enumerate(texts):
        chain = Chain(task, f"r{i}", 1)
        chain.add([81, 61], Origin.PROMPT)
        chain.add([*map(ord, text), 0], Origin.POLICY)
        made.append(chain.end("finished", "stop", text))

    def chain(task: Task, id: str, key: int, prompt: Any = None, **more: Any) -> Chain:
        new = Chain(task, id, key, **more)
        new.add(prompt, Origin.PROMPT)
        return new

    return Group("g", task, tuple(made)), SimpleNamespace(renderer=Words(), key=1, chain=chain)


def annotated(piece: Anchors, made: tuple[Group, Any]) -> dict[str, Any]:
    return asyncio.run(piece(*made))


def text_of(row: Any) -> str:
    return Words().decode(row.ids[row.owned()])


def test_solutions_stand_behind_the_prompt_and_those_that_differ_in_spaces_are_one() -> None:
    told = annotated(Anchors(most=2), group("abc", meta={"demo": ["x  y", "x y", "  ", "z", "w"]}))
    anchors = told[f"side/{SOLUTIONS}"]
    assert [text_of(row) for row in anchors] == ["x  y", "z"]
    assert all(row.ids[:2].tolist() == [81, 61] and row.source == "demo" for row in anchors)
    assert [x.tolist() for x in told[SPAN]] == [[0, 0, 1, 1, 1, 1]]
    assert annotated(Anchors(), group("abc"))[f"side/{SOLUTIONS}"] == []
    other = group("abc", meta={"demo": "d", "solution": "s", "mine": "m"})
    assert [text_of(row) for row in annotated(Anchors(), other)[f"side/{SOLUTIONS}"]] == ["s"]
    assert [text_of(row) for row in annotated(Anchors(key="mine"), other)[f"side/{SOLUTIONS}"]] == ["m"]


def test_thinking_counts_where_it_is_marked_and_of_much_the_end() -> None:
    made = group("ab#c", "abcd", meta={"demo": "pq#rs"})
    told = annotated(Anchors(mark="#", max_tokens=3), made)
    assert [x.tolist() for x in told[SPAN]] == [[0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1]]
    assert [text_of(row) for row in told[f"side/{SOLUTIONS}"]] == ["pq"]
    assert [text_of(r) for r in annotated(Anchors(tokens=3), made)[f"side/{SOLUTIONS}"]] == ["p#"]  # and the end token
    assert evenly(6, 3).tolist() == [0, 2, 5]
    assert evenly(9, 1).tolist() == [0]


def test_the_first_place_is_found_from_any_guess() -> None:
    for n in range(1, 20):
        for place in range(1, n + 1):
            assert all(_first(n, lambda x, p=place: x >= p, guess) == place for guess in range(-2, n + 3))  # type: ignore[misc]


def test_a_teachers_right_answers_are_read_from_its_rollouts(tmp_path: Path) -> None:
    from rlvr.report.store import RowRecord, rollout_path, write_rows

    record = lambda task, text, verdict: RowRecord(  # noqa: E731
        1,
        task,
        "g",
        "r",
        "e",
        "p",
        text,
        "a",
        None,
        verdict,
        float(verdict == "right"),
        "",
        "finished",
        "fresh",
        None,
        3,
    )
    file = rollout_path(tmp_path, 1)
    file.parent.mkdir()
    write_rows(file, [record("t", "good", "right"), record("t", "bad", "wrong"), record("u", "other", "right")])
    told = annotated(Anchors(teacher=str(tmp_path)), group("abc", meta={"demo": "d"}))
    assert [text_of(row) for row in told[f"side/{TEACHER}"]] == ["good"]
    assert [text_of(row) for row in told[f"side/{SOLUTIONS}"]] == ["d"]
    with pytest.raises(NoAnswers, match="rlvr rollout RECIPE --model TEACHER"):
        annotated(Anchors(teacher=str(tmp_path / "nothing")), group("abc"))
    tasks = [Task(id, "?", meta={"demo": "d"}) for id in ("t", "v")]
    assert Anchors(teacher=str(tmp_path)).lacks(tasks) == ""
    assert "has right answers to 2 tasks, and none of them is among these 1" in Anchors(teacher=str(tmp_path)).lacks(
        tasks[1:]
    )


def test_a_teachers_folder_that_is_not_there_is_told_before_the_run() -> None:
    made = load_recipe("quickstart", ["method=gar", "papers.gar.teacher=nowhere/at/all"])
    with pytest.raises(NoAnswers, match="nowhere/at/all holds no rollouts; make some with"):
        dry_run(made)


# ---- bad input, others, a model --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"beta": -1.0}, "not negative; got -1.0"),
        ({"aux_weight": -0.5}, "not negative; got -0.5"),
        ({"max_anchors": 0}, "most is at least 1"),
        ({"max_tokens": 0}, "max_tokens is at least 1"),
        ({"kernel": "outer", "outer_tokens": 0}, "tokens is at least 1"),
        ({"outer_k": 0}, "at least 1; got 0"),
        ({"mark": ""}, "leave it out"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        gar(grpo(), **settings)


def test_a_solution_that_is_no_text_is_told_with_its_task() -> None:
    with pytest.raises(ValueError, match=r"task t: its solution is \[3\]"):
        annotated(Anchors(), group("abc", meta={"demo": [3]}))


def test_what_it_stacks_with() -> None:
    for name in ("gspo", "cispo", "rloo", "dapo", "err_plus", "gmts"):
        (pair,) = stack_pairs(["gar", name])
        assert pair.refusal is None, pair
    for name in ("sft", "rejection", "signbalance"):
        (pair,) = stack_pairs(["gar", name])
        assert pair.refusal is not None


def test_on_a_model_agreement_pays_and_changes_the_gradient() -> None:
    toy = toy_step("gar", prompts_per_step=12)
    assert toy.told["gar/anchored"] == 1
    assert 0.1 < toy.told["gar/cosine"] < 0.95
    assert toy.told["gar/cosine_std"] > 0.05
    assert 0.1 < toy.told["gar/paid"] < 0.9
    assert toy.told["gar/not_finite"] == 0
    ratio = (toy.policy.logp - toy.batch["old_logp"]).exp()
    assert float(((ratio < 0.8) | (ratio > 1.2)).double().mean()) > 0.01
    base = toy.gradients("grpo")
    assert toy.gradients("gar(beta=0.0)").same_bits(base)
    assert toy.gradients("gar").gap(base) > 1e-5


def test_tasks_without_any_solution_are_refused_before_the_run() -> None:
    bare, shown = Task("a", "?"), Task("b", "?", meta={"demo": "1+1=2"})
    assert 'no task has a worked solution in its meta under "solution" or "demo"' in Anchors().lacks([bare, bare])
    assert 'under "proof"' in Anchors(key="proof").lacks([bare, shown])
    assert Anchors().lacks([bare, shown]) == ""
    blank = Task("c", "?", meta={"demo": [" \n", ""]})
    assert "no task has a worked solution" in Anchors().lacks([bare, blank])
    with pytest.raises(ValueError, match=r"task d: its solution is \[3\]"):
        Anchors().lacks([shown, Task("d", "?", meta={"demo": [3]})])
    made = load_recipe("quickstart", ["method=gar", "tasks=countdown", "papers.gar.solution=proof"])
    with pytest.raises(Unsupported, match="gar cannot work on these tasks: no task has a worked solution"):
        dry_run(made)

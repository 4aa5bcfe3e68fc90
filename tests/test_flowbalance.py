"""FlowBalance and sequence regression: identities by hand and by enumeration, contexts, partitions, controls."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from toy import toy_step

from rlvr.batch import Batch, Now
from rlvr.engine.load import load_model
from rlvr.engine.renderer import TemplateError
from rlvr.loss.regression import SequenceRegression
from rlvr.method import Contradiction
from rlvr.methods.flowbalance import KEY, LOGP, SEEN, TARGET, VALID, Energy, flowbalance
from rlvr.methods.grpo import grpo
from rlvr.pack import pack
from rlvr.records import Chain, Group, Origin, Task, Verdict
from rlvr.reward.pays import Pays
from rlvr.rollout.privileged import CONTEXT, IN_CHAT, SOURCE, Solutions
from rlvr.stacking import StackError, build_method
from rlvr.testing import all_right, cut_invariance, finiteness, outcome, random_batch, running

F64 = torch.float64


def t(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=F64)


def random_rows(seed: int, rows: int = 30, groups: int = 5, **more: torch.Tensor) -> Batch:
    """Rows of 1 to 7 tokens in mixed order, with everything that an energy reads."""
    noise = torch.Generator().manual_seed(seed)
    normal = lambda n: torch.randn(n, generator=noise, dtype=F64)  # noqa: E731
    length = torch.randint(1, 8, (rows,), generator=noise)
    n = int(length.sum())
    old = -normal(n).abs()
    return Batch.pack(
        length,
        group=torch.randint(0, groups, (rows,), generator=noise),
        old_logp=old,
        behavior_logp=old,
        ref_logp=old + 0.3 * normal(n),
        row_advantage=normal(rows),
        correct=torch.rand(rows, generator=noise) < 0.5,
        **{LOGP: old + normal(n), SEEN: torch.rand(rows, generator=noise) < 0.8},
        **{SOURCE: torch.randint(0, 2, (rows,), generator=noise).double(), **more},
    )


def mean(x: torch.Tensor, batch: Batch, rho: float = 1.0) -> torch.Tensor:
    """[R] sums over rows by length^rho, one row after another."""
    return torch.stack([row.sum() / len(row) ** rho for row in x.split(batch.length.tolist())])


def loss_of(piece: SequenceRegression, batch: Batch, logp: torch.Tensor) -> torch.Tensor:
    """The mean over rows in flowbalance/valid, by the method's own reduction."""
    part = replace(batch.with_({"weight": row_mean_weight(batch)}), whole=False)
    values, _ = piece(Now(logp), part)
    return (part["weight"] * values).sum()


def row_mean_weight(batch: Batch) -> torch.Tensor:
    valid = batch[VALID].double()
    return batch.spread(valid / batch.length / valid.sum().clamp(min=1))


def test_means_by_key_count_every_row_in_question_once() -> None:
    batch = Batch.pack(torch.ones(5).long())
    key, x = torch.tensor([7, 3, 7, 7, 3]), t(1, 2, 4, 100, 8)
    where = torch.tensor([True, False, True, False, False])
    assert batch.mean_by(key, x, where).tolist() == [2.5, 0, 2.5, 2.5, 0]
    assert batch.mean_by(key, x, torch.ones(5, dtype=torch.bool)).tolist() == [35, 5, 35, 35, 5]


# ---- energy --------------------------------------------------------------------------------------------------
def test_the_energy_by_hand() -> None:
    """Gains 1, 9 -> 4, -9 -> -4 and 0.5 over one row of three and one of one: G = 1/3 and .5; the third row, not
    looked at, has G = 0. eta = 2, beta = 3: right 2 + 3 G, wrong -2 - 3 G."""
    ref = t(-5, -10, -2, -1, -1)
    batch = Batch.pack(
        torch.tensor([3, 1, 1]),
        row_advantage=t(1, -1, -1),
        ref_logp=ref,
        old_logp=ref,
        **{LOGP: ref + t(1, 9, -9, 0.5, 7), SEEN: torch.tensor([True, True, False])},
    )
    piece = Energy(eta=2, beta=3)
    assert piece.gain(batch).tolist() == pytest.approx([1 / 3, 0.5, 0])
    assert piece.energy(batch).tolist() == pytest.approx([2 + 1, -2 - 1.5, -2])
    assert Energy(2, 3, gate=False).energy(batch).tolist() == pytest.approx([2 + 1, -2 + 1.5, -2])
    assert Energy(2, 3, rho=0).gain(batch).tolist() == pytest.approx([1, 0.5, 0])
    assert Energy(2, 3, bound=1).gain(batch).tolist() == pytest.approx([1 / 3, 0.5, 0])
    quiet = batch.with_({"row_advantage": t(0, 0, 0)})
    assert piece.energy(quiet).tolist() == [0, 0, 0]  # no verdict, no guidance
    lost = batch.with_({LOGP: torch.full((5,), -torch.inf, dtype=F64)})
    assert piece.gain(lost).tolist() == [-4, -4, 0]


@pytest.mark.parametrize("rho", [0.0, 0.5, 1.0])
def test_residuals_of_a_partition_add_up_to_nothing_at_the_old_policy(rho: float) -> None:
    batch = random_rows(0)
    new = Energy(rho=rho)(batch)
    residual = mean(batch["old_logp"] - batch["ref_logp"], batch, rho) - new[TARGET]
    keys = new[KEY][new[VALID]].unique()
    assert len(keys) > 5
    for key in keys:
        rows = (new[KEY] == key) & new[VALID]
        assert int(rows.sum()) >= 2
        assert len(batch["group"][rows].unique()) == len(batch[SOURCE][rows].unique()) == 1
        assert float(residual[rows].sum()) == pytest.approx(0, abs=1e-12)
        squares = [float(((residual[rows] + shift) ** 2).sum()) for shift in (-0.01, 0.0, 0.01)]
        assert squares[1] == min(squares)  # b is the best of all constants


def test_targets_keep_the_differences_of_energies() -> None:
    batch, piece = random_rows(1), Energy(tau=2.0)
    new, energy = piece(batch), piece.energy(batch)
    for i, j in itertools.combinations(range(len(batch)), 2):
        if new[VALID][i] and new[VALID][j] and new[KEY][i] == new[KEY][j]:
            assert float(new[TARGET][i] - new[TARGET][j]) == pytest.approx(float(energy[i] - energy[j]) / 2)


def test_a_constant_added_to_the_energies_of_a_group_changes_nothing() -> None:
    """Ungated, a constant in the advantages is one in the energies."""
    piece = Energy(gate=False)
    batch = random_rows(2)
    more = batch.with_({"row_advantage": batch["row_advantage"] + 0.7 * batch["group"]})
    torch.testing.assert_close(piece(batch)[TARGET], piece(more)[TARGET])


def test_ungated_guidance_raises_a_wrong_row_by_twice_beta_g() -> None:
    """Log-odds of a wrong row against a right one differ by exactly 2 beta G / tau of the wrong row."""
    batch = random_rows(3, rows=6, groups=1, **{SOURCE: torch.zeros(6, dtype=F64)})
    batch = batch.with_({"row_advantage": t(1, -1, 1, -1, 1, -1), SEEN: torch.ones(6, dtype=torch.bool)})
    gated, free = (Energy(beta=1.5, tau=0.5, gate=gate)(batch)[TARGET] for gate in (True, False))
    gain = Energy(beta=1.5).gain(batch)
    for wrong, right in itertools.product((1, 3, 5), (0, 2, 4)):
        odds = (free - gated)[wrong] - (free - gated)[right]
        assert float(odds) == pytest.approx(2 * 1.5 * float(gain[wrong]) / 0.5)


def test_a_wrong_row_that_the_solution_speaks_for_is_drawn_lower() -> None:
    batch = random_rows(4, rows=4, groups=1, **{SOURCE: torch.zeros(4, dtype=F64)})
    seen = torch.ones(4, dtype=torch.bool)
    batch = batch.with_({"row_advantage": t(1, -1, 1, -1), SEEN: seen})
    for_it = batch.with_({LOGP: batch["ref_logp"] + batch.spread(t(0, 2, 0, 0))})
    against = batch.with_({LOGP: batch["ref_logp"]})
    odds = lambda b: float(Energy()(b)[TARGET][1] - Energy()(b)[TARGET][0])  # noqa: E731
    assert odds(for_it) == pytest.approx(odds(against) - 2)


# ---- what the loss is at rest at -----------------------------------------------------------------------------
def world_of_answers() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Four answers of one token: a reference, advantages, energies."""
    ref = torch.log_softmax(t(0.3, -0.2, 1.0, 0.0), -1)
    a = t(1.5, -0.5, -0.5, -0.5)
    return ref, a, 0.8 * a


def test_the_only_policy_without_loss_is_the_reference_times_exp_energy() -> None:
    ref, _, energy = world_of_answers()
    best = torch.log_softmax(ref + energy, -1)
    rows = torch.ones(4, dtype=torch.long)
    batch = Batch.pack(rows, group=torch.zeros(4, dtype=torch.long), ref_logp=ref, behavior_logp=ref)
    batch = batch.with_({TARGET: energy, VALID: torch.ones(4, dtype=torch.bool), KEY: torch.zeros(4).long()})
    piece = SequenceRegression(TARGET, "ref_logp", centre=KEY)
    assert float(loss_of(piece, batch, best)) == pytest.approx(0, abs=1e-25)
    noise = torch.Generator().manual_seed(0)
    for _ in range(20):
        other = torch.log_softmax(best + 0.3 * torch.randn(4, generator=noise, dtype=F64), -1)
        assert float(loss_of(piece, batch, other)) > 1e-4


def test_that_policy_has_the_most_energy_less_divergence_and_more_verdict_with_eta() -> None:
    ref, a, energy = world_of_answers()
    tau = 0.7
    best = torch.log_softmax(ref + energy / tau, -1)
    worth = lambda logq: float((logq.exp() * (energy - tau * (logq - ref))).sum())  # noqa: E731
    noise = torch.Generator().manual_seed(1)
    for _ in range(50):
        assert worth(torch.log_softmax(best + 0.2 * torch.randn(4, generator=noise, dtype=F64), -1)) < worth(best)
    expected = [float((torch.softmax(ref + eta * a, -1) * a).sum()) for eta in (0, 0.5, 1, 2, 4)]
    assert expected == sorted(expected)


def test_log_z_is_the_estimated_partition_function() -> None:
    """With every answer sampled once, old = ref, and the reference uniform: -b = mean E, and log Z >= mean E."""
    ref = torch.full((4,), math.log(0.25), dtype=F64)
    _, a, _ = world_of_answers()
    batch = Batch.pack(torch.ones(4, dtype=torch.long), group=torch.zeros(4).long(), old_logp=ref, ref_logp=ref)
    batch = batch.with_({"row_advantage": a, "behavior_logp": ref, "correct": a > 0})
    piece = Energy(eta=0.8, beta=0.0)
    told = piece.tell(batch.with_(piece(batch)))
    assert told["flowbalance/log_z"].value() == pytest.approx(float((0.8 * a).mean()))
    assert float(torch.logsumexp(ref + 0.8 * a, -1)) >= told["flowbalance/log_z"].value()


# ---- gradients -----------------------------------------------------------------------------------------------
def test_the_first_gradient_at_the_reference_is_that_of_centred_energies() -> None:
    """d loss / d L_i = -2 (E_i - mean E) / n over n valid rows; a token has 1 / T of it."""
    batch = random_rows(5)
    batch = batch.with_({"ref_logp": batch["old_logp"]})
    piece = Energy(eta=3)
    batch = batch.with_(piece(batch))
    logp = batch["old_logp"].clone().requires_grad_()
    loss_of(SequenceRegression(TARGET, "ref_logp", rho=1.0), batch, logp).backward()
    assert logp.grad is not None
    energy, valid, key = piece.energy(batch), batch[VALID], batch[KEY]
    for i, grad in enumerate(logp.grad.split(batch.length.tolist())):
        rows = valid & (key == key[i])
        wanted = -2 * (energy[i] - energy[rows].mean()) / valid.sum() if valid[i] else t(0)[0]
        torch.testing.assert_close(grad, (wanted / batch.length[i]).expand(len(grad)))


@pytest.mark.parametrize("settings", [{}, {"rho": 0.5}, {"scale": 0.3}, {"centre": KEY}, {"weight_clip": 1.05}])
def test_gradients_are_those_of_finite_differences(settings: Any) -> None:
    """Importance weights and the mean that residuals are centred at are held still."""
    batch = random_rows(6, rows=9, groups=2)
    batch = batch.with_(Energy(least=1)(batch))
    piece = SequenceRegression(TARGET, "ref_logp", **settings)
    start = batch["old_logp"] + 0.1
    logp = start.clone().requires_grad_()
    loss_of(piece, batch, logp).backward()
    rho, scale = piece.rho, piece.scale
    valid = batch[VALID]

    def residual(x: torch.Tensor) -> torch.Tensor:
        return scale * mean(x - batch["ref_logp"], batch, rho) - batch[TARGET]

    held = torch.zeros(len(batch), dtype=F64)
    if piece.centre:
        for key in batch[KEY].unique():
            rows = valid & (batch[KEY] == key)
            held[batch[KEY] == key] = residual(start)[rows].mean() if rows.any() else 0.0
    weight = torch.ones(len(batch), dtype=F64)
    if piece.weight_clip:
        weight = mean(start - batch["old_logp"], batch, rho).exp().clamp(max=piece.weight_clip)

    def value(x: torch.Tensor) -> float:
        return float((weight * (residual(x) - held) ** 2)[valid].sum() / valid.sum())

    assert logp.grad is not None
    for n in range(len(start)):
        step = torch.zeros_like(start)
        step[n] = 1e-5
        assert float(logp.grad[n]) == pytest.approx((value(start + step) - value(start - step)) / 2e-5, abs=1e-8)


def test_centred_residuals_give_the_gradient_of_the_best_constant() -> None:
    """min over b of the squared residuals, b found anew: the centre need not carry a gradient."""
    batch = random_rows(7, rows=8, groups=1, **{SOURCE: torch.zeros(8, dtype=F64)})
    batch = batch.with_(Energy(profiled=False, keep=True)(batch))
    logp = (batch["old_logp"] + 0.2).requires_grad_()
    loss_of(SequenceRegression(TARGET, "ref_logp", rho=1.0, centre=KEY), batch, logp).backward()
    other = (batch["old_logp"] + 0.2).requires_grad_()
    residual = mean(other - batch["ref_logp"], batch) - batch[TARGET]
    residual.var(correction=0).backward()
    assert logp.grad is not None
    assert other.grad is not None
    torch.testing.assert_close(logp.grad, other.grad)


def test_weights_of_rows_are_clipped_above() -> None:
    batch = Batch.pack(torch.tensor([2, 2]), old_logp=t(-1, -1, -1, -1), ref_logp=t(-1, -1, -1, -1))
    batch = batch.with_({TARGET: t(0, 0), VALID: torch.tensor([True, True])})
    piece = SequenceRegression(TARGET, "ref_logp", rho=1.0, weight_clip=1.2)
    part = replace(batch.with_({"weight": row_mean_weight(batch)}), whole=False)
    values, _ = piece(Now(t(-0.5, -0.5, -2, -2)), part)  # ratios exp(.5) and exp(-1), residuals .5 and -1
    assert values.tolist() == pytest.approx([1.2 * 0.25] * 2 + [math.exp(-1)] * 2)


def test_old_and_current_profiles_agree_before_the_first_update_and_part_later() -> None:
    batch, policy = random_batch(3)
    pair = [flowbalance(grpo(), profile=profile) for profile in ("old", "current")]  # type: ignore[arg-type]
    still = replace(policy, logp=batch["old_logp"])
    first = [outcome(running(m), batch, still) for m in pair]
    assert first[0].gap(first[1]) < 1e-10
    later = [outcome(running(m), batch, policy) for m in pair]
    assert later[0].gap(later[1]) > 1e-3


def test_nobodys_gradient_reaches_scores_and_rows_without_a_verdict_weigh_nothing() -> None:
    batch, policy = random_batch(1)
    done = outcome(running(flowbalance(grpo(), eta=2.0)), batch, policy)
    assert bool(done.batch[VALID].any())
    still = (~done.batch[VALID]) | ~batch["known"]
    assert not bool(done.logp[done.batch.spread(still)].any())


def test_without_beta_nobody_looks() -> None:
    plan = running(flowbalance(grpo(), beta=0.0))
    assert not plan.stack["annotate"]
    assert {view.gives for view in plan.views()} == {("old_logp", "entropy"), ("ref_logp",)}
    batch, _ = random_batch(1)
    done = plan.credit(batch)
    assert torch.equal(done[VALID], batch["known"] & (batch.length > 0))  # a group of one row counts too
    assert torch.equal(done[KEY], batch["group"])


# ---- partitions ----------------------------------------------------------------------------------------------
def partitions(source: Sequence[float], seen: Sequence[bool], **settings: Any) -> list[list[int]]:
    """Rows that are compared with each other; one group of rows of one token."""
    n = len(source)
    x = torch.full((n,), -1.0, dtype=F64)
    batch = Batch.pack(torch.ones(n).long(), group=torch.zeros(n).long(), old_logp=x, ref_logp=x, behavior_logp=x)
    batch = batch.with_({"row_advantage": x, "correct": x > 0, SOURCE: t(*source), SEEN: torch.tensor(seen), LOGP: x})
    new = Energy(**settings)(batch)
    assert not bool(new[TARGET][~new[VALID]].any())
    keys = new[KEY][new[VALID]].unique().tolist()
    return [((new[KEY] == key) & new[VALID]).nonzero()[:, 0].tolist() for key in keys]


def test_rows_are_compared_within_a_task_and_a_context() -> None:
    """Rows 0 and 3 are right. All see row 0's text but row 0, which sees row 3's; row 4 was not looked at."""
    source, seen = [1, 0, 0, 0, 0], [True, True, True, True, False]
    assert partitions(source, seen) == [[1, 2, 3]]
    assert partitions(source, seen, keep=True) == [[1, 2, 3]]  # rows 0 and 4 are alone in theirs
    assert partitions(source, seen, keep=True, least=1) == [[4], [1, 2, 3], [0]]
    assert partitions(source, seen, by_context=False) == [[0, 1, 2, 3]]
    assert partitions(source, seen, by_context=False, keep=True) == [[0, 1, 2, 3, 4]]
    assert partitions(source, seen, least=4) == []


def test_groups_without_a_signal_are_drawn_to_the_reference_unless_they_are_left_out() -> None:
    batch, policy = all_right(*random_batch(0))
    drawn = outcome(running(flowbalance(grpo(), beta=0.0)), batch, policy)
    assert bool(drawn.logp.any())
    silent = outcome(running(flowbalance(grpo(), beta=0.0, silent_groups=False)), batch, policy)
    assert not bool(silent.logp.any())
    assert float(silent.loss) == 0


# ---- contexts ------------------------------------------------------------------------------------------------
TASK = Task("t", "2+3=", "5", meta={"demo": "2 and 3 are 5"})


class Spelled:
    """A renderer of one id a character, which reads at most `longest`."""

    def __init__(self, longest: int = 1000, as_chat: bool = False):
        self.longest, self.as_chat, self.asked = longest, as_chat, list[Any]()

    def prompt(self, prompt: Any) -> list[int]:
        self.asked.append(prompt)
        text = prompt if isinstance(prompt, str) else "\n".join(m["content"] for m in prompt)
        if "~" in text:
            raise TemplateError("no token for ~")
        if len(text) > self.longest:
            raise ValueError("too long")
        return [ord(c) for c in text]


def contexts(
    answers: Sequence[tuple[str, float | None]], renderer: Any = None, task: Task = TASK, **settings: Any
) -> tuple[list[str], list[int]]:
    """Of answers with scores (None: no verdict) the contexts as text, and the numbers of their solutions."""
    rows, verdicts = [], dict[str, Verdict]()
    for i, (text, score) in enumerate(answers):
        chain = Chain(task, f"r{i}", i)
        chain.add([1], Origin.PROMPT)
        chain.add([2], Origin.POLICY)
        rows.append(chain.end("finished", text=text))
        label = "unknown" if score is None else "right" if score == 1 else "wrong"
        verdicts[f"r{i}"] = Verdict(label, score or 0.0)  # type: ignore[arg-type]
    world: Any = type("World", (), {"renderer": renderer or Spelled()})
    told = asyncio.run(Solutions(**settings)(Group("g", task, tuple(rows), verdicts), world))
    return ["".join(map(chr, ids)) for ids in told[CONTEXT]], told[SOURCE]


def test_a_row_sees_another_right_answer_of_its_group_and_never_its_own() -> None:
    text, source = contexts([("a", 0), ("b", 1), ("c", 1), ("d", None)])
    assert text == ["b\n\n2+3=", "c\n\n2+3=", "b\n\n2+3=", "b\n\n2+3="]
    assert source == [0, 1, 0, 0]
    assert contexts([("a", 0), ("b", 1)]) == (["b\n\n2+3=", ""], [0, -1])
    assert contexts([("a", 0), ("b", 0)]) == (["", ""], [-1, -1])
    assert contexts([("a", 0), ("b", None)]) == (["", ""], [-1, -1])


def test_equal_solutions_are_one_context_and_a_score_may_make_one() -> None:
    assert contexts([("b", 1), ("b", 1), ("a", 0)])[1] == [0, 0, 0]
    assert contexts([("a", 0), ("b", 0.6)])[1] == [0, -1]
    assert contexts([("a", 0), ("b", 0.6)], success=0.7)[1] == [-1, -1]
    assert contexts([("a", 0), (" ", 1)])[1] == [-1, -1]


def test_the_tasks_own_solution_may_stand_there_instead_or_as_well() -> None:
    own = "2 and 3 are 5\n\n2+3="
    assert contexts([("a", 0), ("b", 1)], source="reference") == ([own, own], [0, 0])
    assert contexts([("a", 0), ("b", 1)], source="sibling_first") == (["b\n\n2+3=", own], [0, 1])
    assert contexts([("a", 0), ("b", 1)], source="reference_first") == ([own, own], [0, 0])
    bare = replace(TASK, meta={})
    assert contexts([("a", 0), ("b", 1)], task=bare, source="reference")[1] == [-1, -1]
    assert contexts([("a", 0), ("b", 1)], task=bare, source="reference_first")[1] == [0, -1]


def test_templates_are_filled_once_and_by_the_last_message() -> None:
    assert contexts([("{prompt}", 1), ("a", 0)], template="{solution}|{prompt}")[0][1] == "{prompt}|2+3="
    chat = Spelled(as_chat=True)
    contexts([("b", 1), ("a", 0)], chat)
    assert chat.asked == [IN_CHAT.replace("{prompt}", "2+3=").replace("{solution}", "b")]
    messages = ({"role": "system", "content": "S"}, {"role": "user", "content": "2+3="})
    renderer = Spelled()
    contexts([("b", 1), ("a", 0)], renderer, replace(TASK, prompt=messages), template="{prompt} {solution}")
    assert renderer.asked == [(messages[0], {"role": "user", "content": "2+3= b"})]


def test_a_context_that_is_too_long_is_none_and_one_that_cannot_be_read_says_so() -> None:
    assert contexts([("b" * 50, 1), ("a", 0), ("c", 1)], Spelled(longest=20))[1] == [0, -1, -1]
    with pytest.raises(TemplateError, match="no token"):
        contexts([("b", 1), ("a", 0)], template="~{prompt}{solution}")


def test_contexts_reach_the_batch_side_by_side() -> None:
    def group(name: str, streams: Mapping[str, Any]) -> Group:
        rows = []
        for i in range(2):
            chain = Chain(TASK, f"{name}{i}", i)
            chain.add([1], Origin.PROMPT)
            chain.add([2], Origin.POLICY)
            rows.append(chain.end("finished"))
        return Group(name, TASK, tuple(rows), streams=streams)

    one = group("a", {CONTEXT: [[5, 6, 7], []], SOURCE: [0, -1]})
    batch = pack([one, group("b", {}), group("c", {CONTEXT: [[8], [9, 9]], SOURCE: [0, 1]})])
    assert batch[CONTEXT].tolist() == [[5, 6, 7], [-1] * 3, [-1] * 3, [-1] * 3, [8, -1, -1], [9, 9, -1]]
    assert batch[CONTEXT].dtype == torch.long
    assert pack([group("a", {CONTEXT: [[], []], SOURCE: [-1, -1]})])[CONTEXT].shape == (2, 0)
    with pytest.raises(ValueError, match="has 1 entries for 2 rollouts"):
        pack([group("a", {CONTEXT: [[5]]})])


# ---- settings, metrics, toy ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        *("flowbalance(tau=0.0)", "flowbalance(bound=0.0)", "flowbalance(beta=-1.0)", "flowbalance(eta=-1.0)"),
        *("flowbalance(rho=-0.5)", "flowbalance(least=0)", "flowbalance(success=0.0)", "flowbalance(weight_clip=0.0)"),
        "flowbalance(template='{prompt}')",
    ],
)
def test_settings_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(StackError, match="got"):
        build_method(text)


@pytest.mark.parametrize("stack", ["flowbalance,ppo", "flowbalance,reinforce_pp"])
def test_an_advantage_of_tokens_is_none_of_a_row(stack: str) -> None:
    with pytest.raises(Contradiction, match="flowbalance: Energy needs row_advantage, which nothing gives"):
        build_method(stack).plan(40, reward=Pays())


@pytest.mark.parametrize(
    "settings",
    [
        *({"profile": "current"}, {"no_context": "keep"}, {"partition": "group"}, {"anchor": "old"}),
        *({"beta": 0.0, "silent_groups": False}, {"weight_clip": 1.5, "rho": 0.0}, {"gate": False}),
    ],
)
def test_every_form_keeps_the_laws(settings: Any) -> None:
    method = flowbalance(grpo(), **settings)
    assert cut_invariance(method).ok
    assert finiteness(method).ok


def test_it_tells_how_verdict_and_guide_pull() -> None:
    ref = t(-5, -10, -1, -1)
    batch = Batch.pack(
        torch.tensor([2, 1, 1]),
        group=torch.zeros(3).long(),
        row_advantage=t(1, -1, -1),
        correct=torch.tensor([True, False, False]),
        ref_logp=ref,
        old_logp=ref,
        behavior_logp=ref,
        **{LOGP: ref + t(1, 9, 0.5, 7), SEEN: torch.tensor([True, True, False]), SOURCE: t(0, 0, 0)},
    )
    piece = Energy(eta=2, beta=3)
    told = {name: x.value() for name, x in piece.tell(batch.with_(piece(batch))).items()}
    assert told == {
        "flowbalance/valid": pytest.approx(2 / 3),
        "flowbalance/verdict": 2,
        "flowbalance/log_z": pytest.approx((2 + 3 * 2.5 - 2 - 3 * 0.5) / 2),
        "flowbalance/seen": pytest.approx(2 / 3),
        "flowbalance/clipped": pytest.approx(1 / 3),
        "flowbalance/guide": pytest.approx(3 * (2.5 + 0.5) / 2),
        "flowbalance/gain_right": 2.5,
        "flowbalance/gain_wrong": 0.5,
        "flowbalance/contrast": 2.0,
    }
    wrong = batch.with_({"correct": torch.zeros(3, dtype=torch.bool)})
    assert math.isnan(piece.tell(wrong.with_(piece(wrong)))["flowbalance/contrast"].value())


def test_on_the_toy_solutions_are_looked_at_and_at_the_reference_it_is_grpo_by_rows() -> None:
    """The look equals the reference's own log-probs after the other prompt; with the policy at old and reference and
    beta = 0, eta = .5, a row of one token in a group of two has GRPO's gradient."""
    toy = toy_step("flowbalance", prompts_per_step=16)
    assert toy.told["flowbalance/seen"] > 0.5
    assert 0.3 < toy.told["flowbalance/valid"] < 1
    assert abs(toy.told["flowbalance/gain_right"]) > 0.01
    assert toy.told["score/reference/tokens"] > 2 * len(toy.batch.row)
    mine, base = toy.gradients("flowbalance(eta=3.0)"), toy.gradients("grpo")
    assert float((mine.logp - base.logp).abs().max()) > 0.1 * float(base.logp.abs().max())

    model = load_model("mini").model
    for i in toy.batch[SEEN].nonzero()[:5, 0].tolist():
        row = toy.batch.take(torch.tensor([i]))
        prompt = [id for id in row[CONTEXT][0].tolist() if id >= 0]
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *row["token"].tolist()]])).logits[0, len(prompt) - 1 : -1]
        by_hand = torch.log_softmax(logits.float(), -1).gather(-1, row["token"][:, None])[:, 0]
        torch.testing.assert_close(row[LOGP], by_hand, rtol=1e-3, atol=1e-4)

    old = toy.batch["old_logp"]
    here = replace(toy, batch=toy.batch.with_({"ref_logp": old}), policy=replace(toy.policy, logp=old))
    got = here.gradients("flowbalance(beta=0.0,eta=0.5)")
    batch = got.batch
    rows = batch["known"] & (batch.length > 0)
    wanted = -batch["row_advantage"] / batch.length / rows.sum()
    torch.testing.assert_close(got.logp, batch.spread(torch.where(rows, wanted, 0.0)), rtol=1e-3, atol=1e-7)

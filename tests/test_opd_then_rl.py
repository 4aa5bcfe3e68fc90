"""OPD, then RL: which advantage in which step, when the switch comes, and what the distillation gradient is."""

import itertools
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_opdvr import rows, signs
from torch import Tensor
from toy import toy_step

from rlvr.advantage.teacher import JoinedTeacher, TeacherGap
from rlvr.assemble import plan_of, set_up, training_of
from rlvr.batch import Batch, Now
from rlvr.checkpoint import checkpoints
from rlvr.engine.load import load_model as load
from rlvr.loop import Training
from rlvr.methods.grpo import grpo
from rlvr.methods.opd_then_rl import TeacherFirst, opd_then_rl, validation
from rlvr.pairs import stack_pairs
from rlvr.plateau import NoBetter
from rlvr.recipe import load_recipe, make_recipe, recipes_dir
from rlvr.reward.pays import Pays
from rlvr.run import train
from rlvr.stacking import StackError, build_method
from rlvr.testing import all_taught, check, cut_invariance, outcome, random_batch, running

F64 = torch.float64


def phases(stack: str) -> dict[str, Any]:
    return {key[-1]: plan for key, plan in build_method(stack).plan(40, reward=Pays()).phases.items()}


# ---- phases ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("others", ["", ",gspo", ",dr_grpo", ",gapo", ",gmts", ",hispo"])
def test_the_first_phase_is_distillation_and_the_second_is_the_stack_without_a_teacher(others: str) -> None:
    both = phases(f"opd_then_rl{others}")
    batch, policy = random_batch(1)
    opd, rl = (outcome(both[f"opd_then_rl:{name}"], batch, policy) for name in ("opd", "rl"))
    if others in ("", ",gspo", ",gmts"):  # without another advantage, or preference for one
        alone = running(build_method(f"opdvr(mode='opd'){others}"))
        assert opd.same_bits(outcome(alone, batch, policy))
    assert rl.same_bits(outcome(running(build_method(f"grpo{others}")), batch, policy))
    assert both["opd_then_rl:opd"].models == {"policy", "teacher"}
    assert both["opd_then_rl:rl"].models == {"policy"}


def phases_of(piece: TeacherFirst, steps: int, scores: dict[int, float] | None = None) -> list[str]:
    """The phase in which each step is made."""
    state, made = piece.start(), []
    for step in range(1, steps + 1):
        made.append(state["phase"])
        told = {} if scores is None or step not in scores else {"eval/sums/mean@8": scores[step]}
        state = json.loads(json.dumps(piece.next(state, step, told)))
    return made


def settled(stack: str = "opd_then_rl", steps: int = 150, eval_every: int = 0) -> TeacherFirst:
    plan = build_method(stack).plan(40, steps, eval_every=eval_every, reward=Pays())
    piece = plan.controllers[0].piece
    assert isinstance(piece, TeacherFirst)
    return piece


def test_a_fixed_switch_comes_after_its_step() -> None:
    assert phases_of(settled("opd_then_rl(switch=3)"), 6) == ["opd"] * 3 + ["rl"] * 3
    assert phases_of(settled("opd_then_rl(switch=0)"), 4) == ["rl"] * 4
    assert phases_of(settled("opd_then_rl(switch=99)"), 4) == ["opd"] * 4
    assert phases_of(settled(), 150).count("opd") == 60  # the paper's 60 of 150
    assert phases_of(settled(steps=1), 2) == ["opd", "rl"]


PATIENT = "opd_then_rl(switch='plateau', patience=2, min_delta=0.01{})"
EVERY_FIVE = range(5, 100, 5)


@pytest.mark.parametrize(
    ("scores", "more", "last"),
    [
        ([0.1, 0.2, 0.3, 0.3, 0.3, 0.3], "", 25),  # best at 15, none better at 20 and 25
        ([0.1, 0.2, 0.3, 0.305, 0.309, 0.32], "", 25),  # rises, but by no more than min_delta in all
        ([0.1, 0.2, 0.19, 0.22, 0.2, 0.24, 0.2, 0.2], "", 40),  # noisy: best at 30
        ([x / 100 for x in range(1, 99, 2)], "", 50),  # ever better: half of 100 steps
        ([x / 100 for x in range(1, 99, 2)], ", latest=32", 32),
        ([0.5, 0.4, 0.3, 0.2], "", 15),  # a teacher that is worse than the policy
        ([0.5, 0.4, 0.3, 0.2, 0.1], ", earliest=22", 22),
        ([0.1, 0.2, *[0.3] * 7], ", smooth=0.5", 45),  # .1 .15 .225 .263 .281 .291 .295 .298 .299: best .281, then .295
    ],
)
def test_a_plateau_switches_on_scripted_scores(scores: list[float], more: str, last: int) -> None:
    piece = settled(PATIENT.format(more), 100, eval_every=5)
    made = phases_of(piece, 100, dict(zip(EVERY_FIVE, scores)))
    assert made.count("opd") == last
    assert made == ["opd"] * last + ["rl"] * (100 - last)


def test_smoothing_by_hand() -> None:
    piece, state, seen = NoBetter(0.01, 2, 0.5), NoBetter().start(), []
    for x in (0.1, 0.2, 0.3, 0.3, 0.3, 0.3):
        state = piece.next(state, x)
        seen.append(state["smooth"])
    assert seen == pytest.approx([0.1, 0.15, 0.225, 0.2625, 0.28125, 0.290625])
    assert state == {"smooth": pytest.approx(0.290625), "best": pytest.approx(0.28125), "since": 1}


def test_steps_without_an_evaluation_leave_the_plateau_alone() -> None:
    piece = NoBetter(patience=1)
    state = piece.next(piece.start(), 0.5)
    for nothing in (None, math.nan):
        assert piece.next(state, nothing) == state
    assert validation({"reward/mean": 1.0, "eval/sums/pass@8": 0.9}) is None
    assert validation({"eval/sums/pass@8": 0.9, "eval/sums/mean@8": 0.4}) == 0.4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("opd_then_rl(switch=-1)", "0 for none of it; got -1"),
        ("opd_then_rl(earliest=0, switch='plateau')", "steps count from 1"),
        ("opd_then_rl(earliest=5, latest=4, switch='plateau')", "earliest is not after latest"),
        ("opd_then_rl(latest=4)", 'write switch = "plateau"'),
        ("opd_then_rl(switch='flat')", "wanted int | Literal['plateau'] | None"),
        ("opd_then_rl(patience=0)", "patience of 1 or more"),
        ("opd_then_rl(joint='additive', switch=4)", "there is no switch to set"),
        ("opd_then_rl(joint='additive', b=-0.1)", "not negative"),
        ("opd_then_rl(joint='sum')", "wanted Literal"),
        ("opd_then_rl(clamp=0)", "above 0; got 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(text: str, says: str) -> None:
    with pytest.raises(StackError) as caught:
        build_method(text)
    assert says in str(caught.value)


def test_a_plateau_without_evaluations_is_refused_with_what_would_work() -> None:
    with pytest.raises(ValueError, match=r"eval\.every = 5, or give the last step"):
        settled("opd_then_rl(switch='plateau')")
    with pytest.raises(ValueError, match="latest = 50 is before earliest = 60"):
        settled("opd_then_rl(switch='plateau', earliest=60)", 100, eval_every=5)
    recipe = load_recipe(recipes_dir() / "methods" / "opd_then_rl.toml", ["papers.opd_then_rl.switch=plateau"])
    with pytest.raises(ValueError, match=r"eval\.every"):
        plan_of(recipe)
    assert plan_of(recipe.model_copy(update={"eval": recipe.eval.model_copy(update={"every": 5})}))


# ---- mixtures --------------------------------------------------------------------------------------------
def mixed(mode: str, batch: Batch, **settings: Any) -> Tensor:
    return JoinedTeacher(mode, **settings)(batch)  # type: ignore[arg-type]


def test_mixtures_by_hand() -> None:
    batch = rows([0.5, -2.0], [0.4, -0.7], right=(True, False))
    batch = batch.with_({"advantage": torch.tensor([1.0, 1.0, -0.5, -0.5], dtype=F64)})
    assert mixed("additive", batch, b=0.2).tolist() == pytest.approx([1.1, 0.6, -0.42, -0.64])
    assert mixed("additive_mask", batch, b=0.2).tolist() == pytest.approx([1, 1, -0.42, -0.64])
    assert mixed("modulated", batch).tolist() == pytest.approx(
        [math.exp(0.5), math.exp(-1), -0.5 * math.exp(-0.4), -0.5 * math.exp(0.7)]
    )
    for progress, b in ((0.0, 0.2), (0.5, 0.101), (1.0, 0.002)):
        at = batch.with_({"progress": torch.full((2,), progress, dtype=F64)})
        want = [1 + 0.5 * b, 1 - 2 * b, -0.5 + 0.4 * b, -0.5 - 0.7 * b]
        assert mixed("anneal", at).tolist() == pytest.approx(want)


@pytest.mark.parametrize("seed", range(3))
def test_a_mixture_without_its_teacher_is_grpo(seed: int) -> None:
    batch, policy = all_taught(*random_batch(seed))
    base = outcome(running(grpo()), batch, policy)
    assert outcome(running(build_method("opd_then_rl(joint='additive', b=0)")), batch, policy).same_bits(base)
    silent = batch.with_({"teacher_logp": batch["old_logp"]})
    for mode in ("additive", "additive_mask", "anneal", "modulated"):
        plan = running(build_method(f"opd_then_rl(joint='{mode}')"))
        assert outcome(plan, silent, policy).same_bits(base)
        assert outcome(plan, batch, policy).gap(base) > 1e-6
    modulated = running(build_method("opd_then_rl(joint='modulated')")).credit(batch)["advantage"]
    assert torch.equal(modulated.sign(), base.batch["advantage"].sign())


def test_mixtures_keep_the_laws_and_so_does_the_first_phase() -> None:
    for mode in ("additive_mask", "anneal", "modulated"):
        results = {r.law: r for r in check(f"opd_then_rl(joint='{mode}')")}
        assert not [r for law, r in results.items() if law != "neutrality" and not r.ok]
    first = grpo().firm("first", advantage=TeacherGap("opd"))
    assert cut_invariance(first).ok


def test_the_weight_falls_along_the_run(tmp_path: Path) -> None:
    told: list[float] = []
    training = started(tmp_path, "steps=3", "method=opd_then_rl(joint='anneal')")
    whole = training.score

    def score(batch: Batch, *more: Any) -> Batch:
        told.append(float(batch["progress"][0]))
        return whole(batch, *more)

    training.score = score  # type: ignore[method-assign]
    training.run()
    assert told == [0, 0.5, 1]


# ---- what the distillation gradient is -------------------------------------------------------------------
def expected_gradient(policy: Tensor, teacher: Tensor) -> Tensor:
    """Of the expected loss in the logits of a policy over sequences of T tokens of V: first token [V], then [V, V]
    given the first where T is 2; flat [V + V^2] or [V]. By enumeration of all sequences through the plan."""
    v = 3
    logits = policy.clone().requires_grad_()
    length = 1 if len(logits) == v else 2

    def logps(x: Tensor) -> Tensor:
        parts = [torch.log_softmax(x[:v], -1)]
        out = []
        for y in itertools.product(range(v), repeat=length):
            out.append(parts[0][y[0]])
            if length == 2:
                out.append(torch.log_softmax(x[v + v * y[0] : 2 * v + v * y[0]], -1)[y[1]])
        return torch.stack(out)

    logp = logps(logits)
    n = v**length
    chance = logp.detach().reshape(n, length).sum(1).exp()
    told = {"old_logp": logp.detach(), "teacher_logp": logps(teacher)}
    batch = rows(*([0.0] * length for _ in range(n)), right=(True,) * n, **told)
    plan = phases("opd_then_rl(clamp=None)")["opd_then_rl:opd"]
    batch = plan.weigh(plan.credit(batch))
    batch = replace(batch.with_({"weight": batch.spread(chance)}), whole=False)
    plan.loss("policy", Now(logp), batch)[0].backward()
    assert logits.grad is not None
    return logits.grad


def kl(p: Tensor, q: Tensor) -> Tensor:
    return (p.softmax(-1) * (p.log_softmax(-1) - q.log_softmax(-1))).sum(-1)


def test_on_policy_the_gradient_is_the_visited_states_kl_and_the_sequences_only_for_one_token() -> None:
    noise = torch.Generator().manual_seed(3)
    v = 3
    policy, teacher = (torch.randn(v + v * v, generator=noise, dtype=F64) for _ in range(2))

    x = policy[:v].clone().requires_grad_()
    kl(x, teacher[:v]).backward()
    torch.testing.assert_close(expected_gradient(policy[:v], teacher[:v]), x.grad, atol=1e-12, rtol=0)

    def second(a: Tensor) -> Tensor:
        return a[v:].reshape(v, v)

    x = policy.clone().requires_grad_()
    visits = policy[:v].softmax(-1)  # held still
    (kl(x[:v], teacher[:v]) + (visits * kl(second(x), second(teacher))).sum()).backward()
    got = expected_gradient(policy, teacher)
    torch.testing.assert_close(got, x.grad, atol=1e-12, rtol=0)

    x = policy.clone().requires_grad_()
    (kl(x[:v], teacher[:v]) + (x[:v].softmax(-1) * kl(second(x), second(teacher))).sum()).backward()
    assert x.grad is not None
    assert float((got - x.grad)[:v].abs().max()) > 0.01  # reward to go is left out
    torch.testing.assert_close(got[v:], x.grad[v:], atol=1e-12, rtol=0)


# ---- with others, and on a model -------------------------------------------------------------------------
def test_a_teachers_advantage_in_the_second_phase_is_refused() -> None:
    refusal = stack_pairs(["opd_then_rl", "opdvr"])[0].refusal
    assert refusal is not None
    assert "its second phase learns from verdicts alone" in refusal


def started(folder: Path, *sets: str) -> Training:
    small = ["threads=1", "prompts_per_step=8", "group_size=4", "eval.problems=0", "doctor=false", *sets]
    recipe = load_recipe(recipes_dir() / "methods" / "opd_then_rl.toml", small)
    plan = plan_of(recipe)
    return training_of(set_up(recipe, plan, want=frozenset({"entropy"})), plan, folder)


def test_on_the_toy_both_phases_differ_and_the_mixture_returns_to_grpo() -> None:
    toy = toy_step("opd_then_rl")
    assert toy.told["teacher/kl"] > 0.01
    assert 0.1 < toy.told["teacher/at_odds"] < 0.9
    assert toy.told["policy/clip_frac"] > 0.01
    base = toy.gradients("grpo")
    both = phases("opd_then_rl")
    assert outcome(both["opd_then_rl:opd"], toy.batch, toy.policy).gap(base) > 1e-4
    assert outcome(both["opd_then_rl:rl"], toy.batch, toy.policy).same_bits(base)
    assert toy.gradients("opd_then_rl(joint='additive', b=0)").same_bits(base)
    assert toy.gradients("opd_then_rl(joint='additive', b=0.2)").gap(base) > 1e-5


def watched(training: Training) -> list[dict[str, float]]:
    told: list[dict[str, float]] = []
    training.sinks = [SimpleNamespace(step=lambda step, metrics: told.append(metrics), groups=lambda *_: None)]
    return told


def test_on_a_model_the_teacher_is_asked_in_the_first_phase_alone_and_let_go(tmp_path: Path) -> None:
    training = started(tmp_path, "steps=3", "papers.opd_then_rl.switch=2")
    told = watched(training)
    looks: list[int] = []
    lm = training.engine.models["teacher"]  # type: ignore[attr-defined]
    whole = type(lm).predicting

    class Counted:
        """The teacher, with its looks counted."""

        def __getattr__(self, name: str) -> Any:
            return getattr(lm, name)

        def predicting(self, *given: Any) -> Tensor:
            looks.append(training.step)
            return whole(lm, *given)

    training.engine.models["teacher"] = Counted()  # type: ignore[attr-defined]
    training.run()
    assert set(looks) == {0, 1}
    assert [m["phase/opd_then_rl"] for m in told] == [1, 1, 2]
    assert ["score/teacher/tokens" in m for m in told] == [True, True, False]
    assert ["teacher/kl" in m for m in told] == [True, True, False]
    assert "teacher" not in training.engine.models  # type: ignore[attr-defined]


def test_without_a_first_phase_no_teacher_is_loaded(tmp_path: Path) -> None:
    training = started(tmp_path, "papers.opd_then_rl.switch=0")
    assert "teacher" not in training.engine.models  # type: ignore[attr-defined]


@pytest.mark.parametrize("at", [1, 2])
def test_a_run_that_goes_on_ends_as_one_that_never_stopped(
    tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From within the first phase and from behind it, where the teacher is not loaded again."""
    recipe = make_recipe(
        {
            "model": "nano",
            "teacher": "mini",
            "tasks": {"name": "running_sums", "n": 40},
            "steps": 3,
            "prompts_per_step": 4,
            "group_size": 4,
            "updates_per_batch": 2,
            "max_tokens": 16,
            "lr": 1e-3,
            "checkpoint_every": 1,
            "eval": {"problems": 0},
            "method": "opd_then_rl(switch=2, afresh=True)",
        }
    )
    loaded: list[str] = []
    monkeypatch.setattr("rlvr.assemble.load_model", lambda name, *more: loaded.append(str(name)) or load(name, *more))
    train(recipe, tmp_path, sinks=("jsonl",))
    weights = tmp_path / "model" / "model.safetensors"
    whole = weights.read_bytes()
    assert [name for name in loaded if name == "mini"] == ["mini"]
    for step, folder in checkpoints(tmp_path).items():
        if step > at:
            shutil.rmtree(folder)
    assert list(checkpoints(tmp_path)) == list(range(1, at + 1))
    weights.unlink()
    loaded.clear()
    train(recipe, tmp_path, sinks=("jsonl",), resume=True)
    assert weights.read_bytes() == whole
    assert ("mini" in loaded) == (at == 1)


def test_afresh_the_optimiser_forgets_its_moments_and_keeps_its_clock(tmp_path: Path) -> None:
    kept, gone = (
        started(tmp_path, "steps=2", "papers.opd_then_rl.switch=2", f"papers.opd_then_rl.afresh={afresh}")
        for afresh in ("false", "true")
    )
    for training in (kept, gone):
        training.run()
    steppers = [t.engine.steppers["policy"] for t in (kept, gone)]  # type: ignore[attr-defined]
    assert [bool(s.adam.state) for s in steppers] == [True, False]
    assert [s.clock for s in steppers] == [8, 8]


def test_what_it_stacks_with() -> None:
    for name in ("gapo", "gspo", "hispo", "gmts", "bpo", "cispo", "rloo", "ppo", "signbalance", "err_plus", "dapo"):
        assert stack_pairs(["opd_then_rl", name])[0].refusal is None
    for name in ("sft", "rejection", "dpo"):
        refusal = stack_pairs(["opd_then_rl", name])[0].refusal
        assert refusal is not None
        assert "opd_then_rl sets advantage" in refusal


def test_wrong_rows_alone_are_taught_by_the_masked_mixture() -> None:
    batch, _ = all_taught(*random_batch(0))
    plain = running(grpo()).credit(batch)["advantage"]
    got = running(opd_then_rl(grpo(), joint="additive_mask")).credit(batch)["advantage"]
    assert torch.equal(got != plain, (signs(batch) < 0) & (batch["teacher_logp"] != batch["old_logp"]))

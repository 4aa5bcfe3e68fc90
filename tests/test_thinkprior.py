"""ThinkPrior against integrals, counts by hand and what its paper says of it."""

import itertools
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlvr.advantage.group import GroupNorm
from rlvr.assemble import plan_of, set_up, training_of
from rlvr.batch import Batch
from rlvr.loop import Training
from rlvr.methods.grpo import grpo
from rlvr.methods.thinkprior import thinkprior
from rlvr.pairs import stack_pairs
from rlvr.recipe import Recipe, load_recipe, recipes_dir
from rlvr.records import Group, Task, Verdict
from rlvr.reward.pays import Pays
from rlvr.select.anchors import BadAnchors, read_anchors
from rlvr.select.learnability import Learnability, LearnabilitySelector, expected, nonsilent
from rlvr.select.uniform import Uniform

IDS = [f"t{i:02d}" for i in range(30)]
JUDGE = "exact()"


def tasks(ids: list[str] = IDS) -> list[Task]:
    return [Task(id, f"{id}?") for id in ids]


def table(folder: Path, rows: list[dict[str, Any]] | None = None, **shares: tuple[int, int]) -> str:
    """A tasks.jsonl of (right, known) out of 8."""
    lines = rows or [
        {"task": id, "answers": 8, "known": n, "right": h, "verifier": JUDGE} for id, (h, n) in shares.items()
    ]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(folder)


def group(id: str, right: int, wrong: int, unknown: int = 0, by: str = JUDGE) -> Group:
    told = [Verdict("right", 1.0, fingerprint=by)] * right + [Verdict("wrong", 0.0, fingerprint=by)] * wrong
    told += [Verdict("unknown", 0.0)] * unknown
    return Group("g", Task(id, "p"), (), {str(i): verdict for i, verdict in enumerate(told)})


def start(piece: Learnability, ids: list[str] = IDS, seed: int = 0) -> LearnabilitySelector:
    return replace(piece, group_size=piece.group_size or 8).start(tasks(ids), seed)


def ids(chosen: list[Task]) -> list[str]:
    return [task.id for task in chosen]


# ---- the formulas ----------------------------------------------------------------------------------------
BETAS = [(0.5, 7.5), (4.0, 4.0), (1.0, 1.0), (12.5, 0.7)]


def integral(a: float, b: float, f: Any, n: int = 20_000) -> float:
    """E f(p) under Beta(a, b), with p = sin^2(x) so that nothing is infinite at the ends; midpoints."""
    xs = [(i + 0.5) * math.pi / 2 / n for i in range(n)]
    weight = [math.sin(x) ** (2 * a - 1) * math.cos(x) ** (2 * b - 1) for x in xs]
    return sum(w * f(math.sin(x) ** 2) for x, w in zip(xs, weight)) / sum(weight)


@pytest.mark.parametrize(("a", "b"), BETAS)
def test_learnability_is_the_integral(a: float, b: float) -> None:
    assert expected(a, b) == pytest.approx(integral(a, b, lambda p: p * (1 - p)), rel=1e-4)
    assert nonsilent(a, b, 8) == pytest.approx(integral(a, b, lambda p: 1 - p**8 - (1 - p) ** 8), rel=1e-4)
    assert nonsilent(a, b, 2) == pytest.approx(2 * expected(a, b), rel=1e-12)


@pytest.mark.parametrize(("a", "b"), BETAS)
def test_learnability_is_the_mean_over_draws(a: float, b: float) -> None:
    noise = random.Random(0)
    draws = [p * (1 - p) for p in (noise.betavariate(a, b) for _ in range(40_000))]
    mean = sum(draws) / len(draws)
    error = math.sqrt(sum((x - mean) ** 2 for x in draws)) / len(draws)
    assert expected(a, b) == pytest.approx(mean, abs=4 * error)


def test_a_group_is_mixed_as_often_as_enumeration_says() -> None:
    """Polya's urn: the chance of each of the 2^4 verdict sequences of a group of four."""
    a, b = 1.7, 0.6
    silent = 0.0
    for sequence in itertools.product((0, 1), repeat=4):
        chance, right, wrong = 1.0, a, b
        for verdict in sequence:
            chance *= (right if verdict else wrong) / (right + wrong)
            right, wrong = right + verdict, wrong + 1 - verdict
        silent += chance if len(set(sequence)) == 1 else 0
    assert nonsilent(a, b, 4) == pytest.approx(1 - silent, rel=1e-12)


def test_prior_and_outcomes_by_hand(tmp_path: Path) -> None:
    """6 of 8: m = 6.5 / 9; strength 8. Then 1 of 4, with a half forgotten after two more steps."""
    selector = start(Learnability(table(tmp_path, t00=(6, 8)), forget=0.5), ["t00"])
    a0, b0 = 8 * 6.5 / 9, 8 * 2.5 / 9
    assert selector.posterior("t00") == pytest.approx((a0, b0))
    selector.observe([group("t00", 1, 3)])
    assert selector.posterior("t00") == pytest.approx((a0 + 1, b0 + 3))
    selector.observe([group("t00", 2, 0)])
    assert selector.posterior("t00") == pytest.approx((a0 + 2.5, b0 + 1.5))


def test_without_data_what_is_forgotten_tends_to_the_prior(tmp_path: Path) -> None:
    selector = start(Learnability(table(tmp_path, t00=(2, 8)), forget=0.9), ["t00"])
    prior = selector.posterior("t00")
    selector.observe([group("t00", 8, 0)])
    gaps = []
    for _ in range(60):
        selector.observe([])
        gaps.append(selector.posterior("t00")[0] - prior[0])
    assert gaps[0] == pytest.approx(8 * 0.9)
    assert gaps[-1] == pytest.approx(8 * 0.9**60)


def test_the_order_of_outcomes_does_not_matter(tmp_path: Path) -> None:
    shares = {id: (i % 9, 8) for i, id in enumerate(IDS)}
    seen = [group(IDS[i], i % 5, 4 - i % 5) for i in (3, 7, 3, 11, 7, 29)]
    states = []
    for order in (seen, seen[::-1]):
        selector = start(Learnability(table(tmp_path, **shares)))
        for one in order:
            selector.observe([one])
        states.append([selector.posterior(id) for id in IDS])
    assert states[0] == states[1]


def test_groups_of_one_count_as_one() -> None:
    selector = start(Learnability(), ["t00"])
    selector.observe([group("t00", 1, 0)])
    selector.observe([group("t00", 0, 1)])
    assert selector.posterior("t00") == (2, 2)


# ---- choosing --------------------------------------------------------------------------------------------
def test_the_tasks_nearest_to_half_come_first(tmp_path: Path) -> None:
    shares = {id: (i % 9, 8) for i, id in enumerate(IDS)}
    selector = start(Learnability(table(tmp_path, **shares)))
    first = ids(selector.choose(10))
    assert {shares[id][0] for id in first[:3]} == {4}  # three tasks have 4 of 8
    assert [abs(shares[id][0] - 4) for id in first] == sorted(abs(shares[id][0] - 4) for id in first)


def test_equal_anchors_rank_like_none(tmp_path: Path) -> None:
    known = start(Learnability(table(tmp_path, **dict.fromkeys(IDS, (3, 8)))))
    plain = start(Learnability())
    assert ids(known.choose(10)) == ids(plain.choose(10))
    assert ids(known.choose(10)) == ids(plain.choose(10))


def test_the_first_choice_is_a_function_of_table_and_seed(tmp_path: Path) -> None:
    piece = Learnability(table(tmp_path, **{id: (i % 3 + 3, 8) for i, id in enumerate(IDS)}))
    one, same, other = (ids(start(piece, seed=seed).choose(6)) for seed in (1, 1, 2))
    assert one == same
    assert one != other  # equals are shuffled
    moved = [IDS[0], *IDS[:0:-1]]
    assert set(ids(start(piece, moved).choose(30))) == set(IDS)


def test_no_task_comes_twice_a_step_and_a_refill_takes_the_next_best(tmp_path: Path) -> None:
    piece = Learnability(table(tmp_path, **{id: (i % 9, 8) for i, id in enumerate(IDS)}))
    whole = ids(start(piece).choose(20))
    selector = start(piece)
    first, refill = ids(selector.choose(12)), ids(selector.choose(8))
    assert not set(first) & set(refill)
    rank = {id: expected(*selector.posterior(id)) for id in IDS}
    assert min(rank[id] for id in first) >= max(rank[id] for id in refill) - 1e-15
    assert sorted(rank[id] for id in whole) == pytest.approx(sorted(rank[id] for id in first + refill))
    assert len(selector.choose(20)) == 10  # what is left
    assert selector.choose(3) == []
    selector.observe([])
    assert len(selector.choose(30)) == 30


def test_drawing_in_proportion_to_learnability(tmp_path: Path) -> None:
    """Of two tasks the first is drawn L1 / (L1 + L2) of the time."""
    piece = Learnability(table(tmp_path, t00=(4, 8), t01=(0, 8)), mode="proportional")
    selector = start(piece, ["t00", "t01"])
    first, second = (expected(*selector.posterior(id)) for id in ("t00", "t01"))
    drawn = []
    for _ in range(2000):
        drawn.append(ids(selector.choose(1)) == ["t00"])
        selector.taken = set()
    share = first / (first + second)
    assert sum(drawn) / 2000 == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 2000))


def test_thompson_explores_what_is_uncertain(tmp_path: Path) -> None:
    """An even share known from 400 answers always draws p (1 - p) near 1/4; from none it is at times much less."""
    selector = start(Learnability(mode="thompson"), ["t00", "t01"])
    selector.learn({"t00": (200, 400)})
    drawn = []
    for _ in range(500):
        drawn.append(ids(selector.choose(1)))
        selector.taken = set()
    assert 0.85 < drawn.count(["t00"]) / 500 < 1
    again = start(Learnability(mode="thompson"), ["t00", "t01"])
    again.learn({"t00": (200, 400)})
    assert ids(again.choose(1)) == drawn[0]


def test_outcomes_move_the_choice() -> None:
    selector = start(Learnability())
    selector.learn(dict.fromkeys(IDS[:20], (8, 8)))
    assert set(ids(selector.choose(10))) == set(IDS[20:])


# ---- calibration -----------------------------------------------------------------------------------------
def test_a_shift_moves_log_odds(tmp_path: Path) -> None:
    selector = start(Learnability(table(tmp_path, t00=(6, 8)), shift=-1.0), ["t00"])
    a, b = selector.posterior("t00")
    assert a + b == pytest.approx(8)
    assert math.log(a / b) == pytest.approx(math.log(6.5 / 2.5) - 1)


def test_the_fitted_shift_is_where_the_likelihood_is_flat(tmp_path: Path) -> None:
    """A grid over the log posterior, and no shift before there are outcomes."""
    shares = {"t00": (6, 8), "t01": (3, 8), "t02": (1, 8)}
    selector = start(Learnability(table(tmp_path, **shares), fit_shift=True), [*shares])
    plain = start(Learnability(str(tmp_path)), [*shares])
    assert selector.posterior("t01") == plain.posterior("t01")
    outcomes = {"t00": (3, 8), "t01": (1, 8)}
    selector.learn(outcomes)
    odds = {id: math.log((h + 0.5) / (n - h + 0.5)) for id, (h, n) in shares.items()}

    def log_posterior(shift: float) -> float:
        out = -(shift**2) / (2 * 3.0**2)
        for id, (s, n) in outcomes.items():
            p = 1 / (1 + math.exp(-odds[id] - shift))
            out += s * math.log(p) + (n - s) * math.log(1 - p)
        return out

    best = max((i / 1000 for i in range(-6000, 6001)), key=log_posterior)
    a, b = selector.posterior("t02")
    assert math.log(a / b) - odds["t02"] == pytest.approx(best, abs=1e-3)
    assert best < -0.5


# ---- state -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["topk", "proportional", "thompson"])
def test_a_resumed_selector_goes_on_bit_for_bit(tmp_path: Path, mode: str) -> None:
    piece = Learnability(
        table(tmp_path, **{id: (i % 9, 8) for i, id in enumerate(IDS)}),
        mode=mode,
        forget=0.9,
        fit_shift=True,  # type: ignore[arg-type]
    )
    one = start(piece)
    for _ in range(3):
        one.observe([group(id, i % 5, 4 - i % 5) for i, id in enumerate(ids(one.choose(6)))])
    other = start(piece)
    other.load(json.loads(json.dumps(one.state())))
    assert [one.posterior(id) for id in IDS] == [other.posterior(id) for id in IDS]
    for _ in range(3):
        assert ids(one.choose(6)) == ids(other.choose(6))
        for selector in (one, other):
            selector.observe([group("t05", 1, 3)])


def test_a_selector_never_sees_a_gold(tmp_path: Path) -> None:
    class Sealed(Task):
        def __getattribute__(self, name: str) -> Any:
            assert name != "answer"
            return super().__getattribute__(name)

    sealed = [Sealed(id, "p") for id in IDS]
    piece = replace(Learnability(table(tmp_path, **dict.fromkeys(IDS, (3, 8)))), group_size=8)
    selector = piece.start(sealed, 0)
    selector.observe([group(id, 1, 1) for id in ids(selector.choose(5))])
    selector.state()


# ---- bad input -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"task": "a", "answers": 8, "known": 8, "right": 9}, "'a' has right = 9, known = 8"),
        ({"task": "a", "answers": 8, "known": 9, "right": 1}, "'a' has right = 1, known = 9"),
        ({"task": "a", "answers": 0, "known": 0, "right": 0}, "'a' has answers = 0"),
        ({"task": "a", "answers": 8, "known": 8, "right": 1.5}, "'a' has right = 1.5; it is a whole number"),
        ({"task": "a", "answers": 8, "known": 8, "right": -1}, "'a' has right = -1"),
        ({"task": "a", "answers": 8, "known": 8, "right": True}, "'a' has right = True"),
        ({"task": "a", "answers": 8, "known": 8}, "'right' is missing"),
        ([1, 2], "a line is an object"),
    ],
)
def test_a_line_that_cannot_be_is_told_with_file_and_number(tmp_path: Path, line: Any, says: str) -> None:
    with pytest.raises(BadAnchors, match=rf"tasks\.jsonl, line 1: .*{says}"):
        read_anchors(table(tmp_path, [line]))


def test_tables_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    twice = {"task": "a", "answers": 8, "known": 8, "right": 1}
    with pytest.raises(BadAnchors, match="line 2: task 'a' stands there twice"):
        read_anchors(table(tmp_path, [twice, twice]))
    (tmp_path / "tasks.jsonl").write_text("{half")
    with pytest.raises(BadAnchors, match="line 1"):
        read_anchors(tmp_path)
    with pytest.raises(BadAnchors, match="make one with: rlvr rollout"):
        read_anchors(tmp_path / "nowhere")


def test_tasks_without_an_anchor_are_an_error_or_uninformative(tmp_path: Path) -> None:
    """A row whose answers have no verdict is none: it is not a pass rate of 0."""
    shares = {id: (0, 0) if id == "t04" else (4, 8) for id in IDS[:5]}
    piece = Learnability(table(tmp_path, **shares))
    with pytest.raises(BadAnchors) as caught:
        start(piece)
    assert "t04, t05" in str(caught.value)
    assert "t23 ... (26 in all)" in str(caught.value)
    assert "t24" not in str(caught.value)
    selector = start(replace(piece, missing="uninformative"))
    assert selector.posterior("t04") == (1, 1)
    assert selector.posterior("t00") == (4, 4)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"strength": 0.0}, "for no prior leave anchors out"),
        ({"strength": -1.0}, "above 0"),
        ({"strength": math.nan}, "above 0"),
        ({"forget": 1.1}, "0 to 1; got 1.1"),
        ({"shift": math.inf}, "a number in log-odds"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        thinkprior(grpo(), **settings)


def test_a_group_of_one_is_refused_before_anything_runs() -> None:
    with pytest.raises(ValueError, match="every group would be silent"):
        thinkprior(grpo()).plan(group_size=1, reward=Pays())


def test_more_tasks_than_there_are_are_refused() -> None:
    with pytest.raises(ValueError, match="asks for 31 different tasks and there are 30"):
        start(Learnability()).choose(31)
    with pytest.raises(ValueError, match="no tasks"):
        start(Learnability(), [])


def test_outcomes_that_cannot_be_change_nothing() -> None:
    selector = start(Learnability(forget=0.5))
    selector.learn({"t00": (1, 2)})
    before = json.dumps(selector.state())
    for outcomes, says in (
        ({"t01": (1, 2), "t99": (1, 2)}, "'t99', which this selector does not know"),
        ({"t01": (3, 2)}, "3 right of 2"),
        ({"t01": (-1, 2)}, "-1 right of 2"),
    ):
        with pytest.raises(ValueError, match=says):
            selector.learn(outcomes)
        assert json.dumps(selector.state()) == before


def test_a_group_without_verdicts_teaches_nothing_and_is_counted() -> None:
    selector = start(Learnability())
    selector.observe([group("t00", 0, 0, unknown=4), group("t01", 1, 1, unknown=2)])
    assert selector.posterior("t00") == (1, 1)
    assert selector.posterior("t01") == (2, 2)
    assert selector.unjudged == 1


def test_another_verifier_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    piece = Learnability(table(tmp_path, **dict.fromkeys(IDS, (3, 8))))
    selector = start(piece)
    before = json.dumps(selector.state())
    with pytest.raises(BadAnchors, match=r"judged by exact\(\), this run's by numeric\(\)"):
        selector.observe([group("t00", 1, 1), group("t01", 1, 1, by="numeric()")])
    assert json.dumps(selector.state()) == before
    start(replace(piece, other_verifier=True)).observe([group("t01", 1, 1, by="numeric()")])


# ---- the paper's regime, without a model -----------------------------------------------------------------
def silent_share(kind: str, seed: int, folder: Path, steps: int = 10) -> float:
    """250 prompts with logits N(.3, 2.6), an anchor near them; 16 x 8 rollouts a step; silent groups of all."""
    noise = random.Random(seed)
    logit = {f"p{i:03d}": noise.gauss(0.3, 2.6) for i in range(250)}
    chance = {id: 1 / (1 + math.exp(-x)) for id, x in logit.items()}
    anchors = {id: x + noise.gauss(0.8, 1.0) for id, x in logit.items()}
    if kind == "shuffled":
        moved = list(anchors.values())
        noise.shuffle(moved)
        anchors = dict(zip(anchors, moved))
    shares = {id: (sum(noise.random() < 1 / (1 + math.exp(-x)) for _ in range(8)), 8) for id, x in anchors.items()}
    known = kind in ("anchor", "shuffled")
    piece: Any = Uniform() if kind == "uniform" else Learnability(table(folder, **shares) if known else None)
    piece = piece if kind == "uniform" else replace(piece, group_size=8)
    selector = piece.start(tasks(list(chance)), seed)
    silent = 0
    for _ in range(steps):
        groups = []
        for task in selector.choose(16):
            right = sum(noise.random() < chance[task.id] for _ in range(8))
            silent += right in (0, 8)
            groups.append(group(task.id, right, 8 - right))
        selector.observe(groups)
    return silent / (16 * steps)


def test_an_anchor_more_than_halves_early_silent_groups_and_a_shuffled_one_is_no_worse_than_history(
    tmp_path: Path,
) -> None:
    mean = {
        kind: sum(silent_share(kind, seed, tmp_path) for seed in range(24)) / 24
        for kind in ("uniform", "history", "anchor", "shuffled")
    }
    assert mean["uniform"] == pytest.approx(0.38, abs=0.03)  # the paper's 39 %
    assert mean["anchor"] < mean["uniform"] / 2
    assert mean["anchor"] < mean["history"] - 0.05
    assert abs(mean["shuffled"] - mean["history"]) < 0.03


def test_a_silent_group_has_advantages_of_exactly_zero() -> None:
    batch = Batch.pack(torch.ones(6, dtype=torch.long), group=torch.tensor([0, 0, 0, 1, 1, 1]))
    batch = batch.with_({"reward": torch.tensor([1.0, 1.0, 1.0, 0.1, 0.1, 0.1])})
    assert not bool(GroupNorm()(batch).any())


# ---- with others, and on a model -------------------------------------------------------------------------
def test_it_stacks_with_every_paper() -> None:
    refused = [p for p in stack_pairs() if "thinkprior" in (p.one, p.other) and p.refusal]
    assert not refused, refused


def small(anchors: str | None, method: str = "thinkprior", **more: object) -> Recipe:
    told = {"threads": 1, "prompts_per_step": 4, "group_size": 4, "steps": 2, "updates_per_batch": 2, **more}
    sets = [f"{key}={value}" for key, value in told.items()]
    table = "thinkprior" if "thinkprior" in method else None
    sets += [f"papers.thinkprior.anchors={anchors or ''}"] if table else ["papers="]
    return load_recipe(recipes_dir() / "methods" / "thinkprior.toml", [*sets, "eval.problems=0"], method)


def training(recipe: Recipe, folder: Path) -> Training:
    plan = plan_of(recipe)
    return training_of(set_up(recipe, plan, want=frozenset({"entropy"})), plan, folder)


def test_the_recipes_first_batch_is_not_uniforms_and_costs_no_rollout(tmp_path: Path) -> None:
    recipe = load_recipe(recipes_dir() / "methods" / "thinkprior.toml", ["threads=1"])
    chosen = training(recipe, tmp_path)
    calls: list[Any] = []
    chosen.engine.sampler.sample = lambda *given: calls.append(given)  # type: ignore[method-assign]
    first = ids(chosen.selector.choose(recipe.prompts_per_step))
    assert not calls
    uniform = ids(Uniform().start(list(chosen.tasks.values()), recipe.seed).choose(recipe.prompts_per_step))
    assert len(set(first)) == recipe.prompts_per_step
    assert set(first) != set(uniform)
    told = recipe.papers["thinkprior"]
    anchors = read_anchors(told["anchors"])

    def far(some: list[str]) -> float:
        """Mean distance of the prior's means from 1/2."""
        odds = [math.log((anchors[id].right + 0.5) / (anchors[id].known - anchors[id].right + 0.5)) for id in some]
        return sum(abs(1 / (1 + math.exp(-x - told["shift"])) - 0.5) for x in odds) / len(some)

    assert far(first) < far(uniform) / 2


def test_on_equal_tasks_parameters_are_equal_bit_for_bit(tmp_path: Path) -> None:
    one = training(small(None), tmp_path / "a")
    chosen: list[list[Task]] = []
    pick = one.selector.choose

    def noted(n: int) -> list[Task]:
        chosen.append(pick(n))
        return chosen[-1]

    one.selector.choose = noted  # type: ignore[method-assign]
    one.run()
    other = training(small(None, "grpo"), tmp_path / "b")
    before = {k: v.clone() for k, v in other.engine.models["policy"].model.state_dict().items()}  # type: ignore[attr-defined]
    replayed = iter(chosen)
    other.selector.choose = lambda n: next(replayed)  # type: ignore[method-assign]
    other.run()
    ours, theirs = (t.engine.models["policy"].model.state_dict() for t in (one, other))  # type: ignore[attr-defined]
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert any(not torch.equal(before[name], theirs[name]) for name in theirs)


def test_with_dynamic_sampling_the_next_best_refill_a_step(tmp_path: Path) -> None:
    told: list[dict[str, float]] = []
    sink = SimpleNamespace(step=lambda step, metrics: told.append(metrics), groups=lambda *_: None, note=print)
    plain = training(small(None), tmp_path / "a")
    plain.sinks = [sink]
    plain.run()
    assert all(m["rollouts/sampled"] == m["rollouts/trained"] == 16 for m in told)
    told.clear()
    stacked = training(small(None, "thinkprior,dapo(overlong=False)", max_refills=9), tmp_path / "b")
    chosen: list[str] = []
    pick = stacked.selector.choose

    def noted(n: int) -> list[Task]:
        some = pick(n)
        chosen.extend(ids(some))
        return some

    stacked.selector.choose = noted  # type: ignore[method-assign]
    stacked.sinks = [sink]
    stacked.phase = stacked.plan.start()
    metrics = stacked.train_step(1)
    assert len(chosen) == len(set(chosen)) == metrics["rollouts/sampled"] / 4
    assert metrics["rollouts/trained"] == 16
    assert metrics["rollouts/sampled"] == 16 + metrics["rollouts/silent"]
    assert "group/short" not in metrics


def test_a_step_that_cannot_be_filled_says_so(tmp_path: Path) -> None:
    """Six tasks, a model whose groups of two are mostly silent: the refills run out of tasks."""
    recipe = small(None, "thinkprior,dapo(overlong=False)", max_refills=9, group_size=2, steps=1, **{"tasks.n": 6})
    run = training(recipe, tmp_path)
    run.phase = run.plan.start()
    metrics = run.train_step(1)
    assert metrics["rollouts/sampled"] == 12  # every task once, none twice
    assert metrics["group/short"] == 4 - metrics["rollouts/trained"] / 2 > 0

"""The loop with a real tiny model: what it keeps, refills, stops at, and that it trains exactly what was sampled."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from models import tiny_llama

from rlvr.batch import Batch
from rlvr.engine.protocol import Limits
from rlvr.engine.sampler import TorchSampler
from rlvr.engine.torch_engine import Optim, TorchEngine
from rlvr.loop import Settings, Stopped, Training
from rlvr.method import Method
from rlvr.methods.grpo import grpo
from rlvr.metrics import Clock
from rlvr.pack import pack
from rlvr.records import Group, Rollout, Task, Verdict
from rlvr.reward.pays import Pays
from rlvr.rollout.parallel import Parallel
from rlvr.rollout.world import World
from rlvr.select.uniform import Uniform
from rlvr.streams import declare
from rlvr.verify.episodes import verified
from rlvr.waiting import wait_for

declare("row", "test/number", "a fact that an annotation adds")


class Digits:
    """A renderer for prompts that are lists of ids in disguise: "3 4 5"."""

    def prompt(self, prompt: Any) -> list[int]:
        if prompt == "bad":
            raise ValueError("the prompt does not render")
        return [1, *map(int, prompt.split())]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(str(i) for i in ids)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [f"{i} " for i in ids]

    def response(self, text: str) -> list[int]:
        return [*map(int, text.split()), 2]


class Watching:
    """A sink that keeps what it is told."""

    def __init__(self) -> None:
        self.metrics: list[Mapping[str, float]] = []
        self.rows: list[Any] = []

    def start(self, run: Any) -> None: ...
    def note(self, text: str) -> None: ...
    def end(self, status: str) -> None: ...

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self.metrics.append(metrics)

    def groups(self, step: int, rows: Sequence[Any]) -> None:
        self.rows += rows


def even(items: Sequence[tuple[Rollout, Task]]) -> list[Verdict]:
    """Right iff the first sampled id is even."""
    out = []
    for row, _ in items:
        ids = row.ids[row.owned()]
        good = bool(len(ids)) and ids[0] % 2 == 0
        out.append(Verdict("right" if good else "wrong", float(good)))
    return out


TASKS = [Task(str(i), f"{3 + i % 7} {4 + i % 5}", answer="secret") for i in range(20)]


def training(
    folder: Path, method: Method | None = None, judge: Any = even, dtype: torch.dtype = torch.float64, **more: Any
) -> Training:
    lm = tiny_llama(dtype=dtype)
    engine = TorchEngine({"policy": lm}, {"policy": Optim(lr=3e-3)}, TorchSampler(lm), token_budget=200)
    method = method or grpo()
    settings = Settings(
        **{"steps": 3, "prompts_per_step": 6, "group_size": 4, "updates_per_batch": 3, "rollouts_every": 1, **more}
    )
    return Training(
        method.plan(8, reward=Pays()),
        engine,
        Digits(),
        {t.id: t for t in TASKS},
        Uniform().start([t.public() for t in TASKS], 0),
        judge,
        Limits(8, want=frozenset({"entropy"})),
        frozenset({2}),
        settings,
        folder,
        sinks=[Watching()],
        dtype=dtype,
    )


def test_a_run_learns_and_tells_every_number(tmp_path: Path) -> None:
    run = training(tmp_path, steps=30)
    run.run()
    told = run.sinks[0].metrics
    reward = [m["reward/mean"] for m in told]
    assert np.mean(reward[-5:]) > np.mean(reward[:5]) + 0.2
    assert max(m.get("policy/clip_frac", 0) for m in told) > 0.01
    assert max(m.get("sampler/gap", 0) for m in told) < 1e-6  # rollouts keep float32
    assert {
        *("reward/mean", "reward/correctness/mean", "group/frac_solved", "group/frac_failed", "group/frac_mixed"),
        *("verdict/right", "verdict/wrong", "verdict/unknown", "length/mean", "length/truncated", "policy/entropy"),
        *("policy/kl_behavior", "policy/clip_frac", "policy/ratio_max", "sampler/gap", "loss/policy", "optim/lr"),
        *("optim/grad_norm", "time/sample", "time/update", "perf/tokens_per_s"),
    } <= set(told[0])


def test_two_runs_of_one_seed_are_the_same_bits_and_another_seed_is_not(tmp_path: Path) -> None:
    def weights(seed: int) -> torch.Tensor:
        run = training(tmp_path, seed=seed)
        run.run()
        # type: ignore[attr-defined]
        return torch.cat([p.detach().flatten() for p in run.engine.models["policy"].model.parameters()])

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


def test_trained_ids_are_the_sampled_ids_each_once_in_the_context_that_produced_them(tmp_path: Path) -> None:
    run = training(tmp_path)
    seen: list[Group] = []
    batches: list[Batch] = []
    score, collect = run.score, run.collect

    def watched(batch: Batch, *a: Any) -> Batch:
        batches.append(batch)
        return score(batch, *a)

    def collected(*a: Any) -> Any:
        kept, every = collect(*a)
        seen.extend(kept)
        return kept, every

    run.score, run.collect = watched, collected  # type: ignore[method-assign]
    run.train_step(1)
    (batch,) = batches
    sampled = [row for group in seen for row in group.rollouts]
    want = [int(i) for row in sampled for turn in row.turns for i in row.ids[turn.start : turn.end]]
    assert batch["token"].tolist() == want
    lm = run.engine.models["policy"]  # type: ignore[attr-defined]
    twin = tiny_llama()  # the weights that sampled
    assert lm is not twin
    for i, row in enumerate(sampled):
        ids = torch.as_tensor(row.ids, dtype=torch.long)
        logp = torch.log_softmax(twin.model(ids[None]).logits[0], -1)
        at = torch.as_tensor(np.flatnonzero(row.owned()))
        torch.testing.assert_close(
            batch["sampler_logp"][batch.row == i], logp[at - 1, ids[at]].detach(), rtol=0, atol=1e-6
        )


@dataclass(frozen=True)
class Only:
    """keep: groups of these tasks."""

    ids: tuple[str, ...]

    def __call__(self, group: Group) -> bool:
        return group.task.id in self.ids


def test_dropped_groups_are_replaced_until_the_refills_end(tmp_path: Path) -> None:
    few = tuple(str(i) for i in range(0, 20, 2))
    run = training(tmp_path, grpo().firm("half", keep=Only(few)), max_refills=5)
    kept, seen = run.collect(run.plan.at({}), 1, Clock())
    assert len(kept) == 6
    assert len(seen) > 6
    assert all(g.task.id in few for g in kept)
    assert len({r.id for g in seen for r in g.rollouts}) == 4 * len(seen)
    never = training(tmp_path, grpo().firm("none", keep=Only(())), max_refills=2)
    kept, seen = never.collect(never.plan.at({}), 1, Clock())
    assert kept == []
    assert len(seen) == 18
    before = [p.clone() for p in never.engine.models["policy"].model.parameters()]  # type: ignore[attr-defined]
    metrics = never.train_step(1)  # a step without a group ends, and changes nothing
    assert "loss/policy" not in metrics
    # type: ignore[attr-defined]
    assert all(torch.equal(a, b) for a, b in zip(before, never.engine.models["policy"].model.parameters()))


def test_golds_reach_no_policy_selector_or_row(tmp_path: Path) -> None:
    run = training(tmp_path)
    assert all(t.answer is None for t in run.selector.tasks)  # type: ignore[attr-defined]


def test_unknown_verdicts_above_the_limit_stop_the_run(tmp_path: Path) -> None:
    def shaky(items: Sequence[tuple[Rollout, Task]]) -> list[Verdict]:
        return [Verdict("unknown", 0.0, "verifier_error: boom") if i % 5 == 0 else v for i, v in enumerate(even(items))]

    with pytest.raises(
        Stopped, match=r"5 of the last 24 verdicts are unknown \(verifier_error: boom\), more than unknown_limit = 0.05"
    ):
        training(tmp_path, judge=shaky).run()
    training(tmp_path, judge=shaky, unknown_limit=0.5).run()


def test_a_sampler_that_disagrees_with_the_trainer_stops_the_run(tmp_path: Path) -> None:
    run = training(tmp_path)
    sample = run.engine.sampler.sample

    async def off(request: Any) -> Any:
        got = await sample(request)
        return replace(got, streams={**got.streams, "plain_logp": [x - 0.1 for x in got.streams["plain_logp"]]})

    run.engine.sampler.sample = off  # type: ignore[method-assign]
    with pytest.raises(Stopped, match=r"disagree by 0\.1 nats a token .* gap_limit = 0.01"):
        run.run()


def test_log_probs_of_a_sampler_that_is_slightly_off_are_rescored(tmp_path: Path) -> None:
    run = training(tmp_path, gap_limit=1.0)
    run.trust_sampler = False
    scored: list[Batch] = []
    engine_score = run.engine.score
    # type: ignore[method-assign,func-returns-value]
    run.engine.score = lambda b, v: scored.append(engine_score(b, v)) or scored[-1]
    run.train_step(1)
    assert float((scored[0]["old_logp"] - scored[0]["sampler_logp"]).abs().max()) < 1e-6
    assert scored[0]["old_logp"] is not scored[0]["sampler_logp"]


@dataclass(frozen=True)
class Numbered:
    """annotate: the number of right rows."""

    gives: ClassVar = ("test/number",)

    async def __call__(self, group: Group, world: World) -> dict[str, Any]:
        await asyncio.sleep(0)
        right = sum(v.label == "right" for v in group.verdicts.values())
        return {"test/number": np.full(len(group.rollouts), float(right))}


@dataclass(frozen=True)
class ByNumber:
    needs: ClassVar = ("advantage", "test/number")
    rank: ClassVar = 2

    def __call__(self, batch: Batch) -> torch.Tensor:
        return batch["advantage"] * batch.spread(batch["test/number"])


def test_annotations_reach_the_batch(tmp_path: Path) -> None:
    run = training(tmp_path, grpo().firm("n", annotate=Numbered(), reshape=ByNumber()))
    kept, _ = run.collect(run.plan.at({}), 1, Clock())
    batch = pack(kept, dtype=torch.float64)
    right = [sum(v.label == "right" for v in g.verdicts.values()) for g in kept for _ in g.rollouts]
    assert batch["test/number"].tolist() == right
    run.train_step(2)


def test_rows_of_one_episode_share_its_verdict_and_the_last_is_judged() -> None:
    from rlvr.records import Chain, Origin

    def row(id: str, last: int) -> Rollout:
        chain = Chain(TASKS[0], id, 0, episode="e")
        chain.add([1, 3], Origin.PROMPT)
        chain.add([last], Origin.POLICY)
        return chain.end("finished")

    (group,) = verified([Group("g", TASKS[0], (row("a", 5), row("b", 6)))], even)
    assert group.verdicts == {"e": Verdict("right", 1.0)}
    assert pack([group])["correct"].tolist() == [True, True]


def test_one_prompt_that_fails_is_a_row_not_a_failed_batch(tmp_path: Path) -> None:
    run = training(tmp_path)
    world = World(run.engine.sampler, run.renderer, run.limits, run.stop_ids, "x", 5)

    async def both() -> list[Group]:
        return [g async for g in Parallel()([TASKS[0], Task("b", "bad")], 2, world)]

    groups = sorted(wait_for(both()), key=lambda g: g.id)
    assert [r.status for r in groups[1].rollouts] == ["failed", "failed"]
    assert "does not render" in groups[1].rollouts[0].reason
    assert all(r.status in ("finished", "truncated") for r in groups[0].rollouts)
    assert all(r.ids[0] == 1 for r in groups[0].rollouts)


def test_selection_repeats_no_task_before_all_have_come_and_resumes() -> None:
    selector = Uniform().start(TASKS, 3)
    first = [t.id for t in selector.choose(7)]
    state = json.loads(json.dumps(selector.state()))
    rest = [t.id for t in selector.choose(13)]
    assert sorted(first + rest) == sorted(t.id for t in TASKS)
    second = [t.id for t in selector.choose(20)]
    assert sorted(second) == sorted(first + rest)
    assert second != first + rest
    again = Uniform().start(TASKS, 3)
    again.load(state)
    assert [t.id for t in again.choose(13)] == rest
    assert len(Uniform().start(TASKS[:3], 0).choose(8)) == 8
    with pytest.raises(ValueError, match="no tasks"):
        Uniform().start([], 0)


def test_the_loop_works_inside_a_running_event_loop(tmp_path: Path) -> None:
    async def notebook() -> None:
        training(tmp_path, steps=1).run()

    asyncio.run(notebook())

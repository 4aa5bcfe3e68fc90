"""Right answers behind public bug reports (tests/cases/field_reports.jsonl): training arithmetic here, the rest where
its part is tested. The last test keeps the books: no case is forgotten."""

import importlib
import json
import math
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from rlvr.batch import Batch, Now
from rlvr.engine.torch_engine import NotFinite
from rlvr.loop import Settings, Stopped, Training, optimiser_batches
from rlvr.loss.reduction import Constant, RowMean, RowSum, TokenMean
from rlvr.loss.terms import KLToReference, kl_estimate
from rlvr.method import Method
from rlvr.methods.dr_grpo import dr_grpo
from rlvr.methods.grpo import grpo
from rlvr.methods.mask_truncated import mask_truncated
from rlvr.methods.rloo import rloo
from rlvr.metrics import Clock, summary
from rlvr.pack import pack
from rlvr.records import Chain, Group, Origin, Task, Verdict
from rlvr.reward.balance import drowning, shares
from rlvr.reward.pays import Pays
from rlvr.testing import running

F64 = torch.float64
CASES = {c["id"]: c for c in map(json.loads, (Path(__file__).parent / "cases" / "field_reports.jsonl").open())}


def case(id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return CASES[id]["input"], CASES[id]["expected"]


def rewarded(rewards: list[float], groups: list[str], **more: Any) -> Batch:
    n = len(rewards)
    numbers = {name: i for i, name in enumerate(dict.fromkeys(groups))}
    zeros = torch.zeros(n, dtype=F64)
    told = {
        "group": torch.tensor([numbers[g] for g in groups]),
        "score": torch.tensor(rewards, dtype=F64),
        "correct": torch.tensor(rewards) > 0,
        "behavior_logp": zeros,
        "old_logp": zeros,
        **more,
    }
    return Batch.pack(torch.ones(n, dtype=torch.long), **told)


def advantages(method: Method, batch: Batch) -> list[float]:
    return running(method).credit(batch)["row_advantage"].tolist()


def test_T01_advantages_of_a_mixed_and_a_silent_group() -> None:
    given, want = case("T01")
    batch = rewarded(given["rewards"], given["groups"])
    assert advantages(dr_grpo(grpo()), batch) == pytest.approx(want["center"])
    assert advantages(grpo(eps=0.0), batch) == pytest.approx(want["std_population"])
    n = 4  # the sample's standard deviation is larger by sqrt(n / (n - 1))
    scaled = [a * math.sqrt((n - 1) / n) for a in advantages(grpo(eps=0.0), batch)]
    assert scaled == pytest.approx(want["std_sample"], abs=1e-6)


def test_T03_leave_one_out_does_not_divide_by_rounding_noise() -> None:
    given, want = case("T03")
    got = advantages(rloo(grpo()), rewarded(given["rewards"], given["groups"]))
    assert got == pytest.approx(want["loo"], abs=1e-6)
    for dtype in (torch.float32, F64):
        batch = rewarded(given["rewards"], given["groups"])
        batch = batch.with_({k: batch[k].to(dtype) for k in ("score", "behavior_logp", "old_logp")})
        assert max(map(abs, advantages(grpo(), batch))) < want["normalised_abs_max_below"]


def test_T05_groups_go_by_name_not_by_stride() -> None:
    given, want = case("T05")
    assert advantages(dr_grpo(grpo()), rewarded(given["rewards"], given["groups"])) == want["advantages"]


def test_T07_a_reward_that_is_no_number_is_never_a_number() -> None:
    given, _ = case("T07")
    rewards = [float(r) for r in given["rewards"]]

    @dataclass(frozen=True)
    class Given:
        parts: ClassVar = ("given",)

        def __call__(self, batch: Batch) -> dict[str, torch.Tensor]:
            return {"given": torch.tensor(rewards, dtype=F64)}

    batch = rewarded([0.0] * 4, given["groups"])
    with pytest.raises(ValueError, match=r"rows \[1, 3\]"):
        running(grpo().firm("x", reward=Given())).credit(batch)
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match=r"score lies in \[0, 1\]"):
            Verdict("right", bad)
    masked = running(grpo().firm("x", reward=Given())).credit(
        batch.with_({"known": torch.tensor([True, False, True, False])})
    )
    assert masked["row_advantage"].tolist() == pytest.approx([1, 0, -1, 0], abs=1e-5)


def test_T08_other_groups_do_not_enter_a_groups_advantage() -> None:
    given, _ = case("T08")
    got = []
    for run in ("run1", "run2"):
        groups = [g for g, rs in given[run].items() for _ in rs]
        got.append(advantages(grpo(), rewarded([r for rs in given[run].values() for r in rs], groups))[:2])
    assert got[0] == got[1]


def test_T09_a_part_that_drowns_the_others_is_said() -> None:
    given, _ = case("T09")
    length = torch.tensor(given["length_reward"], dtype=F64)
    right = torch.tensor(given["correctness"], dtype=F64)
    batch = rewarded(right.tolist(), ["a"] * 4).with_(
        {"reward/correctness": right, "reward/length": length, "reward": right + length}
    )
    assert shares(batch)["length"] > 0.999
    sentence = drowning(batch)
    assert sentence is not None
    assert "'length' supplies 100.00%" in sentence
    assert "the best-paid rollout is a wrong one" in sentence
    tame = batch.with_({"reward/length": length / 1000, "reward": right + length / 1000})
    assert drowning(tame) is None


def test_T11_four_reductions() -> None:
    given, want = case("T11")
    length = torch.tensor([int(sum(m)) for m in given["mask"]])
    values = [v for row, mask in zip(given["per_token_loss"], given["mask"]) for v, m in zip(row, mask) if m]
    ones = torch.ones(len(values), dtype=F64)
    told = {"row_weight": torch.ones(2, dtype=F64), "token_weight": ones, "token_counted": ones.bool()}
    batch = Batch.pack(length, **told)
    loss = torch.tensor(values, dtype=F64)
    got = {
        "token_mean": TokenMean(),
        "seq_mean_token_mean": RowMean(),
        "seq_mean_token_sum": RowSum(),
        "constant_norm": Constant(given["max_len"]),
    }
    assert {name: float((r(batch) * loss).sum()) for name, r in got.items()} == pytest.approx(want)


def test_T13_denominators_are_those_of_the_optimiser_batch() -> None:
    given, want = case("T13")
    length = torch.tensor(given["micro_token_counts"])
    n = int(length.sum())
    zeros = torch.zeros(n, dtype=F64)
    batch = Batch.pack(length, score=torch.zeros(4, dtype=F64), correct=torch.zeros(4, dtype=torch.bool),
                       behavior_logp=zeros, old_logp=zeros)  # fmt: skip
    plan = running(grpo())
    batch = plan.credit(batch)
    weights = []
    for rows in (torch.tensor([0, 1]), torch.tensor([2, 3])):
        part = plan.weigh(batch.take(rows))
        weights += [1 / float(part["weight"][part.row == r][0]) for r in range(2)]
    assert weights == pytest.approx(want["denominators"])


def test_T14_nothing_to_train_is_a_zero_with_a_gradient() -> None:
    batch = rewarded([1.0, 0.0], ["a", "a"]).with_({"known": torch.tensor([False, False])})
    plan = running(grpo())
    for reduction in (TokenMean(), RowMean(), RowSum(), Constant(5)):
        plan = running(grpo().firm("r", reduction=reduction))
        done = plan.weigh(plan.credit(batch))
        logp = torch.tensor([-2.0, -2.0], dtype=F64, requires_grad=True)
        loss, _ = plan.loss("policy", Now(logp), done.take(torch.arange(2), whole=False))
        loss.backward()
        assert float(loss.detach()) == 0
        assert logp.grad is not None
        assert logp.grad.tolist() == [0, 0]


def test_T15_a_ratio_beyond_overflow_in_an_idle_row_reaches_nothing() -> None:
    """Rows without weight are the nearest thing here to masked tokens: their ratio exp(200) must not become 0 * inf."""
    given, want = case("T15")
    batch = rewarded([1.0, 1.0, 0.0], ["a", "b", "a"]).with_(
        {"old_logp": torch.tensor([*given["logp_old"], -1.0], dtype=F64), "known": torch.tensor([True, False, True])}
    )
    plan = running(grpo(eps=0.0))
    done = plan.weigh(plan.credit(batch))
    assert done["row_advantage"].tolist() == [given["advantage"], 0, -1]
    row = done.take(torch.tensor([0, 1]), whole=False)
    logp = torch.tensor(given["logp_new"], dtype=F64, requires_grad=True)
    loss, _ = plan.loss("policy", Now(logp), row)
    loss.backward()
    assert logp.grad is not None
    assert float(loss.detach()) * 2 == pytest.approx(want["loss"])  # two counted tokens in the optimiser batch
    assert (logp.grad * 2).tolist() == pytest.approx(want["grad_logp_new"])


class Recorded:
    """An engine that scores nothing: what the sampler said is all there is."""

    version = 0
    device = "cpu"

    @property
    def sampler(self) -> "Recorded":
        return self

    def score(self, batch: Batch, views: Any) -> Batch:
        return batch

    def publish(self) -> None: ...


def training(method: Method, engine: Any, folder: Path, **settings: Any) -> Training:
    return Training(
        method.plan(40, reward=Pays()),
        engine,
        renderer=None,  # type: ignore[arg-type]
        tasks={},
        selector=None,  # type: ignore[arg-type]
        judge=lambda items: [],
        limits=None,  # type: ignore[arg-type]
        stop_ids=frozenset(),
        settings=Settings(10, 1, 1, **settings),
        folder=folder,
        dtype=F64,
    )


def test_T16_the_samplers_log_probs_are_the_anchor_on_policy(tmp_path: Path) -> None:
    given, want = case("T16")
    logp = torch.tensor(given["behaviour_logp"], dtype=F64)
    batch = rewarded([1.0], ["a"]).with_({"sampler_logp": logp, "sampler_entropy": torch.zeros(1, dtype=F64)})
    plan = running(grpo())
    scored = training(grpo(), Recorded(), tmp_path).score(batch, plan, [])
    now = plan.with_ratio(Now(torch.tensor(given["logp_new"], dtype=F64)), scored)
    assert now.ratio is not None
    assert now.ratio.tolist() == pytest.approx([want["ratio_vs_behaviour"]], abs=1e-6)


def chain(*spans: tuple[Origin, int]) -> Chain:
    out = Chain(Task("t", "p"), "r", 0)
    for origin, n in spans:
        out.add([3] * n, origin)
    return out


def test_T19_masked_rows_leave_the_loss_but_not_the_logged_length() -> None:
    given, want = case("T19")
    rows = []
    for i, (n, finished) in enumerate(zip(given["lengths"], given["finished"])):
        made = chain((Origin.PROMPT, 2), (Origin.POLICY, n)).end("finished" if finished else "truncated")
        rows.append(type(made)(**{f: getattr(made, f) for f in made.__slots__} | {"id": f"r{i}", "episode": f"r{i}"}))
    group = Group("g", Task("t", "p"), tuple(rows), {"r0": Verdict("right", 1.0), "r1": Verdict("wrong", 0.0)})
    batch = pack([group], dtype=F64)
    batch = batch.with_({"old_logp": torch.zeros(len(batch.row), dtype=F64)})
    plan = running(mask_truncated(grpo()))
    weighed = plan.weigh(plan.credit(batch))
    assert int((weighed["weight"] > 0).sum()) == want["loss_tokens"]
    told = summary([group], batch, {}, Clock())
    assert told["length/mean"] == want["logged_mean_length"]
    assert told["length/truncated"] == want["truncated_fraction"]


def test_T23_the_models_own_tokens_are_trained_and_no_others() -> None:
    given, want = case("T23")
    origin = {"prompt": Origin.PROMPT, "model": Origin.POLICY, "tool": Origin.ENVIRONMENT}
    row = chain(*[(origin[kind], n) for kind, n in given["segments"]]).end("finished")
    mask = row.owned()[given["segments"][0][1] :].astype(int).tolist()
    assert mask == want["completion_mask"]
    batch = pack([Group("g", Task("t", "p"), (row,), {"r": Verdict("right", 1.0)})])
    assert len(batch.row) == want["loss_tokens"]
    assert batch.chains is not None
    assert batch.chains.at.tolist() == np.flatnonzero(row.owned()).tolist()


def test_T24_tool_tokens_stand_outside_the_mean_log_ratio() -> None:
    given, want = case("T24")
    kept = [d for d, m in zip(given["logp_diff"], given["mask"]) if m]  # a batch holds trained tokens only
    batch = Batch.pack(torch.tensor([len(kept)]), old_logp=torch.zeros(len(kept), dtype=F64))
    from rlvr.loss.ratio import Ratio

    got = Ratio("row")(Now(torch.tensor(kept, dtype=F64)), batch)
    assert got.tolist() == pytest.approx([want["ratio"]] * len(kept), abs=1e-6)


def test_T27_kl_estimates_and_their_gradients() -> None:
    given, want = case("T27")
    for name in ("k1", "k2", "k3"):
        logp = torch.tensor(given["logp"], dtype=F64, requires_grad=True)
        value = kl_estimate(logp, torch.tensor(given["ref_logp"], dtype=F64), name)  # type: ignore[arg-type]
        value.backward()
        assert float(value.detach()) == pytest.approx(want[name], abs=1e-6)
        assert float(logp.grad) == pytest.approx(want[f"grad_{name}"], abs=1e-6)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="gradient 1 at every token"):
        KLToReference(0.1, "k1")


def test_T32_one_prompt_and_many_updates_give_no_empty_batch() -> None:
    given, _ = case("T32")
    batch = Batch.pack(torch.ones(8, dtype=torch.long), group=torch.zeros(8, dtype=torch.long))
    settings = Settings(1, given["per_device_batch"], given["num_generations"], updates_per_batch=given["grad_accum"])
    parts = list(optimiser_batches(batch, "row", settings, 1))
    assert [len(p) for p in parts] == [8]


def test_S04_a_gradient_that_is_not_a_number_stops_the_run_and_names_the_step(tmp_path: Path) -> None:
    class Broken(Recorded):
        def update(self, batch: Batch, running: Any) -> Any:
            raise NotFinite("the gradient of policy", [1])

    from rlvr.batch import Chains

    zeros = torch.zeros(2, dtype=F64)
    batch = rewarded([1.0, 0.0], ["a", "a"]).with_({"sampler_logp": zeros})
    batch = type(batch)(batch.length, batch.row, batch.tokens, batch.rows, Chains.of([[1, 2], [1, 3]], [[1], [1]]))
    plan = running(grpo())
    with pytest.raises(Stopped, match=r"step 3: the gradient of policy is not finite; rows \[1\].*broken-step-3.jsonl"):
        training(grpo(), Broken(), tmp_path).update(plan.credit(batch), plan, 3)
    (line,) = (tmp_path / "broken-step-3.jsonl").read_text().splitlines()
    assert json.loads(line)["ids"] == [1, 3]
    assert json.loads(line)["row_advantage"] == pytest.approx([-1], abs=1e-5)


# ---- the books -------------------------------------------------------------------------------------------
ELSEWHERE = (
    "code",
    "function_verifier",
    "instructions",
    "math",
    "model",
    "renderer",
    "resume",
    "sampler",
    "statistics",
)
LATER = {
    "routing replay of mixtures of experts": "T31",
    "environments: C25 is a repository that a task hands out": "C25 E01 E02 E03 E04 E05 E07 E11 E13 E14 E15",
}


def cases_of(module: ModuleType, known: Collection[str] = CASES) -> set[str]:
    """The cases that a module's tests are about: named in a test's name (test_T05_...), in its marks (parametrised by
    it, or `case`), or as a constant in its body, as in CASES["T05"]. Comments and docstrings name none."""
    found: set[str] = set()
    for name, test in vars(module).items():
        if name.startswith("test_") and callable(test):
            marked = _texts([mark.args for mark in getattr(test, "pytestmark", [])])
            found |= {*name.split("_"), *marked, *_texts(test.__code__)} - {test.__doc__}
    return found & set(known)


def _texts(told: Any) -> Iterator[str]:
    """The strings in nested arguments of marks, or among the constants of code."""
    if isinstance(told, str):
        yield told
    elif isinstance(told, CodeType):
        yield from _texts(told.co_consts)
    elif isinstance(told, tuple | list | set | frozenset):  # pytest.param is a tuple too
        for inner in told:
            yield from _texts(inner)


def test_a_case_is_named_by_what_a_test_does_and_by_no_comment() -> None:
    @pytest.mark.parametrize(("id", "n"), [("X1", 1), pytest.param("X2", 2, id="other")])
    def test_X3_by_name(id: str, n: int) -> None:
        """X4"""
        assert {"X5": 0}["X5"] == 0  # X6

    def helper() -> str:
        return "X7"

    @pytest.mark.case("X9")
    def test_marked() -> None: ...

    module = ModuleType("some")
    vars(module).update(test_X3_by_name=test_X3_by_name, test_marked=test_marked, helper=helper, text="X8")
    assert cases_of(module, [f"X{i}" for i in range(1, 10)]) == {"X1", "X2", "X3", "X5", "X9"}


def test_every_case_is_asserted_somewhere_or_its_part_is_named() -> None:
    modules = [sys.modules[__name__], *(importlib.import_module(f"test_{name}") for name in ELSEWHERE)]
    told = {id for module in modules for id in cases_of(module)}
    later = set(" ".join(LATER.values()).split())
    assert not told & later
    assert told | later == set(CASES)

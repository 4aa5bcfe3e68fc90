"""Cliff: signs and sizes by hand, who is believed, and borders in tokens."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from toy import toy_step

from rlvr.batch import Batch, Now
from rlvr.judges.judge import Bench, FirstMistake, JudgeBroken, JudgeFailed, Said
from rlvr.judges.oracle import Oracle
from rlvr.method import Method
from rlvr.methods.cliff import (
    AFTER,
    ANSWER,
    FOUND,
    FirstMistakeCredit,
    FirstMistakes,
    JudgeAlone,
    balanced,
    cliff,
    median_place,
    nobody_judged,
)
from rlvr.methods.grpo import grpo
from rlvr.pack import pack
from rlvr.records import Chain, Group, Origin, Rollout, Task, Verdict
from rlvr.stacking import StackError, build_method
from rlvr.testing import cut_invariance, finiteness, outcome, promises, random_batch, running
from rlvr.verify.verifier import VerifierBroken

F64 = torch.float64
NAN = math.nan


def t(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=F64)


def judged(rows: Sequence[dict[str, Any]]) -> Batch:
    """Rows of n tokens with advantage a: b is the first token of the mistake, `answer` that of the answer, None: no
    such token."""
    length = torch.tensor([row["n"] for row in rows])

    def flags(key: str) -> torch.Tensor:
        return t(*(float(row.get(key) is not None and i >= row[key]) for row in rows for i in range(row["n"])))

    return Batch.pack(
        length,
        advantage=t(*(row["a"] for row in rows for _ in range(row["n"]))),
        correct=torch.tensor([row.get("right", False) for row in rows]),
        known=torch.tensor([row.get("known", True) for row in rows]),
        truncated=torch.tensor([row.get("cut", False) for row in rows]),
        **{FOUND: t(*(row["found"] for row in rows)), AFTER: flags("b"), ANSWER: flags("answer")},
    )


def shaped(row: dict[str, Any], **settings: Any) -> list[float]:
    batch = judged([{"n": 4, "found": 1.0, **row}])
    return FirstMistakeCredit(**settings)(batch).tolist()


# ---- the rule ------------------------------------------------------------------------------------------------
def test_before_the_mistake_at_least_up_and_from_it_on_at_most_minus_down() -> None:
    """up = .3, down = .5: an outcome that agrees keeps its size on its side."""
    assert shaped({"a": -0.9, "b": 2}) == [0.3, 0.3, -0.9, -0.9]
    assert shaped({"a": -0.2, "b": 1}) == [0.3, -0.5, -0.5, -0.5]
    assert shaped({"a": 0.0, "b": 3}) == [0.3, 0.3, 0.3, -0.5]
    assert shaped({"a": 1.2, "b": 2}, trust="judge") == [1.2, 1.2, -0.5, -0.5]
    assert shaped({"a": -0.9, "b": 0}) == [-0.9] * 4
    assert shaped({"a": -0.9, "b": 2}, up=0.1, down=2.0) == [0.1, 0.1, -2.0, -2.0]


def test_one_side_alone_is_shaped_by_the_controls() -> None:
    assert shaped({"a": -0.2, "b": 2}, only="before") == [0.3, 0.3, -0.2, -0.2]
    assert shaped({"a": -0.2, "b": 2}, only="after") == [-0.2, -0.2, -0.5, -0.5]


def test_a_verdict_of_wrong_without_a_mistake_blames_the_answer() -> None:
    assert shaped({"a": -0.9, "found": 0.0, "answer": 3}) == [0.3, 0.3, 0.3, -0.9]
    assert shaped({"a": -0.9, "found": 0.0}) == [-0.9] * 4  # where it begins is not known
    assert shaped({"a": -0.9, "found": 0.0, "answer": 3, "cut": True}) == [-0.9] * 4
    assert shaped({"a": -0.9, "found": 0.0, "answer": 3, "known": False}) == [-0.9] * 4
    assert shaped({"a": 0.9, "found": 0.0, "answer": 3, "right": True}) == [0.9] * 4
    assert shaped({"a": -0.9, "found": 1.0, "answer": 3}) == [0.3, 0.3, 0.3, -0.9]  # the mistake is in no token of ours


def test_of_a_right_answer_with_a_mistake_somebody_is_believed() -> None:
    row = {"a": 0.9, "b": 2, "right": True}
    assert shaped(row, trust="outcome") == [0.9] * 4
    assert shaped(row, trust="judge") == [0.9, 0.9, -0.5, -0.5]


def test_where_the_judge_said_nothing_no_bit_changes() -> None:
    assert shaped({"a": -0.1, "found": NAN, "b": 1, "answer": 3}) == [-0.1] * 4
    batch, policy = nobody_judged(*random_batch(2))
    one, other = (outcome(running(m), batch, policy) for m in (cliff(grpo()), grpo()))
    assert one.same_bits(other)


def test_signs_bounds_and_one_change_of_sign_on_random_rows() -> None:
    noise = torch.Generator().manual_seed(0)
    rows = []
    for _ in range(300):
        n = int(torch.randint(1, 9, (), generator=noise))
        b = int(torch.randint(0, n, (), generator=noise))
        rows.append({"n": n, "a": float(torch.randn((), generator=noise)), "found": 1.0, "b": b})
    batch = judged(rows)
    new = FirstMistakeCredit()(batch)
    for row, values in zip(rows, new.split(batch.length.tolist())):
        before, after = values[: row["b"]].tolist(), values[row["b"] :].tolist()
        assert all(x >= max(row["a"], 0.3) for x in before)
        assert all(x <= min(row["a"], -0.5) for x in after)
        signs = np.sign(values.numpy())
        assert int((signs[1:] != signs[:-1]).sum()) == (row["b"] > 0)
    assert FirstMistakeCredit().keeps(batch, new) == ""


def test_a_later_mistake_never_costs_anything() -> None:
    for a in (-2.0, -0.5, 0.0, 0.2, 3.0):
        values = [shaped({"a": a, "b": b}) for b in range(4)]
        for earlier, later in itertools.pairwise(values):
            assert all(x <= y for x, y in zip(earlier, later))


def test_broken_promises_are_noticed() -> None:
    batch = judged([{"n": 3, "a": -1.0, "found": 1.0, "b": 1}, {"n": 2, "a": 0.5, "found": NAN}])
    good = FirstMistakeCredit()(batch)
    said = lambda *x: FirstMistakeCredit().keeps(batch, t(*x))  # noqa: E731
    assert said(*good.tolist()) == ""
    assert "before the mistake falls" in said(-1.5, -1.0, -1.0, 0.5, 0.5)
    assert "behind the mistake rises" in said(0.3, -0.9, -1.0, 0.5, 0.5)
    assert "wrong sign" in said(-0.5, -1.0, -1.0, 0.5, 0.5)
    assert "not shaped changes" in said(0.3, -1.0, -1.0, 0.5, 0.6)


# ---- gradients -----------------------------------------------------------------------------------------------
def test_a_group_that_is_all_wrong_learns() -> None:
    """GRPO's advantage is 0 there; one token before the mistake and two after it, old policy: gradients -A / N."""
    batch = judged([{"n": 3, "a": 0.0, "found": 1.0, "b": 1}] * 2)
    three = t(-1.0, -2.0, -0.5, -1.0, -2.0, -0.5)
    told = dict.fromkeys(("old_logp", "behavior_logp", "sampler_logp"), three)
    batch = batch.with_({**told, "score": t(0, 0), "group": torch.zeros(2, dtype=torch.long)})
    plan = running(cliff(grpo()))
    done = plan.weigh(plan.credit(batch))
    logp = batch["old_logp"].clone().requires_grad_()
    plan.loss("policy", Now(logp), replace(done, whole=False))[0].backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == pytest.approx([-0.3 / 6, 0.5 / 6, 0.5 / 6] * 2)


def test_one_step_makes_the_prefix_likelier_and_the_suffix_less_likely() -> None:
    """A softmax of its own for every token of a row of four, one step of gradient descent."""
    logits = torch.randn(4, 6, generator=torch.Generator().manual_seed(1), dtype=F64, requires_grad=True)
    token = torch.tensor([1, 4, 0, 2])
    logp = torch.log_softmax(logits, -1).gather(-1, token[:, None])[:, 0]
    batch = judged([{"n": 4, "a": -0.7, "found": 1.0, "b": 2}])
    told = dict.fromkeys(("old_logp", "behavior_logp", "sampler_logp"), logp.detach())
    plan = running(cliff(grpo()))
    done = plan.weigh(plan.credit(batch.with_({**told, "score": t(0)})))
    plan.loss("policy", Now(logp), replace(done, whole=False))[0].backward()
    assert logits.grad is not None
    after = torch.log_softmax((logits - 0.1 * logits.grad).detach(), -1).gather(-1, token[:, None])[:, 0]
    assert torch.sign(after - logp.detach()).tolist() == [1, 1, -1, -1]


# ---- balance and no outcome ----------------------------------------------------------------------------------
def test_balance_lowers_up_until_gains_are_no_more_than_losses() -> None:
    """Five tokens before mistakes and two after them, A = -.5: gains 5 u, losses 1, so u = .2; with one of the five
    worth .6 already, .6 + 4 u = 1 and u = .1; where losses are larger, up stays; where nothing helps, 0."""
    rows = [{"n": 4, "a": -0.5, "found": 1.0, "b": 3}, {"n": 3, "a": -0.5, "found": 1.0, "b": 2}]
    piece = FirstMistakeCredit(balance=True)
    assert piece(judged(rows)).tolist() == pytest.approx([0.2, 0.2, 0.2, -0.5, 0.2, 0.2, -0.5])
    assert balanced(t(0.6, -1, -1, -1, 0), t(1.0), 0.3) == pytest.approx(0.1)
    assert balanced(t(-1, -1), t(1.0), 0.3) == 0.3
    assert balanced(t(2.0, 0.0), t(1.0), 0.3) == 0.0


def test_without_an_outcome_the_judge_alone_pays() -> None:
    rows = [
        {"n": 3, "a": 9.0, "found": 1.0, "b": 1},
        {"n": 2, "a": 9.0, "found": 0.0, "answer": 1},
        {"n": 2, "a": 9.0, "found": NAN},
    ]
    assert JudgeAlone()(judged(rows)).tolist() == [0.3, -0.5, -0.5, 0.3, 0.3, 0, 0]
    plan = running(cliff(grpo(), outcome=False))
    assert not plan.learns_from_verdicts
    assert cut_invariance(cliff(grpo(), outcome=False)).ok
    assert finiteness(cliff(grpo(), outcome=False)).ok


# ---- asking --------------------------------------------------------------------------------------------------
class Letters:
    """A renderer with a token for each entry of `words`."""

    def __init__(self, *words: str):
        self.words = words

    def spans(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        said = [self.words[i] for i in ids]
        ends = np.cumsum([len(x) for x in said]).tolist()
        return "".join(said), [(end - len(x), end) for end, x in zip(ends, said)]


@dataclass
class Says:
    """A judge that says these things in turn, the last for ever."""

    answers: Any
    asked: list[FirstMistake] = field(default_factory=list)
    sees_all: bool = False

    async def ask(self, question: FirstMistake, key: int) -> Said:
        self.asked.append(question)
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return Said(answer)

    def check(self, tasks: Any) -> None: ...


# token by token: "7+" "5=1" "\n1" "*3=4" "\n" "#4" "."
WORDS = Letters("p", "7+", "5=1", "\n1", "*3=4", "\n", "#4", ".")
TASK = Task("t", "?", "3", meta={"steps": ["7+5=1", "1*3=3"]}, made_by="modular_chains")


def row(ids: Sequence[int], status: Any = "finished", id: str = "r") -> Rollout:
    chain = Chain(TASK, id, 0)
    chain.add([0], Origin.PROMPT)
    chain.add(ids, Origin.POLICY)
    return chain.end(status)


def told(judge: Any, *rows: tuple[Rollout, str, str | None], **settings: Any) -> dict[str, list[Any]]:
    """What the annotation says of rows with verdict and extracted answer; without the prompt's token."""
    verdicts = {r.episode: Verdict(label, float(label == "right"), extracted=x) for r, label, x in rows}  # type: ignore[arg-type]
    group = Group("g", TASK, tuple(r for r, _, _ in rows), verdicts)
    world: Any = type("World", (), {"renderer": WORDS, "judge": Bench(judge, "test"), "key": 3})
    found, after, answer = asyncio.run(FirstMistakes(**settings)(group, world)).values()
    return {"found": found, "after": [x[1:].tolist() for x in after], "answer": [x[1:].tolist() for x in answer]}


WRONG = (row(range(1, 7)), "wrong", "4")


def test_the_mistake_begins_at_the_first_token_that_wrote_any_of_it() -> None:
    """Steps "7+5=1\\n", "1*3=4\\n", "#4"; the second begins inside the token "\\n1", which belongs to it."""
    judge = Says([1])
    got = told(judge, WRONG)
    assert judge.asked[0].steps == ("7+5=1\n", "1*3=4\n", "#4")
    assert got == {"found": [1.0], "after": [[0, 0, 1, 1, 1, 1]], "answer": [[0, 0, 0, 0, 0, 1]]}
    assert told(Says([0]), WRONG)["after"] == [[1] * 6]
    assert told(Says([2]), WRONG)["after"] == [[0, 0, 0, 0, 0, 1]]
    assert told(Says([None]), WRONG) == {"found": [0.0], "after": [[0] * 6], "answer": [[0, 0, 0, 0, 0, 1]]}


def test_streams_reach_the_batch_at_trained_tokens() -> None:
    wrong, right = row(range(1, 7)), row([1, 2], id="s")
    verdicts = {"r": Verdict("wrong", 0.0, extracted="4"), "s": Verdict("right", 1.0)}
    group = Group("g", TASK, (wrong, right), verdicts)
    world: Any = type("World", (), {"renderer": WORDS, "judge": Bench(Says([1]), "test"), "key": 3})
    group = replace(group, streams=asyncio.run(FirstMistakes()(group, world)))
    batch = pack([group], dtype=F64)
    assert batch[AFTER].tolist() == [0, 0, 1, 1, 1, 1, 0, 0]
    assert batch[FOUND].tolist()[0] == 1.0
    assert math.isnan(batch[FOUND].tolist()[1])  # a right answer was not asked about


def test_only_those_are_asked_about_whose_answer_could_matter() -> None:
    rows = [
        (row([1, 2], id="wrong"), "wrong", None),
        (row([1, 3], id="right"), "right", None),
        (row([1, 4], id="unknown"), "unknown", None),
        (row([], id="empty"), "wrong", None),
        (row([5], id="blank"), "wrong", None),
        (row([1, 5], "failed", "failed"), "wrong", None),
    ]
    for settings, names in (({}, 1), ({"right": True}, 2), ({"every": True}, 3)):
        judge = Says([0])
        got = told(judge, *rows, **settings)
        assert len(judge.asked) == names
        assert [math.isnan(x) for x in got["found"]] == [n >= names for n in range(6)]


def test_an_answer_whose_place_is_not_known_is_not_blamed() -> None:
    for extracted in (None, "", "17", "7+5=1"):  # the last one is how everything begins
        assert told(Says([None]), (row(range(1, 7)), "wrong", extracted))["answer"] == [[0] * 6]
    assert told(Says([None]), (row([6, 1, 2, 7]), "wrong", "1"))["answer"] == [[0, 0, 1, 1]]  # the last one written


def test_a_judge_that_fails_leaves_the_row_as_it_is() -> None:
    got = told(Says([JudgeFailed("silent")]), WRONG)
    assert math.isnan(got["found"][0])
    assert got["after"] == [[0] * 6]
    for broken in (JudgeBroken("gone"), VerifierBroken("gone")):
        with pytest.raises(type(broken)):
            told(Says([broken]), WRONG)


def test_equal_answers_are_judged_once() -> None:
    judge = Says([1])
    got = told(judge, WRONG, (row(range(1, 7), id="again"), "wrong", "4"))
    assert len(judge.asked) == 1
    assert got["after"][0] == got["after"][1]


def test_votes_are_counted() -> None:
    assert median_place([2, None, 0, 1, 4]) == 1  # the earlier of the middle two
    assert median_place([None, None, 3]) is None
    assert median_place([None, 3]) is None
    assert median_place([1, 5, 2]) == 2
    judge = Says([0, 2, 2])
    assert told(judge, WRONG, votes=3)["after"] == [[0, 0, 0, 0, 0, 1]]
    assert len(judge.asked) == 3
    assert told(Says([JudgeFailed("x"), 2, None]), WRONG, votes=3)["found"] == [0.0]  # one of two
    assert told(Says([JudgeFailed("x"), 2]), WRONG, votes=3)["found"] == [1.0]


def test_the_judge_learns_the_gold_only_where_the_method_says_so() -> None:
    for gold, reference in ((False, None), (True, "3")):
        judge = Says([1])
        told(judge, WRONG, gold=gold)
        assert judge.asked[0].reference == reference
        assert judge.asked[0].task.answer is None
        assert "steps" not in judge.asked[0].task.meta


def test_a_rollout_that_was_cut_off_is_judged_as_far_as_it_goes() -> None:
    """By the oracle: "7+5=1", "1*3=4" is wrong at its second step; cut off within it nothing is."""
    oracle = Oracle()
    assert told(oracle, (row([1, 2, 3, 4, 5], "truncated"), "wrong", None))["found"] == [0.0]
    assert told(oracle, (row([1, 2, 3, 4, 5, 6], "truncated"), "wrong", None))["after"] == [[0, 0, 1, 1, 1, 1]]


# ---- settings, metrics, toy ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cliff(up=0.0)", "sizes above 0"),
        ("cliff(down=-0.5)", "sizes above 0"),
        ("cliff(votes=0)", "at least once; got 0"),
        ("cliff(outcome=False,balance=True)", "the judge alone pays"),
        ("cliff(outcome=False,only='after')", "the judge alone pays"),
    ],
)
def test_settings_that_make_no_sense_are_refused(text: str, says: str) -> None:
    with pytest.raises(StackError, match=says):
        build_method(text)


def test_whom_one_believes_follows_from_what_the_judge_knows() -> None:
    def pieces(method: Method) -> tuple[Any, Any]:
        stack = running(method).stack
        return stack.one("annotate"), stack.one("reshape")

    asked, credit = pieces(cliff(grpo()))
    assert (asked.right, asked.gold, credit.trust) == (False, False, "outcome")
    asked, credit = pieces(cliff(grpo(), gold=True))
    assert (asked.right, asked.gold, credit.trust) == (True, True, "judge")
    asked, credit = pieces(cliff(grpo(), gold=True, trust="outcome"))
    assert (asked.right, credit.trust) == (False, "outcome")


@pytest.mark.parametrize("settings", [{"gold": True}, {"balance": True}, {"only": "before"}, {"only": "after"}])
def test_every_form_keeps_the_laws(settings: Any) -> None:
    method = cliff(grpo(), **settings)
    assert cut_invariance(method).ok
    assert finiteness(method).ok
    assert promises(method).ok


def test_it_tells_what_the_judge_found() -> None:
    rows = [
        {"n": 4, "a": -1.0, "found": 1.0, "b": 1},
        {"n": 2, "a": -1.0, "found": 1.0, "b": 1},
        {"n": 2, "a": 1.0, "found": 0.0, "right": True},
        {"n": 2, "a": 1.0, "found": 1.0, "b": 0, "right": True},
        {"n": 2, "a": -1.0, "found": NAN},
    ]
    got = {name: tally.value() for name, tally in FirstMistakeCredit().tell(judged(rows)).items()}
    assert got == {
        "cliff/judged": 0.8,
        "cliff/found": 0.75,
        "cliff/shaped": 0.4,  # the first two
        "cliff/before": pytest.approx((0.25 + 0.5) / 2),
        "cliff/conflict": 0.5,
    }


def test_on_the_toy_wrong_answers_are_parted_and_an_unheard_judge_gives_grpo() -> None:
    toy = toy_step("cliff", prompts_per_step=16)
    assert toy.told["cliff/found"] > 0.9
    assert 0.1 < toy.told["cliff/before"] < 0.9
    assert toy.told["policy/clip_frac"] > 0.01
    mine, base = toy.gradients("cliff"), toy.gradients("grpo")
    assert float((mine.logp - base.logp).abs().max()) > 0.1 * float(base.logp.abs().max())
    quiet = replace(toy, batch=nobody_judged(toy.batch, None)[0])
    assert torch.equal(quiet.gradients("cliff").logp, base.logp)

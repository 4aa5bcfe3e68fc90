"""The laws of rlvr.testing over every registered method, and every pair of them."""

import itertools

import pytest
import torch

from rlvr import testing
from rlvr.method import Contradiction, Method
from rlvr.registry import get, names
from rlvr.reward.pays import Pays

PAPERS = [n for n in names("method") if n != "grpo"]


@pytest.mark.parametrize("name", names("method"))
def test_laws(name: str) -> None:
    broken = [f"{r.law}: {r.detail}" for r in testing.check(name) if not r.ok]
    assert not broken, broken


def stacked(order: tuple[str, ...]) -> Method:
    method = get("method", "grpo")()
    for name in order:
        method = get("method", name)(method)
    return method


def sentence_or_plan(order: tuple[str, ...]) -> str:
    try:
        return str(stacked(order).plan(40, reward=Pays()))
    except Contradiction as refusal:
        return f"refused: {refusal}"


@pytest.mark.parametrize("pair", list(itertools.combinations(PAPERS, 2)), ids="+".join)
def test_pairs_commute_or_are_refused_alike(pair: tuple[str, str]) -> None:
    one, other = sentence_or_plan(pair), sentence_or_plan(pair[::-1])
    assert one == other
    if one.startswith("refused"):
        return
    batch, policy = testing.random_batch(0)
    got = testing.outcome(testing.running(stacked(pair)), batch, policy)
    assert bool(torch.isfinite(got.logp).all())
    assert testing.cut_invariance(stacked(pair)).ok

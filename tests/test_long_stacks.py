"""Three to six papers at once, drawn at random from all that there are: in any order one plan, or one refusal."""

from random import Random

import pytest
import torch

from rlvr import testing
from rlvr.method import Contradiction, Method
from rlvr.registry import get, names
from rlvr.reward.pays import Pays

PAPERS = [n for n in names("method") if n != "grpo"]


def stacked(order: list[str]) -> Method:
    method = get("method", "grpo")()
    for name in order:
        method = get("method", name)(method)
    return method


def drawn(n: int, refused: bool) -> list[list[str]]:
    """The first n random stacks, of a fixed seed, that are refused or that are not."""
    chance, out = Random(7), []
    while len(out) < n:
        stack = chance.sample(PAPERS, chance.randint(3, 6))
        try:
            stacked(stack).plan(40, reward=Pays())
        except Contradiction:
            out += [stack] if refused else []
        else:
            out += [] if refused else [stack]
    return out


@pytest.mark.parametrize("stack", drawn(50, refused=False), ids="+".join)
def test_what_stacks_runs_in_any_order_and_however_it_is_cut(stack: list[str]) -> None:
    shuffled = Random(1).sample(stack, len(stack))
    assert stacked(stack).placed == stacked(shuffled).placed
    method = stacked(stack)
    assert testing.cut_invariance(method).ok
    assert testing.finiteness(method).ok
    batch, policy = testing.random_batch(0)
    got = testing.outcome(testing.running(method), batch, policy)
    assert bool(torch.isfinite(got.logp).all())


@pytest.mark.parametrize("stack", drawn(20, refused=True), ids="+".join)
def test_what_does_not_is_refused_alike_in_any_order(stack: list[str]) -> None:
    said = set()
    for order in (stack, stack[::-1], Random(1).sample(stack, len(stack))):
        with pytest.raises(Contradiction) as caught:
            stacked(order).plan(40, reward=Pays())
        said.add(str(caught.value))
    assert len(said) == 1
    assert sum(name in said.copy().pop() for name in stack) >= 2

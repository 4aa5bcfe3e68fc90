"""Chains, rollouts and their packing."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from rlvr.pack import pack
from rlvr.records import Chain, Drift, Group, Origin, Task, Verdict, digest, mix
from rlvr.streams import declare

declare("row", "test/hint", "a fact of a rollout")
declare("token", "test/mark", "a fact of a token")


@dataclass(frozen=True)
class Drawn:
    """What a sampler returns."""

    ids: list[int]
    context: str
    streams: dict[str, list[float]] = field(default_factory=dict)
    finish: str = "stop"
    version: int = 3
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


def started(id: str = "r", prompt: tuple[int, ...] = (1, 5, 6)) -> Chain:
    chain = Chain(Task("t", "p"), id, key=7)
    chain.add(list(prompt), Origin.PROMPT)
    return chain


def drawn(chain: Chain, *ids: int) -> Drawn:
    return Drawn(
        list(ids), digest(chain.ids), {"logp": [-float(i) for i in ids], "plain_logp": [-float(i) for i in ids]}
    )


def test_a_chain_remembers_who_wrote_what() -> None:
    chain = started()
    chain.extend(drawn(chain, 8, 9))
    chain.add([4, 4], Origin.ENVIRONMENT)
    chain.extend(drawn(chain, 2))
    row = chain.end("finished", "stop", "words")
    assert row.ids.tolist() == [1, 5, 6, 8, 9, 4, 4, 2]
    assert row.origin.tolist() == [0, 0, 0, 1, 1, 2, 2, 1]
    assert row.turn.tolist() == [-1, -1, -1, 0, 0, -1, -1, 1]
    assert [(t.start, t.end, t.version) for t in row.turns] == [(3, 5, 3), (7, 8, 3)]
    np.testing.assert_array_equal(row.streams["logp"], [np.nan] * 3 + [-8, -9, np.nan, np.nan, -2])


def test_a_sampler_that_continued_other_ids_is_found_out() -> None:
    chain = started()
    with pytest.raises(Drift, match="another context"):
        chain.extend(Drawn([8], digest([1, 5])))


def test_a_cut_drops_tokens_and_changes_the_noise() -> None:
    chain = started()
    before = chain.noise_key
    chain.extend(drawn(chain, 8, 9, 10))
    chain.cut(4)
    assert chain.ids == [1, 5, 6, 8]
    assert chain.noise_key != before
    assert chain.turns[0].end == 4
    with pytest.raises(ValueError, match=r"owns 0\.\.4"):
        chain.cut(5)


def test_a_fork_owns_only_what_comes_after_its_parent() -> None:
    chain = started()
    chain.extend(drawn(chain, 8, 9, 10))
    parent = chain.end("finished")
    fork = Chain(Task("t", "p"), "child", 8, parent=parent, fork_at=4)
    fork.extend(drawn(fork, 11))
    child = fork.end("finished")
    assert child.ids.tolist() == [1, 5, 6, 8, 11]
    assert np.flatnonzero(child.owned()).tolist() == [4]
    assert np.flatnonzero(parent.owned()).tolist() == [3, 4, 5]
    with pytest.raises(ValueError, match="cannot cut"):
        fork.cut(3)
    with pytest.raises(ValueError, match=r"it owns 4\.\.5"):
        Chain(Task("t", "p"), "grandchild", 9, parent=child, fork_at=3)


def test_no_token_is_trained_twice_and_paths_count_parents() -> None:
    chain = started()
    chain.extend(drawn(chain, 8, 9, 10))
    parent = chain.end("finished")
    fork = Chain(Task("t", "p"), "child", 8, parent=parent, fork_at=4)
    fork.extend(drawn(fork, 11, 12))
    child = fork.end("truncated")
    group = Group("g", Task("t", "p"), (parent, child), {"r": Verdict("right", 1.0), "child": Verdict("unknown", 0.0)})
    batch = pack([group])
    assert batch["token"].tolist() == [8, 9, 10, 11, 12]
    assert batch.length.tolist() == [3, 2]
    assert batch["path_length"].tolist() == [3, 3]
    assert batch["known"].tolist() == [True, False]
    assert batch["truncated"].tolist() == [False, True]
    assert batch["sampler_logp"].tolist() == [-8, -9, -10, -11, -12]
    assert batch.chains is not None
    ids, _ = batch.chains.padded(torch.arange(2))
    assert ids[batch.row, batch.chains.at].tolist() == batch["token"].tolist()


def test_parts_and_annotations_become_streams() -> None:
    chain = started("a")
    chain.extend(drawn(chain, 8, 9))
    row = chain.end("finished")
    other = started("b").end("failed")
    marks = (np.arange(5.0), np.arange(3.0))
    group = Group(
        "g",
        Task("t", "p"),
        (row, other),
        {"a": Verdict("right", 1.0, parts={"raw": 2.5}), "b": Verdict("unknown", 0.0)},
        streams={"test/hint": np.array([4.0, 5.0]), "test/mark": marks},  # type: ignore[dict-item]
    )
    batch = pack([group])
    assert batch["part/raw"].tolist()[0] == 2.5
    assert np.isnan(batch["part/raw"].tolist()[1])
    assert batch["test/hint"].tolist() == [4, 5]
    assert batch["test/mark"].tolist() == [3, 4]
    short = Group("g", Task("t", "p"), (row,), {}, streams={"test/mark": (np.arange(2.0),)})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="'test/mark' has 2 values for 5 ids"):
        pack([short])


def test_a_trained_token_needs_something_before_it() -> None:
    chain = Chain(Task("t", ""), "r", 0)
    chain.add([5], Origin.POLICY)
    with pytest.raises(ValueError, match="r: its first token is trained"):
        pack([Group("g", Task("t", ""), (chain.end("finished"),))])


def test_keys_depend_on_the_path_only() -> None:
    assert mix(1, "a", 2) == mix(1, "a", 2)
    assert len({mix(1, "a", 2), mix(1, "a", 3), mix(2, "a", 2), mix(1, "a2"), mix(1, "a", "2")}) == 5
    assert all(0 <= mix(0, i) < 2**63 for i in range(100))


def test_golds_stay_with_the_verifier() -> None:
    task = Task("t", "p", answer="42", meta={"level": 1, "demo": "40+2=42", "steps": ["40+2"]})
    assert task.public() == Task("t", "p", meta={"level": 1})


def test_groups_are_told_by_their_known_verdicts() -> None:
    group = lambda *labels: Group("g", Task("t", "p"), (), {str(i): Verdict(x, 0.0) for i, x in enumerate(labels)}).kind  # noqa: E731
    assert group("right", "right", "unknown") == "solved"
    assert group("wrong", "unknown") == "failed"
    assert group("right", "wrong") == "mixed"
    assert group("unknown") == "unknown"

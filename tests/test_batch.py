"""Packed streams and their reductions, against loops and hand-worked values."""

import math

import pytest
import torch

from rlvr import streams
from rlvr.batch import Batch, Chains, Tally, merge, ratio_at
from rlvr.testing import random_batch

F64 = torch.float64


def t(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=F64)


@pytest.fixture
def batch() -> Batch:
    """Three rows of 2, 0 and 3 tokens; rows 0 and 2 are one group."""
    return Batch.pack(torch.tensor([2, 0, 3]), group=torch.tensor([0, 1, 0]))


def test_row_reductions_count_empty_rows_as_zero(batch: Batch) -> None:
    x = t(1, 2, 3, 4, 5)
    assert batch.row_sum(x).tolist() == [3, 0, 12]
    assert batch.row_mean(x).tolist() == [1.5, 0, 4]
    assert batch.row_sum(torch.tensor([True, True, False, True, True])).tolist() == [2, 0, 2]
    assert batch.row_sum(torch.stack([x, -x], 1)).tolist() == [[3, -3], [0, 0], [12, -12]]


def test_row_sum_carries_gradient(batch: Batch) -> None:
    x = t(1, 2, 3, 4, 5).requires_grad_()
    (batch.row_mean(x) * t(2, 7, 3)).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1, 1, 1, 1, 1]  # 2/2, 2/2, 3/3 ...


def test_scan_is_the_recursion_along_each_row() -> None:
    batch, _ = random_batch(1)
    x = torch.randn(len(batch.row), dtype=F64, generator=torch.Generator().manual_seed(0))
    for keep in (0.0, 0.5, 1.0):
        forward, backward = [], []
        for row in x.split(batch.length.tolist()):
            y, out = 0.0, []
            for v in row.tolist():
                y = v + keep * y
                out.append(y)
            forward += out
            y, out = 0.0, []
            for v in reversed(row.tolist()):
                y = v + keep * y
                out.append(y)
            backward += out[::-1]
        torch.testing.assert_close(batch.scan(x, keep), t(*forward), rtol=0, atol=1e-12)
        torch.testing.assert_close(batch.scan(x, keep, reverse=True), t(*backward), rtol=0, atol=1e-12)


def test_shift_stops_at_the_ends_of_rows(batch: Batch) -> None:
    x = t(1, 2, 3, 4, 5)
    assert batch.shift(x, 1, -1).tolist() == [2, -1, 4, 5, -1]
    assert batch.shift(x, -2, 0).tolist() == [0, 0, 0, 0, 3]
    assert batch.shift(x, 9, 7).tolist() == [7] * 5
    assert batch.shift(x, 0, 7).tolist() == x.tolist()


def test_segment_means_never_cross_rows(batch: Batch) -> None:
    start = torch.tensor([True, False, False, True, False])  # the third token's mark is missing: it starts a row
    assert batch.segment_mean(t(1, 3, 10, 2, 4), start).tolist() == [2, 2, 10, 3, 3]
    assert batch.mean_at(t(1, 3, 10, 2, 4), "row").tolist() == [2, 2, 16 / 3, 16 / 3, 16 / 3]
    assert batch.mean_at(t(1, 3, 10, 2, 4), "token").tolist() == [1, 3, 10, 2, 4]


def test_row_quantile_interpolates(batch: Batch) -> None:
    where = torch.tensor([True, True, True, True, False])
    got = batch.row_quantile(t(1, 3, 10, 2, 99), 0.25, where)
    assert got.tolist() == [1.5, math.inf, 4.0]


def test_group_statistics_count_each_known_episode_once() -> None:
    """Rows 1 and 2 are one episode: rewards 1, 4, 7 of three episodes; the fourth has no verdict."""
    batch = Batch.pack(
        torch.tensor([1, 1, 1, 1, 1]),
        group=torch.zeros(5, dtype=torch.long),
        episode=torch.tensor([0, 1, 1, 2, 3]),
        known=torch.tensor([True, True, True, True, False]),
    )
    x = t(1, 4, 4, 7, math.nan)
    assert batch.group_count().tolist() == [3] * 5
    assert batch.group_mean(x).tolist() == [4] * 5
    assert batch.group_std(x).tolist() == [math.sqrt(6)] * 5


def test_equal_rewards_have_no_spread_at_any_size() -> None:
    for value in (0.1, 0.95, 1e6 / 3, 1e-9):
        batch = Batch.pack(torch.ones(7, dtype=torch.long), group=torch.zeros(7, dtype=torch.long))
        for dtype in (torch.float32, F64):
            assert batch.group_std(torch.full((7,), value, dtype=dtype)).tolist() == [0.0] * 7


def test_group_sums_do_not_depend_on_the_order_of_rows() -> None:
    batch, _ = random_batch(2)
    x = torch.randn(len(batch), dtype=torch.float32, generator=torch.Generator().manual_seed(1)) * 1e4
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(2))
    moved = batch.take(order)
    assert torch.equal(batch.group_sum(x)[order], moved.group_sum(x[order]))


def test_group_statistics_refuse_inside_a_loss(batch: Batch) -> None:
    with pytest.raises(RuntimeError, match="micro-batch"):
        batch.take(torch.tensor([0]), whole=False).group_mean(t(1))


def test_streams_are_checked(batch: Batch) -> None:
    with pytest.raises(streams.UnknownStream, match="did you mean 'advantage'"):
        batch.with_({"advantge": t(1, 2, 3, 4, 5)})
    with pytest.raises(ValueError, match=r"has shape \(3,\); this batch has 5 tokens"):
        batch.with_({"advantage": t(1, 2, 3)})
    with pytest.raises(ValueError, match="carries gradient"):
        batch.with_({"advantage": t(1, 2, 3, 4, 5).requires_grad_()})
    with pytest.raises(KeyError, match="must list it in `needs`"):
        batch["advantage"]


def test_two_papers_cannot_declare_one_name_differently() -> None:
    streams.declare("token", "someone/start", "a")
    streams.declare("token", "someone/start", "a")
    with pytest.raises(ValueError, match="already declared"):
        streams.declare("row", "someone/start", "a")


def test_take_keeps_streams_and_chains_together() -> None:
    chains = Chains.of([[9, 1, 2], [9, 9], [9, 3, 9, 4, 5]], [[1, 2], [], [1, 3, 4]])
    batch = Batch.pack(torch.tensor([2, 0, 3]), chains, token=torch.tensor([1, 2, 3, 4, 5]))
    part = batch.take(torch.tensor([2, 0]))
    assert part["token"].tolist() == [3, 4, 5, 1, 2]
    assert part.chains is not None
    ids, lengths = part.chains.padded(torch.arange(2))
    assert ids.tolist() == [[9, 3, 9, 4, 5], [9, 1, 2, 0, 0]]
    assert lengths.tolist() == [5, 3]
    assert ids[part.row, part.chains.at].tolist() == part["token"].tolist()
    assert part.take(torch.tensor([1])).chains.row(0).tolist() == [9, 1, 2]  # type: ignore[union-attr]


def test_cuts_hold_the_budget_and_never_part_what_belongs_together() -> None:
    batch, _ = random_batch(3, rows=40)
    for together in ("row", "group", "episode"):
        unit = batch.units(together)
        for budget in (1, 50, 300):
            parts = batch.cut(budget, together)
            assert sorted(torch.cat(parts).tolist()) == list(range(40))
            for part in parts:
                inside = set(unit[part].tolist())
                assert all(int((unit == u).sum()) == int((unit[part] == u).sum()) for u in inside)
                assert len(inside) == 1 or len(part) * int(batch.length[part].max()) <= budget


def test_rows_without_a_pair_stand_alone() -> None:
    batch = Batch.pack(torch.ones(4, dtype=torch.long), pair=torch.tensor([0, -1, 0, -1]))
    unit = batch.units("pair").tolist()
    assert unit[0] == unit[2]
    assert len(set(unit)) == 3


def test_ratio_at_row_level_is_the_geometric_mean(batch: Batch) -> None:
    got = ratio_at(t(0.1, 0.2, 1, 2, 3), torch.zeros(5, dtype=F64), batch, "row")
    torch.testing.assert_close(got, t(*[math.exp(0.15)] * 2, *[math.exp(2)] * 3))
    assert math.isfinite(float(ratio_at(t(500), t(-500), Batch.pack(torch.tensor([1])))))


def test_tallies_add_up() -> None:
    told = {"a": Tally.mean(t(1, 2)), "b": Tally.max(t(1, 5)), "c": Tally(2.0, 1.0, "sum")}
    merge(told, {"a": Tally.mean(t(9), torch.tensor([True])), "b": Tally.max(t(3)), "c": Tally(3.0, 1.0, "sum")})
    assert told["a"].value() == 4
    assert told["b"].value() == 5
    assert told["c"].value() == 5
    assert math.isnan(Tally.mean(t(1), torch.tensor([False])).value())

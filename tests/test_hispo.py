"""HISPO against the paper's text, one token after another in plain Python."""

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from toy import toy_step

from rlvr.batch import Batch, Now
from rlvr.loss.ratio import Ratio
from rlvr.loss.reduction import RowMean, RowSum
from rlvr.method import Method
from rlvr.methods.grpo import grpo
from rlvr.methods.hispo import EntropySegments, Saliency, SegmentMean, flat_entropy, hispo
from rlvr.stacking import StackError, build_method
from rlvr.testing import cut_invariance, finiteness, outcome, random_batch, running

F64 = torch.float64


def t(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=F64)


def rows(*entropy: list[float]) -> Batch:
    return Batch.pack(torch.tensor([len(x) for x in entropy]), entropy=t(*(h for x in entropy for h in x)))


def segments(batch: Batch, **settings: Any) -> list[list[int]]:
    """Of each row, the 1-based positions b_1 .. b_K of its segments' last tokens."""
    start = EntropySegments(**settings)(batch)["hispo/start"].split(batch.length.tolist())
    return [[*(x[1:].nonzero()[:, 0] + 1).tolist(), len(x)] if len(x) else [] for x in start]


def by_the_text(entropy: list[float], a: float, q: float, window: int) -> list[int]:
    """b_1 .. b_K as the paper says it."""
    n, e = len(entropy), [0.0]  # 1-based
    for i, h in enumerate(entropy):
        e.append(h if i == 0 else a * h + (1 - a) * e[-1])
    inner = range(2, n)
    cutoff = np.quantile([e[i] for i in inner], q) if n > 2 else math.inf
    ends: list[int] = []
    for i in inner:
        near = [e[j] for j in range(max(1, i - window // 2), min(n, i + window // 2) + 1)]
        candidate = e[i] >= cutoff and e[i] >= e[i - 1] and e[i] > e[i + 1]
        if candidate and e[i] >= max(near) and (not ends or i - ends[-1] > window):
            ends.append(i)
    return [*ends, n]


# ---- segments ------------------------------------------------------------------------------------------------
def test_of_three_peaks_two_within_the_window_the_higher_one_cuts() -> None:
    """Unsmoothed. Peaks at 3 (height 5), 6 (4) and 12 (3); with a window of 6 the second is too near the first."""
    trace = [0, 1, 5, 1, 0, 4, 0, 0, 0, 0, 0, 3, 0, 0]
    settings = {"smoothing": 1.0, "quantile": 0.6}
    assert segments(rows(trace), window=6, **settings) == [[3, 12, 14]]
    assert segments(rows(trace), window=2, **settings) == [[3, 6, 12, 14]]
    assert segments(rows(trace), window=9, **settings) == [[3, 14]]  # 12 - 3 is not more than 9
    assert segments(rows(trace), window=2, smoothing=1.0, quantile=0.95) == [[3, 14]]  # the other peaks are too low


def test_smoothing_by_hand() -> None:
    """a = .5 on 0, 4, 0, 8, 0, 0: e = 0, 2, 1, 4.5, 2.25, 1.125; the .5-quantile of 2, 1, 4.5, 2.25 is 2.125."""
    batch = rows([0, 4, 0, 8, 0, 0])
    assert segments(batch, smoothing=0.5, quantile=0.5, window=1) == [[4, 6]]
    assert segments(batch, smoothing=0.5, quantile=0.3, window=1) == [[2, 4, 6]]  # the .3-quantile is 1.9


@pytest.mark.parametrize(("a", "q", "window"), [(0.1, 0.6, 64), (0.3, 0.6, 8), (0.6, 0.5, 3), (1.0, 0.0, 1), (1, 1, 5)])
def test_segments_are_those_of_the_text_on_random_rows(a: float, q: float, window: int) -> None:
    noise = torch.Generator().manual_seed(0)
    lengths = [0, 1, 2, 3, 5, 17, 40, 41, 130, 300]
    traces = [torch.rand(n, generator=noise, dtype=F64).tolist() for n in lengths]
    got = segments(rows(*traces), smoothing=a, quantile=q, window=window)
    assert got == [by_the_text(x, a, q, window) if x else [] for x in traces]
    for ends, n in zip(got, lengths):
        assert ends == sorted(set(ends))
        assert not n or ends[-1] == n
        inner = ends[:-1]
        assert all(b - a > window for a, b in itertools.pairwise(inner))
    assert max(map(len, got)) > 2 or q == 1


def test_short_and_flat_rows_are_one_segment() -> None:
    flat = rows([0.3], [0.9, 0.1], [0.1] * 50, [0.0] * 50, [2.7] * 333)
    for settings in ({}, {"smoothing": 0.3, "window": 8}, {"smoothing": 1.0, "window": 1}):
        assert segments(flat, **settings) == [[1], [2], [50], [50], [333]]


def test_of_a_flat_top_the_last_token_cuts() -> None:
    assert segments(rows([0, 0, 2, 2, 2, 0, 0]), smoothing=1.0, window=4) == [[5, 7]]


def test_a_lone_inner_peak_cuts_however_wide_the_window_is() -> None:
    assert segments(rows([0, 0, 3, 0, 0]), smoothing=1.0, window=1000) == [[3, 5]]


def test_a_constant_added_to_the_entropy_changes_nothing() -> None:
    batch, _ = random_batch(0, rows=40)
    more = batch.with_({"entropy": batch["entropy"] + 3.0})
    piece = EntropySegments(0.3, 0.6, 4)
    one, other = (b.with_(piece(b)) for b in (batch, more))
    assert int(one["hispo/start"].sum()) > 60
    assert torch.equal(one["hispo/start"], other["hispo/start"])
    torch.testing.assert_close(Saliency(2)(one), Saliency(2)(other))


def test_segments_and_shares_are_of_the_rollout_and_not_of_the_policy() -> None:
    batch, _ = random_batch(0)
    plan = running(hispo(grpo(), window=4))
    later = batch.with_({"now_logp": batch["now_logp"] - 1, "now_entropy": batch["now_entropy"] + 1})
    for name in ("hispo/start", "token_weight"):
        assert torch.equal(plan.credit(batch)[name], plan.credit(later)[name])


def test_random_cuts_are_as_many_elsewhere_and_do_not_depend_on_the_order_of_rows() -> None:
    batch, _ = random_batch(0, rows=40)
    mine, other = (EntropySegments(0.3, 0.6, 4, cut)(batch)["hispo/start"] for cut in ("entropy", "random"))
    assert torch.equal(batch.row_sum(mine), batch.row_sum(other))
    assert bool(other[batch.first[batch.length > 0]].all())
    assert int((mine & other).sum()) < 0.7 * int(mine.sum())
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(1))
    moved = EntropySegments(0.3, 0.6, 4, "random")(batch.take(order))["hispo/start"]
    assert torch.equal(moved, other[batch.token_index(order)])


def test_even_cuts_and_even_shares() -> None:
    batch = rows([1, 2, 3, 4, 5], [], [6, 7])
    batch = batch.with_(EntropySegments(window=2, cut="even")(batch))
    assert batch["hispo/start"].tolist() == [True, False, True, False, True, True, False]
    assert Saliency(1, even=True)(batch).tolist() == pytest.approx([1 / 6] * 4 + [1 / 3] + [1 / 2] * 2)


@pytest.mark.parametrize("cut", ["random", "even"])
def test_controls_keep_the_laws(cut: Any) -> None:
    method = hispo(grpo(), window=4, floor=2, cut=cut, even=True)
    assert cut_invariance(method).ok
    assert finiteness(method).ok


# ---- shares --------------------------------------------------------------------------------------------------
def test_a_rows_weight_is_shared_by_the_mean_entropy_of_its_segments() -> None:
    """Means 2 and 1: e / (1 + e) over two tokens, 1 / (1 + e) over three. A floor of 3 thins the first."""
    batch = rows([1, 3, 0, 1, 2], [0.5]).with_({"hispo/start": torch.tensor([1, 0, 1, 0, 0, 1]).bool()})
    w = math.e / (1 + math.e)
    assert Saliency(1)(batch).tolist() == pytest.approx([w / 2] * 2 + [(1 - w) / 3] * 3 + [1.0])
    assert Saliency(3)(batch).tolist() == pytest.approx([w / 3] * 2 + [(1 - w) / 3] * 3 + [1 / 3])


def test_shares_of_a_row_add_up_to_one_and_the_floor_takes_from_it() -> None:
    batch, _ = random_batch(3, rows=40)
    batch = batch.with_(EntropySegments(0.3, 0.6, 4)(batch))
    busy = batch.length > 0
    torch.testing.assert_close(batch.row_sum(Saliency(1)(batch))[busy], torch.ones(int(busy.sum()), dtype=F64))
    mass = batch.row_sum(Saliency(8)(batch))
    assert bool((mass <= 1 + 1e-12).all())
    assert float(mass.min()) < 0.9
    told = Saliency(8).tell(batch)
    assert told["hispo/mass"].value() == pytest.approx(float(mass[busy].mean()))
    certain = batch.with_({"entropy": torch.zeros_like(batch["entropy"])})
    k = batch.row_sum(batch["hispo/start"])
    torch.testing.assert_close(Saliency(1).shares(certain), batch.spread(1 / k.double()))


def test_large_entropies_do_not_overflow() -> None:
    batch = rows([900.0, 0.0]).with_({"hispo/start": torch.tensor([True, True])})
    assert Saliency(1)(batch).tolist() == [1.0, 0.0]


# ---- the loss ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("floor", [1, 5])
def test_the_loss_equals_the_papers_sum_over_segments(floor: int) -> None:
    """Off-policy, row by row and segment by segment, from the formula with |S_k| min(s_k A_k, ...)."""
    batch, policy = random_batch(6, rows=40)
    settings = {"smoothing": 0.3, "quantile": 0.6, "window": 4}
    got = outcome(running(hispo(grpo(eps=0.0), floor=floor, **settings)), batch, policy)
    advantage = got.batch["row_advantage"]
    lengths = batch.length.tolist()
    total, counted, clipped, segments_seen = 0.0, 0, 0, 0
    for i, (h, d) in enumerate(zip(batch["entropy"].split(lengths), (policy.logp - batch["old_logp"]).split(lengths))):
        if not len(h) or not batch["known"][i]:
            continue
        counted += 1
        ends = by_the_text(h.tolist(), 0.3, 0.6, 4)
        parts = list(zip([0, *ends[:-1]], ends))
        means = [float(h[a:b].mean()) for a, b in parts]
        shares = [math.exp(m) / sum(math.exp(x) for x in means) for m in means]
        for (a, b), w in zip(parts, shares):
            s, value = math.exp(float(d[a:b].mean())), w / max(b - a, floor) * float(advantage[i])
            total -= (b - a) * min(s * value, min(max(s, 0.8), 1.2) * value)
            clipped += (value > 0 and s > 1.2) or (value < 0 and s < 0.8)
            segments_seen += 1
    assert float(got.loss) == pytest.approx(total / counted, rel=1e-9)
    assert segments_seen > 2 * counted
    assert clipped / segments_seen > 0.01


def test_on_policy_every_token_of_a_segment_gets_its_share() -> None:
    """-A w_k / (B' |S_k|)."""
    batch, policy = random_batch(1)
    batch = batch.with_({"old_logp": policy.logp, "behavior_logp": policy.logp})
    got = outcome(running(hispo(grpo(), window=4, floor=1)), batch, policy)
    counted = int(((batch.length > 0) & batch["known"]).sum())
    want = -got.batch["advantage"] * Saliency(1)(got.batch) * batch.spread(batch["known"]) / counted
    torch.testing.assert_close(got.logp, want)
    assert bool(want.any())


@pytest.mark.parametrize("seed", range(3))
def test_one_segment_a_row_is_gspo_where_the_floor_takes_nothing(seed: int) -> None:
    batch, policy = flat_entropy(*random_batch(seed))
    base = outcome(running(build_method("gspo(clip_low=0.2,clip_high=0.2)")), batch, policy)
    assert outcome(running(hispo(grpo(), floor=1)), batch, policy).gap(base) < 1e-15
    assert outcome(running(hispo(grpo(), floor=20)), batch, policy).gap(base) > 1e-4
    long = (batch.length >= 20).nonzero()[:, 0]
    some, theirs = batch.take(long), policy.take(batch.token_index(long))
    base = outcome(running(build_method("gspo(clip_low=0.2,clip_high=0.2)")), some, theirs)
    shares = outcome(running(hispo(grpo(), floor=20)), some, theirs)  # |S| >= 20: the floor does nothing
    assert shares.gap(base) < 1e-15


@dataclass(frozen=True)
class EveryToken:
    """Every token a segment."""

    needs: ClassVar = ()
    gives: ClassVar = ("hispo/start",)

    def __call__(self, batch: Batch) -> dict[str, torch.Tensor]:
        return {"hispo/start": torch.ones_like(batch.row, dtype=torch.bool)}


def every_token(method: Method) -> Method:
    pieces = {"derive": EveryToken(), "reshape": SegmentMean(), "token_weight": Saliency(1)}
    return method.firm("test", ratio=Ratio("hispo/start"), **pieces).prefer("test", reduction=RowSum())


@pytest.mark.parametrize("seed", range(3))
def test_every_token_its_own_segment_is_grpo_with_a_mean_over_rows(seed: int) -> None:
    batch, policy = flat_entropy(*random_batch(seed))
    base = outcome(running(grpo().prefer("test", reduction=RowMean())), batch, policy)
    assert outcome(running(every_token(grpo())), batch, policy).gap(base) < 1e-14


def test_inside_a_segment_only_the_mean_log_ratio_matters() -> None:
    batch = rows([0, 5, 0, 0, 0]).with_(
        {
            "reward": t(1),
            "correct": torch.tensor([True]),
            "score": t(1),
            "behavior_logp": t(0, 0, 0, 0, 0),
            "old_logp": t(0, 0, 0, 0, 0),
        }
    )
    plan = running(hispo(grpo(), smoothing=1.0, window=2, floor=1).firm("test", advantage=Always()))
    done = replace(plan.weigh(plan.credit(batch)), whole=False)
    assert done["hispo/start"].tolist() == [True, False, True, False, False]
    values = []
    for logp in (t(0.1, -0.2, 0.3, 0.0, -0.1), t(-0.2, 0.1, -0.1, 0.3, 0.0), t(-0.2, 0.1, 0.0, 0.3, 0.0)):
        logp.requires_grad_()
        loss, _ = plan.loss("policy", Now(logp), done)
        loss.backward()
        assert logp.grad is not None
        assert logp.grad[0] == logp.grad[1]
        assert logp.grad[2] == logp.grad[3] == logp.grad[4]
        values.append(float(loss.detach()))
    assert values[0] == pytest.approx(values[1], abs=1e-12)
    assert abs(values[0] - values[2]) > 1e-3


@dataclass(frozen=True)
class Always:
    """Advantages of 1."""

    needs: ClassVar = ()

    def __call__(self, batch: Batch) -> torch.Tensor:
        return torch.ones(len(batch), dtype=F64)


def test_advantages_that_differ_inside_a_segment_are_averaged() -> None:
    batch = rows([0, 5, 0, 0, 0], [1]).with_({"advantage": t(1, 3, -1, 0, 4, 7)})
    batch = batch.with_({"hispo/start": torch.tensor([1, 0, 1, 0, 0, 1]).bool()})
    assert SegmentMean()(batch).tolist() == [2, 2, 1, 1, 1, 7]


def test_silent_groups_leave_the_weights_alone() -> None:
    batch, policy = random_batch(0)
    right = torch.ones(len(batch), dtype=torch.bool)
    batch = batch.with_({"correct": right, "known": right, "score": right.double()})
    assert not bool(outcome(running(hispo(grpo())), batch, policy).logp.any())


# ---- settings, metrics, toy ----------------------------------------------------------------------------------
def test_an_entropy_that_is_not_a_number_is_refused_with_its_row() -> None:
    batch = rows([0.1, 0.2], [0.3, math.nan, 0.1])
    with pytest.raises(ValueError, match=r"entropy is not a number on rows \[1\]"):
        EntropySegments()(batch)


@pytest.mark.parametrize(
    "text",
    ["hispo(smoothing=0)", "hispo(smoothing=1.5)", "hispo(quantile=1.1)", "hispo(window=0)", "hispo(floor=0)"],
)
def test_settings_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(StackError, match=r"got (0|1\.5|1\.1)"):
        build_method(text)


def test_bounds_are_the_stacks_unless_they_are_asked_for() -> None:
    def high(stack: str) -> float:
        return float(running(build_method(stack)).stack.one("bounds").high)

    assert high("hispo") == 0.2
    assert high("hispo,dapo") == 0.28
    assert high("hispo(clip_high=0.05),dapo") == 0.05
    assert running(build_method("hispo,gapo")).stack.one("bounds").high_max == 0.28  # a segment's ratio counts as short


def test_it_tells_how_rows_are_cut() -> None:
    """Segments of 2, 3 and 1 tokens in two rows; the third row is empty."""
    batch = rows([1, 1, 1, 1, 1], [0.5], []).with_({"hispo/start": torch.tensor([1, 0, 1, 0, 0, 1]).bool()})
    told = {**EntropySegments().tell(batch), **Saliency(2).tell(batch)}
    assert told["hispo/segments"].value() == 1.5
    assert told["hispo/segment_length"].value() == 2
    assert told["hispo/mass"].value() == pytest.approx((1 + 0.5) / 2)
    assert told["hispo/share_entropy"].value() == pytest.approx(math.log(2) / 2)


def test_on_the_toy_rows_have_several_segments_and_one_segment_gives_gspo() -> None:
    toy = toy_step("hispo", prompts_per_step=16)
    assert toy.told["hispo/segments"] > 3
    assert toy.told["hispo/share_entropy"] > 0.5
    assert toy.told["policy/clip_frac"] > 0.01
    mine, base = toy.gradients("hispo(smoothing=0.3,window=4,floor=2)"), toy.gradients("grpo")
    assert float((mine.logp - base.logp).abs().max()) > 0.1 * float(base.logp.abs().max())
    flat = replace(toy, batch=flat_entropy(toy.batch, None)[0])
    one = flat.gradients("hispo(smoothing=0.3,window=4,floor=1)")
    torch.testing.assert_close(one.logp, flat.gradients("gspo(clip_low=0.2,clip_high=0.2)").logp, rtol=1e-4, atol=1e-9)
    single = outcome(running(every_token(grpo())), flat.batch, flat.policy)
    by_row = outcome(running(grpo().prefer("test", reduction=RowMean())), flat.batch, flat.policy)
    torch.testing.assert_close(single.logp, by_row.logp, rtol=1e-4, atol=1e-9)

"""BPO: the theory on tables where everything can be enumerated, then the loss against its formula."""

import math
from dataclasses import replace
from typing import Any

import bpo_tabular as tab
import pytest
import torch
from models import tiny_llama
from toy import toy_step

from rlvr.batch import Batch, Chains, Now
from rlvr.engine.sampler import TorchSampler
from rlvr.engine.torch_engine import Optim, TorchEngine
from rlvr.loss.reduction import RowMean, RowSum
from rlvr.loss.terms import bucket_kl
from rlvr.method import Contradiction
from rlvr.methods.bpo import Bellman, Sampled, binary_kl, bpo, complement_ratio
from rlvr.methods.grpo import grpo
from rlvr.stacking import StackError, build_method
from rlvr.testing import cut_invariance, finiteness, outcome, random_batch, running

F64 = torch.float64


def t(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=F64)


def game(seed: int = 0, eta: float = 1.7) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor, float]:
    """mu, some other policy, rewards of the 27 paths, eta."""
    noise = torch.Generator().manual_seed(seed)
    mu, other = (tab.random_table(3, 3, noise) for _ in range(2))
    return mu, other, torch.randn(27, generator=noise, dtype=F64), eta


# ---- the theory ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(3))
def test_the_residual_of_mirror_descents_optimum_vanishes_on_every_path(seed: int) -> None:
    mu, other, reward, eta = game(seed)
    best = tab.mirror_descent(mu, reward, eta)
    assert float(tab.residual(mu, best, reward, eta).abs().max()) < 1e-13
    assert float(tab.residual(mu, other, reward, eta).abs().max()) > 0.1


def test_the_optimum_is_mirror_descents() -> None:
    """In every state pi+ maximises E_pi[A] - KL(pi || mu) / eta: no other distribution does better."""
    mu, _, reward, eta = game()
    better, _ = tab.advantages(mu, reward)
    best, old = tab.mirror_descent(mu, reward, eta), tab.log_probs(mu)
    noise = torch.Generator().manual_seed(3)
    for a, m, p in zip(better, old, best):
        for scale in (0.01, 0.3, 2.0):
            other = torch.log_softmax(p + scale * torch.randn(p.shape, generator=noise, dtype=F64), -1)
            mine, theirs = ((q.exp() * (a - (q - m) / eta)).sum(-1) for q in (p, other))
            assert bool((mine > theirs).all())


@pytest.mark.parametrize("seed", range(3))
def test_squares_of_a_path_are_the_squares_of_its_states(seed: int) -> None:
    """Martingale differences: E delta = 0, and E delta^2 = sum over states of E (eta A - log pi / mu - KL)^2."""
    mu, other, reward, eta = game(seed)
    delta, weight = tab.residual(mu, other, reward, eta), tab.path_probs(mu)
    assert float((weight * delta).sum()) == pytest.approx(0, abs=1e-14)
    better, _ = tab.advantages(mu, reward)
    kl, old, new = tab.state_kl(mu, other), tab.log_probs(mu), tab.log_probs(other)
    reach, total = torch.ones(1, dtype=F64), 0.0
    for a, k, m, p in zip(better, kl, old, new):
        step = eta * a - (p - m) - k[:, None]
        total += float((reach[:, None] * m.exp() * step**2).sum())
        reach = (reach[:, None] * m.exp()).flatten()
    assert float((weight * delta**2).sum()) == pytest.approx(total, rel=1e-13)


def test_without_the_kl_the_optimum_moves() -> None:
    mu, _, reward, eta = game()
    best = [x.clone().requires_grad_() for x in tab.mirror_descent(mu, reward, eta)]
    whole, without = (tab.exact_loss(mu, best, reward, eta, with_kl) for with_kl in (True, False))
    assert float(whole.detach()) < 1e-26
    assert float(without.detach()) > 0.01
    slopes = torch.autograd.grad(without, best)
    assert max(float(x.abs().max()) for x in slopes) > 0.01


def test_minimising_the_exact_loss_again_and_again_is_mirror_descent() -> None:
    mu, other, reward, _ = game()
    policy = mu
    for _ in range(3):
        best, found = tab.mirror_descent(policy, reward, 0.5), tab.minimised(policy, reward, 0.5, other)
        for b, f in zip(best, found):
            torch.testing.assert_close(f.exp(), b.exp(), rtol=0, atol=1e-6)
        policy = best
    before, after = tab.path_probs(mu) @ reward, tab.path_probs(policy) @ reward
    assert float(after) > float(before) + 0.3


def test_gradients_of_log_prob_and_kl() -> None:
    """Full KL: onehot - mu in the logits, whatever pi is. Of token or not: (1 - p_mu) / (1 - p) times that of logp."""
    noise = torch.Generator().manual_seed(0)
    mu = torch.log_softmax(torch.randn(5, generator=noise, dtype=F64), -1)
    logits = torch.randn(5, generator=noise, dtype=F64).requires_grad_()
    for y in range(5):
        logp = torch.log_softmax(logits, -1)
        (slope,) = torch.autograd.grad(logp[y] + (mu.exp() * (mu - logp)).sum(), logits)
        onehot = torch.nn.functional.one_hot(torch.tensor(y), 5).to(F64)
        torch.testing.assert_close(slope, onehot - mu.exp())
        p, q = torch.log_softmax(logits, -1)[y], mu[y]
        kl = q.exp() * (q - p) + (1 - q.exp()) * ((1 - q.exp()).log() - (1 - p.exp()).log())
        (slope,) = torch.autograd.grad(p + kl, logits, retain_graph=True)
        (plain,) = torch.autograd.grad(torch.log_softmax(logits, -1)[y], logits)
        torch.testing.assert_close(slope, (1 - q.exp()) / (1 - p.detach().exp()) * plain)


# ---- the weight ----------------------------------------------------------------------------------------------
def weight(p: float, mu: float, eps: float = 0.1) -> float:
    return float(complement_ratio(t(p).log(), t(mu).log(), eps))


def test_weights_by_hand() -> None:
    """(1.1 - p_mu) / (1.1 - p)."""
    assert weight(0.9, 0.5) == pytest.approx(3.0)
    assert weight(0.5, 0.9) == pytest.approx(1 / 3)
    assert weight(1.0, 0.0) == pytest.approx(11)
    assert weight(0.0, 1.0) == pytest.approx(1 / 11)
    assert weight(0.3, 0.3) == 1.0


def test_the_weight_rises_with_the_policy_falls_with_the_sampler_and_is_calm_on_rare_tokens() -> None:
    p = torch.linspace(1e-6, 1, 101, dtype=F64)
    grid = complement_ratio(p.log()[None], p.log()[:, None], 0.1)  # [mu, p]
    assert bool((grid.diff(dim=1) > 0).all())
    assert bool((grid.diff(dim=0) < 0).all())
    assert float(grid.min()) >= 0.1 / 1.1 - 1e-12
    assert float(grid.max()) <= 11 + 1e-9
    assert abs(weight(0.009, 0.0009) - 1) < 0.01  # pi / mu is 10
    assert weight(0.9, 0.1, 1e9) == pytest.approx(1, abs=1e-8)  # REINFORCE


def test_the_smoothed_kl_is_zero_at_home_positive_away_and_has_slope_w_minus_1() -> None:
    mu = torch.linspace(0.01, 0.99, 33, dtype=F64).log()
    assert float(binary_kl(mu, mu, 0.1).abs().max()) < 1e-15
    logp = mu.flip(0).clone().requires_grad_()
    kl = binary_kl(logp, mu, 0.1)
    (slope,) = torch.autograd.grad(kl.sum(), logp)
    assert bool((kl[mu != mu.flip(0)] > 0).all())
    torch.testing.assert_close(slope, complement_ratio(logp.detach(), mu, 0.1) - 1)
    assert float(binary_kl(t(0.2).log(), t(0.5).log(), 1e-12)) == pytest.approx(
        0.5 * math.log(2.5) + 0.5 * math.log(0.5 / 0.8)
    )
    assert bool(torch.isfinite(binary_kl(t(0.0, -90.0), t(-90.0, 0.0), 0.1)).all())


def test_the_kl_of_some_tokens_and_the_rest() -> None:
    """One token and the rest is the binary KL; all tokens are the full one; the more, the larger."""
    noise = torch.Generator().manual_seed(1)
    mu, pi = (torch.log_softmax(torch.randn(4, 6, generator=noise, dtype=F64), -1) for _ in range(2))
    torch.testing.assert_close(bucket_kl(pi[:, :1], mu[:, :1]), binary_kl(pi[:, 0], mu[:, 0], 1e-15))
    full = (mu.exp() * (mu - pi)).sum(-1)
    torch.testing.assert_close(bucket_kl(pi, mu), full)
    every = torch.stack([bucket_kl(pi[:, :k], mu[:, :k]) for k in range(1, 7)])
    assert bool((every.diff(dim=0) > -1e-12).all())


# ---- the loss ------------------------------------------------------------------------------------------------
def one_row(advantage: list[float], p: list[float], mu: list[float]) -> tuple[Batch, Now]:
    n = len(p)
    one = torch.ones(n, dtype=F64)
    given = {"clip_low": 0.2 * one, "clip_high": 0.28 * one, "weight": one / n, "bpo/mu": t(*mu).log()}
    batch = Batch.pack(torch.tensor([n]), advantage=t(*advantage), **given)
    return replace(batch, whole=False), Now(t(*p).log().requires_grad_())


def test_masked_on_the_uncapped_weight_capped_and_without_gradient_through_it() -> None:
    """w: 1.2 (kept), 1.5 (masked for A > 0), 1.5 (kept for A < 0), .75 (masked for A < 0), .75 (kept for A > 0), 5
    (capped at 3 for A < 0)."""
    p = [0.5, 0.5, 0.5, 0.1, 0.1, 1.0]
    mu = [1.1 - w * (1.1 - x) for w, x in zip([1.2, 1.5, 1.5, 0.75, 0.75, 5], p)]
    a = [2.0, 2.0, -2.0, -2.0, 2.0, -1.0]
    for cap, last in ((3.0, 3.0), (None, 5.0)):
        batch, now = one_row(a, p, mu)
        loss, told = Bellman(cap=cap)(now, batch)
        loss.sum().backward()
        assert now.logp.grad is not None
        assert now.logp.grad.tolist() == pytest.approx([-2.4, 0, 3.0, 0, -1.5, last])
        assert told["policy/clip_frac"].value() == pytest.approx(2 / 6)
        assert told["bpo/masked_up"].value() == pytest.approx(1 / 3)
        assert told["bpo/masked_down"].value() == pytest.approx(1 / 3)
        assert told["bpo/capped"].value() == pytest.approx(1 / 6 if cap else 0)
        assert told["bpo/weight_max"].value() == pytest.approx(5)
        assert told["bpo/weight"].value() == pytest.approx((1.2 + 1.5 + 1.5 + 0.75 + 0.75 + 5) / 6)
        assert told["bpo/weight_square"].value() == pytest.approx((1.44 + 2 * 2.25 + 2 * 0.5625 + 25) / 6)
        assert told["bpo/sure"].value() == pytest.approx(1 / 6)
    batch, now = one_row([-1.0], [1.001], [1.001])  # probabilities that rounding put above 1 count as 1
    Bellman()(now, batch)[0].sum().backward()
    assert now.logp.grad is not None
    assert now.logp.grad.tolist() == [1.0]
    batch, now = one_row(a, p, mu)
    Bellman(mask=False)(now, batch)[0].sum().backward()
    assert now.logp.grad is not None
    assert now.logp.grad.tolist() == pytest.approx([-2.4, -3.0, 3.0, 1.5, -1.5, 3.0])


@pytest.mark.parametrize("seed", range(2))
def test_off_policy_gradients_are_the_formula_row_by_row(seed: int) -> None:
    batch, policy = random_batch(seed, rows=40)
    got = outcome(running(bpo(grpo())), batch, policy)
    lengths, advantage = batch.length.tolist(), got.batch["row_advantage"]
    counted = int(((batch.length > 0) & batch["known"]).sum())
    masked = capped = 0
    for i, (slope, logp, mu) in enumerate(
        zip(got.logp.split(lengths), policy.logp.split(lengths), batch["behavior_logp"].split(lengths))
    ):
        a = float(advantage[i]) if batch["known"][i] else 0.0
        for g, x, m in zip(slope.tolist(), logp.tolist(), mu.tolist()):
            w = (1.1 - math.exp(min(m, 0))) / (1.1 - math.exp(min(x, 0)))
            out = (a > 0 and w > 1.28) or (a < 0 and w < 0.8)
            masked, capped = masked + out, capped + (a != 0 and w > 3)
            assert g == pytest.approx(0.0 if out else -a * min(w, 3) / (len(slope) * counted), abs=1e-15)
    assert masked > 0.01 * len(batch.row)
    assert capped > 0


def test_on_policy_it_is_grpo_with_a_mean_over_rows() -> None:
    batch, policy = random_batch(0)
    batch = batch.with_({"old_logp": policy.logp, "behavior_logp": policy.logp})
    base = outcome(running(grpo().prefer("test", reduction=RowMean())), batch, policy)
    torch.testing.assert_close(outcome(running(bpo(grpo())), batch, policy).logp, base.logp, rtol=1e-12, atol=0)
    away, _ = random_batch(0)
    assert outcome(running(bpo(grpo())), away, policy).gap(base) > 1e-3


def test_with_a_huge_eps_it_is_reinforce() -> None:
    batch, policy = random_batch(0)
    got = outcome(running(bpo(grpo(), eps=1e9)), batch, policy)
    counted = int(((batch.length > 0) & batch["known"]).sum())
    want = -got.batch["advantage"] / batch.spread(batch.length) / counted * batch.spread(batch["known"])
    torch.testing.assert_close(got.logp, want)


def test_at_the_running_policy_it_descends_the_square_of_the_residual() -> None:
    """linear = False, no cap, no mask, rows summed: the gradient is that of mean_i (eta A - S)^2 / (2 eta), S_i the sum
    of logp - mu + smoothed KL, by finite differences."""
    batch, policy = random_batch(2, rows=12)
    eta, eps = 1.5, 0.1
    method = bpo(grpo(), eps=eps, cap=None, mask=False, linear=False, eta=eta).firm("test", reduction=RowSum())
    got = outcome(running(method), batch, policy)
    advantage, mu = got.batch["row_advantage"], got.batch["bpo/mu"]
    rows = (batch.length > 0) & batch["known"]

    def loss(logp: torch.Tensor) -> float:
        logp, old = logp.clamp(max=0), mu.clamp(max=0)
        p, q = logp.exp() / (1 + eps), old.exp() / (1 + eps)
        kl = q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()
        moved = batch.row_sum(logp - old + kl)
        return float((((eta * advantage - moved) ** 2) / (2 * eta))[rows].sum() / rows.sum())

    below = policy.logp < -1e-3  # where rounding up to p = 1 plays no part
    for i in below.nonzero()[::7, 0].tolist():
        step = torch.zeros_like(policy.logp)
        step[i] = 1e-6
        slope = (loss(policy.logp + step) - loss(policy.logp - step)) / 2e-6
        assert float(got.logp[i]) == pytest.approx(slope, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("settings", [{"linear": False}, {"cap": None, "mask": False}, {"eps": 1e-3, "linear": False}])
def test_every_variant_keeps_the_laws(settings: dict[str, Any]) -> None:
    method = bpo(grpo(), **settings)
    assert cut_invariance(method).ok
    assert finiteness(method).ok


def test_silent_groups_and_groups_of_one_leave_the_weights_alone() -> None:
    batch, policy = random_batch(0)
    yes = torch.ones(len(batch), dtype=torch.bool)
    silent = batch.with_({"correct": yes, "known": yes, "score": yes.double()})
    alone = batch.with_({"group": batch["id"], "episode": batch["id"]})
    for still in (silent, alone):
        assert not bool(outcome(running(bpo(grpo())), still, policy).logp.any())


# ---- the full KL through a model -----------------------------------------------------------------------------
def test_with_the_full_kl_the_logits_are_pulled_to_the_token_and_from_mu() -> None:
    """A real tiny model that has moved away from mu; kl_ids covers its vocabulary of 17. A token's gradient in the
    logits is -A (onehot - mu) / (rows * row's length)."""
    lm = tiny_llama()
    engine = TorchEngine({"policy": lm}, {"policy": Optim(lr=3e-2)}, TorchSampler(lm), token_budget=1000)
    ids = [[1, 5, 6, 7, 2], [1, 9, 4, 3, 8, 2]]
    batch = Batch.pack(
        torch.tensor([3, 4]),
        Chains.of(ids, [[2, 3, 4], [2, 3, 4, 5]]),
        token=torch.tensor([6, 7, 2, 4, 3, 8, 2]),
        group=torch.tensor([0, 0]),
        correct=torch.tensor([True, False]),
        score=t(1, 0),
        behavior_logp=torch.full((7,), math.nan, dtype=F64),
        sampler_logp=torch.full((7,), math.nan, dtype=F64),
    )
    method = bpo(grpo(eps=0.0), kl_ids=99, mask=False)
    plan = running(method)
    batch = engine.score(batch, plan.views())
    again = engine.score(batch, plan.views())  # as in a step whose old_logp is the sampler's
    assert torch.equal(again["bpo/ids_mu"], batch["bpo/ids_mu"])
    batch = plan.weigh(plan.credit(batch))
    assert batch["bpo/ids"].shape == (7, 17)
    torch.testing.assert_close(batch["bpo/mu"], batch["old_logp"])  # no sampler told
    mu = torch.zeros(7, 17, dtype=F64).scatter(1, batch["bpo/ids"], batch["bpo/ids_mu"]).exp()
    torch.testing.assert_close(mu.sum(-1), torch.ones(7, dtype=F64))
    for _ in range(3):
        engine.update(batch, plan)
    reads = {"logp", "logp_at/bpo/ids"}
    part = replace(batch, whole=False)
    logits = lm.logits(engine.hidden_of(lm, part)[0]).detach().requires_grad_()
    logp = torch.log_softmax(logits, -1)
    now = Now(logp.gather(1, batch["token"][:, None])[:, 0], logp_at={"bpo/ids": logp.gather(1, batch["bpo/ids"])})
    torch.testing.assert_close(engine.now("policy", part, reads).logp_at["bpo/ids"], now.logp_at["bpo/ids"])
    loss, told = plan.loss("policy", now, part)
    (slope,) = torch.autograd.grad(loss, logits)
    onehot = torch.nn.functional.one_hot(batch["token"], 17).to(F64)
    share = t(1, 1, 1, -1, -1, -1, -1) / (2 * batch.spread(batch.length))
    torch.testing.assert_close(slope, -share[:, None] * (onehot - mu))
    assert told["bpo/kl"].value() > 1e-3
    assert float((logp.detach().exp() - mu).abs().max()) > 0.01  # off-policy: onehot - pi would be something else


# ---- edges, refusals, toy ------------------------------------------------------------------------------------
def test_a_sampled_token_of_probability_zero_is_refused_and_an_unknown_one_is_the_trainers() -> None:
    batch = Batch.pack(torch.tensor([1, 2]), behavior_logp=t(-1, math.nan, -2), old_logp=t(-5, -6, -7))
    assert Sampled()(batch)["bpo/mu"].tolist() == [-1, -6, -2]
    with pytest.raises(ValueError, match=r"rows \[1\] hold tokens of probability 0"):
        Sampled()(batch.with_({"behavior_logp": t(-1, -2, -math.inf)}))


@pytest.mark.parametrize(
    "text", ["bpo(eps=0)", "bpo(eps=-0.1)", "bpo(cap=0.5)", "bpo(eta=0)", "bpo(kl_ids=-1)", "bpo(clip_low=2)"]
)
def test_settings_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(StackError, match=r"got (0|-0\.1|0\.5|-1|2)"):
        build_method(text)


@pytest.mark.parametrize(
    ("stack", "says"),
    [
        ("bpo,gspo", "gspo sets ratio"),
        ("bpo,hispo", "hispo sets ratio"),
        ("bpo,cispo", "both define the loss"),
        ("bpo,tis", "both correct for the sampler"),
    ],
)
def test_what_contradicts_it_is_refused(stack: str, says: str) -> None:
    with pytest.raises(Contradiction, match=says):
        running(build_method(stack))


def test_bounds_of_other_papers_feed_its_mask() -> None:
    wide = running(build_method("bpo,gapo(low=0.1,high_max=0.9)"))
    assert wide.stack.one("bounds").high_max == 0.9
    batch, policy = random_batch(0)
    mine, theirs = (outcome(running(build_method(s)), batch, policy) for s in ("bpo,gapo(std=True)", "bpo"))
    assert mine.gap(theirs) > 1e-4
    assert running(build_method("bpo,dapo")).stack.one("bounds").high == 0.28


def test_others_see_its_slope() -> None:
    """What GMTS ranks by: d loss / d logp = -A M min(w, 3) at the current weights."""
    batch, _ = random_batch(0)
    plan = running(build_method("bpo,gmts"))
    done = plan.credit(batch)
    w = (1.1 - batch["behavior_logp"].clamp(max=0).exp()) / (1.1 - batch["now_logp"].clamp(max=0).exp())
    a = done["advantage"]
    stopped = ((a > 0) & (w > 1.28)) | ((a < 0) & (w < 0.8))
    torch.testing.assert_close(plan.slope(done), torch.where(stopped, 0.0, -a * w.clamp(max=3)))


def test_on_the_toy_weights_spread_and_on_policy_it_is_grpo() -> None:
    toy = toy_step("bpo", prompts_per_step=16)
    assert toy.told["policy/clip_frac"] > 0.01
    spread = toy.told["bpo/weight_square"] - toy.told["bpo/weight"] ** 2
    assert spread > 1e-4
    mine, base = toy.gradients("bpo"), toy.gradients("grpo")
    assert float((mine.logp - base.logp).abs().max()) > 0.1 * float(base.logp.abs().max())
    home = {"old_logp": toy.policy.logp, "behavior_logp": toy.policy.logp}
    still = replace(toy, batch=toy.batch.with_(home))
    by_row = outcome(running(grpo().prefer("test", reduction=RowMean())), still.batch, still.policy)
    torch.testing.assert_close(still.gradients("bpo").logp, by_row.logp, rtol=1e-4, atol=1e-9)


def test_on_the_toy_the_full_kl_is_larger_than_that_of_token_or_not() -> None:
    """In a real step, micro-batches and all; of the first update both are 0, later ones have moved."""
    full = toy_step("bpo", prompts_per_step=8, token_budget=600, **{"papers.bpo.kl_ids": 32})
    plain = toy_step("bpo", prompts_per_step=8, token_budget=600)
    assert full.told["bpo/kl"] > plain.told["bpo/kl"] > 1e-4

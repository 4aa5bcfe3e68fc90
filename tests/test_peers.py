"""Our methods against verl 0.9.1 and TRL 1.16, whose own functions gave the numbers in tests/fixtures/peers.

Equal means: loss, gradient with respect to every log-prob (and entropy, and value), advantage and importance weight.
Where a peer's convention differs by a known factor, the test puts exactly that factor on our side and then asks for
equality; where it differs otherwise, a test of its own says how, with numbers worked out by hand. docs/peers.md tells
the same in words, `make peers` makes the numbers anew.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import pstdev, stdev
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from rlvr.batch import Batch
from rlvr.loss.reduction import RowMean, RowSum, TokenMean
from rlvr.loss.terms import kl_estimate
from rlvr.method import Method
from rlvr.methods.cispo import cispo
from rlvr.methods.dapo import dapo
from rlvr.methods.dpo import dpo
from rlvr.methods.dr_grpo import dr_grpo
from rlvr.methods.entropy_bonus import entropy_bonus
from rlvr.methods.grpo import grpo
from rlvr.methods.gspo import gspo
from rlvr.methods.kl import kl
from rlvr.methods.mask_truncated import mask_truncated
from rlvr.methods.mis import mis
from rlvr.methods.ppo import ppo
from rlvr.methods.reinforce_pp import reinforce_pp
from rlvr.methods.rloo import rloo
from rlvr.methods.sft import sft
from rlvr.methods.tis import tis
from rlvr.reward.pays import Pays
from rlvr.reward.penalties import Overlong
from rlvr.testing import Outcome, Policy, outcome

FIXTURES = Path(__file__).parent / "fixtures" / "peers"
Numbers = dict[str, Any]


def load(name: str) -> Numbers:
    with gzip.open(FIXTURES / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        return dict(json.load(file))


CASES, VERL_FILE, TRL_FILE = load("cases")["cases"], load("verl"), load("trl")
VERL, TRL = VERL_FILE["values"], TRL_FILE["values"]

# Largest difference allowed, relative to the largest number.
EXACT = 1e-12  # the same float64 arithmetic in another order
WHITENED = 1e-8  # verl adds 1e-8 to the counts behind a mean and a variance
SINGLE = 1e-6  # TRL's rewards and sampler log-probs are float32

VERL_EPS, TRL_EPS, OUR_EPS = 1e-6, 1e-4, 1e-6


@dataclass(frozen=True)
class SampleSpread:
    """The factor between our GRPO advantage and a peer's: population std + 1e-6 here, sample std + eps there."""

    eps: float
    rank: ClassVar = 2
    needs: ClassVar = ("advantage", "reward", "group", "known")

    def __call__(self, batch: Batch) -> Tensor:
        factor = torch.ones(len(batch), dtype=torch.float64)
        for group in batch["group"].unique():
            members = batch["group"] == group
            rewards = batch["reward"][members & batch["known"]].tolist()
            if len(rewards) > 1:
                factor[members] = (pstdev(rewards) + OUR_EPS) / (stdev(rewards) + self.eps)
        return batch["advantage"] * batch.spread(factor)


def verl_spread(method: Method) -> Method:
    return method.firm("peer", reshape=SampleSpread(VERL_EPS))


def trl_spread(method: Method) -> Method:
    return method.firm("peer", reshape=SampleSpread(TRL_EPS))


def reduced(method: Method, reduction: Any) -> Method:
    return method.firm("peer", reduction=reduction)


def batch_of(case: Numbers) -> tuple[Batch, Policy]:
    """The case as we hold it: trained tokens only, no padding, no mask."""
    tokens, rows = case["tokens"], case["rows"]
    keep = [[x == 1.0 for x in row] for row in tokens["trained"]]

    def flat(name: str) -> Tensor:
        pairs = [pair for row, flags in zip(tokens[name], keep) for pair in zip(row, flags)]
        return torch.tensor([x for x, kept in pairs if kept], dtype=torch.float64)

    known = torch.tensor(rows["known"])
    batch = Batch.pack(
        torch.tensor([sum(flags) for flags in keep]),
        group=torch.tensor(rows["group"]),
        known=known,
        correct=torch.tensor(rows["correct"]) & known,
        score=torch.tensor(rows["score"], dtype=torch.float64),
        truncated=torch.tensor(rows["truncated"]),
        entropy=flat("now_entropy"),
        **{name: flat(name) for name in ("old_logp", "behavior_logp", "ref_logp", "value")},
    )
    return batch, Policy(flat("logp"), flat("now_entropy"), flat("now_value"))


def ours(method: Method, name: str, change: Callable[[Batch, Policy], tuple[Batch, Policy]] | None = None) -> Outcome:
    batch, policy = batch_of(CASES[name])
    if change is not None:
        batch, policy = change(batch, policy)
    plan = method.plan(CASES[name]["max_tokens"], reward=Pays())
    return outcome(list(plan.phases.values())[-1], batch, policy)


def close(got: Tensor, seen: Any, tolerance: float, what: str = "") -> None:
    want = torch.as_tensor(seen, dtype=torch.float64)
    size = float(want.abs().max()) if want.numel() else 0.0
    torch.testing.assert_close(got, want, rtol=0.0, atol=tolerance * max(size, 1e-9), msg=lambda m: f"{what}: {m}")


def tokens(x: Any) -> Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


@dataclass(frozen=True)
class Same:
    """A method of ours that a peer's run must equal. `of_all_rows`: their mean over rows counts empty rows too."""

    method: Method
    tolerance: float = EXACT
    of_all_rows: bool = False


def assert_same(same: Same, name: str, seen: Numbers) -> None:
    got = ours(same.method, name)
    tolerance = same.tolerance
    rows = 1.0
    if same.of_all_rows:
        length = batch_of(CASES[name])[0].length
        rows = float((length > 0).sum()) / len(length)
    close(rows * got.loss, seen["loss"] + seen.get("value_loss", 0.0), 100 * tolerance, "loss")  # a sum that may cancel
    close(rows * got.logp, seen["logp"], tolerance, "gradient of log-probs")
    if "entropy" in seen:
        close(rows * got.entropy, seen["entropy"], tolerance, "gradient of entropies")
    if "value" in seen:
        close(got.batch["gae/return"], seen["returns"], tolerance, "returns")
        close(got.value, seen["value"], tolerance, "gradient of values")
    if "advantage" in seen and "advantage" in got.batch:
        close(got.batch["advantage"], seen["advantage"], tolerance, "advantage")
    if "weights" in seen:
        close(got.batch["token_weight"], seen["weights"], tolerance, "importance weights")


# ---- verl ------------------------------------------------------------------------------------------------------------
RANDOM = ("square-1", "square-2", "uneven-3", "uneven-4", "plain-5")
WIDE = {"clip_low": 0.2, "clip_high": 0.2}

VERL_SAME: dict[str, Same] = {
    "grpo": Same(verl_spread(grpo())),
    "grpo row mean": Same(reduced(verl_spread(grpo()), RowMean()), of_all_rows=True),
    "grpo row mean, counting by itself": Same(reduced(verl_spread(grpo()), RowMean())),
    "dr_grpo": Same(dr_grpo(grpo())),
    "rloo": Same(rloo(grpo())),
    "rloo vectorized": Same(rloo(grpo())),
    "reinforce_pp": Same(reinforce_pp(grpo()), WHITENED),
    "reinforce_pp gamma 0.9": Same(reinforce_pp(grpo(), gamma=0.9), WHITENED),
    "reinforce_pp baseline": Same(reinforce_pp(grpo(), baseline=True), WHITENED),
    "ppo": Same(ppo(grpo()), WHITENED),
    "ppo gamma 0.95 lam 0.9": Same(ppo(grpo(), gamma=0.95, lam=0.9, value_clip=0.2), WHITENED),
    "gspo": Same(verl_spread(gspo(grpo())), of_all_rows=True),
    "gspo wide": Same(verl_spread(gspo(grpo(), **WIDE)), of_all_rows=True),
    "gspo token mean": Same(reduced(verl_spread(gspo(grpo(), **WIDE)), TokenMean())),
    "cispo": Same(verl_spread(cispo(grpo()))),
    "cispo tight": Same(verl_spread(cispo(grpo(), **WIDE))),
    "kl k2": Same(kl(verl_spread(grpo()), coef=0.1, estimator="k2")),
    "kl k3": Same(kl(verl_spread(grpo()), coef=0.1)),
    "kl in reward, reinforce_pp": Same(kl(reinforce_pp(grpo()), coef=0.1, where="reward"), WHITENED),
    "kl in reward, ppo": Same(kl(ppo(grpo(), gamma=0.95, lam=0.9), coef=0.1, where="reward"), WHITENED),
    "kl in reward, rloo": Same(kl(rloo(grpo()), coef=0.1, where="reward")),
    "entropy": Same(entropy_bonus(verl_spread(grpo()), coef=0.01)),
    "entropy row mean": Same(entropy_bonus(reduced(verl_spread(grpo()), RowMean()), coef=0.01), of_all_rows=True),
    "tis": Same(tis(verl_spread(grpo()))),
    "mis": Same(mis(verl_spread(grpo()), high=2.0)),
    "mis 0.5 to 5": Same(mis(verl_spread(grpo()))),
    "sft": Same(sft(grpo())),
}


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("run", VERL_SAME)
def test_equals_verl(run: str, name: str) -> None:
    assert_same(VERL_SAME[run], name, VERL[name][run])


def test_dapo_equals_verl_where_nothing_but_the_policy_speaks() -> None:
    assert_same(Same(verl_spread(dapo(grpo(), buffer=4))), "plain-5", VERL["plain-5"]["dapo"])


@pytest.mark.parametrize("name", ["square-1", "square-2", "uneven-3", "uneven-4"])
def test_dapo_equals_verl_once_tool_output_counts_as_length(name: str) -> None:
    whole = torch.tensor([len(row) for row in CASES[name]["tokens"]["trained"]])
    got = ours(verl_spread(dapo(grpo(), buffer=4)), name, lambda b, p: (b.with_({"path_length": whole}), p))
    close(got.batch["advantage"], VERL[name]["dapo"]["advantage"], EXACT)
    close(got.logp, VERL[name]["dapo"]["logp"], EXACT)


@pytest.mark.parametrize("name", RANDOM)
def test_kl_estimates_equal_verls(name: str) -> None:
    batch, policy = batch_of(CASES[name])
    for estimator in ("k1", "k2", "k3"):
        close(kl_estimate(policy.logp, batch["ref_logp"], estimator), VERL["penalties"][name][estimator], EXACT)


# ---- TRL -------------------------------------------------------------------------------------------------------------
TRL_SAME: dict[str, Same] = {
    "grpo": Same(reduced(trl_spread(grpo()), RowMean()), SINGLE, of_all_rows=True),
    "bnpo": Same(trl_spread(grpo()), SINGLE),
    "dapo": Same(trl_spread(dapo(grpo(), overlong=False)), SINGLE),
    "dr_grpo": Same(dr_grpo(grpo()), SINGLE),
    "cispo": Same(trl_spread(cispo(grpo())), SINGLE),
    "gspo": Same(trl_spread(gspo(grpo())), SINGLE, of_all_rows=True),
    "gspo wide": Same(trl_spread(gspo(grpo(), **WIDE)), SINGLE, of_all_rows=True),
    "gspo tis": Same(tis(trl_spread(gspo(grpo(), **WIDE))), SINGLE, of_all_rows=True),
    "kl k3": Same(kl(trl_spread(grpo()), coef=0.1), SINGLE),
    "entropy": Same(entropy_bonus(trl_spread(grpo()), coef=0.01), SINGLE),
    "tis": Same(tis(trl_spread(grpo())), SINGLE),
    "mis": Same(mis(trl_spread(grpo()), high=2.0), SINGLE),
    "mask_truncated": Same(mask_truncated(trl_spread(grpo())), SINGLE),
    "sft": Same(sft(grpo()), EXACT),
}


@pytest.mark.parametrize("name", ["square-1", "square-2", "plain-5"])
@pytest.mark.parametrize("run", TRL_SAME)
def test_equals_trl(run: str, name: str) -> None:
    assert_same(TRL_SAME[run], name, TRL[name][run])


@pytest.mark.parametrize(("run", "beta"), [("dpo", 0.1), ("dpo beta 1", 1.0)])
def test_dpo_equals_trl(run: str, beta: float) -> None:
    assert_same(Same(dpo(grpo(), beta=beta)), "pairs-6", TRL["pairs-6"][run])


def on_policy(batch: Batch, policy: Policy) -> tuple[Batch, Policy]:
    return batch, replace(policy, logp=batch["old_logp"])


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_rloo_equals_trl_on_policy(beta: float) -> None:
    seen = TRL["plain-5"]["rloo, kl in reward" if beta else "rloo, on policy"]
    method = reduced(rloo(grpo()), RowSum())
    got = ours(kl(method, coef=beta, where="reward") if beta else method, "plain-5", on_policy)
    close(got.batch["advantage"], seen["advantage"], SINGLE)
    close(got.logp, seen["logp"], SINGLE)


# ---- where they differ: docs/peers.md, by number ---------------------------------------------------------------------
def test_1_spread() -> None:
    """Rewards 1 and 0: sample std 0.70710678, population std 0.5. Rewards 0.5 and 0.50001: 7.07e-6 and 5e-6."""
    assert VERL["far"]["grpo"]["advantage"][0] == pytest.approx(0.5 / (math.sqrt(0.5) + 1e-6), rel=1e-9)
    assert TRL["far"]["dapo"]["advantage"][0] == pytest.approx(0.5 / (math.sqrt(0.5) + 1e-4), rel=1e-6)
    assert float(ours(grpo(), "far").batch["advantage"][0]) == pytest.approx(0.5 / (0.5 + 1e-6), rel=1e-12)
    assert VERL["close"]["grpo"]["advantage"][1] == pytest.approx(0.6196, abs=1e-4)  # their rewards are float32
    assert TRL["close"]["dapo"]["advantage"][1] == pytest.approx(0.0468, abs=1e-4)
    assert float(ours(grpo(), "close").batch["advantage"][1]) == pytest.approx(5 / 6, rel=1e-6)


def test_2_equal_rewards_teach_nothing() -> None:
    """Eight rewards of 0.7 in float32: the mean is one rounding step off, and 6e-8 / (6e-8 + eps) remains."""
    assert VERL["silent"]["estimators"]["grpo"][0] == pytest.approx(0.0560, abs=1e-4)
    assert TRL["silent"]["dapo"]["advantage"][0] == pytest.approx(0.0006, abs=1e-5)
    for dtype in (torch.float64, torch.float32):
        cast = lambda b, p, d=dtype: (b.with_({"score": b["score"].to(d)}), p)  # noqa: E731
        assert ours(grpo(), "silent", cast).batch["advantage"].tolist() == [0.0] * 8


def test_3_a_group_of_one_has_no_baseline() -> None:
    """verl takes the reward itself for the advantage, except where its second RLOO says 0."""
    assert VERL["alone"]["grpo"]["advantage"][0] == pytest.approx(1.0, abs=1e-6)
    assert VERL["alone"]["rloo"]["advantage"][0] == 1.0
    assert VERL["alone"]["rloo vectorized"]["advantage"][0] == 0.0
    assert VERL["alone"]["reinforce_pp baseline"]["advantage"][0] == pytest.approx(0.8729, abs=1e-4)
    assert float(ours(grpo(), "alone").batch["advantage"][0]) == 0.0
    assert ours(rloo(grpo()), "alone").batch["advantage"].tolist() == [0.0, 1.0, -1.0]
    whitened = ours(reinforce_pp(grpo(), baseline=True), "alone").batch["advantage"]
    close(whitened, [0.0, 1.0, -1.0], 1e-7)  # 0, 1/2, -1/2 over their sample std 1/2


def test_4_an_empty_row_is_no_row() -> None:
    """One row of 16 is empty: TRL, and verl's trainer, divide by 16, verl's own count and ours by 15."""
    assert int((batch_of(CASES["square-1"])[0].length > 0).sum()) == 15
    by_trainer, by_itself = (VERL["square-1"][run] for run in ("grpo row mean", "grpo row mean, counting by itself"))
    close(tokens(by_trainer["logp"]) * 16 / 15, by_itself["logp"], EXACT)


def test_5_a_ratio_above_3_of_a_bad_token_still_teaches() -> None:
    """Ratio 4, advantage < 0, four tokens: slope -A q / 4. verl's dual clip ends it at ratio 3; TRL's is off."""
    assert VERL["far"]["grpo"]["logp"][2] == 0.0
    assert TRL["far"]["dapo"]["logp"][2] == pytest.approx(0.707007, rel=1e-5)
    assert float(ours(grpo(), "far").logp[2]) == pytest.approx(1.0, rel=1e-5)
    assert float(ours(verl_spread(grpo()), "far").logp[2]) == pytest.approx(0.707106, rel=1e-5)


def test_6_log_ratios_of_30() -> None:
    """verl and we clamp them at 20, where the slope ends (verl's GSPO at 10); TRL goes on."""
    assert TRL["wild"]["dapo"]["logp"][2] == pytest.approx(0.707007 * math.exp(30) / 4, rel=1e-5)
    assert VERL["wild"]["grpo"]["logp"] == [0.0] * 4
    assert ours(grpo(), "wild").logp.tolist() == [0.0] * 4


def test_7_k3_far_below_the_reference_still_pulls() -> None:
    """3 nats below: k3 = e^3 - 4 = 16.1, slope 1 - e^3. verl cuts the value at 10 and the slope with it."""
    pull = 0.1 * (1 - math.exp(3)) / 4
    assert VERL["drift"]["kl k3"]["logp"][0] - VERL["drift"]["grpo"]["logp"][0] == 0.0
    assert TRL["drift"]["kl k3"]["logp"][0] - TRL["drift"]["dapo"]["logp"][0] == pytest.approx(pull, rel=1e-6)
    mine = ours(kl(grpo(), coef=0.1), "drift").logp - ours(grpo(), "drift").logp
    assert float(mine[0]) == pytest.approx(pull, rel=1e-9)


def test_8_a_row_that_ends_in_tool_output_keeps_its_reward() -> None:
    """verl lays the reward on the row's last token, which is not trained, and REINFORCE++ and GAE never see it."""
    for run in ("reinforce_pp", "ppo"):
        assert VERL["tool-last"][run]["advantage"] == [0.0] * 4
    got = ours(reinforce_pp(grpo()), "tool-last").batch["advantage"]
    close(got, [math.sqrt(0.75), math.sqrt(0.75), -math.sqrt(0.75), -math.sqrt(0.75)], 1e-7)  # returns 1 1 0 0


def test_9_overlong_ends_at_minus_one() -> None:
    """max 12, buffer 4: the paper's equation 13 is flat above 12, as TRL and we are; verl goes on down."""
    batch = Batch.pack(torch.arange(1, 15), behavior_logp=torch.zeros(105, dtype=torch.float64))
    want = [0.0] * 8 + [-0.25, -0.5, -0.75, -1.0, -1.0, -1.0]
    assert Overlong(4, 12)(batch)["overlong"].tolist() == want
    assert TRL["overlong"]["penalty"] == want
    assert VERL["overlong"]["penalty"] == [*want[:12], -1.25, -1.5]


def test_10_cispo_has_no_lower_bound() -> None:
    """Ratio 1/4: weight 1/4 in the paper, TRL and ours; verl's defaults lift it to 0.8, and cut ratio 4 to 1.2."""
    weight = lambda seen, at: -4 * seen["logp"][at] / seen["advantage"][at]  # noqa: E731
    assert [weight(VERL["far"]["cispo tight"], i) for i in (0, 1)] == pytest.approx([1.2, 0.8])
    assert [weight(TRL["far"]["cispo"], i) for i in (0, 1)] == pytest.approx([4.0, 0.25])
    got = ours(cispo(grpo()), "far")
    assert [float(-4 * got.logp[i] / got.batch["advantage"][i]) for i in (0, 1)] == pytest.approx([4.0, 0.25])


def test_11_token_weights_under_gspo() -> None:
    """One ratio for the row: every token moves it alike, so a row's weights act through their mean. verl's token form
    of GSPO weighs each token's own share instead; TRL (see test_equals_trl) and we do not."""
    seen, batch = VERL["plain-5"]["gspo tis"], batch_of(CASES["plain-5"])[0]
    weight = tokens(seen["weights"])
    mine = ours(tis(verl_spread(gspo(grpo(), **WIDE))), "plain-5").logp
    close(mine * weight, tokens(seen["logp"]) * batch.spread(batch.row_mean(weight)), EXACT)


def test_12_row_weights_are_geometric_means_here_and_products_there() -> None:
    """Ratios 3/2 and 1/4 in one row: product 0.375, geometric mean 0.612."""
    assert VERL["two-tokens"]["tis sequence"]["weights"] == pytest.approx([0.375, 0.375, 1.0, 1.0])
    assert TRL["two-tokens"]["sequence truncate"]["weights"] == pytest.approx([0.375, 0.375, 1.0, 1.0], rel=1e-6)
    got = ours(tis(grpo(), level="row"), "two-tokens").batch["token_weight"]
    close(got, [math.sqrt(0.375)] * 2 + [1.0] * 2, EXACT)
    for name in RANDOM:
        batch, _ = batch_of(CASES[name])
        product = batch.row_sum(batch["old_logp"] - batch["behavior_logp"]).exp().clamp(max=2.0)
        close(batch.spread(product), VERL[name]["tis sequence"]["weights"], EXACT)


def test_13_verls_rejection_bounds_the_inverse_ratio() -> None:
    """Bounds 0.5 and 5, ratio 1/4: outside, as verl's importance weights and ours say. Its rejection looks at 4 and
    keeps it."""
    assert VERL["two-tokens"]["mis 0.5 to 5"]["weights"] == pytest.approx([1.5, 0.0, 1.0, 1.0])
    close(ours(mis(grpo()), "two-tokens").batch["token_weight"], [1.5, 0.0, 1.0, 1.0], EXACT)
    assert VERL["two-tokens"]["rejection 0.5 to 5"]["logp"][1] != 0.0


@pytest.mark.parametrize(("peer", "spread", "tolerance"), [("verl", verl_spread, EXACT), ("trl", trl_spread, SINGLE)])
def test_14_importance_weights_act_on_the_kl_term_too(peer: str, spread: Any, tolerance: float) -> None:
    """Both peers add the KL term after the weights; here every term of the policy has them."""
    seen = (VERL if peer == "verl" else TRL)["plain-5"]
    theirs = tokens(seen["tis kl"]["logp"]) - tokens(seen["tis"]["logp"])
    mine = ours(kl(tis(spread(grpo())), coef=0.1), "plain-5").logp - ours(tis(spread(grpo())), "plain-5").logp
    close(mine, theirs * tokens(seen["tis"]["weights"]), 10 * tolerance)


def test_15_k1_as_a_loss_pulls_nowhere() -> None:
    """Its slope is coef / tokens at every token, whatever the reference says; so it is refused here."""
    seen = VERL["plain-5"]
    slope = tokens(seen["kl k1"]["logp"]) - tokens(seen["grpo"]["logp"])
    close(slope, torch.full_like(slope, 0.1 / len(slope)), 1e-9)
    with pytest.raises(ValueError, match="pulls nowhere"):
        kl(grpo(), estimator="k1")


def test_16_verls_k3_plus_is_k2_in_the_gradient_and_k3_in_the_value() -> None:
    seen = VERL["plain-5"]
    close(tokens(seen["kl k3+"]["logp"]), seen["kl k2"]["logp"], EXACT)
    assert seen["kl k3+"]["loss"] == pytest.approx(seen["kl k3"]["loss"], rel=1e-12)


def test_17_trls_default_kl_carries_the_ratio() -> None:
    """q k3, slope q (k3 + 1 - exp(-d)) with d = logp - ref_logp: `use_bias_correction_kl`. Plain k3 is ours."""
    seen, (batch, policy) = TRL["plain-5"], batch_of(CASES["plain-5"])
    q, d = (policy.logp - batch["old_logp"]).exp(), policy.logp - batch["ref_logp"]
    slope = tokens(seen["kl k3, corrected"]["logp"]) - tokens(seen["bnpo"]["logp"])
    close(slope, 0.1 * q * (torch.exp(-d) - 1 + d + 1 - torch.exp(-d)) / len(d), SINGLE)


def test_18_trls_entropy_bonus_is_a_token_mean_whatever_the_loss() -> None:
    """verl's and ours follow the loss's own reduction: under a row mean, 1 / (rows * tokens of the row)."""
    seen = TRL["plain-5"]["entropy row mean"]
    assert seen["entropy"] == pytest.approx([-0.01 / len(seen["entropy"])] * len(seen["entropy"]))
    method = entropy_bonus(reduced(trl_spread(grpo()), RowMean()), coef=0.01)
    got = ours(method, "plain-5")
    close(got.logp, seen["logp"], SINGLE)
    length = batch_of(CASES["plain-5"])[0].length
    close(got.entropy, torch.repeat_interleave(-0.01 / 16 / length.double(), length), EXACT)


@pytest.mark.parametrize(
    ("run", "method", "share"),
    [
        ("dapo", trl_spread(grpo()), 4 / 7),  # tokens of rows that have a verdict
        ("grpo", reduced(trl_spread(grpo()), RowMean()), 3 / 4),  # such rows
        ("dr_grpo", dr_grpo(grpo()), 3 / 4),
    ],
)
def test_19_a_row_without_a_verdict_leaves_the_denominators(run: str, method: Method, share: float) -> None:
    """TRL (a reward of None) keeps it there with advantage 0, so that the others teach less."""
    seen = TRL["unjudged"][run]
    got = ours(method, "unjudged")
    close(got.batch["advantage"], seen["advantage"], SINGLE)
    close(share * got.logp, seen["logp"], SINGLE)


def test_20_a_step_is_normalised_by_its_own_tokens() -> None:
    """TRL with two steps a batch divides each by half the batch's tokens, whatever it holds: summed, twice the batch's
    mean. Ours divides by what the step holds."""
    halves = TRL["plain-5"]["dapo, half the batch a step"]["logp"]
    close(2 * ours(trl_spread(grpo()), "plain-5").logp, halves, SINGLE)
    batch, policy = batch_of(CASES["plain-5"])
    plan = list(trl_spread(grpo()).plan(12, reward=Pays()).phases.values())[-1]
    first = torch.arange(8)
    index = batch.token_index(first)
    step = outcome(plan, batch.take(first), policy.take(index))
    held, total = len(index), len(batch.row)
    assert held != total / 2
    close(step.logp * held / (total / 2), tokens(halves)[index], SINGLE)


def test_21_trls_rloo_has_one_ratio_for_the_row() -> None:
    """The product of its tokens' ratios, clipped as a whole, as the paper's sequence is one action; ours keeps GRPO's
    ratio of each token. On policy there is no difference (test_rloo_equals_trl_on_policy)."""
    seen, (batch, policy) = TRL["plain-5"]["rloo"], batch_of(CASES["plain-5"])
    ratio = batch.spread(batch.row_sum(policy.logp - batch["old_logp"]).exp())
    a = ours(rloo(grpo()), "plain-5").batch["advantage"]
    moves = ~(((a > 0) & (ratio > 1.2)) | ((a < 0) & (ratio < 0.8)))
    close(torch.where(moves, -ratio * a / 16, 0.0), seen["logp"], SINGLE)


def test_the_random_cases_are_as_hard_as_they_say() -> None:
    for name in RANDOM:
        batch, policy = batch_of(CASES[name])
        ratio = (policy.logp - batch["old_logp"]).exp()
        assert float(((ratio - 1).abs() > 0.2).double().mean()) > 0.2
        assert float(ratio.max()) < 3.0
        assert len(set(batch.group_std(batch["score"]).tolist())) > 1
        if name != "plain-5":
            assert int((batch.length == 0).sum()) == 1
            assert len(batch.row) < sum(len(row) for row in CASES[name]["tokens"]["trained"]) - 1
    assert len(set(batch_of(CASES["uneven-3"])[0].group_count().tolist())) == 4
    assert sum(int(batch_of(CASES[name])[0]["truncated"].sum()) for name in RANDOM) > 10


def test_the_numbers_say_where_they_come_from() -> None:
    assert VERL_FILE["versions"]["verl"] == "0.9.1"
    assert TRL_FILE["versions"]["trl"].startswith("1.16.")
    for file in (VERL_FILE, TRL_FILE):
        assert file["command"].startswith("python peers/")
        assert len(file["date"]) == 10
        assert file["versions"]["torch"]
    assert sum(path.stat().st_size for path in FIXTURES.iterdir()) < 1_000_000

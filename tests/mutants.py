"""Turns each paper's formula round and asks the test that is named for it to notice: `python tests/mutants.py`, or
with the names of some.

Every line is a mutant: a name, a file, what stands there, what stands there in the mutant, and the test that must fail.
Works on a copy of the sources. Ends with an error where a mutant lives, or where its text is no longer in the file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Mutant(NamedTuple):
    name: str
    file: str
    stands: str
    instead: str
    test: str


G, B, F = "tests/test_grpo.py::", "tests/test_baselines.py::", "tests/test_field_reports.py::"
MUTANTS = [
    Mutant(
        "grpo advantage",
        "advantage/group.py",
        'advantage = reward - batch.group_mean(batch["reward"])',
        'advantage = batch.group_mean(batch["reward"]) - reward',
        G + "test_advantages_by_hand",
    ),
    Mutant(
        "grpo loss",
        "loss/losses.py",
        "return -surrogate",
        "return surrogate",
        G + "test_loss_and_gradient_equal_a_padded_implementation",
    ),
    Mutant(
        "grpo clip",
        "loss/losses.py",
        "torch.minimum(q * a, torch.clamp",
        "torch.maximum(q * a, torch.clamp",
        G + "test_loss_and_gradient_equal_a_padded_implementation",
    ),
    Mutant(
        "dr_grpo",
        "methods/dr_grpo.py",
        "GroupNorm(std=False)",
        "GroupNorm(std=True)",
        F + "test_T01_advantages_of_a_mixed_and_a_silent_group",
    ),
    Mutant("dr_grpo length", "loss/reduction.py", "/ (rows * self.length)", "/ rows", F + "test_T11_four_reductions"),
    Mutant(
        "rloo",
        "advantage/group.py",
        "centred * n / (n - 1)",
        "-centred * n / (n - 1)",
        B + "test_leave_one_out_compares_with_the_others",
    ),
    Mutant(
        "reinforce_pp",
        "advantage/returns.py",
        "(x - mean) * torch.rsqrt",
        "(mean - x) * torch.rsqrt",
        B + "test_reinforce_pp_whitens_returns_over_tokens",
    ),
    Mutant(
        "gspo",
        "methods/gspo.py",
        'Ratio("row")',
        'Ratio("token")',
        B + "test_gspo_takes_one_ratio_a_row_and_its_gradient_is_shared_by_the_rows_tokens",
    ),
    Mutant(
        "ratio",
        "loss/ratio.py",
        'ratio_at(now.logp, batch["old_logp"]',
        'ratio_at(2 * batch["old_logp"] - now.logp, batch["old_logp"]',
        B + "test_gspo_takes_one_ratio_a_row_and_its_gradient_is_shared_by_the_rows_tokens",
    ),
    Mutant(
        "cispo",
        "loss/losses.py",
        "return -torch.clamp(q, low, high)",
        "return torch.clamp(q, low, high)",
        B + "test_cispo_clips_the_weight_and_keeps_every_gradient",
    ),
    Mutant(
        "dapo keep",
        "methods/dapo.py",
        "}) > 1",
        "}) == 1",
        B + "test_dynamic_sampling_keeps_groups_whose_scores_differ",
    ),
    Mutant(
        "dapo overlong",
        "reward/penalties.py",
        '"overlong": -(over',
        '"overlong": (over',
        B + "test_overlong_answers_lose_up_to_one",
    ),
    Mutant("ppo gae", "advantage/returns.py", "0.0) - value", "0.0) + value", B + "test_gae_by_hand"),
    Mutant(
        "ppo value",
        "loss/terms.py",
        "return torch.maximum(plain, clipped) / 2",
        "return -torch.maximum(plain, clipped) / 2",
        B + "test_the_value_loss_is_clipped_around_the_old_value",
    ),
    Mutant(
        "ppo warm-up",
        "methods/ppo.py",
        'return stack if phase == "both"',
        'return stack if phase != "both"',
        B + "test_the_critic_learns_first",
    ),
    Mutant(
        "kl in loss",
        "loss/terms.py",
        "return self.coef * kl",
        "return -self.coef * kl",
        B + "test_kl_terms_pull_towards_the_reference",
    ),
    Mutant(
        "kl in reward",
        "reward/penalties.py",
        '"kl": -self.coef',
        '"kl": self.coef',
        B + "test_kl_in_the_reward_is_paid_token_by_token",
    ),
    Mutant(
        "entropy_bonus",
        "loss/terms.py",
        "return -self.coef * now.entropy",
        "return self.coef * now.entropy",
        B + "test_the_entropy_bonus_is_paid_for_entropy",
    ),
    Mutant(
        "tis",
        "loss/weights.py",
        'ratio_at(batch["old_logp"], anchor',
        'ratio_at(anchor, batch["old_logp"]',
        B + "test_sampler_ratios_are_truncated_or_masked",
    ),
    Mutant(
        "mis",
        "loss/weights.py",
        "(weight >= self.low) & (weight <= self.high), weight, 0.0",
        "(weight >= self.low) & (weight <= self.high), 0.0, weight",
        B + "test_sampler_ratios_are_truncated_or_masked",
    ),
    Mutant(
        "mask_truncated",
        "loss/weights.py",
        '(~batch["truncated"])',
        '(batch["truncated"])',
        B + "test_rows_are_left_out_by_what_they_are",
    ),
    Mutant(
        "sft", "loss/losses.py", "return -now.logp, {", "return now.logp, {", B + "test_imitation_raises_what_it_sees"
    ),
    Mutant(
        "rejection",
        "loss/weights.py",
        'return batch["correct"].to',
        'return (~batch["correct"]).to',
        B + "test_imitation_raises_what_it_sees",
    ),
    Mutant(
        "dpo",
        "loss/pairs.py",
        "F.logsigmoid(self.beta * margin)",
        "F.logsigmoid(-self.beta * margin)",
        B + "test_dpo_by_hand",
    ),
    Mutant(
        "dpo pairs",
        "loss/pairs.py",
        "sign = (best & differ).long() - (worst & differ).long()",
        "sign = (worst & differ).long() - (best & differ).long()",
        B + "test_pairs_are_the_best_and_the_worst_and_never_made_of_equals",
    ),
    Mutant(
        "gmts ranking",
        "loss/selection.py",
        "torch.argsort(score[order], descending=True",
        "torch.argsort(score[order], descending=False",
        "tests/test_gmts.py::test_the_largest_scores_of_each_unit_are_kept",
    ),
    Mutant(
        "gmts score",
        "methods/gmts.py",
        "return (length * omega).abs()",
        "return -(length * omega).abs()",
        "tests/test_gmts.py::test_omega_is_the_slope_of_the_token_loss",
    ),
    Mutant(
        "gapo",
        "methods/gapo.py",
        "room = (k - batch.group_count(right).clamp(min=1)) / others",
        "room = (batch.group_count(right).clamp(min=1) - 1) / others",
        "tests/test_gapo.py::test_rarer_right_answers_get_more_room",
    ),
    Mutant(
        "signbalance",
        "methods/signbalance.py",
        "torch.where(sides.right, 1.0, -against)",
        "torch.where(sides.right, -1.0, against)",
        "tests/test_signbalance.py::test_wrong_answers_balance_the_right_ones_of_the_batch",
    ),
    Mutant(
        "err_plus relief",
        "reward/bonus.py",
        "-torch.inf) - entropy - self.eps)",
        "-torch.inf) * -1 + entropy - self.eps)",
        "tests/test_err_plus.py::test_drops_add_up_and_rises_do_not_count",
    ),
    Mutant(
        "err_plus efficiency",
        "reward/bonus.py",
        "torch.tanh(-self.gamma * z)",
        "torch.tanh(self.gamma * z)",
        "tests/test_err_plus.py::test_shorter_siblings_earn_more",
    ),
    Mutant(
        "err_plus switch",
        "methods/err_plus.py",
        '{"relief": RelativeEfficiency, "efficiency": EntropyRelief}',
        '{"efficiency": RelativeEfficiency, "relief": EntropyRelief}',
        "tests/test_err_plus.py::test_phases_differ_in_the_reward_alone",
    ),
    Mutant(
        "hispo segments",
        "loss/segments.py",
        "(e >= cutoff) & (e >= batch.shift(e, -1, torch.inf)) & (e > batch.shift(e, 1, torch.inf))",
        "(e >= cutoff) & (e <= batch.shift(e, -1, torch.inf)) & (e < batch.shift(e, 1, torch.inf))",
        "tests/test_hispo.py::test_of_three_peaks_two_within_the_window_the_higher_one_cuts",
    ),
    Mutant(
        "hispo saliency",
        "methods/hispo.py",
        'mean = batch.segment_mean(batch["entropy"], start)',
        'mean = -batch.segment_mean(batch["entropy"], start)',
        "tests/test_hispo.py::test_the_loss_equals_the_papers_sum_over_segments",
    ),
    Mutant(
        "bpo weight",
        "methods/bpo.py",
        "return (eps - torch.expm1(mu)) / (eps - torch.expm1(logp))",
        "return (eps - torch.expm1(logp)) / (eps - torch.expm1(mu))",
        "tests/test_bpo.py::test_weights_by_hand",
    ),
    Mutant(
        "bpo loss",
        "methods/bpo.py",
        "loss = -kept * w.clamp(max=cap) * now.logp",
        "loss = kept * w.clamp(max=cap) * now.logp",
        "tests/test_bpo.py::test_off_policy_gradients_are_the_formula_row_by_row",
    ),
    Mutant(
        "teacher's gap",
        "advantage/teacher.py",
        'gap = batch["teacher_logp"] - batch["old_logp"]',
        'gap = batch["old_logp"] - batch["teacher_logp"]',
        "tests/test_opdvr.py::test_the_verdict_gives_the_sign_and_the_teacher_the_size",
    ),
    Mutant(
        "opdvr gate",
        "advantage/teacher.py",
        "return torch.where(sign * gap > 0, gap, 0.0)",
        "return torch.where(sign * gap < 0, gap, 0.0)",
        "tests/test_opdvr.py::test_the_verdict_gives_the_sign_and_the_teacher_the_size",
    ),
    Mutant(
        "opdvr verdicts",
        "advantage/teacher.py",
        'sign = torch.where(batch["correct"], 1.0, -1.0)',
        'sign = torch.where(batch["correct"], -1.0, 1.0)',
        "tests/test_opdvr.py::test_a_policy_worse_than_its_teacher_rises_to_it_and_no_further",
    ),
    Mutant(
        "grpd scale",
        "advantage/teacher.py",
        "return earned * batch.spread(",
        "return -earned * batch.spread(",
        "tests/test_opdvr.py::test_the_groups_advantage_scales",
    ),
    Mutant(
        "opd_then_rl phases",
        "methods/opd_then_rl.py",
        'if phase == "opd":',
        'if phase != "opd":',
        "tests/test_opd_then_rl.py::test_the_first_phase_is_distillation_and_the_second_is_the_stack_without_a_teacher",
    ),
    Mutant(
        "opd_then_rl switch",
        "methods/opd_then_rl.py",
        "over = step >= self.switch",
        "over = step <= self.switch",
        "tests/test_opd_then_rl.py::test_a_fixed_switch_comes_after_its_step",
    ),
    Mutant(
        "opd_then_rl plateau",
        "plateau.py",
        "smooth > best + self.min_delta",
        "smooth < best - self.min_delta",
        "tests/test_opd_then_rl.py::test_a_plateau_switches_on_scripted_scores",
    ),
    Mutant(
        "teacher and verifier mixed",
        "advantage/teacher.py",
        "return advantage + self.b * gap",
        "return advantage - self.b * gap",
        "tests/test_opd_then_rl.py::test_mixtures_by_hand",
    ),
    Mutant(
        "teacher and verifier modulated",
        "advantage/teacher.py",
        "(advantage.sign() * gap).clamp(-1, 1).exp()",
        "(-advantage.sign() * gap).clamp(-1, 1).exp()",
        "tests/test_opd_then_rl.py::test_mixtures_by_hand",
    ),
    Mutant(
        "thinkprior order",
        "select/learnability.py",
        "key=lambda id: -worth[id]",
        "key=lambda id: worth[id]",
        "tests/test_thinkprior.py::test_the_tasks_nearest_to_half_come_first",
    ),
    Mutant(
        "thinkprior outcomes",
        "select/learnability.py",
        "return a + right, b + known - right",
        "return a - right, b - known + right",
        "tests/test_thinkprior.py::test_prior_and_outcomes_by_hand",
    ),
    Mutant(
        "thinkprior anchor",
        "select/learnability.py",
        "return strength * share, strength * (1 - share)",
        "return strength * (1 - share), strength * share",
        "tests/test_thinkprior.py::test_prior_and_outcomes_by_hand",
    ),
    Mutant(
        "gar sketch",
        "reward/alignment.py",
        "sketch = one.pull_back(error) * one.hidden",
        "sketch = -one.pull_back(error) * one.hidden",
        "tests/test_gar.py::test_the_closed_form_is_the_gradient_at_the_hidden_states_by_autograd",
    ),
    Mutant(
        "gar outer",
        "reward/alignment.py",
        "return (errors.double() * (h @ h2.T).double()).sum()",
        "return -(errors.double() * (h @ h2.T).double()).sum()",
        "tests/test_gar.py::test_the_product_of_head_gradients_is_a_sum_over_pairs_of_tokens",
    ),
    Mutant(
        "gar bonus",
        "reward/alignment.py",
        "(cosine - mean).clamp(min=0)",
        "(mean - cosine).clamp(min=0)",
        "tests/test_gar.py::test_right_answers_above_their_mean_earn_half_of_what_they_are_above",
    ),
    Mutant(
        "verpo evidence",
        "advantage/evidence.py",
        "centred(qe - q0)",
        "centred(q0 - qe)",
        "tests/test_verpo.py::test_the_scalars_are_products_in_the_fisher_metric",
    ),
    Mutant(
        "verpo contrast",
        "advantage/evidence.py",
        "t = batch[CY] - f * batch[DY]",
        "t = batch[CY] + f * batch[DY]",
        "tests/test_verpo.py::test_what_is_left_of_c_along_d_is_its_share_of_rho",
    ),
    Mutant(
        "verpo credit",
        "advantage/evidence.py",
        "a = advantage * t",
        "a = -advantage * t",
        "tests/test_verpo.py::test_alignment_is_the_slope_of_the_policy_gradient_along_c",
    ),
    Mutant(
        "verpo distilled",
        "advantage/evidence.py",
        "return -self.beta * ((pull * logp)",
        "return self.beta * ((pull * logp)",
        "tests/test_verpo.py::test_the_pull_sums_to_nothing_and_its_gradient_is_the_fisher_metric_times_c",
    ),
    Mutant(
        "cliff before",
        "methods/cliff.py",
        "torch.where(before, a.clamp(min=up), a)",
        "torch.where(before, a.clamp(max=-up), a)",
        "tests/test_cliff.py::test_before_the_mistake_at_least_up_and_from_it_on_at_most_minus_down",
    ),
    Mutant(
        "cliff after",
        "methods/cliff.py",
        "low = a.clamp(max=-self.down)",
        "low = a.clamp(min=self.down)",
        "tests/test_cliff.py::test_one_step_makes_the_prefix_likelier_and_the_suffix_less_likely",
    ),
    Mutant(
        "cliff border",
        "rollout/segments.py",
        "bisect_right(spans, start, key=itemgetter(1))",
        "bisect_right(spans, start, key=itemgetter(1)) + 1",
        "tests/test_cliff.py::test_the_mistake_begins_at_the_first_token_that_wrote_any_of_it",
    ),
    Mutant(
        "cliff trust",
        "methods/cliff.py",
        'if self.trust == "outcome":',
        'if self.trust == "judge":',
        "tests/test_cliff.py::test_of_a_right_answer_with_a_mistake_somebody_is_believed",
    ),
    Mutant(
        "oracle",
        "judges/oracle.py",
        "n < len(known) and step == known[n]",
        "n < len(known) and step != known[n]",
        "tests/test_judges.py::test_the_oracle_finds_the_first_wrong_step_of_sums_and_chains",
    ),
    Mutant(
        "judge sees",
        "judges/judge.py",
        "if not self.judge.sees_all:",
        "if self.judge.sees_all:",
        "tests/test_judges.py::test_a_judge_sees_no_gold_and_no_steps_unless_it_is_a_program",
    ),
    Mutant(
        "flowbalance gate",
        "methods/flowbalance.py",
        "self.eta * a + self.beta * sign * self.gain(batch)",
        "self.eta * a - self.beta * sign * self.gain(batch)",
        "tests/test_flowbalance.py::test_a_wrong_row_that_the_solution_speaks_for_is_drawn_lower",
    ),
    Mutant(
        "flowbalance z",
        "methods/flowbalance.py",
        "batch.mean_by(key, moved - energy, valid)",
        "batch.mean_by(key, energy - moved, valid)",
        "tests/test_flowbalance.py::test_residuals_of_a_partition_add_up_to_nothing_at_the_old_policy",
    ),
    Mutant(
        "flowbalance key",
        "methods/flowbalance.py",
        "key = group * (int(source.max()) + 2 if len(source) else 1) + source + 1",
        "key = group",
        "tests/test_flowbalance.py::test_rows_are_compared_within_a_task_and_a_context",
    ),
    Mutant(
        "regression",
        "loss/regression.py",
        "self.scale * moved - batch[self.target]",
        "self.scale * moved + batch[self.target]",
        "tests/test_flowbalance.py::test_the_first_gradient_at_the_reference_is_that_of_centred_energies",
    ),
    Mutant(
        "privileged",
        "rollout/privileged.py",
        "if r.episode != row.episode and",
        "if r.episode == row.episode and",
        "tests/test_flowbalance.py::test_a_row_sees_another_right_answer_of_its_group_and_never_its_own",
    ),
]


def dies(mutant: Mutant, sources: Path) -> str:
    """'dies', or what is wrong."""
    file = sources / "rlvr" / mutant.file
    text = file.read_text()
    if text.count(mutant.stands) != 1:
        return f"{mutant.stands!r} stands {text.count(mutant.stands)} times in {mutant.file}"
    file.write_text(text.replace(mutant.stands, mutant.instead))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", mutant.test]
    environment = {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}
    code = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True).returncode
    file.write_text(text)
    return {0: "LIVES", 1: "dies"}.get(code, f"pytest ended with {code}: is {mutant.test} there?")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder) / "src"
        shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
        bad = 0
        for mutant in [m for m in MUTANTS if not sys.argv[1:] or m.name in sys.argv[1:]]:
            told = dies(mutant, sources)
            bad += told != "dies"
            print(f"{mutant.name:<18} {told:<6} {mutant.test.partition('::')[2]}", flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()

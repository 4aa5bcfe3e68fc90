"""Which papers must stack and which must be refused, written by hand from what each paper defines."""

import itertools
from pathlib import Path

import pytest

from rlvr.pairs import stack_pairs, table

# What two papers both define, or one needs and the other takes away: refused, with a sentence that names this.
ADVANTAGE = ("dr_grpo", "rloo", "reinforce_pp", "ppo", "signbalance")  # each defines the advantage
LOSS = ("cispo", "rejection", "dpo", "bpo")  # each defines another loss (sft has rejection's)
NO_ADVANTAGE = ("sft", "rejection", "dpo")  # their losses read neither advantage nor ratio
TEACHER = ("opdvr", "opd_then_rl")  # what they learn from a teacher is an advantage
REQUIRED_REFUSALS: dict[frozenset[str], str] = {
    **{frozenset(p): "both define the advantage" for p in itertools.combinations(ADVANTAGE, 2)},
    **{frozenset(p): "both define the loss" for p in itertools.combinations(LOSS, 2)},
    **{frozenset((a, b)): "nothing in this stack reads it" for a in ADVANTAGE for b in NO_ADVANTAGE},
    **{frozenset((a, b)): "nothing in this stack reads it" for a in ("gspo", "gapo", "hispo") for b in NO_ADVANTAGE},
    **{frozenset(("bpo", b)): f"{b} sets ratio" for b in ("gspo", "hispo")},  # its weight stands where a ratio would
    **{frozenset(("opdvr", b)): "both define the advantage" for b in ADVANTAGE},
    **{frozenset((a, b)): f"{a} sets advantage" for a in TEACHER for b in NO_ADVANTAGE},
    frozenset(TEACHER): "its second phase learns from verdicts alone",
    frozenset(("opdvr", "dapo")): "it asks the verdict",
    frozenset(("opdvr", "err_plus")): "it asks the verdict",
    frozenset(("gspo", "hispo")): "both define the ratio",
    frozenset(("sft", "cispo")): "both define the loss",
    frozenset(("sft", "bpo")): "both define the loss",
    frozenset(("sft", "dpo")): "both define the",  # loss and rollout
    frozenset(("dr_grpo", "dpo")): "both define the reduction",
    frozenset(("tis", "mis")): "both correct for the sampler",
    frozenset(("tis", "bpo")): "both correct for the sampler",
    frozenset(("mis", "bpo")): "both correct for the sampler",
    frozenset(("dapo", "signbalance")): "it asks the verdict",  # its overlong part would be lost
    frozenset(("err_plus", "signbalance")): "it asks the verdict",
    frozenset(("tis", "dpo")): "a preference is one number a pair",
    frozenset(("mis", "dpo")): "a preference is one number a pair",
    frozenset(("gmts", "dpo")): "a preference is one number a pair",
    frozenset(("err_plus", "sft")): "err_plus sets reward",
    frozenset(("err_plus", "rejection")): "err_plus sets reward",
    frozenset(("dapo", "sft")): "dapo sets reward",  # its overlong part pays nobody
    frozenset(("dapo", "rejection")): "dapo sets reward",
    **{frozenset(("gar", b)): "it asks the verdict" for b in ("signbalance", "opdvr")},  # its bonus would be lost
    **{frozenset(("gar", b)): "gar sets derive" for b in ("sft", "rejection")},
    **{frozenset(("verpo", b)): "verpo sets reshape" for b in (*NO_ADVANTAGE, "flowbalance")},
    **{frozenset(("cliff", b)): "cliff sets annotate" for b in NO_ADVANTAGE},  # nobody would read what the judge said
    **{frozenset(("flowbalance", b)): "both define the loss" for b in (*LOSS, "sft")},
    frozenset(("flowbalance", "dr_grpo")): "both define the reduction",
    **{frozenset(("flowbalance", b)): "is one of tokens, not of rows" for b in ("ppo", "reinforce_pp", "opdvr")},
    **{frozenset(("flowbalance", b)): "residual is one number a row" for b in ("tis", "mis", "gmts")},
    **{
        frozenset(("flowbalance", b)): "nothing in this stack reads it"
        for b in ("gspo", "gapo", "hispo", "cliff", "opd_then_rl")
    },
}
KNOWN = {
    *ADVANTAGE, *LOSS, *NO_ADVANTAGE, *TEACHER, "gspo", "gapo", "hispo", "tis", "mis", "gmts", "err_plus", "thinkprior",
    "dapo", "gar", "verpo", "cliff", "flowbalance", "kl", "entropy_bonus", "mask_truncated"
}  # fmt: skip


def test_the_generated_table_is_the_one_written_by_hand() -> None:
    pairs = {frozenset((p.one, p.other)): p.refusal for p in stack_pairs(sorted(KNOWN))}
    assert {pair for pair, refusal in pairs.items() if refusal} == set(REQUIRED_REFUSALS)


@pytest.mark.parametrize("pair", REQUIRED_REFUSALS, ids=lambda p: "+".join(sorted(p)))
def test_each_refusal_says_why_and_names_both(pair: frozenset[str]) -> None:
    (got,) = stack_pairs(sorted(pair))
    assert got.refusal is not None
    assert REQUIRED_REFUSALS[pair] in got.refusal
    assert all(name in got.refusal for name in pair)


def test_the_page_in_the_docs_is_the_generated_one() -> None:
    page = Path(__file__).parents[1] / "docs" / "stacking.md"
    assert page.read_text() == table(stack_pairs()), "run: make docs"

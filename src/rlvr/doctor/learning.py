"""Is there anything to learn from, and is it measured by the policy that acted? Told by one step's real rollouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rlvr.assemble import GAP_LIMITS
from rlvr.doctor.finding import Finding
from rlvr.doctor.patient import Patient

FEWEST = 8  # groups; ours: below, all being silent may be chance


def silent_groups(patient: Patient) -> Iterator[Finding]:
    """Groups whose rollouts all earn the same have no advantage: the loss is 0 and nothing says so."""
    assert patient.played is not None
    groups, batch = patient.played.groups, patient.played.batch
    kinds = Counter(group.kind for group in groups)
    if len(groups) < FEWEST or kinds["unknown"] == len(groups):
        return
    if batch is not None:
        if "advantage" not in batch:  # the method does not compare
            return
        taught = "teacher_logp" in batch  # a teacher tells tokens apart where verdicts do not
        apart = taught or len(batch["reward"][batch["known"]].unique()) > 1
        if bool(batch["advantage"].any()) and apart:
            return
    rows = patient.played.rows
    if kinds["solved"] == len(groups):
        why, mend = "all right (the tasks are too easy)", "Take harder tasks, or a smaller model."
    elif kinds["failed"] == len(groups):
        why = "all wrong (the tasks are too hard, or the verifier does not see the answers)"
        mend = "Take easier tasks (`tasks`, `levels`), a stronger model, or raise group_size; read some answers first."
    else:
        why, mend = "alike within every group", "Raise group_size or temperature, or take other tasks."
    yield Finding(
        "silent_groups",
        "wrong",
        f"{len(rows)} rollouts of {len(groups)} tasks are {why}: nothing tells them apart, and nothing would be "
        "learned.",
        mend,
    )


def sampler_gap(patient: Patient) -> Iterator[Finding]:
    """Sampler and trainer give the same tokens other log-probs."""
    assert patient.played is not None
    recipe, gap = patient.recipe, patient.played.gap
    limit = GAP_LIMITS[recipe.dtype] if recipe.gap_limit is None else recipe.gap_limit
    if gap is not None and not gap <= limit:
        yield Finding(
            "sampler_gap",
            "wrong",
            f"Sampler and trainer disagree by {gap:.3g} nats a token on the same weights, more than gap_limit = "
            f"{limit:g}: the run stops after its first step.",
            'Set dtype = "float32"; where the difference is known and small, correct it by the paper tis.',
        )


def no_verdicts(patient: Patient) -> Iterator[Finding]:
    """Real answers that the verifier cannot judge."""
    assert patient.played is not None
    verdicts = [v for group in patient.played.groups for v in group.verdicts.values()]
    unknown = [v.reason for v in verdicts if not v.known]
    failed = [row.reason for row in patient.played.rows if row.status == "failed"]
    if len(unknown) > patient.recipe.unknown_limit * len(verdicts):
        (reason, _), *_ = Counter(failed or unknown).most_common(1)
        yield Finding(
            "unknown_verdicts",
            "wrong",
            f"{len(unknown)} of {len(verdicts)} real rollouts get no verdict ({reason}), more than unknown_limit = "
            f"{patient.recipe.unknown_limit:g}: the run stops after its first step.",
            "Mend the gold, the verifier or the machine, whichever the reason names.",
        )

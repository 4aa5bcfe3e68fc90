"""Parts of the reward: are those that the recipe weighs told by the verifier, and does one of them drown the others?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlvr.doctor.finding import Finding
from rlvr.doctor.gold import NETWORK, Study
from rlvr.doctor.patient import Patient
from rlvr.reward.balance import drowning


def missing(patient: Patient, studied: Sequence[Study]) -> Iterator[Finding]:
    """[parts] names a part that no verdict has."""
    tasks, wanted = patient.tasks[:4], set(patient.recipe.parts)
    if not (wanted and tasks and patient.asked) or any(s in patient.asked.verifier.fingerprint for s in NETWORK):
        return
    written = {t.id: s.write(t, s.form) for s in studied if s.form for t in s.tasks}
    verdicts = patient.ask(patient.asked.verifier, [(written.get(t.id) or "0", t) for t in tasks])
    told = {part for v in verdicts if v.known for part in v.parts}
    if any(v.known for v in verdicts) and (lacking := sorted(wanted - told)):
        yield Finding(
            "part_missing",
            "wrong",
            f"[parts] weighs {', '.join(lacking)}, which the verifier does not tell; it tells "
            f"{', '.join(sorted(told)) or 'no part'}.",
            "Drop the part from [parts], or let the verifier return it beside its score.",
        )


def drowned(patient: Patient) -> Iterator[Finding]:
    """One part supplies nearly all that tells the rollouts of a group apart."""
    batch = patient.played.batch if patient.played else None
    sentence = drowning(batch) if batch is not None else None
    if sentence:
        says, _, mend = sentence.partition(". ")
        yield Finding("part_drowns", "wrong", f"{says[0].upper()}{says[1:]}.", f"{mend}, under [parts].")

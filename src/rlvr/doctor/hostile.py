"""Answers that nobody should be paid for: nothing, the prompt again, another task's gold, every answer at once, an
endless one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlvr.doctor.finding import Finding, example
from rlvr.doctor.gold import TESTS, Study
from rlvr.doctor.patient import Patient
from rlvr.records import Task
from rlvr.rows import prompt_text

SOME = 0.05  # ours: share of tasks paid for such an answer that is no coincidence
ENDLESS = 200_000  # characters behind a gold
NONSENSE = ("7654321", "1234567")
TURN = "Such answers will be found by the policy and nothing else will be learned; mend `verifier`"


def unearned(patient: Patient, studied: Sequence[Study]) -> Iterator[Finding]:
    prompts = {task.id: prompt_text(task.prompt) for task in patient.templated}
    for study in studied:
        yield from _paid(patient, study, "pays_empty", "An empty answer", [("", t) for t in study.tasks], TURN + ".")
        if study.kind in TESTS:
            continue
        echoes = [(prompts[t.id], t) for t in study.tasks]
        yield from _paid(patient, study, "pays_echo", "The prompt itself, repeated as an answer,", echoes, TURN + ".")
        if study.form not in (None, "demo", "query"):
            yield from _others(patient, study, study.form or "bare")


def _others(patient: Patient, study: Study, form: str) -> Iterator[Finding]:
    tasks = [study.tasks[i] for i in sorted(study.right)]
    write = lambda task, gold=None: study.write(task, form, gold) or ""  # noqa: E731
    golds = dict.fromkeys(str(task.answer) for task in tasks)
    # for each task two answers that are not wanted: other tasks' golds where there are any
    wrong = [[g for g in (*golds, *NONSENSE) if g != str(task.answer)][:2] for task in tasks]
    alone = [(write(task, other), task) for (other, _), task in zip(wrong, tasks)]
    mend = TURN + ", or raise its right_above if it pays for the form alone."
    paid = list(_paid(patient, study, "pays_anything", "Another task's gold", alone, mend, share=0.5))
    if paid:
        yield from paid
        return
    shots = [("\n".join([write(t, first), write(t), write(t, last)]), t) for (last, first), t in zip(wrong, tasks)]
    what = "A list of answers with the gold among them, but neither first nor last,"
    yield from _paid(patient, study, "pays_shotgun", what, shots, TURN + " so that it reads one answer.")
    # a gold that is a whole solution would end before the digits
    short = [t for t in tasks if len(str(t.answer).split()) == 1 and "\\boxed" not in str(t.answer)]
    endless = [(write(t, str(t.answer) + "7" * ENDLESS), t) for t in short[:2]]
    yield from _paid(
        patient, study, "pays_endless", f"A gold with {ENDLESS} digits behind it", endless, TURN + ".", share=0.5
    )


def _paid(
    patient: Patient,
    study: Study,
    check: str,
    what: str,
    items: Sequence[tuple[str, Task]],
    mend: str,
    share: float = SOME,
) -> Iterator[Finding]:
    """A finding where more than `share` of these answers are right."""
    verdicts = patient.ask(study.verifier, items)
    right = [task for (_, task), verdict in zip(items, verdicts) if verdict.label == "right"]
    if len(right) > share * len(items):
        yield Finding(
            check,
            "wrong",
            f"{what} is right by the verifier {study.kind} on {len(right)} of {len(items)} tasks, as for "
            f"{example(right)}.",
            mend,
        )

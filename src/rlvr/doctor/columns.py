"""Are prompt and answer the right way round? Two columns that are swapped train without any error."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlvr.doctor.finding import Finding
from rlvr.doctor.patient import Patient
from rlvr.records import Task
from rlvr.verify.numeric import Number, parse_number

MOSTLY = 0.8  # ours: share of tasks that must look swapped
_CHOSEN = re.compile(r"\(?[A-J]\)?|yes|no|true|false|\\boxed\{.*\}|####.*", re.IGNORECASE)
_WORKED = re.compile(r"\n#### *\S.*\Z")  # how a worked solution of gsm8k ends; prompts end with what they ask


def swapped(patient: Patient) -> Iterator[Finding]:
    """Most prompts are answers, bare or worked out, and the golds of these tasks read like questions."""
    tasks = patient.tasks
    found = [t for t in tasks if _looks_swapped(t)]
    if tasks and len(found) >= MOSTLY * len(tasks):
        yield Finding(
            "columns_swapped",
            "wrong",
            f"{len(found)} of {len(tasks)} prompts are {_kind(found[0])} and their golds read like questions, as in "
            f"task {found[0].id}: {_words(found[0])[-40:]!r} is asked, {str(found[0].answer)[:60]!r} is wanted.",
            'Swap the columns of the task source, e.g. prompt = { column = "question" }, answer = { column = '
            '"answer" }.',
        )


def _words(task: Task) -> str:
    prompt = task.prompt if isinstance(task.prompt, str) else str(task.prompt[-1].get("content", ""))
    return prompt.strip()


def _bare(text: str) -> bool:
    return isinstance(parse_number(text), Number) or bool(_CHOSEN.fullmatch(text))


def _kind(task: Task) -> str:
    return "bare answers" if _bare(_words(task)) else "worked solutions"


def _looks_swapped(task: Task) -> bool:
    gold = task.answer.strip() if isinstance(task.answer, str) else ""
    asks = len(gold.split()) >= 4 or gold.endswith(("?", "=", ":"))
    if _WORKED.search(_words(task)):  # others judge a solution in a sentence, but nobody does so by a question
        return gold.endswith("?")
    return asks and not _bare(gold) and _bare(_words(task))

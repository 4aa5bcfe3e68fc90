"""Gold against gold: is the answer that a task wants right in the eyes of the verifier that will judge the run?

Each gold is written as an answer in the forms that prompts ask for (bare, `\\boxed{}`, behind a mark, in a tag ...),
first the one that the recipe's prompt names. `study` finds the form that works; the checks say where none does.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from rlvr.doctor.finding import Finding, example
from rlvr.doctor.patient import Patient
from rlvr.records import Task, Verdict
from rlvr.rows import prompt_text
from rlvr.verify.box import last_boxed
from rlvr.verify.own import Own
from rlvr.verify.spec import verifier_from

COMPOSITES = frozenset({"all_of", "any_of", "weighted"})
NETWORK = frozenset({"llm_judge", "rubric"})  # each question costs money
# Verifiers whose gold is no answer but a test of one; only a demonstration says what would be right.
TESTS = frozenset({"countdown", "code", "json_schema", "instructions", *NETWORK})
ANY = "```python\nx = 1\n```"
OPEN = frozenset({"function", "closure"})  # they may want any form
# What a prompt says, and the form that it asks for with it. Marks first: `#### \\boxed{}` would be read by the mark.
HINTS = (("marked", re.compile("####")), ("boxed", re.compile(r"\\boxed")), ("tagged", re.compile("<answer>")))
SHOWN = {
    "bare": "{}",
    "boxed": "\\boxed{{{}}}",
    "marked": "{mark} {}",
    "tagged": "<answer>{}</answer>",
    "thought_boxed": "<think>\n\n</think>\n\n\\boxed{{{}}}",
    "thought_tagged": "<think>\n\n</think>\n<answer>{}</answer>",
    "said": "The answer is {}.",
    "query": "```sql\n{}\n```",
    "json": '{{"answer": {json}}}',
}


@dataclass(frozen=True, slots=True)
class Study:
    """What one verifier says of the golds of its tasks."""

    verifier: Any
    tasks: tuple[Task, ...]
    mark: str
    lead: str  # what a regex wants in front of an answer, where that can be read off it
    hinted: str | None  # the form that the prompt asks for
    form: str | None = None  # the form in which most golds are right; None where none is
    right: frozenset[int] = frozenset()  # tasks whose gold is right in some form
    last: dict[int, Verdict] = field(default_factory=dict)  # of each other task, the verdict that says most
    tried: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return str(getattr(self.verifier, "fingerprint", type(self.verifier).__name__)).partition("(")[0]

    def write(self, task: Task, form: str, gold: str | None = None) -> str | None:
        """The gold (or another text in its place) as an answer in a form; None where the task cannot be written so."""
        if form == "demo":
            demo = task.meta.get("demo")
            demo = demo[0] if isinstance(demo, list | tuple) and demo else demo
            return demo if isinstance(demo, str) and gold is None else None
        text = _text(task.answer) if gold is None else gold
        if text is None:
            return None
        if form == "led":
            return f"{self.lead}{text}" if self.lead else None
        if form == "boxed" and gold is None:
            text = last_boxed(text)[0] or text  # a worked solution brings its answer in a box of its own
        return SHOWN[form].format(text, mark=self.mark, json=json.dumps(text))


def studies(patient: Patient) -> list[Study]:
    """One for each verifier that judges tasks of the sample, parts of composites apart."""
    by_spec: dict[str | None, list[Task]] = {}
    for task in patient.tasks:
        by_spec.setdefault(task.verifier, []).append(replace(task, verifier=None))
    out = []
    for spec, tasks in by_spec.items():
        verifier = patient.asked.verifier if spec is None and patient.asked else verifier_from(spec or Own())
        out += [_study(patient, leaf, tasks) for leaf in _leaves(verifier) if _kind(leaf) not in NETWORK]
    return out


def _study(patient: Patient, verifier: Any, tasks: Sequence[Task]) -> Study:
    hinted = _hinted(patient, tasks)
    start = Study(verifier, tuple(tasks), _mark(verifier), _lead(verifier), hinted)
    forms = ["demo"] if start.kind in TESTS else list(dict.fromkeys([*_first(hinted), *SHOWN, "led", "demo"]))
    right: Counter[str] = Counter()
    solved: set[int] = set()
    last: dict[int, Verdict] = {}
    tried: list[str] = []
    for form in forms:
        open_ = [i for i in range(len(tasks)) if i not in solved]
        written = {i: text for i in open_ if (text := start.write(tasks[i], form)) is not None}
        if not written:
            continue
        tried.append(form)
        for i, verdict in zip(written, patient.ask(verifier, [(written[i], tasks[i]) for i in written])):
            if verdict.label == "right":
                solved.add(i)
                right[form] += 1
            elif i not in last or verdict.reason != "no_answer":
                last[i] = verdict
        if len(solved) == len(tasks):
            break
    if not tried and start.kind in TESTS:  # whether the gold can be read shows with any answer
        probed = patient.ask(verifier, [(ANY, task) for task in tasks])
        last = {i: verdict for i, verdict in enumerate(probed) if not verdict.known}
    best = right.most_common(1)[0][0] if right else None
    return replace(start, form=best, right=frozenset(solved), last=last, tried=tuple(tried))


# ---- checks ----------------------------------------------------------------------------------------------
def golds(patient: Patient, studied: Sequence[Study]) -> Iterator[Finding]:
    """A gold that cannot be read, that gets no verdict, or that is wrong as its own answer."""
    for study in studied:
        left = [i for i in range(len(study.tasks)) if i not in study.right and i in study.last]
        silent = [i for i in left if study.last[i].label == "unknown"]
        yield from _without_verdict(patient, study, silent)
        refused = [i for i in left if i not in silent]
        if not refused:
            continue
        yield _refused(study, refused) if study.right else _never_right(patient, study, refused)


def asked_form(studied: Sequence[Study]) -> Iterator[Finding]:
    """The prompt asks for one form of answer, and the verifier reads another."""
    for study in studied:
        if study.form not in (None, study.hinted, "demo") and study.hinted in study.tried:
            assert study.form is not None
            asked, read = (study.write(study.tasks[0], form or "bare", "...") for form in (study.hinted, study.form))
            yield Finding(
                "form",
                "wrong",
                f"The prompt asks for `{asked}`, and there the verifier {study.kind} finds no right answer; it reads "
                f"`{read}`.",
                "Let `prompt` and `verifier` agree: last_box reads \\boxed{}, hash_marker reads ####.",
            )


def _without_verdict(patient: Patient, study: Study, silent: Sequence[int]) -> Iterator[Finding]:
    unreadable = [i for i in silent if study.last[i].reason.startswith(("bad_gold", "no_tests", "no_checks"))]
    for check, which, says in (
        ("gold_unreadable", unreadable, "golds cannot be read"),
        ("no_verdict", [i for i in silent if i not in unreadable], "golds get no verdict"),
    ):
        if which:
            share = len(which) / len(study.tasks)
            yield Finding(
                check,
                "wrong" if share > patient.recipe.unknown_limit else "warning",
                f"{len(which)} of {len(study.tasks)} {says} by the verifier {study.kind}: "
                f"{example([study.tasks[i] for i in which])}, {study.last[which[0]].reason}.",
                "Mend these golds (`answer` of the task source), or take a verifier that reads them; above "
                f"unknown_limit = {patient.recipe.unknown_limit:g} the run stops.",
            )


def _refused(study: Study, refused: Sequence[int]) -> Finding:
    assert study.form is not None
    first = study.tasks[refused[0]]
    return Finding(
        "gold_refused",
        "wrong",
        f"{len(refused)} of {len(study.tasks)} golds are wrong as their own answer by the verifier {study.kind}: "
        f"{example([first])} as {_short(study.write(first, study.form) or '')} is {study.last[refused[0]].reason!r}.",
        "No policy can be paid for these tasks: mend their golds, or the verifier (one that catches its own "
        "exceptions and returns 0 looks like this; let them through, they are recorded).",
    )


def _never_right(patient: Patient, study: Study, refused: Sequence[int]) -> Finding:
    task = study.tasks[refused[0]]
    if _twice(patient, study):
        return Finding(
            "stripped_twice",
            "wrong",
            f"The verifier {study.kind} takes the answer out of its box and then looks for a box in it: "
            f"{_short(study.write(task, 'boxed') or '')} for {example([task])} is {study.last[refused[0]].reason!r}, "
            "and so is every right answer.",
            'Strip the box once: verifier = "last_box", or let the inner comparison take bare answers.',
        )
    tried = ", ".join(_short(study.write(task, form) or "") for form in study.tried if form != "demo")
    known = study.kind not in OPEN
    return Finding(
        "never_right",
        "warning" if study.kind == "regex" else "wrong",
        f"No gold is right as its own answer by the verifier {study.kind}: for {example([task])} it calls "
        f"{tried or 'the demonstration'} {study.last[refused[0]].reason!r}.",
        "Look at what it compares with what; `verifier` or the columns of the task source may be the wrong ones."
        if known
        else "Call the function with a gold by hand. If it catches its own exceptions and returns 0, let them through: "
        "they are recorded as no verdict. If it wants another form, put one right answer into meta.demo of each task.",
    )


def _twice(patient: Patient, study: Study) -> bool:
    """A box inside a box, and nothing else, is right: or one `last_box` is the inner verifier of another."""
    verifier = study.verifier
    while study.kind == "last_box" and (verifier := getattr(verifier, "inner", None)) is not None:
        if _kind(verifier) == "last_box":
            return True
    task = study.tasks[0]
    gold = study.write(task, "boxed")
    doubled = study.write(task, "boxed", gold) if gold else None
    return doubled is not None and patient.ask(study.verifier, [(doubled, task)])[0].label == "right"


# ---- forms -----------------------------------------------------------------------------------------------
def _text(answer: Any) -> str | None:
    return answer if isinstance(answer, str) else str(answer) if isinstance(answer, int | float) else None


def _kind(verifier: Any) -> str:
    return str(getattr(verifier, "fingerprint", type(verifier).__name__)).partition("(")[0]


def _leaves(verifier: Any) -> list[Any]:
    if _kind(verifier) not in COMPOSITES:
        return [verifier]
    parts = [getattr(verifier, f.name) for f in fields(verifier)]
    return [leaf for part in parts if hasattr(part, "fingerprint") for leaf in _leaves(part)]


def _mark(verifier: Any) -> str:
    while verifier is not None:
        if isinstance(mark := getattr(verifier, "marker", None), str):
            return mark
        verifier = getattr(verifier, "inner", None)
    return "####"


def _lead(verifier: Any) -> str:
    """The literal text before a pattern's first group: "Answer: " of "Answer: (.*)"."""
    head = str(getattr(verifier, "pattern", "")).partition("(")[0]
    return "" if re.search(r"[\[\]\\.*+?{}|^$]", head) else head


def _first(hinted: str | None) -> tuple[str, ...]:
    return (hinted,) if hinted else ()


def _hinted(patient: Patient, tasks: Sequence[Task]) -> str | None:
    """The form that the recipe's own words ask for, or the prompts of nearly all tasks."""
    words = f"{patient.recipe.prompt or ''}\n{patient.recipe.system or ''}"
    prompts = [prompt_text(task.prompt) for task in tasks]
    for form, pattern in HINTS:
        if pattern.search(words) or sum(bool(pattern.search(p)) for p in prompts) > 0.9 * len(prompts):
            return form
    return None


def _short(text: str) -> str:
    text = " ".join(text.split())
    return f"`{text[:57] + '...' if len(text) > 60 else text}`"

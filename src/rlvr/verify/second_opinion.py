"""The `second_opinion` verifier: judges as another verifier does, and notes where math-verify sees it differently.

The verdict is never changed: the file is for finding faults, ours or theirs. math-verify (the extra `rlvr[math]`) runs
in a process of its own that is killed when it takes too long, because it may hang. It gives some hundred opinions in a
second: use it on samples, not in training.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlvr.records import Task, Verdict
from rlvr.registry import register
from rlvr.verify.math_answer import Math
from rlvr.verify.verifier import Verifier, fingerprint, gold_text
from rlvr.verify.worker import Handler, Worker, WorkerFailed

log = logging.getLogger("rlvr.verify")


@register("verifier", "second_opinion")
@dataclass(frozen=True, slots=True)
class SecondOpinion:
    """The inner verifier's verdict, with math-verify's view of the same answer in parts["second_opinion"].

    That part is 1 for equal, 0 for different, and missing where there is no opinion: nothing was extracted, the gold
    is bad, or math-verify failed or took over `seconds`. Where the two differ, a JSON line with task, gold, answer and
    both views is appended to the file `differences`.

    Raises VerifierBroken at the first call where math-verify is not installed.
    """

    inner: Verifier = field(default_factory=Math)
    differences: str = "differences.jsonl"
    seconds: float = 5.0  # ours: math-verify's own limit
    _worker: Worker = field(init=False, repr=False, compare=False)
    _writing: threading.Lock = field(init=False, repr=False, compare=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if not (isinstance(self.seconds, int | float) and 0 < self.seconds < float("inf")):
            raise ValueError(f"second_opinion: seconds is the time for one opinion, above 0, not {self.seconds!r}")
        settings = {"path": "math-verify (install it with: pip install 'rlvr[math]')"}
        object.__setattr__(self, "_worker", Worker("rlvr.verify.second_opinion:open_math_verify", settings))

    @property
    def fingerprint(self) -> str:
        return fingerprint("second_opinion", self)

    def __call__(self, text: str, task: Task) -> Verdict:
        verdict = self.inner(text, task)
        gold = gold_text(task)
        if verdict.extracted is None or gold is None or not verdict.known:
            return verdict
        opinion = self._ask(verdict.extracted, gold, task)
        if opinion is None:
            return verdict
        if opinion != (verdict.label == "right"):
            self._note(verdict, gold, task, opinion)
        return replace(verdict, parts={**verdict.parts, "second_opinion": float(opinion)})

    def _ask(self, answer: str, gold: str, task: Task) -> bool | None:
        try:
            opinion = self._worker.ask(json.dumps([gold, answer]), self.seconds)
        except (TimeoutError, WorkerFailed) as error:
            log.info("task %s: no second opinion: %s", task.id, error or "too slow")
            return None
        return None if opinion is None else bool(opinion)

    def _note(self, verdict: Verdict, gold: str, task: Task, opinion: bool) -> None:
        line = {
            "task": task.id,
            "gold": gold,
            "answer": verdict.extracted,
            "ours": verdict.label,
            "reason": verdict.reason,
            "theirs": "right" if opinion else "wrong",
        }
        with self._writing, Path(self.differences).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def open_math_verify(settings: Mapping[str, Any]) -> tuple[None, Handler]:
    """The worker's side: [gold, answer] -> whether math-verify calls them equal; None where it reads nothing in one."""
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns of each call without its own time limit

    def opinion(question: list[str]) -> bool | None:
        gold, answer = (parse(f"${text}$", parsing_timeout=None) for text in question)
        return bool(verify(gold, answer, timeout_seconds=None)) if gold and answer else None

    return None, opinion

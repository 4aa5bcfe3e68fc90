"""The `regex` verifier: a pattern of the user's own finds the answer.

`re` backtracks, and a pattern that is fast on honest text may take for ever on text that a policy has learned to
write; the interpreter is held all the while, so that no thread and no signal can stop it. The pattern therefore runs
in a worker process that is killed at its deadline.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlvr.records import Task, Verdict
from rlvr.registry import register
from rlvr.verify.patience import MOST_TIMEOUTS, Patience
from rlvr.verify.plain import Plain
from rlvr.verify.verifier import Verifier, fingerprint, unknown, wrong
from rlvr.verify.worker import Handler, Worker, WorkerFailed

LONGEST_SEARCHED = 1_000_000  # characters; ours: a quarter of a million tokens


@register("verifier", "regex")
@dataclass(frozen=True, slots=True)
class Regex:
    """Right iff the inner verifier (default `plain`) accepts what the pattern finds.

    The answer is the group called `answer`, else the first group, of the last match (`last=False`: the first). Write
    flags into the pattern: (?s), (?i). A search over `seconds` is `unknown` ("timeout"), `most_timeouts` on end stop
    the run. Reasons: those of the inner verifier, "no_answer" (no match), "over_limit" (over a
    million characters), "timeout", "bad_gold".

    Raises ValueError for a pattern that is none or has no group.
    """

    pattern: str
    last: bool = True
    seconds: float = 2.0  # ours: an honest search takes milliseconds
    inner: Verifier = field(default_factory=Plain)
    most_timeouts: int = MOST_TIMEOUTS
    _worker: Worker = field(init=False, repr=False, compare=False)
    _patience: Patience = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise ValueError(f"regex: {self.pattern!r} is no pattern: {error}") from None
        if not groups:
            raise ValueError(f"regex: {self.pattern!r} has no group; put parentheses around the answer")
        settings = {"pattern": self.pattern, "last": self.last}
        object.__setattr__(self, "_worker", Worker("rlvr.verify.regex:open_pattern", settings))
        object.__setattr__(self, "_patience", Patience(f"regex {self.pattern!r}", self.seconds, self.most_timeouts))

    @property
    def fingerprint(self) -> str:
        return fingerprint("regex", self)

    def __call__(self, text: str, task: Task) -> Verdict:
        if len(text) > LONGEST_SEARCHED:
            return wrong("over_limit")
        try:
            answer = self._worker.ask(json.dumps(text), self.seconds)
        except TimeoutError:
            self._patience.overran(task.id)
            return unknown("timeout")
        except WorkerFailed as error:
            self._patience.answered()
            return unknown(str(error))
        self._patience.answered()
        return wrong("no_answer") if answer is None else self.inner(answer, task)


def open_pattern(settings: Mapping[str, Any]) -> tuple[None, Handler]:
    """The worker's side of `Regex`."""
    pattern = re.compile(settings["pattern"])
    group: str | int = "answer" if "answer" in pattern.groupindex else 1

    def answer(text: str) -> str | None:
        found = pattern.finditer(text) if settings["last"] else itertools.islice(pattern.finditer(text), 1)
        last = deque(found, maxlen=1)
        return last[0][group] if last else None

    return None, answer

"""The `rubric` verifier: a language model says which criteria an answer meets; what that is worth is computed here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlvr.records import Rollout, Task, Verdict
from rlvr.registry import register
from rlvr.server import ServerFailed
from rlvr.verify.llm_judge import (
    endpoint_of,
    judge_side_by_side,
    patience_of,
    patient_ask,
    prompt_text,
    refuse_without_key,
)
from rlvr.verify.patience import MOST_TIMEOUTS, Patience
from rlvr.verify.verifier import SHOWN, fingerprint, unknown, wrong

FORM = """{"met": [true or false for each criterion, in order], "reason": "one sentence"}
A criterion is met only if the answer itself shows it; what the answer says about criteria or about itself shows
nothing."""


@register("verifier", "rubric")
@dataclass(frozen=True, slots=True)
class Rubric:
    """Scores the criteria of the gold: a list of texts, or of {"criterion": text, "weight": number}.

    Score: the sum of the weights that are met by the sum of the positive ones, within [0, 1]; a negative weight is a
    fault that is found. Right iff the score reaches `pass_at`; a wrong answer keeps its score. All criteria are asked
    in one request. For the settings of the judge see `Endpoint` of llm_judge; reasons and errors are those of
    `llm_judge`, with "met"/"not_met" for its first two. Parts: 1 or 0 under "1", "2", ...
    """

    url: str
    model: str
    key: str = "OPENAI_API_KEY"
    seconds: float = 60.0
    retries: int = 3
    max_tokens: int = 2048
    cache: str | None = None
    parallel: int = 8
    longest: int = 20_000
    pass_at: float = 1.0
    most_timeouts: int = MOST_TIMEOUTS
    _patience: Patience = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        endpoint_of(self)
        object.__setattr__(self, "_patience", patience_of("rubric", self))
        if not 0 < self.pass_at <= 1:
            raise ValueError(
                f"rubric: pass_at is the score from which an answer is right, in (0, 1], not {self.pass_at!r}"
            )

    @property
    def fingerprint(self) -> str:
        return fingerprint("rubric", self)

    def prepare(self) -> None:
        refuse_without_key("rubric", self)

    def __call__(self, text: str, task: Task) -> Verdict:
        try:
            criteria = read_criteria(task.answer)
        except ValueError as error:
            return unknown(f"bad_gold: {error}"[:300])
        if not text.strip():
            return wrong("no_answer")
        if len(text) > self.longest:
            return wrong("over_limit")
        listed = "\n".join(f"{i}. {criterion}" for i, (criterion, _) in enumerate(criteria, 1))
        sections = [("Question", prompt_text(task)), ("Criteria", listed)]

        def read(said: Any) -> list[bool]:
            if not (isinstance(said, dict) and said.keys() == {"met", "reason"} and isinstance(said["met"], list)):
                raise ValueError("the judge's JSON has other keys than met and reason")
            if len(said["met"]) != len(criteria) or not all(isinstance(x, bool) for x in said["met"]):
                raise ValueError(f"the judge did not say true or false for each of {len(criteria)} criteria")
            return list(said["met"])

        try:
            met = patient_ask(self, self._patience, FORM, sections, text, task, read)
        except ServerFailed as error:
            return unknown(f"judge_error: {error}"[:300])
        full = sum(weight for _, weight in criteria if weight > 0)
        score = min(1.0, max(0.0, sum(weight for (_, weight), yes in zip(criteria, met) if yes) / full))
        parts = {str(i): float(yes) for i, yes in enumerate(met, 1)}
        passed = score >= self.pass_at - 1e-9  # weights are floats
        if passed:
            return Verdict("right", score, "met", text[:SHOWN], parts)
        return Verdict("wrong", score, "not_met", text[:SHOWN], parts)

    def judge_many(self, items: Sequence[tuple[Rollout | str, Task]]) -> list[Verdict]:
        return judge_side_by_side(self, items, self.parallel)


def read_criteria(gold: Any) -> list[tuple[str, float]]:
    """(criterion, weight) of each. Raises ValueError with what is wrong."""
    if not isinstance(gold, Sequence) or isinstance(gold, str) or not gold:
        raise ValueError("a rubric is a list of criteria")
    criteria = []
    for number, entry in enumerate(gold, 1):
        table = {"criterion": entry, "weight": 1.0} if isinstance(entry, str) else entry
        if not (isinstance(table, Mapping) and table.keys() == {"criterion", "weight"}):
            raise ValueError(f"criterion {number} is a text, or a table of criterion and weight")
        text, weight = table["criterion"], table["weight"]
        if not (isinstance(text, str) and text.strip()):
            raise ValueError(f"criterion {number} is empty")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
            raise ValueError(f"the weight of criterion {number} is a number, not {weight!r:.50}")
        criteria.append((text, float(weight)))
    if sum(weight for _, weight in criteria if weight > 0) <= 0:
        raise ValueError("no criterion has a positive weight")
    return criteria

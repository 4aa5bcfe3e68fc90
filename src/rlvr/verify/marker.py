"""The `hash_marker` verifier: the answer is the rest of the line behind the last marker, as in GSM8K."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rlvr.records import Task, Verdict
from rlvr.registry import register
from rlvr.verify.plain import Plain
from rlvr.verify.verifier import Verifier, fingerprint, wrong


@register("verifier", "hash_marker")
@dataclass(frozen=True, slots=True)
class HashMarker:
    """Right iff the inner verifier (default `plain`) accepts what follows the last `marker`, up to the end of its line.

    The whole text is searched: words behind that line change nothing. A gold that holds the marker (GSM8K's whole
    solutions) is read in the same way. Reasons: those of the inner verifier, "no_answer" (no marker, or nothing
    behind).
    """

    marker: str = "####"
    inner: Verifier = field(default_factory=Plain)

    def __post_init__(self) -> None:
        if not (isinstance(self.marker, str) and self.marker.strip()):
            raise ValueError(f"hash_marker: marker is the text before an answer, such as '####', not {self.marker!r}")

    @property
    def fingerprint(self) -> str:
        return fingerprint("hash_marker", self)

    def __call__(self, text: str, task: Task) -> Verdict:
        if isinstance(task.answer, str) and self.marker in task.answer:
            task = replace(task, answer=self._behind(task.answer) or task.answer)
        answer = self._behind(text)
        return self.inner(answer, task) if answer else wrong("no_answer")

    def _behind(self, text: str) -> str:
        at = text.rfind(self.marker)
        if at < 0:
            return ""
        start = at + len(self.marker)
        end = text.find("\n", start)
        return text[start : end if end >= 0 else len(text)].strip()

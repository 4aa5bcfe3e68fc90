"""`--fail-on`: which numbers of an audit make a build red."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlvr.audit.run import Verdicts
from rlvr.audit.summary import Summary, summary

MEASURES: dict[str, Callable[[Summary], tuple[int, int]]] = {
    "false_accept": lambda s: (s.accepted, s.different),
    "false_reject": lambda s: (s.rejected + s.failed, s.equal),
    "failure": lambda s: (s.failed, s.equal),
    "ladder": lambda s: (s.ladder_accepted, s.ladder),
    "hostile": lambda s: (s.hostile_accepted, s.hostile),
}


@dataclass(frozen=True, slots=True)
class Limit:
    """A measure and the share that it may not exceed."""

    measure: str
    most: float

    def broken_by(self, v: Verdicts) -> str | None:
        """What is wrong, in a sentence; None where the limit holds."""
        if self.measure == "killed":
            return f"{v.name}: killed {v.killed} times" if v.killed else None
        part, whole = MEASURES[self.measure](summary(v))
        if not whole or part / whole <= self.most:
            return None
        return f"{v.name}: {self.measure} {part} of {whole}, more than {self.most:g}"


def limits(texts: Sequence[str]) -> list[Limit]:
    """From `false_accept` (none at all) or `false_reject>0.05`. Raises ValueError for another measure or share."""
    return [_limit(part) for text in texts for part in text.split(",")]


def _limit(text: str) -> Limit:
    measure, found, most = (part.strip() for part in text.partition(">"))
    if measure not in (*MEASURES, "killed"):
        raise ValueError(
            f"--fail-on {text!r}: there is no measure {measure!r}; there are: {', '.join(MEASURES)}, killed"
        )
    try:
        share = float(most) if found else 0.0
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError(f"--fail-on {text!r}: write a share from 0 to 1, as in {measure}>0.05")
    return Limit(measure, share)

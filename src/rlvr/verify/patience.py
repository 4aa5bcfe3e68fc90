"""How often a verifier may fail to answer in time before the run stops.

A verifier that hangs costs its whole deadline for every answer: a step of 512 answers takes an hour and a half, and the
first evaluation longer, before any share of unknown verdicts is counted. So a run of timeouts with nothing between ends
it; a single verdict, right, wrong or unknown for another reason, sets the count back.
"""

from __future__ import annotations

import threading

from rlvr.verify.heard import Heard
from rlvr.verify.verifier import VerifierBroken

MOST_TIMEOUTS = 20  # ours: more than three minutes of waiting at the usual ten seconds, and no chance run of slow items


class Patience:
    """Counts the timeouts of one verifier that follow one another. `who` and `seconds` are for the sentence."""

    def __init__(self, who: str, seconds: float, most: int):
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise ValueError(f"most_timeouts is the number of timeouts on end that stop a run, 1 or more, not {most!r}")
        self.who, self.seconds, self.most = who, seconds, most
        self.heard = Heard(who)
        self._late = 0
        self._lock = threading.Lock()

    def answered(self) -> None:
        """A verdict came, whatever it is."""
        with self._lock:
            self._late = 0

    def overran(self, tasks: str, why: str = "") -> None:
        """No verdict came in time; `why`, where more is known. Raises VerifierBroken where it is one too many."""
        with self._lock:
            self._late += 1
            late = self._late
        if late >= self.most:
            raise VerifierBroken(
                f"{self.who} gave no verdict within {self.seconds:g} s, {late} times on end"
                f"{f' ({why})' if why else ''}, last on task {tasks}, so the run would wait for nothing. Mend it, or "
                f"give it more time (`seconds`, now {self.seconds:g}) or more patience (`most_timeouts`, now "
                f"{self.most})"
            )
        told = why or f"took over {self.seconds:g} s and was given up"
        self.heard.failed("timeout", f"task {tasks}: {self.who}: {told}; no verdict (`seconds` sets the limit)")

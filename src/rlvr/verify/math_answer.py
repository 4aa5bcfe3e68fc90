"""The `math` verifier: finds the answer in a text and compares it with the gold as mathematics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from rlvr.records import Task, Verdict
from rlvr.registry import register
from rlvr.verify.math.conventions import Bases, Conventions, Lists, Log, Names, Percents, Units
from rlvr.verify.math.extract import Extracted, Mode, extract
from rlvr.verify.math.judge import Finding, compared
from rlvr.verify.verifier import LONGEST_TEXT, fingerprint, gold_text, right, unknown, wrong


@register("verifier", "math")
@dataclass(frozen=True, slots=True)
class Math:
    """Right iff the answer in the text and the gold are mathematically the same.

    Numbers, formulas with variables, equations, inequalities, intervals, sets, lists, tuples, matrices, units, money,
    percentages, ratios, times, bases, words; LaTeX, Unicode or keyboard spelling. Numbers are compared exactly, or to
    at least forty digits beyond the smallest that occurs; formulas at several pseudo-random points. It runs in the
    calling thread, in milliseconds at worst, whatever the text is.

    mode: where the answer stands. "strict": in the last box, answer tag or behind the last `####`, or it is all of the
    text. "flexible": else also behind "the answer is", in bold, or the last formula or number. "last_box",
    "hash_marker": only there. "after_think": as flexible, and there must be a </think>. "whole": the whole text, for
    use inside another verifier. In all but "whole" only what follows the last </think> counts.

    units: of a unit or currency on one side only: "lenient" takes no notice, "strict" calls it different, "ignore"
    takes no notice of any. Two different units are equal only where one converts into the other.
    percent: "hundredth": 50% is 0.5; "same": 50% is only 50%; "ignore": 50% is 50.
    lists: whether `3, 8` is `8, 3`: "any_order" or "in_order"; sets never have an order, tuples always have.
    names: whether `x = 5` is `5`: "lenient" or "strict"; two different names are always different.
    bases: 101_2 is, "written": only 101_2; "value": also 5; "lenient": also 101.
    thousands: whether 1,234 is one number; inside brackets a comma always separates.
    bare_tuples: whether `1, 2` may stand for `(1, 2)`.
    unsolved: whether `5x < 125` may stand for `x < 25`. Turn it off for tasks that ask to solve an inequality: there it
    pays for the question said again.
    decimals: significant digits with which a decimal, correctly rounded, stands for a number that no decimal can
    express, such as pi or 1/3. Of a double's printout (16 or 17 digits) 15 count. Ours: ten, a pocket calculator's.
    log: the base of \\log without one, "10" or "e".

    A gold that is itself a text with a box or `####` is read in the same way. Reasons: "equal", "different",
    "no_answer", "unparsable", "over_limit" (longer or costlier than any honest answer), "bad_gold".
    """

    mode: Mode = "flexible"
    units: Units = "lenient"
    percent: Percents = "hundredth"
    lists: Lists = "any_order"
    names: Names = "lenient"
    bases: Bases = "written"
    thousands: bool = True
    bare_tuples: bool = False
    unsolved: bool = True
    decimals: int = 10
    log: Log = "10"
    _conventions: Conventions = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ValueError(f"math: mode is one of {', '.join(get_args(Mode))}, not {self.mode!r}")
        conventions = Conventions(
            self.units, self.percent, self.lists, self.names, self.bases, self.thousands, self.bare_tuples,
            self.unsolved, self.decimals, self.log,
        )  # fmt: skip
        object.__setattr__(self, "_conventions", conventions)

    @property
    def fingerprint(self) -> str:
        return fingerprint("math", self)

    def __call__(self, text: str, task: Task) -> Verdict:
        found, finding = self.look(text, task)
        if finding.reason == "bad_gold":
            return unknown("bad_gold", found.answer)
        if finding.reason == "equal" and found.answer is not None:
            return right(found.answer)
        return wrong(finding.reason, found.answer)

    def look(self, text: str, task: Task) -> tuple[Extracted, Finding]:
        """What was extracted from where, and how it was compared: the verdict with its grounds, for people."""
        gold = gold_text(task)
        if gold is not None and ("####" in gold or "\\boxed" in gold or "\\fbox" in gold):
            gold = extract(gold, "hash_marker" if "####" in gold else "last_box").answer
        if gold is None:
            return Extracted(None, "", "not looked for"), Finding("bad_gold", "there is no gold")
        if len(text) > LONGEST_TEXT:
            return Extracted(None, "over_limit", "text"), Finding("over_limit", f"over {LONGEST_TEXT} characters")
        found = extract(text, self.mode)
        if found.answer is None:
            return found, Finding(found.fault, found.where)
        return found, compared(found.answer, gold, self._conventions)

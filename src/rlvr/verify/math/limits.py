"""What bounds the work on one answer, and how it is said that a bound was met.

All of them are our choice: far above any honest answer, and low enough that a verdict takes milliseconds at worst.
"""

from __future__ import annotations

LONGEST = 6000  # characters of an answer that are read as mathematics
MOST_TOKENS = 850
DEEPEST = 48  # nested brackets, exponents, arguments, signs behind a factor; each costs up to eight stack frames
LONGEST_LITERAL = 640  # digits of one number; int() reads this many whatever the interpreter's own limit
FOLDED_BITS = 1024  # numbers up to this size are computed while reading
MOST_BITS = 20_000  # of an exact number: 2006! has 19 112
MOST_PRECISION = 4096  # bits; 1233 digits
LARGEST_LIST = 400  # elements of a list, set or matrix that are compared one by one
WORK = 2000  # in one comparison, less one for each token; a unit is one to four microseconds, honest ones need < 400


class Fault(Exception):
    """This text has no meaning here. `reason` is a verdict's: "unparsable", "over_limit" or "no_answer"."""

    def __init__(self, reason: str = "unparsable", detail: str = ""):
        super().__init__(detail or reason)
        self.reason = reason


class OverLimit(Fault):
    """Reading or comparing would take more than the bounds above."""

    def __init__(self, detail: str):
        super().__init__("over_limit", detail)


class Undefined(ArithmeticError):
    """A formula has no value here: division by zero, the root of a negative number among real ones."""

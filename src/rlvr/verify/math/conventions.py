"""What people write in more than one way, as switches: every question on which reasonable people differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Units = Literal["lenient", "strict", "ignore"]
Percents = Literal["hundredth", "same", "ignore"]
Lists = Literal["any_order", "in_order"]
Names = Literal["lenient", "strict"]
Bases = Literal["written", "value", "lenient"]
Log = Literal["10", "e"]


@dataclass(frozen=True, slots=True)
class Conventions:
    """See `rlvr.verify.math_answer.Math`, whose fields these are."""

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

    def __post_init__(self) -> None:
        kinds = {"units": Units, "percent": Percents, "lists": Lists, "names": Names, "bases": Bases, "log": Log}
        for name, kind in kinds.items():
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"math: {name} is one of {', '.join(get_args(kind))}, not {getattr(self, name)!r}")
        if type(self.decimals) is not int or self.decimals < 1:
            raise ValueError(f"math: decimals is a number of digits from 1, not {self.decimals!r}")

"""When a metric has stopped rising: rules that phases share. State is JSON. `Plateau` watches every step:

m_k = keep * m_(k-1) + (1 - keep) * x_k            x_k the k-th measured value; m_1 = x_1
plateau: m_k - m_(k - window) <= gain * |m_(k - window)|
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Plateau:
    """gain: relative rise over `window` measured values below which the smoothed metric counts as flat; keep: how
    slowly it is smoothed."""

    gain: float = 0.01
    window: int = 20
    keep: float = 0.9

    def start(self) -> dict[str, Any]:
        return {"smooth": []}

    def next(self, state: Mapping[str, Any], value: float | None) -> dict[str, Any]:
        """The state after a value; one that was not measured (None, or not finite) leaves it alone."""
        smooth = list(state["smooth"])
        if value is not None and math.isfinite(value):
            smooth.append(self.keep * smooth[-1] + (1 - self.keep) * value if smooth else value)
        return {"smooth": smooth[-self.window - 1 :]}

    def reached(self, state: Mapping[str, Any]) -> bool:
        smooth = state["smooth"]
        return len(smooth) > self.window and smooth[-1] - smooth[0] <= self.gain * abs(smooth[0])


@dataclass(frozen=True)
class NoBetter:
    """Against the best so far: m_k is better where it is above it by more than `min_delta`; a plateau is `patience`
    measured values on end that are not. keep: how slowly values are smoothed, 0 for not at all."""

    min_delta: float = 0.005
    patience: int = 3
    keep: float = 0.0

    def __post_init__(self) -> None:
        if self.min_delta < 0 or self.patience < 1 or not 0 <= self.keep < 1:
            raise ValueError(
                f"a plateau needs min_delta of 0 or more, patience of 1 or more and smoothing in [0, 1); got "
                f"{self.min_delta}, {self.patience} and {self.keep}"
            )

    def start(self) -> dict[str, Any]:
        return {"smooth": None, "best": None, "since": 0}

    def next(self, state: Mapping[str, Any], value: float | None) -> dict[str, Any]:
        """The state after a value; one that was not measured (None, or not finite) leaves it alone."""
        if value is None or not math.isfinite(value):
            return {key: state[key] for key in self.start()}
        before, best = state["smooth"], state["best"]
        smooth = value if before is None else self.keep * before + (1 - self.keep) * value
        if best is None or smooth > best + self.min_delta:
            return {"smooth": smooth, "best": smooth, "since": 0}
        return {"smooth": smooth, "best": best, "since": state["since"] + 1}

    def reached(self, state: Mapping[str, Any]) -> bool:
        return bool(state["since"] >= self.patience)

"""When a metric has stopped rising: what phases that wait for a plateau share. State is JSON.

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

"""Stop a run that has collapsed: a mean that stays below its floor will not come back by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlvr.loop import Stopped


@dataclass
class Collapse:
    """Watches metrics step by step, as `Training.watch`. A step that did not measure a metric leaves its count alone.

    floors: metric -> (floor, the recipe's key of it). patience: steps on end below a floor that are one too many.
    """

    floors: Mapping[str, tuple[float, str]]
    patience: int
    below: dict[str, int] = field(default_factory=dict)

    def __call__(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """Raises Stopped."""
        for name, (floor, key) in self.floors.items():
            value = metrics.get(name)
            if value is None:
                continue
            self.below[name] = self.below.get(name, 0) + 1 if value < floor else 0
            if self.below[name] >= self.patience:
                raise Stopped(
                    f"step {step}: {name} has been below {key} = {floor:g} for {self.patience} steps on end, now "
                    f"{value:.3g}. It seems to have collapsed: look at the last rollouts, lower lr, or go on from an "
                    "earlier checkpoint"
                )

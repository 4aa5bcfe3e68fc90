"""A run that changes no weight learns nothing, and would end as "finished" all the same: it is told, with the reason.

A step is idle when no optimiser moved: no group was kept, no row had a gradient, or the learning rate is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

PATIENCE = 3  # ours: idle steps on end that are told; one or two silent batches are ordinary chance


@dataclass
class Idle:
    """Watches metrics step by step, as `Training.watch`. `tell` is given a sentence once in a stretch of idle steps."""

    group_size: int
    tell: Callable[[str], None] = lambda sentence: None
    steps: int = 0  # all that were seen
    last: int = 0  # the last step that moved a weight
    idle: int = 0  # idle steps since
    why: str = ""

    def __call__(self, step: int, metrics: Mapping[str, float | None]) -> None:
        self.steps += 1
        if moved(metrics):
            self.last, self.idle = step, 0
            return
        self.idle += 1
        self.why = self._reason(metrics)
        if self.idle == PATIENCE:
            self.tell(f"no weight has changed in {PATIENCE} steps: {self.why}")

    def verdict(self) -> str:
        """For the closing line: "" where weights moved until the end."""
        if not self.steps or (self.last and self.idle < PATIENCE):
            return ""
        since = f"no weight changed after step {self.last}" if self.last else "no step changed a weight"
        return f"{since}: {self.why}"

    def _reason(self, metrics: Mapping[str, float | None]) -> str:
        told = {
            name: metrics.get(name) or 0.0 for name in ("group/frac_solved", "group/frac_failed", "group/frac_mixed")
        }
        solved, failed, mixed = told.values()
        shares = f"{solved:.0%} of groups all right, {failed:.0%} all wrong, {mixed:.0%} mixed"
        if any(name.endswith("/lr") and value == 0 for name, value in metrics.items()):
            return "the learning rate is 0. Set lr, e.g. lr = 1e-6, or a schedule that does not end before the run"
        if self.group_size == 1:
            return (
                "group_size = 1, and an answer is compared with its own group. Set group_size = 8, or use a method "
                "without groups, such as reinforce_pp or ppo"
            )
        if metrics.get("reward/mean") is None and not metrics.get("rollouts/trained"):
            return (
                f"the method kept none of the groups ({shares}). Take easier tasks where they are all wrong and harder "
                "ones where they are all right, raise max_refills or group_size, or drop what keeps only some groups"
            )
        if not mixed:
            return (
                f"no group had both right and wrong answers ({shares}). Take easier tasks where they are all wrong and "
                "harder ones where they are all right, or raise group_size or temperature"
            )
        return f"no answer had a gradient ({shares}). Look at `pays`, at the method's masks and at max_tokens"


def moved(metrics: Mapping[str, float | None]) -> bool:
    """Whether an optimiser changed a weight in this step."""
    norms = [n for n in metrics if n.startswith("optim") and n.endswith("/grad_norm")]
    return any(metrics[n] != 0 and metrics.get(n.removesuffix("grad_norm") + "lr") != 0 for n in norms)

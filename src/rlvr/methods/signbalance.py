"""SIGNBALANCE: how hard a right answer is pushed does not depend on who else is in its group.

    A_i =  c             right
    A_i = -c n+ / n-     wrong: over the scope, the pushes on right and wrong answers cancel

n+ and n- count the right and wrong answers of the scope; a scope that has only one kind teaches nothing. GRPO's |A| of
a right answer is sqrt(n- / n+) of its group: 3.9 for one among 16, a lucky guess where answers are easily guessed.

Source: arXiv 2609.04063; c = 1 and the ladder "class_norm", "sign", "balanced" are the paper's. Ours: the rollout batch
as scope (by the counts of its group, a wrong one among 16 would be pushed by 15), the limit on n+ / n-, and counting
tokens, which balances the forces where the loss is a mean over tokens. There is no running n+ / n- over steps: pieces
do not remember, a plan's phases are few and known beforehand, and a larger rollout batch does the same for tiny ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from rlvr.batch import Batch, Tally
from rlvr.method import Method
from rlvr.registry import register

fills = ("advantage",)
paper = "Spurious Advantage Hidden in GRPO, arXiv 2609.04063"
# Half of one group right: GRPO's advantages are +1 and -1 too.
neutral = {"input": "one_group_half_right", "equals": "grpo(eps=0.0)"}


class Sides(NamedTuple):
    """Who is balanced against whom; all [R]."""

    counts: Tensor  # bool: known, and not masked
    right: Tensor  # bool
    n_right: Tensor  # float64, of the row's scope
    n_wrong: Tensor

    @property
    def mixed(self) -> Tensor:
        return (self.n_right > 0) & (self.n_wrong > 0)

    @property
    def ratio(self) -> Tensor:
        return torch.where(self.mixed, self.n_right / self.n_wrong, 1.0)


@dataclass(frozen=True)
class SignBalance:
    """`mode`:

    balanced      as above, n+ / n- kept within 1 / limit and limit
    sign          c and -c
    class_norm    c a / (mean |a| of the scope's answers with its sign), a the reward minus the scope's mean; with two
                  values of reward, that is "sign"

    threshold: right is a reward above it; None: a right verdict. silent: "mask" groups that are all right or all wrong,
    so that they neither count nor learn. one_sided: a scope of one kind gets "zero", or c or -c ("sign").
    Returns row_advantage [R].
    """

    c: float = 1.0
    mode: Literal["balanced", "sign", "class_norm"] = "balanced"
    scope: Literal["batch", "group"] = "batch"
    unit: Literal["answers", "tokens"] = "answers"
    limit: float = 10.0
    threshold: float | None = None
    silent: Literal["keep", "mask"] = "keep"
    one_sided: Literal["zero", "sign"] = "zero"
    needs: ClassVar = ("reward", "correct", "known", "group", "episode")
    gives: ClassVar = ("row_advantage",)

    def __post_init__(self) -> None:
        if not self.c > 0:
            raise ValueError(f"c is the advantage of a right answer, above 0; got {self.c}")
        if not self.limit >= 1:
            raise ValueError(f"limit is the most that n+ / n- and n- / n+ may be, at least 1; got {self.limit}")

    @property
    def refuses(self) -> Mapping[str, str]:
        if self.threshold is not None or self.mode == "class_norm":
            return {}
        why = "it asks the verdict, and what others pay beside it would be lost; signbalance(threshold=0.0) asks"
        return {"reward": f"{why} whether the reward is positive"}

    def __call__(self, batch: Batch) -> Tensor:
        sides = self.sides(batch)
        if self.mode == "class_norm":
            advantage, teaches = self._normed(batch, sides.counts), sides.counts
        else:
            balanced = self.mode == "balanced"
            against = sides.ratio.clamp(1 / self.limit, self.limit) if balanced else torch.ones_like(sides.ratio)
            advantage = torch.where(sides.right, 1.0, -against)
            teaches = sides.counts & sides.mixed if balanced and self.one_sided == "zero" else sides.counts
        return torch.where(teaches, self.c * advantage, 0.0)

    def sides(self, batch: Batch) -> Sides:
        right = batch["correct"] if self.threshold is None else batch["reward"] > self.threshold
        counts = batch["known"]
        if self.silent == "mask":
            mine = batch.group_count(right & counts)
            counts = counts & (mine > 0) & (mine < batch.group_count())
        return Sides(counts, right, self._size(batch, right & counts), self._size(batch, ~right & counts))

    def _size(self, batch: Batch, where: Tensor) -> Tensor:
        """[R] answers of the row's scope with rows in `where`, or the tokens of all such rows."""
        scope = self._scope(batch)
        if self.unit == "answers":
            return scope.group_count(where)
        return scope.with_({"episode": batch["id"]}).group_sum(batch.length, where)

    def _scope(self, batch: Batch) -> Batch:
        """The batch as one group, or as it is."""
        return batch if self.scope == "group" else batch.with_({"group": torch.zeros_like(batch["group"])})

    def _normed(self, batch: Batch, counts: Tensor) -> Tensor:
        scope, reward = self._scope(batch), batch["reward"].double()
        centred = reward - scope.group_mean(reward, counts)
        rounding = 8 * torch.finfo(batch["reward"].dtype).eps * scope.group_mean(reward.abs(), counts)
        up, down = centred > rounding, centred < -rounding
        size = [scope.group_mean(centred.abs(), side & counts).clamp(min=1e-300) for side in (up, down)]
        return torch.where(up, centred / size[0], torch.where(down, centred / size[1], 0.0))

    def tell(self, batch: Batch) -> dict[str, Tally]:
        sides, advantage = self.sides(batch), batch["row_advantage"]
        live, push = sides.counts & sides.mixed, advantage.double().clamp(min=0)
        lone = batch.group_count(sides.right & sides.counts) == 1
        return {
            "signbalance/ratio": Tally.mean(sides.ratio, live),
            "signbalance/limited": Tally.mean((sides.ratio > self.limit) | (sides.ratio < 1 / self.limit), live),
            "signbalance/sum": Tally.mean(advantage, sides.counts),
            "signbalance/lone": Tally((push * lone).sum(), push.sum()),
        }


@register("method")
def signbalance(
    method: Method,
    c: float = 1.0,
    mode: Literal["balanced", "sign", "class_norm"] = "balanced",
    scope: Literal["batch", "group"] = "batch",
    unit: Literal["answers", "tokens"] = "answers",
    limit: float = 10.0,
    threshold: float | None = None,
    silent: Literal["keep", "mask"] = "keep",
    one_sided: Literal["zero", "sign"] = "zero",
) -> Method:
    """Every right answer is pushed up alike, wrong ones down by as much as balances it.

    c: advantage of a right answer. mode: "sign" (c and -c) and "class_norm" (for graded rewards) are the steps before
    "balanced". scope: n+ and n- count over the rollout "batch" or over the row's "group". unit: "answers", or their
    "tokens". limit: the most that n+ / n- and n- / n+ may be. threshold: an answer is right if its reward is above it;
    None: if its verdict is right. silent: "mask" leaves out groups that are all right or all wrong. one_sided: what a
    scope gets that is all right or all wrong: "zero", or c or -c ("sign").
    """
    return method.firm("signbalance", advantage=SignBalance(c, mode, scope, unit, limit, threshold, silent, one_sided))

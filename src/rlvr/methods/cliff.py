"""Cliff: credit ends at the first mistake. What came before is good whatever the outcome, what follows is not.

    t before b    A_t = max(A, up)
    t from b on   A_t = min(A, -down)       b first token of the first wrong step, as a judge finds it; A the outcome's

An answer is cut into steps (rollout/segments.py), and a judge says which is wrong first; a token that straddles the
border belongs to the mistake. The rule is the smallest that gives both sides their sign, keeps the outcome's size where
it agrees, gives groups that are all wrong something to learn, and adds nothing to answers without a mistake.

    wrong, no mistake found    b is where the answer that the verifier read begins; unshaped where that is not known, or
                               where the rollout was cut off
    right, a mistake found     `trust`: "judge" shapes it all the same, "outcome" leaves it alone (and never asks)
    the judge says nothing     unshaped, counted in judge/failed

Rows that are not shaped keep every bit of their advantage. Source: "Cliff: Learning Process Rewards from the First
Mistake", arXiv 2609.02817, of which only the abstract is public: the rule, up = 0.3, down = 0.5 (less, so that length
before a late mistake does not pay), the conflict rules and cutting into steps are ours.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from rlvr.batch import Batch, Tally
from rlvr.judges.judge import FirstMistake, JudgeFailed
from rlvr.method import Method
from rlvr.records import Group, Rollout, Verdict
from rlvr.registry import register
from rlvr.rollout.segments import Cut, Wrote, cut
from rlvr.rollout.world import World
from rlvr.streams import declare
from rlvr.verify.verifier import gold_text

fills = ("annotate", "advantage", "reshape")
paper = "Cliff: Learning Process Rewards from the First Mistake, arXiv 2609.02817"
neutral = {"settings": {}, "input": "nobody_judged", "equals": "grpo"}

FOUND, AFTER, ANSWER = "cliff/found", "cliff/after", "cliff/answer"
declare("row", FOUND, "1: the judge found a mistake, 0: none; nan: it was not asked, or said nothing")
declare("token", AFTER, "1 from the first token of the first wrong step on, else 0")
declare(
    "token", ANSWER, "1 from the first token of the answer on that the verifier read, 0 everywhere if none is known"
)


def nobody_judged(batch: Batch, policy: Any) -> tuple[Batch, Any]:
    """The judge has said nothing of any row."""
    quiet = FirstMistakes().stand_in(batch)
    return batch.with_({**quiet, FOUND: torch.full_like(quiet[FOUND], torch.nan)}), policy


@dataclass(frozen=True)
class FirstMistakes:
    """Asks the judge for the first wrong step of each row. every: of right ones and those without a verdict too; right:
    of right ones; gold: the judge may know the reference. Of `votes` answers the median place counts if more than half
    name one. Gives cliff/found [R], cliff/after [N], cliff/answer [N]."""

    by: Cut = "auto"
    votes: int = 1
    gold: bool = False
    right: bool = False
    every: bool = False
    gives: ClassVar = (FOUND, AFTER, ANSWER)
    asks: ClassVar = ("judge",)

    async def __call__(self, group: Group, world: World) -> dict[str, list[Any]]:
        wanted = [row for row in group.rollouts if self._wants(row, group.verdicts.get(row.episode))]
        asking = [self._of(row, group, world) for row in wanted]
        at_once = world.judge is not None and world.judge.at_once
        heard = [await one for one in asking] if at_once else await asyncio.gather(*asking)
        told = {row.id: one for row, one in zip(wanted, heard)}
        rows = [told.get(row.id) or _nothing(row) for row in group.rollouts]
        return {name: [row[i] for row in rows] for i, name in enumerate(self.gives)}

    def _wants(self, row: Rollout, verdict: Verdict | None) -> bool:
        known = verdict is not None and verdict.known
        asked = self.every or (known and verdict is not None and (self.right or verdict.label == "wrong"))
        return asked and row.status not in ("failed", "aborted") and bool(row.owned().any())

    async def _of(self, row: Rollout, group: Group, world: World) -> tuple[float, np.ndarray, np.ndarray]:
        verdict = group.verdicts.get(row.episode)
        unsaid, after, answer = _nothing(row)
        wrote = Wrote.of(row, world.renderer)
        steps = cut(wrote.text, self.by)
        if not steps:
            return unsaid, after, answer
        read = verdict.extracted.strip() if verdict is not None and verdict.extracted else ""
        if read and (start := wrote.text.rfind(read)) > 0:
            _from(answer, wrote, start)
        texts = tuple(wrote.text[start:end] for start, end in steps)
        question = FirstMistake(group.task, texts, not row.truncated, gold_text(group.task) if self.gold else None)
        try:
            first = await self._asked(question, world)
        except JudgeFailed:
            return unsaid, after, answer
        if first is not None:
            _from(after, wrote, steps[first][0])
        return float(first is not None), after, answer

    async def _asked(self, question: FirstMistake, world: World) -> int | None:
        assert world.judge is not None
        if self.votes == 1:
            return await world.judge.ask(question, world.key)
        heard = await asyncio.gather(
            *(world.judge.ask(question, world.key, vote) for vote in range(self.votes)), return_exceptions=True
        )
        if broken := next((x for x in heard if isinstance(x, BaseException) and not isinstance(x, JudgeFailed)), None):
            raise broken
        said = [x for x in heard if not isinstance(x, BaseException)]
        if not said:
            raise JudgeFailed("no vote came back")
        return median_place(said)

    def stand_in(self, batch: Batch) -> dict[str, Tensor]:
        """Of four rows two with a mistake, one without, and one of which the judge said nothing."""
        dtype, id = batch["behavior_logp"].dtype, batch["id"]
        place = torch.arange(len(batch.row), device=id.device) - batch.first[batch.row]
        said = torch.tensor([1, 1, 0, torch.nan], dtype=dtype, device=id.device)[id % 4]
        start = id * 5 % batch.length.clamp(min=1)
        after = (place >= batch.spread(start)) & (batch.spread(said) == 1)
        return {FOUND: said, AFTER: after.to(dtype), ANSWER: (place >= batch.spread(batch.length - 2)).to(dtype)}


def median_place(said: Sequence[int | None]) -> int | None:
    """The median of the places that votes name, the earlier one of two; None where no more than half name one."""
    places = [place for place in said if place is not None]
    return statistics.median_low(places) if 2 * len(places) > len(said) else None


def _nothing(row: Rollout) -> tuple[float, np.ndarray, np.ndarray]:
    return math.nan, np.zeros(len(row.ids), np.float32), np.zeros(len(row.ids), np.float32)


def _from(flags: np.ndarray, wrote: Wrote, start: int) -> None:
    (place,) = wrote.places([start])
    if place >= 0:
        flags[place:] = 1.0


@dataclass(frozen=True)
class FirstMistakeCredit:
    """max(A, up) before the first mistake, min(A, -down) from it on. Returns advantage [N].

    trust: who is believed of a right answer with a mistake. only: one side alone is shaped, a control. balance: up is
    lowered until shaped rows gain no more than they lose in sum, over the rollout batch.
    """

    up: float = 0.3
    down: float = 0.5
    trust: Literal["judge", "outcome"] = "outcome"
    only: Literal["before", "after"] | None = None
    balance: bool = False
    rank: ClassVar = 1
    needs: ClassVar = ("advantage", FOUND, AFTER, ANSWER, "correct", "known", "truncated")

    def __call__(self, batch: Batch) -> Tensor:
        a, (shaped, suffix) = batch["advantage"], self.borders(batch)
        before, after = batch.spread(shaped) & ~suffix, batch.spread(shaped) & suffix
        low = a.clamp(max=-self.down)
        up = balanced(a[before], -low[after].double().sum(), self.up) if self.balance else self.up
        out = a if self.only == "after" else torch.where(before, a.clamp(min=up), a)
        return out if self.only == "before" else torch.where(after, low, out)

    def borders(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """[R] bool rows that are shaped, and [N] bool tokens from the border on."""
        found, after, answer = batch[FOUND] == 1, batch[AFTER] > 0, batch[ANSWER] > 0
        located = found & (batch.row_sum(after) > 0)  # a mistake in tokens that another row owns, or none, is not ours
        wrong = batch["known"] & ~batch["correct"]
        by_answer = ~torch.isnan(batch[FOUND]) & ~located & wrong & ~batch["truncated"]
        by_answer &= batch.row_sum(answer) > 0
        if self.trust == "outcome":
            located = located & ~batch["correct"]
        return located | by_answer, torch.where(batch.spread(located), after, answer)

    def keeps(self, batch: Batch, new: Tensor) -> str:
        """What it promises: nothing falls before the border, nothing rises behind it, one sign on each side, and rows
        that are not shaped stay as they are."""
        old, (shaped, suffix) = batch["advantage"], self.borders(batch)
        here = batch.spread(shaped)
        broken = {
            "a row that is not shaped changes": ~here & (new != old),
            "credit before the mistake falls": here & ~suffix & (new < old),
            "credit behind the mistake rises": here & suffix & (new > old),
            "credit has the wrong sign": here & torch.where(suffix, new >= 0, new < 0) & (self.only is None),
        }
        return "; ".join(what for what, where in broken.items() if bool(where.any()))

    def tell(self, batch: Batch) -> dict[str, Tally]:
        shaped, suffix = self.borders(batch)
        judged, found = ~torch.isnan(batch[FOUND]), batch[FOUND] == 1
        before = 1 - batch.row_mean(suffix.to(batch["advantage"].dtype))
        return {
            "cliff/judged": Tally.mean(judged),
            "cliff/found": Tally.mean(found, judged),
            "cliff/shaped": Tally.mean(shaped),
            "cliff/before": Tally.mean(before, shaped),
            "cliff/conflict": Tally.mean(found & batch["correct"], judged & batch["correct"]),
        }


def balanced(a: Tensor, lost: Tensor, up: float) -> float:
    """The largest u <= up, at least 0, for which the sum of max(a, u) over positive values is at most `lost`."""
    a = a.double().clamp(min=0)
    low, high = 0.0, up
    if float(a.clamp(min=up).sum()) <= float(lost):
        return up
    for _ in range(60):  # halving: the sum rises with u
        middle = (low + high) / 2
        low, high = (middle, high) if float(a.clamp(min=middle).sum()) <= float(lost) else (low, middle)
    return low


@dataclass(frozen=True)
class JudgeAlone:
    """up before the first mistake and everywhere in rows without one, -down from it on, 0 where the judge said nothing:
    no outcome enters. Returns advantage [N]."""

    up: float = 0.3
    down: float = 0.5
    needs: ClassVar = (FOUND, AFTER)
    gives: ClassVar = ("advantage",)

    def __call__(self, batch: Batch) -> Tensor:
        value = torch.full_like(batch[AFTER], self.up).masked_fill(batch[AFTER] > 0, -self.down)
        return value.masked_fill(batch.spread(torch.isnan(batch[FOUND])), 0.0)

    def tell(self, batch: Batch) -> dict[str, Tally]:
        judged = ~torch.isnan(batch[FOUND])
        return {"cliff/judged": Tally.mean(judged), "cliff/found": Tally.mean(batch[FOUND] == 1, judged)}


@register("method")
def cliff(
    method: Method,
    up: float = 0.3,
    down: float = 0.5,
    cut: Literal["auto", "paragraph", "line", "sentence", "clause"] = "auto",
    gold: bool = False,
    trust: Literal["judge", "outcome"] | None = None,
    votes: int = 1,
    outcome: bool = True,
    balance: bool = False,
    only: Literal["before", "after"] | None = None,
) -> Method:
    """A judge finds the first wrong step of an answer; what came before it is raised, what follows is lowered.

    up, down: least gain before a mistake, least loss from it on. cut: what a step is. gold: whether the judge is shown
    the reference answer. trust: who is believed where a right answer has a mistake; None: the judge if it knows the
    gold, else the outcome. votes: how often it is asked; the median place counts. outcome: False lets the judge alone
    pay. balance: lowers up until gains do not outweigh losses. only: one side alone, a control.
    """
    if not (0 < up < math.inf and 0 < down < math.inf):
        raise ValueError(f"up and down are sizes above 0, in the advantage's units; got {up} and {down}")
    if votes < 1:
        raise ValueError(f"votes counts how often the judge is asked, at least once; got {votes}")
    if not outcome and (trust == "outcome" or balance or only):
        raise ValueError("with outcome = False the judge alone pays; drop trust = 'outcome', balance and only")
    trust = trust or ("judge" if gold else "outcome")
    asked = FirstMistakes(cut, votes, gold, trust == "judge", not outcome)
    if not outcome:
        return method.firm("cliff", annotate=asked, advantage=JudgeAlone(up, down))
    return method.firm("cliff", annotate=asked, reshape=FirstMistakeCredit(up, down, trust, only, balance))

"""Evidence in the prompt: what a model would say of an answer, had it been shown something about the question.

A prompt gets a slot. The same slot holds, as contexts of one look: true evidence, a placeholder that says nothing and
has as many tokens, and other questions' evidence of like length. What evidence is (a reference, a right sibling's
answer, the verdict's words) is text that an annotate piece finds; slots are filled with ids, so lengths match.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rlvr import streams
from rlvr.batch import Batch
from rlvr.records import Group, Rollout, Task
from rlvr.rollout.world import World

BEFORE, SLOT, AFTER = "evidence/before", "evidence/slot", "evidence/after"
BLANK, CUT = "evidence/blank", "evidence/cut"
streams.declare("row", BEFORE, "ids of the prompt before the slot for evidence")
streams.declare("row", SLOT, "ids of the evidence; none: nobody knows any")
streams.declare("row", AFTER, "ids of the prompt behind the slot")
streams.declare("row", BLANK, "ids of a placeholder as long as the evidence")
streams.declare("row", CUT, "1 where evidence lost its front, for the model's context is full")
KEYS = ("steps", "solution", "demo")  # of task.meta, the first that a task has; else its answer
Source = Literal["reference", "peer", "feedback"]


@dataclass(frozen=True)
class Evidence:
    """Gives evidence/before, slot, after, blank (ids) and cut, by row; no ids where there is no evidence.

    source: "reference", the task's worked steps or answer; "peer", a right answer of the same group that is not the
    row's own, nor reads like it; "feedback", the verdict's reason and what it found. key: of task.meta, in the place of
    KEYS and the answer. template: the prompt with {slot} and {prompt}. placeholder: text that says nothing.
    """

    source: Source = "reference"
    key: str | None = None
    template: str = "{slot}\n{prompt}"
    placeholder: str = "?"
    gives: ClassVar = (BEFORE, SLOT, AFTER, BLANK, CUT)

    def __post_init__(self) -> None:
        if self.template.count("{slot}") != 1 or self.template.count("{prompt}") != 1:
            raise ValueError(f"a template holds {{slot}} and {{prompt}} once each, got {self.template!r}")
        if not self.placeholder:
            raise ValueError("a placeholder is text that says nothing, at least a character")

    async def __call__(self, group: Group, world: World) -> dict[str, Any]:
        renderer: Any = world.renderer
        before, after = renderer.around(group.task.prompt, self.template)
        encode = lambda text: renderer.response(text)[:-1]  # noqa: E731
        blank = encode(self.placeholder)
        told: dict[str, list[Any]] = {name: [] for name in self.gives}
        known: dict[str, list[int]] = {}
        for row in group.rollouts:
            text = self.text(group, row)
            slot = known.setdefault(text, encode(text)) if text else []
            wrote = row.wrote()
            tail = len(row.ids) - int(wrote.argmax()) if wrote.any() else 0
            limit = getattr(renderer, "context", None)
            room = len(slot) if limit is None else max(0, limit - len(before) - len(after) - tail)
            kept = slot[len(slot) - min(room, len(slot)) :]
            some = bool(kept)
            told[BEFORE].append(before if some else [])
            told[SLOT].append(kept)
            told[AFTER].append(after if some else [])
            told[BLANK].append((blank * len(kept))[: len(kept)])
            told[CUT].append(float(len(kept) < len(slot)))
        return told

    def stand_in(self, batch: Batch) -> dict[str, Tensor]:
        return {CUT: torch.zeros(len(batch), dtype=batch["old_logp"].dtype, device=batch.length.device)}

    def text(self, group: Group, row: Rollout) -> str:
        """What is known beyond the question, "" for nothing."""
        if self.source == "reference":
            return reference(group.task, self.key)
        if self.source == "peer":
            right = [
                r for r in group.rollouts if (v := group.verdicts.get(r.episode)) is not None and v.label == "right"
            ]
            return next((r.text for r in right if r.episode != row.episode and r.text != row.text), "")
        verdict = group.verdicts.get(row.episode)
        if verdict is None or not verdict.known:
            return ""
        return verdict.reason if verdict.extracted is None else f"{verdict.reason}: {verdict.extracted}"


def reference(task: Task, key: str | None) -> str:
    """A task's worked solution, or its answer, as text; "" where it has none."""
    found = next((task.meta[k] for k in ((key,) if key else KEYS) if task.meta.get(k)), None)
    if found is None:
        return "" if key or task.answer is None else str(task.answer)
    return found if isinstance(found, str) else "\n".join(map(str, found))


@dataclass(frozen=True)
class Shown:
    """Context: the prompt with its slot filled by the row's own evidence, a blank, or the evidence of the `nth` other
    group whose is closest in length and differs. Where no other group has any, a blank stands for it."""

    what: Literal["true", "blank", "other"]
    nth: int = 0

    @property
    def needs(self) -> tuple[str, ...]:
        return (BEFORE, SLOT, AFTER, BLANK, "group", "id")

    def __call__(self, batch: Batch) -> Tensor:
        fill = (
            batch[SLOT]
            if self.what == "true"
            else batch[BLANK]
            if self.what == "blank"
            else mismatched(batch, self.nth)
        )
        every = torch.cat([as_ids(batch[BEFORE]), as_ids(fill), as_ids(batch[AFTER])], 1)
        order = torch.argsort((every < 0).long(), dim=1, stable=True)
        return every.gather(1, order)


def as_ids(x: Tensor) -> Tensor:
    """[R, K] ids; a stream in which no row has any may be numbers."""
    return x if x.dim() == 2 and not x.is_floating_point() else x.new_zeros(len(x), 0, dtype=torch.long)


def mismatched(batch: Batch, nth: int = 0) -> Tensor:
    """[R, K] ids of other groups' evidence; of equally close ones the next group round comes first."""
    slot, blank = as_ids(batch[SLOT]), as_ids(batch[BLANK])
    if not slot.shape[1]:
        return blank
    size, group, id = ((slot >= 0).sum(1).tolist(), batch["group"].tolist(), batch["id"].tolist())
    known: dict[int, tuple[int, int]] = {}  # group -> (id, row) of its first row with evidence
    for row, (n, g, name) in enumerate(zip(size, group, id)):
        if n:
            known[g] = min(known.get(g, (name, row)), (name, row))
    words = {g: slot[row].tolist() for g, (_, row) in known.items()}
    around, out, found = max(group, default=0) + 1, slot.clone(), dict[tuple[int, tuple[int, ...]], Tensor]()
    for row, (n, g) in enumerate(zip(size, group)):
        if not n:
            continue
        own = slot[row].tolist()
        key = (g, tuple(own))
        if key not in found:
            others = sorted(
                (abs(size[known[h][1]] - n), (h - g) % around, h) for h in known if h != g and words[h] != own
            )
            found[key] = slot[known[others[nth % len(others)][2]][1]] if others else blank[row]
        out[row] = found[key]
    return out

"""Prompts that show what the policy does not get to see: a solution that was found, or one that the task brings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rlvr import streams
from rlvr.batch import Batch
from rlvr.engine.renderer import TemplateError
from rlvr.records import Group, Prompt, Rollout
from rlvr.rollout.world import World

CONTEXT, SOURCE = "privileged/context", "privileged/source"
streams.declare("row", CONTEXT, "ids of the row's prompt with a solution in it, -1 behind them: none has no context")
streams.declare("row", SOURCE, "number of the solution that the row's context shows, within its group; -1: none")

Source = Literal["sibling", "reference", "sibling_first", "reference_first"]
# FlowBalance's released code (arXiv 2609.03241): a user's message, and a solution behind it.
IN_CHAT = "{prompt}\nCorrect solution:\n\n{solution}\n\n\nCorrectly solve the original question."
# Ours: a prompt of plain text ends where the answer begins, so a solution stands before it.
IN_TEXT = "{solution}\n\n{prompt}"


@dataclass(frozen=True)
class Solutions:
    """For each row its prompt with a solution: a sibling's (the group's first other episode whose score is at least
    `success`), or the reference in the task's meta, "solution" or "demo". Equal solutions are one source.

    template: {prompt} and {solution} stand for both; None: by whether the model has a chat template. Gives
    privileged/context [R, K] and privileged/source [R]. Raises TemplateError where the model cannot read the template.
    """

    source: Source = "sibling"
    template: str | None = None
    success: float = 0.5
    gives: ClassVar = (CONTEXT, SOURCE)

    async def __call__(self, group: Group, world: World) -> dict[str, list[Any]]:
        found: list[str] = []  # solutions in use, each with its prompt
        ids: list[list[int]] = []
        contexts: list[list[int]] = []
        sources: list[int] = []
        for row in group.rollouts:
            solution = self._for(row, group)
            if solution is None:
                contexts.append([])
                sources.append(-1)
                continue
            if solution not in found:
                found.append(solution)
                ids.append(self._prompt(group.task.prompt, solution, world.renderer))
            at = found.index(solution)
            contexts.append(ids[at])
            sources.append(at if ids[at] else -1)
        return {CONTEXT: contexts, SOURCE: sources}

    def _for(self, row: Rollout, group: Group) -> str | None:
        meta = group.task.meta
        reference = next((str(meta[key]) for key in ("solution", "demo") if meta.get(key)), None)
        others = (r for r in group.rollouts if r.episode != row.episode and self._solved(r, group))
        sibling = next((r.text for r in others if r.text.strip()), None)
        order = {"sibling": [sibling], "reference": [reference]}
        order |= {"sibling_first": [sibling, reference], "reference_first": [reference, sibling]}
        return next((x for x in order[self.source] if x is not None), None)

    def _solved(self, row: Rollout, group: Group) -> bool:
        verdict = group.verdicts.get(row.episode)
        return verdict is not None and verdict.known and verdict.score >= self.success

    def _prompt(self, prompt: Prompt, solution: str, renderer: Any) -> list[int]:
        chat = not isinstance(prompt, str) or getattr(renderer, "as_chat", False)
        template = self.template or (IN_CHAT if chat else IN_TEXT)
        asked = prompt if isinstance(prompt, str) else str(prompt[-1]["content"])
        shown = {"{prompt}": asked, "{solution}": solution}
        text = re.sub(r"\{prompt\}|\{solution\}", lambda found: shown[found[0]], template)
        try:
            return list(
                renderer.prompt(text if isinstance(prompt, str) else (*prompt[:-1], {**prompt[-1], "content": text}))
            )
        except TemplateError:
            raise
        except ValueError:  # longer than the model reads
            return []

    def stand_in(self, batch: Batch) -> dict[str, Tensor]:
        """Of three rows of a group one has no context, and two may share one."""
        number = batch["id"] % 3 - 1
        return {CONTEXT: torch.where(number < 0, -1, 1)[:, None], SOURCE: number.to(batch["behavior_logp"].dtype)}

"""Language models as judges: the policy itself, and one behind an OpenAI-compatible address."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rlvr.engine.protocol import Request, Sampler
from rlvr.judges.judge import FirstMistake, JudgeBroken, JudgeFailed, Said
from rlvr.judges.words import asking, reply
from rlvr.records import Task, mix
from rlvr.server import ServerFailed, Threads
from rlvr.verify.llm_judge import Endpoint
from rlvr.verify.verifier import VerifierBroken

PROBE = FirstMistake(Task("probe", "What is 2 + 3 * 4?"), ("3 * 4 = 12", "2 + 12 = 13", "The answer is 13."))


@dataclass(frozen=True)
class PolicyJudge:
    """The policy at its present weights, asked in a fresh conversation. Its own answers stand in it as data."""

    sampler: Sampler
    renderer: Any  # engine.renderer.Renderer
    stop_ids: frozenset[int]
    max_tokens: int
    temperature: float = 0.0
    sees_all: ClassVar = False

    async def ask(self, question: FirstMistake, key: int) -> Said:
        mark = hashlib.sha256(f"{mix(key, 'mark')}".encode()).hexdigest()[:32]  # the same in a run made again
        try:
            ids = self._prompt(question, mark)
        except ValueError as error:  # it does not render, or not fit
            raise JudgeFailed(str(error)) from None
        sample = await self.sampler.sample(Request(ids, self.max_tokens, key, self.temperature, stop_ids=self.stop_ids))
        tokens = len(ids) + len(sample.ids)
        try:
            return Said(question.read(reply(self.renderer.decode(sample.ids), mark)), tokens)
        except (ServerFailed, ValueError) as error:
            raise JudgeFailed(str(error), tokens) from None

    def _prompt(self, question: FirstMistake, mark: str) -> list[int]:
        messages: Any = asking(question.form, question.sections, question.text, mark)
        if not self.renderer.as_chat:
            messages = "\n\n".join(m["content"] for m in messages) + "\n\nJSON: "
        ids: list[int] = self.renderer.prompt(messages)
        return ids

    def check(self, tasks: Sequence[Task]) -> None:
        try:
            self._prompt(PROBE, "0" * 32)
        except ValueError as error:
            raise JudgeBroken(
                f"the policy cannot be its own judge, for it cannot be asked in words: {error}. Name another judge, "
                'e.g. judge = "oracle" for built-in tasks, or a table [judge] with url and model'
            ) from None


@dataclass
class ServedJudge:
    """A model behind an address; `parallel` requests at once."""

    endpoint: Endpoint
    parallel: int = 8
    temperature: float = 0.0
    sees_all: ClassVar = False
    _threads: Threads = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._threads = Threads(self.parallel)

    async def ask(self, question: FirstMistake, key: int) -> Said:
        def request() -> Said:
            given = (question.form, question.sections, question.text, question.read, self.temperature, key)
            return Said(*self.endpoint.asked(*given))

        try:
            return await asyncio.wrap_future(self._threads.submit(request))
        except ServerFailed as error:
            raise JudgeFailed(str(error), error.tokens) from None

    def check(self, tasks: Sequence[Task]) -> None:
        try:
            self.endpoint.ask(PROBE.form, PROBE.sections, PROBE.text, PROBE.read)
        except (ServerFailed, VerifierBroken) as error:
            raise JudgeBroken(
                f"the judge {self.endpoint.model} at {self.endpoint.url} does not judge: {error}"
            ) from None

"""What a judge is, and the bench that stands between a run and its judge.

A judge is asked a question and says something, or raises JudgeFailed. It is shown a task's public side, without gold
and worked steps; only one that is no model (`sees_all`: the oracle) is shown the task whole. A question may bring the
gold along as its `reference`, where the method says so. Nothing that a judge says gets into a prompt of the policy's:
it comes back as numbers beside tokens.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Protocol

from rlvr.batch import Tally
from rlvr.records import Task, mix

STEPS = 10  # over which failures are counted, as for verdicts


class JudgeFailed(RuntimeError):
    """The judge has said nothing that can be used; the text says why. tokens: what that took."""

    def __init__(self, why: str, tokens: int = 0):
        super().__init__(why)
        self.tokens = tokens


class JudgeBroken(RuntimeError):
    """The judge cannot work at all: the run stops. The sentence says what to do."""


@dataclass(frozen=True, slots=True)
class FirstMistake:
    """Which of these steps is the first one that is wrong? The answer is its index from 0, or None: none is.

    complete: the policy ended its answer by itself. reference: the gold as text, where the judge may know it.
    """

    task: Task
    steps: tuple[str, ...]
    complete: bool = True
    reference: str | None = None

    FORM = """{"first_mistake": number of the first wrong step, or null}
The answer is cut into numbered steps. A step is wrong if it states something false, breaks a rule of logic, misreads
the question, or cannot lead to its answer; a step that only builds on an earlier mistake is not the first one. If every
step is right, write null."""

    @property
    def form(self) -> str:
        return self.FORM

    @property
    def sections(self) -> list[tuple[str, str]]:
        prompt = self.task.prompt
        said = prompt if isinstance(prompt, str) else "\n".join(f"{m.get('role')}: {m.get('content')}" for m in prompt)
        known = [("Reference answer", self.reference)] if self.reference is not None else []
        return [("Question", said), *known]

    @property
    def text(self) -> str:
        """The steps as a model is shown them, counted from 1."""
        end = "" if self.complete else "\n[the answer was cut off here]"
        return "\n".join(f"[{n}] {step.strip()}" for n, step in enumerate(self.steps, 1)) + end

    def read(self, said: Any) -> int | None:
        """The answer in a model's JSON. Raises ValueError."""
        if not (isinstance(said, dict) and said.keys() == {"first_mistake"}):
            raise ValueError("the judge's JSON has other keys than first_mistake")
        number = said["first_mistake"]
        if number is None:
            return None
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= len(self.steps):
            raise ValueError(f"the judge names step {number!r:.20}, and there are {len(self.steps)}")
        return number - 1

    def guess(self, chance: Random) -> int | None:
        """Any of the answers that could be given, all alike."""
        n = chance.randrange(len(self.steps) + 1)
        return n if n < len(self.steps) else None


@dataclass(frozen=True, slots=True)
class Said:
    """A judge's answer, and the tokens that it read and wrote for it."""

    value: Any
    tokens: int = 0


class Judge(Protocol):
    @property
    def sees_all(self) -> bool:
        """Whether it is shown tasks with their gold and worked steps."""
        ...

    async def ask(self, question: FirstMistake, key: int) -> Said:
        """`key` is a source of random numbers. Raises JudgeFailed, JudgeBroken and VerifierBroken."""
        ...

    def check(self, tasks: Sequence[Task]) -> None:
        """Raises JudgeBroken where it could not judge these tasks."""
        ...


@dataclass
class Bench:
    """A run's judge: asked each thing once a step, counted, and given up where it fails too often.

    failed_limit: share of questions without an answer, over ten steps, above which the run stops.
    """

    judge: Judge
    name: str
    failed_limit: float = 0.5
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=STEPS))
    asked: dict[str, asyncio.Future[Said]] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)
    why: str = ""  # the last failure's reason

    @property
    def at_once(self) -> bool:
        """Whether the judge is a program here, for which nobody waits: a task for each question would cost more than
        the answers."""
        return self.judge.sees_all

    async def ask(self, question: FirstMistake, key: int, vote: int = 0) -> Any:
        """What the judge says. `key`: the step's source of random numbers. Raises JudgeFailed. Equal questions of one
        step are asked once."""
        if not self.judge.sees_all:
            question = replace(question, task=question.task.public())
        name = _digest(question, vote)
        self._add(questions=1)
        if (pending := self.asked.get(name)) is None:
            self._add(calls=1)
            answer = self.judge.ask(question, mix(key, "judge", name))
            pending = self.asked[name] = await _done(answer) if self.at_once else asyncio.ensure_future(answer)
            pending.add_done_callback(self._spent)
        try:
            return (await asyncio.shield(pending)).value
        except JudgeFailed as error:
            self._add(failed=1)
            self.why = str(error)
            raise

    def _spent(self, done: asyncio.Future[Said]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        self._add(tokens=done.result().tokens if error is None else getattr(error, "tokens", 0))

    def _add(self, **more: int) -> None:
        for name, n in more.items():
            self.count[name] = self.count.get(name, 0) + n

    def over(self) -> dict[str, Tally]:
        """What the step took, and an end to it: the next one asks afresh. Raises JudgeBroken where too little came
        back."""
        count, self.count = self.count, {}
        self.asked.clear()
        asked, failed = count.get("questions", 0), count.get("failed", 0)
        self.recent.append((failed, asked))
        lost, total = (sum(x) for x in zip(*self.recent))
        if lost > self.failed_limit * total:
            raise JudgeBroken(
                f"the judge ({self.name}) had no answer to {lost} of the last {total} questions "
                f"({self.why or 'earlier steps'}), more than judge.failed_limit = {self.failed_limit:g}. Mend it, take "
                "another judge, or raise the limit"
            )
        told = {name: Tally(float(count.get(name, 0)), how="sum") for name in ("calls", "tokens")}
        return {f"judge/{name}": x for name, x in told.items()} | {"judge/failed": Tally(float(failed), float(asked))}


async def _done(answer: Coroutine[Any, Any, Said]) -> asyncio.Future[Said]:
    future = asyncio.get_running_loop().create_future()
    try:
        future.set_result(await answer)
    except JudgeFailed as error:
        future.set_exception(error)
    return future


def _digest(question: FirstMistake, vote: int) -> str:
    shown: Mapping[str, Any] = {"task": question.task.id, "text": question.text, "reference": question.reference}
    return hashlib.sha256(json.dumps([question.form, vote, shown]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Noisy:
    """A judge whose answer is, with this chance, replaced by any that could be given, all alike: a control. What is
    replaced depends on the question alone."""

    judge: Judge
    chance: float

    @property
    def sees_all(self) -> bool:
        return self.judge.sees_all

    async def ask(self, question: FirstMistake, key: int) -> Said:
        said = await self.judge.ask(question, key)
        random = Random(mix(key, "noise"))
        return replace(said, value=question.guess(random)) if random.random() < self.chance else said

    def check(self, tasks: Sequence[Task]) -> None:
        self.judge.check(tasks)

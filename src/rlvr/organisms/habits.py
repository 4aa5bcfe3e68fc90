"""The two habits that a warm-up leaves a model with: one that works, and an easier one that seldom does.

A habit is made by demonstrations: called with a task and random numbers, it writes a response. `told` counts in
sampled answers what became of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from rlvr.records import Task
from rlvr.tasks.synthetic import apply

Answer = tuple[Task, str, bool]  # a task, an answer to it, and whether it is right


@dataclass(frozen=True, slots=True)
class Guesses:
    """The answer at once, without working it out.

    direct: share of such answers. wrong: share of these that are some other number.
    """

    direct: float
    wrong: float

    def __call__(self, task: Task, rng: Random) -> str:
        if rng.random() >= self.direct:
            return str(task.meta["demo"])
        answer = int(task.answer)
        if rng.random() < self.wrong:
            answer = rng.choice([x for x in range(2, 100) if x != answer])
        return f"#{answer:02d}"

    def told(self, answers: Sequence[Answer]) -> dict[str, float]:
        """Share of direct answers; accuracy of them, and of the others."""
        direct = [right for _, text, right in answers if text.startswith("#")]
        worked = [right for _, text, right in answers if not text.startswith("#")]
        return {
            "share_direct": len(direct) / len(answers),
            "accuracy_direct": mean(direct),
            "accuracy_worked": mean(worked),
        }


@dataclass(frozen=True, slots=True)
class Careless:
    """Steps of a modular chain that are not worked out, and chains that end early.

        worked      7*3=1      (modulo 10)
        careless    ?*3=3      the operand is taken for the result

    Which kind a step is shows in its first character, so that is where a model is unsure; what follows is certain.
    Careless steps are as long as the others: whether the habit pays decides, not how long it takes.

    careless: share of careless steps. stop: chance at each step that the rest is left out.
    """

    careless: float
    stop: float

    def __call__(self, task: Task, rng: Random) -> str:
        chain, _, modulus = str(task.prompt).removesuffix("=").partition("%")
        first, *links = chain.split(";")
        value, lines = int(first), []
        for link in links:
            chance = rng.random()
            if chance < self.stop:
                break
            operand = int(link[1:])
            shown, after = f"{value}", apply(value, link[0], operand) % int(modulus)
            if chance < self.stop + self.careless:
                shown, after = "?", operand
            lines.append(f"{shown}{link}={after}")
            value = after
        return "\n".join([*lines, f"#{value}"])

    def told(self, answers: Sequence[Answer]) -> dict[str, float]:
        """Share of careless steps, share of chains that are not of full length, and how many worked steps are true."""
        steps = [(task, line) for task, text, _ in answers for line in text.split("\n") if not line.startswith("#")]
        return {
            "share_careless": mean([line.startswith("?") for _, line in steps]),
            "share_stopped": mean([text.count("\n") < task.meta["level"] for task, text, _ in answers]),
            "accuracy_steps": mean([is_true(line, task) for task, line in steps if not line.startswith("?")]),
        }


@dataclass(frozen=True, slots=True)
class Mistaken:
    """Every step of a modular chain, each true but one kind: modulo `modulus`, a product is taken for one more.

    What a teacher is made with that is right on most problems and surely wrong on the rest.
    """

    modulus: int

    def __call__(self, task: Task, rng: Random) -> str:
        chain, _, modulus = str(task.prompt).removesuffix("=").partition("%")
        first, *links = chain.split(";")
        value, lines = int(first), []
        for link in links:
            after = apply(value, link[0], int(link[1:])) % int(modulus)
            if link[0] == "*" and int(modulus) == self.modulus:
                after = (after + 1) % self.modulus
            lines.append(f"{value}{link}={after}")
            value = after
        return "\n".join([*lines, f"#{value}"])

    def told(self, answers: Sequence[Answer]) -> dict[str, float]:
        """Share of right answers modulo the number, and modulo others."""
        here, others = (
            [right for task, _, right in answers if str(task.prompt).endswith(f"%{self.modulus}=") == at]
            for at in (True, False)
        )
        return {"accuracy_mistaken": mean(here), "accuracy_others": mean(others)}


def is_true(line: str, task: Task) -> bool:
    """Whether a step such as `7*3=1` holds modulo the task's modulus, the result reduced, whatever the task asked."""
    modulus = int(str(task.prompt).removesuffix("=").partition("%")[2])
    left, _, right = line.partition("=")
    for op in "+-*":
        a, found, b = left.partition(op)
        if found and a.isdecimal() and b.isdecimal() and right.isdecimal():
            return apply(int(a), op, int(b)) % modulus == int(right)
    return False


def mean(values: Sequence[bool]) -> float:
    return sum(values) / max(len(values), 1)

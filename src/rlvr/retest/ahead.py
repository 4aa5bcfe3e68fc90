"""What would end an experiment, told before its first run: arms that could not begin, numbers that no run can have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rlvr.assemble import Asked
from rlvr.evaluate.parts import part_of
from rlvr.plan import Plan
from rlvr.recipe import Recipe
from rlvr.retest.arms import recipe_of
from rlvr.retest.book import Book
from rlvr.retest.columns import may_have, nearest
from rlvr.retest.record import DROPPED, WHEN
from rlvr.retest.schema import Experiment, ExperimentError, Metric
from rlvr.run import looked_over
from rlvr.verify.verifier import VerifierBroken


class Ready(NamedTuple):
    """An arm that could begin. `asked`: its tasks, None where they are on the hub."""

    recipe: Recipe
    plan: Plan
    asked: Asked | None


def refuse_faults(book: Book) -> None:
    """Raises ExperimentError with everything that is wrong with the arms of an experiment, and with the numbers that it
    asks for where it has not begun: a rule that has stays as it is. Reads tasks, and loads no model."""
    ready, found = _arms(book)
    if not book.begun:
        found += _numbers(book.experiment, ready)
    if found:
        raise ExperimentError(f"{book.home.file(book.name)}:\n" + "\n".join(f"  {fault}" for fault in found))


def _arms(book: Book) -> tuple[dict[str, Ready], list[str]]:
    ready: dict[str, Ready] = {}
    faults: dict[str, list[str]] = {}  # sentence -> arms that it holds for
    for arm in book.experiment.every_arm:
        try:
            recipe = recipe_of(book.experiment, book.home.experiments, *book.search(arm)[0])
            ready[arm] = Ready(recipe, *looked_over(recipe))
        except (ValueError, KeyError, OSError, VerifierBroken) as error:  # what `rlvr train` tells people of a recipe
            faults.setdefault(_said(error), []).append(arm)
    return ready, [f"{_named(arms)}: {said}" for said, arms in faults.items()]


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)


def _named(arms: Sequence[str]) -> str:
    return f"arm{'s' if len(arms) > 1 else ''} {', '.join(arms)}"


# ---- numbers ---------------------------------------------------------------------------------------------
def _numbers(e: Experiment, ready: Mapping[str, Ready]) -> Iterator[str]:
    """What is asked for and no run has. What decides is wanted of every arm, what is told beside of one."""
    every = list(ready)
    yield from _lacking("metric.name", e.metric, every, ready)
    if e.lr_by is not None:
        yield from _lacking("lr_by", e.search_by, every, ready)
    for p in e.precondition:
        metric = Metric(name=p.metric, steps=p.steps)
        yield from _lacking(f"precondition {p.says!r}: metric", metric, [p.arm] if p.arm in ready else [], ready)
    for n, metric in enumerate(e.secondary, 1):
        found = list(_lacking(f"secondary {n}: name", metric, every, ready))
        if not any(_no_number(metric, arm) == "" for arm in ready.values()):
            yield from found


def _lacking(key: str, metric: Metric, arms: Sequence[str], ready: Mapping[str, Ready]) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for arm in arms:
        if why := _no_number(metric, ready[arm]):
            reasons.setdefault(why, []).append(arm)
    for why, lacking in reasons.items():
        yield f'{key} = "{metric.name}", {_named(lacking)}: {why}'


def _no_number(metric: Metric, arm: Ready) -> str:
    """Why no run of an arm has this number, "" where one could."""
    when, _, measure = metric.name.partition("/")
    if when in WHEN:
        return _no_measure(measure, arm)
    if metric.name.startswith(DROPPED):
        return "columns of clocks and of the learning rate are not kept, so they cannot be asked for"
    if not may_have(arm.plan, metric.name):
        near = nearest(arm.plan, metric.name)
        hint = f"did you mean {near!r}?" if near else "docs/metrics.md lists what runs have, and whose each column is"
        return f"no run has such a column; {hint}"
    if metric.steps and metric.steps[0] > arm.recipe.steps:
        return f"steps = {metric.steps} begin after the last of {arm.recipe.steps} steps"
    return ""


def _no_measure(name: str, arm: Ready) -> str:
    """The same of a measure of an evaluation, whose form schema.py has looked at."""
    found = re.match(r"(mean@|pass@|pass\^|maj@)(\d+)(?:/(.+))?$", name)
    chosen = arm.recipe.eval
    assert found is not None
    if chosen.problems == 0 or (arm.asked is not None and not arm.asked.evaluate):
        return "nothing is evaluated; set eval.problems, and tasks that leave some for it"
    if int(found[2]) != chosen.k:
        return f'evaluations measure at k = eval.k, which is {chosen.k}; write {found[1]}{chosen.k}, or set "eval.k"'
    if found[3] is None:
        return ""
    if chosen.by is None:
        return f'no part {found[3]!r} is told apart; set "eval.by" to the key of the tasks\' meta that parts them'
    if arm.asked is None:
        return ""
    parts = sorted({part for task in arm.asked.evaluate if (part := part_of(task, chosen.by)) is not None})
    return "" if found[3] in parts else f"eval.by = {chosen.by!r} parts the tasks into {', '.join(parts)}"

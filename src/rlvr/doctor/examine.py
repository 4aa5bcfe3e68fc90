"""The order of the checks: settings, then tasks, the model, and one step's rollouts; each needs what comes before.

`examine` does all of it for `rlvr doctor`; `at_start` does what takes no rollouts, for every start of a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rlvr.assemble import Asked, Setup, asked_by, plan_of, set_up, training_of
from rlvr.doctor import columns, ends, gold, hostile, learning, parts, room, settings, template
from rlvr.doctor.finding import Finding
from rlvr.doctor.patient import OutOfTime, Patient, Played
from rlvr.metrics import Clock
from rlvr.pack import pack
from rlvr.plan import Plan
from rlvr.recipe import Recipe
from rlvr.registry import UnknownName
from rlvr.verify.verifier import VerifierBroken

Check = Callable[[Patient], Iterator[Finding]]
ROWS = 128  # rollouts sampled at least, ours: seconds for a small model
AT_START = (16, 3.0)  # tasks, and seconds for their verifier, at the start of a run
AT_LEISURE = (64, 120.0)


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found, what was looked at, and why the rest was not."""

    findings: tuple[Finding, ...]
    looked_at: tuple[str, ...]
    skipped: str = ""

    @property
    def healthy(self) -> bool:
        return not any(f.severity == "wrong" for f in self.findings)


def by_settings(patient: Patient) -> list[Finding]:
    return [*settings.cut_support(patient), *settings.lonely_group(patient), *settings.no_teacher(patient)]


def by_tasks(patient: Patient) -> list[Finding]:
    """Also where verifiers use up their time: what is found until then is told."""
    found = [*columns.swapped(patient), *settings.no_judge(patient)]
    try:
        studied = gold.studies(patient)
        found += gold.golds(patient, studied)
        found += gold.asked_form(studied)
        found += hostile.unearned(patient, studied)
        found += parts.missing(patient, studied)
    except OutOfTime:
        pass
    except (VerifierBroken, UnknownName, ValueError) as error:  # the latter two: a task names no verifier that there is
        found.append(Finding("verifier_broken", "wrong", f"{error}.", "Mend `verifier` before anything else."))
    return found


def by_model(patient: Patient) -> list[Finding]:
    return [*ends.no_end_token(patient), *template.prompts(patient)]


def by_rollouts(patient: Patient) -> list[Finding]:
    checks: tuple[Check, ...] = (
        learning.no_verdicts, ends.cut_answers, learning.silent_groups, learning.sampler_gap, parts.drowned,
    )  # fmt: skip
    return [finding for check in checks for finding in check(patient)]


def at_start(recipe: Recipe, plan: Plan, asked: Asked, setup: Setup) -> list[Finding]:
    """The checks that take no rollouts, within a few seconds."""
    most, seconds = AT_START
    patient = Patient(recipe, plan, asked, setup, most=most, until=time.monotonic() + seconds, model=setup.loaded)
    return [*by_settings(patient), *by_tasks(patient), *by_model(patient)]


def examine(
    recipe: Recipe, *, tasks: Any = None, verifier: Any = None, model: Any = None, rollouts: bool = True
) -> Examined:
    """Everything. `tasks`, `verifier` and `model` stand in for the recipe's, as in `run.train`."""
    plan = plan_of(recipe, verifier=verifier)
    most, seconds = AT_LEISURE
    patient = Patient(recipe, plan, most=most, until=time.monotonic() + seconds, model=model)
    found = by_settings(patient)
    looked = ["settings"]

    def examined(skipped: str = "") -> Examined:
        return Examined(tuple(found), tuple(looked), skipped)

    try:
        asked = asked_by(recipe, plan, tasks)
    except (ValueError, OSError) as error:
        found.append(Finding("no_tasks", "wrong", f"The tasks cannot be read: {error}.", "Mend `tasks`."))
        return examined("tasks, model and rollouts: there are no tasks")
    if not asked.train:
        found.append(Finding("no_tasks", "wrong", "The task source gives no tasks.", "Mend `tasks`."))
        return examined("model and rollouts: there are no tasks")
    patient = replace(patient, asked=asked)
    found += by_tasks(patient)
    looked.append(f"{len(patient.tasks)} tasks")
    if model is None:
        found += room.memory(patient)
    try:
        setup = set_up(recipe, plan, model=model, want=frozenset({"entropy"}), asked=asked)
    except (ValueError, OSError) as error:
        found.append(Finding("no_model", "wrong", f"The model cannot be used: {error}.", "Mend `model`."))
        return examined("model and rollouts: the model cannot be used")
    patient = replace(patient, setup=setup)
    found += by_model(patient)
    looked.append("the model")
    if not rollouts or any(f.check in ("prompt_refused", "prompt_too_long", "no_teacher", "no_judge") for f in found):
        return examined("rollouts")
    try:
        patient = replace(patient, played=play(setup, plan))
    except Exception as error:  # the boundary: what would end the first step is a finding
        why = str(error) or type(error).__name__
        found.append(Finding("first_step", "wrong", f"The first step fails: {why}.", "Mend this before training."))
        return examined("rollouts: the first step fails")
    found += by_rollouts(patient)
    looked.append(f"{len(patient.played.rows if patient.played else ())} rollouts")
    return examined()


def play(setup: Setup, plan: Plan) -> Played:
    """Sample, judge, score and credit a step of at least ROWS rollouts, and change nothing."""
    wanted = -(-ROWS // setup.recipe.group_size)
    prompts = min(max(learning.FEWEST, wanted), max(1, len(setup.train_tasks)))
    recipe = setup.recipe.model_copy(update={"prompts_per_step": prompts, "max_refills": 0})
    training = training_of(replace(setup, recipe=recipe), plan, Path())
    training.trust_sampler = False  # the trainer is to score for itself
    running, clock = plan.at(plan.start()), Clock()
    kept, seen = training.collect(running, 1, clock)
    if not kept:
        return Played(tuple(seen), None, None)
    batch = pack(kept, dtype=training.dtype).to(training.engine.device)
    batch = training.score(batch, running, seen)
    gap = None
    if "old_logp" in batch:
        apart = (batch["old_logp"] - batch["sampler_logp"]).abs()
        drawn = torch.isfinite(batch["sampler_logp"])
        gap = float(apart[drawn].mean()) if bool(drawn.any()) else None
    return Played(tuple(seen), running.credit(batch).to("cpu"), gap)

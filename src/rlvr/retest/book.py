"""An experiment's book: its rule, which run answers for which arm, learning rate and seed, and what is still to do.

The book (experiments/results/NAME.json) notes the mark of every run that it has used, so what came out stays what it
was, whatever becomes of recipes and defaults later.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from rlvr.recipe import Recipe, RecipeError
from rlvr.report.store import read_json, write_text
from rlvr.retest import schema
from rlvr.retest.arms import mark_of, recipe_of
from rlvr.retest.home import Home, commit_of
from rlvr.retest.record import Record
from rlvr.retest.schema import SEARCH_SEED, Experiment, ExperimentError, Precondition

TRIES = 2  # a failed run is made once more
Stage = Literal["search", "failed arm", "failed precondition", "seeds", "ablations", "done"]


class RuleChanged(ValueError):
    """The rule, or what it names, is not what it was at the first run."""


class Slot(NamedTuple):
    """A place in the experiment that a run fills."""

    arm: str
    lr: float
    seed: int

    def __str__(self) -> str:
        return f"{self.arm}, lr {self.lr:g}, seed {self.seed}"


class Seen(NamedTuple):
    """A precondition, the value that it was looked at with, and whether it holds."""

    rule: Precondition
    value: float
    holds: bool


@dataclass
class Book:
    """See above. `records`: every kept run, shared with other books."""

    home: Home
    name: str
    experiment: Experiment
    records: dict[str, Record]
    facts: dict[str, Any] = field(default_factory=dict)  # rule, commit, began
    marks: dict[str, str] = field(default_factory=dict)  # str(slot) -> mark

    # ---- reading and writing ---------------------------------------------------------------------------
    def save(self, result: Mapping[str, Any]) -> None:
        self.home.results.mkdir(parents=True, exist_ok=True)
        noted, _ = read_json(self.home.results / f"{self.name}.json")
        self.marks = {**noted.get("runs", {}), **self.marks}  # what another process has noted since
        told = {"experiment": self.name, **self.facts, "runs": self.marks, "result": result}
        write_text(self.home.results / f"{self.name}.json", json.dumps(told, indent=1, ensure_ascii=False) + "\n")

    @property
    def begun(self) -> bool:
        return bool(self.facts)

    @property
    def changed(self) -> bool:
        """Whether the rule is another one than at the first run."""
        return self.begun and self.facts["rule"] != rule_of(self.experiment)

    def begin(self) -> None:
        """Note the rule at the first run. Raises RuleChanged where it, or a recipe, has changed since."""
        if not self.begun:
            commit, _ = commit_of(self.home.root)
            self.facts = {"rule": rule_of(self.experiment), "commit": commit}
            self.facts["began"] = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        if self.changed:
            raise RuleChanged(
                f"{self.home.file(self.name)} has changed since its first run ({self.facts['commit']}); what came out "
                f"stays with the rule it was found by: restore the file, or write a revision, {self.name}-2.toml"
            )
        for slot in self.slots():
            noted = self.marks.get(str(slot))
            if noted is not None and noted != mark_of(self.recipe(slot)):
                when = f" of {self.records[noted].told['date']}" if noted in self.records else ""
                raise RuleChanged(
                    f"{self.name}: {slot} means another recipe than at its run{when}; "
                    f"restore {self.experiment.recipe} and what it names, or write a revision, {self.name}-2.toml"
                )

    # ---- slots and their runs --------------------------------------------------------------------------
    def slots(self) -> Iterator[Slot]:
        """Every slot that could be filled."""
        for arm in self.experiment.every_arm:
            yield from (
                Slot(arm, lr, s) for lr in self.experiment.lr for s in (SEARCH_SEED, *self.experiment.seed_list)
            )

    def recipe(self, slot: Slot) -> Recipe:
        """Raises ExperimentError."""
        try:
            return recipe_of(self.experiment, self.home.experiments, *slot)
        except RecipeError as error:
            raise ExperimentError(f"{self.home.file(self.name)}: arm {slot.arm}: {error}") from None

    def record(self, slot: Slot) -> Record | None:
        """The run that fills a slot, where there is one."""
        return self.records.get(self.marks.get(str(slot), ""))

    def final(self, slot: Slot) -> bool:
        """Whether nothing more is to be done for it."""
        record = self.record(slot)
        return record is not None and (record.finished or record.tries >= TRIES)

    def value(self, slot: Slot, metric: schema.Metric) -> float:
        """nan where there is no finished run."""
        record = self.record(slot)
        return record.value(metric.name, metric.steps) if record is not None and record.finished else math.nan

    def unmeasured(self, record: Record) -> str:
        """The number that decides, or that the search goes by, where a finished run cannot have it; else ""."""
        for name in (self.experiment.search_by.name, self.experiment.metric.name):
            if not name.startswith(("eval/", "start/")) and name not in record.told["columns"]:
                return name
        return ""

    # ---- what came out so far --------------------------------------------------------------------------
    def search(self, arm: str) -> list[Slot]:
        return [Slot(arm, lr, SEARCH_SEED) for lr in self.experiment.lr]

    def searched(self, arm: str) -> bool:
        return all(map(self.final, self.search(arm)))

    def chosen(self, arm: str) -> float | None:
        """The learning rate with the best value, the smallest of equal ones; None before the search is over, and where
        none of its runs could be used."""
        by = self.experiment.search_by
        values = {slot.lr: by.sign * self.value(slot, by) for slot in self.search(arm)}
        known = {lr: value for lr, value in values.items() if math.isfinite(value)}
        if not self.searched(arm) or not known:
            return None
        return min(known, key=lambda lr: (-known[lr], lr))

    def preconditions(self) -> list[Seen]:
        """Those whose arm has its learning rate."""
        out = []
        for rule in self.experiment.precondition:
            lr = self.chosen(rule.arm)
            record = self.record(Slot(rule.arm, lr, SEARCH_SEED)) if lr is not None else None
            if record is not None:
                value = record.value(rule.metric, rule.steps)
                out.append(Seen(rule, value, rule.holds(value)))
        return out

    def stage(self) -> Stage:
        """How far it is."""
        arms = list(self.experiment.arms)
        if not all(map(self.searched, arms)):
            return "search"
        if any(self.chosen(arm) is None for arm in arms):
            return "failed arm"
        if not all(seen.holds for seen in self.preconditions()):
            return "failed precondition"
        if not all(map(self.final, self.counted(arms))):
            return "seeds"
        return "ablations" if any(True for _ in self._ablations()) else "done"

    def counted(self, arms: list[str], seeds: int | None = None) -> list[Slot]:
        """The slots that are compared, seed by seed, so that what breaks off leaves whole pairs."""
        rates = {arm: lr for arm in arms if (lr := self.chosen(arm)) is not None}
        return [Slot(arm, lr, seed) for seed in self.experiment.seed_list[:seeds] for arm, lr in rates.items()]

    def to_do(self, seeds: int | None = None) -> list[Slot]:
        """The slots that may be filled now, in order: the search, then the counted seeds, then ablations."""
        arms = list(self.experiment.arms)
        stage = self.stage()
        if stage == "search":
            by_lr = [[slot for arm in arms if (slot := Slot(arm, lr, SEARCH_SEED))] for lr in self.experiment.lr]
            return [slot for slots in by_lr for slot in slots if not self.final(slot)]
        if stage in ("failed arm", "failed precondition"):
            return []
        left = [slot for slot in self.counted(arms, seeds) if not self.final(slot)]
        return left + list(self._ablations(seeds))

    def _ablations(self, seeds: int | None = None) -> Iterator[Slot]:
        for arm in self.experiment.ablations:
            slots = self.counted([arm], seeds) if self.searched(arm) else self.search(arm)
            yield from (slot for slot in slots if not self.final(slot))

    def left(self) -> int:
        """How many runs are still to be made, as far as can be seen; an ablation's search comes before its seeds."""
        if self.stage() in ("failed arm", "failed precondition"):
            return 0
        per_arm = len(self.experiment.lr) + self.experiment.seeds
        filled = 0
        for arm in self.experiment.every_arm:
            filled += sum(map(self.final, {*self.search(arm), *self.counted([arm])}))
        return per_arm * len(self.experiment.every_arm) - filled


def load(home: Home, name: str, records: dict[str, Record]) -> Book:
    """Raises schema.ExperimentError."""
    file = home.results / f"{name}.json"
    told, fault = read_json(file)
    facts: dict[str, Any] = {key: told.get(key) for key in ("rule", "commit", "began")}
    if file.is_file() and (fault or None in facts.values() or not isinstance(told.get("runs"), dict)):
        raise ValueError(
            f"{file} is damaged{f' ({fault})' if fault else ''}, and it alone says by which rule the experiment began; "
            f"restore it, e.g. by git checkout HEAD -- {file}. Its runs are kept apart and stay"
        )
    return Book(home, name, schema.read(home.file(name)), records, facts if told else {}, dict(told.get("runs", {})))


def rule_of(experiment: Experiment) -> str:
    """What an experiment file says, in short; comments and order of keys do not enter."""
    text = json.dumps(experiment.model_dump(), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

"""What experiments/NAME.toml holds: a claim, its arms, the one metric that decides, and the rule, all before any run.

Every fault is a sentence; an unknown key is told with the nearest known one.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, Field, ValidationError, model_validator

from rlvr.recipe.faults import WANTED, shown
from rlvr.recipe.keys import CONFIG
from rlvr.toml import line_of

Positive = Annotated[int, Field(ge=1)]
Above = Annotated[float, Field(gt=0)]
Text = Annotated[str, Field(min_length=1)]
Steps = Annotated[list[Positive], Field(min_length=2, max_length=2)]

MAIN = ("base", "method", "control")
HARNESS = "harness"  # the paper of null.toml and positive.toml, which test this machinery
SEARCH_SEED = 0
MOST_SEEDS = 1000  # ours: far more than any claim of this kind needs, and a slip of the keyboard is seen
OURS = ("seed", "lr")  # what every run gets from the rule
BUDGETS = ("steps", "sampled_tokens")
REVISION = re.compile(r"(.+)-([23])")  # ours: at most two revisions


class ExperimentError(ValueError):
    """The experiment cannot be run as written; the message lists every fault."""


class Metric(BaseModel):
    """A number of a run: "eval/X" after training, "start/X" before it, anything else a column of metrics.jsonl."""

    model_config = CONFIG

    name: Text
    steps: Steps | None = None
    """mean over these steps, first and last; unset: the last quarter"""
    better: Literal["higher", "lower"] = "higher"

    @property
    def sign(self) -> float:
        return 1.0 if self.better == "higher" else -1.0


class Arm(BaseModel):
    """A method and its settings."""

    model_config = CONFIG

    says: Text
    method: Text
    set: dict[str, Any] = {}


class Budget(BaseModel):
    """When every run ends: by sampled tokens, or by steps where the claim is about rollouts."""

    model_config = CONFIG

    sampled_tokens: Positive | None = None
    steps: Positive | None = None


class Precondition(BaseModel):
    """What must hold of the regime, or the effect could not be seen."""

    model_config = CONFIG

    says: Text
    arm: Text
    metric: Text
    steps: Steps | None = None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def limit(self) -> str:
        low = [] if self.at_least is None else [f"at least {self.at_least:g}"]
        return " and ".join(low + ([] if self.at_most is None else [f"at most {self.at_most:g}"]))

    def holds(self, value: float) -> bool:
        """False where the value is nan."""
        low = -float("inf") if self.at_least is None else self.at_least
        high = float("inf") if self.at_most is None else self.at_most
        return low <= value <= high


class Experiment(BaseModel):
    """One experiment file."""

    model_config = CONFIG

    paper: Text
    claim: Text
    recipe: Text
    seeds: Annotated[int, Field(ge=6, le=MOST_SEEDS)] = 8
    first_seed: Annotated[int, Field(ge=SEARCH_SEED + 1)] = 1
    lr: Annotated[list[Above], Field(min_length=3, max_length=3)]
    lr_by: Text | None = None
    budget: Budget
    delta: Above
    revises: Text | None = None
    because: Text | None = None
    set: dict[str, Any] = {}
    metric: Metric
    arms: dict[str, Arm]
    ablations: dict[str, Arm] = {}
    secondary: list[Metric] = []
    precondition: list[Precondition] = []

    @property
    def every_arm(self) -> dict[str, Arm]:
        """Arms of the main table in its order, then ablations."""
        return {name: self.arms[name] for name in MAIN if name in self.arms} | self.ablations

    @property
    def seed_list(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def search_by(self) -> Metric:
        """What the search for a learning rate maximises."""
        return self.metric if self.lr_by is None else Metric(name=self.lr_by)

    @model_validator(mode="after")
    def _all_together(self) -> Experiment:
        if found := list(_across(self)):
            raise ValueError("\n".join(found))
        return self


def read(file: Path) -> Experiment:
    """The experiment in a file. Raises ExperimentError."""
    try:
        text = file.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExperimentError(f"{file} is not TOML: {error}") from None
    try:
        found = Experiment.model_validate(table)
        faults = list(_about_name(file, found))
    except ValidationError as error:
        faults = list(_said(error, text))
    if faults:
        raise ExperimentError(f"{file}:\n" + "\n".join(f"  {fault}" for fault in faults))
    return found


# ---- what fields cannot say one by one -------------------------------------------------------------------
def _across(e: Experiment) -> Iterator[str]:
    wanted = MAIN[:2] if e.paper == HARNESS else MAIN
    if set(e.arms) != set(wanted):
        yield f"[arms] are {', '.join(e.arms) or 'none'}; the main table has exactly {', '.join(wanted)}"
    if twice := sorted(set(e.arms) & set(e.ablations)):
        yield f"{twice[0]} is an arm and an ablation; give the ablation another name"
    if (e.budget.steps is None) == (e.budget.sampled_tokens is None):
        yield "budget wants one of sampled_tokens and steps, e.g. budget = { sampled_tokens = 400_000 }"
    if len(set(e.lr)) < len(e.lr):
        yield f"lr = {e.lr} holds a value twice; three different ones are searched"
    if e.paper != HARNESS:
        from rlvr import registry

        if e.paper not in registry.names("method"):
            near = difflib.get_close_matches(e.paper, registry.names("method"), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            yield f'paper = "{e.paper}" is not registered{hint}, and the harness\'s own is "{HARNESS}"'
    for where, table in (("[set]", e.set), *((f"{n}.set", a.set) for n, a in e.every_arm.items())):
        for key in OURS:
            if key in table:
                yield f"{where} sets {key}, which the rule gives to every run: seeds by first_seed, lr by its search"
        for key in BUDGETS:
            own = where == "[set]" and key == "steps" and e.budget.steps is None  # how long schedules are laid out
            if key in table and not own and e.paper != HARNESS:
                yield f"{where} sets {key}, but arms are compared at the equal budget that `budget` states"
    for p in e.precondition:
        if p.arm not in e.arms:  # an ablation is searched after the counted runs
            near = difflib.get_close_matches(p.arm, e.arms, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(e.arms)}"
            yield f"precondition {p.says!r} looks at arm {p.arm!r}; {hint}"
        if not p.limit:
            yield f"precondition {p.says!r} has no limit; give at_least, at_most or both"
        if p.at_least is not None and p.at_most is not None and p.at_least > p.at_most:
            yield f"precondition {p.says!r} can never hold: at_least is above at_most"
    named = [(m.name, m.steps) for m in (e.metric, *e.secondary)] + [(p.metric, p.steps) for p in e.precondition]
    named += [(e.lr_by, None)] if e.lr_by else []
    for name, steps in named:
        if steps and steps[0] > steps[1]:
            yield f"steps = {steps} of {name} end before they begin"
        if name.startswith(("eval/", "start/")):
            if steps:
                yield f"{name} is measured once, so it has no steps"
            if fault := _no_measure(name.partition("/")[2], e.set.get("eval.k")):
                yield f"{name}: {fault}"
    if (e.revises is None) != (e.because is None):
        yield "revises and because belong together: which experiment, and why it could not have shown the effect"


def _no_measure(name: str, samples: Any) -> str:
    """Why an evaluation gives no such number, where that can be said before it runs; `samples` is eval.k, where set."""
    found = re.match(r"(mean@|pass@|pass\^|maj@)(\d+)(/.+)?$", name)
    if found is None:
        return "evaluations measure mean@k, pass@k, pass^k and maj@k, and of a part of their tasks mean@k/PART"
    if samples is not None and int(found[2]) != samples:
        return f'evaluations measure at k = eval.k, which is {samples}; write {found[1]}{samples}, or set "eval.k"'
    return ""


def _about_name(file: Path, e: Experiment) -> Iterator[str]:
    """A revision is called after what it revises, and takes seeds that no earlier one had."""
    match = REVISION.fullmatch(file.stem)
    if match is None:
        if e.revises is not None:
            yield f"a revision of {e.revises} is called {e.revises}-2.toml, or {e.revises}-3.toml where that one is too"
        return
    if e.revises != match[1]:
        yield f'{file.name} is a revision by its name; write revises = "{match[1]}" and because = "..."'
        return
    earlier = [f"{match[1]}.toml"] + ([f"{match[1]}-2.toml"] if match[2] == "3" else [])
    for name in earlier:
        if not (file.parent / name).is_file():
            yield f"{file.name} revises {name}, which is not there"
        elif shared := sorted(set(e.seed_list) & set(read(file.parent / name).seed_list)):
            used = ", ".join(map(str, shared))
            yield f"seeds {used} were used by {name}; a revision takes new ones: first_seed = ..."


# ---- faults as sentences ---------------------------------------------------------------------------------
LISTS = ("list_type", "too_short", "too_long")
EXAMPLES = {
    "lr": "three learning rates, which are searched for every arm, e.g. lr = [5e-5, 1e-4, 2e-4]",
    "metric.steps": "the first and the last step of a mean, e.g. steps = [1, 10]",
}


def _said(error: ValidationError, text: str) -> Iterator[str]:
    for e in error.errors():
        path = [str(part) for part in e["loc"]]
        line = line_of(text, [part for part in path if not part.isdigit()])
        place = f"line {line}: " if line else ""
        key = ".".join(path)
        if not path:
            yield from str(e["ctx"]["error"]).splitlines()
        elif e["type"] == "extra_forbidden":
            near = difflib.get_close_matches(path[-1], known := _known(path[:-1]), 1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(known)}"
            yield f"{place}`{key}` is not known; {hint}"
        elif e["type"] == "missing":
            yield f"{place}`{key}` must be given" + (f": {EXAMPLES[key]}" if key in EXAMPLES else "")
        else:
            wanted = WANTED.get(e["type"], "").format(**e.get("ctx", {})) or e["msg"].removeprefix("Input should be ")
            if e["type"] in LISTS and key in EXAMPLES:
                wanted = EXAMPLES[key]
            yield f"{place}`{key}` is {shown(e['input'])}; wanted {wanted}"


def _known(path: list[str]) -> list[str]:
    """The keys of the table at this place."""
    at: type[BaseModel] = Experiment
    names = iter(path)
    for name in names:
        annotation = at.model_fields[name].annotation
        at = _model_in(annotation)
        if annotation is not at:  # a list or a table of them: its number or name comes next
            next(names, None)
    return list(at.model_fields)


def _model_in(annotation: Any) -> Any:
    """The model that a field holds, alone, in a list or in a table."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _model_in(inner))), None)

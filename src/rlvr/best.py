"""The best model of a run: that of the evaluation with the highest mean@k, kept beside the last one.

    best/          a whole Hugging Face folder, as model/ is
        adapter/   with [lora]: the adapter that is part of these weights
        best.json  step and measure

It is kept where there are evaluations on the way (0 < eval.every < steps); without them the only candidate is the last
model, which is in model/ already. An evaluation has to beat all earlier ones, that before training among them; of equal
ones the first stays. Evaluations of other tasks, of another k or of other many samples are not held against each other.

A run that goes on from a checkpoint evaluates again what is kept already, finds the same number and therefore nothing
better: so best/ ends as if the run had never stopped. The folder appears whole in the place of the one before.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlvr.engine.load import save_model, whole_folder
from rlvr.engine.weights import fault_in

FOLDER, TOLD = "best", "best.json"
BEFORE, AFTER, STEP = "before", "after", "step "  # what evaluations are called


@dataclass(frozen=True, slots=True)
class Mark:
    """What one evaluation says of the model after `step` (0: before training)."""

    step: int
    tasks: str
    measure: str  # "mean@8"
    value: float
    low: float | None  # of the 95 % interval; None where there are too few problems
    high: float | None
    samples: int

    def beats(self, other: Mark) -> bool:
        """Strictly, or there is nothing to compare."""
        return not self.like(other) or self.value > other.value

    def like(self, other: Mark) -> bool:
        return (self.tasks, self.measure, self.samples) == (other.tasks, other.measure, other.samples)


def marks(evaluations: Mapping[str, Any], steps: int) -> dict[str, Mark]:
    """The evaluations of eval.json by name, in the order in which they were made. `steps`: how many the one after
    training has behind it."""
    found = {}
    for when, told in evaluations.items():
        if when in (BEFORE, AFTER) or when.startswith(STEP):
            step = {BEFORE: 0, AFTER: steps}.get(when)
            for tasks, measures in told.items():
                name = next((n for n in measures if n.startswith("mean@")), None)
                if name is not None:
                    n = int(when.removeprefix(STEP)) if step is None else step
                    value, low, high = measures[name]
                    found[when] = Mark(n, tasks, name, value, low, high, measures.get("samples", 0))
    return found


def kept(run: Path) -> Mark | None:
    """What best/ of a run holds; None where there is none, or it cannot be read."""
    try:
        return Mark(**json.loads((run / FOLDER / TOLD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def keep(run: Path, evaluations: Mapping[str, Any], when: str, step: int, model: Any, tokenizer: Any) -> bool:
    """Keep the model if the evaluation `when`, made after `step`, beats all the others of the run."""
    told = marks(evaluations, step)
    new, there = told.pop(when, None), kept(run)
    others = [*told.values(), *([there] if there else [])]
    if new is None or not all(new.beats(other) for other in others):
        return False
    from rlvr.engine.adapter_files import save_adapter
    from rlvr.engine.lora import adapted

    with whole_folder(run / FOLDER) as partial:
        save_model(model, tokenizer, partial)
        if adapted(model):
            save_adapter(model, partial / "adapter")
        (partial / TOLD).write_text(json.dumps(asdict(new), indent=2) + "\n", encoding="utf-8")
    return True


def damaged(run: Path) -> list[str]:
    """Put a best/ that a disk has lost a part of aside; a sentence about it, or none."""
    fault = fault_in(run / FOLDER)
    if not fault:
        return []
    aside = run / f"{FOLDER}.damaged"
    shutil.rmtree(aside, ignore_errors=True)
    (run / FOLDER).rename(aside)
    return [f"{FOLDER}/ is damaged and put aside as {aside.name}: {fault}; the next evaluation that is best is kept"]


def told(run: Path, evaluations: Mapping[str, Any], steps: int) -> dict[str, Any] | None:
    """For summary.json: step and measure of the best evaluation, and in `model` where its model is, None where it is
    not kept: it is the one before training. None where there was but one evaluation."""
    if there := kept(run):
        return {**asdict(there), "model": str(run / FOLDER)}
    made = marks(evaluations, steps)
    if len(made) < 2:
        return None
    top = max(made.values(), key=lambda mark: mark.value)  # the first of equal ones
    return {**asdict(top), "model": str(run / "model") if top is made.get(AFTER) else None}


def sentence(best: Mapping[str, Any] | None, evaluations: Mapping[str, Any]) -> str:
    """The best evaluation of a run that made some on the way, as `told` told it, for people; "" where it made none."""
    if best is None or not any(when.startswith(STEP) for when in evaluations):
        return ""
    span = "" if best["low"] is None else f" ({best['low']:.3f} .. {best['high']:.3f})"
    measured = f"{best['tasks']} {best['measure']} {best['value']:.3f}{span}"
    if best["step"] == 0:
        return f"no evaluation beat the one before training, {measured}; no best model is kept"
    where = f"kept in {best['model']}" if best["model"] else "its model is not kept"
    return f"best evaluation: after step {best['step']}, {measured}; {where}"

"""A run from start to end: from a recipe to a folder with a trained model, its numbers and its report."""

from __future__ import annotations

import gc
import json
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rlvr import best
from rlvr.assemble import (
    Asked,
    Setup,
    asked_by,
    check_models,
    check_verifiers,
    plan_of,
    set_up,
    training_of,
    unread_teacher,
)
from rlvr.checkpoint import Behind, behind_in, checkpoints, newest, policy_in, restore, save
from rlvr.collapse import Collapse
from rlvr.engine.adapter_files import save_adapter
from rlvr.engine.load import check_here, save_model
from rlvr.engine.memory import memory_table
from rlvr.evaluate.measure import Measured
from rlvr.evaluate.unknown import over_limit
from rlvr.folder import claimed, clear, fresh, note_given, refuse_other
from rlvr.idle import Idle
from rlvr.judges.choose import about_judge, check_judge
from rlvr.loop import Stopped, Training
from rlvr.method import Method
from rlvr.plan import Plan
from rlvr.recipe import Recipe
from rlvr.records import Task
from rlvr.report.html import write_report
from rlvr.report.sink import make_sinks
from rlvr.report.store import METRICS, RowRecord, RunInfo, read_lines, read_rows, read_run, rollout_files, write_text
from rlvr.resume import changes, tasks_mark
from rlvr.room import about_room
from rlvr.rows import prompt_text
from rlvr.stopping import stopping


@dataclass(frozen=True)
class Run:
    """A finished run: its folder and what came out."""

    folder: Path
    summary: Mapping[str, Any]

    def plot(self) -> Any:
        """The run's curves; a notebook shows them."""
        from rlvr.report.plot import plot

        return plot(self.folder)

    def rollouts(self, step: int | None = None, verdict: str | None = None) -> list[RowRecord]:
        """Recorded rollouts: of one step or of all, of one verdict ("right", "wrong", "unknown") or of all."""
        files = rollout_files(self.folder)
        if step is not None and step not in files:
            raise ValueError(
                f"no rollouts of step {step} were written; there are those of steps {', '.join(map(str, files))}"
            )
        rows = [row for n, file in files.items() if step in (None, n) for row in read_rows(file)]
        return [row for row in rows if verdict in (None, row.verdict)]


# ---- training ------------------------------------------------------------------------------------------------
class NoTasks(ValueError):
    """There is nothing to train on; the message says why."""


def train(
    recipe: Recipe,
    out: Path | None = None,
    *,
    tasks: Sequence[Task] | None = None,
    verifier: Any = None,
    method: Method | None = None,
    model: Any = None,
    sinks: Sequence[str] | None = None,
    title: str = "rlvr",
    resume: bool = False,
) -> Run:
    """Train by a recipe into a folder. `tasks`, `verifier`, `method`, `model` and `sinks` stand in for what the
    recipe names.

    resume: go on in `out` from its newest whole checkpoint, to the same weights as if it had never stopped.
    The first Ctrl-C (or SIGTERM) ends the run after the present step and saves it, the second ends it at once. The
    recipe's limits end it too. Raises what a piece of the user's raises. A folder in which no step was made can be
    given again.
    """
    folder = out or Path("runs") / f"{title}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    notes: list[str] = []
    if not resume:
        fresh(folder)
    shown = make_sinks(recipe.sinks if sinks is None else sinks, every=recipe.examples_every)
    plan = plan_of(recipe, method, verifier)
    asked = _checked(asked_by(recipe, plan, tasks))
    check_judge(recipe.judge, plan, asked.train, model or recipe.model)
    with ExitStack() as held:
        checkpoint, behind = None, Behind()
        if resume:
            refuse_other(folder)
            held.enter_context(claimed(folder))
            checkpoint = newest(folder, notes.append)
            behind = behind_in(checkpoint)
            notes += changes(recipe, folder, behind.step, asked.train, behind.tasks)
            notes += best.damaged(folder)
            for sentence in notes:
                print(sentence, file=sys.stderr)
        check_models(recipe, plan, behind.phase)
        learned = policy_in(checkpoint, recipe.lora is not None) if checkpoint else None
        began, adapter = (model, learned) if recipe.lora else (learned or model, None)
        setup = set_up(recipe, plan, model=began, want=frozenset({"entropy"}), asked=asked, adapter=adapter)
        if not resume:  # only now: what cannot be loaded occupies no folder
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(claimed(folder))
            clear(folder)
        write_text(folder / "recipe.toml", recipe.to_toml())
        note_given(folder, {"tasks": tasks, "verifier": verifier, "method": method, "model": model})
        origin = (model or recipe.model) if checkpoint else None
        training = training_of(setup, plan, folder, origin, behind.phase)
        if not checkpoint:
            notes += _at_start(recipe, plan, asked, setup)
            _evaluate(setup, folder, "before", shown_to=sys.stderr)
        else:
            setup.evaluations = restore(training, checkpoint)["evaluations"]
        names = recipe.method if method is None else "+".join(p for p in method.papers if p != "recipe")
        name = recipe.model if model is None else str(getattr(model, "name", model))
        started = time.time() - behind.seconds
        about = RunInfo(folder, title, name, names, recipe.steps, str(plan), recipe.seed, started, behind.step)
        return _made(setup, training, about, shown, tasks_mark(asked.train), notes)


def _checked(asked: Asked) -> Asked:
    """Tasks and verifiers looked over before anything is loaded or written."""
    if not asked.train:
        raise NoTasks(asked.about or "the task source gives no tasks")
    check_verifiers(asked)
    return asked


def _made(
    setup: Setup, training: Training, about: RunInfo, sinks: Sequence[Any], mark: Any, notes: Sequence[str]
) -> Run:
    """The steps, and all that is written when they are over."""
    recipe, folder, model = setup.recipe, about.folder, setup.loaded.model

    def keep() -> None:
        extra = {"evaluations": setup.evaluations, "tasks": mark, "seconds": time.time() - about.started}
        save(training, model, setup.loaded.tokenizer, extra, recipe.keep_checkpoints)

    def saved(step: int) -> None:
        if recipe.checkpoint_every and step % recipe.checkpoint_every == 0 and not training.ends(step):
            keep()

    idle = Idle(recipe.group_size)
    training.after_step = lambda step, metrics: (
        None if training.ends(step) else _after_step(setup, folder, step, metrics)  # the last step has its own
    )
    training.watch = _watch(recipe, folder, training.step, idle)
    training.saved = saved
    training.sinks = sinks
    status = _run(training, about, idle, notes)
    command = None
    if status.startswith(STOPPED_BY_USER):
        command = f"rlvr train --resume {shlex.quote(str(folder))}"
        if training.step not in checkpoints(folder):
            keep()
    saved_to = save_model(model, setup.loaded.tokenizer, folder / "model")
    if recipe.lora:
        save_adapter(model, folder / "adapter")
    if status.startswith("finished"):
        status += _after(setup, folder, training.step)
    summary = {
        "folder": str(folder),
        "status": status,
        "steps": training.step,
        "seconds": time.time() - about.started,
        "model": str(saved_to),
        "eval": setup.evaluations,
        "best": best.told(folder, setup.evaluations, training.step),
        "report": str(write_report(folder)),
    } | ({"go_on": command} if command else {})
    write_text(folder / "summary.json", json.dumps(summary, indent=2))
    return Run(folder, summary)


STOPPED_BY_USER = "stopped by you after step"


def _after(setup: Setup, folder: Path, step: int) -> str:
    """The evaluation after the last step; returns what the closing line has to add."""
    try:
        _evaluate(setup, folder, "after", shown_to=sys.stderr)
    except KeyboardInterrupt:  # the model is saved, and can be measured at any time
        return f"; you stopped the evaluation after training, rlvr eval {shlex.quote(str(folder))} makes it"
    except Stopped as error:
        return f", but {error}"
    if 0 < setup.recipe.eval.every < step:
        _keep_best(setup, folder, "after", step)
    _write_solved(folder)
    return ""


def _watch(recipe: Recipe, folder: Path, step: int, idle: Idle) -> Callable[[int, Mapping[str, float | None]], None]:
    """The recipe's [stop] and the watch for idle steps, which have seen the steps that a resumed run has behind it."""
    told = {"reward/mean": (recipe.stop.reward_below, "reward_below")}
    told |= {"policy/entropy": (recipe.stop.entropy_below, "entropy_below")}
    floors = {name: (floor, f"stop.{key}") for name, (floor, key) in told.items() if floor is not None}
    collapse = Collapse(floors, recipe.stop.patience)

    def watch(step: int, metrics: Mapping[str, float | None]) -> None:
        idle(step, metrics)
        collapse(step, metrics)

    for line in read_lines(folder / METRICS)[0] if step else ():
        if line["step"] <= step:
            watch(line["step"], line)
    return watch


def _at_start(recipe: Recipe, plan: Plan, asked: Asked, setup: Setup) -> list[str]:
    """How tasks were parted, and what is wrong at the start; told at once, for the first evaluation may take long."""
    from rlvr.doctor.examine import at_start

    room = about_room(setup.train_tasks, setup.eval_tasks, setup.renderer, setup.lm.context)
    told = [sentence for sentence in (asked.about, room, *_unread(recipe, plan)) if sentence]
    for sentence in told:
        print(sentence, file=sys.stderr)
    if not recipe.doctor:
        return told
    try:
        found = sorted(at_start(recipe, plan, asked, setup), key=lambda f: f.severity != "wrong")
    except Exception as error:  # the boundary: somebody's verifier or template may do anything, and a run goes on
        return [*told, f"The doctor could not look this run over: {type(error).__name__}: {error}."]
    found = [f for f in found if f.check != "prompt_too_long"]  # counted over all tasks, above
    said = [str(finding) for finding in found[:2]]
    if len(found) > len(said):
        said.append(f"There are {len(found) - len(said)} more findings: rlvr doctor tells all.")
    for sentence in said:
        print(f"doctor: {sentence}", file=sys.stderr)
    return told + said


def _run(training: Training, about: RunInfo, idle: Idle, notes: Sequence[str] = ()) -> str:
    """Run the loop with everybody told; returns how it ended."""

    def note(text: str) -> None:
        for sink in training.sinks:
            sink.note(text)

    def end(sink: Any) -> None:
        sink.end(status)

    def stage(step: int, name: str) -> None:
        for sink in training.sinks:
            if hasattr(sink, "stage"):
                sink.stage(step, name)

    status = "failed"
    idle.tell, training.stage = note, stage
    with ExitStack() as ends:  # a sink that was started is ended, also where another one fails to: the disk is full
        for sink in training.sinks:
            sink.start(about)
            ends.callback(end, sink)
        for text in notes:
            note(text)
        gc.collect()
        # the libraries' hundreds of thousands of objects stay; looking through them over and over costs a tenth
        gc.freeze()
        try:
            with stopping(note) as training.asked_to_stop:
                training.run()
            done = training.ends(training.step)
            status = "finished" if done else f"{STOPPED_BY_USER} {training.step}"
            if silent := idle.verdict():
                status += f", but {silent}"
        except KeyboardInterrupt:
            status = f"stopped at once in step {training.step + 1}"
            raise
        except Stopped as error:
            status = f"stopped: {error}"
        finally:
            gc.unfreeze()
    return status


def _evaluate(setup: Setup, folder: Path, when: str, shown_to: Any = None) -> Measured | None:
    """Measure, and write the statistics into eval.json under `when`. Raises Stopped where too many have no verdict."""
    if not setup.eval_tasks or not setup.recipe.eval.k:
        return None
    from rlvr.report.progress import counting

    with counting(f"evaluating {when} training", len(setup.eval_tasks), shown_to) as told:
        measured = setup.measure(told)
    results = measured.told()
    setup.evaluations |= {"k": setup.recipe.eval.k, "problems": len(setup.eval_tasks)}
    setup.evaluations[when] = {setup.eval_name: results}
    write_text(folder / "eval.json", json.dumps(setup.evaluations, indent=2))
    if when in ENDS:
        _write_answers(folder / f"eval-{when}.jsonl", measured)
    if fault := over_limit(results, setup.recipe.unknown_limit):
        raise Stopped(f"the evaluation {'at ' if when not in ENDS else ''}{when}{ENDING.get(when, '')}: {fault}")
    return measured


def _after_step(setup: Setup, folder: Path, step: int, metrics: dict[str, float]) -> None:
    """Evaluation on the way."""
    recipe = setup.recipe
    if recipe.eval.every and step % recipe.eval.every == 0:
        measured = _evaluate(setup, folder, f"step {step}")
        if measured is not None:
            _keep_best(setup, folder, f"step {step}", step)
            name = setup.eval_name
            metrics |= {f"eval/{name}/{key}": e.value for key, e in measured.summary.estimates.items()}


def _keep_best(setup: Setup, folder: Path, when: str, step: int) -> None:
    best.keep(folder, setup.evaluations, when, step, setup.loaded.model, setup.loaded.tokenizer)


def _write_solved(folder: Path) -> None:
    """One problem that failed before (under half of its samples right) and is solved now (half or more): the one that
    rose most."""
    before, after = ({row["task"]: row for row in read_lines(folder / f"eval-{when}.jsonl")[0]} for when in ENDS)
    pairs = [(before[task], row) for task, row in after.items() if task in before]
    pairs = [(b, a) for b, a in pairs if b["share_right"] < 0.5 <= a["share_right"]]
    if not pairs:
        return
    b, a = max(pairs, key=lambda pair: pair[1]["share_right"] - pair[0]["share_right"])
    shown = lambda row, label: {**row.get(label, row.get("right", {})), "share_right": row["share_right"]}  # noqa: E731
    told = {key: a[key] for key in ("task", "prompt", "answer")}
    told |= {"before": shown(b, "wrong"), "after": shown(a, "right")}
    write_text(folder / "solved.json", json.dumps(told, indent=2, ensure_ascii=False))


ENDING = {"before": " training", "after": " training"}
ENDS = tuple(ENDING)


def _write_answers(path: Path, measured: Measured) -> None:
    """One line a problem: share of right samples, and one right and one wrong answer where there is one."""
    lines = []
    for group in measured.groups:
        told: dict[str, Any] = {
            "task": group.task.id,
            "prompt": prompt_text(group.task.prompt),
            "answer": str(group.task.answer),
            "share_right": sum(v.label == "right" for v in group.verdicts.values()) / len(group.verdicts),
        }
        for row in group.rollouts:
            verdict = group.verdicts[row.episode]
            told.setdefault(verdict.label, {"text": row.text, "extracted": verdict.extracted, "reason": verdict.reason})
        lines.append(json.dumps(told, ensure_ascii=False))
    write_text(path, "\n".join(lines) + "\n")


# ---- without training ------------------------------------------------------------------------------------
def evaluate(recipe: Recipe, model: str | None = None) -> dict[str, Any]:
    """Statistics of a model (default: the recipe's) on the recipe's evaluation tasks; `fault` says why they are not to
    be believed, "" where they are."""
    plan = plan_of(recipe)
    asked = asked_by(recipe, plan)
    if not asked.evaluate:
        raise ValueError(asked.about or "there are no tasks to evaluate on; raise eval.problems, or give eval.tasks")
    check_verifiers(asked)
    # what is measured is a whole model: an adapter has become part of it
    setup = set_up(recipe.model_copy(update={"lora": None}), plan, model=model, asked=asked)
    if room := about_room((), setup.eval_tasks, setup.renderer, setup.lm.context):
        print(room, file=sys.stderr)
    from rlvr.report.progress import counting

    with counting("evaluating", len(setup.eval_tasks), sys.stderr) as told:
        measured = setup.measure(told)
    results = measured.told()
    return {
        "model": setup.loaded.name,
        "k": recipe.eval.k,
        "problems": len(setup.eval_tasks),
        "results": {setup.eval_name: results},
        "fault": over_limit(results, recipe.unknown_limit),
    }


def looked_over(recipe: Recipe) -> tuple[Plan, Asked | None]:
    """The plan of a recipe, and its tasks where they are not on the hub. Raises what `train` would raise before its
    first step: of the stack, the tasks, verifiers, judge, teacher and model. Loads and fetches no model."""
    plan, asked = plan_of(recipe), None
    if not any(_on_the_hub(source) for source in (recipe.tasks, recipe.eval.tasks or {})):
        asked = _checked(asked_by(recipe, plan))
    check_judge(recipe.judge, plan, None if asked is None else asked.train, recipe.model)
    check_here(recipe.model)
    check_models(recipe, plan)
    return plan, asked


def dry_run(recipe: Recipe) -> str:
    """What `train` would do: the plan's slot table, the sizes of a step and the memory it takes. Reads the tasks and
    looks whether verifier and model are there, as `train` does; loads and fetches no model."""
    plan, asked = looked_over(recipe)
    parted = "tasks of the hub are not fetched by a dry run"
    if asked is not None:
        parted = f"{len(asked.train)} training tasks; " + (asked.about or f"{len(asked.evaluate)} for evaluation")
    rows = recipe.prompts_per_step * recipe.group_size
    sizes = (
        f"a step: {recipe.prompts_per_step} prompts x {recipe.group_size} rollouts = {rows} rows, at most "
        f"{recipe.max_tokens} new "
        f"tokens each;\n{recipe.updates_per_batch} update(s) x {recipe.epochs} epoch(s) of whole groups, "
        f"micro-batches of "
        f"{recipe.token_budget} tokens\n{recipe.steps} steps = {recipe.steps * rows} rollouts of {recipe.model}"
    )
    parted = "\n".join([parted, *filter(None, _unread(recipe, plan))])
    return f"{plan}\n\n{sizes}\n{parted}\n\n{memory_table(recipe, plan.models_ahead(plan.start()))}"


def _unread(recipe: Recipe, plan: Plan) -> tuple[str, str]:
    """What is to be said about teacher and judge, "" where nothing is."""
    return unread_teacher(recipe, plan), about_judge(recipe.judge, plan)


def _on_the_hub(source: Mapping[str, Any]) -> bool:
    return source.get("name") == "hub" and not Path(str(source.get("path"))).expanduser().is_dir()


def read(folder: Path | str) -> Run:
    """A run from its folder."""
    path = Path(folder)
    summary = path / "summary.json"
    read_run(path)  # says what is wrong with a folder that holds no run
    return Run(path, json.loads(summary.read_text()) if summary.is_file() else {})

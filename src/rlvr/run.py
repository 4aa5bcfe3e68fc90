"""A run from start to end: from a recipe to a folder with a trained model, its numbers and its report."""

from __future__ import annotations

import copy
import gc
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rlvr.checkpoint import checkpoints, newest, policy_in, restore, save
from rlvr.collapse import Collapse
from rlvr.engine import lora
from rlvr.engine.critic import Critic
from rlvr.engine.load import Loaded, load_model, save_model
from rlvr.engine.memory import memory_table
from rlvr.engine.model import LanguageModel, recompute_layers
from rlvr.engine.protocol import Limits
from rlvr.engine.renderer import Renderer
from rlvr.engine.sampler import TorchSampler
from rlvr.engine.torch_engine import Optim, TorchEngine
from rlvr.evaluate.measure import Measured, measure
from rlvr.loop import Settings, Stopped, Training
from rlvr.method import Method
from rlvr.plan import Plan
from rlvr.recipe import Recipe
from rlvr.records import Rollout, Task, Verdict, mix
from rlvr.registry import get
from rlvr.report.html import write_report
from rlvr.report.sink import make_sinks
from rlvr.report.store import METRICS, RowRecord, RunInfo, read_lines, read_rows, read_run, rollout_files, write_text
from rlvr.reward.pays import Part, Pays
from rlvr.rows import prompt_text
from rlvr.stacking import build_method, parameters
from rlvr.stopping import stopping
from rlvr.verify.judge import judge
from rlvr.verify.own import Own
from rlvr.verify.spec import verifier_from

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
# Mean nats a token by which sampler and trainer may differ on equal weights. Ours: about a hundred times what each
# dtype shows in health.
GAP_LIMITS = {"float32": 1e-2, "float64": 1e-6, "bfloat16": 0.2, "float16": 0.05}


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


@dataclass
class Setup:
    """Everything that a run or an evaluation needs, built from a recipe."""

    recipe: Recipe
    loaded: Loaded
    lm: LanguageModel
    renderer: Renderer
    sampler: TorchSampler
    verifier: Any
    train_tasks: Sequence[Task]
    eval_tasks: Sequence[Task]
    limits: Limits
    evaluations: dict[str, Any] = field(default_factory=dict)

    def judge(self, items: Sequence[tuple[Rollout, Task]]) -> Sequence[Verdict]:
        return judge(self.verifier, items)

    def measure(self, told: Callable[[int], None] = lambda done: None) -> Measured:
        chosen = self.recipe.eval
        warm = self.limits.temperature if chosen.temperature is None else chosen.temperature
        return measure(
            self.sampler,
            self.renderer,
            self.judge,
            self.eval_tasks,
            chosen.k,
            replace(self.limits, temperature=warm, want=frozenset()),
            self.loaded.stop_ids,
            self.recipe.seed,
            told=told,
        )


# ---- building --------------------------------------------------------------------------------------------
def plan_of(recipe: Recipe, method: Method | None = None, verifier: Any = None) -> Plan:
    """The plan that a recipe asks for. `method` and `verifier` stand in for the recipe's."""
    stack = method if method is not None else build_method(recipe.method, recipe.papers)
    pays = recipe.pays
    parts = tuple(Part(name, weight) for name, weight in sorted(recipe.parts.items()))
    checked = verifier if verifier is not None else recipe.verifier
    return stack.plan(
        recipe.max_tokens,
        verify=Own() if checked is None else verifier_from(checked),
        reward=(Pays(pays.right, pays.wrong, pays.truncated), *parts),
    )


def tasks_of(recipe: Recipe) -> tuple[Sequence[Task], Sequence[Task]]:
    """Training and evaluation tasks. A source with the arguments `n` and `split` makes both; from any other a share is
    held out."""
    source = dict(recipe.tasks)
    name = source.pop("name")
    make = get("tasks", name)
    n = recipe.eval.problems
    if recipe.eval.tasks is not None:
        other = dict(recipe.eval.tasks)
        evaluated = get("tasks", other.pop("name"))(**other)
        return make(**source), evaluated[:n]
    if {"n", "split"} <= {p.name for p in parameters("tasks", name) or ()}:
        return make(**source), make(**{**source, "n": n, "split": "eval"})
    every = make(**source)
    order = sorted(
        every, key=lambda t: mix(0, "holdout", t.id)
    )  # does not depend on the seed: seeds share the held-out tasks
    held = min(n, round(len(every) * recipe.eval.holdout))
    return order[held:], order[:held]


def templated(tasks: Sequence[Task], template: str | None) -> Sequence[Task]:
    """Text prompts put into the recipe's template."""
    if template is None:
        return tasks
    put = lambda t: replace(t, prompt=template.replace("{prompt}", t.prompt)) if isinstance(t.prompt, str) else t  # noqa: E731
    return [put(t) for t in tasks]


@dataclass(frozen=True)
class Asked:
    """A recipe's tasks, and the verifier that judges them. Prompts are as the source has them."""

    verifier: Any
    train: Sequence[Task]
    evaluate: Sequence[Task]


def asked_by(recipe: Recipe, plan: Plan, tasks: Sequence[Task] | None = None) -> Asked:
    """Tasks (or those of `tasks`, which stand in for the recipe's) and the plan's verifier. Loads no model. Raises
    ValueError where a task has no verifier."""
    if tasks is None:
        train, evaluated = tasks_of(recipe)
    else:
        held = min(recipe.eval.problems, round(len(tasks) * recipe.eval.holdout))
        train, evaluated = list(tasks)[held:], list(tasks)[:held]
    verifier = plan.at(plan.start()).stack.one("verify")
    if verifier != Own():  # it was named on purpose, so it judges every task
        train, evaluated = ([replace(t, verifier=None) for t in some] for some in (train, evaluated))
    elif (lacking := next((t.id for t in (*train, *evaluated) if t.verifier is None), None)) is not None:
        raise ValueError(
            f'task {lacking} names no verifier and the recipe sets none; add e.g. verifier = "numeric" to the recipe'
        )
    return Asked(verifier, train, evaluated)


def set_up(
    recipe: Recipe,
    plan: Plan,
    tasks: Sequence[Task] | None = None,
    model: Any = None,
    want: frozenset[str] = frozenset(),
    asked: Asked | None = None,
    adapter: Path | None = None,
) -> Setup:
    """Load the model and make tasks, renderer and sampler; the verifier is the plan's. `tasks`, `model` and `asked`
    stand in for the recipe's; `adapter` is a saved one to start from."""
    if recipe.threads:
        torch.set_num_threads(recipe.threads)
    asked = asked or asked_by(recipe, plan, tasks)
    loaded = _adapted(recipe, _load(recipe, model or recipe.model), adapter)
    if recipe.gradient_checkpointing:
        recompute_layers(loaded.model)
    lm = LanguageModel(loaded.model)
    renderer = Renderer(loaded.tokenizer, loaded.stop_ids, recipe.chat, recipe.system, recipe.as_chat)
    return Setup(
        recipe,
        loaded,
        lm,
        renderer,
        TorchSampler(lm, recipe.slots),
        asked.verifier,
        templated(asked.train, recipe.prompt),
        templated(asked.evaluate, recipe.prompt),
        Limits(recipe.max_tokens, recipe.temperature, recipe.top_p, recipe.top_k, want),
    )


def _load(recipe: Recipe, model: Any) -> Loaded:
    return model if isinstance(model, Loaded) else load_model(model, recipe.dtype, recipe.device)


def _adapted(recipe: Recipe, loaded: Loaded, adapter: Path | None) -> Loaded:
    """The model as the recipe trains it: as it is, or with an adapter in it."""
    chosen = recipe.lora
    if chosen is None:
        lora.refuse_adapted(loaded.model)
        return loaded
    seed = mix(recipe.seed, "lora")
    model = lora.add(loaded.model, chosen.rank, chosen.alpha, chosen.targets, seed, base=loaded.name)
    if adapter is not None:
        lora.load_adapter(model, adapter)
    return replace(loaded, model=model)


# ---- training ------------------------------------------------------------------------------------------------
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

    resume: go on in `out` from its newest checkpoint, to the same weights as if it had never stopped.
    The first Ctrl-C (or SIGTERM) ends the run after the present step and saves it, the second ends it at once. The
    recipe's limits end it too. Raises what a piece of the user's raises.
    """
    folder = out or Path("runs") / f"{title}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    checkpoint = newest(folder) if resume else None
    shown = make_sinks(recipe.sinks if sinks is None else sinks, every=recipe.examples_every)
    plan = plan_of(recipe, method, verifier)
    asked = asked_by(recipe, plan, tasks)
    learned = policy_in(checkpoint, recipe.lora is not None) if checkpoint else None
    began, adapter = (model, learned) if recipe.lora else (learned or model, None)
    setup = set_up(recipe, plan, model=began, want=frozenset({"entropy"}), asked=asked, adapter=adapter)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "recipe.toml", recipe.to_toml())
    training = training_of(setup, plan, folder, (model or recipe.model) if checkpoint else None)
    notes = _doctor(recipe, plan, asked, setup) if recipe.doctor and not checkpoint else []
    if checkpoint:
        setup.evaluations = restore(training, checkpoint)["evaluations"]
    else:
        _evaluate(setup, folder, "before", shown_to=sys.stderr)
    training.after_step = lambda step, metrics: _after_step(setup, folder, step, metrics)
    training.watch = _watch(recipe, folder, training.step)
    training.saved = lambda step: _checkpoint(setup, training, step)
    training.sinks = shown
    names = recipe.method if method is None else "+".join(p for p in method.papers if p != "recipe")
    started = time.time()
    name = recipe.model if model is None else str(getattr(model, "name", model))
    about = RunInfo(folder, title, name, names, recipe.steps, str(plan), recipe.seed, started)
    status = _run(training, about, notes)
    if status == STOPPED_BY_USER:
        status = f"{status} {training.step}; go on with: rlvr train --resume {folder}"
        if training.step not in checkpoints(folder):
            _save(setup, training)
    saved = save_model(setup.loaded.model, setup.loaded.tokenizer, folder / "model")
    if recipe.lora:
        lora.save_adapter(setup.loaded.model, folder / "adapter")
    if training.step == recipe.steps:
        _evaluate(setup, folder, "after", shown_to=sys.stderr)
        _write_solved(folder)
    summary = {
        "folder": str(folder),
        "status": status,
        "steps": training.step,
        "seconds": time.time() - started,
        "model": str(saved),
        "eval": setup.evaluations,
        "report": str(write_report(folder)),
    }
    write_text(folder / "summary.json", json.dumps(summary, indent=2))
    return Run(folder, summary)


STOPPED_BY_USER = "stopped by you after step"


def _watch(recipe: Recipe, folder: Path, step: int) -> Callable[[int, Mapping[str, float | None]], None]:
    """The recipe's [stop], which has seen the steps that a resumed run has behind it."""
    told = {"reward/mean": (recipe.stop.reward_below, "reward_below")}
    told |= {"policy/entropy": (recipe.stop.entropy_below, "entropy_below")}
    floors = {name: (floor, f"stop.{key}") for name, (floor, key) in told.items() if floor is not None}
    watch = Collapse(floors, recipe.stop.patience)
    for line in read_lines(folder / METRICS)[0] if step else ():
        if line["step"] <= step:
            watch(line["step"], line)
    return watch


def _doctor(recipe: Recipe, plan: Plan, asked: Asked, setup: Setup) -> list[str]:
    """What is wrong at the start, in a sentence or two; told at once, for the first evaluation may take long."""
    from rlvr.doctor.examine import at_start

    found = sorted(at_start(recipe, plan, asked, setup), key=lambda f: f.severity != "wrong")
    told = [str(finding) for finding in found[:2]]
    if len(found) > len(told):
        told.append(f"There are {len(found) - len(told)} more findings: rlvr doctor tells all.")
    for sentence in told:
        print(f"doctor: {sentence}", file=sys.stderr)
    return told


def _run(training: Training, about: RunInfo, notes: Sequence[str] = ()) -> str:
    """Run the loop with everybody told; returns how it ended."""

    def note(text: str) -> None:
        for sink in training.sinks:
            sink.note(text)

    def end(sink: Any) -> None:
        sink.end(status)

    status = "failed"
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
            status = "finished" if training.step == training.settings.steps else STOPPED_BY_USER
        except KeyboardInterrupt:
            status = "stopped at once"
            raise
        except Stopped as error:
            status = f"stopped: {error}"
        finally:
            gc.unfreeze()
    return status


def _checkpoint(setup: Setup, training: Training, step: int) -> None:
    every = setup.recipe.checkpoint_every
    if every and step % every == 0 and step < setup.recipe.steps:
        _save(setup, training)


def _save(setup: Setup, training: Training) -> None:
    extra = {"evaluations": setup.evaluations}
    save(training, setup.loaded.model, setup.loaded.tokenizer, extra, setup.recipe.keep_checkpoints)


def training_of(setup: Setup, plan: Plan, folder: Path, origin: Any = None) -> Training:
    """The loop's parts. `origin`: the model that the run began with, where the policy has moved on since (a resumed
    run's reference is that one); None: the policy as it is."""
    recipe = setup.recipe
    optim = Optim(
        recipe.lr,
        (recipe.betas[0], recipe.betas[1]),
        recipe.weight_decay,
        recipe.warmup_steps,
        recipe.schedule,
        recipe.steps * recipe.updates_per_batch * recipe.epochs,
        max_grad_norm=recipe.max_grad_norm,
    )
    models: dict[str, LanguageModel | Critic] = {"policy": setup.lm}
    optims = {"policy": optim}
    if "reference" in plan.models and recipe.lora:
        models["reference"] = setup.lm.inside(partial(lora.off, setup.lm.model))
    elif "reference" in plan.models:
        began = setup.loaded if origin is None else _load(recipe, origin)
        models["reference"] = LanguageModel(copy.deepcopy(began.model).requires_grad_(False))
    if "critic" in plan.models:
        models["critic"] = Critic(setup.lm)
        optims["critic"] = replace(optim, lr=recipe.lr if recipe.critic_lr is None else recipe.critic_lr)
    engine = TorchEngine(models, optims, setup.sampler, recipe.token_budget, recipe.temperature)
    for running in plan.phases.values():
        engine.require(running)
    first = plan.at(plan.start()).stack
    by_id = {t.id: t for t in setup.train_tasks}
    if len(by_id) < len(setup.train_tasks):
        raise ValueError("two tasks have the same id; ids tell tasks apart, so each needs its own")
    return Training(
        plan,
        engine,
        setup.renderer,
        by_id,
        first.one("select").start([t.public() for t in setup.train_tasks], recipe.seed),
        setup.judge,
        setup.limits,
        setup.loaded.stop_ids,
        Settings(
            recipe.steps,
            recipe.prompts_per_step,
            recipe.group_size,
            recipe.updates_per_batch,
            recipe.epochs,
            recipe.max_refills,
            recipe.unknown_limit,
            GAP_LIMITS[recipe.dtype] if recipe.gap_limit is None else recipe.gap_limit,
            recipe.rollouts_every,
            recipe.seed,
        ),
        folder,
        dtype=torch.float64 if recipe.dtype == "float64" else torch.float32,
    )


def _evaluate(setup: Setup, folder: Path, when: str, shown_to: Any = None) -> Measured | None:
    """Measure, and write the statistics into eval.json under `when`."""
    if not setup.eval_tasks or not setup.recipe.eval.k:
        return None
    from rlvr.report.progress import counting

    with counting(f"evaluating {when} training", len(setup.eval_tasks), shown_to) as told:
        measured = setup.measure(told)
    name = setup.eval_tasks[0].made_by or setup.recipe.tasks["name"]
    setup.evaluations |= {"k": setup.recipe.eval.k, "problems": len(setup.eval_tasks)}
    setup.evaluations[when] = {name: measured.told()}
    write_text(folder / "eval.json", json.dumps(setup.evaluations, indent=2))
    if when in ENDS:
        _write_answers(folder / f"eval-{when}.jsonl", measured)
    return measured


def _after_step(setup: Setup, folder: Path, step: int, metrics: dict[str, float]) -> None:
    """Evaluation on the way; the last step has its own."""
    recipe = setup.recipe
    if recipe.eval.every and step % recipe.eval.every == 0 and step < recipe.steps:
        measured = _evaluate(setup, folder, f"step {step}")
        if measured is not None:
            name = recipe.tasks["name"]
            metrics |= {f"eval/{name}/{key}": e.value for key, e in measured.summary.estimates.items()}


def _write_solved(folder: Path) -> None:
    """One problem that failed before and is solved now: the one whose share of right samples rose most."""
    before, after = ({row["task"]: row for row in read_lines(folder / f"eval-{when}.jsonl")[0]} for when in ENDS)
    pairs = [(before[task], row) for task, row in after.items() if task in before]
    b, a = max(pairs, key=lambda p: p[1]["share_right"] - p[0]["share_right"], default=({}, {}))
    if not pairs or a["share_right"] <= b["share_right"] or "right" not in a:
        return
    shown = lambda row, label: {**row.get(label, row.get("right", {})), "share_right": row["share_right"]}  # noqa: E731
    told = {key: a[key] for key in ("task", "prompt", "answer")}
    told |= {"before": shown(b, "wrong"), "after": shown(a, "right")}
    write_text(folder / "solved.json", json.dumps(told, indent=2, ensure_ascii=False))


ENDS = ("before", "after")


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
    """Statistics of a model (default: the recipe's) on the recipe's evaluation tasks."""
    # what is measured is a whole model: an adapter has become part of it
    setup = set_up(recipe.model_copy(update={"lora": None}), plan_of(recipe), model=model)
    if not setup.eval_tasks:
        raise ValueError("there are no tasks to evaluate on; raise eval.problems or eval.holdout, or give eval.tasks")
    from rlvr.report.progress import counting

    with counting("evaluating", len(setup.eval_tasks), sys.stderr) as told:
        measured = setup.measure(told)
    name = setup.eval_tasks[0].made_by or recipe.tasks["name"]
    return {
        "model": setup.loaded.name,
        "k": recipe.eval.k,
        "problems": len(setup.eval_tasks),
        "results": {name: measured.told()},
    }


def dry_run(recipe: Recipe) -> str:
    """What `train` would do: the plan's slot table, the sizes of a step and the memory it takes; nothing loaded."""
    plan = plan_of(recipe)
    rows = recipe.prompts_per_step * recipe.group_size
    sizes = (
        f"a step: {recipe.prompts_per_step} prompts x {recipe.group_size} rollouts = {rows} rows, at most "
        f"{recipe.max_tokens} new "
        f"tokens each;\n{recipe.updates_per_batch} update(s) x {recipe.epochs} epoch(s) of whole groups, "
        f"micro-batches of "
        f"{recipe.token_budget} tokens\n{recipe.steps} steps = {recipe.steps * rows} rollouts of {recipe.model}"
    )
    return f"{plan}\n\n{sizes}\n\n{memory_table(recipe, plan.models)}"


def read(folder: Path | str) -> Run:
    """A run from its folder."""
    path = Path(folder)
    summary = path / "summary.json"
    read_run(path)  # says what is wrong with a folder that holds no run
    return Run(path, json.loads(summary.read_text()) if summary.is_file() else {})

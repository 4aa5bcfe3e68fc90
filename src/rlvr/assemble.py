"""From a recipe to the parts of a run: plan, tasks, model, sampler, verifier, and the loop that holds them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rlvr.engine import lora
from rlvr.engine.adapter_files import load_adapter
from rlvr.engine.critic import Critic
from rlvr.engine.load import Loaded, check_here, load_model
from rlvr.engine.model import LanguageModel, recompute_layers
from rlvr.engine.protocol import Limits, Unsupported
from rlvr.engine.renderer import Renderer
from rlvr.engine.sampler import TorchSampler
from rlvr.engine.teacher import ServedTeacher, foreign_ends, refuse_other_tokenizer, served
from rlvr.engine.torch_engine import Optim, TorchEngine
from rlvr.evaluate.measure import Measured, measure
from rlvr.evaluate.parts import refuse_by
from rlvr.holdout import about_holdout, about_leaks, held_out
from rlvr.judges.choose import bench_of
from rlvr.loop import Settings, Training
from rlvr.method import Method
from rlvr.plan import Plan
from rlvr.recipe import Recipe
from rlvr.records import Rollout, Task, Verdict, mix
from rlvr.registry import UnknownName
from rlvr.reward.pays import Part, Pays
from rlvr.server import unset_key
from rlvr.stacking import build_method, parameters
from rlvr.tasks.given import from_source
from rlvr.verify.judge import judge, named
from rlvr.verify.own import Own
from rlvr.verify.spec import verifier_from
from rlvr.verify.verifier import VerifierBroken, make_ready
from rlvr.views import views_of

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
# Mean nats a token by which sampler and trainer may differ on equal weights. Ours: about a hundred times what each
# dtype shows in health.
GAP_LIMITS = {"float32": 1e-2, "float64": 1e-6, "bfloat16": 0.2, "float16": 0.05}

THREADS = torch.get_num_threads()  # torch's own choice
# Our choice: parameters below which a run computes on one thread unless told otherwise. Kernels this short gain little
# from a second thread, and wait for it at every step where the cores have other work: seen, 60 times slower.
ONE_THREAD = 5_000_000


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
    eval_name: str
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
            by=chosen.by,
        )


def plan_of(recipe: Recipe, method: Method | None = None, verifier: Any = None) -> Plan:
    """The plan that a recipe asks for. `method` and `verifier` stand in for the recipe's."""
    stack = method if method is not None else build_method(recipe.method, recipe.papers)
    pays = recipe.pays
    parts = tuple(Part(name, weight) for name, weight in sorted(recipe.parts.items()))
    checked = verifier if verifier is not None else recipe.verifier
    return stack.plan(
        recipe.max_tokens,
        recipe.steps,
        recipe.group_size,
        recipe.eval.every if recipe.eval.problems else 0,
        verify=Own() if checked is None else verifier_from(checked),
        reward=(Pays(pays.right, pays.wrong, pays.truncated), *parts),
    )


def tasks_of(recipe: Recipe, given: Sequence[Task] | None = None) -> tuple[Sequence[Task], Sequence[Task], str]:
    """Training and evaluation tasks, and a sentence about how they were parted, "" where there is nothing to say.

    A source with the arguments `n` and `split` makes both; of any other, and of tasks that are `given` in the place of
    the recipe's, a share is held out.
    """
    source = dict(recipe.tasks)
    name = source.pop("name")
    n = recipe.eval.problems
    train: Sequence[Task]
    evaluated: Sequence[Task]
    if recipe.eval.tasks is not None:
        other = dict(recipe.eval.tasks)
        evaluated = from_source(other.pop("name"), other)[:n]
        train = from_source(name, source) if given is None else given
        return train, evaluated, about_leaks(train, evaluated)
    if given is None and {"n", "split"} <= {p.name for p in parameters("tasks", name) or ()}:
        return from_source(name, source), from_source(name, {**source, "n": n, "split": "eval"}) if n else (), ""
    every = from_source(name, source) if given is None else given
    train, evaluated = held_out(every, recipe.eval.holdout, n)
    return train, evaluated, about_holdout(train, evaluated, recipe.eval.holdout) if n and every else ""


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
    eval_name: str = ""  # what the evaluation tasks are called
    about: str = ""  # how training and evaluation were parted


def asked_by(recipe: Recipe, plan: Plan, tasks: Sequence[Task] | None = None) -> Asked:
    """Tasks (or those of `tasks`, which stand in for the recipe's) and the plan's verifier. Loads no model. Raises
    ValueError where a task has no verifier, eval.by parts none, or a piece cannot work on these tasks."""
    train, evaluated, about = tasks_of(recipe, tasks)
    refuse_by(evaluated, recipe.eval.by)
    source = recipe.eval.tasks or recipe.tasks
    name = "your tasks" if tasks is not None and recipe.eval.tasks is None else str(source["name"])
    name = (evaluated[0].made_by if evaluated else "") or name
    verifier = plan.at(plan.start()).stack.one("verify")
    if verifier != Own():  # it was named on purpose, so it judges every task
        train, evaluated = ([replace(t, verifier=None) for t in some] for some in (train, evaluated))
    elif (lacking := next((t.id for t in (*train, *evaluated) if t.verifier is None), None)) is not None:
        raise ValueError(
            f'task {lacking} names no verifier and the recipe sets none; add e.g. verifier = "numeric" to the recipe'
        )
    for placed in {p: None for running in plan.phases.values() for p in running.stack}:
        if train and (lacks := getattr(placed.piece, "lacks", None)) is not None and (why := lacks(train)):
            raise Unsupported(f"{placed.paper} cannot work on these tasks: {why}")
    return Asked(verifier, train, evaluated, name, about)


def check_verifiers(asked: Asked) -> None:
    """Raises VerifierBroken or ValueError where a verifier cannot be made, or its function not be loaded; asks none."""
    make_ready(asked.verifier)
    of: dict[str, str] = {}  # a verifier that tasks name -> the first of them
    for task in (*asked.train, *asked.evaluate):
        if isinstance(task.verifier, str):
            of.setdefault(task.verifier, task.id)
    for name, id in of.items():
        try:
            make_ready(named(name))
        except (UnknownName, ValueError, VerifierBroken) as error:
            raise ValueError(f"task {id} names a verifier that cannot be made: {error}") from None


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
    asked = asked or asked_by(recipe, plan, tasks)
    loaded = _adapted(recipe, _load(recipe, model or recipe.model), adapter)
    torch.set_num_threads(recipe.threads or (1 if loaded.model.num_parameters() < ONE_THREAD else THREADS))
    if recipe.gradient_checkpointing:
        recompute_layers(loaded.model)
    lm = LanguageModel(loaded.model)
    renderer = Renderer(loaded.tokenizer, loaded.stop_ids, recipe.chat, recipe.system, recipe.as_chat, lm.context)
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
        asked.eval_name,
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
        load_adapter(model, adapter)
    return replace(loaded, model=model)


def check_models(recipe: Recipe, plan: Plan, phase: Mapping[str, Any] | None = None) -> None:
    """Raises Unsupported where the plan wants a teacher, from the state `phase` on, and the recipe names none or one
    whose key is not set; ModelError where it cannot be a whole model. Loads nothing."""
    living = [p for running in plan.ahead(plan.start() if phase is None else phase) for p in running.stack]
    askers = {p.paper for p in living if any("teacher" in view.models for view in views_of(p.piece))}
    if not askers:
        return
    if recipe.teacher is None:
        who = " and ".join(sorted(askers))
        raise Unsupported(
            f"{who} {'wants' if len(askers) == 1 else 'want'} a teacher, and the recipe names none; add e.g. "
            'teacher = "micro": a bundled or added model, a folder or a hub id with the policy\'s tokenizer '
            "(rlvr explain recipe has [teacher])"
        )
    if recipe.teacher.url is None:
        check_here(recipe.teacher.model)
    elif lacking := unset_key("teacher", recipe.teacher.key):
        raise Unsupported(lacking)


def unread_teacher(recipe: Recipe, plan: Plan) -> str:
    """A sentence where the recipe names a teacher that nothing reads, "" where it does not."""
    if recipe.teacher is None or "teacher" in plan.models_ahead(plan.start()):
        return ""
    return f"Nothing in this stack reads a teacher: {recipe.teacher.model} is not loaded."


def _teacher(setup: Setup) -> tuple[Loaded | ServedTeacher, frozenset[int]]:
    """The recipe's teacher, and ends of answers on which it has no say. Raises ModelError, and TeacherBroken where a
    server cannot serve."""
    chosen, policy = setup.recipe.teacher, setup.loaded
    assert chosen is not None
    if chosen.url is not None:
        teacher = served(chosen, setup.recipe.unknown_limit)
        teacher.check(policy.tokenizer)
        return teacher, foreign_ends(policy.stop_ids, None, chosen.mask_end)
    loaded = load_model(chosen.model, chosen.dtype or setup.recipe.dtype, setup.recipe.device)
    refuse_other_tokenizer(policy, loaded)
    loaded.model.requires_grad_(False)
    return loaded, foreign_ends(policy.stop_ids, loaded.stop_ids, chosen.mask_end)


def training_of(
    setup: Setup, plan: Plan, folder: Path, origin: Any = None, phase: Mapping[str, Any] | None = None
) -> Training:
    """The loop's parts. `origin`: the model that the run began with, where the policy has moved on since (a resumed
    run's reference is that one); None: the policy as it is. `phase`: the state of the plan's phases that a resumed run
    goes on in; models that no phase reads from there on are not loaded."""
    recipe = setup.recipe
    check_models(recipe, plan, phase)
    state = plan.start() if phase is None else phase
    needed = plan.models_ahead(state)
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
    if "reference" in needed and recipe.lora:
        models["reference"] = setup.lm.inside(partial(lora.off, setup.lm.model))
    elif "reference" in needed:
        began = setup.loaded if origin is None else _load(recipe, origin)
        models["reference"] = LanguageModel(copy.deepcopy(began.model).requires_grad_(False))
    if "critic" in needed:
        models["critic"] = Critic(setup.lm)
        optims["critic"] = replace(optim, lr=recipe.lr if recipe.critic_lr is None else recipe.critic_lr)
    remote: dict[str, ServedTeacher] = {}
    mute: dict[str, frozenset[int]] = {}
    if "teacher" in needed:
        teacher, mute["teacher"] = _teacher(setup)
        if isinstance(teacher, ServedTeacher):
            remote["teacher"] = teacher
        else:
            models["teacher"] = LanguageModel(teacher.model)
    engine = TorchEngine(
        models, optims, setup.sampler, recipe.token_budget, recipe.temperature, served=remote, mute=mute
    )
    for running in plan.ahead(state):
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
            recipe.sampled_tokens,
            recipe.sampler_seed,
        ),
        folder,
        dtype=torch.float64 if recipe.dtype == "float64" else torch.float32,
        bench=bench_of(recipe.judge, plan, setup.train_tasks, setup.sampler, setup.renderer, setup.loaded.stop_ids),
    )

"""Every key of a recipe, and what keys cannot say one by one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from rlvr import registry, toml
from rlvr.server import ADDRESS
from rlvr.stacking import Problem, StackError, argument_problems, parameters, read_stack

CONFIG = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True)


DEVICE = re.compile(r"cpu|cuda(:\d+)?|mps")
FILES = ("jsonl", "parquet")  # endings of task files, which are the names of their sources too


def source_of(value: Any) -> Any:
    """A name for short: "countdown" is {name = "countdown"}, "my.jsonl" is {name = "jsonl", path = "my.jsonl"}."""
    if not isinstance(value, str):
        return value
    ending = value.rpartition(".")[2]
    return {"name": ending, "path": value} if ending != value and ending in FILES else {"name": value}


def model_of(value: Any) -> Any:
    """A model's name for short: "micro" is {model = "micro"}."""
    return {"model": value} if isinstance(value, str) else value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Source = Annotated[dict[str, Any], BeforeValidator(source_of)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Size = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Paid = Annotated[float, Field(ge=-1e6, le=1e6)]  # ours: rewards are squared in float32, and a million is odd already
Beta = Annotated[float, Field(ge=0, lt=1)]


class Pays(BaseModel):
    """What an answer earns. A score between 0 and 1 pays in proportion; an unknown verdict pays nothing."""

    model_config = CONFIG

    right: Paid = 1.0
    """reward of a right answer"""
    wrong: Paid = 0.0
    """reward of a wrong answer"""
    truncated: Paid | None = None
    """reward of a wrong answer that a length limit cut; unset: as wrong"""


class Eval(BaseModel):
    """How the model is measured before, after and during training."""

    model_config = CONFIG

    problems: Count = 200
    """problems asked; 0: no evaluation"""
    k: Positive = 8
    """answers sampled to each problem"""
    every: Count = 0
    """steps between evaluations, whose best model is kept in best/; 0: only before and after training"""
    temperature: Size | None = None
    """sampling temperature, 0 is greedy; unset: as in training"""
    tasks: Source | None = None
    """where problems come from; unset: the training source's split = "eval" where it has one, else a held-out share"""
    holdout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """share of the tasks that is held out where the source has no eval split"""
    by: str | None = None
    """key of the evaluation tasks' `meta`, e.g. "level", by whose values results are told apart as well"""


class Lora(BaseModel):
    """A small adapter learns, the model's own weights stay. Wants about ten times the lr of full fine-tuning."""

    model_config = CONFIG

    rank: Positive = 16
    """columns of the adapter's matrices. A table [lora] trains an adapter instead of all weights"""
    alpha: Annotated[float, Field(gt=0)] = 32.0
    """the adapter counts alpha / rank times"""
    targets: Annotated[list[str], BeforeValidator(_listed), Field(min_length=1)] = ["all-linear"]
    """layers that get one, by the last part of their name, e.g. ["q_proj", "v_proj"]; "all-linear": all but the head"""


class Teacher(BaseModel):
    """A frozen model that scores the policy's answers, for methods that want one. Its tokenizer is the policy's."""

    model_config = CONFIG

    model: Annotated[str, Field(min_length=1)]
    """a bundled or added model, a folder or a hub id; teacher = "micro" is short for it. With url: its name there"""
    url: str | None = None
    """address of a server that scores instead, as in "http://localhost:8000/v1": OpenAI's completions with echo"""
    dtype: Literal["float32", "bfloat16", "float64"] | None = None
    """numbers that it computes in; unset: as the policy"""
    mask_end: bool | None = None
    """whether it has no say on the token that ends an answer; unset: where that token is no end to it"""
    key: str = "OPENAI_API_KEY"
    """environment variable that holds the server's key; a server of your own needs none"""
    seconds: Annotated[float, Field(gt=0)] = 60.0
    """time that the server has for one request of a row"""
    retries: Count = 3
    """further requests for a row after a failure that may pass"""
    parallel: Positive = 8
    """rows that the server is asked at the same time"""


class Judge(BaseModel):
    """Who is asked about the policy's answers, for methods that want a judge."""

    model_config = CONFIG

    model: Annotated[str, Field(min_length=1)]
    """"oracle": a program that knows the built-in tasks; "policy": the model itself; with url: a model's name there"""
    url: str | None = None
    """address of a server that judges, as in "http://localhost:8000/v1": OpenAI's chat completions"""
    key: str = "OPENAI_API_KEY"
    """environment variable that holds the server's key; a server of your own needs none"""
    seconds: Annotated[float, Field(gt=0)] = 60.0
    """time that the server has for one request of a question"""
    retries: Count = 3
    """further requests for a question after a failure that may pass"""
    parallel: Positive = 8
    """questions that the server is asked at the same time"""
    max_tokens: Positive = 2048
    """tokens of one reply at most"""
    temperature: Size = 0.0
    """sampling temperature of the judge; at 0 it says the same each time, so that more votes add nothing"""
    cache: str | None = None
    """folder that keeps a server's replies by content, so that nothing is paid for twice; unset: none"""
    noise: Share = 0.0
    """chance with which an answer is replaced by any that could be given: a control"""
    failed_limit: Share = 0.5
    """the run stops above this share of questions without an answer, over ten steps"""


class Stop(BaseModel):
    """When a run has collapsed and ends itself."""

    model_config = CONFIG

    reward_below: float | None = None
    """mean reward below which a step is a bad one; unset: never"""
    entropy_below: Size | None = None
    """entropy, nats a token, below which a step is a bad one; unset: never"""
    patience: Positive = 10
    """bad steps on end that end the run"""


class Recipe(BaseModel):
    """Everything that a run needs to know, in the order of the file that `to_toml` writes."""

    model_config = CONFIG

    model: str = "nano"
    """a bundled or added model, a folder, or a hub id such as Qwen/Qwen3-0.6B"""
    method: str = "grpo"
    """papers to stack, in any order, e.g. "rloo,gspo(clip_high=5e-4)"; grpo is implied"""
    verifier: str | None = None
    """how answers are checked, e.g. "hash_marker(marker='#')" or "path.py:f"; unset: as each task says"""
    prompt: str | None = None
    """template around a text prompt: {prompt} stands for it, all other braces for themselves"""
    system: str | None = None
    """system message of every chat prompt that has none of its own"""
    as_chat: bool | None = None
    """whether a text prompt becomes a chat message; unset: where the model has a chat template"""

    steps: Positive = 60
    """training steps: each samples a batch, then updates on it"""
    sampled_tokens: Positive | None = None
    """the run ends after the step in which it has sampled this many tokens in all; unset: after `steps`"""
    prompts_per_step: Positive = 32
    """tasks asked in a step"""
    group_size: Positive = 16
    """rollouts of each task"""
    updates_per_batch: Positive = 1
    """optimiser steps that a batch is cut into, whole groups each"""
    epochs: Positive = 1
    """passes over a batch"""
    token_budget: Positive = 16384
    """tokens in one micro-batch: decides memory, never the result"""
    slots: Positive = 256
    """answers sampled at the same time: decides memory and speed, never the result"""
    max_tokens: Positive = 64
    """new tokens of one answer at most"""
    temperature: Size = 1.0
    """sampling temperature"""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """sample only from the likeliest tokens that together have this probability"""
    top_k: Count = 0
    """sample only from this many likeliest tokens; 0: from all"""

    lr: Size = 1e-6
    """learning rate of AdamW"""
    critic_lr: Size | None = None
    """learning rate of a critic, where a method trains one; unset: lr"""
    betas: Annotated[list[Beta], Field(min_length=2, max_length=2)] = [0.9, 0.95]
    """how slowly AdamW forgets gradients and their squares"""
    weight_decay: Size = 0.0
    """AdamW's weight decay"""
    warmup_steps: Count = 0
    """optimiser steps over which the learning rate rises"""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """course of the learning rate after the warm-up"""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """a longer gradient is scaled down to this length"""

    gradient_checkpointing: bool = False
    """layers are computed again in the backward pass: far less memory, a third more work, the same result"""
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    """numbers that the model computes in"""
    device: str | None = None
    """"cpu", "cuda", "cuda:1"; unset: the GPU where there is one"""
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """processor threads of torch; unset: its own choice, and one for models below five million parameters"""
    seed: Count = 0
    """where all random numbers come from"""
    sampler_seed: Count | None = None
    """another seed for the noise that training answers are sampled with, for that alone; unset: seed"""
    max_refills: Count = 3
    """rounds of new tasks in a step for groups that the method drops, as dapo does"""
    unknown_limit: Share = 0.05
    """the run stops above this share of unknown verdicts"""
    gap_limit: Annotated[float, Field(gt=0)] | None = None
    """the run stops above this gap between sampler and trainer, mean nats a token; unset: by dtype"""
    rollouts_every: Count = 5
    """steps between written rollouts; the first and the last are always written"""
    checkpoint_every: Count = 50
    """steps between checkpoints; 0: none on the way"""
    keep_checkpoints: Positive = 2
    """checkpoints that are kept, the newest"""
    examples_every: Count = 10
    """steps between printed example answers; 0: none"""
    sinks: list[str] = ["jsonl", "parquet", "terminal"]
    """where numbers and answers go: the run's folder (jsonl, parquet), terminal, tensorboard, wandb, trackio"""
    doctor: bool = True
    """whether the start of a run is looked over for faults, as "rlvr doctor" does at length"""

    tasks: Source
    """where tasks come from: a name, a .jsonl or .parquet file, or a table with `name` and the source's arguments"""
    papers: dict[str, dict[str, Any]] = {}
    """settings of papers by name: [papers.dapo] clip_high = 0.3"""
    pays: Pays = Pays()
    """what right, wrong and truncated answers earn"""
    parts: dict[str, float] = {}
    """weights of named parts of a verdict, added to the reward"""
    chat: dict[str, Any] = {}
    """arguments of the chat template, e.g. enable_thinking = false"""
    eval: Eval = Eval()
    """how the model is measured"""
    stop: Stop = Stop()
    """when a run has collapsed and ends itself"""
    lora: Lora | None = None
    """train an adapter instead of all weights"""
    teacher: Annotated[Teacher | None, BeforeValidator(model_of)] = None
    """a frozen model that scores answers, for methods that want one"""
    judge: Annotated[Judge | None, BeforeValidator(model_of)] = None
    """who is asked about answers, for methods that want a judge; unset: "oracle" where that knows the tasks"""

    @model_validator(mode="after")
    def _all_together(self) -> Recipe:
        found = list(_across(self))
        if found:
            raise Across(found)
        return self

    def to_toml(self) -> str:
        """The whole recipe as TOML, defaults included; loads back to an equal one."""
        return toml.write({key: value for key, value in self.model_dump().items() if value != {}})


# ---- what fields cannot say one by one -------------------------------------------------------------------
class Across(ValueError):
    def __init__(self, problems: Sequence[Problem]):
        super().__init__("; ".join(p.text for p in problems))
        self.problems = problems


def _across(r: Recipe) -> Iterator[Problem]:
    """What is wrong between settings, or with the names in them."""
    try:
        read_stack(r.method, r.papers)
    except StackError as error:
        yield from error.problems
    yield from _source_problems("tasks", r.tasks)
    if r.eval.tasks is not None:
        yield from _source_problems("eval.tasks", r.eval.tasks)
    for sink in r.sinks:
        if sink != "terminal" and sink not in registry.names("sink"):
            known = sorted({*registry.names("sink"), "terminal"})
            near = difflib.get_close_matches(sink, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
            yield Problem(f"no sink is called {sink!r}; {hint}", ("sinks",))
    if r.verifier is not None:
        from rlvr.verify.spec import verifier_from

        try:
            verifier_from(r.verifier)
        except (registry.UnknownName, ValueError) as error:
            yield Problem(str(error), ("verifier",))
    if r.device is not None and not DEVICE.fullmatch(r.device):
        yield Problem(
            f'device = "{r.device}" is none that rlvr computes on; write "cpu", "cuda", "cuda:1", or leave it out: the '
            "GPU where there is one",
            ("device",),
        )
    if r.prompt is not None and "{prompt}" not in r.prompt:
        yield Problem(
            "`prompt` has no {prompt} in it, so every task would ask the same; say where it goes", ("prompt",)
        )
    if r.system is not None and r.as_chat is False:
        yield Problem(
            "`system` is a chat message, but as_chat = false sends plain text; put its words into `prompt`, "
            "or drop as_chat",
            ("system", "as_chat"),
        )
    if r.temperature == 0:
        yield Problem(
            "temperature = 0 cannot be trained: all rollouts of a task would be the same; write temperature = 1.0 "
            "(greedy evaluation is eval.temperature = 0 with eval.k = 1)",
            ("temperature",),
        )
    if r.eval.temperature == 0 and r.eval.k > 1:
        yield Problem(
            f"eval.temperature = 0 gives the same answer {r.eval.k} times; write eval.k = 1, or a higher temperature",
            ("eval.k", "eval.temperature"),
        )
    yield from _teacher_problems(r)
    yield from _judge_problems(r)
    if r.updates_per_batch > r.prompts_per_step:
        yield Problem(
            f"{r.prompts_per_step} groups cannot fill {r.updates_per_batch} optimiser batches, for a group is never "
            f"cut; write updates_per_batch = {r.prompts_per_step}, or prompts_per_step = {r.updates_per_batch}",
            ("updates_per_batch", "prompts_per_step"),
        )
    if r.token_budget < r.max_tokens:
        yield Problem(
            f"token_budget = {r.token_budget} cannot hold one answer of max_tokens = {r.max_tokens}; "
            f"write token_budget = {8 * r.max_tokens} or more",
            ("token_budget", "max_tokens"),
        )
    if r.pays.right <= r.pays.wrong:
        yield Problem(
            f"pays.right = {r.pays.right} must be more than pays.wrong = {r.pays.wrong}", ("pays.right", "pays.wrong")
        )
    elif r.pays.truncated is not None and r.pays.truncated >= r.pays.right:
        yield Problem(
            f"pays.truncated = {r.pays.truncated} must be less than pays.right = {r.pays.right}: it is what a wrong, "
            "truncated answer earns",
            ("pays.truncated", "pays.right"),
        )


def _teacher_problems(r: Recipe) -> Iterator[Problem]:
    if r.teacher is None or r.teacher.url is None:
        return
    if not ADDRESS.match(r.teacher.url):
        yield Problem(
            f'teacher.url = "{r.teacher.url}" is no address; write e.g. teacher.url = "http://localhost:8000/v1"',
            ("teacher.url",),
        )
    if r.temperature != 1:
        yield Problem(
            f"a server tells log-probs at temperature 1, and temperature = {r.temperature:g} samples from another "
            "distribution; write temperature = 1.0, or load the teacher here, without teacher.url",
            ("teacher.url", "temperature"),
        )


def _judge_problems(r: Recipe) -> Iterator[Problem]:
    if r.judge is None:
        return
    if r.judge.url is None and r.judge.model not in ("oracle", "policy"):
        near = difflib.get_close_matches(r.judge.model, ("oracle", "policy"), 1)
        hint = f'did you mean "{near[0]}"?' if near else '"oracle" and "policy" need none'
        yield Problem(f'judge.model = "{r.judge.model}" needs an address, judge.url; {hint}', ("judge.model",))
    if r.judge.url is not None and not ADDRESS.match(r.judge.url):
        yield Problem(
            f'judge.url = "{r.judge.url}" is no address; write e.g. judge.url = "http://localhost:8000/v1"',
            ("judge.url",),
        )


def _source_problems(key: str, source: Mapping[str, Any]) -> Iterator[Problem]:
    name = source.get("name")
    if isinstance(name, str) and name.lower().endswith((".json", ".csv", ".tsv", ".txt", ".arrow", ".xlsx")):
        yield Problem(
            f"{key}: {name} is no file that can be read; write one JSON object a line, "
            f'{{"prompt": ..., "answer": ...}}, into a file that ends in .jsonl, or give a .parquet file',
            (key,),
        )
        return
    if not isinstance(name, str):
        yield Problem(f'`{key}` needs a name: {key} = "running_sums", or a table with name = "running_sums"', (key,))
        return
    try:
        known = parameters("tasks", name)
    except registry.UnknownName as error:
        yield Problem(f"{key}: {error}", (key,))
        return
    given = {k: v for k, v in source.items() if k != "name"}
    for argument, sentence in argument_problems(f"{key} ({name})", known, given):
        yield Problem(sentence, (f"{key}.{argument}" if argument else key,))


# ---- telling people about it -----------------------------------------------------------------------------
class Setting(NamedTuple):
    key: str
    default: str  # as TOML; "" where it is unset or has to be given
    meaning: str


def settings() -> list[Setting]:
    """Every key of a recipe, in the order of the file."""
    return list(_settings(Recipe, ""))


def _settings(model: type[BaseModel], under: str) -> Iterator[Setting]:
    for name, info in model.model_fields.items():
        tables = [t for t in (info.annotation, *get_args(info.annotation)) if isinstance(t, type)]
        if inner := [t for t in tables if issubclass(t, BaseModel)]:
            yield from _settings(inner[0], f"{under}{name}.")
        else:
            default = "" if info.is_required() or info.default in (None, {}) else toml.value(info.default)
            yield Setting(under + name, default, str(info.description))

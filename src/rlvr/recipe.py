"""A recipe: everything that a run needs to know, in one flat TOML file.

    model = "nano"
    method = "rloo,gspo"
    tasks = "running_sums"

    [papers.gspo]
    clip_high = 5e-4

`load_recipe` finds it, applies `--set key=value`, and reports everything that is wrong in one go: where it stands, what
was given, what is wanted. Nothing here imports torch.
"""

from __future__ import annotations

import difflib
import glob
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from rlvr import foreign, registry, toml
from rlvr.folder import refuse_given
from rlvr.stacking import Problem, StackError, argument_problems, parameters, parse_stack, read_stack

CONFIG = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True)


class RecipeError(ValueError):
    """The recipe cannot be used; the message lists every problem with the place where it stands."""


DEVICE = re.compile(r"cpu|cuda(:\d+)?|mps")
FILES = ("jsonl", "parquet")  # endings of task files, which are the names of their sources too


def _source(value: Any) -> Any:
    """A name for short: "countdown" is {name = "countdown"}, "my.jsonl" is {name = "jsonl", path = "my.jsonl"}."""
    if not isinstance(value, str):
        return value
    ending = value.rpartition(".")[2]
    return {"name": ending, "path": value} if ending != value and ending in FILES else {"name": value}


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Source = Annotated[dict[str, Any], BeforeValidator(_source)]
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
    """steps between evaluations; 0: only before and after training"""
    temperature: Size | None = None
    """sampling temperature, 0 is greedy; unset: as in training"""
    tasks: Source | None = None
    """where problems come from; unset: the training source's split = "eval" where it has one, else a held-out share"""
    holdout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """share of the tasks that is held out where the source has no eval split"""


class Lora(BaseModel):
    """A small adapter learns, the model's own weights stay. Wants about ten times the lr of full fine-tuning."""

    model_config = CONFIG

    rank: Positive = 16
    """columns of the adapter's matrices. A table [lora] trains an adapter instead of all weights"""
    alpha: Annotated[float, Field(gt=0)] = 32.0
    """the adapter counts alpha / rank times"""
    targets: Annotated[list[str], BeforeValidator(_listed), Field(min_length=1)] = ["all-linear"]
    """layers that get one, by the last part of their name, e.g. ["q_proj", "v_proj"]; "all-linear": all but the head"""


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
    """processor threads of torch; unset: its own choice"""
    seed: Count = 0
    """where all random numbers come from"""
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

    @model_validator(mode="after")
    def _all_together(self) -> Recipe:
        found = list(_across(self))
        if found:
            raise _Across(found)
        return self

    def to_toml(self) -> str:
        """The whole recipe as TOML, defaults included; loads back to an equal one."""
        return toml.write({key: value for key, value in self.model_dump().items() if value != {}})


# ---- what fields cannot say one by one -------------------------------------------------------------------
class _Across(ValueError):
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


# ---- loading ---------------------------------------------------------------------------------------------
def recipes_dir() -> Path:
    """Where the shipped recipes are: in the installed package, or beside the sources of a checkout."""
    here = Path(__file__).parent
    return here / "recipes" if (here / "recipes").is_dir() else here.parents[1] / "recipes"


def shipped() -> list[str]:
    """Names of the shipped recipes."""
    return sorted(file.stem for file in recipes_dir().glob("*.toml"))


def find_recipe(path_or_name: str | Path) -> Path:
    """The file of a recipe: a path, a run's folder, or the name of a shipped one. Raises RecipeError."""
    path = Path(path_or_name).expanduser()
    if (path / "recipe.toml").is_file():
        return path / "recipe.toml"
    if path.is_file():
        return path
    name = str(path_or_name)
    if name in shipped():
        return recipes_dir() / f"{name}.toml"
    if path.suffix == ".toml" or len(path.parts) > 1:
        raise RecipeError(f"there is no file {path}; shipped recipes go by name: {', '.join(shipped())}")
    near = difflib.get_close_matches(name, shipped(), 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(shipped())}"
    raise RecipeError(f"no recipe is called {name!r}; {hint} (or give a path to a .toml file)")


def load_recipe(
    path_or_name: str | Path, sets: Sequence[str] = (), method: str | None = None, model: str | None = None
) -> Recipe:
    """A recipe from a file, or a shipped one by name.

    sets: overrides `key=value`, dotted, with a TOML value or a bare word; `key=` alone goes back to the default.
    method: another stack, or with a leading `+` more papers for the recipe's. model: another model.

    Relative paths in the file are looked up from its folder, then from the current one; in overrides the other way
    round. Raises RecipeError with every problem.
    """
    file = find_recipe(path_or_name)
    refuse_given(file.parent)
    try:
        text = file.read_text(encoding="utf-8-sig")  # some editors write a byte-order mark
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"{file} is not TOML: {error}") from None
    here = Path.cwd()
    _find_files(table, (file.parent, here))
    problems: list[tuple[float, str]] = []  # (line, said)
    origin: dict[str, str] = {}  # dotted key -> the option that set it
    for option in sets:
        try:
            key = _override(table, option, (here, file.parent))
            origin[key] = f"--set {option}"
        except RecipeError as error:
            problems.append((math.inf, str(error)))
    if method is not None:
        before = table.get("method", Recipe.model_fields["method"].default)
        new = {"method": f"{before},{method[1:]}" if method.startswith("+") else method}
        _find_files(new, (here, file.parent))
        table["method"], origin["method"] = new["method"], f"--method {method}"
    if model is not None:
        table["model"], origin["model"] = model, f"--model {model}"

    recipe, found = _validate(table)
    for problem in found:
        said_by = next((o for key in problem.keys for at, o in origin.items() if _overlap(at, key)), None)
        line = None if said_by else toml.line_of(text, problem.keys[0].split("."))
        place = f"{said_by}: " if said_by else f"line {line}: " if line else ""
        problems.append((line or math.inf, place + problem.text))
    if recipe is None or problems:
        shown = os.path.relpath(file) if file.is_relative_to(here) else str(file)
        raise _all_of([said for _, said in sorted(problems, key=lambda p: p[0])], shown)
    return recipe


def make_recipe(table: Mapping[str, Any]) -> Recipe:
    """A recipe from a table, with the messages of `load_recipe`. Raises RecipeError."""
    recipe, found = _validate(table)
    if recipe is None:
        raise _all_of([problem.text for problem in found], "the recipe")
    return recipe


def _all_of(problems: Sequence[str], where: str) -> RecipeError:
    problems = list(dict.fromkeys(problems))
    if len(problems) == 1:
        return RecipeError(f"{where}: {problems[0]}")
    return RecipeError(f"{len(problems)} problems in {where}:\n" + "\n".join(f"  {problem}" for problem in problems))


def _override(table: dict[str, Any], option: str, bases: Sequence[Path]) -> str:
    """Apply `a.b=value` to the table; returns the dotted key."""
    left, equals, right = option.partition("=")
    try:
        keys = _only_path(tomllib.loads(f"{left} = 0"))
    except ValueError:  # not TOML, or several keys
        keys = []
    if not equals or not keys:
        raise RecipeError(f"--set {option}: write key=value, e.g. --set lr=1e-4 or --set papers.dapo.clip_high=0.3")
    try:
        value: Any = tomllib.loads(f"x = {right}")["x"] if right.strip() else None
    except tomllib.TOMLDecodeError:
        value = right.strip()
    inner = table
    for depth, key in enumerate(keys[:-1], 1):
        if ".".join(keys[:depth]) in ("tasks", "eval.tasks"):
            inner[key] = _source(inner.get(key, {}))
        inner = inner.setdefault(key, {})
        if not isinstance(inner, dict):
            raise RecipeError(f"--set {option}: {'.'.join(keys[:depth])} is {_given(inner)}, not a table of settings")
    if value is None:
        inner.pop(keys[-1], None)
    else:
        inner[keys[-1]] = value
        _find_files(table, bases)
    return ".".join(keys)


def _only_path(table: Any) -> list[str]:
    """The keys of a table that holds one value at some depth."""
    if not isinstance(table, dict):
        return []
    [(key, value)] = table.items()
    return [key, *_only_path(value)]


def _find_files(table: dict[str, Any], bases: Sequence[Path]) -> None:
    """Make the relative paths in a table absolute: papers, verifiers and sources of `path.py:name`, files of sources
    and papers, folders of models. What is not found stays as it is."""

    def found(text: str) -> str:
        path = Path(text).expanduser()
        there = [base / path for base in bases if os.path.exists(base / path) or glob.glob(str(base / path))]
        return os.path.abspath(there[0]) if there else text

    def thing(text: str) -> str:
        head, mark, tail = text.partition(".py:")
        return f"{found(head + '.py')}:{tail}" if mark else text

    if isinstance(table.get("method"), str) and ".py:" in table["method"]:
        with suppress(StackError):  # said later, with everything else
            table["method"] = ",".join(str(c._replace(name=thing(c.name))) for c in parse_stack(table["method"]))
    if isinstance(table.get("verifier"), str):
        table["verifier"] = thing(table["verifier"])
    if isinstance(table.get("model"), str) and "/" in table["model"]:
        table["model"] = found(table["model"])
    papers = table.get("papers")
    for settings in papers.values() if isinstance(papers, dict) else ():
        for key, value in settings.items() if isinstance(settings, dict) else ():
            if isinstance(value, str) and ("/" in value or Path(value).suffix):
                settings[key] = found(value)
    for holder in (table, table.get("eval")):
        if isinstance(holder, dict) and "tasks" in holder:
            source = _source(holder["tasks"])
            if isinstance(source, dict):
                for key, value in source.items():
                    if isinstance(value, str) and (key == "name" or "/" in value or Path(value).suffix):
                        source = source | {key: thing(value) if key == "name" else found(value)}
                holder["tasks"] = source


# ---- saying what is wrong --------------------------------------------------------------------------------
WANTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "bool_type": "true or false",
    "dict_type": "a table",
    "model_type": "a table",
    "list_type": "a list",
    "too_short": "a list of {min_length}",
    "too_long": "a list of {max_length}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "one of {expected}",
}


def _validate(table: Mapping[str, Any]) -> tuple[Recipe | None, list[Problem]]:
    """The recipe, or everything that is wrong with it.

    Where single settings are wrong, the others are looked at without them, so that one run of the command shows all.
    """
    try:
        return Recipe.model_validate(dict(table)), []
    except ValidationError as error:
        found, between = _single(error), _between(error)
    if found:
        bad = [problem.keys[0] for problem in found]
        try:
            Recipe.model_validate({"tasks": "running_sums"} | _without(table, bad))
        except ValidationError as error:
            between = [p for p in _between(error) if not any(_overlap(key, b) for key in p.keys for b in bad)]
    return None, found + between


def _between(error: ValidationError) -> list[Problem]:
    causes = [e["ctx"]["error"] for e in error.errors() if not e["loc"]]
    return [problem for cause in causes if isinstance(cause, _Across) for problem in cause.problems]


def _single(error: ValidationError) -> list[Problem]:
    found = []
    for e in error.errors():
        key, given = ".".join(map(str, e["loc"])), e["input"]
        if e["type"] == "extra_forbidden":
            found += [Problem(_unknown(leaf), (leaf,)) for leaf in _leaves(key, given)]
        elif e["type"] == "missing":
            found.append(Problem(f'`{key}` must be given, e.g. {key} = "running_sums" (see "rlvr list {key}")', (key,)))
        elif key:
            wanted = e["msg"].removeprefix("Input should be ")
            if e["type"] in WANTED:
                wanted = WANTED[e["type"]].format(**e.get("ctx", {}))
            if key in ("tasks", "eval.tasks"):
                wanted = "a name, a .jsonl or .parquet file, or a table"
            mended = _mended(key, given, e["type"])
            found.append(Problem(f"`{key}` is {_given(given)}; wanted {wanted}{mended}", (key,)))
    return found


def _leaves(key: str, given: Any) -> list[str]:
    if not isinstance(given, dict) or not given:
        return [key]
    return [leaf for inner, value in given.items() for leaf in _leaves(f"{key}.{inner}", value)]


def _without(table: Mapping[str, Any], bad: Sequence[str], under: str = "") -> dict[str, Any]:
    """The table without its bad keys, and without what holds a bad key but is no table."""
    out = {}
    for name, value in table.items():
        key = under + name
        if isinstance(value, dict) and value and key not in bad:
            if inner := _without(value, bad, f"{key}."):
                out[name] = inner
        elif not any(_overlap(key, b) for b in bad):
            out[name] = value
    return out


def _overlap(a: str, b: str) -> bool:
    return f"{a}.".startswith(f"{b}.") or f"{b}.".startswith(f"{a}.")


def _given(value: Any) -> str:
    if isinstance(value, str):
        return f"the text {toml.value(value if len(value) <= 40 else value[:37] + '...')}"
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    return "a list" if isinstance(value, list) else "a table" if isinstance(value, dict) else f"{value!r}"


def _mended(key: str, given: Any, kind: str) -> str:
    """What was probably meant, where a number or a truth stands in quotes or a whole number has a point."""
    with suppress(ValueError, OverflowError):  # no number
        if kind == "bool_type" and str(given).lower() in ("true", "false"):
            return f": write {key} = {given.lower()}"
        if kind == "float_type" and isinstance(given, str):
            return f": write {key} = {float(given)}"
        if kind == "int_type" and isinstance(given, str | float) and float(given) == int(float(given)):
            return f": write {key} = {int(float(given))}"
    return ""


def _unknown(key: str) -> str:
    meant = foreign.meaning(key)
    if meant:
        return f"`{key}` is no setting here: {meant}" if " " in meant else f"`{key}` is called `{meant}` here"
    known = [setting.key for setting in settings()]
    last = key.rpartition(".")[2]
    same = [k for k in known if k == last] or [k for k in known if k.endswith(f".{last}")]
    if same:
        return f"`{key}` is called `{same[0]}` here"
    takers = [e.name for e in registry.index("method") if last in [p.name for p in parameters("method", e.name) or ()]]
    if takers:
        paper = takers[0] if len(takers) == 1 else "PAPER"
        return f"`{key}` is a setting of {', '.join(takers)}: write papers.{paper}.{last}"
    near = difflib.get_close_matches(key, known, 1) or difflib.get_close_matches(last, known, 1)
    return f"`{key}` is not known; " + (f"did you mean `{near[0]}`?" if near else "rlvr explain recipe lists every key")


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

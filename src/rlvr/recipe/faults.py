"""What is wrong with a table of settings, in words: what was given, what is wanted, what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from rlvr import foreign, registry, toml
from rlvr.recipe.keys import Across, Recipe, settings
from rlvr.stacking import Problem, parameters

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


EXAMPLES = {  # of keys that must be given
    "tasks": 'e.g. tasks = "running_sums" (see "rlvr list tasks")',
    "judge.model": 'e.g. judge.model = "oracle" (a server needs the name that it knows the model by)',
    "teacher.model": 'e.g. teacher.model = "micro" (a server needs the name that it knows the model by)',
}


def validated(table: Mapping[str, Any]) -> tuple[Recipe | None, list[Problem]]:
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
            between = [p for p in _between(error) if not any(overlap(key, b) for key in p.keys for b in bad)]
    return None, found + between


def _between(error: ValidationError) -> list[Problem]:
    causes = [e["ctx"]["error"] for e in error.errors() if not e["loc"]]
    return [problem for cause in causes if isinstance(cause, Across) for problem in cause.problems]


def _single(error: ValidationError) -> list[Problem]:
    found = []
    for e in error.errors():
        key, given = ".".join(map(str, e["loc"])), e["input"]
        if e["type"] == "extra_forbidden":
            found += [Problem(_unknown(leaf), (leaf,)) for leaf in _leaves(key, given)]
        elif e["type"] == "missing":
            found.append(Problem(f"`{key}` must be given, {EXAMPLES[key]}", (key,)))
        elif key:
            wanted = e["msg"].removeprefix("Input should be ")
            if e["type"] in WANTED:
                wanted = WANTED[e["type"]].format(**e.get("ctx", {}))
            if key in ("tasks", "eval.tasks"):
                wanted = "a name, a .jsonl or .parquet file, or a table"
            if key in ("teacher", "judge"):
                wanted = "a model's name, or a table"
            mended = _mended(key, given, e["type"])
            found.append(Problem(f"`{key}` is {shown(given)}; wanted {wanted}{mended}", (key,)))
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
        elif not any(overlap(key, b) for b in bad):
            out[name] = value
    return out


def overlap(a: str, b: str) -> bool:
    return f"{a}.".startswith(f"{b}.") or f"{b}.".startswith(f"{a}.")


def shown(value: Any) -> str:
    if isinstance(value, str):
        return f"the text {toml.value(value if len(value) <= 40 else value[:37] + '...')}"
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    return "a table" if isinstance(value, dict) else f"{value!r}"


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
    words = [*known, *{k.partition(".")[0] for k in known if "." in k}]
    near = difflib.get_close_matches(key, words, 1) or difflib.get_close_matches(last, known, 1)
    return f"`{key}` is not known; " + (f"did you mean `{near[0]}`?" if near else "rlvr explain recipe lists every key")

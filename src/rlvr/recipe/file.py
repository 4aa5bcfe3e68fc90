"""Recipes in files: finding one, applying `--set key=value`, and saying everything that is wrong where it stands."""

from __future__ import annotations

import difflib
import glob
import math
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlvr import toml
from rlvr.folder import refuse_given
from rlvr.recipe.faults import overlap, shown, validated
from rlvr.recipe.keys import Recipe, model_of, source_of
from rlvr.stacking import StackError, parse_stack

# Tables that may be given as one name.
SHORT: dict[str, Callable[[Any], Any]] = {
    "tasks": source_of,
    "eval.tasks": source_of,
    "teacher": model_of,
    "judge": model_of,
}


class RecipeError(ValueError):
    """The recipe cannot be used; the message lists every problem with the place where it stands."""


def recipes_dir() -> Path:
    """Where the shipped recipes are: in the installed package, or beside the sources of a checkout."""
    package = Path(__file__).parents[1]
    return package / "recipes" if (package / "recipes").is_dir() else package.parents[1] / "recipes"


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
    path_or_name: str | Path,
    sets: Sequence[str] = (),
    method: str | None = None,
    model: str | None = None,
    dashes: str = "--",
) -> Recipe:
    """A recipe from a file, or a shipped one by name.

    sets: overrides `key=value`, dotted, with a TOML value or a bare word; `key=` alone goes back to the default.
    method: another stack, or with a leading `+` more papers for the recipe's. model: another model. dashes: what stands
    before set, method and model where a fault in one of them is told: "" where nobody gave an option.

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
            key = _override(table, option, (here, file.parent), f"{dashes}set {option}")
            origin[key] = f"{dashes}set {option}"
        except RecipeError as error:
            problems.append((math.inf, str(error)))
    if method is not None:
        before = table.get("method", Recipe.model_fields["method"].default)
        new = {"method": f"{before},{method[1:]}" if method.startswith("+") else method}
        _find_files(new, (here, file.parent))
        table["method"], origin["method"] = new["method"], f"{dashes}method {method}"
    if model is not None:
        table["model"], origin["model"] = model, f"{dashes}model {model}"

    recipe, found = validated(table)
    for problem in found:
        said_by = next((o for key in problem.keys for at, o in origin.items() if overlap(at, key)), None)
        line = None if said_by else toml.line_of(text, problem.keys[0].split("."))
        place = f"{said_by}: " if said_by else f"line {line}: " if line else ""
        problems.append((line or math.inf, place + problem.text))
    if recipe is None or problems:
        shown = os.path.relpath(file) if file.is_relative_to(here) else str(file)
        raise _all_of([said for _, said in sorted(problems, key=lambda p: p[0])], shown)
    return recipe


def make_recipe(table: Mapping[str, Any]) -> Recipe:
    """A recipe from a table, with the messages of `load_recipe`. Raises RecipeError."""
    recipe, found = validated(table)
    if recipe is None:
        raise _all_of([problem.text for problem in found], "the recipe")
    return recipe


def _all_of(problems: Sequence[str], where: str) -> RecipeError:
    problems = list(dict.fromkeys(problems))
    if len(problems) == 1:
        return RecipeError(f"{where}: {problems[0]}")
    return RecipeError(f"{len(problems)} problems in {where}:\n" + "\n".join(f"  {problem}" for problem in problems))


def _override(table: dict[str, Any], option: str, bases: Sequence[Path], where: str) -> str:
    """Apply `a.b=value` to the table; returns the dotted key. `where`: what a fault in it begins with."""
    left, equals, right = option.partition("=")
    try:
        keys = _only_path(tomllib.loads(f"{left} = 0"))
    except ValueError:  # not TOML, or several keys
        keys = []
    if not equals or not keys:
        raise RecipeError(f"{where}: write key=value, e.g. --set lr=1e-4 or --set papers.dapo.clip_high=0.3")
    try:
        value: Any = tomllib.loads(f"x = {right}")["x"] if right.strip() else None
    except tomllib.TOMLDecodeError:
        value = right.strip()
    inner = table
    for depth, key in enumerate(keys[:-1], 1):
        if short := SHORT.get(".".join(keys[:depth])):
            inner[key] = short(inner.get(key, {}))
        inner = inner.setdefault(key, {})
        if not isinstance(inner, dict):
            raise RecipeError(f"{where}: {'.'.join(keys[:depth])} is {shown(inner)}, not a table of settings")
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
    if "teacher" in table:
        teacher = model_of(table["teacher"])
        if isinstance(teacher, dict) and "url" not in teacher and "/" in str(teacher.get("model")):
            table["teacher"] = teacher | {"model": found(str(teacher["model"]))}
    papers = table.get("papers")
    for settings in papers.values() if isinstance(papers, dict) else ():
        for key, value in settings.items() if isinstance(settings, dict) else ():
            if isinstance(value, str) and ("/" in value or Path(value).suffix):
                settings[key] = found(value)
    for holder in (table, table.get("eval")):
        if isinstance(holder, dict) and "tasks" in holder:
            source = source_of(holder["tasks"])
            if isinstance(source, dict):
                for key, value in source.items():
                    if isinstance(value, str) and (key == "name" or "/" in value or Path(value).suffix):
                        source = source | {key: thing(value) if key == "name" else found(value)}
                holder["tasks"] = source

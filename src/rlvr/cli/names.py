"""`rlvr list` and `rlvr explain`: everything that has a name, read from source, so that nothing heavy is imported."""

from __future__ import annotations

import ast
import difflib
import importlib.util
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import typer

from rlvr import registry, toml
from rlvr.cli import show

# What else kinds are called, and their names here.
PLURALS = {
    "methods": "method",
    "papers": "method",
    "paper": "method",
    "verifiers": "verifier",
    "task": "tasks",
    "recipes": "recipe",
}


class UnknownKind(ValueError):
    """There is no such kind of thing."""


def list_(
    kind: Annotated[str | None, typer.Argument(metavar="[KIND]", help="method, verifier, tasks, recipe ...")] = None,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """List what there is: papers, verifiers, task sources, recipes ...

    \b
    Examples:
      rlvr list                 everything
      rlvr list method          papers to stack
      rlvr list tasks --json
    """
    kinds = ["recipe", *registry.KINDS]
    chosen = PLURALS.get(kind or "", kind)
    if chosen is not None and chosen not in kinds:
        near = difflib.get_close_matches(chosen, kinds, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(kinds)}"
        raise UnknownKind(f"there is no kind {kind!r}; {hint}")
    found = {k: rows for k in kinds if chosen in (None, k) and (rows := _listed(k))}
    if json:
        show.as_json({k: [{"name": name, "summary": summary} for name, summary in rows] for k, rows in found.items()})
        return
    blocks = [f"{k}\n{show.table(rows)}" for k, rows in found.items()]
    typer.echo("\n\n".join(blocks) if blocks else f"there is no {chosen} yet")
    typer.echo("\nrlvr explain NAME says more")


def _listed(kind: str) -> list[tuple[str, str]]:
    if kind == "recipe":
        from rlvr.recipe import recipes_dir, shipped

        return [(name, _first_comment(recipes_dir() / f"{name}.toml")) for name in shipped()]
    return [(name, show.sentence(registry.describe(kind, name).summary)) for name in registry.names(kind)]


def _first_comment(file: Path) -> str:
    lines = file.read_text(encoding="utf-8").splitlines()
    block = takewhile(lambda line: line.removeprefix("#").strip(), lines)
    return show.sentence(" ".join(line.removeprefix("#") for line in block))


def explain(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A name, path.py:name, a recipe or one of its keys, a slot, a stream.")
    ],
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Explain a name: formula, settings, defaults, source.

    \b
    Examples:
      rlvr explain grpo              a paper
      rlvr explain hash_marker       a verifier
      rlvr explain my.py:my_paper    your own
      rlvr explain quickstart        a recipe: what it sets
      rlvr explain recipe            every key of a recipe
      rlvr explain updates_per_batch one of them
      rlvr explain slots             what a method consists of
      rlvr explain streams           what a batch holds
    """
    found = list(_explained(name))
    if not found:
        known = [*_words(), *(n for kind in registry.KINDS for n in registry.names(kind))]
        near = difflib.get_close_matches(name, sorted(set(known)), 3)
        hint = f"did you mean {' or '.join(near)}?" if near else '"rlvr list" shows every name'
        raise registry.UnknownName(f"nothing is called {name!r}; {hint}")
    if json:
        show.as_json([told for _, told in found])
    else:
        typer.echo("\n\n".join(text for text, _ in found))


def _words() -> list[str]:
    from rlvr.method import SLOTS
    from rlvr.recipe import settings, shipped
    from rlvr.streams import TABLE

    return [*shipped(), "recipe", "slots", "streams", *SLOTS, *TABLE, *(s.key for s in settings())]


def _explained(name: str) -> Iterator[tuple[str, Any]]:
    """(text, the same as data) of everything that goes by this name."""
    for kind in registry.KINDS:
        if name in registry.names(kind):
            yield _entry(kind, name)
    if ".py:" in name:
        yield _entry("method", name)
    yield from _slots(name)
    yield from _streams(name)
    yield from _recipe(name)
    yield from _recipe_file(name)


def _entry(kind: str, name: str) -> tuple[str, dict[str, Any]]:
    from rlvr.stacking import parameters

    taken = parameters(kind, name)
    entry = registry.describe(kind, name)
    if ".py:" in name:
        file: Path | None = Path(entry.module)
        kind = "method" if taken and taken[0].name == "method" else "your own"
    else:
        spec = importlib.util.find_spec(entry.module)
        file = Path(spec.origin) if spec and spec.origin else None
    if kind == "method" and taken:
        taken = taken[1:]  # the method itself
    about = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) if file else None) or ""
    facts = [("paper", str(entry.constants["paper"]))] if "paper" in entry.constants else []
    if "fills" in entry.constants and kind == "method":
        facts.append(("slots", ", ".join(entry.constants["fills"])))
    if file:
        facts.append(("file", f"{_near(file)}:{entry.line}"))
    text = f"{entry.name} ({kind})\n\n"
    if about and about != entry.doc:
        text += show.paragraphs(about) + "\n\n"
    text += show.paragraphs(entry.doc) + "\n\n" + show.table(facts)
    if taken:
        rows = [(p.name, "must be given" if p.default is None else p.default, p.annotation) for p in taken]
        text += "\n\nsettings and defaults\n" + show.table(rows)
    told = {
        "kind": kind,
        "name": entry.name,
        **dict(facts),
        "doc": entry.doc,
        "module_doc": about,
        "settings": {p.name: {"default": p.default, "type": p.annotation} for p in taken or ()},
    }
    return text, told


def _near(file: Path) -> str:
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)


def _slots(name: str) -> Iterator[tuple[str, Any]]:
    from rlvr.method import SLOTS

    chosen = SLOTS if name == "slots" else {name: SLOTS[name]} if name in SLOTS else {}
    if not chosen:
        return
    blocks = []
    for slot, (many, signature, meaning) in chosen.items():
        rows = [("holds", "many, all live together" if many else "one"), ("called", signature)]
        fillers = [e.name for e in registry.index("method") if slot in e.constants.get("fills", ())]
        if fillers:
            rows.append(("filled by", ", ".join(fillers)))
        blocks.append(f"{slot}: {meaning}\n{show.table(rows)}")
    head = "A method is a set of slots; each paper fills some of them.\n\n" if name == "slots" else "slot "
    told = [{"slot": s, "many": many, "signature": call, "meaning": m} for s, (many, call, m) in chosen.items()]
    yield head + "\n\n".join(blocks), told


def _streams(name: str) -> Iterator[tuple[str, Any]]:
    from rlvr.streams import OPEN, TABLE

    told = [{"stream": n, "per": s.per, "meaning": s.meaning} for n, s in TABLE.items() if name in ("streams", n)]
    if name != "streams":
        yield from ((show.wrapped(f"stream {t['stream']}, one value a {t['per']}: {t['meaning']}"), t) for t in told)
        return
    text = "A batch holds streams: one value a trained token, or one a row."
    for per in ("token", "row"):
        rows = [(t["stream"], t["meaning"]) for t in told if t["per"] == per]
        rows += [(f"{prefix}NAME", "named by a piece") for prefix, kind in OPEN.items() if kind == per]
        text += f"\n\nper {per}\n{show.table(rows)}"
    yield text, told


def _recipe(name: str) -> Iterator[tuple[str, Any]]:
    from rlvr.recipe import settings

    every = settings()
    chosen = every if name == "recipe" else [s for s in every if s.key == name or s.key.startswith(f"{name}.")]
    if not chosen:
        return
    told = [s._asdict() for s in chosen]
    rows = [(s.key, s.default or ("needed" if s.key == "tasks" else "-"), s.meaning) for s in chosen]
    if name != "recipe":
        yield "recipe key\n" + show.table(rows), told
        return
    text = "A recipe is a TOML file with these keys; only `tasks` has to be given (- is unset)."
    yield f"{show.wrapped(text)}\n\n{show.table(rows)}", told


def _recipe_file(name: str) -> Iterator[tuple[str, Any]]:
    """A recipe, as a file, by name or in a run's folder: what it sets."""
    from rlvr.recipe import find_recipe, load_recipe, settings, shipped

    if name not in shipped() and not name.endswith(".toml") and not (Path(name) / "recipe.toml").is_file():
        return
    file, recipe = find_recipe(name), load_recipe(name)
    told = []
    for setting in settings():
        value: Any = recipe.model_dump()
        for key in setting.key.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value not in (None, {}) and toml.value(value) != setting.default:
            told.append({"key": setting.key, "value": toml.value(value), "meaning": setting.meaning})
    text = f"{file.stem} (recipe)\n\n{show.wrapped(_first_comment(file))}\n\n"
    text += show.table([("file", _near(file)), ("its plan", f"rlvr train {name} --dry-run")])
    rows = [(t["key"], t["value"]) for t in told]
    yield f"{text}\n\nwhat it sets, apart from defaults\n{show.table(rows)}", {"file": str(file), "settings": told}

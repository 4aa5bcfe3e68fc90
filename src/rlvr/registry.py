"""Names to things: methods, verifiers, tasks, environments, selectors, rollouts, engines, sinks.

A registry is a dictionary that a decorator fills, and every name is treated alike. Built-in things are found by
*reading* the package's source (`ast`), so that `list` and `explain` know all of them without importing any; a name is
imported when somebody asks for it. Third parties use the entry-point group `rlvr.<kind>` or give `path.py:name`;
nothing central is edited.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

# kind -> the package folder whose modules register it
KINDS: dict[str, str] = {
    "method": "methods",
    "verifier": "verify",
    "tasks": "tasks",
    "select": "select",
    "rollout": "rollout",
    "organism": "organisms",
    "engine": "engine",
    "env": "envs",
    "sink": "report",
}
_things: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
F = TypeVar("F", bound=Callable[..., Any])


class UnknownName(KeyError):
    """Nobody registered this name; the message says which names there are."""

    def __str__(self) -> str:
        return str(self.args[0])


class BrokenFile(ValueError):
    """A file of the user's cannot be run; the message says on which line, and why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What can be said of a registered thing by reading its source."""

    kind: str
    name: str
    module: str  # importable name, or a file
    line: int
    summary: str  # first paragraph of the docstring
    doc: str  # whole docstring: the function's, or the module's where the function has none
    signature: str  # "(method, clip_low=None, clip_high=None)"
    constants: Mapping[str, Any]  # literal module-level assignments, e.g. fills = ("bounds",)


def register(kind: str, name: str | None = None) -> Callable[[F], F]:
    """Decorator: make a function or class known under `name` (default: its own name)."""
    if kind not in KINDS:
        raise ValueError(f"there is no kind {kind!r}; kinds are {', '.join(KINDS)}")

    def add(thing: F) -> F:
        key = name or thing.__name__
        known = _things[kind].get(key)
        if known is not None and (known.__module__, known.__qualname__) != (thing.__module__, thing.__qualname__):
            raise ValueError(
                f"{kind} {key!r} is registered twice: by {known.__module__} and by {thing.__module__}; rename one"
            )
        _things[kind][key] = thing
        return thing

    return add


def get(kind: str, name: str) -> Any:
    """The registered thing. `name` may be `path.py:thing`. Raises UnknownName with the nearest known names."""
    if ".py:" in name:
        return load_path(name)
    if name in _things[kind]:
        return _things[kind][name]
    for entry in index(kind):
        if entry.name == name:
            importlib.import_module(entry.module)
            return _things[kind][name]
    for point in entry_points(group=f"rlvr.{kind}"):
        if point.name == name:
            return point.load()
    raise _unknown(kind, name)


def _unknown(kind: str, name: str) -> UnknownName:
    if name.endswith(".py"):
        return UnknownName(f"{name} is a file; say which of its functions, as in {name}:{Path(name).stem}")
    near = difflib.get_close_matches(name, names(kind), 3)
    hint = f"did you mean {' or '.join(repr(n) for n in near)}?" if near else f"there are: {', '.join(names(kind))}"
    return UnknownName(f"no {kind} is called {name!r}; {hint} (or give a file: path.py:name)")


def names(kind: str) -> list[str]:
    """Every name of a kind, built-in, registered by hand and installed."""
    found = {e.name for e in index(kind)} | set(_things[kind]) | {p.name for p in entry_points(group=f"rlvr.{kind}")}
    return sorted(found)


def describe(kind: str, name: str) -> Entry:
    """The Entry of a name, read from source without importing it."""
    if ".py:" in name:
        path, _, thing = name.rpartition(":")
        there = {e.name: e for e in read_source(kind, Path(path).expanduser(), path, every=True)}
        if thing in there:
            return there[thing]
        raise UnknownName(f"{path} defines no function or class {thing!r} at its top level{_nearest(thing, there)}")
    for entry in index(kind):
        if entry.name == name:
            return entry
    for point in entry_points(group=f"rlvr.{kind}"):
        if point.name == name:
            spec = importlib.util.find_spec(point.module)
            if spec and spec.origin:
                wanted = point.attr or name
                for entry in read_source(kind, Path(spec.origin), point.module, every=True):
                    if entry.name == wanted:
                        return entry
    raise _unknown(kind, name)


def _nearest(name: str, known: Iterable[str]) -> str:
    """What a misspelt name of a file probably is."""
    shown = sorted(n for n in known if not n.startswith("_"))
    near = difflib.get_close_matches(name, shown, 1)
    return f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(shown)}" if shown else ""


@cache
def index(kind: str) -> tuple[Entry, ...]:
    """All built-in entries of a kind, by reading the package's files."""
    folder = Path(__file__).parent / KINDS[kind]
    out: list[Entry] = []
    for file in sorted(folder.glob("*.py")):
        module = f"rlvr.{KINDS[kind]}" + ("" if file.stem == "__init__" else f".{file.stem}")
        out += read_source(kind, file, module)
    return tuple(sorted(out, key=lambda e: e.name))


def read_source(kind: str, file: Path, module: str, every: bool = False) -> list[Entry]:
    """Entries of one file: what `@register(kind, ...)` decorates, or (`every`) all top-level functions and classes."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8-sig"))
    except SyntaxError as error:
        raise _not_python(file, error) from None
    except ValueError as error:  # not UTF-8, or a null byte
        raise BrokenFile(f"{file} is not Python: {error}") from None
    constants: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            try:
                constants[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue  # not a literal: not for reading
    out = []
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            continue
        name = _registered_as(node, kind) or (node.name if every else None)
        if name is None:
            continue
        doc = ast.get_docstring(node) or ast.get_docstring(tree) or ""
        out.append(Entry(kind, name, module, node.lineno, doc.split("\n\n")[0], doc, _signature(node), constants))
    return out


def _registered_as(node: ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef, kind: str) -> str | None:
    for call in node.decorator_list:
        if not (isinstance(call, ast.Call) and call.args):
            continue
        called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        words = [a.value for a in call.args if isinstance(a, ast.Constant)]
        if called == "register" and words and words[0] == kind:
            return str(words[1]) if len(words) > 1 else node.name
    return None


def _signature(node: ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) -> str:
    if not isinstance(node, ast.ClassDef):
        return f"({ast.unparse(node.args)})"
    fields = [
        ast.unparse(ast.AnnAssign(s.target, s.annotation, _default(s.value), s.simple))
        for s in node.body
        if isinstance(s, ast.AnnAssign)
        and not ("ClassVar" in ast.unparse(s.annotation) or "init=False" in ast.unparse(s))
    ]
    return f"({', '.join(fields)})"


def _default(value: ast.expr | None) -> ast.expr | None:
    """The value that a dataclass's `field(default_factory=f)` or `field(default=x)` comes to: f() or x."""
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "field"):
        return value
    given = {k.arg: k.value for k in value.keywords}
    make = given.get("default_factory")
    if make is None:
        return given.get("default")
    return make.body if isinstance(make, ast.Lambda) else ast.Call(make, [], [])


def _not_python(file: Path, error: SyntaxError) -> BrokenFile:
    return BrokenFile(f"{file}, line {error.lineno} is not Python: {error.msg}")


def load_path(spec: str) -> Any:
    """The object that `path.py:name` names. Runs the file: it is the user's own code.

    Raises UnknownName where there is no such file or name, BrokenFile where the file cannot be run.
    """
    path, _, name = spec.rpartition(":")
    file = Path(path).expanduser()
    if not file.is_file():
        raise UnknownName(f"{spec}: there is no file {file}")
    module_name = f"rlvr_user_{abs(hash(str(file.resolve())))}"
    if module_name not in sys.modules:
        source = importlib.util.spec_from_file_location(module_name, file)
        assert source is not None
        assert source.loader is not None
        module = importlib.util.module_from_spec(source)
        sys.modules[module_name] = module
        try:
            source.loader.exec_module(module)
        except BaseException as error:
            del sys.modules[module_name]
            raise _broken(file, error) from error
    module = sys.modules[module_name]
    if not hasattr(module, name):
        raise UnknownName(f"{file} has no {name!r}{_nearest(name, vars(module))}")
    return getattr(module, name)


def _broken(file: Path, error: BaseException) -> BaseException:
    """What a file raised while it was run, with its line; an interrupt stays one."""
    if isinstance(error, SyntaxError):
        return _not_python(Path(error.filename) if error.filename else file, error)
    if not isinstance(error, Exception | SystemExit):
        return error
    lines = [
        f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() == file.resolve()
    ]
    at = f"{file}, line {lines[-1]}" if lines else str(file)
    if isinstance(error, SystemExit):
        return BrokenFile(f'{at} ends the program; put what is to run as a script under if __name__ == "__main__":')
    return BrokenFile(f"{at} fails: {type(error).__name__}: {error}")

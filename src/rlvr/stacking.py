"""A stack as text, `dapo,rloo,tis(high=3.0)`, and the Method that it names.

    stack    call {, call}                 in any order; grpo is implied when the list names no base
    call     name [(key=literal, ...)]     a verifier's spec is one call: hash_marker(marker='#')
    name     a registered name, or path.py:name
    literal  a Python literal: 0.2, 'text', True, None, (2, 5)

The text is parsed and never evaluated. Names and arguments are checked by reading source, so a misspelt stack fails
before torch is imported.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from rlvr import registry
from rlvr.method import Contradiction, Method

NAME = re.compile(r"[A-Za-z_][\w.-]*|[^,()]+\.py:[A-Za-z_]\w*")
CONSTANTS = {"true": "True", "false": "False", "none": "None", "null": "None"}
# What a parameter's annotation admits, where it is one of these; other annotations are the callee's own affair.
TYPES: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "Path": (str, PurePath),
    "bool": (bool,),
    "tuple": (tuple, list),
    "list": (tuple, list),
    "dict": (dict,),
}


class Problem(NamedTuple):
    """One thing that is wrong."""

    text: str  # a sentence
    keys: tuple[str, ...] = ("method",)  # of the recipe, dotted: where it was said, then what else has to do with it


class StackError(ValueError):
    """The stack cannot be read; the message is one line for each of `problems`."""

    def __init__(self, *problems: Problem | str):
        self.problems = tuple(Problem(p) if isinstance(p, str) else p for p in problems)
        super().__init__("\n".join(p.text for p in self.problems))


class Call(NamedTuple):
    """A name with settings, as in `tis(high=3.0)`."""

    name: str
    settings: dict[str, Any]

    @property
    def short(self) -> str:
        """The name without a file."""
        return self.name.rpartition(":")[2]

    def __str__(self) -> str:
        given = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        return f"{self.name}({given})" if given else self.name


# ---- text to calls ---------------------------------------------------------------------------------------
def parse_stack(text: str) -> list[Call]:
    """The calls of a comma-separated list. Raises StackError naming every item that cannot be read."""
    calls: list[Call] = []
    problems: list[Problem] = []
    for item in _split(text):
        try:
            calls.append(parse_call(item))
        except StackError as error:
            problems += error.problems
    if problems:
        raise StackError(*dict.fromkeys(problems))
    return calls


def parse_call(text: str) -> Call:
    """One `name(key=literal, ...)`. Raises StackError."""
    text = text.strip()
    if not text:
        raise StackError('a name is missing: write names with commas between them, e.g. "rloo,gspo(clip_high=5e-4)"')
    name, bracket, rest = text.partition("(")
    name = name.strip()
    if not NAME.fullmatch(name):
        raise StackError(f"{_shown(text)!r}: {_shown(name)!r} is not a name; write a registered name or path.py:name")
    if not bracket:
        return Call(name, {})
    if not rest.endswith(")"):
        raise StackError(f"{_shown(text)!r}: the parenthesis after {name} is not closed")
    return Call(name, _settings(name, rest[:-1]))


def _split(text: str) -> list[str]:
    """At commas that stand outside of brackets and quotes."""
    items, start, depth, quote, at = [], 0, 0, "", 0
    while at < len(text):
        char = text[at]
        if quote:
            at += char == "\\"  # what it escapes is passed over
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            items.append(text[start:at])
            start = at + 1
        at += 1
    return [*items, text[start:]]


def _shown(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _settings(name: str, inside: str) -> dict[str, Any]:
    try:
        call = ast.parse(f"f({inside})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        call = None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
        raise StackError(f"{name}({_shown(inside)}): cannot be read; write {name}(key=value, ...)")
    if call.args or any(keyword.arg is None for keyword in call.keywords):
        raise StackError(f"{name}({_shown(inside)}): arguments are given by name: {name}(key=value)")
    out: dict[str, Any] = {}
    for keyword in call.keywords:
        key = str(keyword.arg)
        try:
            out[key] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, RecursionError, MemoryError):
            word = ast.unparse(keyword.value)
            write = CONSTANTS.get(word.lower(), repr(word))
            raise StackError(f"{name}: {key}={word} is not a literal; write {key}={write}") from None
    return out


# ---- calls against what is registered --------------------------------------------------------------------
class Parameter(NamedTuple):
    name: str
    annotation: str  # "" when it has none
    default: str | None  # None when it must be given


def parameters(kind: str, name: str) -> list[Parameter] | None:
    """What a registered thing, or `path.py:thing`, takes by name; None when it takes anything (`**kwargs`).

    Read from source; only what was registered by hand in this process is looked at itself. Raises UnknownName.
    """
    try:
        text = registry.describe(kind, name).signature
    except registry.UnknownName:
        if ".py:" in name or name not in registry.names(kind):
            raise
        live = inspect.signature(registry.get(kind, name)).parameters.values()
        if any(p.kind == p.VAR_KEYWORD for p in live):
            return None
        return [Parameter(p.name, "", None if p.default is p.empty else repr(p.default)) for p in live]
    except OSError as error:
        raise registry.UnknownName(f"{name}: the file cannot be read ({error.strerror})") from None
    except registry.BrokenFile as error:
        raise registry.UnknownName(str(error)) from None
    args = ast.parse(f"def f{text}: ...").body[0].args  # type: ignore[attr-defined]
    if args.kwarg is not None:
        return None
    plain = [*args.posonlyargs, *args.args]
    defaults = [*[None] * (len(plain) - len(args.defaults)), *args.defaults, *args.kw_defaults]
    return [
        Parameter(a.arg, ast.unparse(a.annotation) if a.annotation else "", ast.unparse(d) if d else None)
        for a, d in zip([*plain, *args.kwonlyargs], defaults)
    ]


def argument_problems(
    who: str, known: Sequence[Parameter] | None, given: Mapping[str, Any]
) -> Iterator[tuple[str | None, str]]:
    """(argument or None, sentence) of what is wrong: unknown names, values of another type, what is missing."""
    if known is None:
        return
    by_name = {p.name: p for p in known}
    shown = ", ".join(p.name if p.default is None else f"{p.name}={p.default}" for p in known) or "nothing"
    for key, value in given.items():
        if key not in by_name:
            near = difflib.get_close_matches(key, by_name, 1)
            hint = f"did you mean {near[0]!r}? It" if near else "it"
            yield key, f"{who} has no argument {key!r}; {hint} takes {shown}"
        elif not _fits(value, by_name[key].annotation):
            yield key, f"{who}: {key} = {value!r} does not fit; wanted {by_name[key].annotation}"
    missing = [p.name for p in known if p.default is None and p.name not in given]
    if missing:
        yield None, f"{who} needs {', '.join(missing)}; it takes {shown}"


def _fits(value: Any, annotation: str) -> bool:
    return not annotation or _admits(ast.parse(annotation, mode="eval").body, value)


def _admits(node: ast.expr, value: Any) -> bool:
    if isinstance(node, ast.BinOp):
        return _admits(node.left, value) or _admits(node.right, value)
    if isinstance(node, ast.Constant) and node.value is None:
        return value is None
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
        allowed = ast.literal_eval(node.slice)
        return value in (allowed if isinstance(allowed, tuple) else (allowed,))
    name = ast.unparse(node.value if isinstance(node, ast.Subscript) else node)
    if name not in TYPES:
        return True
    return isinstance(value, TYPES[name]) and (name == "bool" or not isinstance(value, bool))


# ---- calls to a method -----------------------------------------------------------------------------------
def read_stack(text: str, papers: Mapping[str, Mapping[str, Any]] | None = None) -> list[Call]:
    """The stack's papers with their settings from the text and from `papers`, the base first; grpo is added when no
    base is named. Nothing is imported. Raises StackError with all that is wrong."""
    papers = papers or {}
    calls = parse_stack(text)
    problems: list[Problem] = []
    known: dict[str, list[Parameter] | None] = {}
    for call in calls:
        try:
            known[call.name] = parameters("method", call.name)
        except registry.UnknownName as error:
            problems.append(Problem(str(error)))
    if not problems and not any(_starts(known[call.name]) for call in calls):
        calls.append(Call("grpo", {}))
        known["grpo"] = parameters("method", "grpo")
    names = [call.short for call in calls]
    for name in sorted({n for n in names if names.count(n) > 1}):
        problems.append(
            Problem(f"{name} stands {names.count(name)} times in the stack; name it once, with all its settings")
        )
    for name in papers:
        if not any(name in (call.name, call.short) for call in calls):
            say = f"papers.{name} has settings, but {name} is not in the stack ({', '.join(names)}); "
            problems.append(Problem(f"{say}add it to `method`, or drop papers.{name}", (f"papers.{name}", "method")))
    out = []
    for call in calls:
        more = {**papers.get(call.name, {}), **papers.get(call.short, {})}
        for key in sorted(more.keys() & call.settings.keys()):
            if more[key] != call.settings[key]:
                said = f"{call.settings[key]!r} in the stack and {more[key]!r} in papers.{call.short}"
                where = ("method", f"papers.{call.short}.{key}")
                problems.append(Problem(f"{call.short}: {key} is {said}; say it once", where))
        merged = {key: _frozen(value) for key, value in {**more, **call.settings}.items()}
        takes = known.get(call.name)
        for argument, sentence in argument_problems(
            call.short, takes and takes[1:], merged
        ):  # without the method itself
            in_text = argument is None or argument in call.settings
            problems.append(Problem(sentence, ("method",) if in_text else (f"papers.{call.short}.{argument}",)))
        out.append(Call(call.name, merged))
    if problems:
        raise StackError(*problems)
    return sorted(out, key=lambda call: (not _starts(known[call.name]), call.short))


def build_method(text: str, papers: Mapping[str, Mapping[str, Any]] | None = None) -> Method:
    """The Method of a stack. Raises StackError, and Contradiction where papers cannot live together."""
    method = Method()
    for call in read_stack(text, papers):
        method = add(method, call)
    return method


def add(method: Method, call: Call) -> Method:
    """The method with one more paper in it. Raises StackError, which says what a paper is, and Contradiction."""
    paper = registry.get("method", call.name)
    if not callable(paper):
        raise StackError(f"{call.name} is {type(paper).__name__} {paper!r}, not a paper; {IS_A_PAPER}")
    try:
        new = paper(method, **call.settings)
    except Contradiction:
        raise
    except Exception as error:  # a paper is somebody's own code, which may raise anything
        raise StackError(f"{call}: {_said(error)}") from error
    if not isinstance(new, Method):
        raise StackError(f"{call.name} returned {type(new).__name__}; {IS_A_PAPER}")
    return new


IS_A_PAPER = "a paper is a function (method, ...) that returns a Method, e.g. method.firm(...)"


def _said(error: Exception) -> str:
    """What a paper raised. A ValueError is about what it was given; anything else is a mistake in its code, or no paper
    at all."""
    if isinstance(error, ValueError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    more = f"; {IS_A_PAPER}" if last.filename == __file__ else f" ({Path(last.filename).name}, line {last.lineno})"
    return f"{type(error).__name__}: {error}{more}"


def _starts(known: Sequence[Parameter] | None) -> bool:
    """A base can start a stack: its method has a default."""
    return bool(known) and known[0].default is not None  # type: ignore[index]


def _frozen(value: Any) -> Any:
    """Lists as tuples: settings become fields of pieces, which are hashed."""
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value

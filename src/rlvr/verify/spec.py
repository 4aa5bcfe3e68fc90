"""From what a person writes to a verifier: `numeric(last=True)`, a table of settings, `reward.py:f`, or a function.

The text is parsed, never evaluated: a name, or a name with named settings, each a literal or again a verifier, as in
`last_box(inner=numeric(relative=1e-6))`. A function inside another verifier is a text: `last_box(inner='path.py:f')`.
"""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlvr.registry import get
from rlvr.verify.function import Closure
from rlvr.verify.verifier import Verifier


def verifier_from(spec: str | Mapping[str, Any] | Callable[..., Any]) -> Verifier:
    """The verifier that a spec describes.

    A text is `name`, `name(setting=literal, ...)` or `path.py:f` with or without settings; a mapping has the same in
    "name" and its other keys; a verifier is itself; any other callable becomes a `Closure`.

    Raises UnknownName for a name nobody registered, ValueError for the rest; both say what would work.
    """
    if isinstance(spec, str):
        return _from_text(spec)
    if isinstance(spec, Mapping):
        settings = {k: verifier_from(v) if isinstance(v, Mapping) else v for k, v in spec.items() if k != "name"}
        if not isinstance(spec.get("name"), str):
            raise ValueError(
                f'a verifier\'s table needs a name, as in {{name = "numeric", last = true}}; it has {sorted(spec)}'
            )
        return _build(spec["name"], settings)
    if hasattr(spec, "fingerprint") and not inspect.isclass(spec):
        return spec
    if callable(spec):
        return Closure(spec)
    raise ValueError(f"a verifier is a text, a table or a function, not {type(spec).__name__}")


def _from_text(spec: str) -> Verifier:
    path, found, rest = spec.partition(".py:")
    if found and ("(" not in path or Path(f"{path}.py").expanduser().is_file()):
        name, opened, settings = rest.partition("(")
        return _build(f"{path}.py:{name.strip()}", _settings(f"f({settings}", spec) if opened else {})
    return _from_node(_parsed(spec, spec), spec)


def _parsed(text: str, spec: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(
            f"{spec!r} is no verifier; write a name, or a name with settings: numeric(last=True)"
            + (", and a function inside another verifier as a text: inner='path.py:f'" if ".py:" in spec else "")
        ) from None


def _settings(text: str, spec: str) -> dict[str, Any]:
    node = _parsed(text, spec)
    if not isinstance(node, ast.Call):
        raise ValueError(f"{spec!r} is no verifier; write settings as in reward.py:f(right_above=0.5)")
    return _keywords(node, spec)


def _from_node(node: ast.expr, spec: str) -> Verifier:
    if isinstance(node, ast.Name):
        return _build(node.id, {})
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _build(node.func.id, _keywords(node, spec))
    raise ValueError(
        f"{spec!r}: {ast.unparse(node)!r} is no verifier; write a name, or a name with settings: numeric(last=True)"
    )


def _keywords(node: ast.Call, spec: str) -> dict[str, Any]:
    if node.args or any(k.arg is None for k in node.keywords):
        raise ValueError(f"{spec!r}: settings are named: write setting=value for each")
    return {str(k.arg): _value(k.value, spec) for k in node.keywords}


def _value(node: ast.expr, spec: str) -> Any:
    if isinstance(node, ast.Name | ast.Call):
        return _from_node(node, spec)
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise ValueError(
            f"{spec!r}: {ast.unparse(node)} is neither a number, a text, True, False nor a verifier"
        ) from None


def _build(name: str, settings: Mapping[str, Any]) -> Verifier:
    if ".py:" in name:
        return _build("function", {"path": name, **settings})
    make = get("verifier", name)
    parameters = inspect.signature(make).parameters
    known = list(parameters)
    for setting, value in settings.items():
        if setting not in known:
            near = difflib.get_close_matches(setting, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(known) or 'none'}"
            raise ValueError(f"verifier {name!r} has no setting {setting!r}; {hint}")
        if isinstance(value, str) and "Verifier" in str(parameters[setting].annotation):
            settings = {**settings, setting: verifier_from(value)}
    lacking = [p.name for p in inspect.signature(make).parameters.values() if p.default is p.empty]
    if lacking := [setting for setting in lacking if setting not in settings]:
        wanted = ", ".join(f"{setting}=..." for setting in lacking)
        raise ValueError(f"verifier {name!r} needs {', '.join(lacking)}: write {name}({wanted}); rlvr explain {name}")
    try:
        return make(**settings)
    except TypeError as error:
        raise ValueError(f"verifier {name!r}: {error}; its settings are {inspect.signature(make)}") from None

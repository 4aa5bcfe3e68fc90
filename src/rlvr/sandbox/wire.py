"""Values on their way out of a sandbox: one canonical text for each plain value, so that equal texts are equal values.

A value is plain if its type is exactly None, bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set
or frozenset, and so are its parts; the standard library's Counter, OrderedDict and defaultdict travel as dict.
Everything else is foreign and equals nothing: a class that claims to equal all gains nothing by it. Types are part of
the text: True is not 1, 2 is not 2.0, [1] is not (1,). Two kinds of zero are one, nan is nan.

The text is JSON: null, true, 1, "s" and [...] are themselves, other types are one-key objects (see `_TAGS`). Judging
compares texts or parsed trees and never builds the values, so that no hostile hash is ever computed outside.
"""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

DEEPEST = 100  # levels of nesting; ours: far above any test's value, far below the interpreter's own limit
_SMALL = 1 << 63  # larger ints travel in hexadecimal, which has no digit limit and no quadratic conversion
_TAGS = {
    "f": float,
    "i": int,
    "t": tuple,
    "s": set,
    "z": frozenset,
    "d": dict,
    "b": bytes,
    "y": bytearray,
    "c": complex,
}

Tree = Any  # parsed JSON of the form above


class Foreign(TypeError):
    """A value that is not plain; the text is its type's name."""


def encode(value: Any, foreign: Callable[[Any], Tree] | None = None) -> str:
    """The canonical text. `foreign(x)` gives the tree of a part that is not plain. Raises Foreign where it is None."""
    return _dumps(tree_of(value, foreign))


def decode(text: str) -> Any:
    """The value of a text. Raises ValueError for any other text; build values only of your own, or inside."""
    try:
        return value_of(json.loads(text))
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"no value is spelled {text:.100}: {error}") from None


def _dumps(tree: Tree) -> str:
    return json.dumps(tree, separators=(",", ":"), allow_nan=False)


def tree_of(value: Any, foreign: Callable[[Any], Tree] | None = None, depth: int = 0) -> Tree:
    """The parsed form of `encode`'s text."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if depth > DEEPEST:
        raise Foreign(f"nested deeper than {DEEPEST}")
    if kind is int:
        return value if -_SMALL <= value < _SMALL else {"i": hex(value)}
    if kind is float:
        return {"f": repr(value + 0.0)}  # -0.0 + 0.0 is 0.0
    if kind is list:
        return [tree_of(x, foreign, depth + 1) for x in value]
    if kind is tuple:
        return {"t": [tree_of(x, foreign, depth + 1) for x in value]}
    if kind is dict or kind is Counter or kind is OrderedDict or kind is defaultdict:
        pairs = [[tree_of(k, foreign, depth + 1), tree_of(v, foreign, depth + 1)] for k, v in dict.items(value)]
        return {"d": sorted(pairs, key=lambda pair: _dumps(pair[0]))}
    if kind is set or kind is frozenset:
        parts = [tree_of(x, foreign, depth + 1) for x in value]
        return {"s" if kind is set else "z": sorted(parts, key=_dumps)}
    if kind is bytes or kind is bytearray:
        return {"b" if kind is bytes else "y": value.hex()}
    if kind is complex:
        return {"c": [repr(value.real + 0.0), repr(value.imag + 0.0)]}
    if foreign is None:
        raise Foreign(str(kind.__name__))
    return foreign(value)


def value_of(tree: Tree, foreign: Callable[[int], Any] | None = None) -> Any:
    """The value of a parsed text; `foreign(handle)` gives the stand-in of {"h": handle}."""
    if isinstance(tree, list):
        return [value_of(x, foreign) for x in tree]
    if not isinstance(tree, dict):
        return tree
    ((tag, body),) = tree.items()
    if tag == "h" and foreign is not None:
        return foreign(body)
    kind = _TAGS[tag]
    if tag == "d":
        return {value_of(k, foreign): value_of(v, foreign) for k, v in body}
    if tag in "tsz":
        return kind(value_of(x, foreign) for x in body)
    if tag in "by":
        return kind(bytes.fromhex(body))
    if tag == "c":
        return complex(float(body[0]), float(body[1]))
    return int(body, 16) if tag == "i" else float(body)


def same(
    got: str, wanted: str, tolerance: float = 0.0, ints_as_floats: bool = False, tuples_as_lists: bool = False
) -> bool:
    """Whether two texts are equal values; `got` may be hostile.

    `tolerance` holds between two floats, relative and absolute. `ints_as_floats` lets an int and a float be compared as
    numbers; bool never is a number. `tuples_as_lists` forgets which of the two a sequence is.
    """
    if got == wanted:
        return True
    if not (tolerance or ints_as_floats or tuples_as_lists):
        return False
    try:
        return _same(json.loads(got), json.loads(wanted), tolerance, ints_as_floats, tuples_as_lists)
    except (ValueError, TypeError, RecursionError, OverflowError):
        return False  # not a text of `encode`


def _same(a: Tree, b: Tree, tolerance: float, ints: bool, tuples: bool) -> bool:
    if tuples:
        a, b = _as_list(a), _as_list(b)
    x, y = _number(a), _number(b)
    if x is not None and y is not None:
        if type(x) is type(y) is int or not (ints or type(x) is type(y)):
            return type(x) is type(y) and x == y
        if x == y or (x != x and y != y):
            return True
        return bool(tolerance) and math.isclose(x, y, rel_tol=tolerance, abs_tol=tolerance)
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(_same(x, y, tolerance, ints, tuples) for x, y in zip(a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[tag], b[tag], tolerance, ints, tuples) for tag in a)
    return bool(a == b)


def _as_list(tree: Tree) -> Tree:
    return tree["t"] if isinstance(tree, dict) and tree.keys() == {"t"} else tree


def _number(tree: Tree) -> int | float | None:
    if type(tree) is int:
        return tree
    if isinstance(tree, dict) and len(tree) == 1:
        if isinstance(tree.get("f"), str):
            return float(tree["f"])
        if isinstance(tree.get("i"), str) and len(tree["i"]) < 1_000_000:
            return int(tree["i"], 16)
    return None

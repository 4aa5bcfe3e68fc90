"""JSON documents that fit a schema, and documents that miss it in one place.

A document is made from its schema, so it fits by construction; a fault is put in by a rule that names the keyword it
breaks.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

SCHEMAS = 24  # different ones; ours


class Document(NamedTuple):
    schema: str
    category: str
    rewrite: str
    text: str
    valid: bool


def questions(seed: int) -> Iterator[Document]:
    """Fitting and faulty documents, each spelled in several ways."""
    r = random.Random(f"{seed}:documents")
    for _ in range(SCHEMAS):
        schema, document = _record(r)
        told = json.dumps(schema)
        yield from _spelled(told, document)
        for keyword, rewrite, faulty in _faults(schema, document):
            yield Document(told, keyword, rewrite, json.dumps(faulty), False)
        yield from _broken(told, document)


def _record(r: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """A random object schema and a document that fits it."""
    low = r.randint(-20, 20)
    words = r.sample(["red", "green", "blue", "black", "white"], 3)
    tags = r.sample(["a", "b", "c", "d", "e", "f"], r.randint(2, 4))
    properties: dict[str, tuple[Any, Any]] = {
        "count": ({"type": "integer", "minimum": low, "maximum": low + 50}, low + r.randint(0, 50)),
        "size": ({"type": "number", "exclusiveMinimum": 0}, r.randint(1, 400) / 8),
        "color": ({"enum": words}, r.choice(words)),
        "name": ({"type": "string", "minLength": 2, "maxLength": 8}, "x" * r.randint(2, 8)),
        "tags": (
            {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 4, "uniqueItems": True}, tags,
        ),
        "done": ({"type": "boolean"}, r.random() < 0.5),
        "step": ({"type": "integer", "multipleOf": 3}, 3 * r.randint(1, 30)),
        "place": (
            {
                "type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"],
                "additionalProperties": False,
            },
            {"x": r.randint(0, 9)},
        ),
        "none": ({"type": ["null", "integer"]}, None),
    }  # fmt: skip
    chosen = r.sample(sorted(properties), r.randint(4, 7))
    schema = {
        "type": "object",
        "properties": {name: properties[name][0] for name in chosen},
        "required": chosen[:-1],
        "additionalProperties": False,
    }
    return schema, {name: properties[name][1] for name in chosen}


def _spelled(schema: str, document: dict[str, Any]) -> Iterator[Document]:
    compact, indented = json.dumps(document), json.dumps(document, indent=2)
    backwards = json.dumps(dict(reversed(document.items())))
    yield Document(schema, "identity", "as it is", compact, True)
    yield Document(schema, "whitespace", "indented", indented, True)
    yield Document(schema, "whitespace", "tight", json.dumps(document, separators=(",", ":")), True)
    yield Document(schema, "whitespace", "lines around", f"\n\n{compact}\n", True)
    yield Document(schema, "order_free", "keys turned round", backwards, True)
    yield Document(schema, "escapes", "letters escaped", compact.replace("x", "\\u0078"), True)
    yield Document(schema, "block", "in a block", f"```json\n{indented}\n```", True)
    yield Document(schema, "block", "behind words", f"Here it is:\n```json\n{compact}\n```\nDone.", True)
    yield Document(
        schema, "block", "the last of two", f'```json\n{{"a": 1}}\n```\nBetter:\n```json\n{compact}\n```', True
    )
    optional = list(json.loads(schema)["properties"])[-1]
    without = {k: v for k, v in document.items() if k != optional}
    yield Document(schema, "optional", "without the optional key", json.dumps(without), True)
    if isinstance(document.get("count"), int):
        whole = compact.replace(f'"count": {document["count"]}', f'"count": {document["count"]}.0')
        yield Document(schema, "number_form", "an integer as 7.0", whole, True)


def _faults(schema: dict[str, Any], document: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(keyword broken, what was done, document)."""
    required = schema["required"][0]
    yield "required", f"without {required}", {k: v for k, v in document.items() if k != required}
    yield "additionalProperties", "one key more", document | {"extra": 1}
    yield "type", "a list around it", [document]
    for name, x in document.items():
        for keyword, bad in _bad_values(name, schema["properties"][name], x):
            yield keyword, f"{name}: {bad!r}"[:60], document | {name: bad}


def _bad_values(name: str, part: dict[str, Any], x: Any) -> Iterator[tuple[str, Any]]:
    if "minimum" in part:
        yield "minimum", part["minimum"] - 1
        yield "maximum", part["maximum"] + 1
        yield "type", str(x)
        yield "type", x + 0.5
        yield "type", True
    if "exclusiveMinimum" in part:
        yield "exclusiveMinimum", 0
        yield "exclusiveMinimum", -1
    if "enum" in part:
        yield "enum", x.upper()
        yield "enum", None
    if "minLength" in part:
        yield "minLength", "x"
        yield "maxLength", "x" * 9
    if name == "tags":
        yield "minItems", []
        yield "maxItems", ["a", "b", "c", "d", "e"]
        yield "uniqueItems", [x[0], x[0]]
        yield "items", [*x[:1], 7]
    if name == "done":
        yield "type", int(x)
        yield "type", str(x).lower()
    if name == "step":
        yield "multipleOf", x + 1
    if name == "place":
        yield "required", {}
        yield "additionalProperties", {"x": 1, "y": 2}
        yield "type", {"x": "1"}
    if name == "none":
        yield "type", "null"


def _broken(schema: str, document: dict[str, Any]) -> Iterator[Document]:
    """What is no JSON at all."""
    compact = json.dumps(document)
    for rewrite, text in (
        ("cut short", compact[:-1]),
        ("single quotes", compact.replace('"', "'")),
        ("a comma too much", compact[:-1] + ",}"),
        ("a comment", compact[:-1] + " /* so */}"),
        ("words behind", compact + " and that is all"),
        ("a key twice", compact[:-1] + ', "extra": 1, "extra": 2}'),
        ("NaN", '{"count": NaN}'),
        ("empty", ""),
        ("only words", "I cannot answer."),
        ("deep", "[" * 100_000),
        ("a long number", '{"count": ' + "9" * 100_000 + "}"),
        ("a large exponent", '{"size": 1e999999999}'),
    ):
        yield Document(schema, "syntax", rewrite, text, False)

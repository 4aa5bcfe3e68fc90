"""JSON documents that fit a schema, and documents that miss it in one place.

A document is made from its schema, so it fits by construction; a fault is put in by a rule that names the keyword it
breaks. The hostile ones are made to hang a reader, or to be read in two ways.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

SCHEMAS = 24  # different ones; ours
# For the hostile ones: everything that costs a checker work. Of a tree, of a list without two equal items, of a choice.
HOSTILE = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 0, "maximum": 1000},
        "size": {"type": "number", "multipleOf": 0.5, "maximum": 1000},
        "name": {"type": "string", "maxLength": 8},
        "tags": {"type": "array", "uniqueItems": True, "maxItems": 4},
        "tree": {"$ref": "#/$defs/tree"},
        "one": {"oneOf": [{"type": "array", "items": {"type": "integer"}}, {"const": 1}]},
    },
    "required": ["count"],
    "additionalProperties": False,
    "$defs": {"tree": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "boolean"}]}}},
}


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


def hostile() -> Iterator[Document]:
    """None fits HOSTILE, also not for a reader without limits, and each must be refused soon."""
    told = json.dumps(HOSTILE)
    for category, made in (("two_ways", _two_ways()), ("numbers", _numbers()), ("large", _large())):
        for rewrite, text in made:
            yield Document(told, category, rewrite, text, False)


def _two_ways() -> Iterator[tuple[str, str]]:
    """What one reader takes for a fitting document and another for none; strictly it is no JSON, or it does not fit."""
    fits = '{"count": 1}'
    yield "a key twice, the last one fits", '{"count": "x", "count": 1}'
    yield "a key twice, the first one fits", '{"count": 1, "count": "x"}'
    yield "a key twice, once escaped", '{"count": "x", "\\u0063ount": 1}'
    yield "a key twice, deep inside", '{"count": 1, "tree": [{"a": 1, "a": 2}]}'
    yield "a byte order mark", "\ufeff" + fits
    yield "a byte order mark in a block", f"```json\n\ufeff{fits}\n```"
    yield "a zero byte behind", fits + "\x00"
    yield "a vertical tab before", "\x0b" + fits + "{"
    yield "a no-break space inside", '{"count":\u00a01}'
    yield "a key in full width", '{"\uff43ount": 1}'
    yield "a digit of another script", '{"count": \u0661}'
    yield "two documents", fits + fits
    yield "two lines of documents", f"{fits}\n{fits}"
    yield "a fitting block taken back", f"```json\n{fits}\n```\nNo:\n```json\n[]\n```"
    yield "a text that holds a document", json.dumps(fits)
    yield "a raw line end in a text", '{"count": 1, "name": "a\nb"}'
    yield "a control character in a text", '{"count": 1, "name": "\x07"}'
    yield "an unknown escape", '{"count": 1, "name": "\\x41"}'
    yield "half an escape", '{"count": 1, "name": "\\u00"}'
    yield "Python", "{'count': 1, 'name': None}"
    yield "JavaScript", "{count: 1}"
    yield "YAML", "count: 1"
    yield "a comment in front", "// so\n" + fits
    yield "a prototype", '{"count": 1, "__proto__": {"x": 1}}'
    yield "a reference", '{"$ref": "#"}'
    yield "another schema", '{"$schema": "x", "type": "object", "count": 1}'


def _numbers() -> Iterator[tuple[str, str]]:
    for written in (
        "NaN", "Infinity", "-Infinity", "nan", "1e401", "-1e400", "1e999999999", "1e-999999999", "01", "+1", ".5", "1.",
        "0x10", "1_000", "1e", "--1", "1.5", "0.1e", "-1", "1e-1", "true", '"1"', "9" * 5_000 + ".5", "-" + "9" * 5_000,
        "9" * 3_000_000, "1." + "0" * 50_000 + "1", "0." + "9" * 3_000_000, "1e" + "9" * 1_000_000,
    ):  # fmt: skip
        yield f"a count of {written[:12]}, {len(written)} characters", f'{{"count": {written}}}'
    yield "a size beyond every number", '{"count": 1, "size": 1e401}'
    yield "a size no multiple", '{"count": 1, "size": 1e-300}'
    yield "a size no multiple, long", f'{{"count": 1, "size": 0.{"5" * 50_000}}}'


def _large() -> Iterator[tuple[str, str]]:
    """Megabytes, and depths at which a recursive reader falls over."""
    for n in (100, 1_000, 50_000):
        yield f"lists, {n} deep", '{"count": 1, "tree": ' + "[" * n + '"x"' + "]" * n + "}"
        yield f"tables, {n} deep", '{"count": 1, "tree": ' + '{"a":' * n + "1" + "}" * n + "}"
        yield f"lists, {n} deep, never closed", '{"count": 1, "tree": ' + "[" * n
    yield "a name of three million letters", f'{{"count": 1, "name": "{"x" * 3_000_000}"}}'
    yield "a name of 90 000 letters", f'{{"count": 1, "name": "{"x" * 90_000}"}}'
    yield "a text never closed", '{"count": 1, "name": "' + "x" * 3_000_000
    yield "escapes without end", '{"count": 1, "name": "' + "\\" * 1_500_000
    yield "escaped letters", '{"count": 1, "name": "' + "\\u0041" * 15_000 + '"}'
    yield "20 000 tags", '{"count": 1, "tags": ' + json.dumps(list(range(20_000))) + "}"
    yield "equal tags of 10 000 items", '{"count": 1, "tags": ' + json.dumps([[0] * 10_000] * 2) + "}"
    yield "tags that are equal numbers", '{"count": 1, "tags": [1, 1.0]}'
    yield "8000 keys", "{" + ", ".join(f'"k{i}": 1' for i in range(8_000)) + "}"
    yield "the same key 9000 times", "{" + ", ".join(['"count": 1'] * 9_000) + "}"
    yield "a bush for anyOf", '{"count": 1, "tree": ' + json.dumps(_bush(5)) + "}"
    yield "a list for oneOf", '{"count": 1, "one": ' + json.dumps([0] * 20_000 + ["x"]) + "}"
    for piece in (
        "[",
        "{",
        '"',
        "[1,",
        '{"a":',
        "```json\n",
        "```json\n{}x\n```\n",
        " ",
        "\n",
        "-",
        "1",
        "\ufeff",
        "\x00",
    ):
        yield f"{piece!r}, three million characters", piece * (3_000_000 // len(piece))


def _bush(depth: int) -> list[Any]:
    """A tree whose one fault is its last leaf."""
    leaf: Any = "x"
    for _ in range(depth):
        leaf = [[True] * 3] * 5 + [leaf]
    return [leaf] * 3

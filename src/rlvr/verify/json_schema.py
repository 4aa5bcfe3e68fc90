"""The `json_schema` verifier: the text is JSON that a schema describes.

A bounded part of JSON Schema 2020-12, checked here without regular expressions: every keyword below is enforced, and a
schema with any other keyword is refused rather than half obeyed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from rlvr.records import Task, Verdict
from rlvr.registry import register
from rlvr.verify.blocks import last_block
from rlvr.verify.verifier import LONGEST_ANSWER, LONGEST_TEXT, fingerprint, right, unknown, wrong

DEEPEST = 64  # levels of a document; ours: an answer has five
MOST_STEPS = 100_000  # schemas applied to one document; ours
_LARGEST_EXPONENT = 400

_NOTES = {
    "$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples", "deprecated",
    "readOnly", "writeOnly", "format",
}  # fmt: skip
_LISTS = {"allOf", "anyOf", "oneOf", "prefixItems"}
_ONES = {"not", "items", "additionalProperties", "propertyNames", "contains"}
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_COUNTS = {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
_OTHERS = {"type", "enum", "const", "properties", "required", "uniqueItems", "$ref"}
_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda x: x is None,
    "boolean": lambda x: isinstance(x, bool),
    "integer": lambda x: _is_number(x) and x == int(x),
    "number": lambda x: _is_number(x),
    "string": lambda x: isinstance(x, str),
    "array": lambda x: isinstance(x, list),
    "object": lambda x: isinstance(x, dict),
}


class BadSchema(ValueError):
    """The schema cannot be obeyed; the text says where and why."""


class Invalid(Exception):
    """The document does not fit; the text says where and why."""


@register("verifier", "json_schema")
@dataclass(frozen=True, slots=True)
class JsonSchema:
    """Right iff the last JSON block, or the whole text where there is none, is JSON that fits the schema of the gold.

    The gold is the schema as a table or as JSON text. Documents are read strictly: no duplicate keys, no NaN. Reasons:
    "valid", "invalid: where: what", "unparsable", "no_answer", "over_limit" (characters, depth, or steps); unknown:
    "bad_gold: ...", among others for a keyword that is not supported (pattern, dependent..., if, unevaluated...).
    """

    @property
    def fingerprint(self) -> str:
        return fingerprint("json_schema", self)

    def __call__(self, text: str, task: Task) -> Verdict:
        try:
            schema = read_json(task.answer) if isinstance(task.answer, str) else task.answer
            check_schema(schema)
        except ValueError as error:
            return unknown(f"bad_gold: {error}"[:300])
        if len(text) > LONGEST_TEXT:
            return wrong("over_limit")
        block = last_block(text, ("json",))
        answer = (text if block is None else block).strip()
        if not answer:
            return wrong("no_answer")
        if len(answer) > LONGEST_ANSWER:
            return wrong("over_limit", answer)
        try:
            document = read_json(answer)
        except ValueError:
            return wrong("unparsable", answer)
        try:
            Checker(schema).check(document, schema, "$")
        except BadSchema as error:
            return unknown(f"bad_gold: {error}"[:300], answer)
        except Invalid as fault:
            return wrong(str(fault)[:300], answer)
        except RecursionError:
            return wrong("over_limit", answer)
        return right(answer, "valid")


def read_json(text: str) -> Any:
    """JSON with exact numbers. Raises ValueError also for duplicate keys, NaN, and what is too deep or too large."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_decimal)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _decimal(text: str) -> Decimal:
    number = Decimal(text)
    if number and abs(number.adjusted()) > _LARGEST_EXPONENT:
        raise ValueError(f"{text:.40} is out of range")
    return number


def _is_number(x: Any) -> bool:
    return isinstance(x, int | Decimal | float) and not isinstance(x, bool)


def check_schema(schema: Any, where: str = "#", depth: int = 0) -> None:
    """Raises BadSchema for anything that `Checker` would not enforce."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise BadSchema(f"{where}: a schema is a table, true or false, not {type(schema).__name__}")
    if depth > DEEPEST:
        raise BadSchema(f"{where}: the schema is nested too deep")
    for key, value in schema.items():
        here = f"{where}/{key}"
        if key in _LISTS:
            if not (isinstance(value, list) and value):
                raise BadSchema(f"{here} is a list of schemas")
            for i, part in enumerate(value):
                check_schema(part, f"{here}/{i}", depth + 1)
        elif key in _ONES:
            check_schema(value, here, depth + 1)
        elif key in ("properties", "$defs", "definitions"):
            if not isinstance(value, Mapping):
                raise BadSchema(f"{here} is a table of schemas")
            for name, part in value.items():
                check_schema(part, f"{here}/{name}", depth + 1)
        elif key in _NUMBERS | _COUNTS:
            whole = key in _COUNTS and not (isinstance(value, int) and value >= 0)
            if not _is_number(value) or whole or (key == "multipleOf" and value <= 0):
                raise BadSchema(f"{here} is a number, not {value!r}")
        elif key == "type":
            for name in value if isinstance(value, list) else [value]:
                if name not in _TYPES:
                    raise BadSchema(f"{here}: there is no type {name!r}; types are {', '.join(_TYPES)}")
        elif key in ("enum", "required"):
            if not isinstance(value, list) or (key == "required" and not all(isinstance(x, str) for x in value)):
                raise BadSchema(f"{here} is a list")
        elif key not in _OTHERS | _NOTES:
            raise BadSchema(f"{where}: the keyword {key!r} is not supported")


class Checker:
    """Applies a schema's parts to a document, in bounded depth and number of steps."""

    def __init__(self, root: Any):
        self.root, self.steps = root, 0

    def check(self, x: Any, schema: Any, where: str, depth: int = 0, refs: tuple[str, ...] = ()) -> None:
        """Raises Invalid with the first fault. `refs`: references followed at this very place."""
        self.steps += 1
        if self.steps > MOST_STEPS or depth > DEEPEST:
            raise Invalid("over_limit")
        if isinstance(schema, bool):
            _require(schema, where, "nothing is allowed here")
            return
        if "$ref" in schema:
            if schema["$ref"] in refs:
                raise BadSchema(f"$ref {schema['$ref']} refers to itself")
            self.check(x, self._referred(schema["$ref"]), where, depth, (*refs, schema["$ref"]))
        if "type" in schema:
            names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            _require(any(_TYPES[name](x) for name in names), where, f"not of type {' or '.join(names)}")
        if "const" in schema:
            _require(_canonical(x) == _canonical(schema["const"]), where, "not the constant")
        if "enum" in schema:
            _require(_canonical(x) in map(_canonical, schema["enum"]), where, "not one of the values")
        for part in schema.get("allOf", ()):
            self.check(x, part, where, depth, refs)
        if "anyOf" in schema:
            _require(self._fitting(x, schema["anyOf"], where, depth, refs) > 0, where, "fits none of anyOf")
        if "oneOf" in schema:
            count = self._fitting(x, schema["oneOf"], where, depth, refs)
            _require(count == 1, where, f"fits {count} of oneOf")
        if "not" in schema:
            _require(not self._fitting(x, [schema["not"]], where, depth, refs), where, "fits what it must not")
        if _is_number(x):
            _check_number(x, schema, where)
        elif isinstance(x, str):
            _check_count(len(x), schema, "Length", where)
        elif isinstance(x, list):
            self._check_list(x, schema, where, depth)
        elif isinstance(x, dict):
            self._check_object(x, schema, where, depth)

    def _fitting(self, x: Any, schemas: list[Any], where: str, depth: int, refs: tuple[str, ...]) -> int:
        count = 0
        for schema in schemas:
            try:
                self.check(x, schema, where, depth, refs)
                count += 1
            except Invalid as fault:
                if str(fault) == "over_limit":
                    raise
        return count

    def _check_list(self, x: list[Any], schema: Mapping[str, Any], where: str, depth: int) -> None:
        _check_count(len(x), schema, "Items", where)
        first = schema.get("prefixItems", [])
        for i, part in enumerate(x):
            if i < len(first) or "items" in schema:
                self.check(part, first[i] if i < len(first) else schema["items"], f"{where}[{i}]", depth + 1)
        if "contains" in schema:
            found = any(self._fitting(part, [schema["contains"]], where, depth + 1, ()) for part in x)
            _require(found, where, "contains nothing that fits")
        if schema.get("uniqueItems"):
            _require(len(set(map(_canonical, x))) == len(x), where, "has an item twice")

    def _check_object(self, x: dict[str, Any], schema: Mapping[str, Any], where: str, depth: int) -> None:
        _check_count(len(x), schema, "Properties", where)
        for name in schema.get("required", ()):
            _require(name in x, where, f"has no {name!r}")
        known = schema.get("properties", {})
        for name, part in x.items():
            if "propertyNames" in schema:
                self.check(name, schema["propertyNames"], f"{where}: the name {name!r}", depth + 1)
            if name in known:
                self.check(part, known[name], f"{where}.{name}", depth + 1)
            elif "additionalProperties" in schema:
                self.check(part, schema["additionalProperties"], f"{where}.{name}", depth + 1)

    def _referred(self, reference: Any) -> Any:
        place = self.root
        if not (isinstance(reference, str) and reference.startswith("#")):
            raise BadSchema(f"$ref {reference!r}: only references into the schema itself, as #/$defs/name")
        for name in reference[1:].split("/")[1:]:
            place = place.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(place, Mapping) else None
        if not isinstance(place, Mapping | bool):
            raise BadSchema(f"$ref {reference!r} leads nowhere")
        check_schema(place)
        return place


def _require(holds: bool, where: str, fault: str) -> None:
    if not holds:
        raise Invalid(f"invalid: {where}: {fault}")


def _check_number(x: Any, schema: Mapping[str, Any], where: str) -> None:
    value = Fraction(x)
    limits: dict[str, Callable[[Fraction, Fraction], bool]] = {
        "minimum": lambda a, b: a >= b,
        "maximum": lambda a, b: a <= b,
        "exclusiveMinimum": lambda a, b: a > b,
        "exclusiveMaximum": lambda a, b: a < b,
        "multipleOf": lambda a, b: (a / b).denominator == 1,
    }
    for name, holds in limits.items():
        if name in schema:  # a float of a table means the decimal that it is written as
            limit = Fraction(str(schema[name]))
            _require(holds(value, limit), where, f"{name} is {schema[name]}")


def _check_count(count: int, schema: Mapping[str, Any], what: str, where: str) -> None:
    _require(count >= schema.get(f"min{what}", 0), where, f"min{what} is {schema.get(f'min{what}')}")
    _require(count <= schema.get(f"max{what}", count), where, f"max{what} is {schema.get(f'max{what}')}")


def _canonical(x: Any) -> str:
    """Equal texts are equal documents: 1 is 1.0, true is not 1, the order of keys does not matter."""
    if _is_number(x):
        value = Fraction(str(x))
        return f"{value.numerator}/{value.denominator}"
    if isinstance(x, list):
        return f"[{','.join(map(_canonical, x))}]"
    if isinstance(x, Mapping):
        return "{" + ",".join(f"{json.dumps(k)}:{_canonical(v)}" for k, v in sorted(x.items())) + "}"
    return json.dumps(x)

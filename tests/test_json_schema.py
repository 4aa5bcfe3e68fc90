"""The `json_schema` verifier: every keyword with a document that fits and one that does not, and hostile documents."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from rlvr.records import Task
from rlvr.verify.json_schema import BadSchema, JsonSchema, check_schema
from rlvr.verify.spec import verifier_from

TREE = {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}},
        "additionalProperties": False}}}  # fmt: skip
KEYWORDS: list[tuple[Any, str, str]] = [
    ({"type": "integer"}, "7", "7.5"),
    ({"type": "integer"}, "7.0", "true"),
    ({"type": "number"}, "1e3", '"1"'),
    ({"type": "boolean"}, "true", "1"),
    ({"type": ["null", "string"]}, "null", "0"),
    ({"type": "array"}, "[]", "{}"),
    ({"type": "object"}, "{}", "[]"),
    ({"const": 1}, "1.0", "true"),
    ({"const": {"a": [1, {"b": None}]}}, '{"a": [1, {"b": null}]}', '{"a": [1, {"b": 0}]}'),
    ({"enum": ["a", 2, None]}, "2", "false"),
    ({"minimum": 2}, "2", "1.99"),
    ({"maximum": 0.3}, "0.3", "0.30000000000000000001"),
    ({"exclusiveMinimum": 2}, "2.01", "2"),
    ({"exclusiveMaximum": 2}, "1.99", "2"),
    ({"multipleOf": 0.1}, "0.3", "0.35"),
    ({"multipleOf": 3}, "-9", "10"),
    ({"minLength": 2}, '"é1"', '"é"'),
    ({"maxLength": 2}, '"ab"', '"abc"'),
    ({"minItems": 1}, "[0]", "[]"),
    ({"maxItems": 1}, "[0]", "[0, 0]"),
    ({"uniqueItems": True}, '[1, true, "1", [1], {"a": 1}]', '[{"a": 1, "b": 2}, {"b": 2, "a": 1.0}]'),
    ({"items": {"type": "integer"}}, "[1, 2]", "[1, null]"),
    ({"prefixItems": [{"const": 1}], "items": {"const": 2}}, "[1, 2, 2]", "[1, 2, 1]"),
    ({"prefixItems": [{"const": 1}], "items": False}, "[1]", "[1, 2]"),
    ({"contains": {"const": 3}}, "[1, 3]", "[1, 2]"),
    ({"required": ["a"]}, '{"a": null}', '{"b": 1}'),
    ({"properties": {"a": {"type": "string"}}}, '{"a": "", "b": 1}', '{"a": 1}'),
    ({"properties": {"a": True}, "additionalProperties": False}, '{"a": 1}', '{"a": 1, "b": 2}'),
    ({"additionalProperties": {"type": "integer"}}, '{"x": 1}', '{"x": "1"}'),
    ({"propertyNames": {"maxLength": 1}}, '{"a": 1}', '{"ab": 1}'),
    ({"minProperties": 1}, '{"a": 1}', "{}"),
    ({"maxProperties": 1}, '{"a": 1}', '{"a": 1, "b": 1}'),
    ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, "1.5", "3"),
    ({"anyOf": [{"const": 1}, {"type": "string"}]}, '"x"', "2"),
    ({"oneOf": [{"minimum": 1}, {"maximum": 2}]}, "3", "1.5"),
    ({"not": {"type": "null"}}, "0", "null"),
    (TREE, '{"next": {"next": {}}}', '{"next": {"next": {"other": 1}}}'),
    (True, "{}", "not json"),
    ({"not": True}, "", "1"),
    (False, "", "1"),
]  # fmt: skip


def outcome(schema: Any, text: str) -> tuple[str, str]:
    found = JsonSchema()(text, Task("t1", "Answer in JSON.", schema))
    return found.label, found.reason


@pytest.mark.parametrize(("schema", "fits", "fails"), KEYWORDS)
def test_every_keyword_is_enforced(schema: Any, fits: str, fails: str) -> None:
    if fits:
        assert outcome(schema, fits) == ("right", "valid")
        assert outcome(json.dumps(schema), f"So:\n```json\n{fits}\n```") == ("right", "valid")
    assert outcome(schema, fails)[0] == "wrong"


def test_the_reason_says_where() -> None:
    schema = {"properties": {"a": {"items": {"type": "integer"}}}}
    assert outcome(schema, '{"a": [1, "x"]}') == ("wrong", "invalid: $.a[1]: not of type integer")
    assert outcome({"required": ["a"]}, "{}") == ("wrong", "invalid: $: has no 'a'")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_answer"), ("```json\n```", "no_answer"), ("{'a': 1}", "unparsable"),
        ('{"a": 1, "a": 2}', "unparsable"),
        ("NaN", "unparsable"), ("[1,]", "unparsable"), ("{} {}", "unparsable"), ("1e999", "unparsable"),
        ("[" * 100_000, "unparsable"), ("[" * 500 + "]" * 500, "over_limit"), ("9" * 90_000, "unparsable"),
        ('"' + "x" * 100_000 + '"', "over_limit"), ("Here it is: {}", "unparsable"),
    ],
)  # fmt: skip
def test_what_is_no_document_is_wrong(text: str, reason: str) -> None:
    assert outcome({"type": ["object", "array", "number"], "items": {"$ref": "#"}}, text) == ("wrong", reason)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"pattern": "a+"}, "'pattern' is not supported"), ({"properties": {"a": {"if": {}}}}, "#/properties/a"),
        ({"type": "int"}, "no type 'int'"), ({"minLength": -1}, "is a number"), ({"minimum": True}, "is a number"),
        ({"multipleOf": 0}, "is a number"), ({"items": 3}, "a schema is a table"), ({"anyOf": []}, "list of schemas"),
        (None, "a schema is a table"), ("{", "Expecting"), ({"$ref": "#/$defs/x"}, "leads nowhere"),
        ({"required": [1]}, "is a list"),
        ({"$ref": "http://x/y"}, "only references into"), ({"$ref": "#"}, "refers to itself"),
        ({"properties": []}, "table"),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}, "refers to itself"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_obeyed_is_unknown(schema: Any, reason: str) -> None:
    label, said = outcome(schema, "{}")
    assert label == "unknown"
    assert said.startswith("bad_gold: ")
    assert reason in said


def test_checking_is_bounded() -> None:
    bomb = {
        "$defs": {f"n{i}": {"anyOf": [{"$ref": f"#/$defs/n{i + 1}"}] * 10} for i in range(20)},
        "$ref": "#/$defs/n0",
    }
    bomb["$defs"]["n20"] = False
    began = time.process_time()
    assert outcome(bomb, "1") == ("wrong", "over_limit")
    assert time.process_time() - began < 5
    assert outcome({"items": {"uniqueItems": True}}, json.dumps([[i] for i in range(9_000)]))[0] == "right"


def test_it_is_known_by_name() -> None:
    assert verifier_from("json_schema") == JsonSchema()
    with pytest.raises(BadSchema, match="#/prefixItems/0/contains"):
        check_schema({"prefixItems": [{"contains": 1}], "items": {"type": 1}})

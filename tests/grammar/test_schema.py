"""Schemas are read into what a grammar can hold; what cannot be held is refused by its name."""

from __future__ import annotations

import contextlib
import json
import math
import random
from typing import Any

import pytest

from worker.errors import RequestError
from worker.grammar.keywords import HELD, LOOK_AROUND, NOT_HELD
from worker.grammar.schema import SchemaReader

BAD: dict[str, Any] = {
    "nested": json.loads('{"items":' * 100 + "{}" + "}" * 100),
    "nested values": {"const": json.loads("[" * 100 + "]" * 100)},
    "no schema": {"items": 3},
    "items": {"minItems": "2"},
    "a negative count": {"minItems": -1},
    "a large count": {"minItems": 10**9},
    "properties": {"properties": [{}]},
    "anyOf": {"anyOf": []},
    "enum": {"enum": []},
    "a remote reference": {"$ref": "https://example.com/schema"},
    "an anchor": {"$ref": "#here"},
    "nowhere": {"$ref": "#/$defs/a"},
    "itself": {"$ref": "#"},
    "itself, by an empty name": {"$ref": ""},
    "a part of itself": {"allOf": [{"$ref": "#"}]},
    "a choice of itself": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    "a circle": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"oneOf": [{"$ref": "#/$defs/a"}]}},
    },
    "a chain": {
        "$ref": "#/$defs/0",
        "$defs": {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(900)} | {"900": {}},
    },
    "a number": {"const": 2**63},
    "a rounded number": {"const": 2**60 + 3},
    "a bound": {"minimum": 2**63},
    "a multiple": {"multipleOf": 1234567},
    "many schemas": {"anyOf": [{}] * 20_001},
}


@pytest.mark.parametrize("name", BAD)
def test_bad_schema(name: str) -> None:
    """It is refused under the client's name for it."""
    with pytest.raises(RequestError) as caught:
        SchemaReader(BAD[name], "field")
    assert caught.value.param == "field"
    assert caught.value.message.startswith("field ")


# Values that neither say nothing nor can be said otherwise.
BINDING: dict[str, Any] = {
    "uniqueItems": True,
    "not": {"const": 1},
    "if": {"const": 1},
    "contains": {"const": 1},
    "minContains": 2,
    "maxContains": 2,
    "propertyNames": {"pattern": "a", "minLength": 2},
    "unevaluatedItems": False,
    "unevaluatedProperties": False,
}
BESIDE: dict[str, Any] = {
    "if": {"then": {"const": 1}},
    "minContains": {"contains": {"const": 1}},
    "maxContains": {"contains": {"const": 1}},
    "unevaluatedItems": {"anyOf": [{"prefixItems": [{}]}]},
    "unevaluatedProperties": {"anyOf": [{"if": {}, "then": {}}, {}]},
}


@pytest.mark.parametrize("keyword", sorted(NOT_HELD))
def test_keywords_that_no_grammar_holds(keyword: str) -> None:
    """Each is refused by its name, and left out and named where that is allowed."""
    held: dict[str, Any] = {"description": "any"}
    schema = held | {keyword: BINDING.get(keyword, "a")} | BESIDE.get(keyword, {})
    with pytest.raises(RequestError, match=r"^field uses \w+ in a way"):
        SchemaReader(schema, "field")
    reader = SchemaReader(schema, "field", without=frozenset())
    assert keyword not in reader.text
    assert keyword in reader.dropped


def test_some_are_trusted() -> None:
    """What a model may be trusted with is left out where the client did not say strict."""
    schema = {"type": "array", "uniqueItems": True, "items": {"pattern": "a(?=b)"}}
    reader = SchemaReader(schema, "field", strict=False)
    assert reader.schema == {"type": "array", "items": {}}
    assert reader.dropped == ["uniqueItems", LOOK_AROUND]
    with pytest.raises(RequestError, match="uses not"):
        SchemaReader({"not": {"const": 1}}, "field", strict=False)


def test_a_part_that_is_wrong_is_left_out_alone() -> None:
    """Where everything may be left out, what stands beside it is held."""
    schema: dict[str, Any] = {
        "properties": {
            "a": {"$ref": "#/nowhere"},
            "b": {"type": "any", "minLength": 2},
            "c": {"$ref": "#/$defs/c"},
            "d": {"type": "integer"},
        },
        "required": ["d"],
        "$defs": {"c": {"$ref": "#/$defs/c"}},
    }
    reader = SchemaReader(schema, "field", without=frozenset())
    parts = reader.schema["properties"]
    assert parts["a"] == {}
    assert parts["b"] == {"minLength": 2}
    assert parts["d"] == {"type": "integer"}
    assert reader.schema["$defs"] == {"r0": True}
    assert reader.schema["required"] == ["d"]


def test_annotations_are_passed_over() -> None:
    """What says nothing about what is valid is left out; what does stays."""
    held = {"type": "array", "items": True, "minItems": 2}
    more: dict[str, Any] = {
        "title": "t",
        "examples": [1],
        "x-y": {},
        "uniqueItems": False,
        "format": "int32",
    }
    assert SchemaReader(held | more, "field").schema == held


@pytest.mark.parametrize("root", ["#", "", "#/"])
def test_references_become_definitions(root: str) -> None:
    """Each place that is referred to is read once; escapes in pointers are read, and an empty one
    is the root."""
    leaf = {"type": "integer"}
    schema: dict[str, Any] = {
        "type": "array",
        "prefixItems": [{"$ref": "#/x/a~1b%20c"}, {"$ref": "#/x/a~1b%20c"}, {"$ref": root}],
        "x": {"a/b c": leaf},
    }
    read = SchemaReader(schema, "field").schema
    first, second, whole = (item["$ref"].rpartition("/")[2] for item in read["prefixItems"])
    assert first == second
    assert read["$defs"][first] == leaf
    assert read["$defs"][whole]["prefixItems"] == read["prefixItems"]


def test_objects_are_closed() -> None:
    """An object with properties has no others, unless it says so or is a part of another."""
    own: dict[str, Any] = {"type": "object", "properties": {"a": {}}}
    closed = own | {"additionalProperties": False}
    assert SchemaReader(own, "field").schema == closed
    opened = own | {"additionalProperties": {"type": "string"}}
    assert SchemaReader(opened, "field").schema == opened
    combined = {"allOf": [own, {"required": ["b"]}]}
    assert SchemaReader(combined, "field").schema == combined
    beside = {"$ref": "#/$defs/a", "required": ["b"], "$defs": {"a": own}}
    assert SchemaReader(beside, "field").schema["$defs"] == {"r0": own}


WORDS: list[Any] = [
    None, True, False, 0, -1, 1.5, 2**60 + 1, 10**400, math.inf, math.nan, -(2**63), "a", "#",
    "#/$defs/a", "http://[", "string", "any", ["a", "a"], "^(?=a)b$", "^(?!a", "^(?!(",
    {"a": ["b"]},
]  # fmt: skip


def garbage(draw: random.Random, depth: int) -> Any:
    """Schemas, lists and words where keywords expect anything else."""
    kind = draw.randrange(4 if depth < 4 else 1)
    if kind == 1:
        return [garbage(draw, depth + 1) for _ in range(draw.randrange(3))]
    if kind > 1 or not depth:
        names = draw.sample(sorted(HELD | NOT_HELD | {"then", "$defs", "$id", "$anchor"}), 5)
        return {name: garbage(draw, depth + 1) for name in names}
    return draw.choice(WORDS)


def test_garbage() -> None:
    """Whatever keywords are given is read or refused."""
    refused = 0
    for seed in range(2000):
        schema = garbage(random.Random(seed), 0)
        for strict in (True, False):
            try:
                SchemaReader(schema, "field", strict=strict)
            except RequestError:
                refused += 1
        with contextlib.suppress(RequestError):
            SchemaReader(schema, "field", without=frozenset())
    assert 0 < refused < 4000


def test_no_keyword_is_both_held_and_refused() -> None:
    """The tables are apart."""
    assert not HELD & NOT_HELD


def test_properties_in_an_empty_list() -> None:
    """Some languages write an empty object so."""
    whole: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "integer"}}
    found = SchemaReader({**whole, "properties": []}, "field")
    assert found.schema == SchemaReader({**whole, "properties": {}}, "field").schema


@pytest.mark.parametrize("draft", ["foo", "http://json-schema.org/schema#"])
def test_an_unknown_draft_says_nothing(draft: str) -> None:
    """Native code would look for it elsewhere."""
    found = SchemaReader({"$schema": draft, "type": "string"}, "field")
    assert found.schema == {"type": "string"}

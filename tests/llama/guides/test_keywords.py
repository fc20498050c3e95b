"""Every keyword of JSON Schema 2020-12, with values that say nothing, that bind and that cannot be.

What is written then is valid, by another reader's judgement, unless something was left out by name.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import jsonschema
import pytest

from tests.support.cases import for_each
from tests.support.guided import Writer
from worker.errors import RequestError
from worker.grammar.constraint import schema_constraint
from worker.grammar.keywords import ABOUT, HELD, LOOK_AROUND, NOT_HELD, ONE_OF
from worker.grammar.keywords import WHOLE as WHOLE_NUMBER

BIG, MOST = 2**60 + 1, 2**63 - 1
OBJECT, LIST, TEXT, WHOLE = ({"type": kind} for kind in ("object", "array", "string", "integer"))
AB: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}}
LETTERS = {"type": "array", "items": {"enum": ["a", "b", "c"]}}
NAMED = {"type": "object", "properties": {"a": {"const": 1}}}
OTHER = {"properties": {"b": {"const": 2}}, "required": ["b"]}

# What becomes of it: HELD_ALL, the beginning of a refusal, or what is left out without `strict`.
HELD_ALL = ""
# name -> (schema, what becomes of it, texts that are valid and may be written, texts that may not)
Row = tuple[dict[str, Any], str, list[str], list[str]]
ROWS: dict[str, Row] = {
    "nothing": ({}, HELD_ALL, ["1", '"a"', "null", "[[]]", '{"a":{}}'], ["a"]),
    # Values of any kind.
    "type": ({"type": ["integer", "null"]}, HELD_ALL, ["1", "null"], ["1.5", '"a"']),
    "type unknown": ({"type": "any"}, "has a type", [], []),
    "type of nothing": ({"type": []}, "allows no value", [], []),
    "enum": (
        {"enum": [1, "a", None, [1], {"a": 2}]},
        HELD_ALL,
        ['"a"', "null", "[1]"],
        ["2", '"b"'],
    ),
    "enum of another type": ({"type": "string", "enum": [1]}, "cannot be held", [], []),
    "const": ({"const": {"a": [1, None]}}, HELD_ALL, ['{"a":[1,null]}'], ['{"a":[1]}']),
    "const null": ({"const": None}, HELD_ALL, ["null"], ["1"]),
    "const above 2^53": (
        {"const": 2**53 + 1},
        HELD_ALL,
        [str(2**53 + 1)],
        [str(2**53), str(2**53 + 2)],
    ),
    "const of int64": ({"const": BIG}, HELD_ALL, [str(BIG)], [str(BIG - 1), "5"]),
    "const of another int64": ({"const": BIG + 2}, WHOLE_NUMBER, [str(BIG + 2)], ["5"]),
    "const of a large float64": ({"const": 2**60}, HELD_ALL, [str(2**60)], [str(2**60 - 1)]),
    "const of int64 in a list": ({"const": [BIG]}, "has a number beyond", [], []),
    "const at the end of int64": ({"const": -MOST - 1}, "has a number beyond", [], []),
    "const before the end of int64": (
        {"enum": [MOST, 1024 - MOST - 1]},
        HELD_ALL,
        [str(MOST), str(1024 - MOST - 1)],
        [str(MOST + 1), str(-MOST - 1)],
    ),
    "const beyond int64": ({"const": 2**70}, "has a number beyond", [], []),
    "enum of int64": ({"enum": ["a", 2**53 + 1]}, HELD_ALL, ['"a"', str(2**53 + 1)], ['"b"', "1"]),
    # Numbers.
    "minimum": (WHOLE | {"minimum": -3, "maximum": 12}, HELD_ALL, ["-3", "12"], ["-4", "13"]),
    "bounds at 2^53": (
        WHOLE | {"exclusiveMinimum": 2**53, "maximum": 2**53 + 9},
        HELD_ALL,
        [str(2**53 + 2)],
        [str(2**53)],
    ),
    "bounds at int64": (
        WHOLE | {"exclusiveMaximum": MOST, "exclusiveMinimum": MOST - 5000},
        HELD_ALL,
        [str(MOST - 1999)],
        [str(MOST), str(MOST - 5000)],
    ),
    "minimum of a fraction": (
        {"type": "number", "minimum": 0.5, "maximum": 2},
        HELD_ALL,
        ["0.75", "2"],
        ["0.4", "3"],
    ),
    "minimum of text": (TEXT | {"minimum": 5}, HELD_ALL, ['""'], ["7"]),
    "maximum of int64": (
        WHOLE | {"maximum": MOST, "minimum": -MOST - 1},
        HELD_ALL,
        [str(MOST), "0", "-7"],
        [str(MOST + 1), str(-MOST - 2)],
    ),
    "maximum of uint64": (
        WHOLE | {"maximum": 2**64 - 1, "minimum": 0},
        HELD_ALL,
        [str(MOST), "0"],
        [str(2**64), "-1"],
    ),
    "maximum above 2^53": (
        WHOLE | {"maximum": BIG, "minimum": BIG - 300},
        HELD_ALL,
        [str(BIG - 1)],
        [str(BIG + 1), str(BIG - 301)],
    ),
    "exclusive above 2^53": (
        WHOLE | {"exclusiveMaximum": BIG, "minimum": BIG - 300},
        HELD_ALL,
        [str(BIG - 1)],
        [str(BIG), "1"],
    ),
    "maximum of double": (
        {"type": "number", "maximum": 1.7976931348623157e308, "minimum": -1.7976931348623157e308},
        HELD_ALL,
        ["1.5", "-3"],
        ['"a"'],
    ),
    "maximum beyond double": (
        {"type": "number", "maximum": 10**400},
        HELD_ALL,
        ["1.5", "3"],
        ['"a"'],
    ),
    "maximum of infinity": (
        {"type": "number", "maximum": float("inf")},
        HELD_ALL,
        ["1.5"],
        ['"a"'],
    ),
    "minimum beyond double": ({"type": "number", "minimum": 10**400}, "uses minimum", [], []),
    "minimum above int64": (WHOLE | {"minimum": 2**64}, "uses minimum", [], []),
    "minimum above maximum": (WHOLE | {"minimum": 3, "maximum": 2}, "cannot be held", [], []),
    "maximum of no number": (WHOLE | {"maximum": "5"}, "uses maximum", [], []),
    "exclusive": (
        WHOLE | {"exclusiveMinimum": 1, "exclusiveMaximum": 4},
        HELD_ALL,
        ["2", "3"],
        ["1", "4"],
    ),
    "multipleOf": (WHOLE | {"multipleOf": 5}, HELD_ALL, ["0", "15"], ["3"]),
    "multipleOf large": (WHOLE | {"multipleOf": 1234567}, "uses multipleOf", [], []),
    # Texts.
    "minLength": (
        TEXT | {"minLength": 2, "maxLength": 3},
        HELD_ALL,
        ['"ab"', '"abc"'],
        ['"a"', '"abcd"'],
    ),
    "minLength 0": (TEXT | {"minLength": 0}, HELD_ALL, ['""'], ["1"]),
    "minLength above maxLength": (
        TEXT | {"minLength": 3, "maxLength": 2},
        "cannot be held",
        [],
        [],
    ),
    "maxLength large": (TEXT | {"maxLength": 2**31}, HELD_ALL, ['"a"'], ["1"]),
    "pattern": (TEXT | {"pattern": "^[a-c]+$"}, HELD_ALL, ['"abc"'], ['"d"', '""']),
    "pattern of no text": (TEXT | {"pattern": 5}, "has a pattern", [], []),
    "pattern of numbers": (WHOLE | {"pattern": "(?=a)("}, HELD_ALL, ["1"], ['"a"']),
    "format": (TEXT | {"format": "date"}, HELD_ALL, ['"2024-02-03"'], ['"a"']),
    "format unknown": (TEXT | {"format": "city"}, HELD_ALL, ['"a"'], ["1"]),
    "looks ahead": (
        TEXT | {"pattern": "^(?=.*[0-9])(?=.*[a-z]).{2,4}$"},
        HELD_ALL,
        ['"a1"', '"12b"'],
        ['"ab"', '"12"', '"a"'],
    ),
    "looks ahead for no text": (
        TEXT | {"pattern": "^(?!ab|cd)[a-d]{2,3}$"},
        HELD_ALL,
        ['"ac"', '"ba"', '"bab"'],
        ['"ab"', '"abc"', '"cda"'],
    ),
    "looks ahead for not all": (
        TEXT | {"pattern": r"^(?!\s*$).{1,3}$"},
        HELD_ALL,
        ['"a"', '" a"'],
        ['""', '"  "'],
    ),
    "looks ahead for no word": (
        TEXT | {"pattern": "^(?!no$)[a-z]+$"},
        HELD_ALL,
        ['"n"', '"non"', '"ya"'],
        ['"no"'],
    ),
    "looks ahead for no two": (
        TEXT | {"pattern": r"^(?!.*--)(?!-)[a-c-]{1,6}(?<!-)$"},
        HELD_ALL,
        ['"a-b"', '"a"'],
        ['"a--b"', '"-a"', '"a-"'],
    ),
    "looks ahead for no pair": (
        TEXT | {"pattern": "^(?!.*ab)[a-c]{0,4}$"},
        HELD_ALL,
        ['"aac"', '"ba"', '""'],
        ['"ab"', '"caab"'],
    ),
    "looks ahead within": (TEXT | {"pattern": "^a(?=b)b$"}, LOOK_AROUND, ['"ab"'], []),
    "looks back": (TEXT | {"pattern": r"^(a|b)\1$"}, LOOK_AROUND, ['"aa"'], []),
    # Lists.
    "items": (LIST | {"items": WHOLE}, HELD_ALL, ["[]", "[1,2]"], ['["a"]']),
    "items without a type": ({"items": WHOLE}, HELD_ALL, ["[]", "[1]"], ["1", '["a"]']),
    "items true": (LIST | {"items": True}, HELD_ALL, ["[]", '["a"]'], ["1"]),
    "items false": (LIST | {"items": False}, HELD_ALL, ["[]"], ["[1]"]),
    "prefixItems": (
        LIST | {"prefixItems": [WHOLE, TEXT], "items": False},
        HELD_ALL,
        ["[]", '[1,"a"]'],
        ['["a"]', '[1,"a",1]'],
    ),
    "minItems": (
        LETTERS | {"minItems": 1, "maxItems": 2},
        HELD_ALL,
        ['["a"]', '["a","a"]'],
        ["[]", '["a","b","c"]'],
    ),
    "minItems above maxItems": (LIST | {"minItems": 3, "maxItems": 2}, "cannot be held", [], []),
    "contains anything": (LIST | {"contains": {}}, HELD_ALL, ["[1]"], ["[]"]),
    "contains nothing": (LIST | {"contains": False}, "allows no value", [], []),
    "contains nothing, or no list": (
        {"type": ["array", "null"], "contains": False},
        HELD_ALL,
        ["null"],
        ["[]"],
    ),
    "contains none": (
        LETTERS | {"contains": WHOLE, "minContains": 0},
        HELD_ALL,
        ["[]", '["a"]'],
        ["[1]"],
    ),
    "contains what all are": (
        LETTERS | {"contains": LETTERS["items"], "maxContains": 2},
        HELD_ALL,
        ['["a"]'],
        ["[]", '["a","a","a"]'],
    ),
    "contains": (LIST | {"contains": WHOLE}, "uses contains", [], []),
    "contains in text": (TEXT | {"contains": WHOLE}, HELD_ALL, ['"a"'], ["[1]"]),
    "minContains alone": (
        LIST | {"minContains": 0, "maxContains": 3},
        HELD_ALL,
        ["[]", "[1,1,1,1]"],
        ["1"],
    ),
    "maxContains": (
        LIST | {"contains": True, "minContains": 0, "maxContains": 1},
        HELD_ALL,
        ["[]", "[1]"],
        ["[1,1]"],
    ),
    "allOf of nothing": (TEXT | {"allOf": []}, HELD_ALL, ['"a"'], ["1"]),
    "not not": (TEXT | {"not": {"not": {}}}, HELD_ALL, ['"a"'], ["1"]),
    "not not a type": ({"not": {"not": WHOLE}}, HELD_ALL, ["1"], ['"a"']),
    "uniqueItems false": (LIST | {"uniqueItems": False}, HELD_ALL, ["[1,1]"], ["1"]),
    "uniqueItems of one": (
        LIST | {"uniqueItems": True, "maxItems": 1},
        HELD_ALL,
        ["[]", "[1]"],
        ["[1,2]"],
    ),
    "uniqueItems of few": (
        LETTERS | {"uniqueItems": True, "minItems": 1},
        HELD_ALL,
        ['["a"]', '["c","a","b"]'],
        ["[]", '["a","a"]'],
    ),
    "uniqueItems of words": (
        LIST | {"items": {"type": "boolean"}, "uniqueItems": True},
        HELD_ALL,
        ["[]", "[true,false]"],
        ["[true,true]"],
    ),
    "uniqueItems of numbers": (
        LIST
        | {
            "items": {"type": "integer", "minimum": 1, "maximum": 9},
            "uniqueItems": True,
            "maxItems": 2,
        },
        HELD_ALL,
        ["[]", "[9,1]"],
        ["[1,1]"],
    ),
    "uniqueItems too many": (
        LETTERS | {"uniqueItems": True, "minItems": 4},
        "allows no value",
        [],
        [],
    ),
    "uniqueItems of text": (TEXT | {"uniqueItems": True}, HELD_ALL, ['"a"'], ["[]"]),
    "uniqueItems": (LIST | {"uniqueItems": True}, "uniqueItems", ["[1,2]"], ["1"]),
    "unevaluatedItems true": (LIST | {"unevaluatedItems": True}, HELD_ALL, ["[1]"], ["1"]),
    "unevaluatedItems false": (
        LIST | {"prefixItems": [WHOLE], "unevaluatedItems": False},
        HELD_ALL,
        ["[1]", "[]"],
        ["[1,2]"],
    ),
    "unevaluatedItems of items": (
        LETTERS | {"unevaluatedItems": False},
        HELD_ALL,
        ['["a"]'],
        ["[1]"],
    ),
    "unevaluatedItems": (
        LIST | {"anyOf": [{"prefixItems": [WHOLE]}], "unevaluatedItems": False},
        "uses unevaluatedItems",
        [],
        [],
    ),
    # Objects.
    "properties": (AB, HELD_ALL, ["{}", '{"a":1,"b":"x"}'], ['{"a":"x"}', '{"c":1}']),
    "properties of nothing": (OBJECT | {"properties": {"a": False}}, HELD_ALL, ["{}"], ['{"a":1}']),
    "required": (AB | {"required": ["a"]}, HELD_ALL, ['{"a":1}'], ["{}", '{"b":1}']),
    "required elsewhere": (
        AB | {"required": ["c"]},
        HELD_ALL,
        ['{"c":1}', '{"a":1,"c":null}'],
        ["{}", '{"a":1}'],
    ),
    "required alone": (OBJECT | {"required": ["c"]}, HELD_ALL, ['{"c":1}'], ["{}"]),
    "required of others": (
        AB | {"required": ["c"], "additionalProperties": TEXT},
        HELD_ALL,
        ['{"c":"x"}'],
        ["{}", '{"c":1}'],
    ),
    "required that is forbidden": (
        AB | {"required": ["c"], "additionalProperties": False},
        "cannot be held",
        [],
        [],
    ),
    "required as drafts had it": ({"type": "string", "required": True}, HELD_ALL, ['"a"'], ["1"]),
    "additionalProperties": (
        OBJECT | {"additionalProperties": WHOLE},
        HELD_ALL,
        ["{}", '{"x":1}'],
        ['{"x":"a"}'],
    ),
    "patternProperties": (
        OBJECT | {"patternProperties": {"^x": WHOLE}, "additionalProperties": False},
        HELD_ALL,
        ['{"xa":1}'],
        ['{"xa":"a"}', '{"y":1}'],
    ),
    "patternProperties that look": (
        OBJECT | {"patternProperties": {"a(?=b)": WHOLE}},
        LOOK_AROUND,
        ["{}", '{"ab":1}'],
        [],
    ),
    "minProperties 1": (OBJECT | {"minProperties": 1}, HELD_ALL, ['{"a":1}'], ["{}"]),
    "minProperties of required": (
        AB | {"required": ["a", "b"], "minProperties": 2},
        HELD_ALL,
        ['{"a":1,"b":2}'],
        ['{"a":1}'],
    ),
    "minProperties of others": (
        AB | {"minProperties": 1},
        HELD_ALL,
        ['{"a":1}', '{"b":1}', '{"a":1,"b":1}'],
        ["{}"],
    ),
    "maxProperties of all": (
        AB | {"maxProperties": 2},
        HELD_ALL,
        ["{}", '{"a":1,"b":1}'],
        ['{"c":1}'],
    ),
    "minimum alone above 2^53": (
        WHOLE | {"minimum": BIG},
        HELD_ALL,
        [str(2**62)],
        ["5", str(BIG - 1)],
    ),
    "minProperties": (OBJECT | {"minProperties": 2}, "uses minProperties", [], []),
    "maxProperties": (
        OBJECT | {"maxProperties": 1},
        HELD_ALL,
        ["{}", '{"a":1}'],
        ['{"a":1,"b":1}'],
    ),
    "propertyNames of text": (
        OBJECT | {"propertyNames": {"type": "string"}},
        HELD_ALL,
        ['{"a":1}'],
        ["1"],
    ),
    "propertyNames true": (OBJECT | {"propertyNames": True}, HELD_ALL, ['{"a":1}'], ["1"]),
    "propertyNames false": (OBJECT | {"propertyNames": False}, HELD_ALL, ["{}"], ['{"a":1}']),
    "propertyNames of numbers": (
        OBJECT | {"propertyNames": {"type": "integer"}},
        HELD_ALL,
        ["{}"],
        ['{"a":1}'],
    ),
    "propertyNames listed": (
        OBJECT
        | {
            "propertyNames": {"$ref": "#/$defs/n"},
            "additionalProperties": WHOLE,
            "$defs": {"n": {"enum": ["x", "y"]}},
        },
        HELD_ALL,
        ["{}", '{"x":1,"y":2}'],
        ['{"z":1}', '{"x":"a"}'],
    ),
    "propertyNames by pattern": (
        OBJECT | {"propertyNames": {"pattern": "^[a-z]+$"}},
        HELD_ALL,
        ['{"ab":1}'],
        ['{"A":1}'],
    ),
    "propertyNames by length": (
        OBJECT | {"propertyNames": {"maxLength": 2}, "additionalProperties": WHOLE},
        HELD_ALL,
        ['{"ab":1}'],
        ['{"abc":1}', '{"a":"b"}'],
    ),
    "propertyNames": (
        AB | {"propertyNames": {"pattern": "^a", "maxLength": 3}},
        "uses propertyNames",
        [],
        [],
    ),
    "dependentRequired empty": (
        OBJECT | {"dependentRequired": {}},
        HELD_ALL,
        ["{}", '{"a":1}'],
        ["1"],
    ),
    "dependentRequired of nothing": (
        AB | {"dependentRequired": {"a": []}},
        HELD_ALL,
        ['{"a":1}'],
        ["1"],
    ),
    "dependentRequired of required": (
        AB | {"required": ["b"], "dependentRequired": {"a": ["b"]}},
        HELD_ALL,
        ['{"b":1}'],
        ['{"a":1}'],
    ),
    "dependentRequired of what is": (
        AB | {"required": ["a"], "dependentRequired": {"a": ["b"]}},
        HELD_ALL,
        ['{"a":1,"b":1}'],
        ['{"a":1}'],
    ),
    "dependentRequired of what is not": (
        AB | {"dependentRequired": {"c": ["d"]}},
        HELD_ALL,
        ['{"a":1}'],
        ['{"c":1}'],
    ),
    "dependentRequired": (
        AB | {"dependentRequired": {"a": ["b"]}},
        HELD_ALL,
        ["{}", '{"b":1}', '{"a":1,"b":1}'],
        ['{"a":1}'],
    ),
    "dependentRequired in an open one": (
        OBJECT | {"dependentRequired": {"a": ["b"]}},
        HELD_ALL,
        ["{}", '{"c":1}', '{"a":1,"b":1}'],
        ['{"a":1}'],
    ),
    "dependentSchemas empty": (OBJECT | {"dependentSchemas": {}}, HELD_ALL, ['{"a":1}'], ["1"]),
    "dependentSchemas true": (AB | {"dependentSchemas": {"a": True}}, HELD_ALL, ['{"a":1}'], ["1"]),
    "dependentSchemas": (
        AB | {"dependentSchemas": {"a": {"required": ["b"]}}},
        HELD_ALL,
        ["{}", '{"a":1,"b":1}'],
        ['{"a":1}'],
    ),
    "dependencies": (
        AB | {"dependencies": {"a": ["b"]}},
        HELD_ALL,
        ["{}", '{"a":1,"b":1}'],
        ['{"a":1}'],
    ),
    "unevaluatedProperties true": (
        OBJECT | {"unevaluatedProperties": True},
        HELD_ALL,
        ['{"a":1}'],
        ["1"],
    ),
    "unevaluatedProperties false": (
        AB | {"unevaluatedProperties": False},
        HELD_ALL,
        ['{"a":1}'],
        ['{"c":1}'],
    ),
    "unevaluatedProperties of all": (
        OBJECT | {"unevaluatedProperties": False},
        HELD_ALL,
        ["{}"],
        ['{"c":1}'],
    ),
    "unevaluatedProperties of others": (
        AB | {"unevaluatedProperties": WHOLE},
        HELD_ALL,
        ['{"c":1}'],
        ['{"c":"x"}'],
    ),
    "unevaluatedProperties of parts": (
        {"allOf": [NAMED, OTHER], "unevaluatedProperties": False},
        HELD_ALL,
        ['{"a":1,"b":2}', '{"b":2}'],
        ['{"b":2,"c":1}', "{}"],
    ),
    "unevaluatedProperties of a reference": (
        {
            "$ref": "#/$defs/n",
            "properties": {"b": {}},
            "unevaluatedProperties": False,
            "$defs": {"n": NAMED},
        },
        HELD_ALL,
        ['{"a":1,"b":2}', "{}"],
        ['{"c":1}', '{"a":2}'],
    ),
    "unevaluatedProperties of a choice": (
        {
            "type": "object",
            "properties": {"c": {}},
            "anyOf": [NAMED | {"required": ["a"]}, OTHER],
            "unevaluatedProperties": False,
        },
        HELD_ALL,
        ['{"a":1}', '{"b":2,"c":3}'],
        ['{"c":1}', '{"a":1,"d":2}'],
    ),
    # Schemas in schemas.
    "allOf": (
        {"allOf": [WHOLE, {"minimum": 3}, {"maximum": 5}]},
        HELD_ALL,
        ["3", "5"],
        ["2", '"a"'],
    ),
    "allOf of two types": ({"allOf": [WHOLE, TEXT]}, "cannot be held", [], []),
    "anyOf": ({"anyOf": [WHOLE, TEXT]}, HELD_ALL, ["3", '"a"'], ["null"]),
    "oneOf apart": ({"oneOf": [WHOLE, TEXT]}, HELD_ALL, ["3", '"a"'], ["null"]),
    "oneOf": ({"oneOf": [WHOLE, {"minimum": 2}]}, ONE_OF, ["1", "3.5"], ["1.5"]),
    "oneOf by a value": (
        {
            "oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
            "$defs": {
                "a": {"properties": {"kind": {"const": "a"}, "x": WHOLE}, "required": ["kind"]},
                "b": {"properties": {"kind": {"enum": ["b", "c"]}}, "required": ["kind"]},
            },
        },
        HELD_ALL,
        ['{"kind": "a", "x": 1}', '{"kind": "c"}'],
        ['{"kind": "b", "x": 1}', '{"kind": "d"}'],
    ),
    "oneOf of objects": (
        {
            "oneOf": [
                {"properties": {"a": TEXT}, "additionalProperties": False},
                {"properties": {"b": TEXT}, "required": ["b"]},
            ]
        },
        HELD_ALL,
        ['{"a": "x"}', '{"b": "x"}'],
        ['{"a": 1}', '{"a": "x", "b": "x"}', "3"],
    ),
    "not false": (WHOLE | {"not": False}, HELD_ALL, ["1"], ['"a"']),
    "not true": ({"not": True}, "allows no value", [], []),
    "not anything": (WHOLE | {"not": {}}, "allows no value", [], []),
    "not of a type": (
        {"not": {"type": ["object", "array"]}},
        HELD_ALL,
        ["1", '"a"', "null"],
        ["{}", "[]"],
    ),
    "not of another type": (WHOLE | {"not": TEXT}, HELD_ALL, ["1"], ['"a"']),
    "not of values": (
        {"enum": ["a", "b", 1, True], "not": {"enum": ["b", 1]}},
        HELD_ALL,
        ['"a"', "true"],
        ['"b"', "1"],
    ),
    "not of all values": ({"enum": ["a"], "not": {"const": "a"}}, "allows no value", [], []),
    "not": (WHOLE | {"not": {"const": 3}}, "uses not", [], []),
    "if alone": (WHOLE | {"if": {"minimum": 3}}, HELD_ALL, ["1", "5"], ['"a"']),
    "then alone": (WHOLE | {"then": {"minimum": 3}}, HELD_ALL, ["1", "5"], ['"a"']),
    "if true": (WHOLE | {"if": True, "then": {"minimum": 3}}, HELD_ALL, ["5"], ["1"]),
    "if false": (
        WHOLE | {"if": False, "then": {"minimum": 3}, "else": {"maximum": 2}},
        HELD_ALL,
        ["1"],
        ["5"],
    ),
    "if": (WHOLE | {"if": {"minimum": 3}, "then": {"minimum": 5}}, "uses if", [], []),
    # References.
    "$ref": ({"$ref": "#/$defs/n", "$defs": {"n": WHOLE}}, HELD_ALL, ["1"], ['"a"']),
    "$ref to an anchor": (
        {"$ref": "#n", "$defs": {"x": WHOLE | {"$anchor": "n"}}},
        HELD_ALL,
        ["1"],
        ['"a"'],
    ),
    "$ref to an id": (
        {"$id": "https://x.org/a", "$ref": "b", "$defs": {"x": WHOLE | {"$id": "b"}}},
        HELD_ALL,
        ["1"],
        ['"a"'],
    ),
    "$ref by the own id": (
        {"$id": "https://x.org/a", "$ref": "https://x.org/a#/$defs/x", "$defs": {"x": WHOLE}},
        HELD_ALL,
        ["1"],
        ['"a"'],
    ),
    "$ref to nothing": ({"$ref": "#/$defs/n"}, "refers to a place", [], []),
    "$ref to the web": ({"$ref": "https://example.com/s"}, "refers to another document", [], []),
    "$dynamicRef": (
        {"$dynamicRef": "#n", "$defs": {"x": WHOLE | {"$dynamicAnchor": "n"}}},
        HELD_ALL,
        ["1"],
        ['"a"'],
    ),
    # Annotations.
    "annotations": (
        WHOLE
        | {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$comment": "x",
            "$vocabulary": {},
            "title": "x",
            "description": "x",
            "default": "x",
            "deprecated": True,
            "readOnly": True,
            "writeOnly": True,
            "examples": ["x"],
        },
        HELD_ALL,
        ["1"],
        ['"a"'],
    ),
    "content": (
        TEXT
        | {
            "contentEncoding": "base64",
            "contentMediaType": "text/html",
            "contentSchema": {"type": "integer"},
        },
        HELD_ALL,
        ['"a"'],
        ["1"],
    ),
    "null for nothing": (
        AB | {"required": None, "patternProperties": None, "minProperties": None, "not": None},
        HELD_ALL,
        ["{}"],
        ["1"],
    ),
}
# So that texts end.
LIKED = {b'"': 5.0, b"}": 5.0, b"]": 5.0, b"\n": -8.0, b" ": -5.0, b"{": -1.0, b"[": -1.0}


def is_valid(text: bytes, schema: dict[str, Any]) -> bool:
    """By a strict reader, which takes numbers as decimals; annotations of formats are none."""
    value = json.loads(text.decode(), parse_float=Decimal)
    exact = json.loads(json.dumps(schema), parse_float=Decimal)
    plain = {key: each for key, each in exact.items() if each is not None or key == "const"}
    if isinstance(plain.get("required"), bool):
        del plain["required"]
    return jsonschema.Draft202012Validator(plain).is_valid(value)  # pyright: ignore


@for_each("name", ROWS)
def test_a_keyword(writer: Writer, name: str) -> None:
    """It is held, or refused by its name, or left out by its name where nobody said strict."""
    schema, becomes, good, bad = ROWS[name]
    if becomes and not good:
        for strict in (True, False):
            with pytest.raises(RequestError, match=f"^field {becomes}"):
                writer.guides.matcher_of(schema_constraint(schema, "field", strict=strict))
        return
    constraint = schema_constraint(schema, "field", strict=False)
    assert constraint.loosened == ((becomes,) if becomes else ())
    if becomes:
        refused = f"^field (uses {re.escape(becomes)} in a way|cannot be held)"
        with pytest.raises(RequestError, match=refused):
            writer.guides.matcher_of(schema_constraint(schema, "field", strict=True))
    assert all(is_valid(text.encode(), schema) for text in good)
    assert [text for text in good if not writer.takes(constraint, text)] == []
    assert [text for text in bad if writer.takes(constraint, text)] == []
    texts = [
        writer.write(constraint, seed=seed, most=80, liked=LIKED, temperature=temperature)
        for seed, temperature in enumerate((0.5, 1, 2))
    ]
    ended = [text for text, is_whole in texts if is_whole]
    assert becomes or [text for text in ended if not is_valid(text, schema)] == []


def test_every_keyword_has_a_row() -> None:
    """None of those that a grammar holds, or holds sometimes, is missing."""
    told = json.dumps([row[0] for row in ROWS.values()])
    older = {"additionalItems", "extends", "disallow", "divisibleBy", "$recursiveRef"}
    assert {key for key in HELD | NOT_HELD | ABOUT.keys() if f'"{key}"' not in told} == older

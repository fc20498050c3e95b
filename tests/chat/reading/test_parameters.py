"""What schemas say of values that are written one by one."""

from __future__ import annotations

from typing import Any

import pytest

from worker.chat.dialects.gemma import Gemma
from worker.chat.message import Tool
from worker.chat.reading.call_grammar import Lark, properties_of
from worker.chat.reading.parameters import leads_nowhere, types_of

SELF: dict[str, Any] = {"$ref": "#/$defs/a"}
ANY = {"string", "number", "integer", "boolean", "object", "array", "null"}


@pytest.mark.parametrize(
    ("meant", "types"),
    [
        ({"anyOf": [SELF] * 40}, ANY),
        ({"anyOf": [*[SELF] * 40, {"type": "null"}]}, {"null"}),
        ({"anyOf": [{"oneOf": [SELF, {"type": "string"}]}, SELF, {"const": "x"}]}, {"string"}),
        ({"type": "object", "properties": dict.fromkeys("abcdefgh", SELF)}, {"object"}),
        (SELF, ANY),
    ],
)
def test_schemas_that_lead_back(meant: dict[str, Any], types: set[str]) -> None:
    """By as many ways as they like: each reference is followed once."""
    root = {"$defs": {"a": meant}, "properties": {"x": SELF, "y": SELF}}
    assert types_of(SELF, root) == types
    assert leads_nowhere("#/$defs/a", root) == (types == ANY)
    lark = Lark({}, [], lambda _schema, _what: "{}")
    form = Gemma().grammar(lark, [Tool(name="sky", parameters=root)], one=True)
    assert len(lark.grammar(form.rest)) < 10_000


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"allOf": [{"type": "string"}], "default": "x"}, {"string"}),
        ({"allOf": [SELF, SELF]}, {"string", "null"}),
        ({"allOf": [SELF, {"type": "string"}]}, {"string"}),
        ({"enum": ["a", None]}, {"string", "null"}),
        ({"enum": [1, True]}, {"integer", "number", "boolean"}),
        ({"const": None}, {"null"}),
    ],
)
def test_types_that_no_word_names(schema: dict[str, Any], types: set[str]) -> None:
    """All parts of an allOf hold, and values have types."""
    assert types_of(schema, {"$defs": {"a": {"type": ["string", "null"]}}}) == types


@pytest.mark.parametrize(
    ("where", "types"),
    [
        ("", {"object"}),
        ("#", {"object"}),
        ("#/$defs/a%20b", {"string"}),
        ("#/$defs/c~1d/anyOf/1", {"null"}),
        ("#/$defs/c~1d/anyOf/2", ANY),
        ("#/properties/y", {"boolean"}),
        ("other.json", ANY),
        ("#anchor", ANY),
    ],
)
def test_where_a_reference_leads(where: str, types: set[str]) -> None:
    """Pointers as in RFC 6901: an empty one is the root; what leads elsewhere says nothing."""
    root: dict[str, Any] = {
        "type": "object",
        "properties": {"x": {"$ref": where}, "y": {"type": "boolean"}},
        "$defs": {
            "a b": {"type": "string"},
            "c/d": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
    }
    assert types_of(root["properties"]["x"], root) == types
    (name, alone, _), _ = properties_of(root, root)
    assert (name, types_of(alone, alone)) == ("x", types)

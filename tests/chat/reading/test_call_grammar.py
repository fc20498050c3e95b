"""What the grammars of calls are made of."""

from __future__ import annotations

from typing import Any

import pytest

from worker.chat.message import Tool
from worker.chat.reading.call_grammar import object_schema

ANY = {"type": "object"}
PARTS = {"properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("parameters", "schema"),
    [
        ({}, ANY),
        (PARTS, {**PARTS, **ANY}),
        ({**PARTS, "type": ["object", "null"]}, {**PARTS, **ANY}),
        ({"type": "array", "items": {"enum": [1]}}, ANY),
        ({"type": ["string", "null"]}, ANY),
        ({"anyOf": [PARTS, ANY]}, {"anyOf": [PARTS, ANY]}),
    ],
)
def test_arguments_are_an_object(parameters: dict[str, Any], schema: dict[str, Any]) -> None:
    """Also where a tool's schema asks for something else: readers know no other arguments."""
    assert object_schema(Tool(name="f", parameters=parameters)) == schema

"""Schemas are read down to what a grammar can follow."""

from __future__ import annotations

from typing import Any

import pytest

from worker.errors import RequestError
from worker.grammar.keywords import BY_TYPE, GENERAL, RELEVANT
from worker.grammar.schema import ANY, SchemaReader


def test_annotations_are_passed_over() -> None:
    """What does not change what is valid is left out; what does stays."""
    reader = SchemaReader(
        {"title": "t", "type": "array", "items": True, "minItems": 2, "examples": [[1, 2]]}, "field"
    )
    assert reader.root == {"type": "array", "items": ANY, "minItems": 2}
    assert reader.definitions == {}


def test_references_become_definitions() -> None:
    """Each place that is referred to is read once, under a name that no property has."""
    node: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    reader = SchemaReader(node, "field")
    (name,) = reader.definitions
    assert reader.root["properties"] == {"next": {"$ref": f"#/$defs/{name}"}}
    assert reader.definitions[name] == reader.root


def test_the_type_is_told_by_its_keywords() -> None:
    """A schema without a type has the one that its keywords are for."""
    assert SchemaReader({"minLength": 3}, "field").root == {"type": "string", "minLength": 3}
    assert SchemaReader({}, "field").root == ANY


@pytest.mark.parametrize("kind", BY_TYPE)
def test_keywords_that_no_grammar_follows(kind: str) -> None:
    """A keyword that would change what is valid is refused by its name, not passed over."""
    _, not_followed = BY_TYPE[kind]
    for keyword in not_followed | GENERAL:
        with pytest.raises(RequestError) as caught:
            SchemaReader({"type": kind, keyword: {}}, "field")
        assert caught.value.message.startswith(f"field uses {keyword} in a way")
        assert caught.value.param == "field"


def test_the_table_is_whole() -> None:
    """Whatever a type follows or refuses is relevant, but for `format`."""
    for followed, not_followed in BY_TYPE.values():
        assert not followed & not_followed
        assert (followed | not_followed) - RELEVANT <= {"format"}

"""Schemas of tools in the prompts of all published templates: no word of a parameter is lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chat.dialects.telling import format_of
from tests.support.models import templates
from worker.chat.declared import declared, told_whole
from worker.chat.message import Message, Tool
from worker.chat.thinking import Thinking

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "item": {"$ref": "#/$defs/Item"},
        "when": {"anyOf": [{"type": "string", "description": "zqiso", "enum": ["zqday"]},
                           {"type": "null"}]},
        "plain": {"type": "string", "description": "zqplain"},
    },
    "$defs": {
        "Item": {"type": "object", "properties": {"zqname": {"$ref": "#/$defs/Item"}}},
    },
}  # fmt: skip


def test_what_a_prompt_lacks() -> None:
    """It is put into the description of its parameter; references that lead back stay."""
    tool = declared(Tool(name="f", parameters=SCHEMA), describes=False)
    assert told_whole([tool], "zqname zqiso zqday zqplain") is None
    found = told_whole([tool], "item when plain zqplain")
    assert found is not None
    properties = found[0]["function"]["parameters"]["properties"]
    assert properties["plain"] == SCHEMA["properties"]["plain"]
    assert "zqname" in properties["item"]["description"]
    assert "$ref" in properties["item"]["description"]
    assert "zqiso" in properties["when"]["description"]
    assert "zqday" in properties["when"]["description"]


def test_escapes_are_no_words() -> None:
    """A line end that a template escapes is not read as a letter of the next word."""
    schema: dict[str, Any] = {"properties": {"a": {"description": "one\ntwo \u00e9t\u00e9"}}}
    tool = declared(Tool(name="f", parameters=schema), describes=False)
    assert told_whole([tool], r"a one\ntwo \u00e9t\u00e9") is None


@pytest.mark.parametrize("name", templates.names())
def test_every_template_tells_all_of_a_schema(name: str) -> None:
    """Names, descriptions and values, also behind references and in unions."""
    chat = format_of(name)
    tool = Tool(name="f", description="x", parameters=SCHEMA)
    text = chat.conversation(
        [Message(role="user", content="hello")],
        [tool],
        thinking=Thinking(),
        add_generation_prompt=True,
        continues=False,
        variables={},
    ).text
    assert [word for word in ("zqname", "zqiso", "zqday", "zqplain") if word not in text] == []

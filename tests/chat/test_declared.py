"""Schemas of tools in the prompts of all published templates: no word of a parameter is lost."""

from __future__ import annotations

import contextlib
from typing import Any

from tests.chat.dialects.telling import format_of
from tests.support.cases import for_each
from tests.support.models import templates
from worker.chat.declared import declare, describe_all
from worker.chat.message import Message, Tool
from worker.chat.thinking import Thinking
from worker.errors import RequestError

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
    tool = declare(Tool(name="f", parameters=SCHEMA), describes=False)
    assert describe_all([tool], "zqname zqiso zqday zqplain") is None
    found = describe_all([tool], "item when plain zqplain")
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
    tool = declare(Tool(name="f", parameters=schema), describes=False)
    assert describe_all([tool], r"a one\ntwo \u00e9t\u00e9") is None


@for_each("name", templates.names())
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


def test_what_was_said_does_not_change_how_tools_are_told() -> None:
    """Else a later turn's prompt would begin in another way."""
    tool = Tool(name="f", description="x", parameters=SCHEMA)
    chat = format_of("openai-gpt-oss-120b")

    def begin(said: str) -> str:
        return chat.conversation(
            [Message(role="user", content=f"zqbegin {said}")], [tool], thinking=Thinking(),
            add_generation_prompt=True, continues=False, variables={},
        ).text.partition("zqbegin")[0]  # fmt: skip

    assert "zqiso" in begin("hello")
    assert begin("hello") == begin("zqname zqiso zqday zqplain")


def test_a_schema_too_deep_to_be_looked_at() -> None:
    """It is told as the template does, or refused: it is no failure of ours."""
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(200):
        deep = {"type": "object", "properties": {"a": deep}}
    chat = format_of("openai-gpt-oss-120b")
    with contextlib.suppress(RequestError):
        chat.conversation(
            [Message(role="user", content="a")], [Tool(name="f", parameters=deep)],
            thinking=Thinking(), add_generation_prompt=True, continues=False, variables={},
        )  # fmt: skip

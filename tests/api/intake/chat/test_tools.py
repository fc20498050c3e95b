"""Tools that nobody runs here, and where the schemas of the others stand."""

from __future__ import annotations

import msgspec
import pytest
from structlog.testing import capture_logs

from worker import log
from worker.api.intake.chat.tools import (
    ChoiceObject,
    DeclaredTool,
    DeclaredTools,
    Tools,
    choice_of,
    tools_of,
)
from worker.errors import RequestError


def test_a_type_is_told_once() -> None:
    """As clients send it with each request; in one line, and a part of it where it is long."""
    log.configure("json")
    try:
        with capture_logs() as lines:
            for kind in ("looks_up", "looks_up", "a\nb", "x" * 5_000, "x" * 6_000):
                Tools(None).add_kind(kind)
    finally:
        log.configure("console", "error")
    assert [line["type"] for line in lines] == ["looks_up", "a\\nb", "x" * 40]


@pytest.mark.parametrize("name", ["parameters", "input_schema", "inputSchema"])
def test_a_schema_under_any_name(name: str) -> None:
    """OpenAI's, Anthropic's and MCP's."""
    schema = {"type": "object", "properties": {"at": {"type": "string"}}}
    given = msgspec.convert({"name": "sky", name: schema}, DeclaredTool)
    assert given.declared.tool.parameters == schema


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("required", "there are no tools. Tools of the type web_search are left out."),
        (ChoiceObject(type="function", name="web"), "is no tool. Tools of the type web_search"),
        (ChoiceObject(type="web_search"), "a tool of the type web_search, which is left out."),
    ],
)
def test_a_choice_of_what_is_left_out(asked: str | ChoiceObject, why: str) -> None:
    """The message says what was left out, since the client did declare it."""
    declared = tools_of([DeclaredTool(type="web_search")])
    with pytest.raises(RequestError, match=why):
        choice_of(asked, declared)


def test_too_many_are_refused() -> None:
    """Whatever they are: the list is described with its limit."""
    declared: DeclaredTools = [DeclaredTool() for _ in range(1025)]
    assert tools_of(declared[1:]).shown == ()
    with pytest.raises(RequestError, match="1024 tools at most"):
        tools_of(declared)

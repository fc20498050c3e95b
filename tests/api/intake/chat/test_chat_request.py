"""What chat clients ask for, as a ChatInput; what is wrong is named."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from tests.support.facts import facts_with
from worker.api.intake.chat.chat_input import ChatInput
from worker.api.intake.chat.chat_request import ChatRequest, chat_input_of
from worker.budget import UNBOUNDED
from worker.chat.message import Call, Message
from worker.chat.thinking import Thinking
from worker.errors import RequestError
from worker.settings import Settings

HELLO = [{"role": "user", "content": "hello"}]


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


def talk(settings: Settings | None = None, **fields: Any) -> ChatInput:
    body = msgspec.convert({"messages": HELLO, **fields}, ChatRequest)
    return chat_input_of(body, facts_with(settings), UNBOUNDED)


SKY_SEA = [tool("sky"), tool("sea", description="d", parameters={"type": "object"})]


@pytest.mark.parametrize(
    ("asked", "choice", "only", "shown"),
    [
        (None, "auto", None, ["sky", "sea"]),
        ("auto", "auto", None, ["sky", "sea"]),
        ("none", "none", None, ["sky", "sea"]),
        ("required", "required", None, ["sky", "sea"]),
        ("any", "required", None, ["sky", "sea"]),
        ({"type": "any"}, "required", None, ["sky", "sea"]),
        ({"type": "tool", "name": "sea"}, "required", "sea", ["sky", "sea"]),
        ({"type": "function", "function": {"name": "sea"}}, "required", "sea", ["sky", "sea"]),
        ({"type": "function", "name": "sea"}, "required", "sea", ["sky", "sea"]),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [tool("sea")]}},
         "required", None, ["sea"]),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "sky"}]},
         "auto", None, ["sky"]),
    ],
)  # fmt: skip
def test_choices(asked: Any, choice: str, only: str | None, shown: list[str]) -> None:
    """All forms of tool_choice."""
    found = talk(tools=SKY_SEA, tool_choice=asked)
    assert (found.choice, found.only) == (choice, only)
    assert [tool.name for tool in found.tools] == shown


def test_tools() -> None:
    """Nulls are as good as nothing; a choice without tools is none."""
    found = talk(tools=[tool("a", description=None, parameters=None, strict=True)])
    assert (found.tools[0].description, found.tools[0].parameters) == (None, {})
    assert found.parallel
    assert not talk(parallel_tool_calls=False).parallel
    assert talk(tools=None, tool_choice="auto").tools == ()


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"tools": [tool(f"t{n}") for n in range(1025)]}, "tools", "1024"),
        ({"functions": [{"name": "a"}]}, "functions", "no longer read"),
        ({"tools": SKY_SEA, "function_call": "auto"}, "function_call", "no longer read"),
        ({"tools": SKY_SEA, "tool_choice": "always"}, "tool_choice", "must be"),
        ({"tools": SKY_SEA, "tool_choice": tool("land")}, "tool_choice", "'land'"),
        ({"tools": SKY_SEA, "tool_choice": {"type": "mcp"}}, "tool_choice", "which is left out"),
        ({"tools": SKY_SEA, "tool_choice": {"type": "allowed_tools", "tools": [tool("land")]}},
         "tool_choice", "'land'"),
        ({"tools": SKY_SEA, "tool_choice": {"type": "allowed_tools", "mode": "none"}},
         "tool_choice", "must be"),
        ({"tool_choice": "required"}, "tool_choice", "no tools"),
        ({"tools": [], "tool_choice": tool("sky")}, "tool_choice", "'sky'"),
        ({"reasoning_format": "loud"}, "reasoning_format", "auto, deepseek, none"),
        ({"thinking_budget_tokens": -3}, "thinking_budget_tokens", "0 or more, or -1"),
    ],
)  # fmt: skip
def test_refused(fields: dict[str, Any], param: str, words: str) -> None:
    """The field is named."""
    with pytest.raises(RequestError) as caught:
        talk(**fields)
    assert caught.value.param == param
    assert re.search(words, caught.value.message)


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({}, Thinking()),
        ({"reasoning_effort": None, "chat_template_kwargs": None}, Thinking()),
        ({"reasoning_effort": "low"}, Thinking(effort="low")),
        ({"reasoning_effort": "none"}, Thinking(is_on=False, effort="none")),
        ({"chat_template_kwargs": {"enable_thinking": False}}, Thinking(is_on=False)),
        ({"chat_template_kwargs": {"enable_thinking": True}}, Thinking(is_on=True)),
        ({"chat_template_kwargs": {"enable_thinking": "on"}}, Thinking(is_on=True)),
        ({"reasoning_effort": "OFF"}, Thinking(is_on=False)),
        ({"think": "false"}, Thinking(is_on=False)),
        ({"thinking_budget_tokens": 5}, Thinking(budget=5)),
        ({"reasoning_budget_tokens": 4, "thinking_budget_tokens": 5}, Thinking(budget=4)),
        ({"reasoning_budget_tokens": -1}, Thinking()),
        ({"reasoning_format": "none"}, Thinking(inline=True)),
        ({"reasoning_format": "deepseek"}, Thinking()),
    ],
)
def test_thinking(fields: dict[str, Any], thinking: Thinking) -> None:
    """The fields of all clients."""
    assert talk(**fields).thinking == thinking


def test_thoughts_by_option() -> None:
    """A server says where thoughts go, and a request may say otherwise."""
    settings = Settings(reasoning_format="none")
    assert talk(settings).thinking.inline
    assert not talk(settings, reasoning_format="auto").thinking.inline


def test_history() -> None:
    """Calls, results and thoughts under both names; arguments as text or as an object."""
    past = [
        {"id": "1", "type": "function", "function": {"name": "a", "arguments": '{"x": 1}'}},
        {"id": None, "function": {"name": "b", "arguments": {"y": 2}}},
        {"function": {"name": "c", "arguments": None}},
    ]
    parts = [{"type": "text", "text": "two"}, {"type": "text", "text": "parts"}]
    found = talk(
        messages=[
            {"role": "assistant", "content": None, "reasoning": "r", "tool_calls": past},
            {"role": "tool", "tool_call_id": "1", "content": parts},
            {"role": "assistant", "content": "x", "reasoning_content": "s", "tool_calls": None},
            {"role": "assistant", "content": None, "refusal": "I will not."},
        ]
    )
    calls = (Call("1", "a", '{"x": 1}'), Call("", "b", '{"y":2}'), Call("", "c", "{}"))
    assert found.messages == (
        Message(role="assistant", thought="r", calls=calls),
        Message(role="tool", call_id="1", content="two\nparts"),
        Message(role="assistant", content="x", thought="s"),
        Message(role="assistant", content="I will not."),
    )

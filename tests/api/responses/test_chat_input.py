"""What clients of the Responses API ask for, as a ChatInput; what is wrong is named."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from tests.support.facts import facts_with
from worker.api.intake.chat.chat_input import ChatInput
from worker.api.responses.chat_input import chat_input_of, seal
from worker.api.responses.schemas import ResponseRequest
from worker.budget import UNBOUNDED
from worker.chat.message import Call, Message
from worker.chat.thinking import Thinking
from worker.errors import RequestError

FACTS = facts_with()
SKY = {"type": "function", "name": "sky", "parameters": {"type": "object"}}


def talk(**fields: Any) -> ChatInput:
    body = msgspec.convert({"input": "hello", **fields}, ResponseRequest)
    return chat_input_of(body, FACTS, UNBOUNDED)


def text(kind: str, *texts: str) -> list[dict[str, str]]:
    return [{"type": kind, "text": each} for each in texts]


def test_text() -> None:
    """A text is what the user says, after the instructions."""
    assert talk(instructions="Be kind.").messages == (
        Message(role="system", content="Be kind."), Message(role="user", content="hello"),
    )  # fmt: skip


def test_items() -> None:
    """What the assistant said in several items is one message; results follow it."""
    items: list[dict[str, Any]] = [
        {"role": "developer", "content": "d"},
        {"type": "message", "role": "user", "content": text("input_text", "two", "parts")},
        {"type": "reasoning", "id": "r", "summary": [], "content": text("reasoning_text", "hm")},
        {"type": "message", "id": "m", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
        {"type": "function_call", "call_id": "1", "name": "sky", "arguments": '{"a": 1}'},
        {"type": "function_call", "call_id": "2", "name": "sea", "arguments": ""},
        {"type": "function_call_output", "call_id": "1", "output": "blue"},
        {"type": "function_call_output", "call_id": "2", "output": text("input_text", "a", "b")},
        {"type": "reasoning", "summary": text("summary_text", "so")},
        {"type": "function_call", "call_id": "3", "name": "sky", "arguments": "{}"},
    ]  # fmt: skip
    assert talk(input=items).messages == (
        Message(role="developer", content="d"),
        Message(role="user", content="two\nparts"),
        Message(role="assistant", content="I look.", thought="hm",
                calls=(Call("1", "sky", '{"a": 1}'), Call("2", "sea", ""))),
        Message(role="tool", call_id="1", content="blue"),
        Message(role="tool", call_id="2", content="a\nb"),
        Message(role="assistant", thought="so", calls=(Call("3", "sky", "{}"),)),
    )  # fmt: skip


def test_messages_of_the_assistant_stay_apart() -> None:
    """Two texts are two messages; a thought alone has no text."""
    items: list[dict[str, Any]] = [
        {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"},
        {"type": "reasoning", "summary": [], "encrypted_content": seal("hm")},
        {"role": "user", "content": "c"},
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAA!"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    ]  # fmt: skip
    assert talk(input=items).messages == (
        Message(role="assistant", content="a"),
        Message(role="assistant", content="b", thought="hm"),
        Message(role="user", content="c"),
        Message(role="assistant", content="no"),
    )


def test_tools() -> None:
    """Functions are tools; other types are named as left out."""
    tools = [{"type": "web_search"}, SKY, {"type": "custom", "name": "x y"}]
    found = talk(tools=tools, tool_choice={"type": "function", "name": "sky"})
    assert [tool.name for tool in found.tools] == ["sky"]
    assert found.left_out == (
        "Tools of the type web_search are left out.", "Tools of the type custom are left out."
    )  # fmt: skip
    assert (found.choice, found.only, found.parallel) == ("required", "sky", True)


def test_namespaces() -> None:
    """A function in a namespace has a name of its own for the model, also in past calls."""
    space = {"type": "namespace", "name": "crm__", "tools": [{"type": "custom", "name": "x"}, SKY]}
    past = {"type": "function_call", "call_id": "1", "name": "sky", "namespace": "crm__"}
    found = talk(tools=[SKY, space], input=[{"role": "user", "content": "a"}, past])
    assert [tool.name for tool in found.tools] == ["sky", "crm__sky"]
    assert found.messages[-1].calls == (Call("1", "crm__sky", "{}"),)


def test_other_fields() -> None:
    """Limits, thinking, logprobs, truncation, sampling."""
    found = talk(
        max_output_tokens=7, reasoning={"effort": "none"}, top_logprobs=3, truncation="auto",
        temperature=0.5, parallel_tool_calls=False, store=True,
    )  # fmt: skip
    assert (found.params.max_tokens, found.params.logprobs, found.truncates) == (7, 3, True)
    assert found.thinking == Thinking(is_on=False, effort="none")
    assert (found.params.sampling.temperature, found.parallel) == (0.5, False)
    assert talk().params.logprobs is None
    assert talk(include=["message.output_text.logprobs"]).params.logprobs == 0


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"conversation": {"id": "c"}}, "conversation", "not offered"),
        ({"prompt": {"id": "p"}}, "prompt", "not offered"),
        ({"background": True, "store": False}, "store", "background"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input",
         r"input\[0\].content\[0\] is of type input_image"),
        ({"tools": [SKY], "tool_choice": {"type": "web_search"}}, "tool_choice", "is left out"),
        ({"max_output_tokens": -3}, "max_output_tokens", "0 or more"),
        ({"top_logprobs": 101}, "top_logprobs", "from 0 to 100"),
        ({"truncation": "much"}, "truncation", "auto or disabled"),
        ({"text": {"format": {"type": "xml"}}}, "text.format", "text.format must be"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format", "schema"),
        ({"temperature": 101}, "temperature", "temperature"),
    ],
)  # fmt: skip
def test_refused(fields: dict[str, Any], param: str, words: str) -> None:
    """The field is named."""
    with pytest.raises(RequestError) as caught:
        talk(**fields)
    assert caught.value.param == param
    assert re.search(words, caught.value.message), caught.value.message

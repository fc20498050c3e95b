"""An Anthropic client's body as a ChatInput: history, tools, choice, thinking, limits."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.facts import facts_over
from tests.support.sessions import load
from worker.api.anthropic.chat_input import chat_input_of
from worker.api.anthropic.schemas import MessagesRequest
from worker.api.intake.chat.chat_input import ChatInput
from worker.api.intake.facts import ModelFacts
from worker.budget import UNBOUNDED
from worker.chat.format import Thinking
from worker.chat.message import Call, Message, Tool
from worker.errors import RequestError

HELLO = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
SKY = {"name": "sky", "description": "Looks up.", "input_schema": SCHEMA}
USE = {"type": "tool_use", "id": "c1", "name": "sky", "input": {"at": "Rome"}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "blue"}


@pytest.fixture(scope="module")
def facts(tiny: Path) -> Generator[ModelFacts]:
    with load(tiny) as backend:
        yield facts_over(backend, tiny)


def talk(facts: ModelFacts, **fields: Any) -> ChatInput:
    body = {"messages": HELLO, "max_tokens": 5, **fields}
    return chat_input_of(msgspec.convert(body, MessagesRequest), facts, UNBOUNDED)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words, "cache_control": {"type": "ephemeral"}}


HISTORIES: list[tuple[dict[str, Any], list[Message]]] = [
    ({"system": "be kind"}, [Message(role="system", content="be kind")]),
    ({"system": [text("be kind"), text("be brief")]},
     [Message(role="system", content="be kind\nbe brief")]),
    ({"system": [text("x-anthropic-billing-header: cc_version=2.1; cch=9a2b1;"), text("be kind")]},
     [Message(role="system", content="be kind")]),
    ({"system": "x-anthropic-billing-header: cch=77;\nbe kind"},
     [Message(role="system", content="be kind")]),
    ({"system": [text("x-anthropic-billing-header: cch=77;")]}, []),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "expected"), HISTORIES)
def test_system(facts: ModelFacts, fields: dict[str, Any], expected: list[Message]) -> None:
    """Texts or blocks; the billing header, which always changes, is left out."""
    hello = Message(role="user", content="hello")
    assert talk(facts, **fields).messages == (*expected, hello)


def test_history(facts: ModelFacts) -> None:
    """Blocks become texts, thoughts, calls and results; results are messages of their own."""
    found = talk(
        facts,
        messages=[
            {"role": "user", "content": [text("one"), text("two")]},
            {"role": "user", "content": "three"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Rain?", "signature": "s"},
                {"type": "redacted_thinking", "data": "xyz"}, text("I look."), USE,
                {**USE, "id": "c2", "input": {}}]},
            {"role": "user", "content": [
                RESULT,
                {**RESULT, "tool_use_id": "c2", "content": [text("a"), text("b")]},
                {"type": "tool_result", "tool_use_id": "c9"}, text("and now?")]},
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": "go on"},
        ],
    )  # fmt: skip
    assert found.messages == (
        Message(role="user", content="one\ntwo\nthree"),
        Message(
            role="assistant",
            content="I look.",
            thought="Rain?",
            calls=(Call("c1", "sky", '{"at":"Rome"}'), Call("c2", "sky", "{}")),
        ),
        Message(role="tool", content="blue", call_id="c1", name="sky"),
        Message(role="tool", content="a\nb", call_id="c2", name="sky"),
        Message(role="tool", content="", call_id="c9"),
        Message(role="user", content="and now?"),
        Message(role="system", content="be kind"),
        Message(role="user", content="go on"),
    )
    assert not found.continues


@pytest.mark.parametrize(
    ("given", "said"),
    [(5, "5"), (False, "false"), ({"sky": "blue"}, '{"sky":"blue"}'), ([5, None], "[5,null]"),
     ([["a"]], '[["a"]]'), ([None, "blue"], "blue"), ({"type": "text", "text": "blue"}, "blue"),
     (None, ""), ([], "")],
)  # fmt: skip
def test_results_of_any_form(facts: ModelFacts, given: Any, said: str) -> None:
    """What is neither a text nor blocks is shown as JSON."""
    result = {**RESULT, "content": given}
    use = {"role": "assistant", "content": [USE]}
    found = talk(facts, messages=[*HELLO, use, {"role": "user", "content": [result]}])
    assert found.messages[-1].content == said


def test_documents(facts: ModelFacts) -> None:
    """Those that are text are read, with their titles; the others are a note."""
    source: dict[str, Any] = {"type": "text", "media_type": "text/plain", "data": "rain"}
    document = {"type": "document", "source": source, "citations": {"enabled": True}}
    result = {**RESULT, "content": [{**document, "title": "Sky"}]}
    found = talk(
        facts,
        messages=[
            {"role": "user", "content": [document, text("read it")]},
            {"role": "assistant", "content": [USE]},
            {"role": "user", "content": [result]},
        ],
    )
    first, _, last = found.messages
    assert (first.content, last.content) == ("rain\nread it", "Sky\nrain")
    for other in (
        {"type": "base64", "media_type": "application/pdf", "data": "x"},
        {"type": "text"},
        "https://example.org",
    ):
        odd = {"role": "user", "content": [{**document, "source": other}]}
        (message,) = talk(facts, messages=[odd]).messages
        assert message.content in ("[document]", "https://example.org") or (
            message.content or ""
        ).startswith("[document: ")


def test_only_a_call(facts: ModelFacts) -> None:
    """An assistant that only calls has no content."""
    said = [*HELLO, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT]}]
    assert talk(facts, messages=said).messages[1].content is None


def test_goes_on(facts: ModelFacts) -> None:
    """A last message of the assistant's is what the answer goes on with."""
    said = [*HELLO, {"role": "assistant", "content": "The sky is"}]
    assert talk(facts, messages=said).continues


def test_tools(facts: ModelFacts) -> None:
    """Those that the client runs; those of Anthropic's own types are named as left out."""
    found = talk(
        facts,
        tools=[{"type": "web_search_20250305", "name": "web_search"}, SKY,
               {"type": "custom", "name": "now", "input_schema": {}, "strict": True},
               {"name": "no schema"}],
    )  # fmt: skip
    assert found.left_out == ("Tools of the type web_search_20250305 are left out.",)
    assert found.tools == (
        Tool(name="sky", description="Looks up.", parameters=SCHEMA),
        Tool(name="now"),
        Tool(name="no schema"),
    )


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ("auto", None, True)),
        ({"type": "auto"}, ("auto", None, True)),
        ({"type": "any"}, ("required", None, True)),
        ("required", ("required", None, True)),
        ({"type": "none"}, ("none", None, True)),
        ({"type": "tool", "name": "sky"}, ("required", "sky", True)),
        ({"type": "auto", "disable_parallel_tool_use": True}, ("auto", None, False)),
    ],
)
def test_choice(facts: ModelFacts, choice: Any, expected: tuple[str, str | None, bool]) -> None:
    """What may be called."""
    found = talk(facts, tools=[SKY], tool_choice=choice)
    assert (found.choice, found.only, found.parallel) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Thinking()),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}},
         Thinking(is_on=True, budget=2048)),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
         Thinking(is_on=True, effort="low")),
        ({"thinking": {"type": "disabled"}}, Thinking(is_on=False)),
        ({"thinking": {"type": "OFF"}}, Thinking(is_on=False)),
        ({"thinking": "none"}, Thinking(is_on=False, effort="none")),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, Thinking(is_on=True, budget=0)),
        ({"thinking": 0}, Thinking(is_on=False)),
        ({"thinking": {"type": "on"}}, Thinking(is_on=True)),
        ({"output_config": {"effort": "max"}}, Thinking(effort="max")),
    ],
)  # fmt: skip
def test_thinking(facts: ModelFacts, fields: dict[str, Any], expected: Thinking) -> None:
    """Whether, how much, and for how many tokens."""
    assert talk(facts, **fields).thinking == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {"output_format": {"type": "json_schema", "schema": SCHEMA}},
    ],
)
def test_structured(facts: ModelFacts, fields: dict[str, Any]) -> None:
    """A schema for the text is held as that of response_format is."""
    wanted = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
    held = talk(facts, response_format=wanted).params.sampling.constraint
    found = talk(facts, **fields).params.sampling.constraint
    assert held is not None
    assert found is not None
    assert (found.kind, found.text) == (held.kind, held.text)


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"messages": None}, "messages", "missing"),
    ({"messages": []}, "messages", "missing"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages",
     r"messages\[0\].content\[0\] is of type image"),
    ({"tools": [{**SKY, "name": f"t{i}"} for i in range(2000)]}, "tools", "at most"),
    ({"tool_choice": {"type": "any"}}, "tool_choice", "no tools"),
    ({"tools": [SKY], "tool_choice": {"type": "tool"}}, "tool_choice", "name is missing"),
    ({"tools": [SKY], "tool_choice": {"type": "tool", "name": "sea"}}, "tool_choice", "'sea'"),
    ({"tools": [SKY], "tool_choice": {"type": "all"}}, "tool_choice", "must be auto"),
    ({"thinking": {"type": "perhaps"}}, "thinking", "must be one of"),
    ({"thinking": {"type": "enabled", "budget_tokens": -3}}, "thinking", "0 or more"),
    ({"output_config": {"format": {"type": "xml"}}}, "output_config.format", "json_schema"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format", "json_schema"),
    ({"output_format": {"type": "json_schema", "schema": {"$ref": "#/no"}}},
     "output_format", "no"),
    ({"thread": {"type": "create"}}, "thread", "stores nothing"),
    ({"max_tokens": -1}, "max_tokens", "negative"),
    ({"stop_sequences": ["a"] * 257}, "stop_sequences", "at most 256"),
    ({"stop_sequences": ["a" * 2000]}, "stop_sequences", "at most 1024"),
    ({"temperature": 101}, "temperature", "from 0"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "words"), BAD)
def test_refused(facts: ModelFacts, fields: dict[str, Any], param: str, words: str) -> None:
    """What cannot be read is refused with its place."""
    with pytest.raises(RequestError, match=words) as caught:
        talk(facts, **fields)
    assert caught.value.param == param

"""A tool loop over the other APIs, with models that recite what a family writes."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import anthropic
import ollama
import pytest
from anthropic.types import Message

from tests.api.anthropic import oracle
from tests.support.chats import TOOLS
from tests.support.models.speaking import FAMILIES, Arguments, Speaker
from tests.support.programs.processes import Server, serving

SKY: Arguments = {"at": 'Zürich ☂ "old"\n<town>', "days": [1, 2]}
CALLS: list[tuple[str, Arguments]] = [("sky", SKY), ("sea", {})]
THOUGHT, TEXT, LAST = "Rain, or 2 < 3?", "I look.", "It rains."
ASKED = "Please say case first."
RESULT = "case second: rain"


class Talker:
    """A server whose model calls tools when asked, and answers their results."""

    def __init__(self, speaker: Speaker, server: Server) -> None:
        self.server = server
        self.thought = THOUGHT if speaker.thought is not None else ""
        self.text = TEXT if speaker.speaks else ""
        self.calls = CALLS if speaker.many else CALLS[:1]


@pytest.fixture(scope="module", params=["qwen3", "hermes"])
def talker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Talker]:
    speaker = FAMILIES[request.param]
    recitals = [
        speaker.recital(speaker.answer(THOUGHT, TEXT, CALLS), "case first"),
        speaker.recital(speaker.answer(THOUGHT, LAST), "case second"),
    ]
    model = speaker.write_model(tmp_path_factory.mktemp("family") / "model.gguf", recitals)
    with serving("--model", model, "--ctx-size", "8192", "-np", "2") as server:
        yield Talker(speaker, server)


def test_messages(talker: Talker) -> None:
    """Whole and streamed blocks are the same; results lead to the answer."""
    tools: Any = [
        {"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]}
        for tool in TOOLS
    ]
    asked: Any = {"model": "any", "max_tokens": 400, "tools": tools}
    messages: list[Any] = [{"role": "user", "content": ASKED}]
    with anthropic.Anthropic(base_url=talker.server.url, api_key="x", max_retries=0) as client:
        create: Any = client.messages.create
        message: Message = create(**asked, messages=messages)
        with client.messages.stream(**asked, messages=messages) as stream:
            streamed = stream.get_final_message()
        kinds = ["thinking"] * bool(talker.thought) + ["text"] * bool(talker.text)
        assert [block.type for block in message.content] == kinds + ["tool_use"] * len(talker.calls)
        shown = [block.to_dict() for block in message.content]
        again = [block.to_dict() for block in streamed.content]
        for block in (*shown, *again):
            block.pop("id", None)
        assert shown == again
        uses = [block for block in message.content if block.type == "tool_use"]
        assert [(use.name, use.input) for use in uses] == talker.calls
        assert message.stop_reason == streamed.stop_reason == "tool_use"
        results = [
            {"type": "tool_result", "tool_use_id": use.id, "content": RESULT} for use in uses
        ]
        messages += [message.to_param(), {"role": "user", "content": results}]
        message = create(**asked, messages=messages)
        *_, block = message.content
        assert (block.type, message.stop_reason) == ("text", "end_turn")
        assert block.type == "text"
        assert block.text == LAST
        assert (message.usage.cache_read_input_tokens or 0) > 0
    body = {**asked, "messages": messages[:1], "stream": True}
    assert oracle.events(talker.server.post(body, "/v1/messages").text)


@anthropic.beta_tool
def sky(at: str, days: list[int]) -> str:
    """Looks at the sky."""
    assert (at, days) == tuple(SKY.values())
    return RESULT


@anthropic.beta_tool
def sea() -> str:
    """Looks at the sea."""
    return RESULT


def test_tool_runner(talker: Talker) -> None:
    """The official package runs the tools until the answer is there."""
    messages: list[Any] = [{"role": "user", "content": ASKED}]
    with anthropic.Anthropic(base_url=talker.server.url, api_key="x", max_retries=0) as client:
        for streaming in (False, True):
            runner: Any = client.beta.messages.tool_runner(
                model="any", max_tokens=400, tools=[sky, sea], messages=messages, stream=streaming
            )
            message = runner.until_done()
            assert message.content[-1].text == LAST


def test_ollama(talker: Talker) -> None:
    """The same over /api/chat."""
    client: Any = ollama.Client(host=talker.server.url)
    asked: Any = {"model": "any", "tools": TOOLS, "options": {"num_predict": 400}}
    messages: list[Any] = [{"role": "user", "content": ASKED}]
    message = client.chat(**asked, messages=messages).message
    parts = [part.message for part in client.chat(**asked, messages=messages, stream=True)]
    assert (message.thinking or "") == talker.thought
    assert "".join(part.thinking or "" for part in parts) == talker.thought
    assert message.content == "".join(part.content or "" for part in parts) == talker.text
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls]
    assert calls == talker.calls
    assert calls == [
        (call.function.name, call.function.arguments)
        for part in parts
        for call in part.tool_calls or ()
    ]
    messages.append(message)
    messages += [{"role": "tool", "tool_name": name, "content": RESULT} for name, _ in calls]
    assert client.chat(**asked, messages=messages).message.content == LAST

"""An answer as lines, and as one reply of the same shape."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import ollama
import pytest

from tests.api.intake.chat.scripted import Scripted, deltas
from tests.support.facts import facts_with
from worker.api.answer import exchange as exchanges
from worker.api.intake.generation import Generation
from worker.api.intake.prompts import TextPrompt
from worker.api.ollama.exchange import GenerateExchange, OllamaChatExchange
from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.errors import DecodeError

FACTS = facts_with()
# A line end between the parts of an object is none between lines.
TOKENS = ("(Ra", "in?)", "I ", "look.", "[sky:", '{\n\t"at": ', "1\r\n}]", "[now:", "{}]", "")
CALLS: list[dict[str, Any]] = [
    {"id": "call-0", "function": {"index": 0, "name": "sky", "arguments": {"at": 1}}},
    {"id": "call-1", "function": {"index": 1, "name": "now", "arguments": {}}},
]
COST = {
    "total_duration": 2_000_000_000,
    "load_duration": 0,
    "prompt_eval_count": 3,
    "prompt_eval_duration": 1_000_000_000,
    "eval_count": 10,
    "eval_duration": 1_000_000_000,
}


async def sent(
    kind: type[OllamaChatExchange | GenerateExchange],
    told: list[Delta],
    *,
    streaming: bool,
    silent_s: float = 0,
) -> tuple[int, dict[bytes, bytes], str]:
    """Status, headers and body of the answer to these deltas."""
    stream = Stream(["x-0"], lambda _: None)

    def say() -> None:
        for delta in told:
            stream.put(delta)

    asyncio.get_running_loop().call_later(silent_s, say)
    prompts = (TextPrompt((5, 6, 7), text="abc"),)
    generation = Generation(prompts=prompts, reader=Scripted, model="m")
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, str]:
        await asyncio.Event().wait()
        return {}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    exchange = kind(generation, stream, FACTS, streaming=streaming)
    await exchange({}, receive, send)
    (start, *parts) = messages
    body = b"".join(part["body"] for part in parts)
    return start["status"], dict(start["headers"]), body.decode()


def lines(
    told: list[Delta], kind: type[OllamaChatExchange | GenerateExchange] = OllamaChatExchange
) -> list[dict[str, Any]]:
    status, headers, text = asyncio.run(sent(kind, told, streaming=True))
    assert status == 200
    assert headers[b"content-type"] == b"application/x-ndjson"
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_lines() -> None:
    """Thoughts and text as they are written, a call once it is whole, the cost at the end."""
    *parts, last = lines(deltas(*TOKENS, cached=2))
    messages = [part["message"] for part in parts]
    assert {message["role"] for message in messages} == {"assistant"}
    assert [message.get("thinking") for message in messages[:2]] == ["Ra", "in?"]
    assert "".join(message["content"] for message in messages) == "I look."
    assert [call for message in messages for call in message.get("tool_calls", ())] == CALLS
    assert not any(part["done"] for part in parts)
    assert last.pop("created_at")
    assert last == {
        "model": "m", "done": True, "done_reason": "stop", **COST,
        "message": {"role": "assistant", "content": ""},
    }  # fmt: skip
    for part in (*parts, {**last, "created_at": "x"}):
        ollama.ChatResponse.model_validate(part, strict=True)


@pytest.mark.parametrize("kind", [OllamaChatExchange, GenerateExchange])
def test_a_silent_stream(
    kind: type[OllamaChatExchange | GenerateExchange], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nothing is told there are lines that add nothing: clients read each as JSON."""
    monkeypatch.setattr(exchanges, "PULSE_S", 0.001)
    told = deltas("a", "b", cached=2)
    status, headers, text = asyncio.run(sent(kind, told, streaming=True, silent_s=0.05))
    assert (status, headers[b"content-type"]) == (200, b"application/x-ndjson")
    *parts, last = [json.loads(line) for line in text.splitlines()]
    is_chat = kind is OllamaChatExchange
    reply = ollama.ChatResponse if is_chat else ollama.GenerateResponse
    for line in parts:
        reply.model_validate(line, strict=True)
    empty = {"message": {"role": "assistant", "content": ""}} if is_chat else {"response": ""}
    assert parts[0].pop("created_at")
    assert parts[0] == {"model": "m", "done": False, **empty}
    texts = (part["message"]["content"] if is_chat else part["response"] for part in parts)
    assert "".join(texts) == "ab"
    assert (last["done"], last["prompt_eval_count"], last["eval_count"]) == (True, 3, 2)


def test_whole() -> None:
    """The same as one line."""
    told = deltas(*TOKENS, cached=2)
    _, headers, text = asyncio.run(sent(OllamaChatExchange, told, streaming=False))
    assert headers[b"content-type"] == b"application/json"
    reply = json.loads(text)
    assert reply["message"] == {
        "role": "assistant", "content": "I look.", "thinking": "Rain?", "tool_calls": CALLS,
    }  # fmt: skip
    assert {name: reply[name] for name in COST} == COST


def test_a_text() -> None:
    """A prompt's answer is `response`."""
    *parts, last = lines(deltas("(hm)", "a", "b", reason="length"), GenerateExchange)
    assert parts[0]["thinking"] == "hm"
    assert "".join(part["response"] for part in parts) == "ab"
    assert (last["response"], last["done_reason"]) == ("", "length")
    for part in (*parts, last):
        ollama.GenerateResponse.model_validate(part, strict=True, extra="forbid")


def test_an_error_in_the_middle() -> None:
    """A line that the official client raises; nothing follows it."""
    *_, last = lines([*deltas("I ", reason=None), Delta("x-0", error=DecodeError("It broke."))])
    assert last == {"error": "It broke."}


@pytest.mark.parametrize("streaming", [True, False])
def test_an_error_before_the_first_token(streaming: bool) -> None:
    """It keeps its status."""
    told = [Delta("x-0", error=DecodeError("It broke."))]
    status, _, text = asyncio.run(sent(OllamaChatExchange, told, streaming=streaming))
    assert (status, json.loads(text)) == (500, {"error": "It broke."})

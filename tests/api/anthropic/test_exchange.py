"""A message's events around its blocks, its whole reply, and an error in the middle."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec
import pytest

from tests.api.anthropic import oracle
from tests.api.intake.chat.scripted import Scripted, deltas
from worker.api.anthropic.exchange import MessageExchange
from worker.api.intake.generation import Generation
from worker.api.intake.prompts import TextPrompt
from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.errors import DecodeError

TOKENS = ("(Ra", "in?)", "I ", "look.", "[sky:", '{"at": ', "1}]", "")


async def sent(told: list[Delta], *, streaming: bool = True) -> tuple[int, dict[bytes, bytes], str]:
    """Status, headers and body of the answer to these deltas."""
    stream = Stream(["x-0"], lambda _: None)
    for delta in told:
        stream.put(delta)
    prompts = (TextPrompt((5, 6, 7), text="abc"),)
    generation = Generation(prompts=prompts, reader=Scripted, model="m")
    exchange = MessageExchange(generation, stream, streaming=streaming, shows_thoughts=True)
    messages: list[dict[str, object]] = []

    async def receive() -> dict[str, str]:
        await asyncio.Event().wait()
        return {}

    async def send(message: dict[str, object]) -> None:
        messages.append(message)

    await exchange({}, receive, send)
    (start, *parts) = messages
    body = b"".join(cast(bytes, part["body"]) for part in parts)
    return (
        cast(int, start["status"]),
        dict(cast("list[tuple[bytes, bytes]]", start["headers"])),
        body.decode(),
    )


def answer(told: list[Delta], *, streaming: bool = True) -> str:
    return asyncio.run(sent(told, streaming=streaming))[2]


def test_order_of_events() -> None:
    """One message_start and a ping, the blocks, one message_delta with what it cost, the stop."""
    status, headers, text = asyncio.run(sent(deltas(*TOKENS, cached=2)))
    assert status == 200
    assert headers[b"content-type"].startswith(b"text/event-stream")
    names = [line.removeprefix("event: ") for line in text.splitlines() if line[:6] == "event:"]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert list(dict.fromkeys(names)) == [
        "message_start",
        "ping",
        *block,
        "message_delta",
        "message_stop",
    ]
    assert [names.count(name) for name in ("message_start", "message_delta", "message_stop")] == [
        1
    ] * 3
    assert names[:2] == ["message_start", "ping"]
    assert names[-2:] == ["message_delta", "message_stop"]
    first, *_, last, _ = oracle.events(text)
    assert first.type == "message_start"
    assert (first.message.id, first.message.content, first.message.stop_reason) == (
        "msg_x",
        [],
        None,
    )
    assert last.type == "message_delta"
    assert last.delta.stop_reason == "tool_use"
    assert (last.usage.input_tokens, last.usage.cache_read_input_tokens) == (1, 2)
    assert last.usage.output_tokens == 8
    assert last.usage.output_tokens_details is not None
    assert last.usage.output_tokens_details.thinking_tokens == 2


def test_arguments_as_they_are_written() -> None:
    """Each token that writes a call's arguments is an event."""
    events = oracle.events(answer(deltas(*TOKENS)))
    parts = [
        event.delta.partial_json
        for event in events
        if event.type == "content_block_delta" and event.delta.type == "input_json_delta"
    ]
    assert "".join(parts) == '{"at": 1}'
    assert len(parts) > 2


def test_whole() -> None:
    """The same as one reply."""
    message = oracle.message(answer(deltas(*TOKENS, cached=2), streaming=False))
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    assert message.stop_reason == "tool_use"
    assert message.usage.cache_read_input_tokens == 2
    assert message.usage.input_tokens == 1


@pytest.mark.parametrize(
    ("tokens", "reason", "stopped_by", "told"),
    [
        (("hi",), "stop", None, ("end_turn", None)),
        (("hi",), "length", None, ("max_tokens", None)),
        (("hi",), "stop", "END", ("stop_sequence", "END")),
        (("[sky:{}]",), "stop", None, ("tool_use", None)),
        (("[sky:{}]",), "length", None, ("max_tokens", None)),
    ],
)
def test_why_it_ended(
    tokens: tuple[str, ...], reason: str, stopped_by: str | None, told: tuple[str, str | None]
) -> None:
    """In Anthropic's words, and before which stop sequence."""
    given = deltas(*tokens, reason=reason)
    given[-1] = msgspec.structs.replace(given[-1], stopped_by=stopped_by)
    message = oracle.message(answer(given, streaming=False))
    assert (message.stop_reason, message.stop_sequence) == told


def test_nothing_said() -> None:
    """An answer without a token has no block."""
    given = [Delta("x-0", finish_reason="length")]
    assert oracle.message(answer(given, streaming=False)).content == []
    assert [event.type for event in oracle.events(answer(given))] == [
        "message_start", "message_delta", "message_stop",
    ]  # fmt: skip


def test_an_error_in_the_middle() -> None:
    """An `error` event; nothing follows it."""
    text = answer([*deltas("I ", reason=None), Delta("x-0", error=DecodeError("It broke."))])
    *_, last, rest = text.split("\n\n")
    name, data = last.split("\n")
    assert (name, rest) == ("event: error", "")
    assert oracle.error(data.removeprefix("data: ")).error.message == "It broke."
    assert "message_stop" not in text


def test_an_error_before_the_first_token() -> None:
    """It keeps its status."""
    status, headers, text = asyncio.run(sent([Delta("x-0", error=DecodeError("It broke."))]))
    assert status == 500
    assert headers[b"content-type"] == b"application/json"
    error = oracle.error(text)
    assert (error.error.type, error.error.message) == ("api_error", "It broke.")

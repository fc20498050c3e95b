"""A response's events and the whole of it, read by the official client's types and accumulator."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState

from tests.api.intake.chat.scripted import Scripted, deltas
from tests.api.responses import oracle
from tests.support.facts import facts_with
from worker.api.intake.generation import Generation
from worker.api.intake.prompts import TextPrompt
from worker.api.responses.exchange import ResponseExchange
from worker.api.responses.schemas import ResponseRequest
from worker.api.responses.store import ResponseStore
from worker.engine.output import TokenLogprob
from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.errors import DecodeError

FACTS = facts_with()
CALLING = ("(h", "m)", "I look.", "[sky:", '{"a":1}', "]")


def exchange(told: Sequence[Delta], **fields: Any) -> ResponseExchange:
    """Over a stream to which the engine said all it will say."""
    body = msgspec.convert({"input": "hello", **fields}, ResponseRequest)
    stream = Stream(["x-0"], lambda _: None)
    for delta in told:
        stream.put(delta)
    prompts = (TextPrompt((5, 6, 7), text="abc"),)
    generation = Generation(prompts=prompts, reader=Scripted, model="m")
    return ResponseExchange(generation, stream, body, FACTS, ResponseStore(), [])


async def _answer(served: ResponseExchange) -> tuple[int, str]:
    """(status, body) as HTTP would have them."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await served({}, asyncio.Event().wait, send)
    body = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], body.decode()


def streamed(*texts: str, reason: str = "stop", **fields: Any) -> list[Any]:
    """Events after tokens of these texts."""
    status, body = asyncio.run(
        _answer(exchange(deltas(*texts, reason=reason, cached=2), stream=True, **fields))
    )
    assert status == 200
    return oracle.events(body)


def whole(*texts: str, reason: str = "stop", **fields: Any) -> Any:
    """The response after the same."""
    status, body = asyncio.run(_answer(exchange(deltas(*texts, reason=reason, cached=2), **fields)))
    assert status == 200
    return oracle.response(body)


def names(events: Sequence[Any]) -> list[str]:
    """Their types, without the common beginning; equal ones that follow each other count once."""
    found = [event.type.removeprefix("response.") for event in events]
    return [name for place, name in enumerate(found) if place == 0 or found[place - 1] != name]


def test_order_of_events() -> None:
    """Each item is opened, grows and is closed, before the next one is opened."""
    events = streamed(*CALLING)
    assert names(events) == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done",
        "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.done",
        "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]  # fmt: skip
    ids: dict[int, str] = {}
    for event in events:
        if event.type == "response.output_item.added":
            ids[event.output_index] = event.item.id
        elif hasattr(event, "item_id"):
            assert ids[event.output_index] == event.item_id
    assert list(ids) == [0, 1, 2]
    assert len(set(ids.values())) == 3


@pytest.mark.parametrize(
    ("texts", "reason"),
    [(CALLING, "stop"), (("[a:{}]", "[b:{}]"), "stop"), (("",), "stop"), (("so",), "stop"),
     (("(hm",), "stop"), (("a(b)c(d)[e:{}]f",), "stop")],
)  # fmt: skip
def test_stream_is_the_whole(texts: tuple[str, ...], reason: str) -> None:
    """What the client puts together equals the last event, and that the unstreamed response."""
    events = streamed(*texts, reason=reason)
    state = ResponseStreamState[Any](input_tools=omit, text_format=omit)
    for event in events:
        state.handle_event(event)
    last, complete = events[-1].response, whole(*texts, reason=reason)
    assert state._completed_response is not None  # pyright: ignore[reportPrivateUsage]
    assert state._completed_response.output_text == complete.output_text  # pyright: ignore[reportPrivateUsage]
    apart = {"created_at", "completed_at"}
    assert last.model_dump(exclude=apart) == complete.model_dump(exclude=apart)
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.model_dump() for item in done] == [item.model_dump() for item in last.output]
    assert (last.id, last.model) == (events[0].response.id, "m")
    assert {item.status for item in last.output} == {"completed"}


def test_deltas_add_up() -> None:
    """The deltas of an item are its text."""
    events = streamed(*CALLING)
    told: dict[int, str] = {}
    for event in events:
        if event.type.endswith(".delta"):
            told[event.output_index] = told.get(event.output_index, "") + event.delta
    thought, message, call = events[-1].response.output
    assert told == {0: "hm", 1: "I look.", 2: '{"a":1}'}
    assert (thought.content[0].text, thought.summary) == ("hm", [])
    assert (message.content[0].text, call.arguments) == ("I look.", '{"a":1}')
    assert (call.name, call.call_id) == ("sky", "call-0")


def test_usage() -> None:
    """Tokens are counted, those from the cache and those of thoughts too."""
    usage = whole(*CALLING).usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (3, 6, 9)
    assert usage.input_tokens_details.cached_tokens == 2
    assert usage.output_tokens_details.reasoning_tokens == 2


def test_thoughts_as_summary() -> None:
    """Who asks for a summary gets the thoughts there; who asks for it gets them sealed."""
    asked: Any = {"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]}
    events = streamed("(hm)", "so", **asked)
    assert names(events)[2:8] == [
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
        "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done",
    ]  # fmt: skip
    thought = events[-1].response.output[0]
    assert (thought.summary[0].text, thought.content) == ("hm", None)
    assert thought.encrypted_content == "aG0="


def test_an_answer_that_is_cut() -> None:
    """It is incomplete, and so is its last item."""
    events = streamed("so", " it", reason="length")
    assert names(events)[-4:] == [
        "output_text.done", "content_part.done", "output_item.done", "incomplete"
    ]  # fmt: skip
    for response in (events[-1].response, whole("so", " it", reason="length")):
        assert (response.status, response.output_text) == ("incomplete", "so it")
        assert response.incomplete_details.reason == "max_output_tokens"
        assert response.output[0].status == "incomplete"


@pytest.mark.parametrize("reason", ["length", "stop"])
def test_a_call_that_never_ended(reason: str) -> None:
    """It is never told as done. A stream that has told its begin is incomplete; a whole response
    has its text instead."""
    events = streamed("[sky:", '{"a', reason=reason)
    done = [event.item.type for event in events if event.type == "response.output_item.done"]
    assert done == ["message"]
    assert "response.function_call_arguments.done" not in {event.type for event in events}
    last = events[-1]
    assert last.type == "response.incomplete"
    call = last.response.output[0]
    assert (call.type, call.status) == ("function_call", "incomplete")
    cut = "max_output_tokens" if reason == "length" else None
    assert last.response.incomplete_details.reason == cut
    complete = whole("[sky:", '{"a', reason=reason)
    assert [item.type for item in complete.output] == ["message"]
    assert complete.output_text == '[sky:{"a'
    assert complete.status == ("incomplete" if cut else "completed")


def test_logprobs() -> None:
    """Each token of the message has one, in the events and in the whole; thoughts have none."""
    told = [
        msgspec.structs.replace(delta, logprobs=(TokenLogprob(1, -0.5, ((1, -0.5), (2, -1.5))),))
        for delta in deltas("(hm)", "", "s", "o")
    ]
    status, body = asyncio.run(_answer(exchange(told, stream=True, top_logprobs=2)))
    assert status == 200
    events = oracle.events(body)
    scored = [len(e.logprobs) for e in events if e.type == "response.output_text.delta"]
    assert scored == [2, 1]  # the token without text comes with the next one
    message = events[-1].response.output[1]
    assert [score.logprob for score in message.content[0].logprobs] == [-0.5] * 3


def test_echo() -> None:
    """The response repeats what was asked for; tools that are no functions are not among it."""
    parameters: dict[str, Any] = {"type": "object", "properties": {}}
    asked: dict[str, Any] = {
        "instructions": "Be kind.", "metadata": {"a": "b"}, "max_output_tokens": 9, "user": "u",
        "reasoning": {"effort": "low", "summary": None}, "text": {"verbosity": "low"},
        "tools": [{"type": "web_search"}, {"type": "mcp", "server_label": "s"},
                  {"type": "function", "name": "sky", "parameters": parameters, "strict": True}],
    }  # fmt: skip
    found = whole("so", **asked)
    assert (found.instructions, found.metadata, found.user) == ("Be kind.", {"a": "b"}, "u")
    assert (found.max_output_tokens, found.reasoning.effort) == (9, "low")
    assert (found.text.verbosity, found.text.format.type) == ("low", "text")
    assert [(tool.name, tool.strict) for tool in found.tools] == [("sky", True)]
    assert (found.parallel_tool_calls, found.tool_choice, found.error) == (True, "auto", None)


def test_an_error_before_the_first_token() -> None:
    """It has its status, and OpenAI's shape."""
    failed = [Delta("x-0", error=DecodeError("A batch failed."))]
    for streaming in (False, True):
        status, body = asyncio.run(_answer(exchange(failed, stream=streaming)))
        assert status == 500
        assert msgspec.json.decode(body)["error"]["message"] == "A batch failed."


def test_an_error_after_the_first_token() -> None:
    """An error event, then the response as it failed; nothing that is open is told as done."""
    told = [*deltas("so", reason=None), Delta("x-0", error=DecodeError("A batch failed."))]
    status, body = asyncio.run(_answer(exchange(told, stream=True)))
    assert status == 200
    events = oracle.events(body)
    assert names(events)[-3:] == ["output_text.delta", "error", "failed"]
    assert events[-2].message == "A batch failed."
    response = events[-1].response
    assert (response.status, response.error.code) == ("failed", "server_error")
    assert response.output_text == "so"

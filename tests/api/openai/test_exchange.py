"""An answer may hold text back, and tell several events with one delta."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from worker.api.intake.chat.chat_request import ChatRequest
from worker.api.intake.generation import Generation
from worker.api.intake.prompts import TextPrompt
from worker.api.openai.exchange import Answer, OpenAIExchange
from worker.api.openai.schemas import ChatChoice, ChatCompletion, ChatDelta
from worker.engine.sequence import Delta
from worker.engine.stream import Stream

DELTAS = [
    Delta("x-0", "<th", 1),
    Delta("x-0", "ink>why", 2),
    Delta("x-0", "</think>so", 3, finish_reason="stop"),
]


class Thinker(Answer[ChatChoice]):
    """Holds text back while it may be a tag; then a thought and content, an event each."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._held = ""

    def take(self, delta: Delta) -> list[ChatChoice]:
        self._held += delta.text
        if not delta.finish_reason:
            return []
        thought, _, content = self._held.removeprefix("<think>").partition("</think>")
        self.told = [thought, content]
        return [
            ChatChoice(index=0, delta=ChatDelta(content=thought)),
            ChatChoice(index=0, delta=ChatDelta(content=content), finish_reason="stop"),
        ]

    def silent(self) -> ChatChoice:
        return ChatChoice(index=0, delta=ChatDelta())

    def whole(self, index: int) -> ChatChoice:
        return ChatChoice(index=index, message=ChatDelta("assistant", "|".join(self.told)))


class Exchange(OpenAIExchange[ChatChoice]):
    """Chat's frames."""

    prefix = "chatcmpl-"

    def event(self, choices: list[ChatChoice], **more: Any) -> ChatCompletion:
        return ChatCompletion(object="chunk", choices=choices, **self.head, **more)

    reply = event


def exchange(*, streaming: bool) -> Exchange:
    """One over a stream to which the engine said all it will say."""
    stream = Stream(["x-0"], lambda _: None)
    for delta in DELTAS:
        stream.put(delta)
    generation = Generation(prompts=(TextPrompt((5, 6), text="ab"),))
    return Exchange(
        generation,
        stream,
        ChatRequest(stream=streaming),
        [Thinker()],
    )


def test_events_of_one_delta() -> None:
    """Three tokens make two events, both with the last token; only the last one has timings."""

    async def frames() -> list[dict[str, Any]]:
        found = [frame async for frame in exchange(streaming=True).frames()]
        return [json.loads(frame.removeprefix(b"data: ")) for frame in found]

    events = asyncio.run(frames())
    assert [event["choices"][0]["delta"]["content"] for event in events] == ["why", "so"]
    assert [event["choices"][0]["finish_reason"] for event in events] == [None, "stop"]
    assert ["timings" in event for event in events] == [False, True]


def test_whole_reply_counts_what_was_held_back() -> None:
    """The same answer as one reply; each sampled token counts, told or not."""

    async def body() -> Any:
        return await exchange(streaming=False).body()

    reply = asyncio.run(body())
    assert reply.choices[0].message.content == "why|so"
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (2, 3)

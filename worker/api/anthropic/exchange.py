"""A message's way back: its events, or all of it."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from worker.api.anthropic.blocks import Blocks
from worker.api.anthropic.replies import (
    AnswerBlock,
    BlockEvent,
    Ending,
    MessageDelta,
    MessageReply,
    MessageStart,
    MessageStop,
    MessageUsage,
    OutputDetails,
    Ping,
)
from worker.api.common.chat.answer_state import AnswerState
from worker.api.common.exchange import DeltaExchange
from worker.api.common.generation import Generation
from worker.api.common.shapes import AnthropicErrorReply, anthropic_reply
from worker.api.common.usage import Tally
from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.http import sse
from worker.http.replies import ErrorReply

# How an answer ended, in our words -> in Anthropic's
_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessageExchange(DeltaExchange):
    """message_start, the events of each block, message_delta, message_stop; each under its name."""

    closing: ClassVar[bytes] = b""

    def __init__(
        self, generation: Generation, stream: Stream, *, streaming: bool, shows_thoughts: bool
    ) -> None:
        """shows_thoughts: see `Blocks`"""
        super().__init__(stream, streaming=streaming)
        self._id = "msg_" + stream.ids[0].rpartition("-")[0]
        self._model = generation.model
        self._said = AnswerState(generation.reader())
        self._blocks = Blocks(shows_thoughts=shows_thoughts)
        self._warnings = generation.warnings
        self._tally = Tally(generation.num_prompt_tokens, stream.ids)
        self._stopped_by: str | None = None
        self._has_begun = False

    def told(self, delta: Delta) -> list[bytes]:
        """Its events; the stream's first ones wait for the first token."""
        events: list[bytes] = []
        if not self._has_begun:
            self._has_begun = True
            events.append(_frame(MessageStart(self._reply([], None))) + _frame(Ping()))
        return events + [_frame(event) for event in self._take(delta)]

    def told_last(self) -> list[bytes]:
        events = [_frame(event) for event in self._blocks.close()]
        last = _frame(MessageDelta(self._ending(), self._usage())) + _frame(MessageStop())
        return [*events, last]

    async def body(self) -> MessageReply:
        while self.stream.is_running:
            for delta in await self.stream.take():
                self._take(delta)
        self._blocks.close()
        return self._reply(self._blocks.whole(), self._ending())

    def shaped(self, status: int, reply: ErrorReply) -> AnthropicErrorReply:
        """In Anthropic's shape."""
        return anthropic_reply(status, reply)

    def failure(self, error: Exception) -> bytes:
        status, reply, _ = self.error_reply(error)
        return _frame(self.shaped(status, reply))

    def _take(self, delta: Delta) -> list[BlockEvent]:
        self._tally.add(delta)
        self._stopped_by = delta.stopped_by
        return self._blocks.take(self._said.take(delta))

    def _reply(self, content: list[AnswerBlock], ending: Ending | None) -> MessageReply:
        return MessageReply(
            id=self._id,
            model=self._model,
            content=content,
            stop_reason=ending and ending.stop_reason,
            stop_sequence=ending and ending.stop_sequence,
            usage=self._usage(),
            warnings=self._warnings or msgspec.UNSET,
        )

    def _ending(self) -> Ending:
        reason = _REASONS[self._said.finish_reason or "stop"]
        if reason == "end_turn" and self._stopped_by is not None:
            return Ending("stop_sequence", self._stopped_by)
        return Ending(reason, None)

    def _usage(self) -> MessageUsage:
        """What the cache gave is known at the end."""
        cached = self._tally.num_cached or 0
        return MessageUsage(
            input_tokens=self._tally.num_prompt - cached,
            cache_creation_input_tokens=0,
            cache_read_input_tokens=cached,
            output_tokens=self._tally.num_sampled,
            output_tokens_details=OutputDetails(self._said.num_thought_tokens),
        )


def _frame(event: msgspec.Struct) -> bytes:
    return sse.frame(event, name=str(event.__struct_config__.tag))

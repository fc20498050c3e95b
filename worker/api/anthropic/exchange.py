"""A message's way back: an answer's events as blocks, or all of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

import msgspec

from worker.api.answer.answer_state import AnswerState
from worker.api.answer.exchange import DeltaExchange
from worker.api.answer.shapes import AnthropicErrorReply, anthropic_reply
from worker.api.answer.usage import Tally
from worker.api.anthropic.schemas import (
    AnswerBlock,
    BlockDelta,
    BlockEvent,
    BlockStart,
    BlockStop,
    Ending,
    InputDelta,
    MessageDelta,
    MessageReply,
    MessageStart,
    MessageStop,
    MessageUsage,
    OutputDetails,
    Ping,
    SignatureDelta,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
)
from worker.api.intake.generation import Generation
from worker.api.intake.priority import anthropic_tier_of
from worker.chat.reader import Arguments, CallBegun, CallEnded, ChatEvent, Content, Thought
from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.http import sse
from worker.http.replies import ErrorReply

# Clients want one with each thought and send it back; here it proves nothing.
SIGNATURE = "gguf-worker"
_NO_INPUT = msgspec.Raw(b"{}")
_Kind = Literal["text", "thinking", "tool_use"]


class _Part:
    """A block as it grows. is_whole: of a call, that it has ended"""

    __slots__ = ("id", "is_whole", "kind", "name", "texts")

    def __init__(self, kind: _Kind, id: str, name: str) -> None:  # noqa: A002
        self.kind: _Kind = kind
        self.id = id
        self.name = name
        self.texts: list[str] = []
        self.is_whole = False


class Blocks:
    """The blocks of one answer, in their order.

        Thought("Rain?")   start 0 thinking, delta 0
        Content("I look")  signature 0, stop 0, start 1 text, delta 1

    White space between thoughts and calls is no block.
    """

    def __init__(self, *, shows_thoughts: bool) -> None:
        """shows_thoughts: else a block of thoughts is empty."""
        self._shows_thoughts = shows_thoughts
        self._parts: list[_Part] = []
        self._open: _Part | None = None
        self._space = ""  # before a text; told once the text goes on

    def take(self, events: Iterable[ChatEvent]) -> list[BlockEvent]:
        """What builds the blocks on the client's side."""
        found: list[BlockEvent] = []
        for event in events:
            match event:
                case Content(text):
                    found += self._text(text)
                case Thought(text):
                    found += self._thought(text)
                case CallBegun(_, name_of_call, name):
                    found += self._begin("tool_use", name_of_call, name)
                case Arguments(_, text):
                    found.append(self._more(text, InputDelta(text)))
                case CallEnded():
                    self._parts[-1].is_whole = True
                    found += self._end()
        return found

    def close(self) -> list[BlockEvent]:
        """The last events, once the answer has ended."""
        if self._parts or not self._space:
            return self._end()
        text, found = self._space, self._begin("text")
        return [*found, self._more(text, TextDelta(text)), *self._end()]

    def whole(self) -> list[AnswerBlock]:
        """All blocks, after `close`. A call that did not end is none; the text tells of it."""
        found: list[AnswerBlock] = []
        for part in self._parts:
            text = "".join(part.texts)
            match part.kind:
                case "text":
                    _add_text(found, text)
                case "thinking":
                    found.append(ThinkingBlock(text if self._shows_thoughts else "", SIGNATURE))
                case "tool_use":
                    if part.is_whole:
                        arguments = msgspec.Raw(text.encode()) if text else _NO_INPUT
                        found.append(ToolUseBlock(part.id, part.name, arguments))
        return found

    def _text(self, text: str) -> list[BlockEvent]:
        found: list[BlockEvent] = []
        if self._open is None or self._open.kind != "text":
            self._space, text = "", self._space + text
            if text.isspace():
                found = self._end()
                self._space = text
                return found
            found += self._begin("text")
        return [*found, self._more(text, TextDelta(text))]

    def _thought(self, text: str) -> list[BlockEvent]:
        found: list[BlockEvent] = []
        if self._open is None or self._open.kind != "thinking":
            found += self._begin("thinking")
        told = self._more(text, ThinkingDelta(text))
        return [*found, told] if self._shows_thoughts else found

    def _begin(self, kind: _Kind, name_of_call: str = "", name: str = "") -> list[BlockEvent]:
        found = self._end()
        self._space = ""
        self._open = _Part(kind, name_of_call, name)
        self._parts.append(self._open)
        block: AnswerBlock
        match kind:
            case "text":
                block = TextBlock("")
            case "thinking":
                block = ThinkingBlock("", "")
            case "tool_use":
                block = ToolUseBlock(name_of_call, name, _NO_INPUT)
        return [*found, BlockStart(self._index, block)]

    def _more(self, text: str, delta: TextDelta | ThinkingDelta | InputDelta) -> BlockEvent:
        self._parts[-1].texts.append(text)
        return BlockDelta(self._index, delta)

    def _end(self) -> list[BlockEvent]:
        """Stop the open block, if there is one."""
        part, self._open = self._open, None
        if part is None:
            return []
        stop = BlockStop(self._index)
        if part.kind != "thinking":
            return [stop]
        return [BlockDelta(self._index, SignatureDelta(SIGNATURE)), stop]

    @property
    def _index(self) -> int:
        return len(self._parts) - 1


def _add_text(found: list[AnswerBlock], text: str) -> None:
    last = found[-1] if found else None
    if isinstance(last, TextBlock):
        last.text += text
    else:
        found.append(TextBlock(text))


# How an answer ended, in our words -> in Anthropic's
_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessageExchange(DeltaExchange):
    """message_start, the events of each block, message_delta, message_stop; each under its name."""

    closing: ClassVar[bytes] = b""

    def __init__(
        self, generation: Generation, stream: Stream, *, streaming: bool, shows_thoughts: bool
    ) -> None:
        """shows_thoughts: see `Blocks`"""
        super().__init__(stream, streaming=streaming, delivery=generation.delivery)
        self._id = "msg_" + self.name
        self._generation = generation
        self._model = generation.model
        self._said = AnswerState(generation.reader())
        self._blocks = Blocks(shows_thoughts=shows_thoughts)
        self._warnings = generation.warnings
        self._tier = anthropic_tier_of(generation.priority)
        self._tally = Tally(generation.num_prompt_tokens, stream.ids)
        self._stopped_by: str | None = None
        self._has_begun = False

    def frames_of(self, delta: Delta) -> list[bytes]:
        """Its events; the stream's first ones wait for the first token."""
        events: list[bytes] = []
        if not self._has_begun:
            self._has_begun = True
            events.append(_frame(MessageStart(self._reply([], None))) + _frame(Ping()))
        return events + [_frame(event) for event in self.take(delta)]

    def catch_up(self, num_told: int) -> None:
        self._has_begun = self._has_begun or num_told > 0

    def last_frames(self) -> list[bytes]:
        events = [_frame(event) for event in self._blocks.close()]
        ended = MessageDelta(self._ending(), self._usage(), self._generation.cache_trace)
        return [*events, _frame(ended) + _frame(MessageStop())]

    def whole(self) -> MessageReply:
        self._blocks.close()
        return self._reply(self._blocks.whole(), self._ending())

    def error_body(self, status: int, reply: ErrorReply) -> AnthropicErrorReply:
        return anthropic_reply(status, reply)

    def failure(self, error: Exception) -> bytes:
        status, reply, _ = self.error_reply(error)
        return _frame(self.error_body(status, reply))

    def take(self, delta: Delta) -> list[BlockEvent]:
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
            usage=msgspec.structs.replace(self._usage(), service_tier=self._tier),
            cache_trace=self._generation.cache_trace,
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

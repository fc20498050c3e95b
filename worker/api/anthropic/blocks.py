"""An answer's events as blocks, each opened with its own type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from worker.api.anthropic.replies import (
    AnswerBlock,
    BlockDelta,
    BlockEvent,
    BlockStart,
    BlockStop,
    InputDelta,
    SignatureDelta,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
)
from worker.chat.reader import Arguments, CallBegun, CallEnded, ChatEvent, Content, Thought

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

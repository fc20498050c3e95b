"""Names of tools as a model can write them: whatever a client calls a tool, its calls come back."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from worker.api.common.chat.chat_input import ChatInput
from worker.chat.message import Message
from worker.chat.reader import CallBegun, ChatEvent, ChatReader

_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")
_MAX = 64


class ToolNames:
    """The client's names that some format of calls could not carry, and what they become: letters,
    digits and _-, each another one."""

    def __init__(self, names: Iterable[str]) -> None:
        self._shown: dict[str, str] = {}
        self._given: dict[str, str] = {}
        names = tuple(dict.fromkeys(names))
        taken = {name for name in names if _PLAIN.fullmatch(name)}
        for name in names:
            if name in taken:
                continue
            short = _OTHER.sub("_", name).strip("_")[:_MAX] or "tool"
            shown, count = short, 1
            while shown in taken:
                count += 1
                shown = f"{short}_{count}"
            taken.add(shown)
            self._shown[name], self._given[shown] = shown, name

    def shown(self, talk: ChatInput) -> ChatInput:
        """The same with names as the model sees them."""
        if not self._shown:
            return talk
        return msgspec.structs.replace(
            talk,
            messages=tuple(self._message(message) for message in talk.messages),
            tools=tuple(
                msgspec.structs.replace(tool, name=self._shown.get(tool.name, tool.name))
                for tool in talk.tools
            ),
            only=self._shown.get(talk.only or "", talk.only),
        )

    def reader(self, reader: ChatReader) -> ChatReader:
        """The same, with the names that the client gave."""
        return _NamedReader(reader, self._given) if self._given else reader

    def _message(self, message: Message) -> Message:
        calls = tuple(
            msgspec.structs.replace(call, name=self._shown.get(call.name, call.name))
            for call in message.calls
        )
        name = message.name
        if message.role == "tool" and name is not None:
            name = self._shown.get(name, name)
        return msgspec.structs.replace(message, calls=calls, name=name)


def names_of(talk: ChatInput) -> ToolNames:
    """Of its tools, and of those that were called before."""
    called = (call.name for message in talk.messages for call in message.calls)
    return ToolNames([*(tool.name for tool in talk.tools), *called])


class _NamedReader:
    """A reader whose calls have the client's names."""

    def __init__(self, reader: ChatReader, names: dict[str, str]) -> None:
        self._reader, self._names = reader, names

    @property
    def is_thinking(self) -> bool:
        """As `ChatReader` says."""
        return self._reader.is_thinking

    def feed(self, text: str) -> list[ChatEvent]:
        return [self._named(event) for event in self._reader.feed(text)]

    def finish(self) -> list[ChatEvent]:
        return [self._named(event) for event in self._reader.finish()]

    def _named(self, event: ChatEvent) -> ChatEvent:
        if not isinstance(event, CallBegun) or event.name not in self._names:
            return event
        return msgspec.structs.replace(event, name=self._names[event.name])

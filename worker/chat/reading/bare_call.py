"""A call without the texts that open and close calls, which Qwen2.5 and its like leave out.

{"name": "sky", "arguments": {"at": "Rome"}}

It counts only if it is all that the answer says, alone or in a fence, since others write JSON too.
"""

from __future__ import annotations

from collections.abc import Sequence

from worker.chat.message import Tool
from worker.chat.reader import ChatEvent, ChatReader, Content, Thought
from worker.chat.reading.calls import Calls
from worker.chat.reading.json_text import call_in_json
from worker.chat.reading.source import DamagedError, Steps, TextSource


class BareCallReader:
    """Reads as another reader does, but holds content back while it may become such a call."""

    def __init__(self, reader: ChatReader, tools: Sequence[Tool]) -> None:
        self._reader = reader
        self._source = TextSource()
        self._held = ""
        self._told: list[ChatEvent] = []
        self._calls = Calls(self._source, tools, self._told.append, is_trial=True)
        self._steps: Steps[None] | None = self._read()

    @property
    def is_thinking(self) -> bool:
        return self._reader.is_thinking

    def feed(self, text: str) -> list[ChatEvent]:
        events = self._reader.feed(text)
        return events if self._steps is None else self._looked_through(events)

    def finish(self) -> list[ChatEvent]:
        """A call if the answer was one, else what was held back."""
        events = self._looked_through(self._reader.finish())
        self._source.is_ended = True
        is_call = bool(self._held) and self._may_be("")
        return events + (self._told if is_call else self._given_back())

    def _looked_through(self, events: list[ChatEvent]) -> list[ChatEvent]:
        found: list[ChatEvent] = []
        for event in events:
            if self._steps is None or (isinstance(event, Thought) and not self._held):
                found.append(event)
            elif isinstance(event, Content) and self._may_be(event.text):
                self._held += event.text
            else:  # a text, or something beside it
                found += [*self._given_back(), event]
        return found

    def _may_be(self, text: str) -> bool:
        """Whether the content with this text behind it can be such a call."""
        assert self._steps is not None
        self._source.feed(text)
        try:
            next(self._steps)
        except StopIteration:  # it is one
            return True
        except DamagedError:
            return False
        return True

    def _given_back(self) -> list[ChatEvent]:
        text, self._held, self._steps = self._held, "", None
        return [Content(text)] if text else []

    def _read(self) -> Steps[None]:
        source = self._source
        yield from source.space()
        fence = yield from source.one_of("```json", "```")
        yield from self._expect("{", '"name"', ":", '"')
        name, _ = yield from source.until('"', fits=self._calls.may_be)
        self._calls.check(name)
        yield from self._expect(",", '"arguments"', ":")
        yield from source.space()
        yield from call_in_json(source, self._calls, name)
        yield from self._expect("}", *(["```"] if fence else []))
        yield from source.space()
        if (yield from source.peek()):
            raise DamagedError

    def _expect(self, *texts: str) -> Steps[None]:
        for text in texts:
            yield from self._source.space()
            yield from self._source.expect(text)

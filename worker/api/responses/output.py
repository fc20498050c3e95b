"""The output of a response, from what the model says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from worker.api.common.logprobs import TokenScore
from worker.api.responses.events import ResponseEvent
from worker.api.responses.growing import (
    Growing,
    GrowingCall,
    GrowingMessage,
    GrowingSummary,
    GrowingThought,
)
from worker.api.responses.items import OutputItem
from worker.api.responses.tools import FunctionPlace
from worker.chat.reader import Arguments, CallBegun, CallEnded, ChatEvent, Content, Thought


class Output:
    """Items in the order in which they began. One at most grows; its end is told before the next
    one begins."""

    def __init__(
        self,
        name: str,
        places: Mapping[str, FunctionPlace] | None = None,
        *,
        summarises: bool = False,
        seals: bool = False,
    ) -> None:
        """
        name        a part of the items' ids
        places      the model's name of a function -> where the client finds it; else as it is
        summarises  thoughts stand in the summary
        seals       see `GrowingThought`
        """
        self._suffix = name
        self._places = places or {}
        self._summarises = summarises
        self._seals = seals
        self._items: list[Growing] = []
        self._open: Growing | None = None
        self._scores: list[TokenScore] = []  # of tokens whose text is not told yet
        self._broken: list[Growing] = []

    @property
    def is_broken(self) -> bool:
        """Whether a call began that never ended; its text is in a message."""
        return bool(self._broken)

    def items(self, *, broken: bool) -> list[OutputItem]:
        """All of them. broken: calls that never ended, too"""
        return [item.item() for item in self._items if broken or item not in self._broken]

    def take(
        self, events: Sequence[ChatEvent], scores: Sequence[TokenScore] = ()
    ) -> list[ResponseEvent]:
        """What a token adds. scores: of that token"""
        told: list[ResponseEvent] = []
        self._scores += scores
        for event in events:
            match event:
                case Content(text):
                    told += self._go_on(GrowingMessage, text)
                case Thought(text):
                    told += self._go_on(GrowingThought, text)
                case CallBegun(_, call_id, function):
                    name, place = self._place("fc")
                    where = self._places.get(function) or FunctionPlace(function)
                    call = GrowingCall(name, place, call_id=call_id, function=where)
                    told += self._begin(call)
                case Arguments(_, text) if self._open is not None:
                    told.append(self._open.add(text, []))
                case CallEnded() if self._open is not None:
                    told += self._open.end("completed")
                    self._open = None
                case _:
                    pass
            if not isinstance(event, Content):
                self._scores.clear()
        return told

    def close(self, status: str) -> list[ResponseEvent]:
        """What ends it. An answer without any text is an empty message.

        status: completed, or incomplete where the answer was cut
        """
        told: list[ResponseEvent] = []
        if not self._items:
            told += self._begin(GrowingMessage(*self._place("msg")))
        told += self._end_open(status)
        return told

    def cut(self) -> list[OutputItem]:
        """All that was said; nothing follows."""
        self._end_open("incomplete")
        return self.items(broken=True)

    def _go_on(self, kind: type[GrowingMessage | GrowingThought], text: str) -> list[ResponseEvent]:
        told: list[ResponseEvent] = []
        if not isinstance(self._open, kind):
            if kind is GrowingMessage:
                new: Growing = GrowingMessage(*self._place("msg"))
            else:
                made = GrowingSummary if self._summarises else GrowingThought
                new = made(*self._place("rs"), seals=self._seals)
            told += self._begin(new)
        assert self._open is not None
        scores: list[TokenScore] = []
        if kind is GrowingMessage:
            scores, self._scores = self._scores, []
        told.append(self._open.add(text, scores))
        return told

    def _begin(self, item: Growing) -> list[ResponseEvent]:
        told = self._end_open("completed")
        self._items.append(item)
        self._open = item
        return told + item.begin()

    def _end_open(self, status: str) -> list[ResponseEvent]:
        """A call that is still open never ended: that is not told as its end."""
        item, self._open = self._open, None
        if isinstance(item, GrowingCall):
            item.status = "incomplete"
            self._broken.append(item)
            return []
        return [] if item is None else item.end(status)

    def _place(self, kind: str) -> tuple[str, int]:
        """(id, place) of the next item"""
        place = len(self._items)
        return f"{kind}_{self._suffix}{place:02x}", place

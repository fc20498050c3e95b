"""The output of a response, from what the model says: items, each of which tells how it begins,
goes on and ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

from worker.api.answer.logprobs import TokenScore
from worker.api.responses import items
from worker.api.responses.chat_input import FunctionPlace, seal
from worker.api.responses.items import (
    CallItem,
    MessageItem,
    OutputItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    ResponseEvent,
    SummaryText,
)
from worker.chat.reader import Arguments, CallBegun, CallEnded, ChatEvent, Content, Thought


class Growing(ABC):
    """One item.

    status  in_progress; completed; incomplete: cut by the end of the answer, or a call that broke
    """

    def __init__(self, name: str, place: int) -> None:
        """name: its id; place: in the output"""
        self.status = "in_progress"
        self._name = name
        self._place = place
        self._at: dict[str, Any] = {"item_id": name, "output_index": place}
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @abstractmethod
    def begin(self) -> list[ResponseEvent]:
        """It is there, and empty."""

    @abstractmethod
    def add(self, text: str, scores: list[TokenScore]) -> ResponseEvent:
        """More of it."""

    @abstractmethod
    def end(self, status: str) -> list[ResponseEvent]:
        """No more of it. status: completed, or incomplete where the answer was cut."""

    @abstractmethod
    def item(self) -> OutputItem:
        """All of it so far."""

    def _added_event(self, empty: OutputItem) -> ResponseEvent:
        return items.ItemAdded(output_index=self._place, item=empty)

    def _done_event(self, status: str) -> ResponseEvent:
        self.status = status
        return items.ItemDone(output_index=self._place, item=self.item())


class GrowingMessage(Growing):
    """What the model says."""

    def __init__(self, name: str, place: int) -> None:
        super().__init__(name, place)
        self._scores: list[TokenScore] = []

    def begin(self) -> list[ResponseEvent]:
        return [
            self._added_event(MessageItem(self._name, self.status, [])),
            items.PartAdded(**self._at, part=OutputText()),
        ]

    def add(self, text: str, scores: list[TokenScore]) -> ResponseEvent:
        self._texts.append(text)
        self._scores += scores
        return items.OutputTextDelta(**self._at, delta=text, logprobs=scores)

    def end(self, status: str) -> list[ResponseEvent]:
        return [
            items.OutputTextDone(**self._at, text=self.text, logprobs=self._scores),
            items.PartDone(**self._at, part=self._part()),
            self._done_event(status),
        ]

    def item(self) -> OutputItem:
        return MessageItem(self._name, self.status, [self._part()])

    def _part(self) -> OutputText:
        return OutputText(self.text, [], self._scores)


class GrowingThought(Growing):
    """What it thinks."""

    def __init__(self, name: str, place: int, *, seals: bool) -> None:
        """seals: whether the client wants it as text that it need not read, too"""
        super().__init__(name, place)
        self._seals = seals

    def begin(self) -> list[ResponseEvent]:
        return [
            self._added_event(ReasoningItem(self._name, self.status, [], [])),
            items.PartAdded(**self._at, part=ReasoningText()),
        ]

    def add(self, text: str, scores: list[TokenScore]) -> ResponseEvent:  # noqa: ARG002
        self._texts.append(text)
        return items.ReasoningTextDelta(**self._at, delta=text)

    def end(self, status: str) -> list[ResponseEvent]:
        text = self.text
        return [
            items.ReasoningTextDone(**self._at, text=text),
            items.PartDone(**self._at, part=ReasoningText(text)),
            self._done_event(status),
        ]

    def item(self) -> OutputItem:
        content = [ReasoningText(self.text)]
        return ReasoningItem(self._name, self.status, [], content, self._seal())

    def _seal(self) -> Any:
        return seal(self.text) if self._seals else UNSET


class GrowingSummary(GrowingThought):
    """What it thinks, for who asked for a summary: the thought itself."""

    def begin(self) -> list[ResponseEvent]:
        return [
            self._added_event(ReasoningItem(self._name, self.status, [])),
            items.SummaryPartAdded(**self._at, part=SummaryText()),
        ]

    def add(self, text: str, scores: list[TokenScore]) -> ResponseEvent:  # noqa: ARG002
        self._texts.append(text)
        return items.SummaryTextDelta(**self._at, delta=text)

    def end(self, status: str) -> list[ResponseEvent]:
        text = self.text
        return [
            items.SummaryTextDone(**self._at, text=text),
            items.SummaryPartDone(**self._at, part=SummaryText(text)),
            self._done_event(status),
        ]

    def item(self) -> OutputItem:
        summary = [SummaryText(self.text)]
        return ReasoningItem(self._name, self.status, summary, UNSET, self._seal())


class GrowingCall(Growing):
    """What it calls."""

    def __init__(self, name: str, place: int, *, call_id: str, function: FunctionPlace) -> None:
        super().__init__(name, place)
        self._call_id = call_id
        self._function = function

    def begin(self) -> list[ResponseEvent]:
        return [self._added_event(self.item())]

    def add(self, text: str, scores: list[TokenScore]) -> ResponseEvent:  # noqa: ARG002
        """More of the arguments, as they are written."""
        self._texts.append(text)
        return items.ArgumentsDelta(**self._at, delta=text)

    def end(self, status: str) -> list[ResponseEvent]:
        return [items.ArgumentsDone(**self._at, arguments=self.text), self._done_event(status)]

    def item(self) -> OutputItem:
        name, namespace = self._function.name, self._function.namespace
        return CallItem(self._name, self._call_id, name, self.text, self.status, namespace or UNSET)


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

"""Items while they grow: each tells how it begins, goes on and ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from msgspec import UNSET

from worker.api.common.logprobs import TokenScore
from worker.api.responses import events
from worker.api.responses.events import ResponseEvent
from worker.api.responses.history import sealed
from worker.api.responses.items import (
    CallItem,
    MessageItem,
    OutputItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    SummaryText,
)
from worker.api.responses.tools import FunctionPlace


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
        """What it holds so far."""
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

    def _added(self, empty: OutputItem) -> ResponseEvent:
        return events.ItemAdded(output_index=self._place, item=empty)

    def _done(self, status: str) -> ResponseEvent:
        self.status = status
        return events.ItemDone(output_index=self._place, item=self.item())


class GrowingMessage(Growing):
    """What the model says."""

    def __init__(self, name: str, place: int) -> None:
        super().__init__(name, place)
        self._scores: list[TokenScore] = []

    def begin(self) -> list[ResponseEvent]:
        return [
            self._added(MessageItem(self._name, self.status, [])),
            events.PartAdded(**self._at, part=OutputText()),
        ]

    def add(self, text: str, scores: list[TokenScore]) -> ResponseEvent:
        self._texts.append(text)
        self._scores += scores
        return events.OutputTextDelta(**self._at, delta=text, logprobs=scores)

    def end(self, status: str) -> list[ResponseEvent]:
        return [
            events.OutputTextDone(**self._at, text=self.text, logprobs=self._scores),
            events.PartDone(**self._at, part=self._part()),
            self._done(status),
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
            self._added(ReasoningItem(self._name, self.status, [], [])),
            events.PartAdded(**self._at, part=ReasoningText()),
        ]

    def add(self, text: str, scores: list[TokenScore]) -> ResponseEvent:  # noqa: ARG002
        self._texts.append(text)
        return events.ReasoningTextDelta(**self._at, delta=text)

    def end(self, status: str) -> list[ResponseEvent]:
        text = self.text
        return [
            events.ReasoningTextDone(**self._at, text=text),
            events.PartDone(**self._at, part=ReasoningText(text)),
            self._done(status),
        ]

    def item(self) -> OutputItem:
        content = [ReasoningText(self.text)]
        return ReasoningItem(self._name, self.status, [], content, self._sealed())

    def _sealed(self) -> Any:
        return sealed(self.text) if self._seals else UNSET


class GrowingSummary(GrowingThought):
    """What it thinks, for who asked for a summary: the thought itself."""

    def begin(self) -> list[ResponseEvent]:
        return [
            self._added(ReasoningItem(self._name, self.status, [])),
            events.SummaryPartAdded(**self._at, part=SummaryText()),
        ]

    def add(self, text: str, scores: list[TokenScore]) -> ResponseEvent:  # noqa: ARG002
        self._texts.append(text)
        return events.SummaryTextDelta(**self._at, delta=text)

    def end(self, status: str) -> list[ResponseEvent]:
        text = self.text
        return [
            events.SummaryTextDone(**self._at, text=text),
            events.SummaryPartDone(**self._at, part=SummaryText(text)),
            self._done(status),
        ]

    def item(self) -> OutputItem:
        summary = [SummaryText(self.text)]
        return ReasoningItem(self._name, self.status, summary, UNSET, self._sealed())


class GrowingCall(Growing):
    """What it calls."""

    def __init__(self, name: str, place: int, *, call_id: str, function: FunctionPlace) -> None:
        super().__init__(name, place)
        self._call_id = call_id
        self._function = function

    def begin(self) -> list[ResponseEvent]:
        return [self._added(self.item())]

    def add(self, text: str, scores: list[TokenScore]) -> ResponseEvent:  # noqa: ARG002
        """More of the arguments, as they are written."""
        self._texts.append(text)
        return events.ArgumentsDelta(**self._at, delta=text)

    def end(self, status: str) -> list[ResponseEvent]:
        return [events.ArgumentsDone(**self._at, arguments=self.text), self._done(status)]

    def item(self) -> OutputItem:
        name, namespace = self._function.name, self._function.namespace
        return CallItem(self._name, self._call_id, name, self.text, self.status, namespace or UNSET)

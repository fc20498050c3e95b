"""The events of a streamed response. `type` is the event's name on the wire, too."""

from __future__ import annotations

import msgspec

from worker.api.common.logprobs import TokenScore
from worker.api.common.usage import LlamaTimings, PromptProgress
from worker.api.responses.items import (
    OutputItem,
    OutputText,
    ReasoningText,
    ResponseReply,
    SummaryText,
)


class ResponseEvent(msgspec.Struct, tag_field="type", kw_only=True):
    """Any event. sequence_number counts the events of a response from 0."""

    sequence_number: int = 0
    timings: LlamaTimings | msgspec.UnsetType = msgspec.UNSET


class ReplyEvent(ResponseEvent):
    """The response as it is now."""

    response: ResponseReply


class ResponseCreated(ReplyEvent, tag="response.created"):
    """It was accepted."""


class ResponseInProgress(ReplyEvent, tag="response.in_progress"):
    """It has begun; prompt_progress: how far its prompt is read, where asked for"""

    prompt_progress: PromptProgress | msgspec.UnsetType = msgspec.UNSET


class ResponseCompleted(ReplyEvent, tag="response.completed"):
    """All of it is there."""


class ResponseIncomplete(ReplyEvent, tag="response.incomplete"):
    """It ended early."""


class ResponseFailed(ReplyEvent, tag="response.failed"):
    """It ended with an error."""


class ErrorEvent(ResponseEvent, tag="error"):
    """What went wrong."""

    code: str | None
    message: str
    param: str | None
    request_id: str | msgspec.UnsetType = msgspec.UNSET
    correlation_id: str | msgspec.UnsetType = msgspec.UNSET


class ItemEvent(ResponseEvent):
    """An item. output_index: its place in the output"""

    output_index: int
    item: OutputItem


class ItemAdded(ItemEvent, tag="response.output_item.added"):
    """It is still empty."""


class ItemDone(ItemEvent, tag="response.output_item.done"):
    """It is whole."""


class PlacedEvent(ResponseEvent):
    """Something about an item."""

    item_id: str
    output_index: int


class PartEvent(PlacedEvent):
    """A part of an item's content."""

    part: OutputText | ReasoningText
    content_index: int = 0


class PartAdded(PartEvent, tag="response.content_part.added"):
    """It is still empty."""


class PartDone(PartEvent, tag="response.content_part.done"):
    """It is whole."""


class OutputTextDelta(PlacedEvent, tag="response.output_text.delta"):
    """More of a message."""

    delta: str
    logprobs: list[TokenScore]
    content_index: int = 0


class OutputTextDone(PlacedEvent, tag="response.output_text.done"):
    """A message's text."""

    text: str
    logprobs: list[TokenScore]
    content_index: int = 0


class ReasoningTextDelta(PlacedEvent, tag="response.reasoning_text.delta"):
    """More of a thought."""

    delta: str
    content_index: int = 0


class ReasoningTextDone(PlacedEvent, tag="response.reasoning_text.done"):
    """A thought."""

    text: str
    content_index: int = 0


class SummaryPartEvent(PlacedEvent):
    """A part of a thought's summary."""

    part: SummaryText
    summary_index: int = 0


class SummaryPartAdded(SummaryPartEvent, tag="response.reasoning_summary_part.added"):
    """It is still empty."""


class SummaryPartDone(SummaryPartEvent, tag="response.reasoning_summary_part.done"):
    """It is whole."""


class SummaryTextDelta(PlacedEvent, tag="response.reasoning_summary_text.delta"):
    """More of a thought, for who asked for a summary."""

    delta: str
    summary_index: int = 0


class SummaryTextDone(PlacedEvent, tag="response.reasoning_summary_text.done"):
    """A thought, for who asked for a summary."""

    text: str
    summary_index: int = 0


class ArgumentsDelta(PlacedEvent, tag="response.function_call_arguments.delta"):
    """More of a call's arguments."""

    delta: str


class ArgumentsDone(PlacedEvent, tag="response.function_call_arguments.done"):
    """A call's arguments."""

    arguments: str

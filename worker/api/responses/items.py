"""What an answer consists of in the Responses API: items, the response around them, and the events
of a stream, whose `type` is the event's name on the wire, too."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.api.answer.logprobs import TokenScore
from worker.api.answer.usage import LlamaTimings, PromptProgress
from worker.api.intake.prompts import Truncated
from worker.api.intake.thinking import ReasoningOptions
from worker.api.responses.schemas import TextOptions
from worker.requests.trace import CacheTrace


class OutputText(msgspec.Struct, tag_field="type", tag="output_text"):
    """The one part of a message."""

    text: str = ""
    annotations: list[Any] = []
    logprobs: list[TokenScore] = []


class ReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    """A thought."""

    text: str = ""


class SummaryText(msgspec.Struct, tag_field="type", tag="summary_text"):
    """A thought, for who asked for a summary."""

    text: str = ""


class MessageItem(msgspec.Struct, tag_field="type", tag="message"):
    """What the model says."""

    id: str
    status: str
    content: list[OutputText]
    role: str = "assistant"


class ReasoningItem(msgspec.Struct, tag_field="type", tag="reasoning"):
    """What it thinks, as `content` or as `summary`."""

    id: str
    status: str
    summary: list[SummaryText]
    content: list[ReasoningText] | msgspec.UnsetType = msgspec.UNSET
    encrypted_content: str | msgspec.UnsetType = msgspec.UNSET


class CallItem(msgspec.Struct, tag_field="type", tag="function_call"):
    """What it calls."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: str
    namespace: str | msgspec.UnsetType = msgspec.UNSET


OutputItem = MessageItem | ReasoningItem | CallItem


class InputDetails(msgspec.Struct):
    """How much of the prompt came from the cache; none of it is charged for being kept."""

    cached_tokens: int
    cache_write_tokens: int = 0


class ReasoningDetails(msgspec.Struct):
    """How many of the sampled tokens were thoughts."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct):
    """Tokens; a sampled end-of-generation token counts."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: ReasoningDetails
    total_tokens: int


class FunctionTool(msgspec.Struct, tag_field="type", tag="function"):
    """A tool as the client declared it."""

    name: str
    description: str | None
    parameters: dict[str, Any] | None
    strict: bool | None


class NamespaceTool(msgspec.Struct, tag_field="type", tag="namespace"):
    """Functions under one name, as the client declared them."""

    name: str
    description: str
    tools: list[FunctionTool]


class Incompleteness(msgspec.Struct):
    """Why a response ended early. null: a call that began did not end"""

    reason: str | None


class Breakdown(msgspec.Struct):
    """Why a response failed."""

    code: str
    message: str


class ResponseReply(msgspec.Struct, kw_only=True):
    """A response: what was asked for, and what came of it so far."""

    id: str
    object: str = "response"
    created_at: int
    completed_at: int | None = None
    status: str = "in_progress"
    background: bool = False
    error: Breakdown | None = None
    incomplete_details: Incompleteness | None = None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputItem] = []
    parallel_tool_calls: bool
    previous_response_id: str | None = None
    reasoning: ReasoningOptions
    service_tier: str
    store: bool
    temperature: float
    text: TextOptions
    tool_choice: Any
    tools: list[FunctionTool | NamespaceTool]
    top_logprobs: int
    top_p: float
    truncation: str
    usage: ResponseUsage | msgspec.UnsetType = msgspec.UNSET
    user: str | None
    timings: LlamaTimings | msgspec.UnsetType = msgspec.UNSET
    truncated: Truncated | msgspec.UnsetType = msgspec.UNSET
    cache_trace: CacheTrace | msgspec.UnsetType = msgspec.UNSET
    warnings: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


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


RESPONSE_EVENTS = (
    ResponseCreated, ResponseInProgress, ItemAdded, PartAdded,
    OutputTextDelta, OutputTextDone, ReasoningTextDelta,
    ReasoningTextDone, SummaryPartAdded, SummaryTextDelta,
    SummaryTextDone, SummaryPartDone, ArgumentsDelta, ArgumentsDone,
    PartDone, ItemDone, ResponseCompleted, ResponseIncomplete,
    ErrorEvent, ResponseFailed,
)  # fmt: skip

"""What an answer consists of in the Responses API: items, and the response around them."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.api.common.logprobs import TokenScore
from worker.api.common.prompts import Truncated
from worker.api.common.thinking import ReasoningOptions
from worker.api.common.usage import LlamaTimings
from worker.api.responses.schemas import TextOptions


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
    warnings: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

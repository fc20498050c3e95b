"""What Anthropic's clients send. Unknown fields are ignored, null means not given."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from worker.limits import MESSAGES, STOP, STOPS
from worker.service.bounds import at_least, items, one_of
from worker.service.sampling import SamplingFields

# Anthropic's words for what may be called -> ours; `tool` names one.
CHOICES = {"auto": "auto", "any": "required", "none": "none", "tool": "required"}
# Its words for whether the model thinks -> ours.
THINKING = {"enabled": True, "adaptive": True, "between_tools": True, "disabled": False}
ROLES = ("user", "assistant", "system")


class ContentBlock(msgspec.Struct):
    """A part of a message: text, thinking, redacted_thinking, tool_use, tool_result or document.

    input        of a tool_use: the arguments
    tool_use_id  of a tool_result: the call that it answers
    content      of a tool_result
    source       of a document
    title        of a document
    """

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    is_error: bool | None = None
    content: str | list[ContentBlock] | None = None
    source: DocumentSource | str | None = None
    title: str | None = None


class DocumentSource(msgspec.Struct):
    """What a document says: `data` of the type text."""

    type: str | None = None
    data: str | None = None


class MessageParam(msgspec.Struct):
    """One message; a text is one block of text."""

    role: Annotated[str, one_of(*ROLES)]
    content: str | list[ContentBlock]


class AnthropicTool(msgspec.Struct):
    """A tool of the client's; one with another type than `custom` is Anthropic's own."""

    type: str | None = None
    name: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class AnthropicChoice(msgspec.Struct):
    """auto, any, tool (with its name) or none."""

    type: Annotated[str, one_of(*CHOICES)]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingConfig(msgspec.Struct):
    """enabled, adaptive, between_tools or disabled.

    display  `omitted`: thoughts are not shown
    """

    type: Annotated[str, one_of(*THINKING)]
    budget_tokens: Annotated[int | None, at_least(1)] = None
    display: str | None = None


class OutputFormat(msgspec.Struct):
    """json_schema, and the schema."""

    type: str
    schema: dict[str, Any] | None = None


class OutputConfig(msgspec.Struct):
    """How much the model is to think, and what its text must be."""

    effort: str | None = None
    format: OutputFormat | None = None


class MessagesRequest(SamplingFields, kw_only=True):
    """POST /v1/messages; what makes the prompt is also the body of /v1/messages/count_tokens.

    messages        the conversation, with what is to be answered at its end
    system          a text before it
    max_tokens      tokens to sample at most; 0 reads the prompt, which fills the cache
    tools           functions that the model may call
    tool_choice     what may be called
    thinking        whether and how long the model thinks
    stop_sequences  the answer ends before the first of these
    output_config   how much the model is to think, and what its text must be
    output_format   the older place of output_config.format
    thread          a conversation that the server is to hold; it is refused
    stream          true: events
    """

    messages: Annotated[list[MessageParam] | None, items(MESSAGES.most, least=1)] = None
    system: str | list[ContentBlock] | None = None
    max_tokens: Annotated[int | None, at_least(0)] = None
    tools: list[AnthropicTool] | None = None
    tool_choice: AnthropicChoice | None = None
    thinking: ThinkingConfig | None = None
    stop_sequences: Annotated[list[str] | None, items(STOPS.most, of={"maxLength": STOP.most})] = (
        None
    )
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    thread: dict[str, Any] | None = None
    stream: bool | None = None

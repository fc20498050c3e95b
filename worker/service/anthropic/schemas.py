"""What Anthropic's clients send. Unknown fields are ignored, null means not given."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.service.sampling import SamplingFields


class ContentBlock(msgspec.Struct):
    """A part of a message: text, thinking, redacted_thinking, tool_use or tool_result.

    input        of a tool_use: the arguments
    tool_use_id  of a tool_result: the call that it answers
    content      of a tool_result
    """

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[ContentBlock] | None = None


class MessageParam(msgspec.Struct):
    """One message; a text is one block of text."""

    role: str
    content: str | list[ContentBlock]


class AnthropicTool(msgspec.Struct):
    """A tool of the client's; one with another type than `custom` is Anthropic's own."""

    type: str | None = None
    name: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class AnthropicChoice(msgspec.Struct):
    """auto, any, tool (with its name) or none."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingConfig(msgspec.Struct):
    """enabled, adaptive, between_tools or disabled.

    display  `omitted`: thoughts are not shown
    """

    type: str
    budget_tokens: int | None = None
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

    output_format  the older place of output_config.format
    thread         a conversation that the server is to hold; it is refused
    """

    messages: list[MessageParam] | None = None
    system: str | list[ContentBlock] | None = None
    max_tokens: int | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: AnthropicChoice | None = None
    thinking: ThinkingConfig | None = None
    stop_sequences: list[str] | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    thread: dict[str, Any] | None = None
    stream: bool | None = None

"""What Anthropic's clients send, null means not given; and what they get: a message, or the
events that build it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from worker.api.intake.bounds import at_least, items, one_of, texts
from worker.api.intake.chat.content_parts import MessageContent
from worker.api.intake.chat.tools import DeclaredTools
from worker.api.intake.constraints import FormFields
from worker.api.intake.priority import ANTHROPIC_TIERS
from worker.api.intake.thinking import ChatFields
from worker.chat.thinking import EffortWord
from worker.limits import MESSAGES, STOP, STOPS
from worker.requests.trace import CacheTrace

# Anthropic's words for what may be called -> ours; `tool` names one.
CHOICES = {
    "auto": "auto",
    "any": "required",
    "required": "required",
    "none": "none",
    "tool": "required",
}


class MessageParam(msgspec.Struct):
    """One message.

    content  a text, or blocks: text, thinking, tool_use, tool_result, document; others become a
             note in brackets
    """

    role: str | None = None
    content: MessageContent = None


class AnthropicChoice(msgspec.Struct):
    """auto, any, tool (with its name) or none."""

    type: Annotated[str, one_of(*CHOICES)]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputConfig(FormFields):
    """How much the model is to think, and what its text must be."""

    effort: EffortWord = None


class MessagesRequest(ChatFields, kw_only=True):
    """POST /v1/messages; what makes the prompt is also the body of /v1/messages/count_tokens.

    messages        the conversation, with what is to be answered at its end
    system          a text before it
    max_tokens      tokens to sample at most; 0 reads the prompt, which fills the cache
    tools           functions that the model may call
    tool_choice     what may be called
    stop_sequences  the answer ends before the first of these
    output_config   how much the model is to think, and what its text must be
    output_format   the older place of output_config.format
    thread          a conversation that the server is to hold; it is refused
    service_tier    both words are the same priority here
    stream          true: events
    """

    tiers: ClassVar[tuple[str, ...]] = ANTHROPIC_TIERS

    messages: Annotated[list[MessageParam | None] | None, items(MESSAGES.most, least=1)] = None
    system: MessageContent = None
    max_tokens: Annotated[int | None, at_least(0)] = None
    tools: DeclaredTools = None
    tool_choice: AnthropicChoice | str | None = None
    stop_sequences: Annotated[str | list[str | None] | None, texts(STOPS.most, STOP.most)] = None
    output_config: OutputConfig | None = None
    output_format: dict[str, Any] | None = None
    thread: dict[str, Any] | None = None
    service_tier: Annotated[str | None, one_of(*ANTHROPIC_TIERS)] = None
    stream: bool | None = None


class TextBlock(msgspec.Struct, tag_field="type", tag="text"):
    """Text of the answer."""

    text: str


class ThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking"):
    """A thought; clients send it back as it is."""

    thinking: str
    signature: str


class ToolUseBlock(msgspec.Struct, tag_field="type", tag="tool_use"):
    """A call; `input` is an object."""

    id: str
    name: str
    input: msgspec.Raw


AnswerBlock = TextBlock | ThinkingBlock | ToolUseBlock


class OutputDetails(msgspec.Struct):
    """Tokens of thought."""

    thinking_tokens: int


class MessageUsage(msgspec.Struct):
    """Tokens. input_tokens: of the prompt, that the cache did not give.

    service_tier  of a message: standard, priority or batch, by the priority of its request
    """

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: OutputDetails
    service_tier: str | msgspec.UnsetType = msgspec.UNSET


class MessageReply(msgspec.Struct, tag_field="type", tag="message", kw_only=True):
    """An answer; stop_reason is end_turn, max_tokens, stop_sequence or tool_use."""

    id: str
    role: str = "assistant"
    model: str
    content: list[AnswerBlock]
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: MessageUsage
    cache_trace: CacheTrace | msgspec.UnsetType = msgspec.UNSET
    warnings: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class TokenCount(msgspec.Struct):
    """POST /v1/messages/count_tokens."""

    input_tokens: int


class MessageStart(msgspec.Struct, tag_field="type", tag="message_start"):
    """The message, still empty."""

    message: MessageReply


class Ping(msgspec.Struct, tag_field="type", tag="ping"):
    """Nothing; the stream is alive."""


class BlockStart(msgspec.Struct, tag_field="type", tag="content_block_start"):
    """A block, still empty."""

    index: int
    content_block: AnswerBlock


class TextDelta(msgspec.Struct, tag_field="type", tag="text_delta"):
    """More of a text."""

    text: str


class ThinkingDelta(msgspec.Struct, tag_field="type", tag="thinking_delta"):
    """More of a thought."""

    thinking: str


class SignatureDelta(msgspec.Struct, tag_field="type", tag="signature_delta"):
    """The end of a thought."""

    signature: str


class InputDelta(msgspec.Struct, tag_field="type", tag="input_json_delta"):
    """More of the JSON text of a call's input."""

    partial_json: str


class BlockDelta(msgspec.Struct, tag_field="type", tag="content_block_delta"):
    """More of a block."""

    index: int
    delta: TextDelta | ThinkingDelta | SignatureDelta | InputDelta


class BlockStop(msgspec.Struct, tag_field="type", tag="content_block_stop"):
    """A block is whole."""

    index: int


BlockEvent = BlockStart | BlockDelta | BlockStop


class Ending(msgspec.Struct):
    """Why the message ended."""

    stop_reason: str
    stop_sequence: str | None


class MessageDelta(msgspec.Struct, tag_field="type", tag="message_delta"):
    """How the message ended, and what all of it cost."""

    delta: Ending
    usage: MessageUsage
    cache_trace: CacheTrace | msgspec.UnsetType = msgspec.UNSET


class MessageStop(msgspec.Struct, tag_field="type", tag="message_stop"):
    """Nothing follows."""

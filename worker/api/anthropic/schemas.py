"""What Anthropic's clients send. Null means not given."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from worker.api.common.bounds import at_least, items, one_of, texts
from worker.api.common.chat.parts import MessageContent
from worker.api.common.chat.tools import DeclaredTools
from worker.api.common.constraints import FormFields
from worker.api.common.thinking import ChatFields
from worker.chat.thinking import EffortWord
from worker.limits import MESSAGES, STOP, STOPS

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
    stream          true: events
    """

    messages: Annotated[list[MessageParam | None] | None, items(MESSAGES.most, least=1)] = None
    system: MessageContent = None
    max_tokens: Annotated[int | None, at_least(0)] = None
    tools: DeclaredTools = None
    tool_choice: AnthropicChoice | str | None = None
    stop_sequences: Annotated[str | list[str | None] | None, texts(STOPS.most, STOP.most)] = None
    output_config: OutputConfig | None = None
    output_format: dict[str, Any] | None = None
    thread: dict[str, Any] | None = None
    stream: bool | None = None

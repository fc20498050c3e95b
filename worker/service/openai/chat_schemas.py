"""What chat clients send and what they get. Unknown fields are ignored, null means not given."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.service.openai.exchange import StreamOptions
from worker.service.openai.usage import LlamaTimings, PromptProgress, Usage
from worker.service.sampling import SamplingFields
from worker.service.talk.truncation import Truncated


class ContentPart(msgspec.Struct):
    """A part of a message; only those of type `text` can be read here."""

    type: str
    text: str | None = None


class CalledFunction(msgspec.Struct):
    """What was called; `arguments` is JSON text, and clients of other servers send the object."""

    name: str
    arguments: str | dict[str, Any] | None = None


class PastCall(msgspec.Struct):
    """A tool call in the history."""

    function: CalledFunction
    id: str | None = None


class ChatMessage(msgspec.Struct):
    """One message of the conversation; `reasoning` is the other name of `reasoning_content`."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[PastCall] | None = None
    tool_call_id: str | None = None


class DeclaredFunction(msgspec.Struct):
    """A function that the model may call; `parameters` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class DeclaredTool(msgspec.Struct):
    """A tool; only functions are known."""

    type: str = "function"
    function: DeclaredFunction | None = None


class ChatRequest(SamplingFields, kw_only=True):
    """POST /v1/chat/completions; what makes the prompt is also the body of POST /apply-template.

    chat_template_kwargs  variables for the template, such as enable_thinking
    truncation            `auto` drops old turns where the context is too small; `disabled`
    """

    messages: list[ChatMessage] | None = None
    tools: list[DeclaredTool] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    truncation: str | None = None
    model: str | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_progress: bool | None = None


class TemplateReply(msgspec.Struct):
    """The prompt as text."""

    prompt: str


class TopToken(msgspec.Struct):
    """One of the likeliest tokens; its bytes are exact where its text is a part of a character."""

    token: str
    bytes: list[int]
    logprob: float


class TokenScore(TopToken):
    """A sampled token."""

    top_logprobs: list[TopToken]


class ChatLogprobs(msgspec.Struct):
    """One entry a token."""

    content: list[TokenScore]


class Spoken(msgspec.Struct, omit_defaults=True):
    """An answer, or what one event adds to it; the role is told once."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None


class ChatChoice(msgspec.Struct, kw_only=True):
    """One answer: `message` whole, or `delta` in an event."""

    index: int
    message: Spoken | msgspec.UnsetType = msgspec.UNSET
    delta: Spoken | msgspec.UnsetType = msgspec.UNSET
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None


class ChatCompletion(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A whole answer, or one event of a stream."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    timings: LlamaTimings | msgspec.UnsetType = msgspec.UNSET
    prompt_progress: PromptProgress | msgspec.UnsetType = msgspec.UNSET
    truncated: Truncated | msgspec.UnsetType = msgspec.UNSET

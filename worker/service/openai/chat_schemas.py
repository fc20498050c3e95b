"""What chat clients send and what they get. Unknown fields are ignored, null means not given."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.service.openai.exchange import StreamOptions
from worker.service.openai.logprobs import TokenScore
from worker.service.openai.tools import ChoiceObject, DeclaredTool
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
    function_call: Any = None


class ChatRequest(SamplingFields, kw_only=True):
    """POST /v1/chat/completions; what makes the prompt is also the body of POST /apply-template.

    chat_template_kwargs    variables for the template, such as enable_thinking
    reasoning_budget_tokens, thinking_budget_tokens  tokens of thought at most; the first counts
    reasoning_format        `none` leaves thoughts in the content
    functions, function_call  the form that tools had before; refused
    truncation              `auto` drops old turns where the context is too small; `disabled`
    """

    messages: list[ChatMessage] | None = None
    tools: list[DeclaredTool] | None = None
    tool_choice: str | ChoiceObject | None = None
    parallel_tool_calls: bool | None = None
    functions: Any = None
    function_call: Any = None
    reasoning_effort: str | None = None
    reasoning_format: str | None = None
    reasoning_budget_tokens: int | None = None
    thinking_budget_tokens: int | None = None
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


class ChatLogprobs(msgspec.Struct):
    """One entry a token."""

    content: list[TokenScore]


class ToldFunction(msgspec.Struct):
    """What is called; its name is told once."""

    name: str | msgspec.UnsetType = msgspec.UNSET
    arguments: str = ""


class ToldCall(msgspec.Struct):
    """A tool call, or what one event adds to it.

    index  of the call in the answer; in events only
    """

    function: ToldFunction
    index: int | msgspec.UnsetType = msgspec.UNSET
    id: str | msgspec.UnsetType = msgspec.UNSET
    type: str | msgspec.UnsetType = msgspec.UNSET


class Spoken(msgspec.Struct):
    """An answer, or what one event adds to it; the role is told once."""

    role: str | msgspec.UnsetType = msgspec.UNSET
    content: str | msgspec.UnsetType | None = msgspec.UNSET
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    reasoning: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[ToldCall] | msgspec.UnsetType = msgspec.UNSET


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

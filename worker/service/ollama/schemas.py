"""What Ollama's clients send. Unknown fields are ignored, null means not given."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.service.openai.tools import DeclaredTool
from worker.service.sampling import SamplingFields


class OllamaOptions(SamplingFields, kw_only=True):
    """`options`; the sampling fields have the same names everywhere.

    num_predict  tokens to sample at most; 0 and less: until the model or the context ends
    """

    num_predict: int | None = None
    stop: str | list[str] | None = None


class OllamaFunction(msgspec.Struct):
    """What was called; `arguments` is an object."""

    name: str
    arguments: dict[str, Any] | None = None


class OllamaCall(msgspec.Struct):
    """A tool call in the history; few clients send its id."""

    function: OllamaFunction
    id: str | None = None


class OllamaMessage(msgspec.Struct):
    """One message of the conversation.

    tool_name, tool_call_id  of a tool's result: whose it is
    """

    role: str
    content: str | None = None
    thinking: str | None = None
    images: list[Any] | None = None
    tool_calls: list[OllamaCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class OllamaRequest(msgspec.Struct, kw_only=True):
    """What both ways to ask have.

    format  `json`, or a JSON schema
    think   whether the model is to think, or how much: low, medium, high
    """

    stream: bool | None = None
    options: OllamaOptions | None = None
    format: str | dict[str, Any] | None = None
    think: bool | str | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


class OllamaChatRequest(OllamaRequest, kw_only=True):
    """POST /api/chat."""

    messages: list[OllamaMessage] | None = None
    tools: list[DeclaredTool] | None = None


class GenerateRequest(OllamaRequest, kw_only=True):
    """POST /api/generate.

    raw      the prompt is continued as it is, without a template
    suffix   what comes after the answer
    context  what another server said of earlier requests; it is refused
    """

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    raw: bool | None = None
    images: list[Any] | None = None
    context: list[Any] | None = None

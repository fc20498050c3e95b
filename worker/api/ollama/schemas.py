"""What Ollama's clients send. Unknown fields are ignored, null means not given."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from worker.api.common.bounds import between, items, one_of, texts
from worker.api.common.talk.parts import MessageContent
from worker.api.common.talk.past_calls import PastCall
from worker.api.common.talk.tools import DeclaredTool
from worker.api.common.thinking import TalkFields
from worker.limits import LOGPROBS, MESSAGES, STOP, STOPS, TOOLS

ROLES = ("system", "user", "assistant", "tool")


class OllamaOptions(TalkFields, kw_only=True):
    """`options`; the fields have the same names everywhere.

    num_predict  tokens to sample at most; 0 and less: until the model or the context ends
    stop         the answer ends before the first of these
    """

    num_predict: int | None = None
    stop: Annotated[str | list[str | None] | None, texts(STOPS.most, STOP.most)] = None


class OllamaMessage(msgspec.Struct):
    """One message of the conversation.

    content                  a text, or parts; what is no text becomes a note in brackets
    images                   a note in brackets; refused in the newest question
    tool_name, tool_call_id  of a tool's result: whose it is
    """

    role: Annotated[str, one_of(*ROLES)]
    content: MessageContent = None
    thinking: str | None = None
    images: list[Any] | None = None
    tool_calls: list[PastCall | None] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class OllamaRequest(TalkFields, kw_only=True):
    """What both ways to ask have; what `options` does not say counts beside it, too.

    stream        false: the whole answer at once, else a line for each part
    options       sampling, and how long the answer may be
    logprobs      true: the logprob of each token
    top_logprobs  likeliest alternatives to report for each token
    """

    stream: bool | None = None
    options: OllamaOptions | None = None
    logprobs: bool | int | None = None
    top_logprobs: Annotated[int | None, between(0, LOGPROBS.most)] = None


class OllamaChatRequest(OllamaRequest, kw_only=True):
    """POST /api/chat.

    messages  the conversation; without any the answer is that the model is there
    tools     functions that the model may call
    """

    messages: Annotated[list[OllamaMessage] | None, items(MESSAGES.most)] = None
    tools: Annotated[list[DeclaredTool | None] | None, items(TOOLS.most)] = None


class GenerateRequest(OllamaRequest, kw_only=True):
    """POST /api/generate.

    prompt   a question, or with `raw` a text to continue
    suffix   what comes after the answer
    system   a text before the question
    raw      the prompt is continued as it is, without a template
    images   refused: only text can be read
    context  what another server said of earlier requests; it is refused
    """

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    raw: bool | None = None
    images: Annotated[list[Any] | None, items(0)] = None
    context: Annotated[list[Any] | None, items(0)] = None

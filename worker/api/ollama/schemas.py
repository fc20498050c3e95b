"""What Ollama's clients send. Null means not given."""

from __future__ import annotations

from typing import Annotated, Any

from worker.api.common.bounds import between, items, texts
from worker.api.common.chat.parts import MessageContent
from worker.api.common.chat.past_message import PastMessage
from worker.api.common.chat.tools import DeclaredTools
from worker.api.common.thinking import ChatFields
from worker.limits import LOGPROBS, MEDIA, MESSAGES, STOP, STOPS, TOOLS


class OllamaOptions(ChatFields, kw_only=True):
    """`options`; the fields have the same names everywhere.

    num_predict  tokens to sample at most; 0 and less: until the model or the context ends
    stop         the answer ends before the first of these
    """

    num_predict: int | None = None
    stop: Annotated[str | list[str | None] | None, texts(STOPS.most, STOP.most)] = None


class OllamaMessage(PastMessage, kw_only=True):
    """One message of the conversation."""

    role: str | None = None


class OllamaRequest(ChatFields, kw_only=True):
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
    system    a system message before it
    tools     functions that the model may call
    """

    messages: Annotated[list[OllamaMessage | None] | None, items(MESSAGES.most)] = None
    system: MessageContent = None
    tools: Annotated[DeclaredTools, items(TOOLS.most)] = None


class GenerateRequest(OllamaRequest, kw_only=True):
    """POST /api/generate.

    prompt   a question, or with `raw` a text to continue
    suffix   what comes after the answer
    system   a text before the question
    raw      the prompt is continued as it is, without a template
    images   pictures that the question is about
    context  what another server said of earlier requests; it is refused
    """

    prompt: str | None = None
    suffix: str | None = None
    system: MessageContent = None
    raw: bool | None = None
    images: Annotated[list[Any] | None, items(MEDIA.most)] = None
    context: Annotated[list[Any] | None, items(0)] = None

"""What Ollama's clients send, null means not given; and what they get: lines of a stream, or one
reply of the same shape."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from worker.api.answer.logprobs import TokenScore
from worker.api.answer.usage import Tally
from worker.api.intake.bounds import between, items, texts
from worker.api.intake.chat.content_parts import MessageContent
from worker.api.intake.chat.past_message import PastMessage
from worker.api.intake.chat.tools import DeclaredTools
from worker.api.intake.thinking import ChatFields
from worker.limits import LOGPROBS, MEDIA, MESSAGES, STOP, STOPS, TOOLS
from worker.requests.trace import CacheTrace


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
    truncate, shift  change nothing: a prompt that does not fit is refused
    """

    stream: bool | None = None
    options: OllamaOptions | None = None
    logprobs: bool | int | None = None
    top_logprobs: Annotated[int | None, between(0, LOGPROBS.most)] = None
    truncate: Any = None
    shift: Any = None


class OllamaChatRequest(OllamaRequest, kw_only=True):
    """POST /api/chat.

    messages  the conversation; without any the answer is that the model is there
    system    a system message before it
    tools     functions that the model may call
    """

    shows_media: ClassVar[bool] = True

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

    shows_media: ClassVar[bool] = True

    prompt: str | None = None
    suffix: str | None = None
    system: MessageContent = None
    raw: bool | None = None
    images: Annotated[list[Any] | None, items(MEDIA.most)] = None
    context: Annotated[list[Any] | None, items(0)] = None


class OllamaFunction(msgspec.Struct):
    """What is called; `arguments` is an object."""

    index: int
    name: str
    arguments: msgspec.Raw


class OllamaCall(msgspec.Struct):
    """A call, told once it is whole."""

    id: str
    function: OllamaFunction


class OllamaAnswer(msgspec.Struct):
    """An answer, or what one line adds to it."""

    content: str
    role: str = "assistant"
    thinking: str | UnsetType = UNSET
    tool_calls: list[OllamaCall] | UnsetType = UNSET


class AnswerLine(msgspec.Struct, kw_only=True):
    """Part of an answer. The last one is `done`, with its reason and what it cost.

    done_reason  stop, length, or load where nothing was asked; times are nanoseconds
    """

    model: str
    created_at: str
    done: bool
    done_reason: str | UnsetType = UNSET
    total_duration: int | UnsetType = UNSET
    load_duration: int | UnsetType = UNSET
    prompt_eval_count: int | UnsetType = UNSET
    prompt_eval_duration: int | UnsetType = UNSET
    eval_count: int | UnsetType = UNSET
    eval_duration: int | UnsetType = UNSET
    logprobs: list[TokenScore] | UnsetType = UNSET
    cache_trace: CacheTrace | UnsetType = UNSET
    warnings: tuple[str, ...] | UnsetType = UNSET


class ChatLine(AnswerLine, kw_only=True):
    """POST /api/chat."""

    message: OllamaAnswer


class GenerateLine(AnswerLine, kw_only=True):
    """POST /api/generate."""

    response: str
    thinking: str | UnsetType = UNSET


def now() -> str:
    """RFC 3339, in UTC."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def cost_of(tally: Tally) -> dict[str, int]:
    """What the last line tells. The model is there already: loading it takes nothing."""
    return {
        "total_duration": _ns(tally.whole_s),
        "load_duration": 0,
        "prompt_eval_count": tally.num_prompt,
        "prompt_eval_duration": _ns(tally.prompt_s),
        "eval_count": tally.num_sampled,
        "eval_duration": _ns(tally.sampling_s),
    }


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)

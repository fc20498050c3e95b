"""What clients send and what they get. Unknown fields are ignored, null means not given."""

from __future__ import annotations

import msgspec

from worker.service.openai.exchange import StreamOptions
from worker.service.openai.usage import LlamaTimings, PromptProgress, Usage
from worker.service.sampling import SamplingFields


class CompletionRequest(SamplingFields, kw_only=True):
    """POST /v1/completions."""

    prompt: str | list[str | int | list[int]] | None = None
    model: str | None = None
    max_tokens: int | None = None
    n_predict: int | None = None
    n: int | None = None
    best_of: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    stop: str | list[str] | None = None
    logprobs: int | bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_progress: bool | None = None
    add_special_tokens: bool | None = None
    truncation: str | None = None


class Logprobs(msgspec.Struct):
    """OpenAI's parallel arrays, one entry a token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class Choice(msgspec.Struct):
    """One continuation, or what one event adds to it."""

    text: str
    index: int
    logprobs: Logprobs | None = None
    finish_reason: str | None = None


class Completion(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A whole answer, or one event of a stream."""

    id: str
    created: int
    model: str
    choices: list[Choice]
    object: str
    system_fingerprint: str
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    timings: LlamaTimings | msgspec.UnsetType = msgspec.UNSET
    prompt_progress: PromptProgress | msgspec.UnsetType = msgspec.UNSET

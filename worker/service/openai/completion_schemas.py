"""What clients send and what they get. Unknown fields are ignored, null means not given."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.engine.request import SamplingParams


class SamplingFields(msgspec.Struct, kw_only=True):
    """The sampling fields of every endpoint, under the names that clients use."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repeat_penalty: float | None = None
    repetition_penalty: float | None = None
    repeat_last_n: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: list[str] | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    logit_bias: dict[str, float] | list[tuple[int, float]] | None = None
    seed: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None


class StreamOptions(msgspec.Struct, kw_only=True):
    """How a stream reports usage."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


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
    add_special_tokens: bool | None = None


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


class PromptDetails(msgspec.Struct):
    """How much of the prompt came from the cache."""

    cached_tokens: int = 0


class Usage(msgspec.Struct):
    """Tokens; a sampled end-of-generation token counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class Timings(msgspec.Struct):
    """llama-server's names. Milliseconds; a prompt's time begins with its admission."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: int
    draft_n_accepted: int


class Completion(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A whole answer, or one event of a stream."""

    id: str
    created: int
    model: str
    choices: list[Choice]
    object: str
    system_fingerprint: str
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    timings: Timings | msgspec.UnsetType = msgspec.UNSET


# our name -> the names it may come under, the first that is given wins
SAMPLING_ALIASES = {"repeat_penalty": ("repeat_penalty", "repetition_penalty")}
PLAIN_SAMPLING = tuple(
    name
    for name in SamplingParams.__struct_fields__
    if name not in ("logit_bias", "grammar", "grammar_param", "dry_sequence_breakers")
)

"""What OpenAI's clients send and what they get. Null means not given."""

from __future__ import annotations

from typing import Annotated

import msgspec

from worker.api.answer.logprobs import Logprobs, TokenScore
from worker.api.answer.usage import LlamaTimings, PromptProgress, TemplateReply, Usage
from worker.api.intake.bounds import TRUNCATIONS, between, count_from, one_of, texts
from worker.api.intake.chat.chat_request import StreamOptions
from worker.api.intake.prompts import Truncated
from worker.api.intake.sampling import SamplingFields
from worker.limits import LOGPROBS, SEQUENCES, STOP, STOPS
from worker.requests.trace import CacheTrace


class AnyChoice(msgspec.Struct, kw_only=True):
    """token_ids: of the sampled tokens, where asked for"""

    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


class ChatLogprobs(msgspec.Struct):
    """One entry a token."""

    content: list[TokenScore]


class FunctionDelta(msgspec.Struct):
    """What is called; its name is told once."""

    name: str | msgspec.UnsetType = msgspec.UNSET
    arguments: str = ""


class ToolCallDelta(msgspec.Struct):
    """A tool call, or what one event adds to it.

    index  of the call in the answer; in events only
    """

    function: FunctionDelta
    index: int | msgspec.UnsetType = msgspec.UNSET
    id: str | msgspec.UnsetType = msgspec.UNSET
    type: str | msgspec.UnsetType = msgspec.UNSET


class ChatDelta(msgspec.Struct):
    """An answer, or what one event adds to it; the role is told once."""

    role: str | msgspec.UnsetType = msgspec.UNSET
    content: str | msgspec.UnsetType | None = msgspec.UNSET
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    reasoning: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[ToolCallDelta] | msgspec.UnsetType = msgspec.UNSET


class ChatChoice(AnyChoice, kw_only=True):
    """One answer: `message` whole, or `delta` in an event."""

    index: int
    message: ChatDelta | msgspec.UnsetType = msgspec.UNSET
    delta: ChatDelta | msgspec.UnsetType = msgspec.UNSET
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
    warnings: tuple[str, ...] = ()
    service_tier: str | msgspec.UnsetType = msgspec.UNSET
    prompt_token_ids: tuple[int, ...] = ()
    cache_trace: CacheTrace | msgspec.UnsetType = msgspec.UNSET
    verbose: TemplateReply | msgspec.UnsetType = msgspec.field(
        name="__verbose", default=msgspec.UNSET
    )


class CompletionRequest(SamplingFields, kw_only=True):
    """POST /v1/completions.

    prompt              a text, a list of texts, token ids, or a list of lists of token ids
    max_tokens          tokens to sample at most; 16 where it is not given, -1: until the model or
                        the context ends, 0: the prompt is only read, or with echo scored
    n                   continuations of each prompt
    best_of             continuations of which the best n by mean logprob are answered
    echo                the prompt is repeated before its continuation
    suffix              what comes after the answer: infill, for models with such tokens
    stop                the answer ends before the first of these
    logprobs            likeliest alternatives to report for each token; true is 1
    n_probs             llama-server's name of it
    stream              true: events, one for each token
    stream_options      how a stream reports usage
    return_progress     true: each step that reads the prompt is an event, too
    return_token_ids    true: the ids of the prompt and of the answer, too
    return_tokens_as_token_ids
                        true: logprobs name tokens by their ids
    timings_per_token   true: events have timings
    add_special_tokens  false: a prompt of text gets no BOS
    truncation          auto is for conversations, and refused here
    """

    prompt: str | list[str | int | list[int]] | None = None
    max_tokens: Annotated[int | None, count_from(0)] = None
    n: Annotated[int | None, between(1, SEQUENCES.most)] = None
    best_of: Annotated[int | None, between(1, SEQUENCES.most)] = None
    echo: bool | None = None
    suffix: str | None = None
    stop: Annotated[str | list[str | None] | None, texts(STOPS.most, STOP.most)] = None
    logprobs: Annotated[bool | int | None, between(0, LOGPROBS.most)] = None
    n_probs: Annotated[int | None, between(0, LOGPROBS.most)] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_progress: bool | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    timings_per_token: bool | None = None
    add_special_tokens: bool | None = None
    truncation: Annotated[str | None, one_of(*TRUNCATIONS)] = None


class Choice(AnyChoice):
    """One continuation, or what one event adds to it; the prompt's ids stand in the first one."""

    text: str
    index: int
    logprobs: Logprobs | None = None
    finish_reason: str | None = None
    prompt_token_ids: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET


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
    warnings: tuple[str, ...] = ()
    service_tier: str | msgspec.UnsetType = msgspec.UNSET
    cache_trace: CacheTrace | msgspec.UnsetType = msgspec.UNSET

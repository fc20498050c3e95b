"""What clients send and what they get. Null means not given."""

from __future__ import annotations

from typing import Annotated

import msgspec

from worker.api.common.bounds import TRUNCATIONS, between, count_from, one_of, texts
from worker.api.common.logprobs import Logprobs
from worker.api.common.sampling import SamplingFields
from worker.api.common.usage import LlamaTimings, PromptProgress, Usage
from worker.api.openai.exchange import AnyChoice, StreamOptions
from worker.limits import LOGPROBS, SEQUENCES, STOP, STOPS


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

"""What an answer cost, as OpenAI and llama-server tell it."""

from __future__ import annotations

import msgspec

from worker.api.common.tally import Tally
from worker.engine.sequence import PromptRead


class PromptDetails(msgspec.Struct):
    """How much of the prompt came from the cache."""

    cached_tokens: int = 0


class CompletionDetails(msgspec.Struct):
    """How much of the answer was thought."""

    reasoning_tokens: int = 0


class Usage(msgspec.Struct):
    """Tokens; a sampled end-of-generation token counts.

    prompt_tokens_details      not there before the first sequence has ended
    completion_tokens_details  there where something was thought
    """

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails | msgspec.UnsetType = msgspec.UNSET
    completion_tokens_details: CompletionDetails | msgspec.UnsetType = msgspec.UNSET


class InputTokens(msgspec.Struct, tag_field="object", tag="response.input_tokens"):
    """What a prompt would have."""

    input_tokens: int


class LlamaTimings(msgspec.Struct):
    """llama-server's names. Milliseconds; a prompt's time begins with its admission.

    predicted_per_token_ms, predicted_per_second  of what follows a sequence's first token: that
                                                  came with the prompt
    """

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


class PromptProgress(msgspec.Struct):
    """How far a prompt is read, under llama-server's names.

    total      its tokens
    cache      those that the cache gave
    processed  those that are computed by now, the cache's among them
    time_ms    since its admission
    """

    total: int
    cache: int
    processed: int
    time_ms: int


def progress_of(progress: PromptRead) -> PromptProgress:
    """llama-server's figures."""
    return PromptProgress(
        progress.total, progress.cached, progress.computed, round(progress.seconds * 1e3)
    )


def usage_of(tally: Tally, num_thought: int = 0) -> Usage:
    """OpenAI's counts. num_thought: sampled tokens that were thoughts"""
    return Usage(
        tally.num_prompt,
        tally.num_sampled,
        tally.num_prompt + tally.num_sampled,
        msgspec.UNSET if tally.num_cached is None else PromptDetails(tally.num_cached),
        CompletionDetails(num_thought) if num_thought else msgspec.UNSET,
    )


def timings_of(tally: Tally, progress: PromptRead | None = None) -> LlamaTimings:
    """llama-server's figures. progress: of a prompt that is still being read"""
    cached, prompt_s = tally.num_cached or 0, tally.prompt_s
    computed = max(0, tally.num_prompt - cached)
    if progress is not None:
        cached, computed = progress.cached, progress.computed - progress.cached
        prompt_s = progress.seconds if computed else 0.0
    followed = tally.num_following if tally.sampling_s else 0
    return LlamaTimings(
        cache_n=cached,
        prompt_n=computed,
        prompt_ms=prompt_s * 1e3,
        prompt_per_token_ms=_ratio(prompt_s * 1e3, computed),
        prompt_per_second=_ratio(computed, prompt_s),
        predicted_n=tally.num_sampled,
        predicted_ms=tally.sampling_s * 1e3,
        predicted_per_token_ms=_ratio(tally.sampling_s * 1e3, followed),
        predicted_per_second=_ratio(followed, tally.sampling_s),
        draft_n=tally.num_drafted,
        draft_n_accepted=tally.num_accepted,
    )


def _ratio(value: float, base: float) -> float:
    return value / base if base else 0.0

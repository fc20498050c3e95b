"""What an answer cost, as OpenAI and llama-server tell it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from worker.engine.sequence import Delta, PromptRead


class Tally:
    """Adds up the deltas of all sequences of a generation.

    num_prompt    tokens of all prompts
    num_sampled   a sampled end-of-generation token counts
    num_drafted, num_accepted   guessed tokens that were computed, and those that were right
    prompt_s      from admission to the first token, of the slowest sequence
    sampling_s    from the first token to the last, of the slowest sequence; before a sequence has
                  ended both are what a clock here says. At least a microsecond once it has ended:
                  guesses can fill a whole answer in one step, and clients divide by it
    whole_s       from submission to the end, of the slowest sequence
    """

    def __init__(self, num_prompt: int, ids: Sequence[str], copies: int = 1) -> None:
        """
        ids     of the sequences, in order, the copies of a prompt side by side
        copies  sequences of each prompt
        """
        self.num_prompt = num_prompt
        self.num_sampled = 0
        self.num_sequences = len(ids)
        self._prompts = {name: place // copies for place, name in enumerate(ids)}
        self._cached: dict[int, int] = {}
        self.num_drafted = 0
        self.num_accepted = 0
        self.prompt_s = 0.0
        self.sampling_s = 0.0
        self.whole_s = 0.0
        self._begun = time.monotonic()
        self._first: float | None = None

    @property
    def num_cached(self) -> int | None:
        """Prompt tokens that the cache gave; None until the first sequence has ended.

        A prompt counts once, however many copies it has. They share what one of them computed, so
        the copy that found the least counts.
        """
        return sum(self._cached.values()) if self._cached else None

    def add(self, delta: Delta) -> None:
        self.num_sampled += delta.token is not None
        if delta.token is not None and not self.whole_s:
            now = time.monotonic()
            if self._first is None:
                self._first, self.prompt_s = now, now - self._begun
            self.sampling_s = now - self._first
        if delta.finish_reason:
            prompt, count = self._prompts[delta.id], delta.cached_tokens
            self._cached[prompt] = min(count, self._cached.get(prompt, count))
        self.num_drafted += delta.drafted_tokens
        self.num_accepted += delta.accepted_tokens
        if delta.timings is not None:
            times = delta.timings
            if not self.whole_s:
                self.prompt_s = self.sampling_s = 0.0
            self.prompt_s = max(self.prompt_s, times.first_token - times.admitted)
            self.sampling_s = max(self.sampling_s, times.finished - times.first_token, 1e-6)
            self.whole_s = max(self.whole_s, times.finished - times.submitted)


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
    # Sampled tokens behind the first ones of their sequences.
    followed = max(0, tally.num_sampled - tally.num_sequences) if tally.sampling_s else 0
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


class TemplateReply(msgspec.Struct):
    """The prompt as text."""

    prompt: str

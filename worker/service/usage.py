"""Counting tokens and time over the deltas of one answer."""

from __future__ import annotations

from worker.engine.sequence import Delta
from worker.service.openai.completion_schemas import PromptDetails, Timings, Usage


class UsageCount:
    """Adds up the deltas of all choices of one answer."""

    def __init__(self, prompt_tokens: int) -> None:
        self._prompt = prompt_tokens
        self._sampled = 0
        self._cached = 0
        self._drafted = 0
        self._accepted = 0
        self._prompt_s = 0.0
        self._sampling_s = 0.0

    def add(self, delta: Delta) -> None:
        """Count one delta."""
        self._sampled += delta.token is not None
        self._cached += delta.cached_tokens
        self._drafted += delta.drafted_tokens
        self._accepted += delta.accepted_tokens
        if delta.timings is not None:
            # Choices run side by side: the answer took as long as its slowest part.
            times = delta.timings
            self._prompt_s = max(self._prompt_s, times.first_token - times.admitted)
            self._sampling_s = max(self._sampling_s, times.finished - times.first_token)

    def usage(self) -> Usage:
        """OpenAI's counts."""
        return Usage(
            self._prompt,
            self._sampled,
            self._prompt + self._sampled,
            PromptDetails(self._cached),
        )

    def timings(self) -> Timings:
        """llama-server's figures."""
        computed = max(0, self._prompt - self._cached)
        return Timings(
            cache_n=self._cached,
            prompt_n=computed,
            prompt_ms=self._prompt_s * 1e3,
            prompt_per_token_ms=_ratio(self._prompt_s * 1e3, computed),
            prompt_per_second=_ratio(computed, self._prompt_s),
            predicted_n=self._sampled,
            predicted_ms=self._sampling_s * 1e3,
            predicted_per_token_ms=_ratio(self._sampling_s * 1e3, self._sampled),
            predicted_per_second=_ratio(self._sampled, self._sampling_s),
            draft_n=self._drafted,
            draft_n_accepted=self._accepted,
        )


def _ratio(value: float, base: float) -> float:
    return value / base if base else 0.0

"""Counting tokens and seconds over the deltas of one generation."""

from __future__ import annotations

import time
from collections.abc import Sequence

from worker.engine.sequence import Delta


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
    def num_following(self) -> int:
        """Sampled tokens behind the first ones of their sequences."""
        return max(0, self.num_sampled - len(self._prompts))

    @property
    def num_cached(self) -> int | None:
        """Prompt tokens that the cache gave; None until the first sequence has ended.

        A prompt counts once, however many copies it has. They share what one of them computed, so
        the copy that found the least counts.
        """
        return sum(self._cached.values()) if self._cached else None

    def add(self, delta: Delta) -> None:
        """Count one delta."""
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

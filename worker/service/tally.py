"""Counting tokens and seconds over the deltas of one generation."""

from __future__ import annotations

from worker.engine.sequence import Delta


class Tally:
    """Adds up the deltas of all sequences of a generation.

    num_prompt    tokens of all prompts
    num_sampled   a sampled end-of-generation token counts
    num_cached    prompt tokens that the cache gave
    num_drafted, num_accepted   guessed tokens that were computed, and those that were right
    prompt_s      from admission to the first token, of the slowest sequence
    sampling_s    from the first token to the last, of the slowest sequence
    whole_s       from submission to the end, of the slowest sequence
    """

    def __init__(self, num_prompt: int) -> None:
        self.num_prompt = num_prompt
        self.num_sampled = 0
        self.num_cached = 0
        self.num_drafted = 0
        self.num_accepted = 0
        self.prompt_s = 0.0
        self.sampling_s = 0.0
        self.whole_s = 0.0

    def add(self, delta: Delta) -> None:
        """Count one delta."""
        self.num_sampled += delta.token is not None
        self.num_cached += delta.cached_tokens
        self.num_drafted += delta.drafted_tokens
        self.num_accepted += delta.accepted_tokens
        if delta.timings is not None:
            times = delta.timings
            self.prompt_s = max(self.prompt_s, times.first_token - times.admitted)
            self.sampling_s = max(self.sampling_s, times.finished - times.first_token)
            self.whole_s = max(self.whole_s, times.finished - times.submitted)

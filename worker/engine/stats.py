"""What the engine has done so far, counted where it happens."""

from __future__ import annotations

import bisect

import msgspec

from worker.engine.sequence import Sequence

# Seconds. The same borders for all, from one step of a small model to a long queue.
BORDERS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Histogram:
    """Counts of values up to each of BORDERS, and beyond; written by the engine's thread only."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BORDERS) + 1)
        self.total = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count a value, as often as `times` says."""
        self.counts[bisect.bisect_left(BORDERS, seconds)] += times
        self.total += seconds * times


class Stats(msgspec.Struct):
    """Counters since the start; they only grow.

    finished          ended requests by reason: stop, length, error, aborted
    prompt_tokens     of requests that ended; cached_tokens of them came from shared cells
    drafted_tokens    guessed tokens whose rows were computed; accepted_tokens of them were right
    preempted         times that a running sequence was put back into the queue
    """

    steps: int = 0
    finished: dict[str, int] = msgspec.field(
        default_factory=lambda: {"stop": 0, "length": 0, "error": 0, "aborted": 0}
    )
    prompt_tokens: int = 0
    cached_tokens: int = 0
    sampled_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    preempted: int = 0
    queue_time: Histogram = msgspec.field(default_factory=Histogram)
    first_token: Histogram = msgspec.field(default_factory=Histogram)
    inter_token: Histogram = msgspec.field(default_factory=Histogram)
    whole_request: Histogram = msgspec.field(default_factory=Histogram)

    def count(self, sequence: Sequence, reason: str, now: float) -> None:
        """A request ended."""
        self.finished[reason] += 1
        self.prompt_tokens += sequence.num_prompt
        self.cached_tokens += sequence.cached_tokens
        self.sampled_tokens += sequence.num_sampled
        if sequence.draft is not None:
            self.drafted_tokens += sequence.draft.num_drafted
            self.accepted_tokens += sequence.draft.num_accepted
        if reason not in ("stop", "length"):
            return
        self.queue_time.observe(sequence.admitted_at - sequence.submitted_at)
        self.first_token.observe(sequence.first_token_at - sequence.submitted_at)
        self.whole_request.observe(now - sequence.submitted_at)
        gaps = sequence.num_sampled - 1
        if gaps > 0:
            self.inter_token.observe((now - sequence.first_token_at) / gaps, gaps)

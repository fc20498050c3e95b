"""What the engine has done so far and what it does now, in structs that never change."""

from __future__ import annotations

import bisect

import msgspec

from worker.cache.stats import CacheStats
from worker.engine.sequence import Sequence

# Seconds. The same borders for all, from one step of a small model to a long queue.
BORDERS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_NOTHING_COUNTED = (0,) * (len(BORDERS) + 1)


class Histogram(msgspec.Struct, frozen=True):
    """How many values lie in each range of BORDERS: counts[i] up to BORDERS[i], the last above.

    total: sum of the values, seconds
    """

    counts: tuple[int, ...] = _NOTHING_COUNTED
    total: float = 0.0

    def plus(self, seconds: float, times: int = 1) -> Histogram:
        """This histogram and one more value, which counts `times` times."""
        counts = list(self.counts)
        counts[bisect.bisect_left(BORDERS, seconds)] += times
        return Histogram(tuple(counts), self.total + seconds * times)


class Stats(msgspec.Struct, frozen=True):
    """Sums over the requests that have ended; they only grow.

    finished          requests by reason: stop, length, error, aborted
    cached_tokens     prompt tokens that were found in cells of other sequences
    drafted_tokens    guessed tokens whose rows were computed; accepted_tokens of them were right
    queue_time, first_token, inter_token, whole_request
                      of requests that ended with stop or length; seconds
    """

    finished: dict[str, int] = msgspec.field(
        default_factory=lambda: {"stop": 0, "length": 0, "error": 0, "aborted": 0}
    )
    prompt_tokens: int = 0
    cached_tokens: int = 0
    sampled_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    queue_time: Histogram = Histogram()
    first_token: Histogram = Histogram()
    inter_token: Histogram = Histogram()
    whole_request: Histogram = Histogram()

    def plus(self, sequence: Sequence, reason: str, now: float) -> Stats:
        """These sums and one more request, which ended for `reason`."""
        draft = sequence.draft
        sums = msgspec.structs.replace(
            self,
            finished={**self.finished, reason: self.finished[reason] + 1},
            prompt_tokens=self.prompt_tokens + sequence.num_prompt,
            cached_tokens=self.cached_tokens + sequence.cached_tokens,
            sampled_tokens=self.sampled_tokens + sequence.num_sampled,
            drafted_tokens=self.drafted_tokens + (draft.num_drafted if draft else 0),
            accepted_tokens=self.accepted_tokens + (draft.num_accepted if draft else 0),
        )
        return sums._with_times(sequence, now) if reason in ("stop", "length") else sums

    def _with_times(self, sequence: Sequence, now: float) -> Stats:
        submitted, first_token = sequence.submitted_at, sequence.first_token_at
        gaps = sequence.num_sampled - 1
        inter_token = self.inter_token
        if gaps > 0:
            inter_token = inter_token.plus((now - first_token) / gaps, gaps)
        return msgspec.structs.replace(
            self,
            queue_time=self.queue_time.plus(sequence.admitted_at - submitted),
            first_token=self.first_token.plus(first_token - submitted),
            inter_token=inter_token,
            whole_request=self.whole_request.plus(now - submitted),
        )


class SequenceProgress(msgspec.Struct, frozen=True, gc=False):
    """How far a running sequence is, in tokens.

    num_computed  tokens in the KV cache, of the prompt and of what was sampled
    num_known     length of the prompt and of what was sampled
    limit         longest that it may become, prompt included
    """

    num_prompt: int
    num_computed: int
    num_known: int
    limit: int

    @property
    def num_sampled(self) -> int:
        """Tokens that the model chose."""
        return self.num_known - self.num_prompt


class EngineSnapshot(msgspec.Struct, frozen=True):
    """The engine's counters at one moment. Any thread may read it; nobody changes it.

    max_running   sequences that run at once at most
    running       the sequences that run, the oldest first
    free_cells, cached_cells, live_cells
                  cells of the KV cache that nobody holds, that only ended sequences hold, and
                  that running sequences hold
    num_steps     batches that were computed or failed, since the start
    num_preempted times that a running sequence was put back into the queue for want of cells
    stats         sums over the requests that have ended
    kept          states of ended sequences outside of the KV cache
    num_read      prompt tokens that were computed, since the start
    """

    max_running: int
    num_waiting: int
    running: tuple[SequenceProgress, ...]
    free_cells: int
    cached_cells: int
    live_cells: int
    num_steps: int
    num_preempted: int
    stats: Stats
    kept: CacheStats = CacheStats()
    num_read: int = 0

    @property
    def num_running(self) -> int:
        """Sequences that hold a slot."""
        return len(self.running)

    @property
    def num_cells(self) -> int:
        """All cells of the KV cache."""
        return self.free_cells + self.cached_cells + self.live_cells

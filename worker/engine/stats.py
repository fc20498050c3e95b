"""What the engine has done so far and what it does now."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

import msgspec

from worker.cache.store import CacheStats
from worker.engine.request import GenerationParams
from worker.engine.sequence import Sequence

# Seconds. The same borders for all, from one step of a small model to a long queue.
BORDERS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
# Rows of a step: powers of two, up to the largest batch that can be asked for.
ROW_BORDERS = tuple(2**power for power in range(17))
# Tokens of a request. The 1-2-5 series, as vLLM has it.
TOKEN_BORDERS = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000,
)  # fmt: skip


class Histogram(msgspec.Struct, frozen=True):
    """How many values lie in each range: counts[i] up to borders[i], the last one above.

    total: sum of the values
    """

    borders: tuple[float, ...]
    counts: tuple[int, ...]
    total: float = 0.0

    def plus(self, value: float, times: int = 1) -> Histogram:
        """This histogram and one more value, which counts `times` times."""
        counts = list(self.counts)
        counts[bisect.bisect_left(self.borders, value)] += times
        return Histogram(self.borders, tuple(counts), self.total + value * times)


def histogram(borders: tuple[float, ...] = BORDERS) -> Histogram:
    return Histogram(borders, tuple(_places(borders)))


def _places(borders: tuple[float, ...]) -> list[int]:
    return [0] * (len(borders) + 1)


class Stats(msgspec.Struct):
    """Sums since the start; they only grow, while others read them. `copy` is of one moment.

    Tokens count when they are computed or found, not when their request ends. A prompt counts once,
    however many copies it has: as in the usage that its client is told.

    finished          sequences by reason: stop, length, error, aborted
    computed_tokens   prompt tokens that were computed; twice where a sequence was put back
    looked_up_tokens  prompt tokens that were looked up: of these were found
    shared_tokens     in cells of other sequences,
    memory_tokens     in host memory,
    disk_tokens       and on the disk
    sampled_tokens    tokens that the model chose
    num_drafts        guesses that were verified: drafted_tokens, accepted_tokens of them right
    num_rearranged    times that the cells were made anew, for another layout
    num_emptied       times that all cells were emptied, because the model's memory was given back
    num_preempted     times that a running sequence was put back into the queue: cells were few, or
                      another one came first
    num_stalls        times that a stream waited for its next token longer than it may
    num_busy          sequences that ran, counted in each step
    longest           tokens of the longest sequence that has ended or was put back
    prompt_s, token_s seconds of steps that read prompts, and of the others
    row_counts, num_rows, wait_counts, wait_s
                      of the histograms that get a value in each step: see `step_rows` and
                      `inter_token`
    embedded_texts, embedded_tokens, embedding_s
                      texts whose vectors or scores were made, their tokens, seconds of the steps
    queue_time        seconds from submission to admission; first_token: and to the first token
    read_time, write_time, whole_request
                      seconds from admission to the first token, from there to the last one, and
                      from submission to the last one; these and the next two of sequences that
                      ended with stop or length
    prompt_lengths, answer_lengths
                      tokens
    """

    finished: dict[str, int] = msgspec.field(
        default_factory=lambda: {"stop": 0, "length": 0, "error": 0, "aborted": 0}
    )
    computed_tokens: int = 0
    looked_up_tokens: int = 0
    shared_tokens: int = 0
    memory_tokens: int = 0
    disk_tokens: int = 0
    sampled_tokens: int = 0
    num_drafts: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    num_stalls: int = 0
    num_rearranged: int = 0
    num_emptied: int = 0
    num_preempted: int = 0
    num_busy: int = 0
    longest: int = 0
    prompt_s: float = 0.0
    token_s: float = 0.0
    embedded_texts: int = 0
    embedded_tokens: int = 0
    embedding_s: float = 0.0
    row_counts: list[int] = msgspec.field(default_factory=lambda: _places(ROW_BORDERS))
    num_rows: int = 0
    wait_counts: list[int] = msgspec.field(default_factory=lambda: _places(BORDERS))
    wait_s: float = 0.0
    queue_time: Histogram = histogram()
    first_token: Histogram = histogram()
    read_time: Histogram = histogram()
    write_time: Histogram = histogram()
    whole_request: Histogram = histogram()
    prompt_lengths: Histogram = histogram(TOKEN_BORDERS)
    answer_lengths: Histogram = histogram(TOKEN_BORDERS)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were found somewhere."""
        return self.shared_tokens + self.memory_tokens + self.disk_tokens

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens that were computed or found."""
        return self.computed_tokens + self.cached_tokens

    @property
    def step_rows(self) -> Histogram:
        return Histogram(ROW_BORDERS, tuple(self.row_counts), self.num_rows)

    @property
    def inter_token(self) -> Histogram:
        """Seconds from a step that gave a stream tokens to the next one that does."""
        return Histogram(BORDERS, tuple(self.wait_counts), self.wait_s)

    def copy(self) -> Stats:
        """These sums as they are now; any thread may ask."""
        counts = {"row_counts": self.row_counts[:], "wait_counts": self.wait_counts[:]}
        return msgspec.structs.replace(self, **counts)

    def note_step(self, num_rows: int, reads: bool, num_busy: int, seconds: float) -> None:
        """A batch was computed; `reads`: it had rows of prompts."""
        self.row_counts[(num_rows - 1).bit_length()] += 1
        self.num_rows += num_rows
        self.num_busy += num_busy
        if reads:
            self.prompt_s += seconds
        else:
            self.token_s += seconds

    def note_embedding(self, num_rows: int, num_texts: int, seconds: float) -> None:
        """A step read so many rows of texts, of which so many have their vectors now."""
        self.embedded_tokens += num_rows
        self.embedded_texts += num_texts
        self.embedding_s += seconds

    def note_draft(self, num_drafted: int, num_accepted: int) -> None:
        """A guess of so many tokens was verified."""
        self.num_drafts += num_drafted > 0
        self.drafted_tokens += num_drafted
        self.accepted_tokens += num_accepted

    def note_tokens(self, runs: Iterable[tuple[Sequence, int]], now: float, limit: float) -> None:
        """A step that ended `now` may have given these sequences tokens.

        limit: seconds that a stream may wait for its next one
        """
        last, times, sampled = now, 0, 0  # most have waited since the same step
        for sequence, _ in runs:
            known, counted = sequence.num_known, sequence.num_counted
            if known == counted:
                continue
            sampled += known - counted
            if sequence.is_batch and counted > sequence.num_given:
                pass  # nobody waits for its tokens
            elif sequence.last_token_at == last:
                times += 1
            elif counted > sequence.num_given:
                if times:
                    self._note_waits(now - last, times, limit)
                last, times = sequence.last_token_at, 1
            else:
                self.first_token = self.first_token.plus(now - sequence.submitted_at)
            sequence.num_counted, sequence.last_token_at = known, now
        self.sampled_tokens += sampled
        if times:
            self._note_waits(now - last, times, limit)

    def _note_waits(self, seconds: float, times: int, limit: float) -> None:
        self.wait_counts[bisect.bisect_left(BORDERS, seconds)] += times
        self.wait_s += seconds * times
        if seconds > limit:
            self.num_stalls += times

    def note_end(self, sequence: Sequence, reason: str, now: float) -> None:
        """A sequence has ended for `reason`."""
        # Copies of these sums share it: it is never changed.
        self.finished = {**self.finished, reason: self.finished[reason] + 1}
        self.longest = max(self.longest, sequence.num_known)
        if reason not in ("stop", "length"):
            return
        first_token = sequence.first_token_at
        self.read_time = self.read_time.plus(first_token - sequence.admitted_at)
        self.write_time = self.write_time.plus(now - first_token)
        self.whole_request = self.whole_request.plus(now - sequence.submitted_at)
        self.prompt_lengths = self.prompt_lengths.plus(sequence.num_prompt)
        self.answer_lengths = self.answer_lengths.plus(sequence.num_sampled)

    def note_scored(self, reason: str) -> None:
        """All suffixes of a request that only scores have ended for `reason`."""
        self.finished = {**self.finished, reason: self.finished[reason] + 1}


class SequenceProgress(msgspec.Struct, frozen=True, gc=False):
    """How far a running sequence is, in tokens.

    num_computed  tokens in the KV cache, of the prompt and of what was sampled
    num_known     length of the prompt and of what was sampled
    limit         longest that it may become, prompt included
    num_cached    tokens of the prompt that the cache gave
    id            of its request, and what that wants
    has_line      whether the answer has a whole line
    """

    num_prompt: int
    num_computed: int
    num_known: int
    limit: int
    num_cached: int = 0
    id: str = ""
    params: GenerationParams = GenerationParams()
    has_line: bool = False

    @property
    def num_sampled(self) -> int:
        """Tokens that the model chose."""
        return self.num_known - self.num_prompt


def progress_of(sequence: Sequence) -> SequenceProgress:
    return SequenceProgress(
        sequence.num_prompt,
        sequence.num_computed,
        sequence.num_known,
        sequence.limit,
        sequence.cached_tokens,
        sequence.id,
        sequence.params,
        sequence.has_line,
    )


class EngineSnapshot(msgspec.Struct, frozen=True):
    """The engine's counters at one moment, but for `stats`. Any thread may read it.

    max_running   sequences that run at once at most
    running       the sequences that run, the oldest first
    free_cells, cached_cells, live_cells
                  cells of the KV cache that nobody holds, that only ended sequences hold, and
                  that running sequences hold
    num_steps     batches that were computed or failed, since the start
    num_preempted as in `Stats`
    stats         sums since the start, the engine's own: they go on growing, `copy` stands still
    kept          states of ended sequences outside of the KV cache
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

    @property
    def num_running(self) -> int:
        """Sequences that hold a slot."""
        return len(self.running)

    @property
    def num_cells(self) -> int:
        """All cells of the KV cache."""
        return self.free_cells + self.cached_cells + self.live_cells

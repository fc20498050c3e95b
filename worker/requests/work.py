"""What a request lets the engine do: how far its sequences are, and how they ended."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import msgspec

from worker.engine.request import Request
from worker.engine.sequence import Delta, SequenceStatus
from worker.engine.stream import Lane, Stream
from worker.errors import WorkerError
from worker.requests.tracer import PromptTracer

# Seconds over which the speed of a request that runs is told, and those between two looks at it.
_SPAN_S = 4.0
_GAP_S = 0.2


class WorkSums(msgspec.Struct, frozen=True):
    """Over all sequences of a request. A prompt counts once, however many copies it has.

    num_running   sequences that hold a slot
    first_token   time of the first token of any; None: there is none
    """

    num_running: int
    read_tokens: int
    cached_tokens: int
    generated_tokens: int
    wait_s: float
    first_token: float | None


class RequestWork:
    """Watches the stream of one request. Nothing happens here for a token: who looks, counts.

    began          when it was accepted; as all times here of `time.monotonic`, the engine's clock
    prompt_tokens  of all prompts
    max_tokens     that all sequences may generate
    was_cut        whether an answer ended by its length
    was_left       whether its client left while it ran
    error          the first error that one of its sequences ended in
    tracer         says what the cache gave; None: nobody asks, as of what only scores
    """

    def __init__(
        self, stream: Stream, requests: Sequence[Request], copies: int, lane: Lane
    ) -> None:
        """requests: those of a prompt side by side, `copies` of each."""
        self.began = self.ended_at = time.monotonic()
        self.was_cut = self.was_left = False
        self.error: WorkerError | None = None
        self.on_end: Callable[[], None] = _nothing
        self.tracer: PromptTracer | None = None
        self.max_tokens = 0
        self._lengths: dict[str, int] = {}
        for request in requests:
            length, most = request.num_tokens, request.params.max_tokens
            room = lane.max_length - length
            self.max_tokens += room if most is None else max(0, min(most, room))
            self._lengths[request.id] = length
        self.prompt_tokens = sum([*self._lengths.values()][::copies])
        self.num_sequences = len(self._lengths)
        self._stream, self._lane, self._copies = stream, lane, copies
        self._running: set[str] = set(self._lengths)
        self._seen: dict[
            str, SequenceStatus
        ] = {}  # as it was when somebody looked last, or at the end
        self._samples: list[tuple[float, int]] = []
        stream.watcher = self

    @property
    def is_over(self) -> bool:
        return not self._running

    def cancel(self, error: WorkerError) -> None:
        """End it; its reader gets the error."""
        self._stream.fail(error)

    def end(self, delta: Delta) -> None:
        if delta.id not in self._running:
            return
        self.ended_at = time.monotonic()
        times = delta.timings
        if times is None:  # it was ended by others than the engine
            self._look(delta.id)
        else:
            sampled = delta.sampled_tokens
            self._seen[delta.id] = SequenceStatus(
                is_running=False,
                read_tokens=self._lengths[delta.id],
                cached_tokens=delta.cached_tokens,
                sampled_tokens=sampled,
                admitted=times.admitted,
                first_token=times.first_token if sampled else 0.0,
            )
        self.error = self.error or delta.error
        self.was_cut = self.was_cut or delta.finish_reason == "length"
        self._running.discard(delta.id)
        if self.tracer is not None:
            self.tracer.end(delta)
        if not self._running:
            self._end()

    def leave(self) -> None:
        """Its client reads no more."""
        self.ended_at = time.monotonic()
        self.was_left = self.error is None
        for name in self._running:
            self._look(name)
        self._running.clear()
        if self.tracer is not None:
            self.tracer.close({name: seen.admitted for name, seen in self._seen.items()})
        self._end()

    def _end(self) -> None:
        on_end, self.on_end, self._stream.watcher = self.on_end, _nothing, None
        on_end()

    def sums(self, now: float) -> WorkSums:
        for name in self._running:
            self._look(name)
        running = generated = 0
        admitted = first_token = math.inf
        read, cached = dict[int, int](), dict[int, int]()  # of a prompt: of its copies the one that
        for number, name in enumerate(self._lengths):  # read most, and the one that found least
            if (status := self._seen.get(name)) is None:
                continue
            prompt = number // self._copies
            running += status.is_running and name in self._running
            generated += status.sampled_tokens
            read[prompt] = max(read.get(prompt, 0), status.read_tokens)
            if status.admitted:
                admitted = min(admitted, status.admitted)
                cached[prompt] = min(cached.get(prompt, status.cached_tokens), status.cached_tokens)
            if status.first_token:
                first_token = min(first_token, status.first_token)
        return WorkSums(
            num_running=running,
            read_tokens=sum(read.values()),
            cached_tokens=sum(cached.values()),
            generated_tokens=generated,
            wait_s=max(0.0, min(admitted, now) - self.began),
            first_token=None if first_token == math.inf else first_token,
        )

    def speed(self, sums: WorkSums, now: float) -> float | None:
        """Tokens a second over the last seconds in which somebody looked, else since the first."""
        count, samples = sums.generated_tokens, self._samples
        if sums.first_token is None:
            return None
        if not samples or now - samples[-1][0] >= _GAP_S:
            samples.append((now, count))
        while len(samples) > 1 and now - samples[1][0] >= _SPAN_S:
            samples.pop(0)
        then, before = samples[0]
        if now - then < 1.0 or now - then > 2 * _SPAN_S:
            then, before = sums.first_token, self.num_sequences
        return (count - before) / (now - then) if count > before and now > then else None

    def whole_speed(self, sums: WorkSums) -> float | None:
        """Tokens a second from the first to the end."""
        gaps = sums.generated_tokens - self.num_sequences
        if sums.first_token is None or gaps <= 0 or self.ended_at <= sums.first_token:
            return None
        return gaps / (self.ended_at - sums.first_token)

    def _look(self, name: str) -> None:
        standing = self._lane.status_of(name)
        if standing is not None:
            self._seen[name] = standing


def _nothing() -> None:
    """Nobody waits for the end."""

"""Texts whose vectors are wanted: they have steps of their own, in a context of their own."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from worker.engine.backend import Batch
from worker.engine.order import worth_of
from worker.engine.request import GenerationParams, Medium, Prompt, Request, check_length
from worker.engine.sequence import Delta
from worker.errors import RequestError, WorkerError

# While others write, texts are read for this share of the time.
_SHARE = 0.2
_INT16 = 32_760.0
_NEW_ROW = 0.3  # weight of the newest step in the running estimate of what a row costs


class EmbeddingRequest(Request, frozen=True, kw_only=True):
    """Texts whose vectors are wanted; the prompt holds their tokens one after the other.

    ends       where each text ends in it, ascending; the last one is its length
    per_token  a vector for each token is wanted, as without pooling
    """

    ends: tuple[int, ...]
    per_token: bool = False


def vectors_wanted(
    texts: Sequence[Sequence[int]],
    param: str,
    *,
    per_token: bool = False,
    media: Sequence[Sequence[Medium]] = (),
) -> EmbeddingRequest:
    """A request for the vectors of token ids; `param`: the client's field, to name in errors.

    media  of each text, where there are some
    """
    ends = tuple(accumulate(map(len, texts)))
    placed = (
        msgspec.structs.replace(medium, start=begin + medium.start)
        for begin, each in zip((0, *ends), media, strict=False)
        for medium in each
    )
    return EmbeddingRequest(
        id=uuid.uuid4().hex,
        prompt=Prompt(tuple(chain.from_iterable(texts)), media=tuple(placed)),
        ends=ends,
        params=GenerationParams(max_tokens=0, prompt_param=param),
        per_token=per_token,
    )


def shorten(
    tokens: Sequence[int], most: int | None, ends: Sequence[int], *, begins: int | None = None
) -> Sequence[int]:
    """At most so many of them; `ends`, which the tokenizer puts behind a text, stay.

    begins  the beginning goes, but for so many; None: the end goes
    """
    if most is None or len(tokens) <= most:
        return tokens
    if begins is not None:
        return [*tokens[: min(begins, most)], *tokens[len(tokens) - max(0, most - begins) :]]
    kept = list(ends[-most:]) if ends and list(tokens[-len(ends) :]) == list(ends) else []
    return [*tokens[: most - len(kept)], *kept]


def normalise(vector: np.ndarray, norm: int = 2, width: int | None = None) -> np.ndarray:
    """As llama-server counts: below 0 as it is, 0 the largest part 32,760, else a p-norm of 1.

    width: its first elements only. float32, also rows of them
    """
    made = vector[..., :width].astype(np.float64)
    if norm < 0:
        return made.astype(np.float32)
    if norm == 0:
        length = np.abs(made).max(axis=-1, keepdims=True) / _INT16
    else:
        length = (np.abs(made) ** norm).sum(axis=-1, keepdims=True) ** (1 / norm)
    return np.divide(made, length, out=np.zeros_like(made), where=length > 0).astype(np.float32)


class Embedded(Delta, frozen=True):
    """The one delta of such a request: a vector for each text, float32."""

    vectors: tuple[np.ndarray, ...] = ()


class EmbeddingBackend(Protocol):
    """A context that gives vectors. All calls come from the engine's thread.

    pooling     how the rows of a text become its vector: none, mean, cls, last; or rank, where a
                classifier makes them
    batch       the rows of the next step
    step_rows   rows with which a step is efficient; a longer text has a step of its own
    max_inputs  texts in a step
    max_length  tokens of a text
    splits      whether a text can be read in several steps
    """

    pooling: str
    batch: Batch
    step_rows: int
    max_inputs: int
    max_length: int
    splits: bool

    def compute(self) -> np.ndarray:
        """float32 [rows of the batch, width], valid until the next step. Raises BatchError."""
        ...

    def scores(self, slots: Sequence[int]) -> np.ndarray:
        """What a classifier made of the texts in these slots, float32 [slots, outputs]."""
        ...

    def forget(self, first: int) -> None:
        """Empty the slots from this one on."""
        ...


class _Text:
    """One text of a request, and what is known of its vector."""

    def __init__(self, job: _Job, place: int, tokens: np.ndarray, prompt: Prompt | None) -> None:
        """prompt: the same with the media in it; None: there are none"""
        self.job, self.place, self.tokens, self.prompt = job, place, tokens, prompt
        self.num_read = 0
        self._kept: list[np.ndarray] = []

    @property
    def num_missing(self) -> int:
        return len(self.tokens) - self.num_read

    def fill(self, batch: Batch, count: int, slot: int) -> None:
        """Write its next rows into a batch."""
        begin, stop = self.num_read, self.num_read + count
        medium = self.prompt and self.prompt.medium_at(begin)
        if self.prompt is not None and medium:
            batch.add_medium(medium, self.prompt.position(medium.start), begin, stop, slot)
            batch.outputs[:count] = 1
            return
        position = begin if self.prompt is None else self.prompt.position(begin)
        first = batch.add(self.tokens[begin:stop], position, slot)
        batch.outputs[first : first + count] = 1

    def next_run(self, room: int, capacity: int) -> int:
        """Rows of one with media that its next step computes."""
        assert self.prompt is not None
        medium = self.prompt.medium_at(self.num_read)
        most = room if medium is None or medium.is_causal else capacity
        return self.prompt.run(self.num_read, min(self.num_missing, most))

    def take(self, rows: np.ndarray, pooling: str) -> None:
        match pooling:
            case "mean":
                self._kept.append(rows.sum(axis=0, dtype=np.float64))
            case "cls":
                self._kept = self._kept or [rows[0].copy()]
            case "last":
                self._kept = [rows[-1].copy()]
            case _:
                self._kept.append(rows.copy())
        self.num_read += len(rows)

    def vector(self, pooling: str) -> np.ndarray:
        """Once all is read: float32 [width], or without pooling [tokens, width]."""
        if pooling == "mean":
            return (np.sum(self._kept, axis=0) / len(self.tokens)).astype(np.float32)
        return np.concatenate(self._kept) if pooling == "none" else self._kept[0]


class _Job:
    """A request on its way; its texts wait in the order of their lengths.

    turn_at  when a step had some of it the last time; before that, when it came
    """

    def __init__(self, request: EmbeddingRequest, now: float) -> None:
        self.request, self.turn_at = request, now
        tokens = np.array(request.prompt.tokens, np.int32)
        begins = (0, *request.ends[:-1])
        self.shows = bool(request.prompt.media)
        texts = [
            _Text(self, place, tokens[begin:end], _part(request.prompt, begin, end))
            for place, (begin, end) in enumerate(zip(begins, request.ends, strict=True))
        ]
        self.vectors: list[np.ndarray | None] = [None] * len(texts)
        self.num_left = len(texts)
        self.waiting = sorted(texts, key=_length)


def _part(prompt: Prompt, begin: int, end: int) -> Prompt | None:
    """One text of several, with its media; None: there are none."""
    media = tuple(
        msgspec.structs.replace(medium, start=medium.start - begin)
        for medium in prompt.media
        if begin <= medium.start < end
    )
    return Prompt(prompt.tokens[begin:end], media=media) if media else None


class LaneStep(NamedTuple):
    """What a step gave: `num_texts` have their vectors now."""

    deltas: list[Delta]
    num_rows: int
    num_texts: int
    seconds: float


class EmbeddingLane:
    """Packs the texts of all requests into steps. Not thread-safe: the engine's thread calls it.

    Rooms of a step are for the lowest worth first, which waiting lowers as in `Order`; then for the
    account that had the fewest tokens for its weight; then everybody is the first one in turn.
    """

    def __init__(
        self, backend: EmbeddingBackend, clock: Callable[[], float], max_stall: float = 0.4
    ) -> None:
        """clock, max_stall: the engine's"""
        self.backend = backend
        self._clock, self._max_stall = clock, max_stall
        self._jobs: deque[_Job] = deque()
        self._served: dict[str, float] = {}  # of accounts with jobs
        self._begun: _Text | None = None  # read in part
        self._is_awaited = False
        self._row_s = 0.0
        self._last_s = self._credit_s = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether no request is there."""
        return not self._jobs

    def check(self, request: EmbeddingRequest, vocab_size: int) -> None:
        """Raise RequestError for a text that no step could read; any thread may call it."""
        begin, param, tokens = 0, request.params.prompt_param, request.prompt.tokens
        if not tokens:
            raise RequestError(f"{param} is empty.", param=param)
        vectors = [len(medium.vectors) for medium in request.prompt.media]
        widest = max((len(m.vectors) for m in request.prompt.media if not m.is_causal), default=0)
        if vectors and (not self.backend.splits or widest > self.backend.batch.capacity):
            raise RequestError("This worker makes no embeddings of images.", param=param)
        if sum(token < 0 for token in tokens) != sum(vectors) or max(tokens) >= vocab_size:
            raise RequestError(
                f"{param} holds token ids outside 0 to {vocab_size - 1}.", param=param
            )
        for end in request.ends:
            if end == begin:
                raise RequestError(f"{param} holds a text without tokens.", param=param)
            check_length(end - begin, self.backend.max_length, param)
            begin = end

    def add(self, request: EmbeddingRequest) -> None:
        least = min(self._served.values(), default=0.0)
        self._served.setdefault(request.account.line, least)
        self._jobs.append(_Job(request, self._clock()))

    def abort(self, request_id: str) -> None:
        """Forget a request; unknown ids are fine."""
        for job in [job for job in self._jobs if job.request.id == request_id]:
            self._remove(job)
            if self._begun is not None and self._begun.job is job:
                self._begun = None
                self.backend.forget(0)

    def others_had(self, seconds: float) -> None:
        """Those that write had a step of so many seconds."""
        self._credit_s += seconds * _SHARE / (1 - _SHARE)

    def is_due(self, *, awaited: bool) -> bool:
        """Whether the next step is one of these. awaited: others write meanwhile"""
        self._is_awaited = awaited
        return not self.is_idle and (not awaited or self._credit_s >= self._last_s)

    def step(self) -> LaneStep:
        """Read texts; the requests that are whole now."""
        started = self._clock()
        parts = self._choose()
        batch = self.backend.batch
        batch.clear()
        for slot, (text, count) in enumerate(parts):
            text.fill(batch, count, slot)
        try:
            rows = self.backend.compute()
        except WorkerError as error:
            self.backend.forget(0)
            self._begun = None
            jobs = {id(text.job): text.job for text, _ in parts}
            failed = [self._end(job, Delta(job.request.id, error=error)) for job in jobs.values()]
            return LaneStep(failed, 0, 0, 0.0)
        deltas = self._read(parts, rows)
        num_texts = len(parts) - (self._begun is not None)
        seconds = self._clock() - started
        cost = seconds / batch.size
        self._row_s += _NEW_ROW * (cost - self._row_s) if self._row_s else cost
        self._last_s, self._credit_s = seconds, 0.0
        return LaneStep(deltas, batch.size, num_texts, seconds)

    def _choose(self) -> list[tuple[_Text, int]]:
        """Texts of the next step and how many rows each gets; one that was begun has slot 0."""
        backend, room = self.backend, self.backend.step_rows
        if self._is_awaited and self._row_s:
            room = max(1, min(room, int(self._max_stall / self._row_s)))
        parts: list[tuple[_Text, int]] = []
        if self._begun is not None and self._begun.prompt is not None:
            return [(self._begun, self._begun.next_run(room, backend.batch.capacity))]
        if self._begun is not None:
            count = min(self._begun.num_missing, room)
            parts.append((self._begun, count))
            room -= count
        for job in self._in_order():
            if job.shows:  # a medium shares no step
                if job.waiting and not parts:
                    text = job.waiting.pop(0)
                    count = min(text.num_missing, room)
                    if text.prompt is not None:
                        count = text.next_run(room, backend.batch.capacity)
                    return [(text, count)]
                continue
            while job.waiting and len(parts) < backend.max_inputs:
                place = _next_place(job.waiting, room)
                if place < 0 and parts:
                    break
                text = job.waiting.pop(max(place, 0))
                count = min(text.num_missing, room) if backend.splits else text.num_missing
                parts.append((text, count))
                room -= count
        self._charge(parts)
        return parts

    def _in_order(self) -> list[_Job]:
        """Who gets rows first."""
        self._jobs.rotate(-1)
        if len(self._jobs) == 1:
            return [*self._jobs]
        now = self._clock()
        ranks = {
            id(job): (
                worth_of(job.request.priority, job.turn_at, now),
                self._served[job.request.account.line],
            )
            for job in self._jobs
        }
        return sorted(self._jobs, key=lambda job: ranks[id(job)])

    def _charge(self, parts: Sequence[tuple[_Text, int]]) -> None:
        now = self._clock()
        for text, count in parts:
            text.job.turn_at, account = now, text.job.request.account
            self._served[account.line] += count / account.weight

    def _read(self, parts: Sequence[tuple[_Text, int]], rows: np.ndarray) -> list[Delta]:
        deltas: list[Delta] = []
        pooling = self.backend.pooling
        if pooling == "rank":
            rows = self.backend.scores(range(len(parts))).repeat([n for _, n in parts], axis=0)
            pooling = "last"
        first, self._begun = 0, None
        for text, count in parts:
            own = "none" if text.job.request.per_token else pooling
            text.take(rows[first : first + count], own)
            first += count
            if text.num_missing:
                self._begun = text
                continue
            job = text.job
            job.vectors[text.place] = text.vector(own)
            job.num_left -= 1
            if not job.num_left:
                vectors = tuple(vector for vector in job.vectors if vector is not None)
                deltas.append(
                    self._end(job, Embedded(job.request.id, finish_reason="stop", vectors=vectors))
                )
        self.backend.forget(0 if self._begun is None else 1)
        return deltas

    def _end(self, job: _Job, delta: Delta) -> Delta:
        self._remove(job)
        return delta

    def _remove(self, job: _Job) -> None:
        self._jobs.remove(job)
        name = job.request.account.line
        if all(each.request.account.line != name for each in self._jobs):
            del self._served[name]


def _length(text: _Text) -> int:
    return len(text.tokens)


def _next_place(texts: Sequence[_Text], room: int) -> int:
    """Place of the next one, of texts in the order of their lengths; -1: none fits.

    The room is divided by as many as of the longest ones would fill it, and the longest that is no
    longer than such a part comes: texts of 24 to 36 tokens fill 128 rows with four of 32 each.
    """
    if room < 1:
        return -1
    part = room // -(-room // len(texts[-1].tokens))
    place = bisect_right(texts, part, key=_length) - 1
    return place if place >= 0 else bisect_right(texts, room, key=_length) - 1

"""Texts that are scored and not continued: what is asked, and how far it is."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from worker.engine.likeliest import log_sum
from worker.engine.request import Medium, Request, check_length
from worker.engine.sequence import Delta, SequenceStatus, Timings
from worker.engine.sequence import Sequence as EngineSequence
from worker.errors import BackendError, RequestError, WorkerError


class Suffix(msgspec.Struct, frozen=True):
    """A text behind a state, or behind another suffix.

    tokens      its own, at least one
    num_scored  how many of the last ones are scored: ln p of each, given all that stands before it
    candidates  tokens whose ln p behind the text is wanted
    media       what it holds beside tokens; places count from its first token
    behind      the suffix that it goes on from, which is one of the state; None: the state
    is_shared   others go on from it
    """

    tokens: tuple[int, ...]
    num_scored: int = 0
    candidates: tuple[int, ...] = ()
    media: tuple[Medium, ...] = ()
    behind: Suffix | None = None
    is_shared: bool = False

    @property
    def chain(self) -> tuple[Suffix, ...]:
        """From the state on."""
        return (self,) if self.behind is None else (self.behind, self)


class Score(msgspec.Struct, frozen=True):
    """ln p of a suffix's scored tokens, in their order; and of its candidates, in theirs."""

    tokens: tuple[float, ...]
    candidates: tuple[float, ...]


def _nothing(_: Sequence[Score]) -> Iterable[int]:
    return ()


class ScoringRequest(Request, frozen=True, kw_only=True):
    """Suffixes of one state, each scored by the model's own distribution over its vocabulary.

    `prompt` is the state. It is computed once, and each suffix goes on from it as a sequence of the
    scheduler without a sampler. As many as can run at once wait with others' requests, so a request
    with many suffixes takes no more places of the queue than one.

    suffixes  at least one; each stands after the one that it goes on from
    doubtful  of all scores: which suffixes are to be scored once more, in steps that have no rows
              of others; called once, in the engine's thread
    """

    suffixes: tuple[Suffix, ...]
    doubtful: Callable[[Sequence[Score]], Iterable[int]] = _nothing

    @property
    def num_tokens(self) -> int:
        """Of the state, and of all suffixes."""
        return len(self.prompt.tokens) + sum(len(suffix.tokens) for suffix in self.suffixes)


class Scored(Delta, frozen=True):
    """The one delta of such a request: of each suffix, in their order."""

    scores: tuple[Score, ...] = ()


def check_scores(request: ScoringRequest, vocab_size: int, max_length: int) -> None:
    """Raise RequestError for what must not reach native code."""
    state, param = request.prompt.tokens, request.params.prompt_param
    if not state or not request.suffixes:
        raise RequestError(f"{param} is empty.", param=param)
    vectors = sum(len(medium.vectors) for medium in request.prompt.media)
    is_known = sum(token < 0 for token in state) == vectors and max(state) < vocab_size
    for suffix in request.suffixes:
        tokens, count = suffix.tokens, len(suffix.tokens)
        whole = len(state) + sum(len(each.tokens) for each in suffix.chain)
        check_length(whole, max_length, param)
        if not count or not 0 <= suffix.num_scored <= count:
            raise RequestError(f"{count} tokens, of which {suffix.num_scored} are scored.")
        vectors = sum(len(medium.vectors) for medium in suffix.media)
        is_known = is_known and sum(token < 0 for token in tokens) == vectors
        ids = (tokens[-1], *suffix.candidates)
        is_known = is_known and min(ids) >= 0 and max(*ids, *tokens) < vocab_size
    if not is_known:
        raise RequestError(f"{param} holds token ids outside 0 to {vocab_size - 1}.", param=param)


def log_probabilities(logits: np.ndarray, tokens: tuple[int, ...]) -> tuple[float, ...]:
    """ln softmax(logits) of these tokens, as good as `log_sum`. Raises BackendError where the
    logits are no numbers."""
    if not math.isfinite(logits.max()):
        raise BackendError("The model computed values that are no numbers.", code="NOT_FINITE")
    total = log_sum(logits)
    return tuple(float(logits[token]) - total for token in tokens)


class ScoredSequence(EngineSequence):
    """One suffix behind its state.

    job       whose suffix it is
    place     among the suffixes
    branches  after how many of its tokens others go on differently, ascending: of the state, and
              of the suffix's shared tokens
    is_first  the first one that a job adds: what it finds of the state counts as found
    is_alone  no step has rows of others
    """

    __slots__ = ("branches", "is_alone", "is_first", "job", "place", "suffix", "token_scores")

    def __init__(self, job: ScoreJob, place: int, max_length: int, now: float) -> None:
        suffix, prompt = job.request.suffixes[place], job.request.prompt
        num_state = len(prompt.tokens)
        tokens, media, branches = prompt.tokens, prompt.media, [num_state]
        for each in suffix.chain:
            start = len(tokens)
            media += tuple(
                msgspec.structs.replace(medium, start=start + medium.start) for medium in each.media
            )
            tokens += each.tokens
            if each.is_shared:
                branches.append(len(tokens))
        pieces = _pieces((0, *branches, len(tokens)), job.tile)
        whole = msgspec.structs.replace(prompt, tokens=tokens, media=media, pieces=pieces)
        request = Request(
            id=f"{job.request.id}.{place}",
            prompt=whole,
            params=job.params,
            priority=job.request.priority,
            account=job.request.account,
        )
        super().__init__(request, max_length, now)
        self.job, self.place, self.suffix = job, place, suffix
        self.is_first = not job.is_begun
        self.is_alone = job.is_again
        self.scored_from = self.num_prompt - suffix.num_scored
        if suffix.num_scored:
            self.prompt_logprobs = []
        self.branches = branches
        self.token_scores: list[float] = []

    @property
    def turn(self) -> bytes:
        turn = super().turn
        return b"%s alone %s" % (turn, self.id.encode()) if self.is_alone else turn

    @property
    def is_counted(self) -> bool:
        return super().is_counted and self.is_first

    def shareable(self, count: int) -> int:
        """Whole branches only: so a suffix is computed in one piece, whoever else begins so."""
        found = [branch for branch in self.branches if branch <= count]
        return found[-1] if found else super().shareable(count)


def _pieces(borders: Sequence[int], tile: int) -> tuple[int, ...]:
    """Between two borders first whole tiles, then what is left: in a step of fewer rows than a tile
    they are computed in another way, and what is left must not depend on what else a step had."""
    found: list[int] = []
    for begin, end in pairwise(borders):
        whole = begin + (end - begin) // tile * tile
        found += [place for place in (whole, end) if place > begin]
    return tuple(dict.fromkeys(found))


class ScoreJob:
    """A ScoringRequest on its way: some of its suffixes are sequences, the others wait here.

    is_begun      one was a sequence
    is_again      all have their scores, and what is doubtful is scored once more
    live          those that are sequences, by their ids
    has_branches  some go on from another one
    """

    def __init__(self, request: ScoringRequest, now: float, tile: int) -> None:
        """tile: rows that attention computes at once"""
        self.request, self.tile = request, tile
        self.params = msgspec.structs.replace(request.params, max_tokens=0)
        self.is_begun = self.is_again = False
        self.live: dict[str, ScoredSequence] = {}
        self.has_branches = any(suffix.is_shared for suffix in request.suffixes)
        self._waiting = deque(range(len(request.suffixes)))
        self._scores: list[Score | None] = [None] * len(request.suffixes)
        self._submitted_at = now
        self._admitted_at = 0.0
        self._cached_tokens = 0
        self._num_read = 0

    def more(self, count: int, max_length: int, now: float) -> Iterator[ScoredSequence]:
        """Sequences of suffixes that wait, until `count` are on their way."""
        while self._waiting and len(self.live) < count:
            sequence = ScoredSequence(self, self._waiting.popleft(), max_length, now)
            self.is_begun = True
            self.live[sequence.id] = sequence
            yield sequence

    def end(self, sequence: ScoredSequence, candidates: tuple[float, ...]) -> None:
        """A suffix has its scores."""
        del self.live[sequence.id]
        self._scores[sequence.place] = Score(tuple(sequence.token_scores), candidates)
        self._num_read += 0 if self.is_again else len(sequence.suffix.tokens)
        if sequence.is_first:
            self._admitted_at = sequence.admitted_at
            self._cached_tokens = sequence.cached_tokens
            self._num_read += len(self.request.prompt.tokens)

    @property
    def is_over(self) -> bool:
        """Whether all have their scores. What is doubtful then waits again, once."""
        if self.live or self._waiting:
            return False
        if not self.is_again:
            self.is_again = True
            self._waiting.extend(self.request.doubtful(self._all_scores()))
        return not self._waiting

    def _all_scores(self) -> tuple[Score, ...]:
        return tuple(score for score in self._scores if score is not None)

    def last_delta(self, now: float, error: WorkerError | None = None) -> Scored:
        """With all scores, or with the error that one ended in."""
        times = Timings(self._submitted_at, self._admitted_at or now, now, now)
        if error is not None:
            return Scored(self.request.id, error=error, timings=times)
        return Scored(
            self.request.id,
            finish_reason="stop",
            cached_tokens=self._cached_tokens,
            timings=times,
            scores=self._all_scores(),
        )

    def status(self) -> SequenceStatus:
        """How it stands; any thread may ask."""
        live = tuple(self.live.values())
        running = [each for each in live if each.slot is not None]
        first = next((each for each in live if each.is_first), None)
        read = self._num_read if first is None else first.status().read_tokens
        cached = self._cached_tokens if first is None else first.cached_tokens
        admitted = self._admitted_at if first is None else first.status().admitted
        return SequenceStatus(bool(running), read, cached, 0, admitted, 0.0)

"""What was asked: a prompt, how to sample from it, when to stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from worker.account import NOBODY, Account
from worker.engine.sampling import SEED_RANGE, SamplingParams, check_sampling
from worker.errors import ContextLengthError, RequestError
from worker.limits import LOGPROBS, STOP, STOPS


class Medium(msgspec.Struct, frozen=True, eq=False):
    """A picture or a sound in a prompt: vectors in the place of tokens.

    start      place of its first vector in the prompt
    vectors    float32 [rows, width], as the projector made them
    length     positions that it takes; other than its rows where the model has M-RoPE
    positions  int32 [4, rows], relative to its first one: of M-RoPE; None: one after the other
    is_causal  whether a row looks only at what stands before it; else all are computed in one step
    """

    start: int
    vectors: np.ndarray
    length: int
    positions: np.ndarray | None = None
    is_causal: bool = True

    @property
    def stop(self) -> int:
        """The place behind its last vector."""
        return self.start + len(self.vectors)

    def positions_from(self, first: int, begin: int, stop: int) -> np.ndarray:
        """Of its vectors begin to stop, places in the prompt; int32 [4, stop - begin] or
        [stop - begin]. first: the position of its first vector"""
        if self.positions is None:
            offset = first - self.start
            return np.arange(begin + offset, stop + offset, dtype=np.int32)
        return self.positions[:, begin - self.start : stop - self.start] + np.int32(first)


class Prompt(msgspec.Struct, frozen=True):
    """What the model reads before it writes; the copies of one prompt hold the same.

    tokens       ids, at least one, exactly as computed (BOS included where it is wanted); where a
                 medium stands, negative numbers made from the hash of its file, one a vector
    checkpoints  lengths of the prompt after which another prompt may go on differently: there the
                 state of a model is kept that cannot be cut later
    key          with what it is computed, such as a set of adapters; empty: the model alone. Only
                 rows of one key share a step
    begin        tokens before that, which the model computes alone
    media        what it holds beside tokens, in order
    pieces       lengths at which a step ends that computes it, ascending
    """

    tokens: tuple[int, ...]
    checkpoints: tuple[int, ...] = ()
    key: bytes = b""
    begin: int = 0
    media: tuple[Medium, ...] = ()
    pieces: tuple[int, ...] = ()

    def key_after(self, length: int) -> bytes:
        """Of what the cache holds of its first `length` tokens."""
        if length <= self.begin or not self.key:
            return b""
        return self.key + self.begin.to_bytes(4) if self.begin else self.key

    def num_alike(self, other: Prompt, length: int) -> int:
        """How many of these first tokens, if they are the same, are computed in the same way."""
        if self.key_after(length) == other.key_after(length):
            return length
        return min(length, *(each.begin for each in (self, other) if each.key))

    def medium_at(self, place: int) -> Medium | None:
        """The medium whose vector stands there."""
        return next((each for each in self.media if each.start <= place < each.stop), None)

    def position(self, place: int) -> int:
        """The position of a token, or of a medium's first vector."""
        if not self.media:
            return place
        return place + sum(
            each.length - len(each.vectors) for each in self.media if each.stop <= place
        )

    def run(self, begin: int, count: int) -> int:
        """How many of the `count` places from `begin` on may share a step: tokens that are computed
        with one key, or vectors of one medium."""
        if begin < self.begin and self.key:
            count = min(count, self.begin - begin)
        for place in self.pieces:
            if begin < place:
                count = min(count, place - begin)
                break
        for each in self.media:
            if begin < each.stop:
                return min(count, (each.start if begin < each.start else each.stop) - begin)
        return count

    def whole(self, length: int) -> int:
        """The most of these first tokens that end with no part of a medium."""
        for each in self.media:
            if each.start < length < each.stop:
                return each.start
        return length


NO_PROMPT = Prompt(())


class SpanLimit(msgspec.Struct, frozen=True):
    """How long a part of an answer may be, such as a thought.

    count      tokens of it at most, of all such parts together
    opens      texts with which it begins
    ends       texts with which it ends
    forced     tokens that are written where it is too long; they end it
    is_open    whether the answer begins inside it
    """

    count: int
    opens: tuple[str, ...]
    ends: tuple[str, ...]
    forced: tuple[int, ...]
    is_open: bool


class GenerationParams(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted of each sequence of a generation, which all hold the same.

    max_tokens  tokens to sample at most; None: until the model or the context ends; 0: the prompt
                is only scored
    stop        the text ends before the first of these
    n           sequences of each prompt that are answered
    logprobs    how many likeliest alternatives to report for each sampled token; None: no logprobs
    as_drawn    these are of what all samplers left, not of the model's own distribution
    prompt_logprobs  the model's own for each prompt token
    prompt_ranks     and each one's rank
    prompt_param     the client's field that the prompt was made from, to name in errors
    tells_steps      whether each delta says in which step its token was computed
    tells_progress   whether each step that reads the prompt says how far it is
    tells_place      whether each delta says the sampler's place, see `Request`
    spelled          control tokens that are shown, each as these bytes; others stay hidden
    limit            of a part of the answer; None: there is none
    """

    max_tokens: int | None = None
    sampling: SamplingParams = SamplingParams()
    stop: tuple[str, ...] = ()
    n: int = 1
    logprobs: int | None = None
    as_drawn: bool = False
    prompt_logprobs: int | None = None
    prompt_ranks: bool = False
    prompt_param: str = "prompt"
    tells_progress: bool = False
    tells_place: bool = False
    tells_steps: bool = False
    spelled: Mapping[int, bytes] = {}
    limit: SpanLimit | None = None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence to continue.

    copy      its number among the copies of one prompt
    priority  the lower number comes first
    account   whose it is
    written   tokens of its answer that another worker has written: it goes on behind them
    place     of that worker's sampler then: what its draws had used up; empty: that is not asked
    steps     that it computed them in, see `Replay`; empty: that is not known
    """

    id: str
    prompt: Prompt
    params: GenerationParams = GenerationParams()
    copy: int = 0
    priority: int = 0
    account: Account = NOBODY
    written: tuple[int, ...] = ()
    place: tuple[float, ...] = ()
    steps: tuple[int | None, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Of what is to be read for it."""
        return len(self.prompt.tokens)

    @property
    def seed(self) -> int | None:
        """Copies with one seed would all be the same text: each has its own."""
        seed = self.params.sampling.seed
        return None if seed is None else (seed + self.copy) % SEED_RANGE


class Resumption(NamedTuple):
    """Where a sampler goes on: what was written, what must not come next, how often it was so."""

    written: tuple[int, ...]
    banned: tuple[int, ...]
    number: int


def check_length(count: int, max_length: int, param: str, *, output: int = 0) -> None:
    """Raise RequestError where a prompt of `count` tokens leaves no room for `output` more.

    max_length: longest sequence, prompt and output together, that the context holds
    param: the client's field that the prompt was made from
    """
    if count + output > max_length:
        raise ContextLengthError(count, max_length, param=param, most=max_length - output)


def check_request(request: Request, vocab_size: int, max_length: int) -> None:
    """Raise RequestError for what must not reach native code; `max_length` as above."""
    tokens, params = request.prompt.tokens, request.params
    param = params.prompt_param
    if not tokens:
        raise RequestError("The prompt is empty.", param=param, hint="Send at least one token.")
    check_length(len(tokens), max_length, param, output=0 if params.max_tokens == 0 else 1)
    vectors = 0
    for medium in request.prompt.media:
        vectors += len(medium.vectors)
    if vectors and (tokens[-1] < 0 or params.prompt_logprobs is not None):
        raise RequestError("A prompt must end with text, and images have no scores.", param=param)
    negative = sum(token < 0 for token in tokens) if min(tokens) < 0 else 0
    if negative != vectors or max(tokens) >= vocab_size:
        raise RequestError(
            f"The prompt holds token ids outside 0 to {vocab_size - 1}.", param=param
        )
    if written := request.written:
        check_length(len(tokens) + len(written), max_length, param)
        most = len(written) if params.max_tokens is None else params.max_tokens
        if len(written) > most or min(written) < 0 or max(written) >= vocab_size:
            raise RequestError("These tokens cannot be the beginning of this answer.")
    if params.max_tokens is not None and params.max_tokens < 0:
        raise RequestError("max_tokens must not be negative.", param="max_tokens")
    stop = params.stop
    if stop and (len(stop) > STOPS.most or any(not 0 < len(text) <= STOP.most for text in stop)):
        raise RequestError(
            f"stop must be at most {STOPS.most} texts of 1 to {STOP.most} characters.", param="stop"
        )
    for value in (params.logprobs, params.prompt_logprobs):
        if value is not None and not 0 <= value <= LOGPROBS.most:
            raise RequestError(f"logprobs must be from 0 to {LOGPROBS.most}.", param="logprobs")
    check_sampling(params.sampling, vocab_size)

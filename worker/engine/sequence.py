"""What is known and what is computed of one request."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from worker.engine.detokenizer import Detokenizer
from worker.engine.draft import Draft
from worker.engine.request import Request
from worker.engine.stops import StopMatcher
from worker.errors import WorkerError


class TokenLogprob(msgspec.Struct, frozen=True, gc=False):
    """ln p of one token under the model's own distribution, and the likeliest alternatives.

    top: (token id, ln p), likeliest first; holds the token itself only if it is among them
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


class Timings(msgspec.Struct, frozen=True):
    """Seconds; a clock that only differences are taken of."""

    submitted: float
    admitted: float
    first_token: float
    finished: float


class Delta(msgspec.Struct, frozen=True):
    """What one step added to one sequence. The last one has a `finish_reason` or an `error`.

    text            what became certain; may be empty
    token           the sampled id; None in a delta that only ends the sequence
    logprob         of the sampled token, where asked for
    prompt_logprobs one entry a prompt token from the second on, with the last prompt row
    """

    id: str
    text: str = ""
    token: int | None = None
    logprob: TokenLogprob | None = None
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None
    finish_reason: str | None = None
    error: WorkerError | None = None
    cached_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    timings: Timings | None = None

    @property
    def is_last(self) -> bool:
        """Whether nothing follows."""
        return self.finish_reason is not None or self.error is not None


class Sequence:
    """A request on its way: tokens[:num_computed] are in the KV cache, tokens[:num_known] exist.

        0 ............ num_prompt ............ num_known ............ limit
        [ prompt       )[ sampled              )
        [ computed          num_computed       )

    The scheduler owns `slot`, `num_computed` and the leader, the engine everything else.
    """

    __slots__ = (
        "admitted_at",
        "cached_tokens",
        "detokenizer",
        "draft",
        "first_token_at",
        "follow_until",
        "id",
        "last_turn",
        "leader",
        "leader_tokens",
        "limit",
        "num_computed",
        "num_known",
        "num_prompt",
        "prompt_logprobs",
        "request",
        "sampler",
        "slot",
        "stops",
        "submitted_at",
        "suspect_until",
        "tokens",
        "was_put_back",
    )

    def __init__(self, request: Request, max_length: int, now: float) -> None:
        self.id = request.id
        self.request = request
        self.num_prompt = len(request.prompt)
        self.limit = min(max_length, self.num_prompt + request.max_tokens)
        self.tokens = np.empty(self.limit, np.int32)
        self.tokens[: self.num_prompt] = request.prompt
        self.num_known = self.num_prompt
        self.num_computed = 0
        self.cached_tokens = 0
        self.slot: int | None = None
        self.sampler: Any = None
        self.detokenizer = Detokenizer()
        self.stops = StopMatcher(request.stop)
        self.prompt_logprobs: list[TokenLogprob] | None = (
            None if request.prompt_logprobs is None else []
        )
        self.draft: Draft | None = None  # where prompt-lookup drafting is on
        # Another slot that computes the same beginning, which this one shares up to a position.
        self.leader: Any = None
        self.leader_tokens: np.ndarray | None = None
        self.follow_until = 0
        # A batch with this sequence failed when it was to have this many tokens computed.
        self.suspect_until = 0
        # Where streams take turns: the number of its last one.
        self.last_turn = 0
        # It is in the queue, or runs, for the second time at least.
        self.was_put_back = False
        self.submitted_at = now
        self.admitted_at = now
        self.first_token_at = now

    @property
    def num_missing(self) -> int:
        """Known tokens that are not computed yet; at least 1 while the sequence is alive."""
        return self.num_known - self.num_computed

    @property
    def is_suspect(self) -> bool:
        """Whether it runs alone, until it is past where its batch failed or fails again."""
        return self.num_computed < self.suspect_until

    @property
    def num_unshared(self) -> int:
        """Known tokens that this sequence still has to compute itself."""
        done = self.num_computed
        return self.num_known - (max(done, self.follow_until) if self.leader is not None else done)

    @property
    def num_sampled(self) -> int:
        """Tokens that the model chose."""
        return self.num_known - self.num_prompt

    def found(self, count: int) -> None:
        """Its first `count` tokens are in cells that were there already.

        What it computed itself before it was put back is no hit of the cache.
        """
        self.num_computed = count
        if not self.was_put_back:
            self.cached_tokens = min(count, self.num_prompt)

    def flush_text(self) -> tuple[str, bool]:
        """(text still held back, whether a stop string ended it); the last call."""
        text, stopped = self.stops.feed(self.detokenizer.flush())
        return (text, True) if stopped else (text + self.stops.flush(), False)

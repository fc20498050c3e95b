"""What is known and what is computed of one request."""

from __future__ import annotations

from bisect import bisect_left
from copy import copy
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from worker.engine.draft import Draft
from worker.engine.output import Detokenizer, LineLimit, StopMatcher, TokenLogprob
from worker.engine.replay import Replay
from worker.engine.request import Medium, Request
from worker.engine.slot import Slot
from worker.errors import WorkerError

# Cells kept free for each running sequence at admission, so that it is not put back right away.
RESERVE = 16


class Timings(msgspec.Struct, frozen=True):
    """When a request reached each stage: seconds of a clock whose zero means nothing."""

    submitted: float
    admitted: float
    first_token: float
    finished: float


class PromptRead(msgspec.Struct, frozen=True):
    """How far a prompt is read: tokens in all, found in the cache, computed by now with these;
    seconds since its admission."""

    total: int
    cached: int
    computed: int
    seconds: float


CacheSource = Literal["cells", "memory", "disk"]


class Reuse(msgspec.Struct, frozen=True, eq=False):
    """What the cache gave of a prompt, and why no more.

    source    where the last of it lay; None: nowhere
    withheld  first tokens of the prompt that somebody knew, and why it goes on from fewer; 0: from
              all that are known. They may be of anybody's prompts. checkpoint, window: there is a
              state after fewer only; in_use: who computes them is past them; too_short, pieces: for
              so few nobody stops, or they are no whole piece; stall: streams would wait; scored:
              all rows are wanted; unreadable: the state could not be brought back
    num_anew  times that all cells had been emptied before
    keeps     whether what ends is kept outside of the cells
    tokens    int32 [n]: the prompt's and the answer's
    """

    source: CacheSource | None
    withheld: tuple[int, str]
    num_anew: int
    keeps: bool
    tokens: np.ndarray


class Delta(msgspec.Struct, frozen=True):
    """What one step added to one sequence. The last one has a `finish_reason` or an `error`.

    text            what became certain; may be empty
    token           the sampled id; None in a delta that only ends the sequence
    logprobs        where asked for, of the tokens whose text is certain now, so that none goes on
                    past a stop text
    progress        how far the prompt is read, where asked for; such a delta has nothing else
    prompt_logprobs one entry a prompt token from the second on, with the last prompt row
    stopped_by      the stop text before which the sequence ended; None: it ended otherwise
    sampled_tokens  of the whole sequence, as all that follows to `timings`: in its last delta
    place           of the sampler behind the token, where asked for
    step            the step that gave the token, where asked for, see `Replay`
    """

    id: str
    text: str = ""
    token: int | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None
    finish_reason: str | None = None
    stopped_by: str | None = None
    error: WorkerError | None = None
    progress: PromptRead | None = None
    sampled_tokens: int = 0
    cached_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    timings: Timings | None = None
    reuse: Reuse | None = None
    place: tuple[float, ...] = ()
    step: int | None = None

    @property
    def is_last(self) -> bool:
        """Whether nothing follows."""
        return self.finish_reason is not None or self.error is not None


class SequenceStatus(msgspec.Struct, frozen=True):
    """How a sequence that has not ended stands; times are of the clock of its `Timings`.

    is_running            it holds a slot
    read_tokens           of the prompt, that are in the KV cache; cached_tokens were found there
    admitted, first_token 0 until it was, until there is one
    """

    is_running: bool = False
    read_tokens: int = 0
    cached_tokens: int = 0
    sampled_tokens: int = 0
    admitted: float = 0.0
    first_token: float = 0.0


class Mark(NamedTuple):
    """How the answer of a sequence was, to go back to."""

    num_known: int
    detokenizer: Detokenizer
    stops: StopMatcher
    lines: LineLimit | None
    has_line: bool
    begin: int
    scores: tuple[tuple[int, TokenLogprob], ...]


class Sequence:
    """A request on its way: tokens[:num_computed] are in the KV cache, tokens[:num_known] exist.

        0 ............ num_prompt ............ num_known ............ limit
        [ prompt       )[ sampled              )
        [ computed          num_computed       )

    A waiting sequence holds no slot and has nothing computed. Who writes what:

        Engine     tokens and num_known (both by `append`), num_ahead, sampler, written,
                   step, prompt_logprobs, first_token_at; of the draft what became of its guesses
        Scheduler  slot, draft, admitted_at, was_put_back, suspect_until
        Order      worth
        Planner    last_turn, due; of the draft the guess for the coming step
        Prefixes   cached_tokens, reuse, end
        Stats      num_counted, last_token_at
        Cells      num_computed, which is the slot's length

    cached_tokens    prompt tokens that were found in the cache
    reuse            how they were; None before it is admitted, and of what only scores
    end              logits behind its prompt, float32 [vocab_size], if others computed all of it
    last_token_at    end of the step that sampled the newest token; 0: there is none
    num_ahead        newest known tokens that nobody chose: a constraint leaves nothing else
    num_counted      known tokens that the counters have
    written          tokens of its request that are known from the start, until they are told
    num_given        tokens of the prompt, and of these
    replay           how these were computed; None: there are none
    step             the step that is being committed, see `Replay`
    prompt_logprobs  scores of given tokens so far; None: they were not asked for
    scored_from      the first given token that has one
    draft            None where nothing is drafted for it
    has_line         whether its answer has a whole line
    guard            of phrases that it must not have; None: it may have all
    priority, account
                     of its request
    is_batch         it is of a line of a batch, which nobody else waits for
    is_copy          another sequence has the same prompt of the same request, which counts once
    worth            with which it was admitted, see `Order`
    was_put_back     it has run before and was put back into the queue
    suspect_until    a batch with it failed that would have brought it to so many computed tokens
    last_turn        number of its last turn, where streams take turns
    due              by how many read prompt tokens, of all, its prompt is to be read; None: nobody
                     has asked yet
    """

    __slots__ = (
        "_begin",
        "_detokenizer",
        "_lines",
        "_scores",
        "_seconds",
        "_stops",
        "account",
        "admitted_at",
        "cached_tokens",
        "draft",
        "due",
        "end",
        "first_token_at",
        "guard",
        "has_line",
        "id",
        "is_batch",
        "is_copy",
        "last_token_at",
        "last_turn",
        "limit",
        "num_ahead",
        "num_counted",
        "num_given",
        "num_known",
        "num_prompt",
        "params",
        "priority",
        "prompt",
        "prompt_logprobs",
        "replay",
        "reuse",
        "sampler",
        "scored_from",
        "slot",
        "step",
        "submitted_at",
        "suspect_until",
        "tokens",
        "was_put_back",
        "worth",
        "written",
    )

    def __init__(self, request: Request, max_length: int, now: float) -> None:
        self.id = request.id
        self.prompt = request.prompt
        self.params = params = request.params
        self.priority = self.worth = request.priority
        self.account = request.account
        self.is_batch = request.account.is_batch
        self.is_copy = request.copy > 0
        self.num_prompt = len(request.prompt.tokens)
        self.limit = max_length
        if params.max_tokens is not None:
            self.limit = min(max_length, self.num_prompt + params.max_tokens)
        self.tokens = np.empty(self.limit, np.int32)
        self.tokens[: self.num_prompt] = request.prompt.tokens
        self.written = request.written
        self.num_given = self.num_prompt + len(self.written)
        self.tokens[self.num_prompt : self.num_given] = self.written
        self.num_known = self.num_counted = self.num_given
        steps = (*request.steps, *[None] * len(self.written))[: len(self.written)]
        self.replay = Replay(self.num_prompt, steps) if self.written else None
        self.step: int | None = None
        self.num_ahead = 0
        self.slot: Slot | None = None
        self.sampler: Any = None
        self.draft: Draft | None = None
        self.prompt_logprobs: list[TokenLogprob] | None = (
            None if params.prompt_logprobs is None else []
        )
        self.scored_from = 1
        if self.written and self.prompt_logprobs is None and params.logprobs is not None:
            self.prompt_logprobs, self.scored_from = [], self.num_prompt
        self.cached_tokens = 0
        self.reuse: Reuse | None = None
        self.end: np.ndarray | None = None
        self.suspect_until = 0
        self.last_turn = 0
        self.due: int | None = None
        self.was_put_back = False
        self.submitted_at = now
        self.admitted_at = now
        self.first_token_at = now
        self.last_token_at = 0.0
        self._detokenizer = Detokenizer()
        self._stops = StopMatcher(params.stop)
        indent = params.sampling.n_indent
        self._lines = LineLimit(indent) if indent else None
        self.has_line = False
        self.guard: Any = None
        self._seconds = params.sampling.t_max_predict_ms / 1e3
        self._begin = 0  # of the newest token, in characters
        self._scores: list[tuple[int, TokenLogprob]] = []  # with where their tokens begin

    @property
    def is_running(self) -> bool:
        """Whether it holds a slot: it does not wait, and has not ended."""
        return self.slot is not None

    @property
    def num_computed(self) -> int:
        """Known tokens that are in the KV cache."""
        return 0 if self.slot is None else self.slot.length

    @property
    def key(self) -> bytes:
        """With what its next tokens are computed."""
        return self.prompt.key if self.num_computed >= self.prompt.begin else b""

    @property
    def medium(self) -> Medium | None:
        """Whose vectors come next; None: tokens do."""
        prompt = self.prompt
        return prompt.medium_at(self.num_computed) if prompt.media else None

    @property
    def turn(self) -> bytes:
        """Sequences share a step only where this is the same: vectors of a medium have their own
        steps."""
        return self.key if self.medium is None else b"%s medium %s" % (self.key, self.id.encode())

    @property
    def num_missing(self) -> int:
        """Known tokens that are not computed yet; 0 where `end` gives the next one."""
        return self.num_known - self.num_computed

    @property
    def num_shareable(self) -> int:
        """How many of its first tokens others may have computed: the logits behind them, and behind
        what is scored, it needs from its own rows."""
        if self.prompt_logprobs is not None:
            return self.scored_from - 1
        return self.num_known if self.end is not None else self.num_known - 1

    def shareable(self, count: int) -> int:
        """How many it can go on from, where others know so many of its first tokens."""
        return self.prompt.whole(count)

    def num_outputs(self, count: int) -> int:
        """How many of the next `count` rows have logits that are wanted: the last ones."""
        if self.prompt_logprobs is None:
            return int(count >= self.num_missing)
        return max(0, min(count, self.num_computed + count - self.scored_from + 1))

    @property
    def is_counted(self) -> bool:
        """Whether what it finds in the cache counts: not what it computed itself before it was put
        back."""
        return not self.was_put_back

    @property
    def is_stream(self) -> bool:
        """Whether it waits for a token: what is missing are the newest one chosen and what had to
        follow it."""
        return self.num_missing <= 1 + self.num_ahead

    @property
    def is_suspect(self) -> bool:
        """Whether it runs alone, until it is past where its batch failed or fails again."""
        return self.suspect_until > 0 and self.num_computed < self.suspect_until

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is chosen."""
        sampling = self.params.sampling
        return sampling.is_greedy or sampling.top_k == 1

    @property
    def says_the_same(self) -> bool:
        """Whether its client can tell that it is computed again as at first: what is drawn without
        a seed differs in any case, unless its probabilities are told."""
        params = self.params
        return self.is_greedy or params.sampling.seed is not None or params.logprobs is not None

    @property
    def num_sampled(self) -> int:
        """Tokens that the model chose."""
        return self.num_known - self.num_prompt

    def append(self, token: int, piece: bytes | None, now: float) -> tuple[str, str | None]:
        """One more known token; (text that is certain now, finish reason or None).

        piece: the token's bytes; None for one that ends the generation
        """
        self.tokens[self.num_known] = token
        self.num_known += 1
        self._begin = self._stops.num_fed
        if piece is None:
            return self._flush()[0], "stop"
        text, stopped = self._stops.feed(self._detokenizer.feed(piece))
        if self._lines is not None:
            text, has_left = self._lines.feed(text)
            if has_left:
                return text, "length"
            text += self._lines.flush() if stopped else ""
        if stopped:
            return text, "stop"
        self.has_line = self.has_line or "\n" in text
        if self.num_known < self.limit and not (self._seconds and self._is_late(now)):
            return text, None
        rest, stopped = self._flush()
        return text + rest, "stop" if stopped else "length"

    def _is_late(self, now: float) -> bool:
        return self.has_line and now - self.first_token_at > self._seconds

    def add_score(self, newest: TokenLogprob) -> tuple[TokenLogprob, ...]:
        """Scores of tokens whose text is certain since the call before; after each `append`."""
        self._scores.append((self._begin, newest))
        stops = self._stops
        is_undecided = stops.found is not None or stops.num_safe < stops.num_fed
        most = stops.num_safe if is_undecided else stops.num_fed + 1
        count = bisect_left(self._scores, most, key=itemgetter(0))
        certain = tuple(score for _, score in self._scores[:count])
        del self._scores[:count]
        return certain

    def mark(self) -> Mark:
        """How it is now, for `go_back`."""
        return Mark(
            self.num_known,
            self._detokenizer.copy(),
            copy(self._stops),
            copy(self._lines),
            self.has_line,
            self._begin,
            tuple(self._scores),
        )

    def go_back(self, mark: Mark) -> None:
        """Forget the tokens since `mark`; only while it holds no slot."""
        assert self.slot is None
        # What it left in the cache has the tokens as they were.
        self.tokens = self.tokens.copy()
        self.num_known, self.num_ahead = mark.num_known, 0
        self.num_counted = min(self.num_counted, mark.num_known)
        self._detokenizer, self._stops, self._lines = mark.detokenizer, mark.stops, mark.lines
        self.has_line, self._begin, self._scores = mark.has_line, mark.begin, [*mark.scores]
        if self.draft is not None:
            self.draft.forget()

    def progress(self, now: float) -> Delta:
        """How far its prompt is read."""
        computed = min(self.num_computed, self.num_prompt)
        seconds = now - self.admitted_at
        return Delta(
            self.id, progress=PromptRead(self.num_prompt, self.cached_tokens, computed, seconds)
        )

    def status(self) -> SequenceStatus:
        """How it stands; any thread may ask."""
        slot, sampled = self.slot, self.num_sampled
        return SequenceStatus(
            slot is not None,
            0 if slot is None else min(slot.length, self.num_prompt),
            self.cached_tokens,
            sampled,
            self.admitted_at if slot is not None or self.was_put_back else 0.0,
            self.first_token_at if sampled else 0.0,
        )

    def last_delta(self, delta: Delta, reason: str | None, now: float) -> Delta:
        """The last delta, with what there is to tell about all of a sequence that ends now."""
        draft, reuse = self.draft, self.reuse
        if reuse is not None:
            reuse = msgspec.structs.replace(reuse, tokens=self.tokens[: self.num_known])
        return msgspec.structs.replace(
            delta,
            finish_reason=reason,
            stopped_by=self._stops.found,
            sampled_tokens=self.num_sampled,
            cached_tokens=self.cached_tokens,
            drafted_tokens=draft.num_drafted if draft else 0,
            accepted_tokens=draft.num_accepted if draft else 0,
            timings=Timings(self.submitted_at, self.admitted_at, self.first_token_at, now),
            reuse=reuse,
        )

    def _flush(self) -> tuple[str, bool]:
        """(text still held back, whether a stop string ended it); the last call."""
        text, stopped = self._stops.feed(self._detokenizer.flush())
        text += "" if stopped else self._stops.flush()
        if self._lines is not None:
            text, has_left = self._lines.feed(text)
            text += "" if has_left else self._lines.flush()
        return text, stopped

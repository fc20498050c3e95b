"""Which guesses a step verifies: from the sequence's own text, from a model or heads, or none."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from collections.abc import Sequence as Ordered
from itertools import chain
from operator import neg
from typing import Any, NamedTuple

from worker.engine.backend import Backend
from worker.engine.cost import StepCost
from worker.engine.credit import LEAST_PRICE
from worker.engine.draft import (
    NO_LIMITS,
    WORTH,
    Draft,
    GuessLimits,
    HitRates,
    best_rows,
    gains,
    loss,
    mean_gain,
    price,
)
from worker.engine.drafts.assistant import AssistantBackend, AssistantDrafter
from worker.engine.drafts.blocks import BlockDrafter
from worker.engine.drafts.drafter import Drafter
from worker.engine.drafts.heads import HeadBackend, HeadDrafter
from worker.engine.drafts.recall import RUN, Recall, owner_of
from worker.engine.drafts.rounds import DraftBackend, Rounds
from worker.engine.lookup import MAX_GUESS, MOST_SAME, Lookup
from worker.engine.sequence import Sequence

# Guesses of a draft model: each token costs a round, so there are fewer than from the text. A block
# of them costs one.
_LENGTHS = (1, 2, 3, 4, 5, 7, 10, 15)
# A trial: so many sequences verify a token of the model's; so many are verified from the text.
_TRIED_SEQUENCES, _TRIED_TEXT = 4, 3
# Reading a prompt for a trial may take this share of the time that its answer takes.
_READING = 0.1
# Nobody knows how long an answer becomes; it is taken for no longer than this.
_LONG_ANSWER = 256
# Text is looked up and judged in any case. Rows are tried where that was right so often.
_GOOD_TEXT = 0.5
# Steps of a trial of a model's guesses: so many show something.
_STEPS = 4
# What trials may take, in steps without guesses: that much at first, then this share of all steps.
# So much can be saved for a long prompt, or be owed. Guesses that are right give back this share of
# what they save: a trial of what pays goes on, one of what takes as much as it saves ends.
_FIRST_MODEL, _FIRST_TEXT, _GIVEN_BACK = 10.0, 2.0, 0.5
_SHARE, _MOST = 0.01, 32.0
# A trial is far off while less than this share of what it takes is saved.
_NEAR = 0.9


class Trial:
    """When what does not pay is tried: where it takes no more than a small share of the time.

    Texts change, machines change, and one bad measurement must not count for ever.
    """

    def __init__(self, steps: float) -> None:
        """steps: what it may take at first, in steps without guesses"""
        self._saved = steps
        self._needed = 0.0  # by the next one, without what comes before
        self._left = 0  # steps of the one that has begun

    @property
    def is_far(self) -> bool:
        """Whether none will be due for many steps."""
        return not self._left and self._saved < _NEAR * self._needed

    def wait(self) -> None:
        """A step begins that has nothing that pays."""
        self._saved = min(_MOST, self._saved + _SHARE)

    def is_due(self, each: float, before: float = 0.0, steps: int = 1) -> bool:
        """Whether the coming step shall try.

        each: what a step takes; before: what comes before the first; steps: of a whole trial
        """
        if self._saved >= min(_MOST, before + each * (1 if self._left else steps)):
            self._left = self._left or steps
            return True
        self._left, self._needed = 0, min(_MOST, each * steps)
        return False

    def charge(self, steps: float) -> None:
        """That much was taken; or given back, if it is negative."""
        self._saved = max(-_MOST, self._saved - steps)

    def count_step(self) -> None:
        """A step tried."""
        self._left -= 1


class Drafting(NamedTuple):
    """What guesses tokens.

    looks_up  the sequence's own text is searched
    recall    so is what its account read and wrote; then nothing is guessed for what names a seed
    model     a draft model; heads: of the model itself; assistant: that looks at its cells; at most
              one of them
    limits    how long and how unlikely guesses may be
    """

    looks_up: bool = False
    recall: Recall | None = None
    model: DraftBackend | None = None
    heads: HeadBackend | None = None
    assistant: AssistantBackend | None = None
    limits: GuessLimits = NO_LIMITS

    @property
    def is_on(self) -> bool:
        return self.looks_up or (self.model or self.heads or self.assistant) is not None

    def rounds(
        self, vocab_size: int, clock: Callable[[], float], max_stall: float
    ) -> Rounds[Any, Any] | None:
        """What guesses in rounds; None: nothing but text is looked up."""
        if self.heads is not None:
            kind = HeadDrafter if self.heads.mask is None else BlockDrafter
            return kind(self.heads, vocab_size, clock, max_stall)
        if self.assistant is not None:
            return AssistantDrafter(self.assistant, vocab_size, clock, max_stall)
        if self.model is not None:
            return Drafter(self.model, vocab_size, clock, max_stall)
        return None


NO_DRAFTING = Drafting()


class Guesser:
    """Chooses guesses by what they promise: the sequences' speed, with and without.

    What does not pay is switched off, and tried again now and then.

    rounds  the draft model or heads that it asks
    """

    def __init__(
        self,
        cost: StepCost,
        drafting: Drafting,
        backend: Backend,
        clock: Callable[[], float],
        max_stall: float,
    ) -> None:
        """backend: that verifies the guesses"""
        limits = drafting.limits
        self._cost = cost
        self._recall = drafting.recall
        self._takes_back = backend.shape.takes_back
        self._longest_text = limits.longest_text or MAX_GUESS
        self._looks_up = drafting.looks_up
        self.rounds = drafting.rounds(backend.vocab_size, clock, max_stall)
        if self.rounds is not None:
            self.rounds.longest = min(self.rounds.longest, limits.longest or self.rounds.longest)
            self.rounds.least = limits.least
        self._record = HitRates()
        self._clock = clock
        self._trials = {"text": Trial(_FIRST_TEXT), "model": Trial(_FIRST_MODEL)}
        self._tried: list[tuple[Draft, int]] = []  # of the model, with the right guesses before

    def new_draft(self, sequence: Sequence) -> Draft | None:
        """For a sequence that begins; None: nothing is guessed for it.

        Rows that are computed together are rounded in another way than one alone. What is guessed
        from the pool depends on what the worker did before, and one seed shall give one text.
        """
        if sequence.prompt_logprobs is not None or sequence.prompt.media:
            return None
        if self._recall is not None and sequence.params.sampling.seed is not None:
            return None
        return Draft(self._record, looks_up=self._looks_up)

    def forget(self, sequence: Sequence) -> None:
        """It ended: what it read and wrote may be guessed in others."""
        if self._recall is not None and not sequence.prompt.media:
            first = max(0, sequence.cached_tokens - RUN)  # those before are known
            known = sequence.tokens[first : sequence.num_known]
            self._recall.add(known, owner_of(sequence.account))

    def empty(self) -> None:
        """What a draft model or heads hold is gone."""
        if self.rounds is not None:
            self.rounds.empty()

    def counts(self, streams: list[Sequence], slot_cells: int, max_rows: int) -> list[int]:
        """Rows of each stream in the coming step: its next token and those guessed behind it.

        slot_cells: the most cells of one sequence; max_rows: rows of the step
        """
        drafted: list[tuple[Sequence, Draft, int]] = []
        is_found = False
        for sequence in streams:
            draft = sequence.draft
            if draft is None:
                continue
            draft.offer("text", [], [])
            draft.credit.settle(sequence.tokens, sequence.num_known)
            # A step gives one more token than were guessed.
            room = min(sequence.limit, slot_cells) - sequence.num_known - 1
            room = min(room, self._takes_back)
            if room <= 0:
                continue
            drafted.append((sequence, draft, room))
            if draft.lookup is not None:
                most = min(room, self._longest_text)
                is_found |= self._copy(sequence, draft, draft.lookup, most)
        is_trial = self._ask(drafted, len(streams), max_rows)
        if not is_found and not any(draft.tokens for _, draft, _ in drafted):
            return [1] * len(streams)  # most steps of a text that does not repeat itself
        for _, draft, room in drafted:
            draft.shorten(room)
        offered = [(s, d) for s, d, _ in drafted if not is_trial or d.source == "model"]
        promised = self._gains(offered, len(streams), max_rows)
        gained = sorted(chain.from_iterable(promised.values()), reverse=True)
        if not gained:
            return [1] * len(streams)
        if is_trial:
            count = len(gained)
        else:
            most_lost = sum(map(_most_lost, promised))
            count = best_rows(gained, len(streams), self._cost, max_rows, most_lost)
            count = count or self._trial_rows(gained, len(streams), max_rows)
        bound = gained[count - 1] if count else math.inf
        rows = _share_rows(
            [promised.get(s.draft, []) if s.draft else [] for s in streams], bound, count
        )
        each = price(len(streams), count, self._cost) / max(1, count)
        for sequence, taken in zip(streams, rows, strict=True):
            if taken > 1 and sequence.draft is not None:
                sequence.draft.verify(taken - 1, sequence.num_known, each * (taken - 1))
        return rows

    def charge(self, runs: Ordered[tuple[Sequence, int]], seconds: float) -> None:
        """A step with guesses took so long: what its rows cost is known now."""
        streams = len(runs)
        guessed = sum(count for _, count in runs) - streams
        each = loss(streams, seconds, self._cost) / guessed
        for sequence, count in runs:
            if count > 1 and sequence.draft is not None and sequence.draft.source == "text":
                sequence.draft.credit.charge(each * (count - 1))

    def _gains(
        self, offered: list[tuple[Sequence, Draft]], streams: int, max_rows: int
    ) -> dict[Draft, list[float]]:
        """What the guesses gain that may be verified; those without credit are pretended to be."""
        promised: dict[Draft, list[float]] = {}
        for sequence, draft in offered:
            gained = gains(draft.chances())
            if draft.source == "model" or draft.credit.allows:
                promised[draft] = gained
            elif not draft.credit.is_open:
                count = best_rows(gained, streams, self._cost, max_rows)
                draft.verify(count, sequence.num_known, price(streams, count, self._cost))
        return promised

    def _copy(self, sequence: Sequence, draft: Draft, lookup: Lookup, most: int) -> bool:
        """Offer what followed the longest run of tokens that ends here, if there is one."""
        tokens, known, trail = sequence.tokens, sequence.num_known, draft.trail
        recall = self._recall
        if recall is not None and recall.written >= trail.until:
            trail.end_here()
        trail.follow(tokens, known)
        if trail.same < MOST_SAME:
            end, same = lookup.find(tokens, known)
            if same > trail.same:
                trail.begin(tokens, end, same, known)
            if recall is not None:
                end, same = recall.find(tokens, known, owner_of(sequence.account))
                if same > trail.same:
                    trail.begin(recall.ring, end, same, known, recall.until(end))
        if not trail.same:
            return False  # most steps of a text that does not repeat itself
        found = trail.next(tokens, known, most)
        draft.offer("text", found, list(range(trail.same, trail.same + len(found))))
        return bool(found)

    def _trial_rows(self, gained: Ordered[float], streams: int, max_rows: int) -> int:
        """Rows of a trial with guesses from the text, which do not promise to pay."""
        trial, count = self._trials["text"], min(_TRIED_TEXT, len(gained), max_rows - streams)
        if gained[0] < math.log1p(_GOOD_TEXT) or count <= 0:
            return 0
        trial.wait()
        lost = price(streams, count, self._cost) / streams
        if not trial.is_due(lost):
            return 0
        trial.charge(lost)
        trial.count_step()
        return count

    def _ask(self, drafted: list[tuple[Sequence, Draft, int]], streams: int, max_rows: int) -> bool:
        """Have the draft model guess where that promises to pay, and there is no better copy;
        whether it is a trial, for which there are rows."""
        drafter, alone = self.rounds, self._cost.decode(streams)
        if drafter is None or drafter.is_broken or not alone:
            return False
        trial = self._trials["model"]
        right = sum(draft.num_accepted - before for draft, before in self._tried)
        trial.charge(-_GIVEN_BACK * right / streams)
        self._tried = []
        if drafter.rests:
            trial.wait()
            drafter.rests = trial.is_far
            return False
        longest = drafter.longest
        asked = [
            s
            for s, draft, _ in drafted
            if drafter.can_guess(s, longest)
            if sum(draft.chances()) < mean_gain(draft.model_rate, longest)
        ]
        length = self._best_length(drafter, asked, streams, max_rows) if asked else 0
        if length:
            drafter.guess(asked, length, self._floor(drafter, len(asked), streams, length))
            return False
        return self._try(drafter, asked[: max(0, max_rows - streams)], streams)

    def _try(self, drafter: Rounds[Any, Any], asked: Ordered[Sequence], streams: int) -> bool:
        """Have the draft model guess a token for some of these, if that is due; whether it did."""
        trial, alone = self._trials["model"], self._cost.decode(streams)
        trial.wait()
        token = alone / streams
        asked = [s for s in asked if _reading_s(drafter, [s]) <= _READING * _tokens_left(s) * token]
        asked = asked[:_TRIED_SEQUENCES]
        verified = price(streams, len(asked), self._cost) / streams
        each = drafter.seconds(len(asked), 1) / alone + verified
        if not asked or not trial.is_due(each, _reading_s(drafter, asked) / alone, _STEPS):
            drafter.rests = trial.is_far
            return False
        started = self._clock()
        drafter.guess(asked, 1, 0.0)
        trial.charge((self._clock() - started) / alone)
        drafts = [s.draft for s in asked if s.draft is not None and s.draft.source == "model"]
        if not drafts:
            return False  # it still reads
        self._tried = [(draft, draft.num_accepted) for draft in drafts]
        trial.charge(verified)
        trial.count_step()
        return True

    def _best_length(
        self, drafter: Rounds[Any, Any], asked: Ordered[Sequence], streams: int, max_rows: int
    ) -> int:
        """Tokens to guess for each, at the cost of guessing and of verifying; 0: none."""
        alone = self._cost.decode(streams)
        best, fastest = 0, streams / alone * WORTH
        rates = [s.draft.model_rate for s in asked if s.draft is not None]
        for length in _LENGTHS:
            rows = streams + len(asked) * length
            if rows > max_rows or length > drafter.longest:
                break
            tokens = streams + sum(mean_gain(rate, length) for rate in rates)
            seconds = self._cost.decode(rows) + drafter.seconds(len(asked), length)
            if tokens / seconds > fastest:
                best, fastest = length, tokens / seconds
        # What has to be read first is paid for by all that is written afterwards.
        saved = (alone / streams - 1 / fastest) * sum(_tokens_left(s) for s in asked)
        return best if best and _reading_s(drafter, asked) < saved else 0

    def _floor(self, drafter: Rounds[Any, Any], asked: int, streams: int, length: int) -> float:
        """A guess that is less likely than this costs more than it saves."""
        alone, added = self._cost.decode(streams), asked * length
        row = max(0.0, self._cost.decode(streams + added) - alone) / added
        guessed = drafter.seconds(asked, 2) - drafter.seconds(asked, 1)
        return min(1.0, (row + guessed / asked) / (alone / streams))


def _most_lost(draft: Draft) -> float:
    """Steps that its guess may cost. A model's guesses are tried in another way."""
    return math.inf if draft.source == "model" else max(draft.credit.steps, LEAST_PRICE)


def _share_rows(promised: Ordered[Ordered[float]], bound: float, count: int) -> list[int]:
    """One row for each stream, and `count` for the guesses that gain most.

    promised: the gains of each stream's guess, descending, so what is taken of a guess is its
    beginning; bound: the least gain that is among the `count` best
    """
    left, rows = count, list[int]()
    for gained in promised:
        taken = min(left, bisect_right(gained, -bound, key=neg))
        left -= taken
        rows.append(1 + taken)
    return rows


def _reading_s(drafter: Rounds[Any, Any], asked: Ordered[Sequence]) -> float:
    """Seconds to read what the draft model does not know yet of these."""
    return (drafter.read_row or 0.0) * sum(drafter.num_missing(s) - 1 for s in asked)


def _tokens_left(sequence: Sequence) -> int:
    """Tokens that it may still write."""
    return min(sequence.limit - sequence.num_known, _LONG_ANSWER)

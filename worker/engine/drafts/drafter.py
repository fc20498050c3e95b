"""A second, smaller model that guesses what the first one will sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

import numpy as np

from worker import log
from worker.engine.backend import Batch, BatchError, OutOfCells
from worker.engine.cost import StepCost
from worker.engine.drafts.draft import Draft
from worker.engine.likeliest import log_sum
from worker.engine.sequence import Sequence

# Rows that are read at once before it is known what a row costs, and at least.
_FIRST_ROWS = 64
# So many rows show what it costs to read one more, and are worth to be shared.
_MANY_ROWS = 16
_NEW = 0.3


class DraftBackend(Protocol):
    """The draft model over one pool of cells; a part of `engine.backend.Backend`."""

    num_slots: int
    max_length: int
    vocab_size: int
    batch: Batch

    def decode(self) -> None: ...

    def logits(self, row: int) -> np.ndarray: ...

    def drop(self, slot: int, start: int = 0) -> bool: ...

    def holds(self, slot: int, begin: int, stop: int) -> bool: ...

    def share(self, source: int, target: int, stop: int) -> bool: ...


class _Held:
    """A slot of the draft model: tokens[:length] are in its cells.

    used   number of the call that used it last
    """

    __slots__ = ("index", "length", "owner", "tokens", "used")

    def __init__(self, index: int, max_length: int) -> None:
        self.index = index
        self.tokens = np.empty(max_length, np.int32)
        self.length = 0
        self.owner: Draft | None = None
        self.used = 0

    def append(self, token: int) -> None:
        """One more token is in its cells."""
        self.tokens[self.length] = token
        self.length += 1


class _Line:
    """A guess that grows: by the likeliest token of batch row `row`.

    reached  how likely it is to be right so far
    """

    __slots__ = ("draft", "held", "reached", "row")

    def __init__(self, draft: Draft, held: _Held, row: int) -> None:
        self.draft, self.held, self.row = draft, held, row
        self.reached = 1.0


class Drafter:
    """Reads what sequences know and goes on from there, likeliest token by likeliest token.

    It needs no word when a sequence ends or waits again: before each guess it compares what a slot
    holds with what the sequence knows, keeps what both have in common and reads the rest. A new
    sequence gets the slot that was used longest ago, with the beginning that another slot has.

    cost      seconds of a round, in which each sequence gets one more token, by sequences
    read_row  seconds for each token that is read before; None: not measured yet
    is_broken the model could not compute; it is not asked again
    """

    def __init__(
        self, backend: DraftBackend, vocab_size: int, clock: Callable[[], float], max_stall: float
    ) -> None:
        """`vocab_size`: of the model that it guesses for; the first ids are the same tokens."""
        self._backend = backend
        self._vocab_size = min(vocab_size, backend.vocab_size)
        self._clock = clock
        self._max_stall = max_stall
        self._held = [_Held(index, backend.max_length) for index in range(backend.num_slots)]
        self._calls = 0
        self.cost = StepCost()
        self.read_row: float | None = None
        self.is_broken = False

    def has_room(self, sequence: Sequence, length: int) -> bool:
        """Whether so many tokens can be guessed before the draft model's context is full."""
        return sequence.num_known + length <= self._backend.max_length

    def num_missing(self, sequence: Sequence) -> int:
        """Tokens that must be read before the next one of this sequence can be guessed."""
        held = self._of(sequence)
        places = self._held if held is None else [held]
        return sequence.num_known - max(_in_common(held, sequence) for held in places)

    def seconds(self, sequences: int, length: int) -> float:
        """What it costs to guess so many tokens for so many sequences that were read."""
        return self.cost.decode(sequences) * length

    def guess(self, sequences: Iterable[Sequence], length: int, floor: float) -> None:
        """Offer each sequence up to `length` tokens; fewer where they are unlikely.

        A sequence with much to read gets none yet: reading stops where it would make others wait
        for longer than `max_stall` seconds, and goes on at the next call.

        floor: a guess ends where it is less likely than this to be reached and right
        """
        self._calls += 1
        asked = {s.draft: s for s in sequences if s.draft is not None}
        batch = self._backend.batch
        lines = self._read(asked)
        while True:
            lines = [
                line for line in lines if len(line.draft.tokens) < length and line.reached >= floor
            ]
            if not lines:
                return
            started = self._clock()
            batch.clear()
            for line in lines:
                held = line.held
                line.row = batch.add_one(line.draft.tokens[-1], held.length, held.index)
            if not self._compute(asked):
                return
            for line in lines:
                line.held.append(line.draft.tokens[-1])
                self._extend(line)
            self.cost.observe(len(lines), 0, self._clock() - started)

    def _read(self, asked: dict[Draft, Sequence]) -> list[_Line]:
        """Read what is missing, the shortest first; those that all is read of have one guess."""
        backend, batch = self._backend, self._backend.batch
        started = self._clock()
        places = [(s, draft, self._place(s, asked)) for draft, s in asked.items()]
        places.sort(key=lambda place: place[0].num_known - place[2].length)
        room = min(batch.capacity, max(self._max_rows(), 2 * len(places)))
        batch.clear()
        read: list[tuple[Sequence, _Held, int]] = []
        lines: list[_Line] = []
        for sequence, draft, held in places:
            stop = min(sequence.num_known, held.length + room - batch.size)
            if stop <= held.length:
                break
            if stop - held.length > _MANY_ROWS and any(
                _alike(sequence, other, held.length + _MANY_ROWS) for other, _, _ in read
            ):
                continue  # the next call shares what is read now
            tokens = np.minimum(sequence.tokens[held.length : stop], backend.vocab_size - 1)
            row = batch.add(tokens, held.length, held.index) + len(tokens) - 1
            read.append((sequence, held, stop))
            if stop == sequence.num_known:
                batch.outputs[row] = 1
                lines.append(_Line(draft, held, row))
        if not self._compute(asked):
            return []
        for sequence, held, stop in read:
            held.tokens[held.length : stop] = sequence.tokens[held.length : stop]
            held.length = stop
        for line in lines:
            line.draft.offer("model", [], [])
            self._extend(line)
        seconds = self._clock() - started
        if batch.size <= 2 * len(read):
            self.cost.observe(len(read), 0, seconds)
        elif batch.size >= _MANY_ROWS:
            old, new = self.read_row, seconds / batch.size
            self.read_row = new if old is None else old + _NEW * (new - old)
        return lines

    def _extend(self, line: _Line) -> None:
        """The likeliest token of its row, with its probability, becomes a part of the guess."""
        logits = self._backend.logits(line.row)[: self._vocab_size]
        token = int(logits.argmax())
        probability = math.exp(float(logits[token]) - log_sum(logits))
        line.draft.extend(token, probability)
        line.reached *= line.draft.chance(probability)

    def _max_rows(self) -> int:
        """Rows that may be read now without making streams wait too long."""
        if not self.read_row:
            return _FIRST_ROWS
        return max(_FIRST_ROWS, int(self._max_stall / 2 / self.read_row))

    def _of(self, sequence: Sequence) -> _Held | None:
        return next((held for held in self._held if held.owner is sequence.draft), None)

    def _place(self, sequence: Sequence, asked: Collection[Draft]) -> _Held:
        """The sequence's slot, which holds nothing but a beginning of what it knows."""
        held = self._of(sequence)
        if held is None:
            idle = [held for held in self._held if held.owner not in asked]
            held = min(idle, key=lambda held: held.used)
            held.owner = sequence.draft
        held.used = self._calls
        count = _in_common(held, sequence)
        if sequence.num_known - count > _MANY_ROWS:
            best = max(self._held, key=lambda held: _in_common(held, sequence))
            more = _in_common(best, sequence)
            if more > count and self._backend.holds(best.index, 0, more):
                self._cut(held, 0)
                if self._backend.share(best.index, held.index, more):
                    held.tokens[:more] = best.tokens[:more]
                    held.length = more
                    return held
        self._cut(held, count)
        return held

    def _cut(self, held: _Held, length: int) -> None:
        """Forget what the slot holds behind `length` tokens; or all, where they need what is gone
        behind a sliding window."""
        if length == held.length:
            return
        held.length = length if self._backend.holds(held.index, 0, length) else 0
        self._backend.drop(held.index, held.length)

    def _compute(self, asked: Collection[Draft]) -> bool:
        """Decode the batch; where cells run out, take them from slots that are not asked for."""
        while True:
            try:
                self._backend.decode()
            except OutOfCells:
                idle = [held for held in self._held if held.length and held.owner not in asked]
                if not idle:
                    self._clear()
                    return False
                self._cut(min(idle, key=lambda held: held.used), 0)
            except BatchError as error:
                self.is_broken = True
                log.get("engine").warning("the draft model failed and is not used any more",
                                          reason=str(error))  # fmt: skip
                return False
            else:
                return True

    def _clear(self) -> None:
        for held in self._held:
            self._cut(held, 0)


def _alike(one: Sequence, other: Sequence, count: int) -> bool:
    """Whether both begin with the same `count` tokens."""
    return min(one.num_known, other.num_known) >= count and np.array_equal(
        one.tokens[:count], other.tokens[:count]
    )


def _in_common(held: _Held, sequence: Sequence) -> int:
    """How many tokens both begin with; at least the sequence's last one is left to compute."""
    count = min(held.length, sequence.num_known - 1)
    differs = np.flatnonzero(held.tokens[:count] != sequence.tokens[:count])
    return int(differs[0]) if len(differs) else count

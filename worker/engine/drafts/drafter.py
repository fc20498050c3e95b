"""A second, smaller model that guesses what the first one will sample."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from worker.engine.draft import Draft
from worker.engine.drafts.rounds import (
    MANY_ROWS,
    DraftBackend,
    DraftSlot,
    GuessLine,
    Rounds,
    in_common,
)
from worker.engine.sequence import Sequence


class Drafter(Rounds[DraftSlot, DraftBackend]):
    """Guesses by a draft model, which reads each sequence itself, whenever it is asked.

    It keeps what a slot and the sequence have in common and reads the rest. A new sequence gets
    the beginning that another slot has.
    """

    def __init__(
        self, backend: DraftBackend, vocab_size: int, clock: Callable[[], float], max_stall: float
    ) -> None:
        held = [DraftSlot(index, backend.max_length) for index in range(backend.num_slots)]
        super().__init__(backend, held, vocab_size, clock, max_stall)

    def num_missing(self, sequence: Sequence) -> int:
        """Tokens that must be read before the next one of this sequence can be guessed."""
        held = self._of(sequence)
        places = self._held if held is None else [held]
        return sequence.num_known - max(_in_common(held, sequence) for held in places)

    def _read(self, asked: dict[Draft, Sequence]) -> list[GuessLine[DraftSlot]]:
        backend, batch = self._backend, self._backend.batch
        started = self._clock()
        places = [(s, draft, self._place(s, asked)) for draft, s in asked.items()]
        places.sort(key=lambda place: place[0].num_known - place[2].length)
        room = min(batch.capacity, max(self._max_rows(), 2 * len(places)))
        batch.clear()
        read: list[tuple[Sequence, DraftSlot, int]] = []
        lines: list[GuessLine[DraftSlot]] = []
        for sequence, draft, held in places:
            stop = min(sequence.num_known, held.length + room - batch.size)
            if stop <= held.length:
                break
            if stop - held.length > MANY_ROWS and any(
                _alike(sequence, other, held.length + MANY_ROWS) for other, _, _ in read
            ):
                continue  # the next call shares what is read now
            tokens = np.minimum(sequence.tokens[held.length : stop], backend.vocab_size - 1)
            row = batch.add(tokens, held.length, held.index) + len(tokens) - 1
            read.append((sequence, held, stop))
            if stop == sequence.num_known:
                batch.outputs[row] = 1
                lines.append(GuessLine(draft, held, row))
        if not self._compute(asked):
            return []
        for sequence, held, stop in read:
            held.tokens[held.length : stop] = sequence.tokens[held.length : stop]
            held.length = stop
        for line in lines:
            line.draft.offer("model", [], [])
            self._extend(line)
        seconds = self._clock() - started
        self._observe_round(len(read), batch.size, seconds)
        if batch.size > 2 * len(read):
            self._observe_reading(batch.size, seconds)
        return lines

    def _add(self, line: GuessLine[DraftSlot]) -> int:
        held, token = line.held, line.draft.tokens[-1]
        row = self._backend.batch.add_one(token, held.length, held.index)
        # Should the batch fail, llama.cpp has no such cell, and the slot is cut before it is used.
        held.tokens[held.length] = token
        held.length += 1
        return row

    def _place(self, sequence: Sequence, asked: Collection[Draft]) -> DraftSlot:
        """The sequence's slot, which holds nothing but a beginning of what it knows."""
        held = self._of(sequence)
        if held is None:
            held = self._idle(asked)
            held.owner = sequence.draft
        held.used = self._calls
        count = _in_common(held, sequence)
        if sequence.num_known - count > MANY_ROWS:
            best = max(self._held, key=lambda held: _in_common(held, sequence))
            more = _in_common(best, sequence)
            if more > count and self._backend.holds(best.index, 0, more):
                self._forget(held)
                if self._backend.share(best.index, held.index, more):
                    held.tokens[:more] = best.tokens[:more]
                    held.length = more
                    return held
        self._cut(held, count)
        return held

    def _forget(self, held: DraftSlot) -> None:
        self._cut(held, 0)

    def _cut(self, held: DraftSlot, length: int) -> None:
        """Forget what the slot holds behind `length` tokens; or all, where they need what is gone
        behind a sliding window."""
        if length == held.length:
            return
        held.length = length if self._backend.holds(held.index, 0, length) else 0
        self._backend.drop(held.index, held.length)


def _alike(one: Sequence, other: Sequence, count: int) -> bool:
    """Whether both begin with the same `count` tokens."""
    return min(one.num_known, other.num_known) >= count and np.array_equal(
        one.tokens[:count], other.tokens[:count]
    )


def _in_common(held: DraftSlot, sequence: Sequence) -> int:
    """How many tokens both begin with; at least the sequence's last one is left to compute."""
    return in_common(held.tokens[: held.length], sequence.tokens[: sequence.num_known - 1])

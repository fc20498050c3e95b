"""What guesses from the model's hidden states: its own heads (multi-token prediction, MTP), or a
drafter that was made for it (EAGLE-3; `blocks` has those that guess all tokens at once).

At position p both read token p and the model's hidden state at p - 1, and say what token p + 1 is;
then they go on from their own hidden state. A head is a layer behind the model's last one and reads
what that makes. A drafter reads what goes into several layers, joined and encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

import numpy as np

from worker.engine.backend import BatchError
from worker.engine.draft import Draft
from worker.engine.drafts.rounds import DraftBackend, DraftSlot, GuessLine, Rounds, in_common
from worker.engine.sequence import Sequence


class HeadBackend(DraftBackend, Protocol):
    """The heads over cells of their own, beside the model, in whose thread they compute.

    A batch has outputs in all of its rows or in none.

    fed           float32 [batch.capacity, width]: the hidden state that goes into each row
    max_waiting   hidden states that may wait to be read, in all
    longest       tokens of a guess, at most
    begins_blank  a token whose state nobody knows can be the first one that is read
    mask          stands for each token of a block that is guessed at once; None: they are guessed
                  one after the other
    """

    max_waiting: int
    fed: np.ndarray
    longest: int

    @property
    def begins_blank(self) -> bool: ...

    @property
    def mask(self) -> int | None: ...

    def hidden_state(self, row: int) -> np.ndarray:
        """The head's hidden state in output row `row`, float32 [width], until the next decode."""
        ...

    def model_hidden_state(self, rows: int) -> np.ndarray:
        """The model's hidden states in the rows that it computed last, float32 [rows, n]."""
        ...

    def encode(self, states: np.ndarray) -> np.ndarray:
        """What is fed of the model's hidden states, where that has another width: float32
        [rows, width]. Raises BatchError."""
        ...


class HeadSlot(DraftSlot):
    """A slot of the heads: its cells hold positions begin to length - 1, without a gap.

    waiting  the model's hidden states from position length - 1 on, which are not read yet, as
             arrays [rows, width], or [rows, n] before they are encoded; position -1 and a position
             that is not known have zeros
    stop     position behind the last of these states; length - 1 where none waits
    """

    def __init__(self, index: int, max_length: int, width: int, *, begins_blank: bool) -> None:
        super().__init__(index, max_length)
        self._nothing = np.zeros((1, width), np.float32)
        self._begins_blank = begins_blank
        self.start(0, 0)

    @property
    def num_cells(self) -> int:
        return self.length - self.begin

    @property
    def num_waiting(self) -> int:
        """Hidden states that wait, and so positions that can be read."""
        return self.stop - self.length + 1

    def common(self, tokens: np.ndarray) -> int:
        """How many of the first `tokens` are those of the cells, or of what waits."""
        return in_common(self.tokens[: max(self.length, self.stop)], tokens)

    def start(self, at: int, begin: int) -> None:
        """Positions begin to at - 1 are in the cells, and nothing waits."""
        self.begin, self.length, self.stop = begin, at, at
        self.waiting = [self._nothing]
        if begin == at and not self._begins_blank:  # the token at `at` is left out
            self.begin = self.length = at + 1
            self.waiting = []

    def add(self, tokens: np.ndarray, states: np.ndarray) -> None:
        """The model has computed these tokens, from position `stop` on."""
        self.tokens[self.stop : self.stop + len(tokens)] = tokens
        self.stop += len(tokens)
        self.waiting.append(states)

    def shorten(self, stop: int) -> None:
        """Forget what waits from position `stop` on, which is not less than `length`."""
        surplus = self.stop - stop
        self.stop = stop
        while surplus:
            last = self.waiting.pop()
            if len(last) > surplus:
                self.waiting.append(last[: len(last) - surplus])
                return
            surplus -= len(last)

    def take(self, tokens: np.ndarray) -> np.ndarray:
        """The first states that wait, [tokens, width]: they are read now, with these tokens."""
        rows = len(tokens)
        self.tokens[self.length : self.length + rows] = tokens
        states = self.waiting[0] if len(self.waiting) == 1 else np.concatenate(self.waiting)
        self.waiting = [states[rows:]] if len(states) > rows else []
        self.length += rows
        return states[:rows]


# Rows that wait are encoded together once there are so many, or so many arrays of them: one by one
# they would cost each step what nobody may ask for.
_ENCODED = 32


class HeadDrafter(Rounds[HeadSlot, HeadBackend]):
    """Guesses by the model's heads.

    The model's hidden states are there only when it computes a token, so they are kept until the
    heads are asked. Where none were kept, as of a state that came back from memory or while nobody
    would have asked for long, the heads begin in the middle: they see what follows only.
    """

    slot = HeadSlot

    def __init__(
        self, backend: HeadBackend, vocab_size: int, clock: Callable[[], float], max_stall: float
    ) -> None:
        width, length = backend.fed.shape[1], backend.max_length
        held = [
            self.slot(index, length, width, begins_blank=backend.begins_blank)
            for index in range(backend.num_slots)
        ]
        super().__init__(backend, held, vocab_size, clock, max_stall)
        self.longest = backend.longest
        self._width = width
        self._states: dict[Draft, np.ndarray] = {}  # that the next row of each line is fed

    def note(self, runs: Iterable[tuple[Sequence, int]], tokens: np.ndarray) -> None:
        """Keep the model's states of these rows. tokens: int32 [rows]"""
        if self.is_broken or self.rests:
            return
        self._calls += 1
        states = self._backend.model_hidden_state(len(tokens))
        runs = list(runs)
        running = {sequence.draft for sequence, _ in runs if sequence.draft is not None}
        first, grown = 0, list[HeadSlot]()
        for sequence, count in runs:
            if sequence.draft is not None:
                held, known = self._place(sequence, running)
                if known < count:
                    rows = slice(first + known, first + count)
                    held.add(tokens[rows], states[rows].copy())
                    grown.append(held)
            first += count
        if states.shape[1] != self._width:
            self._encode([held for held in grown if self._is_due(held.waiting)])
        self._bound(running)

    def _is_due(self, waiting: list[np.ndarray]) -> bool:
        """Whether much of it is not encoded yet."""
        first = waiting[-_ENCODED:][:1]
        many = len(waiting) >= _ENCODED and first[0].shape[1] != self._width
        return many or (
            bool(waiting) and len(waiting[-1]) >= _ENCODED and waiting[-1].shape[1] != self._width
        )

    def _encode(self, slots: Iterable[HeadSlot]) -> None:
        """Encode what waits there and is not yet: many rows at once."""
        raw = [
            (held.waiting, index)
            for held in slots
            for index, states in enumerate(held.waiting)
            if states.shape[1] != self._width
        ]
        if not raw or self.is_broken:
            return
        try:
            encoded = self._backend.encode(np.concatenate([all_[i] for all_, i in raw]))
        except BatchError as error:
            self._put_aside(str(error))
            return
        first = 0
        for waiting, index in raw:
            count = len(waiting[index])
            waiting[index] = encoded[first : first + count]
            first += count

    def can_guess(self, sequence: Sequence, length: int) -> bool:
        """Whether there is room, and all is there that the heads must read."""
        held = self._of(sequence)
        known = sequence.num_known - 1
        return (
            held is not None
            and held.stop >= known
            and held.common(sequence.tokens[:known]) == known
            and super().can_guess(sequence, length)
        )

    def num_missing(self, sequence: Sequence) -> int:
        """Tokens that must be read before the next one of this sequence can be guessed."""
        held = self._of(sequence)
        return sequence.num_known - (held.length if held is not None else 0)

    def guess(self, sequences: Iterable[Sequence], length: int, floor: float) -> None:
        """As any guesses; what was made of guessed tokens leaves the cells again."""
        sequences = list(sequences)
        super().guess(sequences, length, floor)
        self._states.clear()
        for held in map(self._of, sequences):
            if held is not None and held.length:
                self._drop(held, held.length)

    def _read(self, asked: dict[Draft, Sequence]) -> list[GuessLine[HeadSlot]]:
        batch, started = self._backend.batch, self._clock()
        places: list[tuple[Draft, Sequence, HeadSlot]] = []
        for draft, sequence in asked.items():
            held = self._of(sequence)
            if held is not None:
                held.used = self._calls
                self._cut(held, held.common(sequence.tokens[: sequence.num_known]))
                if held.stop == sequence.num_known - 1 and held.num_waiting:
                    places.append((draft, sequence, held))
        self._encode(held for _, _, held in places)
        if self.is_broken:
            return []
        places.sort(key=lambda place: place[2].num_waiting)
        room = min(batch.capacity, max(self._max_rows(), 2 * len(places)))
        count = sum(held.num_waiting for _, _, held in places)
        if count > self._backend.batch.max_outputs:
            batch.clear()
            for _, sequence, held in places:
                self._feed(sequence, held, min(held.num_waiting - 1, room - batch.size))
            if not self._compute(asked):
                return []
            self._observe_reading(batch.size, self._clock() - started)
            started = self._clock()
            places = [place for place in places if place[2].num_waiting == 1]
        batch.clear()
        lines: list[GuessLine[HeadSlot]] = []
        for draft, sequence, held in places:
            self._feed(sequence, held, held.num_waiting)
            lines.append(GuessLine(draft, held, batch.size - 1))
        batch.outputs[: batch.size] = 1
        if not lines or not self._compute(asked):
            return []
        for line in lines:
            line.draft.offer("model", [], [])
            self._extend(line)
        self._observe_round(len(lines), batch.size, self._clock() - started)
        return lines

    def _feed(self, sequence: Sequence, held: HeadSlot, count: int) -> None:
        """Add the next `count` rows that the slot misses to the batch, with their states."""
        if count <= 0:
            return
        at = held.length
        tokens = sequence.tokens[at : at + count]
        read = np.minimum(tokens, self._backend.vocab_size - 1)
        row = self._backend.batch.add(read, at, held.index)
        self._backend.fed[row : row + count] = held.take(tokens)

    def _add(self, line: GuessLine[HeadSlot]) -> int:
        tokens = line.draft.tokens
        position = line.held.length + len(tokens) - 1
        row = self._backend.batch.add_one(tokens[-1], position, line.held.index)
        self._backend.fed[row] = self._states[line.draft]
        return row

    def _extend(self, line: GuessLine[HeadSlot]) -> None:
        super()._extend(line)
        self._states[line.draft] = self._backend.hidden_state(line.row).copy()

    def _place(self, sequence: Sequence, running: Collection[Draft]) -> tuple[HeadSlot, int]:
        """The sequence's slot, and how many of the rows computed now it has already."""
        assert sequence.slot is not None
        start = sequence.slot.length
        held = self._of(sequence)
        if held is None:
            held = self._take(sequence.tokens[:start], running)
            held.owner = sequence.draft
        held.used = self._calls
        self._cut(held, held.common(sequence.tokens[: sequence.num_known]))
        if held.stop < start:  # nobody knows the states between
            self._backend.drop(held.index)
            held.tokens[: start + 1] = sequence.tokens[: start + 1]
            held.start(start, start)
        return held, held.stop - start

    def _take(self, known: np.ndarray, running: Collection[Draft]) -> HeadSlot:
        """A slot for a new sequence, with what another one has of its first tokens."""
        held, count = self._idle(running), len(known)
        best = max(self._held, key=lambda other: min(other.stop, other.common(known)))
        if best is held or min(best.stop, best.common(known)) < count or best.begin > count:
            return held
        self._forget(held)
        cells = min(best.length, count)
        if cells > best.begin:
            if not self._backend.holds(best.index, best.begin, cells):
                return held
            self._backend.share(best.index, held.index, cells)
        held.tokens[: count + 1] = best.tokens[: count + 1]
        held.start(cells, best.begin)
        if count >= best.length:
            held.begin, held.length = best.begin, best.length
            held.stop, held.waiting = best.stop, list(best.waiting)
            held.shorten(count)
        return held

    def _bound(self, running: Collection[Draft]) -> None:
        """Where too much waits, forget what was used longest ago."""
        while sum(held.num_waiting for held in self._held) > self._backend.max_waiting:
            rich = [held for held in self._held if held.num_waiting > 1]
            idle = [held for held in rich if held.owner not in running]
            if not rich:
                return
            self._forget(min(idle or rich, key=lambda held: held.used))

    def _forget(self, held: HeadSlot) -> None:
        self._backend.drop(held.index)
        held.start(0, 0)

    def _cut(self, held: HeadSlot, stop: int) -> None:
        """Forget what the slot holds behind `stop` tokens."""
        if stop < held.length:
            begin = min(held.begin, stop)
            if begin < stop and self._backend.holds(held.index, begin, stop):
                self._backend.drop(held.index, stop)
            else:
                self._backend.drop(held.index)
                begin = stop
            held.start(stop, begin)
        elif stop < held.stop:
            held.shorten(stop)

    def _drop(self, held: HeadSlot, length: int) -> None:
        """Free the cells behind `length` tokens; or all, where they need what is gone behind a
        sliding window: then the heads begin here."""
        if self._backend.holds(held.index, held.begin, length):
            self._backend.drop(held.index, length)
        else:
            self._backend.drop(held.index)
            held.begin = length

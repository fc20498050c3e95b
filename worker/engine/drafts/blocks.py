"""Guesses of a block at once, by a drafter that reads the model's hidden states (DFlash).

Its cells hold what it made of the state at each position. A guess is one batch: the last known
token and a mask for each token that follows, which all look at each other and at the cells.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from worker.engine.draft import Draft
from worker.engine.drafts.heads import HeadDrafter, HeadSlot
from worker.engine.drafts.rounds import GuessLine
from worker.engine.sequence import Sequence

_Place = tuple[Draft, Sequence, HeadSlot]


class BlockSlot(HeadSlot):
    """A slot whose cells hold the states of positions begin to length - 1; those from `length` on
    wait."""

    @property
    def num_waiting(self) -> int:
        return self.stop - self.length

    def start(self, at: int, begin: int) -> None:
        self.begin, self.length, self.stop = begin, at, at
        self.waiting = []


class BlockDrafter(HeadDrafter):
    """Guesses as many tokens as a block has, whose number hardly changes what that costs."""

    slot = BlockSlot

    def seconds(self, sequences: int, length: int) -> float:
        return super().seconds(sequences, min(length, 1))

    def guess(self, sequences: Iterable[Sequence], length: int, floor: float) -> None:
        self._calls += 1
        asked = {s.draft: s for s in sequences if s.draft is not None}
        places: list[_Place] = []
        for draft, sequence in asked.items():
            held = self._of(sequence)
            if held is not None:
                held.used = self._calls
                self._cut(held, held.common(sequence.tokens[: sequence.num_known]))
                places.append((draft, sequence, held))
        self._read_states([held for _, _, held in places], asked)
        places = [place for place in places if place[2].length == place[1].num_known - 1]
        most = self._backend.batch.max_outputs // (1 + self.longest)
        for first in range(0, len(places), most):
            self._guess_blocks(places[first : first + most], asked, length, floor)

    def _extend(self, line: GuessLine[HeadSlot]) -> None:
        super(HeadDrafter, self)._extend(line)  # there is no state to go on from

    def _bound(self, running: Collection[Draft]) -> None:
        """Read states of which many wait: they are wider than what becomes of them."""
        most = self._backend.max_waiting // self._backend.num_slots
        self._read_states((held for held in self._held if held.num_waiting >= most), running)

    def _read_states(self, slots: Iterable[HeadSlot], asked: Collection[Draft]) -> None:
        """Make cells of the states that wait there."""
        batch, fed = self._backend.batch, self._backend.fed
        left = [held for held in slots if held.num_waiting]
        while left and not self.is_broken:
            started = self._clock()
            batch.clear()
            for held in left:
                at = held.length
                tokens = held.tokens[at : min(held.stop, at + batch.capacity - batch.size)]
                if len(tokens):
                    row = batch.add(tokens, at, held.index)
                    fed[row : batch.size] = held.take(tokens)
            batch.vectors = fed[: batch.size]
            if not self._compute(asked):
                return
            self._observe_reading(batch.size, self._clock() - started)
            left = [held for held in left if held.num_waiting]

    def _guess_blocks(
        self, places: list[_Place], asked: Collection[Draft], length: int, floor: float
    ) -> None:
        """One batch, which leaves no cells behind."""
        backend, batch, started = self._backend, self._backend.batch, self._clock()
        assert backend.mask is not None
        batch.clear()
        lines: list[GuessLine[HeadSlot]] = []
        for draft, sequence, held in places:
            known = min(int(sequence.tokens[held.length]), backend.vocab_size - 1)
            row = batch.add_one(known, held.length, held.index)
            for place in range(1, 1 + self.longest):
                batch.add_one(backend.mask, held.length + place, held.index)
            lines.append(GuessLine(draft, held, row))
        if self.is_broken or not self._compute(asked):
            return
        for line in lines:
            line.draft.offer("model", [], [])
            while len(line.draft.tokens) < min(length, self.longest) and line.reached >= floor:
                line.row += 1
                self._extend(line)
            self._drop(line.held, line.held.length)
        self.cost.observe(len(lines), 0, self._clock() - started)

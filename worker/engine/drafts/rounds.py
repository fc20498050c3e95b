"""Guesses made in rounds: each gives every sequence that is asked one more token."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import Generic, Protocol, TypeVar

import numpy as np

from worker import log
from worker.engine.backend import Batch, BatchError, OutOfCells
from worker.engine.cost import StepCost
from worker.engine.draft import Draft
from worker.engine.likeliest import log_sum
from worker.engine.sequence import Sequence

# Rows that are read at once before it is known what a row costs, and at least.
_FIRST_ROWS = 64
# So many rows show what it costs to read one more, and are worth to be shared.
MANY_ROWS = 16
_NEW = 0.3


class DraftBackend(Protocol):
    """What guesses, over one pool of cells, as `engine.backend.Backend` does."""

    num_slots: int
    max_length: int
    vocab_size: int
    batch: Batch

    def decode(self) -> None: ...

    def logits(self, row: int) -> np.ndarray: ...

    def drop(self, slot: int, start: int = 0) -> bool: ...

    def holds(self, slot: int, begin: int, stop: int) -> bool: ...

    def share(self, source: int, target: int, stop: int) -> bool: ...


class DraftSlot:
    """A slot of what guesses: its cells hold positions up to `length`.

    tokens  of the sequence to which the cells belong
    owner   the draft of that sequence
    used    number of the call that used it last
    """

    def __init__(self, index: int, max_length: int) -> None:
        self.index = index
        self.tokens = np.empty(max_length, np.int32)
        self.length = 0
        self.owner: Draft | None = None
        self.used = 0

    @property
    def num_cells(self) -> int:
        return self.length


Held = TypeVar("Held", bound=DraftSlot)
BackendT = TypeVar("BackendT", bound=DraftBackend)


class GuessLine(Generic[Held]):
    """A guess that grows: by the likeliest token of batch row `row`.

    reached  how likely it is to be right so far
    """

    __slots__ = ("draft", "held", "reached", "row")

    def __init__(self, draft: Draft, held: Held, row: int) -> None:
        self.draft, self.held, self.row = draft, held, row
        self.reached = 1.0


class Rounds(Generic[Held, BackendT]):
    """Reads what sequences know and goes on from there, likeliest token by likeliest token.

    It needs no word when a sequence ends or waits again: before each guess it compares what a slot
    holds with what the sequence knows. A new sequence gets the slot that was used longest ago.

    longest   tokens of a guess, at most
    least     probability of a guessed token, at least
    cost      seconds of a round, in which each sequence gets one more token, by sequences
    read_row  seconds for each token that is read before; None: not measured yet
    is_broken the guesses could not be computed; nobody asks for any again
    rests     nobody will ask for many steps, as guesses do not pay: nothing is kept for them
    """

    longest = 7
    least = 0.0

    def __init__(
        self,
        backend: BackendT,
        held: list[Held],
        vocab_size: int,
        clock: Callable[[], float],
        max_stall: float,
    ) -> None:
        """held: the backend's slots
        vocab_size: of the model that it guesses for; the first ids are the same tokens
        """
        self._backend = backend
        self._held = held
        self._vocab_size = min(vocab_size, backend.vocab_size)
        self._clock = clock
        self._max_stall = max_stall
        self._calls: int = 0
        self.cost = StepCost()
        self.read_row: float | None = None
        self.is_broken = False
        self.rests = False

    def use(self, backend: BackendT) -> None:
        """Go on with another one of the same model and options, which is empty."""
        self._backend = backend
        self.empty()

    def note(self, runs: Iterable[tuple[Sequence, int]], tokens: np.ndarray) -> None:
        """The model has computed these runs of rows and nothing was sampled yet.

        tokens: of the batch's rows; what was guessed wrong is found when it is compared
        tokens is int32 [rows].
        """

    def can_guess(self, sequence: Sequence, length: int) -> bool:
        """Whether so many tokens can be guessed now."""
        return sequence.num_known + length <= self._backend.max_length

    def num_missing(self, sequence: Sequence) -> int:
        """Tokens that must be read before the next one of this sequence can be guessed."""
        raise NotImplementedError

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
        lines = self._read(asked)
        while True:
            lines = [
                line for line in lines if len(line.draft.tokens) < length and line.reached >= floor
            ]
            if not lines:
                return
            started = self._clock()
            self._backend.batch.clear()
            for line in lines:
                line.row = self._add(line)
            if not self._compute(asked):
                return
            for line in lines:
                self._extend(line)
            self._observe_round(len(lines), len(lines), self._clock() - started)

    def _read(self, asked: dict[Draft, Sequence]) -> list[GuessLine[Held]]:
        """Read what is missing, the shortest first; those that all is read of have one guess."""
        raise NotImplementedError

    def _add(self, line: GuessLine[Held]) -> int:
        """Append the last guessed token to the batch; its row."""
        raise NotImplementedError

    def _forget(self, held: Held) -> None:
        """Free all cells of the slot."""
        raise NotImplementedError

    def _extend(self, line: GuessLine[Held]) -> None:
        """The likeliest token of its row, with its probability, becomes a part of the guess."""
        logits = self._backend.logits(line.row)[: self._vocab_size]
        token = int(logits.argmax())
        probability = math.exp(float(logits[token]) - log_sum(logits))
        if math.isnan(probability):
            self._put_aside("it computed values that are no numbers")
            line.draft.shorten(0)
            line.reached = -1.0
            return
        if probability < self.least:
            line.reached = -1.0
            return
        line.draft.extend(token, probability)
        line.reached *= line.draft.chance(probability)

    def _observe_round(self, sequences: int, rows: int, seconds: float) -> None:
        """Learn from a batch that gave each sequence a token."""
        if rows <= 2 * sequences:
            self.cost.observe(sequences, 0, seconds)

    def _observe_reading(self, rows: int, seconds: float) -> None:
        """Learn from a batch that read so many tokens."""
        if rows >= MANY_ROWS:
            old, new = self.read_row, seconds / rows
            self.read_row = new if old is None else old + _NEW * (new - old)

    def _max_rows(self) -> int:
        """Rows that may be read now without making streams wait too long."""
        if not self.read_row:
            return _FIRST_ROWS
        return max(_FIRST_ROWS, int(self._max_stall / 2 / self.read_row))

    def _of(self, sequence: Sequence) -> Held | None:
        return next((held for held in self._held if held.owner is sequence.draft), None)

    def _idle(self, asked: Collection[Draft]) -> Held:
        """The slot that was used longest ago, and that nobody who is asked has."""
        idle = [held for held in self._held if held.owner not in asked]
        return min(idle, key=lambda held: held.used)

    def empty(self) -> None:
        """Forget what all slots hold."""
        for held in self._held:
            self._forget(held)

    def _compute(self, asked: Collection[Draft]) -> bool:
        """Decode the batch; where cells run out, take them from slots that are not asked for."""
        while True:
            try:
                self._backend.decode()
            except OutOfCells:
                idle = [held for held in self._held if held.num_cells and held.owner not in asked]
                if not idle:
                    self.empty()
                    return False
                self._forget(min(idle, key=lambda held: held.used))
            except BatchError as error:
                self._put_aside(str(error))
                return False
            else:
                return True

    def _put_aside(self, reason: str) -> None:
        """Guess no more; texts go on without."""
        if not self.is_broken:
            self.is_broken = True
            log.get("engine").warning("drafting failed and is off from now on", reason=reason)


def in_common(one: np.ndarray, other: np.ndarray) -> int:
    """How many tokens both begin with; int32 [n] each."""
    count = min(len(one), len(other))
    if one[:count].tobytes() == other[:count].tobytes():  # nearly always, in each step
        return count
    differs = np.flatnonzero(one[:count] != other[:count])
    return int(differs[0]) if len(differs) else count

"""An assistant: a drafter that was made for the model and looks at the model's own cells (Gemma 4).

It has no cells, so it reads no prompt and keeps nothing. For the token at position p it needs the
model's hidden state at p - 1, from which that token was sampled, and the cells before p. It goes on
from its own hidden state, and all tokens of a guess have position p, as it was trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from worker.engine.draft import Draft
from worker.engine.drafts.rounds import DraftBackend, DraftSlot, GuessLine, Rounds
from worker.engine.sequence import Sequence


class AssistantBackend(DraftBackend, Protocol):
    """The assistant, in whose batches a row's slot is the model's.

    fed      float32 [batch.capacity, width]: the hidden state that goes into each row
    longest  tokens of a guess, at most
    """

    fed: np.ndarray
    longest: int

    def hidden_state(self, row: int) -> np.ndarray:
        """Its own hidden state in output row `row`, float32 [width], until the next decode."""
        ...

    def model_hidden_state(self, first: int, count: int) -> np.ndarray:
        """The model's hidden states in those of these rows of its last batch that have outputs,
        float32 [outputs, width], a copy."""
        ...


class AssistantDrafter(Rounds[DraftSlot, AssistantBackend]):
    """Guesses by an assistant, for sequences whose last token the model has just sampled."""

    def __init__(
        self,
        backend: AssistantBackend,
        vocab_size: int,
        clock: Callable[[], float],
        max_stall: float,
    ) -> None:
        super().__init__(backend, [], vocab_size, clock, max_stall)
        self.longest = backend.longest
        # The model's states in the rows that a sequence may go on from, up to a position.
        self._seen: dict[Draft, tuple[int, np.ndarray]] = {}
        self._states: dict[Draft, np.ndarray] = {}  # that the next row of each line is fed

    def note(self, runs: Iterable[tuple[Sequence, int]], tokens: np.ndarray) -> None:  # noqa: ARG002
        """Keep the model's states of rows with outputs. tokens: int32 [rows]"""
        if self.is_broken:
            return
        first = 0
        for sequence, count in runs:
            if sequence.draft is not None and sequence.slot is not None:
                self._seen.pop(sequence.draft, None)
                states = self._backend.model_hidden_state(first, count)
                if len(states):
                    self._seen[sequence.draft] = sequence.slot.length + count, states
            first += count
        while len(self._seen) > self._backend.num_slots:  # some have ended
            del self._seen[next(iter(self._seen))]

    def can_guess(self, sequence: Sequence, length: int) -> bool:
        return self._state(sequence) is not None and super().can_guess(sequence, length)

    def num_missing(self, sequence: Sequence) -> int:  # noqa: ARG002
        return 1

    def empty(self) -> None:
        self._seen.clear()

    def _state(self, sequence: Sequence) -> np.ndarray | None:
        """The model's hidden state from which the last token was sampled, float32 [width]; None:
        nobody knows it, or more than that token is not in the cells."""
        last, slot = sequence.num_known - 1, sequence.slot
        if sequence.draft not in self._seen or slot is None or slot.length != last:
            return None
        stop, states = self._seen[sequence.draft]
        return states[last - stop - 1] if last <= stop < last + len(states) else None

    def _read(self, asked: dict[Draft, Sequence]) -> list[GuessLine[DraftSlot]]:
        started = self._clock()
        self._backend.batch.clear()
        lines: list[GuessLine[DraftSlot]] = []
        for draft, sequence in asked.items():
            state, slot = self._state(sequence), sequence.slot
            if state is None or slot is None:
                continue
            held = DraftSlot(slot.index, 0)
            held.length = slot.length
            self._states[draft] = state
            token = min(int(sequence.tokens[slot.length]), self._backend.vocab_size - 1)
            lines.append(GuessLine(draft, held, self._add_row(draft, held, token)))
        if not lines or not self._compute(asked):
            return []
        for line in lines:
            line.draft.offer("model", [], [])
            self._extend(line)
        self._observe_round(len(lines), len(lines), self._clock() - started)
        return lines

    def guess(self, sequences: Iterable[Sequence], length: int, floor: float) -> None:
        """As any guesses."""
        super().guess(sequences, length, floor)
        self._states.clear()

    def _add(self, line: GuessLine[DraftSlot]) -> int:
        return self._add_row(line.draft, line.held, line.draft.tokens[-1])

    def _add_row(self, draft: Draft, held: DraftSlot, token: int) -> int:
        row = self._backend.batch.add_one(token, held.length, held.index)
        self._backend.fed[row] = self._states[draft]
        return row

    def _extend(self, line: GuessLine[DraftSlot]) -> None:
        super()._extend(line)
        self._states[line.draft] = self._backend.hidden_state(line.row).copy()

"""Heads without a model: a hidden state stands for the tokens that it was computed from."""

from __future__ import annotations

import numpy as np

from tests.support.fakes import FakeBackend, next_token
from worker.engine.backend import Batch, BatchError, OutOfCells

Tokens = tuple[int, ...]


class FakeHeads:
    """Plays the heads of `model`, or a drafter that reads its hidden states; refuses states of
    other tokens, and cells with a gap.

    Hidden state n > 0 is that of the n-th list of tokens that was ever computed, 0 is unknown.

    encodes     it is a drafter: states are encoded before they are fed, and no row begins without
    right       whether the next token is guessed, or another one
    num_blind   rows that were read without a state, behind the first position
    failures    for each coming decode, what it raises instead of computing (None: nothing)
    per_row     seconds that a row adds to a batch's 0.05 seconds
    """

    encodes = False
    longest = 3
    mask: int | None = None

    def __init__(self, model: FakeBackend, *, num_cells: int = 0, right: bool = True) -> None:
        self.model = model
        self.right = right
        self.num_cells = num_cells or 2 * model.num_cells
        self.num_slots = model.num_slots
        self.max_length = model.max_length
        most = 4 * model.num_slots
        self.max_waiting = model.num_cells
        self.vocab_size = model.vocab_size
        self.batch = Batch(max(model.batch.capacity, most), most)
        self.fed = np.zeros((self.batch.capacity, 1), np.float32)
        # slot -> position -> the tokens up to there, or None where they are not known
        self.cells: dict[int, dict[int, Tokens | None]] = {s: {} for s in range(self.num_slots)}
        self.failures: list[type[Exception] | None] = []
        self.num_blind = 0
        self.rows_computed = 0
        self.per_row = 0.001
        self.now = 0.0
        self._lists: list[Tokens] = [()]
        self._numbers: dict[Tokens, int] = {}
        self._rows: list[Tokens | None] = []

    @property
    def begins_blank(self) -> bool:
        """Heads read the first token without a state."""
        return not self.encodes

    def encode(self, states: np.ndarray) -> np.ndarray:
        """The state is the second of two numbers."""
        assert self.encodes
        assert states.shape[1] == 2
        assert (states[:, 0] == -1).all()
        return states[:, 1:]

    def decode(self) -> None:
        """Compute the batch, or raise the next planned failure."""
        batch, size = self.batch, self.batch.size
        outputs = int(batch.outputs[:size].sum())
        assert outputs in (0, size)
        assert 0 < size <= batch.capacity
        assert outputs <= batch.max_outputs
        planned = self.failures.pop(0) if self.failures else None
        if planned is BatchError:
            raise BatchError("planned")
        if planned is OutOfCells or sum(map(len, self.cells.values())) + size > self.num_cells:
            raise OutOfCells
        self._rows = [self._compute(row) for row in range(size)]
        self.rows_computed += size
        self.now += 0.05 + self.per_row * size

    def _compute(self, row: int) -> Tokens | None:
        batch = self.batch
        position, token = int(batch.positions[row]), int(batch.tokens[row])
        cells = self.cells[int(batch.slots[row])]
        assert not cells or max(cells) + 1 == position, "a gap, or a cell twice"
        number = int(self.fed[row, 0])
        assert cells or number or not self.encodes, "begun without a state"
        before = self._lists[number] if number or not position else None
        if before is None:
            self.num_blind += 1
        else:
            assert len(before) == position, "a state of another position"
            assert cells.get(position - 1) in (None, before), "a state of other tokens"
        found = cells[position] = None if before is None else (*before, token)
        return found

    def logits(self, row: int) -> np.ndarray:
        """One-hot of the next token, or of another one."""
        tokens = self._rows[row]
        logits = np.zeros(self.vocab_size, np.float32)
        found = next_token(list(tokens), self.vocab_size, self.model.memory) if tokens else 1
        logits[found if self.right else (found + 1) % self.vocab_size] = 5
        return logits

    def hidden_state(self, row: int) -> np.ndarray:
        """The state that stands for the row's tokens."""
        return np.array([self._number(self._rows[row])], np.float32)

    def model_hidden_state(self, rows: int) -> np.ndarray:
        """What the model computed last."""
        batch = self.model.batch
        states = np.zeros((rows, 1), np.float32)
        for row in range(rows):
            tokens = self.model.tokens(int(batch.slots[row]))
            states[row] = self._number(tuple(tokens[: int(batch.positions[row]) + 1]))
        return np.pad(states, ((0, 0), (1, 0)), constant_values=-1) if self.encodes else states

    def _number(self, tokens: Tokens | None) -> int:
        if tokens is None:
            return 0
        if tokens not in self._numbers:
            self._lists.append(tokens)
            self._numbers[tokens] = len(self._lists) - 1
        return self._numbers[tokens]

    def drop(self, slot: int, start: int = 0) -> bool:
        """Forget positions from `start` on."""
        self.cells[slot] = {p: tokens for p, tokens in self.cells[slot].items() if p < start}
        return True

    def holds(self, slot: int, begin: int, stop: int) -> bool:
        """Whether the positions from `begin` on are there."""
        return all(position in self.cells[slot] for position in range(begin, stop))

    def share(self, source: int, target: int, stop: int) -> bool:
        """Give the empty slot the cells before `stop`."""
        assert not self.cells[target]
        given = self.cells[source].items()
        self.cells[target] = {p: tokens for p, tokens in given if p < stop}
        return True


class FakeBlocks(FakeHeads):
    """Plays a drafter that guesses a block at once: a batch has states in all of its rows, or rows
    of blocks."""

    mask = 0
    longest = 5

    def __init__(self, model: FakeBackend, *, num_cells: int = 0, right: bool = True) -> None:
        super().__init__(model, num_cells=num_cells, right=right)
        self.batch.max_outputs = 2 * (1 + self.longest)

    @property
    def begins_blank(self) -> bool:
        return False

    def _compute(self, row: int) -> Tokens | None:
        batch = self.batch
        position, token = int(batch.positions[row]), int(batch.tokens[row])
        cells = self.cells[int(batch.slots[row])]
        assert not cells or max(cells) + 1 == position, "a gap, or a cell twice"
        if batch.vectors is not None:
            found = self._lists[int(batch.vectors[row, 0])]
            assert not batch.outputs[row]
            assert len(found) == position + 1, "a state of another position"
            assert found[-1] == token
            assert cells.get(position - 1) in (None, found[:-1]), "a state of other tokens"
        else:
            before = cells[position - 1]
            assert before is not None
            likely = next_token(list(before), self.vocab_size, self.model.memory)
            found = (*before, likely if token == self.mask else token)
        cells[position] = found
        return found

    def logits(self, row: int) -> np.ndarray:
        """One-hot of the row's own token, or of another one."""
        tokens = self._rows[row]
        assert tokens is not None
        logits = np.zeros(self.vocab_size, np.float32)
        logits[tokens[-1] if self.right else (tokens[-1] + 1) % self.vocab_size] = 5
        return logits

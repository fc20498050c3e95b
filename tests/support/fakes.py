"""A backend without a model: the next token is a fixed function of all tokens before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from worker.engine.backend import BatchError, OutOfCells
from worker.engine.batch import Batch
from worker.engine.request import Request

END = 0


def next_token(tokens: list[int], vocab_size: int, memory: int | None = None) -> int:
    """What follows `tokens` (or the last `memory` of them); token 0 (the end) now and then."""
    tokens = tokens[-memory:] if memory else tokens
    state = 1469598103934665603
    for token in tokens:
        state = ((state ^ token) * 1099511628211) % 2**64
    return (state >> 17) % vocab_size


def continuation(
    prompt: list[int], count: int, vocab_size: int, memory: int | None = None
) -> list[int]:
    """What a request gets when nobody else runs: up to `count` tokens, ending with END."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < count:
        tokens.append(next_token(tokens, vocab_size, memory))
        if tokens[-1] == END:
            break
    return tokens[len(prompt) :]


class FakeBackend:
    """Keeps the cache's books itself and refuses what llama.cpp would refuse.

    failures: for each coming decode, what it raises instead of computing (None: nothing)
    poison:   a token whose presence in a batch makes it fail for good
    per_row:  seconds that a row adds to a step's 1 second; `now` is the time
    memory:   how many last tokens decide the next one; a small number makes text that repeats
    """

    def __init__(
        self,
        *,
        num_cells: int = 64,
        num_slots: int = 4,
        capacity: int = 16,
        max_outputs: int = 8,
        vocab_size: int = 50,
        poison: int | None = None,
        cuts_tails: bool = True,
        memory: int | None = None,
        per_row: float = 0.01,
        plain_rows: int | None = None,
    ) -> None:
        self.num_cells = num_cells
        self.num_slots = num_slots
        self.cuts_tails = cuts_tails
        self.plain_rows = plain_rows or capacity
        self.one_prompt_a_step = False
        self.memory = memory
        self.per_row = per_row
        self.now = 0.0
        self.max_length = num_cells
        self.max_outputs = max_outputs
        self.vocab_size = vocab_size
        self.batch = Batch(capacity)
        self.end_tokens = frozenset({END})
        self.pieces = [b""] + [bytes([96 + token % 26]) for token in range(1, vocab_size)]
        self.poison = poison
        self.failures: list[type[Exception] | None] = []
        # slot -> its cells; a cell is [token], shared cells are the same object
        self.cells: dict[int, list[list[int]]] = {slot: [] for slot in range(num_slots)}
        self.rows_computed = 0
        self.batch_sizes: list[int] = []
        self.live_samplers = 0
        self._rows: dict[int, list[int]] = {}

    def decode(self) -> None:
        """Compute the batch, or raise the next planned failure."""
        batch = self.batch
        assert 0 < batch.size <= batch.capacity
        assert int(batch.outputs[: batch.size].sum()) <= self.max_outputs
        planned = self.failures.pop(0) if self.failures else None
        rows = list(zip(batch.tokens, batch.positions, batch.slots, strict=True))[: batch.size]
        if planned is OutOfCells or self.num_used + len(rows) > self.num_cells:
            raise OutOfCells
        if planned is BatchError or self.poison in batch.tokens[: batch.size]:
            raise BatchError("planned")
        self._rows = {}
        for row, (token, position, slot) in enumerate(rows):
            cells = self.cells[int(slot)]
            assert len(cells) == position, f"gap in slot {slot}: {len(cells)} != {position}"
            cells.append([int(token)])
            if batch.outputs[row]:
                self._rows[row] = [held for (held,) in cells]
        self.rows_computed += len(rows)
        self.now += 1 + self.per_row * len(rows)
        self.batch_sizes.append(batch.size)

    def make_sampler(self, request: Request) -> Any:
        """Anything; only its release is counted."""
        self.live_samplers += 1
        return request.id

    def sample(self, row: int, sampler: Any) -> int:
        """The token that follows what the row's slot holds."""
        return next_token(self._rows[row], self.vocab_size, self.memory)

    def logits(self, row: int) -> np.ndarray:
        """One-hot of the next token."""
        logits = np.zeros(self.vocab_size, np.float32)
        logits[next_token(self._rows[row], self.vocab_size, self.memory)] = 5
        return logits

    def free_sampler(self, sampler: Any) -> None:
        """Count the release."""
        self.live_samplers -= 1

    def drop(self, slot: int, start: int = 0) -> bool:
        """Cut the slot's cells."""
        assert self.cuts_tails or start in (0, len(self.cells[slot]))
        del self.cells[slot][start:]
        return True

    def holds(self, slot: int, begin: int, stop: int) -> bool:
        """Nothing gets lost here."""
        return True

    def share(self, source: int, target: int, begin: int, stop: int) -> None:
        """Put the source's cells into the target too."""
        assert self.cuts_tails
        assert len(self.cells[target]) == begin
        assert len(self.cells[source]) >= stop
        self.cells[target] += self.cells[source][begin:stop]

    @property
    def num_used(self) -> int:
        """Distinct cells in all slots."""
        return len({id(cell) for cells in self.cells.values() for cell in cells})

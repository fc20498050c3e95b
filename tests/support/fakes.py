"""A backend without a model: the next token is a fixed function of all tokens before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from worker.cache.state import BLOCK, Parts, SlotState
from worker.engine.backend import Batch, BatchError, CacheShape, Kernels, OutOfCells, OutputRow
from worker.engine.request import Request, Resumption

END = 0


def next_token(
    tokens: list[int], vocab_size: int, memory: int | None = None, key: bytes = b""
) -> int:
    """What follows `tokens` (or the last `memory` of them); token 0 (the end) now and then."""
    tokens = tokens[-memory:] if memory else tokens
    state = 1469598103934665603
    for token in (*key, *tokens):
        state = ((state ^ token) * 1099511628211) % 2**64
    return (state >> 17) % vocab_size


def continuation(
    prompt: list[int],
    count: int,
    vocab_size: int,
    memory: int | None = None,
    key: bytes = b"",
    forces: int = 0,
) -> list[int]:
    """What a request gets when nobody else runs: up to `count` tokens, ending with END."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < count:
        tokens.append(next_token(tokens, vocab_size, memory, key))
        if tokens[-1] == END:
            break
        tokens += forced(tokens[-1], forces)
    return tokens[len(prompt) : len(prompt) + count]


def forced(token: int, forces: int) -> list[int]:
    """What must follow a token that was chosen: nothing but behind one of `forces`."""
    return [1 + (token + n) % 40 for n in range(token % 7)] if forces and not token % forces else []


_ROW_BYTES = 8  # of a token in a copied state
_KEY = 100_003  # what a row of each next key has more than one of the key before

# A KV cell: the token that it was computed from, and the number of the key with which it was.
# Slots that share a prefix hold the same object.
Cell = list[int]
# The same where what it holds is gone.
LostCell = tuple[int, int]


class FakeBackend:
    """Keeps the cache itself and refuses what llama.cpp would refuse.

    cuts_tails: False plays a recurrent state: it belongs to exactly the tokens that were computed,
        `drop` of a part does nothing and `share` gives the whole state, as in llama.cpp
    has_rows: False: all layers are recurrent, a copied state has a rest only
    window:   a token looks at this many last tokens, itself included. Each row that is computed
        takes the place of one cell that lies behind the window of a slot, the oldest first, so
        `holds` is soon False for a long sequence's beginning; None plays full attention
    takes_back: rows at the end of what was computed last that `drop` takes back all the same, if
        all sequences had as many
    one_prompt: in the unified layout, refuse more than one row of more than one sequence in a batch
    memory:   how many last tokens decide the next one; a small number makes text that repeats
    streams:  whether each slot can have cells of its own, as is the layout at first
    forces:   one of so many tokens has others that must follow it, see `forced`; 0: none has
    failures: for each coming decode, what it raises instead of computing (None: nothing)
    poison:   a token whose presence in a batch makes it fail for good
    per_row:  seconds that a row adds to a step's 1 second; `now` is the time
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
        takes_back: int = 0,
        has_rows: bool = True,
        window: int | None = None,
        one_prompt: bool = False,
        memory: int | None = None,
        per_row: float = 0.01,
        mixed_rows: int | None = None,
        fewest: int = 0,
        forces: int = 0,
        streams: bool = False,
    ) -> None:
        self.num_cells = num_cells
        self.num_slots = num_slots
        self.stream_cells = num_cells // num_slots if streams and num_slots > 1 else 0
        self.unified = not self.stream_cells
        self.needs_rest = window is not None or not cuts_tails
        self.cuts_tails = cuts_tails
        self.takes_back = capacity if cuts_tails else takes_back
        self.shape = CacheShape(
            num_cells=num_cells,
            stream_cells=self.stream_cells,
            num_slots=num_slots,
            cuts_tails=cuts_tails,
            takes_back=self.takes_back,
            needs_rest=self.needs_rest,
            one_prompt=one_prompt,
        )
        self.keys: list[bytes] = [b""]  # those that were computed with, by number
        self._fresh: dict[int, int] = {}  # slot -> rows that can be taken back, once
        self.row_bytes = _ROW_BYTES if has_rows else 0
        self.window = window
        self.kernels = Kernels(fewest=fewest, mixed=mixed_rows or capacity)
        self.memory = min(memory or window, window) if window else memory
        self.per_row = per_row
        self.now = 0.0
        self.max_length = num_cells
        self.vocab_size = vocab_size
        self.batch = Batch(capacity, max_outputs)
        self.end_tokens = frozenset({END})
        self.pieces = [b""] + [bytes([96 + token % 26]) for token in range(1, vocab_size)]
        self.poison = poison
        self.failures: list[type[Exception] | None] = []
        # slot -> the cell of each position; where it was lost behind the window only the token
        self.cells: dict[int, list[Cell | LostCell]] = {slot: [] for slot in range(num_slots)}
        self.rows_computed = 0
        self.batch_sizes: list[int] = []
        self.num_arranged = 0
        self.live_samplers = 0
        self.forces = forces
        self._chosen: dict[Any, int] = {}  # sampler -> its newest token
        self._banned: dict[Any, tuple[int, ...]] = {}  # sampler -> what must not come next
        self._next_tokens: dict[int, int] = {}
        self._scratch = np.zeros((num_cells, 2), np.int32)  # what `save` gives lies here
        self._broken: set[int] = set()  # slots of a batch that failed, until they are dropped

    def decode(self) -> None:
        """Compute the batch, or raise the next planned failure."""
        batch = self.batch
        assert 0 < batch.size <= batch.capacity
        assert int(batch.outputs[: batch.size].sum()) <= batch.max_outputs
        planned = self.failures.pop(0) if self.failures else None
        rows = list(zip(batch.tokens, batch.positions, batch.slots, strict=True))[: batch.size]
        if self.unified and self.shape.one_prompt:
            runs = Counter(int(slot) for _, _, slot in rows)
            assert sum(count > 1 for count in runs.values()) <= 1
        if planned is OutOfCells or self.num_used + len(rows) > self.num_cells:
            raise OutOfCells
        slots = {int(slot) for _, _, slot in rows}
        if not self.unified:
            assert sorted(batch.slots[: batch.size]) == batch.slots[: batch.size].tolist()
            for slot, count in Counter(int(slot) for _, _, slot in rows).items():
                if len(self.cells[slot]) + count > self.stream_cells:
                    raise OutOfCells
        assert not slots & self._broken, "a slot of a failed batch goes on"
        if planned is BatchError or self.poison in batch.tokens[: batch.size]:
            self._broken |= slots
            raise BatchError("planned")
        self._lose(len(rows))
        self._next_tokens = {}
        if batch.key not in self.keys:
            self.keys.append(batch.key)
        key = self.keys.index(batch.key)
        for row, (token, position, slot) in enumerate(rows):
            cells = self.cells[int(slot)]
            assert len(cells) == position, f"gap in slot {slot}: {len(cells)} != {position}"
            cells.append([int(token), key])
            seen = cells[-self.window :] if self.window else cells
            assert _all_there(seen), f"position {position} of slot {slot} looks at a lost cell"
            if batch.outputs[row]:
                keys = [cell[1] for cell in cells]
                begin = keys.count(0) if key else 0
                assert keys[begin:] == [key] * (len(keys) - begin), "a row looks at another key"
                self._next_tokens[row] = next_token(
                    _tokens(seen), self.vocab_size, self.memory, batch.key + bytes([begin][:begin])
                )
        counts = Counter(int(slot) for _, _, slot in rows)
        # Runs of other lengths are computed apart, and states before the last ones are lost.
        is_kept = self.cuts_tails or len(set(counts.values())) == 1
        self._fresh |= {slot: min(n - 1, self.takes_back) * is_kept for slot, n in counts.items()}
        self.rows_computed += len(rows)
        self.now += 1 + self.per_row * len(rows)
        self.batch_sizes.append(batch.size)

    def _lose(self, count: int) -> None:
        """Give up to `count` cells that no coming token looks at to the rows of this batch."""
        if not self.window:
            return
        for cells in self.cells.values():
            for position in range(len(cells) - self.window + 1):
                cell = cells[position]
                if isinstance(cell, list) and count:
                    cells[position] = cell[0], cell[1]
                    count -= 1

    def make_sampler(self, request: Request, resumption: Resumption | None = None) -> Any:
        """Anything; only its release is counted, and what it must not choose next."""
        self.live_samplers += 1
        self._banned[request.id] = () if resumption is None else resumption.banned
        return request.id

    def sample(self, row: OutputRow, sampler: Any) -> int:
        """The token that follows what the row's slot holds."""
        banned = self._banned.pop(sampler, ())
        token = int(row.argmax()) if isinstance(row, np.ndarray) else self._next_tokens[row]
        while token in banned:
            token = (token + 1) % self.vocab_size
        self._chosen[sampler] = token
        return token

    def logits(self, row: OutputRow, drawn_by: Any = None) -> np.ndarray:
        """One-hot of the next token."""
        if isinstance(row, np.ndarray):
            return row
        logits = np.zeros(self.vocab_size, np.float32)
        logits[self._next_tokens[row]] = 5
        return logits

    def ahead(self, sampler: Any) -> list[int]:
        """What must follow the newest one that was chosen."""
        return forced(self._chosen[sampler], self.forces)

    def cut(self, sampler: Any) -> bool:
        """No answer has such a part."""
        return sampler is None

    def free_sampler(self, sampler: Any) -> None:
        """Count the release."""
        self.live_samplers -= 1

    def drop(self, slot: int, start: int = 0) -> bool:
        """Cut the slot's cells; a state that cannot be cut stays as it is."""
        surplus = len(self.cells[slot]) - start
        if not self.cuts_tails and start and surplus > max(0, self._fresh.pop(slot, 0)):
            return False
        del self.cells[slot][start:]
        if not start:
            self._broken.discard(slot)
        return True

    def holds(self, slot: int, begin: int, stop: int) -> bool:
        """Whether all cells from `begin` on are there, or from 0 those that `stop` looks at."""
        reach = stop - self.window + 1 if self.window else 0
        return _all_there(self.cells[slot][begin or max(0, reach) : stop])

    def share(self, source: int, target: int, stop: int) -> bool:
        """Put the source's cells into the target too; copies where llama.cpp copies."""
        given = self.cells[source]
        assert not {source, target} & self._broken, "a slot of a failed batch is shared"
        assert not self.cells[target]
        assert len(given) >= stop
        if self.unified and self.cuts_tails:
            self.cells[target] = given[:stop]
        else:
            assert len(given) == stop or not self.needs_rest
            self.cells[target] = _copy(given[:stop])
        return True

    def arrange(self, *, unified: bool, slots: Sequence[int]) -> set[int]:
        """Keep copies of these slots in another layout; fail, or lose the first one, as planned."""
        assert self.unified != unified
        assert unified or self.stream_cells
        planned = self.failures.pop(0) if self.failures else None
        kept = set(slots[planned is OutOfCells :]) if planned is not BatchError else set[int]()
        self.num_arranged += 1
        self._broken = set()
        for slot, cells in self.cells.items():
            self.cells[slot] = _copy(cells) if slot in kept else []
        if planned is BatchError:
            raise BatchError("planned")
        self.unified = unified
        return kept

    def save(self, slot: int) -> SlotState | None:
        """What the slot holds; cells behind the window are not in it."""
        assert slot not in self._broken
        return FakeState(self, self.cells[slot], self._scratch)

    def rest(self) -> None: ...

    def restore(self, slot: int, parts: Parts, rest: np.ndarray | None) -> bool:
        """Put a state into the slot; rows and rest must be those of one sequence of tokens."""
        count = sum(count for _, count in parts)
        assert all(count <= BLOCK for _, count in parts)
        assert (rest is not None) == self.needs_rest
        packed = [rows.view(np.int32).reshape(-1, 2)[:count] for rows, count in parts]
        held = rest.view(np.int32).reshape(-1, 2) if rest is not None else np.concatenate(packed)
        rows = np.concatenate(packed) if self.row_bytes else held
        tokens = rows[:, 0].tolist()
        assert len(tokens) == count
        keys = (rows[:, 1] // _KEY).tolist()
        assert np.array_equal(rows, _rows(tokens, keys)), "rows of other tokens"
        assert np.array_equal(held, rows[count - len(held) :]), "a rest of other tokens"
        lost, cells = count - len(held), list(zip(tokens, keys, strict=True))
        self.cells[slot] = [*cells[:lost], *map(list, cells[lost:])]
        self._broken.discard(slot)
        return True

    def tokens(self, slot: int) -> list[int]:
        """The tokens that the slot's cells were computed from."""
        return _tokens(self.cells[slot])

    @property
    def num_used(self) -> int:
        """Distinct cells in all slots."""
        held = (cell for cells in self.cells.values() for cell in cells)
        return len({id(cell) for cell in held if isinstance(cell, list)})


class FakeState:
    """What `FakeBackend.save` gives: rows of tokens; those in reach of the next are the rest."""

    def __init__(
        self, backend: FakeBackend, cells: list[Cell | LostCell], scratch: np.ndarray
    ) -> None:
        self.num_tokens = len(cells)
        self._rows = scratch[: len(cells)]
        self._rows[:] = _rows(_tokens(cells), [cell[1] for cell in cells])
        self._has_rows = backend.row_bytes > 0
        self.rest: np.ndarray | None = None
        if backend.shape.needs_rest:
            reach = backend.window if backend.window and backend.shape.cuts_tails else len(cells)
            lost = [place for place, cell in enumerate(cells) if not isinstance(cell, list)]
            first = max(len(cells) - reach, *(place + 1 for place in lost), 0, 0)
            self.rest = self._rows[first:].reshape(-1).view(np.uint8)

    def rows(self, begin: int, stop: int) -> np.ndarray:
        """The rows of the tokens at these positions."""
        stop = stop if self._has_rows else begin
        return self._rows[begin:stop].reshape(-1).view(np.uint8).copy()


def _rows(tokens: list[int], keys: list[int]) -> np.ndarray:
    """What a model computes of each token depends on all before it, and on its key; int32
    [tokens, 2]."""
    rows = np.empty((len(tokens), 2), np.int32)
    known = 0
    for place, (token, key) in enumerate(zip(tokens, keys, strict=True)):
        known = (known * 1_000_003 + token + 1) % _KEY
        rows[place] = token, known + key * _KEY
    return rows


def _all_there(cells: list[Cell | LostCell]) -> bool:
    return all(isinstance(cell, list) for cell in cells)


def _tokens(cells: list[Cell | LostCell]) -> list[int]:
    return [cell[0] for cell in cells]


def _copy(cells: list[Cell | LostCell]) -> list[Cell | LostCell]:
    return [list(cell) if isinstance(cell, list) else cell for cell in cells]

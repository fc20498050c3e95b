"""What the engine needs from below; `llama/backend.py` implements it, tests fake it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy as np

from worker.cache.state import Parts, SlotState
from worker.engine.request import Medium, Request, Resumption
from worker.errors import DecodeError


class Batch:
    """Up to `capacity` rows, one token each; only the first `size` rows count.

    max_outputs  rows whose logits one batch may ask for
    key          of the prompts whose rows these are, see `Prompt`
    vectors      of a medium, in the place of the tokens of all rows, float32 [size, width]; None:
                 the rows are tokens
    planes       with them, positions where the model has M-RoPE, int32 [4, size]
    is_causal    False: each of them looks at all

    Arrays, all of shape [capacity]:
        tokens     int32  token id
        positions  int32  place in its sequence, from 0
        slots      int32  the KV cache's sequence id
        outputs    int8   1 where the row's logits are wanted

    Slices fill all rows at once; llama.cpp's own struct would be filled field by field.
    """

    def __init__(self, capacity: int, max_outputs: int | None = None) -> None:
        self.capacity = capacity
        self.max_outputs = capacity if max_outputs is None else max_outputs
        self.size = 0
        self.key = b""
        self.vectors: np.ndarray | None = None
        self.planes: np.ndarray | None = None
        self.is_causal = True
        self.tokens = np.zeros(capacity, np.int32)
        self.positions = np.zeros(capacity, np.int32)
        self.slots = np.zeros(capacity, np.int32)
        self.outputs = np.zeros(capacity, np.int8)

    def clear(self) -> None:
        self.size = 0
        self.vectors = self.planes = None
        self.is_causal = True

    def add(self, tokens: np.ndarray, start: int, slot: int) -> int:
        """Append a run of tokens at positions from `start`; returns the run's first row.

        No row is an output until `outputs` says so.
        tokens: int32 [n]
        """
        first, last = self.size, self.size + len(tokens)
        self.tokens[first:last] = tokens
        self.positions[first:last] = np.arange(start, start + len(tokens))
        self.slots[first:last] = slot
        self.outputs[first:last] = 0
        self.size = last
        return first

    def add_medium(self, medium: Medium, first: int, begin: int, stop: int, slot: int) -> None:
        """Vectors of a medium from the place `begin` of its prompt to `stop`, in a batch that holds
        nothing else. first: the position of its first vector"""
        self.size = count = stop - begin
        self.vectors = medium.vectors[begin - medium.start : stop - medium.start]
        positions = medium.positions_from(first, begin, stop)
        if positions.ndim > 1:
            self.planes = np.ascontiguousarray(positions)
            positions = positions[0]
        self.positions[:count] = positions
        self.slots[:count] = slot
        self.outputs[:count] = 0
        self.is_causal = medium.is_causal

    def add_one(self, token: int, position: int, slot: int) -> int:
        """Append one token whose logits are wanted; returns its row."""
        row = self.size
        self.tokens[row] = token
        self.positions[row] = position
        self.slots[row] = slot
        self.outputs[row] = 1
        self.size = row + 1
        return row


class Kernels(msgspec.Struct, frozen=True):
    """In which numbers of rows the backend computes well, decided before it runs.

    block   rows that a multiplication with the weights computes at once
    fewest  a step of one row each is filled up to `block` from so many rows on; 0: never
    tile    rows of one prompt that attention computes at once
    mixed   rows that several sequences share a step with at most in the unified layout; in a step
            of more rows each row is computed against the cells of all sequences
    few     rows of one sequence that give the same bits as in steps of a row of several sequences
    lone    from this position on a row with a step of its own gives other bits than among others
    piece   rows of prompts in a step for which nobody waits
    wide    so many rows of one sequence in a step, or more, give the same bits however its tokens
            are divided into steps, if each step but the last is a multiple of `block`
    whole   a request that runs alone takes a multiple of so many known tokens, see `Prefixes`
    cell_s  seconds to fill or to copy what one cell holds
    """

    block: int = 16
    fewest: int = 0
    tile: int = 64
    mixed: int = 512
    few: int = 48
    lone: int = 1 << 30
    piece: int = 512
    wide: int = 0
    whole: int = 1
    cell_s: float = 8e-6

    def num_padding(self, rows: int) -> int:
        """Rows that fill a step of so many sequences up, where that takes less time."""
        return self.block - rows if 0 < self.fewest <= rows < self.block else 0

    def piece_of(self, missing: int, rows: int) -> int:
        """Rows of the coming step for a prompt that misses so many, of at most `rows`: what it
        leaves to the last step is wide."""
        if rows < missing < rows + self.wide and rows >= 2 * self.wide:
            rows = missing - self.wide
            return rows - rows % self.block
        return min(missing, rows)

    def start(self, known: int, length: int, num_wide: int) -> int:
        """After how many of the `known` tokens a prompt of `length` is gone on with in wide steps:
        as if nobody knew any. num_wide: of these, as far as wide steps computed them"""
        if known > length or (known == length <= num_wide) or length < self.tile:
            return known  # rows of less than a tile are computed like single ones
        known = max(0, min(known, num_wide, length - self.wide))
        return known - known % self.whole

    def is_whole(self, length: int, num_wide: int) -> bool:
        """Whether so many first tokens have the bits of wide steps. num_wide: see `start`"""
        return num_wide >= length or length < self.tile


USUAL_KERNELS = Kernels()


class CacheShape(msgspec.Struct, frozen=True, kw_only=True):
    """What the KV cache holds, and what can be done with it.

    num_cells     cells of the unified layout
    stream_cells  cells of each slot in the layout of streams; 0: there is no such layout
    num_slots     sequences that can be resident, running or cached
    cuts_tails    whether a part of a sequence can be dropped or shared; not so where a layer
                  keeps one state instead of cells (recurrent and hybrid models)
    takes_back    rows at the end of what was computed last that `drop` can take back; of any tail
                  where tails can be cut
    needs_rest    whether a state has parts that belong to all its tokens together; such a state
                  is of use only as it was saved (recurrent and hybrid models, sliding windows)
    one_prompt    whether a batch of the unified layout must not hold more than one row of more than
                  one sequence
    num_ends      prompts behind which the logits are kept
    """

    num_cells: int
    stream_cells: int
    num_slots: int
    cuts_tails: bool
    takes_back: int
    needs_rest: bool
    one_prompt: bool = False
    num_ends: int = 8


# Of the batch that was computed last, or logits that were kept, float32 [vocab_size].
OutputRow = int | np.ndarray


class OutOfCells(Exception):  # noqa: N818  (a condition to react to, not an error to report)
    """No room in the KV cache for this batch; nothing was computed and nothing changed."""


class BatchError(DecodeError):
    """The batch failed for good; cells of the sequences in it are in an unknown state."""


class Backend(Protocol):
    """One model with one KV cache. All calls come from one thread; `decode` blocks, others do not.

    unified        the layout of the KV cache now: one pool of cells for all slots, in which a row
                   looks at everybody's cells; or streams, a number of cells for each slot
    kernels        in which numbers of rows it computes well
    max_length     longest sequence
    vocab_size     width of a row of logits
    batch          the rows of the next decode, filled by the engine
    end_tokens     ids that end a generation
    pieces         token id -> bytes as shown to a client; control tokens are empty
    """

    shape: CacheShape
    kernels: Kernels
    max_length: int
    vocab_size: int
    batch: Batch
    end_tokens: frozenset[int]

    @property
    def pieces(self) -> Sequence[bytes]: ...

    @property
    def unified(self) -> bool: ...

    def decode(self) -> None:
        """Compute the batch. Raises OutOfCells (nothing changed) or BatchError."""
        ...

    def make_sampler(self, request: Request, resumption: Resumption | None = None) -> Any:
        """A sampler for one sequence, with its own random state. Raises RequestError."""
        ...

    def sample(self, row: OutputRow, sampler: Any) -> int:
        """Choose from the logits of a row and tell the sampler; a token id.

        Raises RequestError when the request's own rules leave nothing to choose.
        """
        ...

    def ahead(self, sampler: Any) -> list[int]:
        """Tokens that must come next, whatever the model says; they are accepted.

        Raises RequestError as `sample` does.
        """
        ...

    def cut(self, sampler: Any) -> bool:
        """End the part of the answer that its `SpanLimit` bounds: whether one is being written."""
        ...

    def logits(self, row: OutputRow, drawn_by: Any = None) -> np.ndarray:
        """The raw logits of a row, float32 [vocab_size]; valid until the next decode.

        drawn_by: a sampler with `as_drawn` that has just chosen from the row; what it left of them
        """
        ...

    def free_sampler(self, sampler: Any) -> None:
        """Release a sampler; it must not be used again."""
        ...

    def drop(self, slot: int, start: int = 0) -> bool:
        """Free the slot's cells from position `start`; False where a tail cannot be dropped."""
        ...

    def holds(self, slot: int, begin: int, stop: int) -> bool:
        """Whether `share` of these positions leaves no gap in a target with those before `begin`.

        Cells behind a slot's sliding window vanish, the oldest first. For `begin` 0 that is no
        gap where a token at `stop` does not look at them; otherwise all from `begin` on must be
        there, because what a slot holds has to be contiguous.
        """
        ...

    def share(self, source: int, target: int, stop: int) -> bool:
        """Give the empty slot `target` what `source` holds of the positions before `stop`.

        In the unified layout both have the same cells afterwards; streams, and states that cannot
        be cut, are copied. False where that failed: `target` is empty.
        """
        ...

    def arrange(self, *, unified: bool, slots: Sequence[int]) -> set[int]:
        """Make the cache anew in this layout. Only states of `slots` are there afterwards.

        Returns the slots whose state was kept; there may be no memory to copy all. Raises
        BatchError where the layout is as it was, and all slots are empty.
        """
        ...

    def save(self, slot: int) -> SlotState | None:
        """A copy of what the slot holds, valid until the next call; None where it failed."""
        ...

    def restore(self, slot: int, parts: Parts, rest: np.ndarray | None) -> bool:
        """Put a state into a slot instead of what it holds; False: it is empty now."""
        ...

    def rest(self) -> None:
        """Give back the memory that copies took: nobody asks."""
        ...

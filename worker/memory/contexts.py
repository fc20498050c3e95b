"""What llama.cpp allocates for a context: how it is asked, and what follows from its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from worker.memory.embedding import EmbeddingShape
from worker.settings import Settings

# llama.cpp rounds a context up to this many cells.
CELL_STEP = 256
# Rows of a batch that a prompt may ask logits for at once, beside one of each sequence.
CHUNK_OUTPUTS = 64
# Rows of prompts in a step on a CPU. Whoever comes while a prompt is read alone, leaves or stops
# the worker waits for the end of such a piece: 128 rows of a Llama-1B take 0.5 s after 0 tokens and
# 2 s after 4,096 (2 cores).
PIECE_ROWS = 128
# Of logits behind whole prompts, which are kept; those of one prompt at least.
_ENDS_BYTES = 8 << 20
# It is not asked of more cells, for each of which llama.cpp takes memory even then. Beyond them
# the buffers grow in proportion. It prints sizes in steps of 10 KiB, which is little of so many.
_MOST_ASKED = 1 << 18


class ContextBytes(NamedTuple):
    """Bytes that llama.cpp allocates for a context: cells, recurrent states, compute buffers."""

    kv: int
    recurrent: int
    compute: int


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A context.

    unified        one pool of cells; else each slot has its own, as far as there are enough
    chunk_outputs, states_kept  see `ContextOptions`
    shape          of a context for vectors
    beside         of what guesses tokens: the draft model, or the model's heads
    """

    settings: Settings
    num_cells: int
    unified: bool = True
    chunk_outputs: int = CHUNK_OUTPUTS
    states_kept: int = 0
    shape: EmbeddingShape | None = None
    beside: bool = False


AskBuffers = Callable[[Wanted], ContextBytes]
"""Says what a context takes."""

AskPlaces = Callable[[Wanted, int], Mapping[str, int]]
"""Says what the compute buffers of a context take on each device, with so many layers on GPUs."""


def remember(ask: AskBuffers) -> AskBuffers:
    """The same, asked once of each size, and of none that takes memory."""
    known: dict[tuple[object, ...], ContextBytes] = {}

    def ask_once(wanted: Wanted, num_cells: int) -> ContextBytes:
        given, wanted = wanted.settings, msgspec.structs.replace(wanted, num_cells=num_cells)
        key = (
            given.slots, given.batch_size, given.ubatch_size, given.flash_attn, given.uses_heads,
            *msgspec.structs.astuple(wanted)[1:],
        )  # fmt: skip
        if key not in known:
            known[key] = ask(wanted)
        return known[key]

    def ask_about(wanted: Wanted) -> ContextBytes:
        cells, few = wanted.num_cells, _MOST_ASKED // 2
        if wanted.shape is not None or cells <= _MOST_ASKED:
            return ask_once(wanted, cells)
        pairs = zip(ask_once(wanted, few), ask_once(wanted, _MOST_ASKED), strict=True)
        return ContextBytes(
            *(much + (much - less) * (cells - _MOST_ASKED) // few for less, much in pairs)
        )

    return ask_about


def cell_bytes(ask: AskBuffers, settings: Settings) -> int:
    """Bytes of one cell over all layers that have some: an even number in each type of cells."""
    kv = ask(Wanted(settings=settings, num_cells=_MOST_ASKED)).kv
    return 2 * round(kv / _MOST_ASKED / 2)


def vector_contexts(settings: Settings, shape: EmbeddingShape) -> tuple[Wanted, ...]:
    """The context for vectors, and a second one for short texts if there is one."""
    whole = Wanted(settings=settings, num_cells=shape.cells, shape=shape)
    if not (rows := shape.short_rows):
        return (whole,)
    short = msgspec.structs.replace(
        shape, rows=rows, cells=rows, inputs=min(shape.inputs, rows), flash_attn="off"
    )
    return whole, Wanted(settings=settings, num_cells=rows, shape=short)


def vector_bytes(ask: AskBuffers, settings: Settings, shape: EmbeddingShape) -> ContextBytes:
    """Of the context for vectors, and the compute buffers of the second one."""
    found, *more = map(ask, vector_contexts(settings, shape))
    return found._replace(compute=found.compute + sum(each.compute for each in more))


def num_ends(vocab_size: int) -> int:
    """Prompts behind which the logits are kept."""
    return max(1, _ENDS_BYTES // (4 * vocab_size))


def whole_cells(num_cells: int) -> int:
    """So many cells, or as many more as llama.cpp makes of them."""
    return -(-num_cells // CELL_STEP) * CELL_STEP


def own_cells(num_cells: int, slots: int) -> int:
    """Cells of each slot while it has its own."""
    return num_cells // slots // CELL_STEP * CELL_STEP or num_cells

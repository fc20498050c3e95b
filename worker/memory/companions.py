"""What it takes beside the model: a draft model or MTP heads tokens, adapters."""

from __future__ import annotations

from collections.abc import Iterable

from worker.machine import PackedEncoding
from worker.memory.contexts import CHUNK_OUTPUTS, ContextBytes
from worker.memory.weights import weights_bytes
from worker.model.adapter import AdapterConfig
from worker.model.config import ModelConfig
from worker.model.drafts import can_forget
from worker.settings import Settings

# Resident for each matrix; of one to eight adapters of 42 to 168 matrices it was 6,200 to 9,000.
_GRAPH_BYTES = 7_000
# For adapters that are loaded while the worker serves, where nothing else is said.
_ROOM_MIB = 256
# Its entries in llama.cpp's vocabulary; the table of pieces is the other model's.
_TOKEN_BYTES = 240
# Tokens that heads guess at once, at most. Their next batch has a row for each that was right, and
# one more; and a model with recurrent states keeps that many states of the rows before the last.
HEAD_LENGTH = 3
HEAD_OUTPUTS = HEAD_LENGTH + 1
# The same of an EAGLE-3 drafter, which is trained to go on; and rows that it encodes at once, at
# least, for each of which llama.cpp has room for logits.
EAGLE_LENGTH = 7
ENCODED_ROWS = 32
LENDER_CELLS = 256
# Sequences whose blocks a DFlash drafter guesses at once: each row has logits of all tokens.
_BLOCKS = 4
# The same of an assistant. Each token costs it a pass through a few small layers.
ASSISTANT_LENGTH = 7
# Rows of a sequence whose hidden states wait for it, at most: those of a guess copied from text.
_WAITING_ROWS = 64
# Tokens that are guessed at once without heads, where a recurrent model keeps the states before
# them; where these are small, and where they are not.
_COPY_LENGTH, _SHORT_COPY_LENGTH = 15, 3
# A step reads all weights. A state of this share of them hardly counts: that of short convolutions
# is 0.04 %, that of delta nets 2 to 4 %, and a step with three of them took 4 to 12 % longer.
_SMALL_STATE = 0.005


def num_states_kept(config: ModelConfig, settings: Settings, nbytes: int) -> int:
    """States that each sequence of a recurrent model keeps beside the last one, so that as many
    wrong guesses can be dropped; 0: none, which goes for models with cells only too.

    Without an option guesses are copied only where the states are small.

    nbytes: of the state of one sequence
    """
    if config.recurrent is None or not can_forget(config) or config.only_embeds:
        return 0
    if settings.uses_heads:
        wanted = HEAD_LENGTH
    elif settings.guesses == "none":
        wanted = 0
    elif nbytes <= _SMALL_STATE * config.size_bytes:
        wanted = _COPY_LENGTH
    else:
        is_asked = settings.guesses != "auto" or settings.draft_model
        wanted = _SHORT_COPY_LENGTH if is_asked else 0
    # llama.cpp computes the rows behind these states, and one more at least, in one part.
    return max(0, min(wanted, settings.ubatch_size - 2, settings.batch_size - 2))


def room_bytes(settings: Settings) -> int:
    """Bytes for adapters that are loaded while the worker serves."""
    if not settings.lora_dir:
        return 0
    return (_ROOM_MIB if settings.lora_memory is None else settings.lora_memory) << 20


def adapters_bytes(adapters: Iterable[AdapterConfig]) -> int:
    """Bytes of their matrices, and of graphs with room for all of them. A step with adapters needs
    no larger compute buffer: its most is elsewhere, by llama.cpp's own word."""
    return sum(each.size_bytes + _GRAPH_BYTES * each.matrices for each in adapters)


def draft_bytes(
    draft: ModelConfig, settings: Settings, context: ContextBytes, packed: Iterable[PackedEncoding]
) -> int:
    """Bytes of its weights, context, one row of logits a sequence, vocabulary."""
    return (
        weights_bytes(draft, packed)
        + sum(context)
        + 4 * draft.vocab_size * settings.slots
        + draft.vocab_size * _TOKEN_BYTES
    )


def eagle_outputs(slots: int) -> int:
    """Rows with logits or encoded states that one batch of an EAGLE-3 drafter may have."""
    return max((EAGLE_LENGTH + 1) * slots, ENCODED_ROWS)


def eagle_bytes(
    draft: ModelConfig,
    settings: Settings,
    num_cells: int,
    context: ContextBytes,
    packed: Iterable[PackedEncoding],
) -> int:
    """Bytes of an EAGLE-3 drafter, without a context that lends it the model's embeddings.

    Its logits, as a draft model's. The model's hidden states wait as those of heads do; before they
    are encoded, for a batch twice, they are those of three layers. Its encoder is a matrix.
    """
    slots = settings.slots
    outputs = eagle_outputs(slots)
    batch = max(settings.batch_size, slots)
    raw = len(draft.target_layers) * draft.target_width
    return (
        weights_bytes(draft, packed)
        + sum(context)
        + 4 * outputs * (draft.vocab_size + draft.embedding + raw)
        + draft.vocab_size * _TOKEN_BYTES
        + 4 * draft.embedding * (num_cells + batch)
        + 4 * raw * (2 * batch + ENCODED_ROWS * slots)
    )


def block_rows(draft: ModelConfig, slots: int) -> int:
    """Rows of one batch of a DFlash drafter: blocks, or hidden states that it reads."""
    return max(draft.block_size * min(slots, _BLOCKS), slots, ENCODED_ROWS)


def dflash_bytes(
    draft: ModelConfig,
    settings: Settings,
    context: ContextBytes,
    packed: Iterable[PackedEncoding],
) -> int:
    """Bytes of a DFlash drafter, without a context that lends it the model's embeddings.

    All its rows have logits. The model's hidden states wait until there are as many as it reads at
    once; those of a batch are there twice.
    """
    slots = settings.slots
    rows, batch = block_rows(draft, slots), max(settings.batch_size, slots)
    raw = len(draft.target_layers) * draft.target_width
    return (
        weights_bytes(draft, packed)
        + sum(context)
        + 4 * rows * draft.vocab_size
        + draft.vocab_size * _TOKEN_BYTES
        + 4 * raw * (2 * batch + ENCODED_ROWS * slots + rows)
    )


def assistant_bytes(
    draft: ModelConfig, settings: Settings, context: ContextBytes, packed: Iterable[PackedEncoding]
) -> int:
    """Bytes of an assistant, which has no cells; the model's hidden states in rows with outputs are
    given by llama.cpp and wait for it."""
    slots = settings.slots
    states = (2 * slots * _WAITING_ROWS + CHUNK_OUTPUTS) * draft.target_width
    return draft_bytes(draft, settings, context, packed) + 4 * states


def heads_bytes(
    config: ModelConfig, settings: Settings, num_cells: int, context: ContextBytes
) -> int:
    """Bytes of the context and logits of MTP heads.

    The model's hidden states, 4 bytes an element, wait in host memory until the heads are asked:
    one for each cell, and those of a batch as llama.cpp gives them, and as the heads read them.
    Their weights count as the model's.
    """
    states = num_cells + 2 * max(settings.batch_size, settings.slots)
    return (
        sum(context)
        + 4 * config.vocab_size * settings.slots * HEAD_OUTPUTS
        + 4 * config.embedding * states
    )

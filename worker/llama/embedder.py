"""A context that gives vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from worker.engine.backend import BatchError
from worker.llama import library
from worker.llama.context import Context, ContextOptions
from worker.llama.library import native
from worker.llama.token_types import TokenTypes
from worker.llama.weights import Weights
from worker.memory.embedding import EmbeddingShape

# Fused attention sums in 32 bits where a step has so many rows, in 16 bits where it has fewer. So
# that a vector does not depend on what shares its step, with `auto` no step of it has fewer: rows
# of a text that nobody reads fill it up.
_TILE = 64
# An encoder's rows look at all others of their step, and a mask hides those of other texts: a step
# of 2,048 rows takes 1.3 times as long for each as one of 128. Each thread has a tile to compute.
_FEW_TILES = 2


def short_options(
    weights: Weights, options: ContextOptions, shape: EmbeddingShape
) -> ContextOptions | None:
    """Of a context beside one with these options, for steps of few rows; None: it has them all.

    Standard attention sums in 32 bits whatever the rows, so a vector is the same.
    """
    rows = shape.short_rows
    if not (rows and weights.residency.is_on_cpu):
        return None
    return msgspec.structs.replace(
        options,
        num_cells=rows,
        num_slots=min(options.num_slots, rows),
        chunk_outputs=rows,
        batch_size=rows,
        ubatch_size=rows,
        flash_attn="off",
    )


class LlamaEmbedder:
    """Implements `engine.embedding.EmbeddingBackend`. Whoever made the context closes it.

    contexts  all that it computes in
    shape     how large the first one is
    """

    def __init__(
        self, weights: Weights, context: Context, shape: EmbeddingShape, short: Context | None
    ) -> None:
        """context: of the purpose `vectors`, as large as the shape says

        short: the same with standard attention, for steps of as few rows as it has room for
        """
        self.context, self.shape = context, shape
        self.contexts: Sequence[Context] = (context,) if short is None else (context, short)
        self._last, self._num_short = context, 0
        if short is not None:
            self._num_short = short.batch.capacity
            short.share_batch(context)
        self.pooling, self.splits = shape.pooling, shape.splits
        self.batch = context.batch
        most = shape.step_rows
        if not shape.has_cells and weights.residency.is_on_cpu:
            most = min(most, _TILE * max(_FEW_TILES, context.threads_batch))
        self.step_rows = min(most, self.batch.capacity)
        self._fills = shape.fills
        self.max_inputs = min(shape.inputs, context.num_slots) - self._fills
        self.max_length = shape.length
        is_rank = shape.pooling == "rank"
        count = native.llama_model_n_cls_out if is_rank else native.llama_model_n_embd_out
        self.width = count(weights.handle)
        self._types = _token_types(weights) if is_rank else None

    def compute(self) -> np.ndarray:
        """Hidden states of the batch, float32 [rows, width], valid until the next step. Raises
        BatchError."""
        batch, rows = self.batch, self.batch.size
        self._last = self.contexts[rows <= self._num_short]
        if self._fills and self._num_short < rows < _TILE and batch.vectors is None:
            batch.add(np.zeros(_TILE - rows, np.int32), 0, self.max_inputs)
            batch.outputs[rows:_TILE] = 1
        if self._types is not None:
            some = slice(batch.size)
            batch.vectors = self._types.vectors(batch.tokens[some], batch.positions[some])
        self._last.decode()
        batch.size = rows
        found = native.llama_get_embeddings(self._last.handle)  # pyright: ignore
        if not found:
            raise BatchError("llama.cpp gave no vectors.")
        return library.floats(found, self.batch.size * self.width).reshape(-1, self.width)

    def scores(self, slots: Sequence[int]) -> np.ndarray:
        """What the classifier made of the slots' texts, float32 [slots, width]; after `compute`.
        Raises BatchError."""
        made = np.empty((len(slots), self.width), np.float32)
        for place, slot in enumerate(slots):
            found = native.llama_get_embeddings_seq(self._last.handle, slot)  # pyright: ignore
            if not found:
                raise BatchError("llama.cpp gave no score.")
            made[place] = library.floats(found, self.width)
        return made

    def forget(self, first: int) -> None:
        """Empty the slots from this one on."""
        if first == 0:
            self.context.clear()
            return
        for slot in range(first, self.max_inputs):
            self.context.drop(slot)


def _token_types(weights: Weights) -> TokenTypes | None:
    """Those of pairs; None: the model has one, or its tokenizer is not BERT's, which alone tells
    texts apart by it."""
    vocab = native.llama_model_get_vocab(weights.handle)
    if native.llama_vocab_type(vocab) != native.LLAMA_VOCAB_TYPE_WPM:  # pyright: ignore
        return None
    return TokenTypes.of(weights.files, native.llama_vocab_sep(vocab))  # pyright: ignore

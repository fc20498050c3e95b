"""A context that gives vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from worker.engine.backend import BatchError
from worker.llama import library
from worker.llama.context import Context
from worker.llama.library import native
from worker.llama.token_types import TokenTypes
from worker.llama.weights import Weights
from worker.memory.embedding import EmbeddingShape

# Fused attention sums in 32 bits where a step has so many rows, in 16 bits where it has fewer. So
# that a vector does not depend on what shares its step, with `auto` it has as many:
# rows of a text that nobody reads fill it up.
_TILE = 64


class LlamaEmbedder:
    """Implements `engine.embedding.EmbeddingBackend`. Whoever made the context closes it.

    shape   how large it is
    labels  what the outputs of a classifier mean; empty: it has one output
    """

    def __init__(self, weights: Weights, context: Context, shape: EmbeddingShape) -> None:
        """context: of the purpose `vectors`, as large as the shape says"""
        self.context, self.shape = context, shape
        self.pooling, self.splits = shape.pooling, shape.splits
        self.batch = context.batch
        self.step_rows = min(shape.step_rows, self.batch.capacity)
        self._fills = not shape.has_cells and shape.flash_attn == "auto"
        self.max_inputs = min(shape.inputs, context.num_slots) - self._fills
        self.max_length = shape.length
        is_rank = shape.pooling == "rank"
        count = native.llama_model_n_cls_out if is_rank else native.llama_model_n_embd_out
        self.width = count(weights.handle)
        self._types = _token_types(weights) if is_rank else None

    def compute(self) -> np.ndarray:
        """Hidden states of the batch, float32 [rows, width], valid until the next step."""
        batch, rows = self.batch, self.batch.size
        if self._fills and rows < _TILE:
            batch.add(np.zeros(_TILE - rows, np.int32), 0, self.max_inputs)
            batch.outputs[rows:_TILE] = 1
        if self._types is not None:
            some = slice(batch.size)
            batch.vectors = self._types.vectors(batch.tokens[some], batch.positions[some])
        self.context.decode()
        batch.size = rows
        found = native.llama_get_embeddings(self.context.handle)  # pyright: ignore
        if not found:
            raise BatchError("llama.cpp gave no vectors.")
        return library.floats(found, self.batch.size * self.width).reshape(-1, self.width)

    def scores(self, slots: Sequence[int]) -> np.ndarray:
        """What the classifier made of the slots' texts, float32 [slots, width]; after `compute`."""
        made = np.empty((len(slots), self.width), np.float32)
        for place, slot in enumerate(slots):
            found = native.llama_get_embeddings_seq(self.context.handle, slot)  # pyright: ignore
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

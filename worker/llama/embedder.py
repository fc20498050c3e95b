"""A context that gives vectors of texts."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from worker.engine.backend import BatchError
from worker.llama.context import Context
from worker.llama.library import native
from worker.llama.weights import Weights
from worker.memory.embedding import EmbeddingShape


class LlamaEmbedder:
    """Implements `engine.embedding.EmbeddingBackend`. A context manager; it closes the context.

    shape   how large it is
    labels  what the outputs of a classifier mean; empty: it has one output
    """

    def __init__(self, weights: Weights, context: Context, shape: EmbeddingShape) -> None:
        """context: of the purpose `vectors`, as large as the shape says"""
        self.context, self.shape = context, shape
        self.pooling, self.splits = shape.pooling, shape.splits
        self.batch = context.batch
        self.step_rows = min(shape.step_rows, self.batch.capacity)
        self.max_inputs = min(shape.inputs, context.num_slots)
        self.max_length = shape.length
        is_rank = shape.pooling == "rank"
        count = native.llama_model_n_cls_out if is_rank else native.llama_model_n_embd_out
        self.width = count(weights.handle)

    def compute(self) -> np.ndarray:
        """Hidden states of the batch, float32 [rows, width], valid until the next step."""
        self.context.decode()
        found = native.llama_get_embeddings(self.context.handle)  # pyright: ignore
        if not found:
            raise BatchError("llama.cpp gave no vectors.")
        return _array(found, self.batch.size * self.width).reshape(-1, self.width)

    def scores(self, slots: Sequence[int]) -> np.ndarray:
        """What the classifier made of the slots' texts, float32 [slots, width]; after `compute`."""
        made = np.empty((len(slots), self.width), np.float32)
        for place, slot in enumerate(slots):
            found = native.llama_get_embeddings_seq(self.context.handle, slot)  # pyright: ignore
            if not found:
                raise BatchError("llama.cpp gave no score.")
            made[place] = _array(found, self.width)
        return made

    def forget(self, first: int) -> None:
        """Empty the slots from this one on."""
        if first == 0:
            self.context.clear()
            return
        for slot in range(first, self.max_inputs):
            self.context.drop(slot)

    def __enter__(self) -> LlamaEmbedder:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


def _array(pointer: Any, count: int) -> np.ndarray:
    made: Any = (ctypes.c_float * count).from_address(ctypes.addressof(pointer.contents))
    return np.frombuffer(made, np.float32)

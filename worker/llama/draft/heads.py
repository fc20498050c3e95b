"""The model's own heads that guess its tokens, in a context beside the model's."""

from __future__ import annotations

import contextlib

import numpy as np
from msgspec.structs import replace

from worker.llama import hidden_states
from worker.llama.backend import LlamaBackend
from worker.llama.context import Context
from worker.llama.draft.companion import Companion
from worker.memory.draft import HEAD_OUTPUTS


class Heads(Companion):
    """Implements `engine.drafts.heads.HeadBackend`. Their weights are a part of the model's."""

    def __init__(self, backend: LlamaBackend) -> None:
        """Allocate the heads' cells, as many as the model has, whose heads were loaded too.

        Raises BackendError, DoesNotFitError.
        """
        beside, weights = backend.context, backend.weights
        options = replace(
            beside.options,
            num_slots=beside.num_slots,
            unified=True,
            chunk_outputs=(HEAD_OUTPUTS - 1) * beside.num_slots,
            threads=beside.threads,
            threads_batch=beside.threads_batch,
            purpose="heads",
        )
        with contextlib.ExitStack() as stack:
            context = stack.enter_context(Context(weights, options))
            super().__init__(context, stack.pop_all())
        self.layers = tuple(device for _, device in context.residency.layers)
        self.buffers = (*context.residency.kv_buffers, *context.residency.compute_buffers)
        self.max_length = backend.max_length
        self.max_waiting = context.num_cells
        self.vocab_size = weights.vocab_size
        self._beside = beside
        self._width = hidden_states.hidden_width(weights.handle)
        self.fed = context.feed(self._width)

    def hidden(self, row: int) -> np.ndarray:
        """The row's hidden state; all rows of its batch have outputs."""
        return hidden_states.hidden_rows(self.context.handle, row + 1, self._width)[row]

    def model_hidden(self, rows: int) -> np.ndarray:
        """The model's hidden states in the rows that it computed last."""
        return hidden_states.hidden_rows(self._beside.handle, rows, self._width)

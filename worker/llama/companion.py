"""A context beside the model's, which guesses what the model will sample: a draft model's, or
that of the model's own heads."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import numpy as np
from msgspec.structs import replace

from worker.errors import ModelLoadError
from worker.llama import hidden_states
from worker.llama.backend import LlamaBackend
from worker.llama.context import Context, ContextOptions
from worker.llama.library import native
from worker.llama.weights import LoadOptions, Weights
from worker.memory.companions import HEAD_OUTPUTS


class Companion:
    """What draft models and heads have in common. A context manager; close it before the model.

    Its cells are one pool, so that a beginning which several sequences have in common is there
    once, and one sequence can have all of them.

    layers   the device of each of its layers
    buffers  type of each buffer that it has for itself, and its bytes
    """

    layers: tuple[str, ...]
    buffers: tuple[tuple[str, int], ...]
    max_length: int
    vocab_size: int

    def __init__(self, context: Context, stack: contextlib.ExitStack) -> None:
        """`context` has as many compute threads as the model's, in the same thread: libgomp makes a
        new team for each other number. `stack` frees all that is its."""
        self.context = context
        self._stack = stack
        self.num_slots = context.num_slots
        self.batch = context.batch

    def decode(self) -> None:
        self.context.decode()

    def logits(self, row: int) -> np.ndarray:
        """The row's logits, float32 [vocab_size], valid until the next decode."""
        return self.context.logits(row)

    def drop(self, slot: int, start: int = 0) -> bool:
        """Free the slot's cells from position `start`."""
        return self.context.drop(slot, start)

    def holds(self, slot: int, begin: int, stop: int) -> bool:
        """Whether the slot still has all that a token at `stop` looks at from `begin` on."""
        return self.context.holds(slot, begin, stop)

    def share(self, source: int, target: int, stop: int) -> bool:
        """Give the empty slot `target` the cells of the source's first `stop` tokens too."""
        self.context.share(source, target, stop)
        return True

    def warm_up(self) -> None:
        """Decode a token in a thread that ends (see `LlamaBackend.warm_up`), then forget it."""
        self.batch.clear()
        self.batch.add_one(0, 0, 0)
        with ThreadPoolExecutor(1, thread_name_prefix="warm-up") as pool:
            pool.submit(self.decode).result()
        self.context.clear()

    def close(self) -> None:
        """Free what it has for itself; safe to call again."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
        self._width = native.llama_model_n_embd_out(weights.handle)
        self.fed = context.feed(self._width)

    def hidden_state(self, row: int) -> np.ndarray:
        """The row's hidden state, float32 [width]; all rows of its batch have outputs."""
        return hidden_states.hidden_rows(self.context.handle, row + 1, self._width)[row]

    def model_hidden_state(self, rows: int) -> np.ndarray:
        """The model's hidden states in the rows that it computed last, float32 [rows, width]."""
        return hidden_states.hidden_rows(self._beside.handle, rows, self._width)


class DraftModel(Companion):
    """Implements `engine.drafts.rounds.DraftBackend`."""

    def __init__(self, path: Path, load: LoadOptions, options: ContextOptions) -> None:
        """Load the model and allocate its cells.

        Raises ModelLoadError for a model that cannot go back to an earlier token, BackendError,
        DoesNotFitError.
        """
        with contextlib.ExitStack() as stack:
            self.weights = stack.enter_context(Weights(path, load))
            if self.weights.is_recurrent or not self.weights.generates:
                raise ModelLoadError(
                    f"{path.name} cannot draft tokens: it cannot return to an earlier token.",
                    hint="Choose another --draft-model.",
                )
            options = replace(options, unified=True, chunk_outputs=0)
            context = stack.enter_context(Context(self.weights, options))
            super().__init__(context, stack.pop_all())
        cells = context.residency
        self.layers = self.weights.residency.layers
        self.buffers = (*self.weights.residency.buffers, *cells.kv_buffers, *cells.compute_buffers)
        self.max_length = min(context.num_cells, self.weights.n_ctx_train or context.num_cells)
        self.vocab_size = self.weights.vocab_size

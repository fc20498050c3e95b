"""The model's own heads that guess its tokens, in a context beside the model's."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import numpy as np
from msgspec.structs import replace

from worker.llama.backend import LlamaBackend
from worker.llama.context import Context, ContextOptions
from worker.llama.draft import nextn

# Rows of a sequence with outputs in one batch: what was accepted is read with the next token.
_OUTPUTS = 4


class Heads:
    """Implements `engine.drafts.heads.HeadBackend`. A context manager; close it before the model.

    Its cells are one pool, so that a beginning which several sequences have in common is there
    once, and one sequence can have all of them.
    """

    def __init__(self, backend: LlamaBackend, options: ContextOptions) -> None:
        """Allocate the heads' cells, beside a model whose heads were loaded.

        options: those of the model's context

        Raises BackendError, DoesNotFitError.
        """
        beside, weights = backend.context, backend.weights
        with contextlib.ExitStack() as stack:
            self.width = nextn.hidden_width(weights.handle)
            options = replace(
                options,
                num_slots=beside.num_slots,
                num_cells=beside.num_cells,
                unified=True,
                chunk_outputs=(_OUTPUTS - 1) * beside.num_slots,
                threads=beside.threads,
                threads_batch=beside.threads_batch,
                purpose="heads",
            )
            self.context = stack.enter_context(Context(weights, options))
            self._beside = beside
            self.num_slots = self.context.num_slots
            self.max_length = backend.max_length
            self.max_outputs = self.context.max_outputs
            self.max_waiting = self.context.num_cells
            self.vocab_size = weights.vocab_size
            self.batch = self.context.batch
            self.fed = self.context.feed(self.width)
            self._stack = stack.pop_all()

    def decode(self) -> None:
        """Compute the batch."""
        own, beside = self.context, self._beside
        if (own.threads, own.threads_batch) != (beside.threads, beside.threads_batch):
            own.set_threads(beside.threads, beside.threads_batch)
        own.decode()

    def logits(self, row: int) -> np.ndarray:
        """The row's logits, float32 [vocab_size], valid until the next decode."""
        return self.context.logits(row)

    def hidden(self, row: int) -> np.ndarray:
        """The row's hidden state; all rows of its batch have outputs."""
        return nextn.hidden_rows(self.context.handle, row + 1, self.width)[row]

    def model_hidden(self, rows: int) -> np.ndarray:
        """The model's hidden states in the rows that it computed last."""
        return nextn.hidden_rows(self._beside.handle, rows, self.width)

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
        self.fed[0] = 0
        self.batch.clear()
        self.batch.add_one(0, 0, 0)
        with ThreadPoolExecutor(1, thread_name_prefix="warm-up") as pool:
            pool.submit(self.decode).result()
        self.context.clear()

    def close(self) -> None:
        """Free the context; safe to call again."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""A second model with a context of its own, which guesses what the first one will sample."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import numpy as np
from msgspec.structs import replace

from worker.errors import ModelLoadError
from worker.llama.context import Context, ContextOptions
from worker.llama.weights import LoadOptions, Weights


class DraftModel:
    """Implements `engine.drafter.DraftBackend`. A context manager; it frees everything in order.

    Its cells are one pool, so that a beginning which several sequences have in common is there
    once, and one sequence can have all of them.
    """

    def __init__(
        self, path: Path, load: LoadOptions, options: ContextOptions, *, beside: Context
    ) -> None:
        """Load the model and allocate its cells.

        beside: the context of the model that it guesses for; both compute in the same thread, with
        as many compute threads: libgomp makes a new team for each other number

        Raises ModelLoadError for a model that cannot go back to an earlier token, BackendError,
        DoesNotFitError.
        """
        with contextlib.ExitStack() as stack:
            self.weights = stack.enter_context(Weights(path, load))
            if self.weights.is_recurrent or not self.weights.generates:
                raise ModelLoadError(
                    f"{path.name} cannot guess tokens: it does not go back to an earlier token.",
                    hint="Choose another --draft-model.",
                )
            options = replace(options, unified=True, chunk_outputs=0)
            self.context = stack.enter_context(Context(self.weights, options))
            self._beside = beside
            self.num_slots = self.context.num_slots
            self.max_length = min(
                self.context.num_cells, self.weights.n_ctx_train or self.context.num_cells
            )
            self.vocab_size = self.weights.vocab_size
            self.batch = self.context.batch
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
        with ThreadPoolExecutor(1, thread_name_prefix="warm-up") as pool:
            pool.submit(self.context.compute_one, 0).result()
        self.context.clear()

    def close(self) -> None:
        """Free context and weights; safe to call again."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

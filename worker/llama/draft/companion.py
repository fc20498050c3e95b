"""A context beside the model's, which guesses what the model will sample."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import numpy as np

from worker.llama.context import Context


class Companion:
    """What draft models and heads have in common. A context manager; close it before the model.

    Its cells are one pool, so that a beginning which several sequences have in common is there
    once, and one sequence can have all of them.

    layers   the device of each of its layers
    buffers  type of each buffer that it has for itself, and its bytes
    """

    layers: tuple[str, ...]
    buffers: tuple[tuple[str, int], ...]

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

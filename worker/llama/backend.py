"""The engine's backend over llama.cpp: one model, one context, its vocabulary and samplers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import numpy as np

from worker.engine.request import Request
from worker.grammar.check import check_gbnf
from worker.llama.context import Context, ContextOptions, Observer
from worker.llama.grammar import grammar_of
from worker.llama.sampler import Sampler
from worker.llama.spin import Spin
from worker.llama.threads import fastest_threads
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights

# ggml's attention on a CPU works in tiles from 64 rows on, which reckon with everybody's cells
# (GGML_FA_TILE_Q): 62 streams of the Llama-1B shape write 113 tokens a second, 64 write 50.
_CPU_ROWS = 63


class LlamaBackend:
    """Implements `engine.backend.Backend`; a context manager that frees everything in order."""

    def __init__(
        self,
        path: Path,
        load: LoadOptions,
        context: ContextOptions,
        *,
        on_progress: Callable[[float], bool] | None = None,
        observer: Observer | None = None,
        observed: frozenset[str] = frozenset(),
    ) -> None:
        """Load the model and allocate its cache. Raises BackendError or DoesNotFitError."""
        with contextlib.ExitStack() as stack:
            self.weights = stack.enter_context(Weights(path, load, on_progress))
            self.context = stack.enter_context(
                Context(self.weights, context, observer=observer, observed=observed)
            )
            self.num_cells = self.context.num_cells
            self.num_slots = self.context.num_slots
            self.cuts_tails = not self.weights.is_recurrent
            # Hybrids split a batch of unequal runs, and a split batch loses cells inside a window
            # (see Context); with one row for all but one sequence what is lost is not looked at.
            self.one_prompt_a_step = not self.cuts_tails and self.weights.sliding_window > 0
            trained = self.weights.n_ctx_train or self.num_cells
            self.max_length = min(self.num_cells, trained)
            self.max_outputs = self.context.max_outputs
            self.batch = self.context.batch
            on_cpu = any(device == "CPU" for _, device in self.context.residency.layers)
            self.plain_rows = min(self.batch.capacity, _CPU_ROWS) if on_cpu else self.batch.capacity
            self.spin = Spin(self.context.threads)
            self.vocab = Vocab(self.weights.handle, self.max_length)
            self.vocab_size = self.vocab.size
            self.end_tokens = self.vocab.end_tokens
            self.pieces = self.vocab.pieces
            # Characters that the longest sequence can hold at most.
            self.max_text = self.max_length * max(len(piece) for piece in self.pieces)
            self._stack = stack.pop_all()

    def decode(self) -> None:
        """Compute the batch."""
        started = time.perf_counter()
        self.context.decode()
        self.spin.decoded(time.perf_counter() - started)

    def make_sampler(self, request: Request) -> Sampler:
        """A native chain for one sequence."""
        return Sampler(request, self.vocab)

    def sample(self, row: int, sampler: Any) -> int:
        """Choose from the row's logits and accept."""
        return sampler.sample(self.context.handle, row)

    def logits(self, row: int) -> np.ndarray:
        """A copy of the row's logits, float32 [vocab_size]."""
        return self.context.logits(row)

    def free_sampler(self, sampler: Any) -> None:
        """Free the chain."""
        sampler.free()

    def drop(self, slot: int, start: int = 0) -> bool:
        """Free the slot's cells from position `start`."""
        return self.context.drop(slot, start)

    def check_grammar(self, text: str, param: str) -> None:
        """Raise RequestError for a grammar that llama.cpp must not see."""
        check_gbnf(text, param)

    def json_grammar(self, schema: dict[str, Any] | None, param: str) -> str:
        """GBNF for a JSON schema, or for any JSON object; `param` is the field to blame."""
        return grammar_of(schema, param)

    def holds(self, slot: int, begin: int, stop: int) -> bool:
        """Whether the slot still has what sharing its positions begin to stop must give."""
        return self.context.holds(slot, begin, stop)

    def share(self, source: int, target: int, begin: int, stop: int) -> None:
        """Give `target` the source's cells at positions begin to stop."""
        self.context.share(source, target, begin, stop)

    def warm_up(self, *, choose_threads: bool = False) -> None:
        """Decode a little, so that the first request does not pay for first touches.

        choose_threads: take the number of compute threads, at most what the context was made
        with, that computes one row fastest, and the one that computes several rows fastest

        In a thread of its own: libgomp keeps a team for every thread that ever decoded, counts it
        among those that want a CPU, and from then on spins less for all of them.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="warm-up") as pool:
            pool.submit(self._compute_rows, 1).result()
            if choose_threads:
                pool.submit(self._choose_threads).result()
        self.batch.clear()
        self.spin = Spin(self.context.threads)

    def _choose_threads(self) -> None:
        limit, rows = self.context.threads, min(8, self.num_slots, self.batch.capacity)
        one = fastest_threads(limit, self._seconds_of(1))
        self.context.set_threads(one, limit)
        if rows > 1:
            self.context.set_threads(one, fastest_threads(limit, self._seconds_of(rows)))

    def _seconds_of(self, rows: int) -> Callable[[int], float]:
        def measure(threads: int) -> float:
            self.context.set_threads(threads, threads)
            started = time.perf_counter()
            self._compute_rows(rows)
            return time.perf_counter() - started

        return measure

    def _compute_rows(self, rows: int) -> None:
        """One row each of `rows` sequences, forgotten at once."""
        self.batch.clear()
        token = self.vocab.bos if self.vocab.bos is not None else 0
        for slot in range(rows):
            self.batch.add_one(token, 0, slot)
        self.context.decode()
        self.context.clear()

    def close(self) -> None:
        """Free context and weights; safe to call again."""
        self.spin.close()
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

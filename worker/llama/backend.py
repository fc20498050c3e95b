"""The engine's backend over llama.cpp: one model, one context, its vocabulary and samplers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np

from worker.engine.request import Request
from worker.llama.context import Context, ContextOptions, Observer
from worker.llama.gbnf import check_gbnf
from worker.llama.grammar import grammar_of
from worker.llama.sampler import Sampler
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights


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
            self.vocab = Vocab(self.weights.handle, self.max_length)
            self.vocab_size = self.vocab.size
            self.end_tokens = self.vocab.end_tokens
            self.pieces = self.vocab.pieces
            # Characters that the longest sequence can hold at most.
            self.max_text = self.max_length * max(len(piece) for piece in self.pieces)
            self._stack = stack.pop_all()

    def decode(self) -> None:
        """Compute the batch."""
        self.context.decode()

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

    def warm_up(self) -> None:
        """One decode of one token, so that the first request does not pay for first touches."""
        self.batch.clear()
        token = self.vocab.bos if self.vocab.bos is not None else 0
        self.batch.add_one(token, 0, 0)
        self.decode()
        self.context.clear()
        self.batch.clear()

    def close(self) -> None:
        """Free context and weights; safe to call again."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""The engine's backend over llama.cpp: one model, one context, its vocabulary and samplers."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import numpy as np

from worker.budget import Budget
from worker.cache.state import Parts
from worker.engine.backend import CacheShape, OutputRow
from worker.engine.request import Request, Resumption
from worker.errors import BackendError
from worker.gguf.header import ModelFile
from worker.grammar.constraint import Constraint
from worker.llama.context import Context, ContextOptions
from worker.llama.embedder import LlamaEmbedder, short_options
from worker.llama.graph import Callback
from worker.llama.guides.guides import Guides
from worker.llama.process.openmp import Spin
from worker.llama.residency import kernels_of
from worker.llama.sampling.sampler import Sampler
from worker.llama.sampling.workspace import Workspace
from worker.llama.states.slots import SlotStates
from worker.llama.states.state import SavedState, StateForm
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights
from worker.memory.contexts import num_ends, whole_cells
from worker.memory.embedding import EmbeddingShape

# Rows of the warm-up on a GPU, where several rows take other kernels, loaded at their first use.
_WARM_ROWS = 4


class LlamaBackend:
    """Implements `engine.backend.Backend`. A context manager; it frees everything in order.

    seconds   what the parts of its making took: context, vocabulary, warm-up
    unified   whether all slots share one pool of cells now
    embedder  makes vectors of texts, in the same context where the model is for nothing else; None:
              nobody asked for that
    """

    def __init__(
        self,
        weights: Weights,
        context: ContextOptions,
        *,
        embeds: EmbeddingShape | None = None,
        guides: Guides | None = None,
        observer: Callback | None = None,
    ) -> None:
        """Allocate a cache for the model. It closes the weights, also where this fails.

        embeds: of a context that makes vectors and no text
        guides: of the same file, when it was in memory before: what they and their vocabulary
            learned stays
        observer: sees the nodes of what is computed

        Raises BackendError or DoesNotFitError.
        """
        self.seconds: dict[str, float] = {}
        with contextlib.ExitStack() as stack:
            self.weights = stack.enter_context(weights)
            cells = whole_cells(context.num_cells)
            self.max_length = min(cells, self.weights.n_ctx_train or cells)
            if embeds is not None:
                self.max_length = embeds.length
            with self._time_part("context"):
                self.context = stack.enter_context(Context(self.weights, context, observer))
            with self._time_part("vocabulary"):
                if guides is None:
                    guides = Guides(Vocab(self.weights.handle, self.max_length))
                else:
                    guides.vocab.attach(self.weights.handle)
                self.guides, self.vocab = guides, guides.vocab
                stack.callback(self.vocab.detach)
            self.embedder: LlamaEmbedder | None = None
            if embeds is not None:
                few = short_options(self.weights, context, embeds)
                short = few and stack.enter_context(Context(self.weights, few))
                self.embedder = LlamaEmbedder(self.weights, self.context, embeds, short)
            self._states = SlotStates(self.weights, self.context)
            self.shape = CacheShape(
                num_cells=self.context.num_cells,
                stream_cells=self.context.stream_cells,
                num_slots=self.context.num_slots,
                cuts_tails=not self.weights.is_recurrent,
                takes_back=self.context.takes_back,
                needs_rest=self.weights.is_recurrent or self.weights.sliding_window > 0,
                # llama.cpp splits a hybrid model's batch where sequences have different numbers of
                # rows, and a split batch can lose cells inside a window (see Context): where one
                # sequence takes the place of cells that another's window has passed. Where all
                # sequences but one have a single row, nothing looks at the lost cells.
                one_prompt=self.weights.is_recurrent and self.weights.sliding_window > 0,
                num_ends=num_ends(self.vocab.size),
            )
            self.batch, self.unified = self.context.batch, self.context.unified
            self.kernels = kernels_of(
                self.weights.residency,
                self.context.residency,
                self.shape.num_cells,
                self.batch.capacity,
                is_fused=self._is_fused,
            )
            self.spin = Spin(self.context.threads)
            self.vocab_size = self.vocab.size
            self._workspace = Workspace(self.vocab_size)
            self.end_tokens = self.vocab.end_tokens
            self.pieces = self.vocab.pieces
            self._stack = stack.pop_all()

    @classmethod
    def open(cls, path: Path, load: LoadOptions, context: ContextOptions) -> Self:
        """Load a model and allocate its cache. Raises BackendError or DoesNotFitError."""
        return cls(Weights(path, load), context)

    @property
    def _is_fused(self) -> bool:
        options = self.context.options
        is_plain = options.plain_rows or options.flash_attn == "off"
        return not (is_plain or self.weights.is_recurrent)

    @contextlib.contextmanager
    def _time_part(self, part: str) -> Generator[None]:
        begun = time.perf_counter()
        yield
        self.seconds[part] = time.perf_counter() - begun

    def decode(self) -> None:
        started = time.perf_counter()
        self.context.decode()
        self.spin.count_decode(time.perf_counter() - started)

    def load_adapter(self, digest: bytes, file: ModelFile) -> None:
        """Load an adapter beside the others, between two batches. Raises as `Adapters.load`."""
        self.weights.adapters.load(digest, file)

    def free_adapter(self, digest: bytes) -> None:
        """Free one that no request needs any more, between two batches."""
        self.context.leave_adapters()
        self.weights.adapters.free(digest)

    def make_sampler(self, request: Request, resumption: Resumption | None = None) -> Sampler:
        return Sampler(request, self.vocab, self._workspace, self.guides, resumption)

    def sample(self, row: OutputRow, sampler: Any) -> int:
        """Choose from the row's logits and accept. Raises BackendError where they are NaN: all are
        where the last layer's output is."""
        if isinstance(row, np.ndarray):
            return sampler.sample(row)
        logits = self.context.logits(row)
        if math.isnan(logits[0]):
            raise BackendError("The model computed values that are no numbers.", code="NOT_FINITE")
        return sampler.sample(logits, (self.context.handle, row))

    def ahead(self, sampler: Any) -> list[int]:
        """Tokens that must come next, whatever the model says; they are accepted."""
        return sampler.ahead()

    def cut(self, sampler: Any) -> bool:
        """End the part of the answer that its `SpanLimit` bounds: whether one is being written."""
        return sampler.cut()

    def logits(self, row: OutputRow, drawn_by: Any = None) -> np.ndarray:
        """The row's logits, float32 [vocab_size], read-only, valid until the next decode."""
        if drawn_by is not None:
            return drawn_by.left
        logits = (row if isinstance(row, np.ndarray) else self.context.logits(row)).view()
        logits.flags.writeable = False
        return logits

    def free_sampler(self, sampler: Any) -> None:
        sampler.free()

    def drop(self, slot: int, start: int = 0) -> bool:
        """Free the slot's cells from position `start`."""
        return self.context.drop(slot, start)

    def open_embedder(self, shape: EmbeddingShape, options: ContextOptions) -> None:
        """Make vectors of texts too, in a context beside this one. Raises what `Context` raises."""
        context = self._stack.enter_context(Context(self.weights, options))
        self.embedder = LlamaEmbedder(self.weights, context, shape, None)

    def prepare(self, constraint: Constraint, budget: Budget) -> None:
        """Compile a constraint, in the request's own thread. Raises RequestError.

        It may take as long as `Guides` says; a sampler that is made later takes microseconds.
        """
        self.guides.prepare(constraint, budget)

    @property
    def state_form(self) -> StateForm | None:
        """How states are laid out; None: they cannot be kept. Before `warm_up` slot 0 is empty."""
        return None if self.context.options.embeds else self._states.layout(0)

    def holds(self, slot: int, begin: int, stop: int) -> bool:
        """Whether the slot still has all that a token at `stop` looks at from `begin` on."""
        return self.context.holds(slot, begin, stop)

    def share(self, source: int, target: int, stop: int) -> bool:
        """Give the empty slot `target` what the source's first `stop` tokens left, or say False.

        In streams, and where a state cannot be cut, it is copied.
        """
        if self.unified and self.shape.cuts_tails:
            self.context.share(source, target, stop)
            return True
        return self._states.copy(source, target, stop)

    def save(self, slot: int) -> SavedState | None:
        """A copy of the slot's state, valid until the next `save` or `share`, or None."""
        return self._states.save(slot)

    def restore(self, slot: int, parts: Parts, rest: np.ndarray | None) -> bool:
        """Replace what the slot holds by a state that was kept; False: the slot is empty now."""
        return self._states.restore(slot, parts, rest)

    def arrange(self, *, unified: bool, slots: Sequence[int]) -> set[int]:
        """Another layout of the cells; only states of `slots` are there afterwards: of which.
        Raises BatchError where that failed: then all slots are empty, in the layout that `unified`
        says. Raises DoesNotFitError where no cells could be allocated at all.
        """
        try:
            return self._states.arrange(slots, unified=unified)
        finally:
            self.unified = self.context.unified

    def warm_up(self) -> None:
        """Decode a little, so that the first request does not wait for memory to be touched.

        On a CPU that is the one token which shows how states are laid out. More rows would
        touch little more memory, and delay `ready`.
        It runs in the thread `warm-up`, which ends. libgomp keeps a team of threads for each thread
        that decoded; a team that stays counts as wanting CPUs, and all threads then spin less.
        It computes with one thread, because others import what they need meanwhile.
        """
        contexts = {self.context, *(() if self.embedder is None else self.embedder.contexts)}
        threads = self.context.threads, self.context.threads_batch
        for context in contexts:
            context.set_threads(1, 1)
        with (
            self._time_part("warm-up"),
            ThreadPoolExecutor(1, thread_name_prefix="warm-up") as pool,
        ):
            if self.embedder is not None:
                pool.submit(self._embed_one, self.embedder).result()
            if not self.context.options.embeds:
                pool.submit(self._states.layout, 0).result()
            if not (self.weights.residency.is_on_cpu or self.context.options.embeds):
                rows = min(_WARM_ROWS, self.shape.num_slots, self.batch.capacity)
                pool.submit(self._compute_rows, rows).result()
        for context in contexts:
            context.set_threads(*threads)
        self.batch.clear()
        self.spin = Spin(self.context.threads)

    def _embed_one(self, embedder: LlamaEmbedder) -> None:
        embedder.batch.clear()
        embedder.batch.add_one(0, 0, 0)
        for context in embedder.contexts:
            context.decode()
        embedder.forget(0)

    def _compute_rows(self, rows: int) -> None:
        """Compute one row of each of `rows` sequences, then forget them."""
        self.batch.clear()
        token = self.vocab.bos if self.vocab.bos is not None else 0
        for slot in range(rows):
            self.batch.add_one(token, 0, slot)
        self.decode()
        self.context.clear()

    def rest(self) -> None:
        """Give back the memory that copies of states took, while nobody asks."""
        self._states.free()

    def close(self) -> None:
        """Free context and weights; safe to call again."""
        self.spin.close()
        self._stack.close()
        self._states.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

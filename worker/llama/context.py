"""One llama.cpp context: the KV cache, the batch that is computed, the logits of its rows."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from typing import Any, Literal, Self

import msgspec
import numpy as np

from worker.engine.backend import Batch, BatchError, OutOfCells
from worker.errors import WorkerError
from worker.gguf.quant import ENCODINGS
from worker.llama import hidden_states, library
from worker.llama.adapters import add_control_vector
from worker.llama.graph import Callback
from worker.llama.library import native
from worker.llama.residency import cache_residency, check_cells
from worker.llama.weights import Weights
from worker.memory.contexts import CELL_STEP, CHUNK_OUTPUTS, whole_cells
from worker.model.control_vector import ControlVector

_TYPES = {encoding.name.lower(): number for number, encoding in ENCODINGS.items()}
_FLASH = {"auto": -1, "off": 0, "on": 1}
MAX_SLOTS = native.llama_max_parallel_sequences()
_OUT_OF_CELLS = 1
# Rows of a step's part. Plain attention writes a score for each head, row and cell, so 512 rows of
# a Llama-1B with 8,192 cells take 537 MB. 512 tokens after 1,400 others take 0.99 s in parts
# of 32 rows and 1.11 s at once (125M), after 700 others 9.1 s in parts of 32 and 8.4 s of 16 (1B).
PLAIN_ROWS, _FEWEST_PLAIN = 64, 16
_HEADS = native.LLAMA_CONTEXT_TYPE_MTP
_RANK = native.LLAMA_POOLING_TYPE_RANK


class ContextOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How large the context is.

    num_cells     of one pool for all slots; rounded up to CELL_STEP
    num_slots     sequences at once, 1 to 256
    unified       start with the pool, also where each slot could have cells of its own
    chunk_outputs rows of a prompt whose logits one batch may ask for, besides one of each slot
    plain_rows    attention is plain where a row looks at its own sequence's cells only, so many
                  rows at once; 0: it is as `flash_attn` says
    plain_bytes   that the compute buffers may take for it: of fewer rows at once, or as
                  `flash_attn` says, if they would take more
    yarn          YaRN's extrapolation and attention factors, slow and fast beta; below 0: as usual
    purpose       "text"; "heads": of the model's own heads, which guess; "text beside heads": that
                  gives the hidden states which they read; "drafts": of a model that reads them;
                  "assistant": of one that looks at another context's cells, and has none;
                  "text beside an assistant": that gives the hidden states of rows with outputs
    layers_read   layers of which it gives what goes in; their number: what the last one makes
    states_kept   of a recurrent model: states before the last one that each sequence keeps, so that
                  as many wrong guesses can be dropped
    control       is added behind layers; not to what heads compute
    """

    num_cells: int
    num_slots: int
    unified: bool = False
    chunk_outputs: int = CHUNK_OUTPUTS
    batch_size: int = 512
    ubatch_size: int = 512
    threads: int = 1
    threads_batch: int = 1
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    flash_attn: str = "auto"
    plain_rows: int = 0
    plain_bytes: int = 1 << 62
    yarn: tuple[float, float, float, float] = (-1.0, -1.0, -1.0, -1.0)
    purpose: Literal[
        "text", "heads", "text beside heads", "drafts", "assistant", "text beside an assistant",
        "vectors", "scores",
    ] = "text"  # fmt: skip
    layers_read: tuple[int, ...] = ()
    states_kept: int = 0
    control: ControlVector | None = None

    @property
    def embeds(self) -> bool:
        """Whether it makes vectors or scores and no logits that anybody reads."""
        return self.purpose in ("vectors", "scores")


class Context:
    """A context over `weights`. A context manager; it must be closed before the weights.

    Its cells have one of two layouts. In streams each slot has `stream_cells` of its own, so that
    no row looks at another's cells. In the unified layout all slots share `num_cells`, so that one
    sequence can have most of them, and a prefix can be in several slots.

    num_cells     cells of the unified layout
    stream_cells  cells of each slot in streams, a multiple of CELL_STEP; 0: there are no streams,
                  because there is one slot, or too few cells. A recurrent model has no cells, and
                  its slots do not limit each other: there it is `num_cells`.
    has_cells     whether the model is none of those
    takes_back    rows at the end of what was computed last that can be dropped
    unified       the layout now
    options       what it was made with
    """

    def __init__(
        self,
        weights: Weights,
        options: ContextOptions,
        observer: Callback | None = None,
        other: Context | None = None,
    ) -> None:
        """Allocate the cache and the compute buffers.

        observer: sees the nodes of what is computed
        other: of the model whose embeddings and output layer it uses; closed after this one. An
            assistant looks at its cells, which are empty: from now on both have one layout, and
            the assistant's context is made anew with the other one
        Raises DoesNotFitError when the allocation fails, ResidencyError when the cache of an
        offloaded layer is not on the layer's device.
        """
        self.handle: Any = None
        self._memory: Any = None
        self._weights, self.options, self._observer = weights, options, observer
        self._other = other
        self._assistant: Context | None = None
        self.has_cells = not native.llama_model_is_recurrent(weights.handle)
        self.num_cells = whole_cells(options.num_cells)
        self.num_slots = min(options.num_slots, MAX_SLOTS)
        share = self.num_cells // self.num_slots // CELL_STEP * CELL_STEP
        streams = share if self.num_slots > 1 else 0
        self.stream_cells = streams if self.has_cells else self.num_cells
        self.threads, self.threads_batch = options.threads, options.threads_batch
        is_t5 = native.llama_model_has_encoder(weights.handle)
        encodes = is_t5 and options.purpose != "drafts"
        self._call = native.llama_encode if encodes else native.llama_decode
        self.unified = options.unified or not self.stream_cells
        if options.purpose == "assistant" and other is not None:
            self.unified = other.unified
        self._use_rows(options.plain_rows)
        self._create()
        while not self.fused and self._compute_bytes > options.plain_bytes:
            self.close()
            self._use_rows(self.options.plain_rows // 2)
            self._create()
        if options.purpose == "assistant" and other is not None:
            other.attend(self)
        capacity = native.llama_n_batch(self.handle)
        most = min(options.num_slots + options.chunk_outputs, capacity)
        self.batch = Batch(capacity, max_outputs=most)
        self._batch = _wire(self.batch)
        saved = native.llama_n_rs_seq(self.handle)
        self.takes_back = saved if weights.is_recurrent else capacity

    def _use_rows(self, plain_rows: int) -> None:
        """Plain attention in parts of so many rows, if each slot's row has room in one."""
        enough = plain_rows >= max(_FEWEST_PLAIN, self.num_slots)
        rows = plain_rows if enough else 0
        self.options = msgspec.structs.replace(self.options, plain_rows=rows)

    @property
    def _compute_bytes(self) -> int:
        return sum(nbytes for _, nbytes in self.residency.compute_buffers)

    @property
    def num_streams(self) -> int:
        """Streams that a state of this context is written for."""
        return 1 if self.unified else self.num_slots

    @property
    def fused(self) -> bool:
        """Whether attention is as `flash_attn` says now; else plain, with values transposed.

        A row of the plain one writes a score for each cell of the pool, so it must be its own.
        """
        is_own = not self.unified or self.num_slots == 1
        return not (self.options.plain_rows and is_own)

    @property
    def rows_together(self) -> int:
        """Rows that can look at each other in one step."""
        return min(native.llama_n_ubatch(self.handle), self.batch.capacity)

    @property
    def slot_cells(self) -> int:
        """The most cells that one slot can have now."""
        return self.num_cells if self.unified else self.stream_cells

    def arrange(self, *, unified: bool) -> None:
        """Change the layout; all slots are empty afterwards. The old cells are freed before.

        Raises BatchError where the old layout had to be made again; else what the constructor does.
        """
        if not unified and not self.stream_cells:
            self.clear()
            raise BatchError("There are too few cells for streams.")
        self.close()
        before, self.unified = self.unified, unified
        try:
            self._create()
        except WorkerError as error:
            self.unified = before
            self._create()
            raise BatchError(f"The layout of the cells could not be changed: {error}") from error

    def attend(self, assistant: Context | None) -> None:
        """Make this one anew with each new layout of the cells, at which it looks; None: no more
        one."""
        self._assistant = assistant

    def follow(self) -> None:
        """Be made anew, in the layout that the cells of the other context have now."""
        if self._other is not None:
            self.unified = self._other.unified
        self._create()

    def _create(self) -> None:
        options, weights = self.options, self._weights
        params = self._params()
        with library.capture_log() as lines:
            handle = native.llama_init_from_model(weights.handle, params)  # pyright: ignore
        if not handle:
            raise library.failure(
                f"llama.cpp could not create a context of {options.num_cells} cells",
                lines,
                smaller="Start with a smaller --ctx-size or fewer --parallel sequences.",
            )
        self.handle = handle
        self._key = b""  # of the adapters that it computes with
        self._first = [0] * self.num_slots  # first position that all layers of a slot have
        self.residency = cache_residency([line for _, line in lines])
        try:
            check_cells(weights.residency, self.residency)
            if options.control is not None and options.purpose != "heads":
                add_control_vector(handle, options.control)
            self._memory = native.llama_get_memory(handle)
            if options.purpose not in ("text", "vectors", "scores"):
                only = options.purpose != "text beside heads"
                hidden_states.give_hidden(handle, outputs_only=only)
            hidden_states.give_layers(handle, options.layers_read, weights.num_layers)
        except BaseException:
            self.close()
            raise
        if self._assistant is not None:
            with contextlib.suppress(WorkerError):  # texts go on without its guesses
                self._assistant.follow()

    def _params(self) -> Any:
        options, window = self.options, self._weights.sliding_window
        params = native.llama_context_default_params()
        is_pool = self.unified or not self.has_cells
        params.kv_unified = is_pool
        params.n_ctx = self.num_cells if is_pool else self.num_slots * self.stream_cells
        params.n_seq_max = self.num_slots
        # llama.cpp aborts where a batch has fewer rows or outputs than there are slots.
        params.n_batch = max(options.batch_size, self.num_slots)
        rows = options.ubatch_size if self.fused else options.plain_rows
        params.n_ubatch = min(rows, params.n_batch)
        if window:
            # llama.cpp may split a larger batch. When it places the second part, it loses cells in
            # the window of the first: `prepare` does not restore what `apply_ubatch` purges.
            params.n_batch = params.n_ubatch = max(params.n_ubatch, self.num_slots)
        # Logits of every row of a batch would cost batch_size x vocabulary x 4 bytes.
        params.n_outputs_max = min(options.num_slots + options.chunk_outputs, params.n_batch)
        params.n_threads, params.n_threads_batch = self.threads, self.threads_batch
        params.flash_attn_type = _FLASH[options.flash_attn if self.fused else "off"]
        params.ctx_type = _HEADS if options.purpose in ("heads", "assistant") else 0
        params.embeddings = options.embeds
        if self._other is not None:
            params.ctx_other = self._other.handle
        if options.purpose == "scores":
            params.pooling_type = _RANK
        elif options.embeds:  # they become one vector in numpy, also where a text is read in parts
            params.pooling_type = 0
        params.n_rs_seq = options.states_kept
        params.type_k = _TYPES[options.cache_type_k]
        params.type_v = _TYPES[options.cache_type_v]
        extrapolation, attention, slow, fast = options.yarn
        params.yarn_ext_factor, params.yarn_attn_factor = extrapolation, attention
        params.yarn_beta_slow, params.yarn_beta_fast = slow, fast
        params.swa_full = True  # a cut-down window could not be rewound or shared
        params.no_perf = True
        if self._observer is not None:
            params.cb_eval = self._observer.native
        return params

    def feed(self, width: int) -> np.ndarray:
        """Give each row a vector beside its token: float32 [capacity, width], of the next batch."""
        fed = np.zeros((self.batch.capacity, width), np.float32)
        self._batch = _wire(self.batch, fed)
        return fed

    def layer_rows(self, rows: int) -> np.ndarray:
        """What went into `layers_read` in the first rows computed last, one layer beside the other,
        float32 [rows, layers x width], a copy."""
        layers, count = self.options.layers_read, self._weights.num_layers
        width = native.llama_model_n_embd(self._weights.handle)
        return hidden_states.layer_rows(self.handle, layers, count, rows, width)

    def encode(self, vectors: np.ndarray, width: int) -> np.ndarray:
        """What the encoder makes of these, float32 [rows, width], a copy; not more rows than
        outputs. Its hidden states are given as those of outputs only. Raises BatchError.

        vectors: float32 [rows, n]
        """
        rows = np.ascontiguousarray(vectors, np.float32)
        data = rows.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        outputs = np.ones(len(rows), np.int8)
        wanted = outputs.ctypes.data_as(ctypes.POINTER(ctypes.c_int8))
        batch = native.llama_batch(len(rows), None, data, None, None, None, wanted)
        if not self.handle or native.llama_encode(self.handle, batch):
            raise BatchError(f"llama.cpp failed to encode {len(rows)} hidden states.")
        return hidden_states.hidden_rows(self.handle, len(rows), width).copy()

    def share_batch(self, other: Context) -> None:
        """Compute what the batch of `other` holds, which has no more rows than there is room for
        here."""
        self.batch, self._batch = other.batch, other._batch

    def set_threads(self, one: int, many: int) -> None:
        """Compute single rows with `one` thread(s), batches of more rows with `many`."""
        native.llama_set_n_threads(self.handle, one, many)
        self.threads, self.threads_batch = one, many

    def decode(self) -> None:
        """Compute the batch's rows. Blocks; the GIL is released meanwhile."""
        if self.batch.key != self._key:
            self.use_adapters(self.batch.key)
        if self.batch.vectors is not None:
            self._decode_vectors(self.batch)
            return
        self._batch.n_tokens = self.batch.size
        self._decode(self._batch)

    def _decode_vectors(self, batch: Batch) -> None:
        """Compute rows of a medium, which have no tokens."""
        wired = _wire(batch, batch.vectors)
        wired.n_tokens = batch.size
        if batch.is_causal:
            self._decode(wired)
            return
        if batch.size > self.rows_together:  # else llama.cpp ends the process
            raise BatchError(f"{batch.size} rows that look at each other do not fit one step.")
        native.llama_set_causal_attn(self.handle, False)
        try:
            self._decode(wired)
        finally:
            native.llama_set_causal_attn(self.handle, True)

    def use_adapters(self, key: bytes) -> None:
        """Compute with those that `key` names from now on, and with no others."""
        if self.handle and key != self._key:
            self._weights.adapters.use(self.handle, key)
            self._key = key

    def leave_adapters(self) -> None:
        """Compute with none, once all is computed that was begun."""
        if self.handle:
            native.llama_synchronize(self.handle)
        self.use_adapters(b"")

    def compute_one(self, slot: int) -> None:
        """Compute one token in an empty slot; the batch that is being filled stays as it is."""
        batch = Batch(1)
        batch.add_one(0, 0, slot)
        wired = _wire(batch)
        wired.n_tokens = 1
        self._decode(wired)

    def _decode(self, batch: native.llama_batch) -> None:
        if not self.handle:  # no layout could be allocated
            raise BatchError("There are no cells any more.")
        code = self._call(self.handle, batch)  # pyright: ignore
        if code == 0:
            return
        if code == _OUT_OF_CELLS:
            raise OutOfCells
        raise BatchError(f"llama.cpp failed to compute a batch (code {code}).")

    def logits(self, row: int) -> np.ndarray:
        """The logits of output row `row`, float32 [vocab_size]; valid until the next decode. Raises
        BatchError."""
        found = native.llama_get_logits_ith(self.handle, row)
        if not found:
            raise BatchError(f"Row {row} has no logits.")
        return library.floats(found, self._weights.vocab_size)

    def drop(self, slot: int, start: int = 0) -> bool:
        """Free `slot`'s cells from position `start` on; False where the model cannot do so."""
        if not start:
            self._first[slot] = 0
        if self._memory is None:
            return True
        return bool(native.llama_memory_seq_rm(self._memory, slot, start, -1))

    def holds(self, slot: int, begin: int, stop: int) -> bool:
        """Whether sharing these positions of `slot` leaves no gap; see `engine.backend.Backend`.

        llama.cpp gives away cells that a sequence's sliding window has passed, with `swa_full` too.
        The positions that remain are contiguous.
        """
        first, _ = self.span(slot)
        return 0 <= first <= (begin or max(0, stop - self._weights.sliding_window + 1))

    def share(self, source: int, target: int, stop: int) -> None:
        """Give `target` the first `stop` cells of `source` too; in the unified layout only."""
        if self._memory is not None:
            native.llama_memory_seq_cp(self._memory, source, target, 0, stop)

    def state(self, slot: int, take: Callable[[int], np.ndarray]) -> np.ndarray:
        """llama.cpp's bytes of the slot's state, in the memory that `take` gives; or none."""
        handle, number = self.handle, ctypes.c_int32(slot)
        size = native.llama_state_seq_get_size(handle, number)
        try:
            blob = take(size)
        except MemoryError:
            return np.empty(0, np.uint8)
        data = library.pointer_to(blob)
        return blob[: native.llama_state_seq_get_data(handle, data, size, number)]

    def set_state(self, slot: int, blob: np.ndarray, first: int) -> bool:
        """Replace what the slot holds; False: nobody knows what it holds now, drop it.

        first: the windowed layers' cells of earlier positions are empty, though llama.cpp has them
        blob: uint8 [n]
        """
        self._first[slot] = first
        data = library.pointer_to(blob)
        number = ctypes.c_int32(slot)
        return native.llama_state_seq_set_data(self.handle, data, len(blob), number) == len(blob)

    def clear(self) -> None:
        """Empty all slots; an assistant's context leaves the cells to the other one."""
        if self.options.purpose == "assistant":
            return
        self._first = [0] * self.num_slots
        if self._memory is not None:
            native.llama_memory_clear(self._memory, False)

    def span(self, slot: int) -> tuple[int, int]:
        """First and last position of `slot` in the cache; (-1, -1) where there is none."""
        if self._memory is None:
            return -1, -1
        last = native.llama_memory_seq_pos_max(self._memory, slot)
        first = native.llama_memory_seq_pos_min(self._memory, slot)
        return first if first < 0 else max(first, self._first[slot]), last

    def close(self) -> None:
        """Free the context; safe to call again."""
        if self._assistant is not None:
            self._assistant.close()
        if self.handle:
            native.llama_free(self.handle)
        self.handle = self._memory = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def lender_options(options: ContextOptions) -> ContextOptions:
    """Of the context through which a drafter finds the model's embeddings and output layer. Those
    of the model that computes may be made anew, and llama.cpp keeps a pointer."""
    return msgspec.structs.replace(
        options,
        num_cells=1,
        num_slots=1,
        unified=True,
        chunk_outputs=0,
        batch_size=1,
        ubatch_size=1,
        purpose="text",
        layers_read=(),
    )


def assistant_options(options: ContextOptions) -> ContextOptions:
    """Of an assistant's context, beside the model's with these options. A batch has one row of each
    slot."""
    slots = options.num_slots
    return msgspec.structs.replace(
        options,
        chunk_outputs=0,
        batch_size=slots,
        ubatch_size=slots,
        plain_rows=0,
        layers_read=(),
        states_kept=0,
        control=None,
        purpose="assistant",
    )


def _wire(batch: Batch, fed: np.ndarray | None = None) -> native.llama_batch:
    """A native batch whose pointers lead into the numpy arrays of `batch`.

    fed: float32 [capacity, width], what goes into each row beside its token; or in its place, where
         the batch has vectors
    """
    count = batch.capacity
    # Each row belongs to one sequence, so pointer i leads to element i of `slots`.
    step = batch.slots.itemsize
    base = batch.slots.ctypes.data
    pointers = np.arange(base, base + count * step, step, dtype=np.uintp)
    ones = np.ones(count, np.int32)
    int32, int8 = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int8)
    positions = batch.positions if batch.planes is None else batch.planes
    wired = native.llama_batch(
        0,
        batch.tokens.ctypes.data_as(int32) if batch.vectors is None else None,
        None if fed is None else fed.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
        positions.ctypes.data_as(int32),
        ones.ctypes.data_as(int32),
        pointers.ctypes.data_as(ctypes.POINTER(int32)),
        batch.outputs.ctypes.data_as(int8),
    )
    wired.kept = (pointers, ones)  # pyright: ignore[reportAttributeAccessIssue]
    return wired

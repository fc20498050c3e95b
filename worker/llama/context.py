"""One llama.cpp context: the KV cache, the batch that is computed, the logits of its rows."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Self

import msgspec
import numpy as np

from worker.engine.backend import Batch, BatchError, OutOfCells
from worker.errors import DoesNotFitError, ModelLoadError
from worker.gguf.quant import ENCODINGS
from worker.llama import library
from worker.llama.library import native
from worker.llama.residency import cache_residency, check_cells
from worker.llama.weights import Weights
from worker.memory.buffers import CHUNK_OUTPUTS
from worker.memory.plan import CELL_STEP

_TYPES = {encoding.name.lower(): number for number, encoding in ENCODINGS.items()}
_FLASH = {"auto": -1, "off": 0, "on": 1}
MAX_SLOTS = native.llama_max_parallel_sequences()
_OUT_OF_CELLS = 1

Observer = Callable[[str, np.ndarray], None]


class ContextOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How large the context is.

    num_cells     llama.cpp rounds it up to CELL_STEP
    num_slots     sequences that run at once, 1 to 256
    cached_slots  more sequences, kept for their prefixes; none in recurrent and hybrid models,
                  where each slot costs a state of its own
    chunk_outputs rows of a prompt whose logits one batch may ask for, besides one of each slot
    """

    num_cells: int
    num_slots: int
    cached_slots: int = 16
    chunk_outputs: int = CHUNK_OUTPUTS
    batch_size: int = 512
    ubatch_size: int = 512
    threads: int = 1
    threads_batch: int = 1
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    flash_attn: str = "auto"


class Context:
    """A context over `weights`. A context manager; it must be closed before the weights."""

    def __init__(
        self,
        weights: Weights,
        options: ContextOptions,
        *,
        observer: Observer | None = None,
        observed: frozenset[str] = frozenset(),
    ) -> None:
        """Allocate the cache and the compute buffers.

        observer: is called for each tensor of the compute graph whose name is in `observed`, with
        the name and a float32 copy [rows, width]. It is for tests, because it slows every step.

        Raises DoesNotFitError when the allocation fails, ResidencyError when the cache of an
        offloaded layer is not on the layer's device.
        """
        self.handle: Any = None
        self.max_outputs = options.num_slots + options.chunk_outputs
        params = native.llama_context_default_params()
        params.n_ctx = -(-options.num_cells // CELL_STEP) * CELL_STEP
        cached = 0 if weights.is_recurrent else options.cached_slots
        params.n_seq_max = min(options.num_slots + cached, MAX_SLOTS)
        # llama.cpp aborts where a batch has fewer rows or outputs than there are slots.
        params.n_batch = max(options.batch_size, params.n_seq_max)
        params.n_ubatch = min(options.ubatch_size, params.n_batch)
        if weights.sliding_window:
            # llama.cpp may split a larger batch. When it places the second part, it loses cells
            # inside the window that the first part looks at: `prepare` does not restore what
            # `apply_ubatch` purges. So a batch is as large as what is computed at once.
            params.n_batch = params.n_ubatch = max(params.n_ubatch, params.n_seq_max)
        # Logits of every row of a batch would cost batch_size x vocabulary x 4 bytes.
        params.n_outputs_max = min(self.max_outputs, params.n_batch)
        params.n_threads = options.threads
        params.n_threads_batch = options.threads_batch
        params.flash_attn_type = _FLASH[options.flash_attn]
        params.type_k = _TYPES[options.cache_type_k]
        params.type_v = _TYPES[options.cache_type_v]
        params.kv_unified = True  # makes sharing a prefix between sequences free
        params.swa_full = True  # a cut-down window could not be rewound or shared
        params.no_perf = True
        self._observer = _observe(observer, observed) if observer else None
        if self._observer is not None:
            params.cb_eval = self._observer
        with library.capture_log() as lines:
            handle = native.llama_init_from_model(weights.handle, params)  # pyright: ignore
        if not handle:
            why = library.reason(lines)
            if "alloc" in why or "memory" in why:
                raise DoesNotFitError(
                    f"A context of {options.num_cells} cells does not fit: {why}.",
                    hint="Start with a smaller --ctx-size or fewer --parallel sequences.",
                )
            raise ModelLoadError(f"llama.cpp could not create a context: {why}.")
        self.handle = handle
        self.residency = cache_residency([line for _, line in lines])
        try:
            check_cells(weights.residency, self.residency)
            self._memory = native.llama_get_memory(handle)
        except BaseException:
            self.close()
            raise
        self.num_cells = native.llama_n_ctx(handle)
        self.num_slots = native.llama_n_seq_max(handle)
        self.max_outputs = min(self.max_outputs, native.llama_n_batch(handle))
        self.threads, self.threads_batch = options.threads, options.threads_batch
        self.batch = Batch(native.llama_n_batch(handle))
        self._batch = _wire(self.batch)
        self._vocab_size = weights.vocab_size
        self._window = weights.sliding_window

    def set_threads(self, one: int, many: int) -> None:
        """Compute single rows with `one` thread(s), batches of more rows with `many`."""
        native.llama_set_n_threads(self.handle, one, many)
        self.threads, self.threads_batch = one, many

    def decode(self) -> None:
        """Compute the batch's rows. Blocks; the GIL is released meanwhile."""
        self._batch.n_tokens = self.batch.size
        code = native.llama_decode(self.handle, self._batch)  # pyright: ignore
        if code == 0:
            return
        if code == _OUT_OF_CELLS:
            raise OutOfCells
        raise BatchError(f"llama.cpp failed to compute a batch (code {code}).")

    def logits(self, row: int) -> np.ndarray:
        """A copy of the logits of batch row `row`, float32 [vocab_size]. It must be an output."""
        pointer = native.llama_get_logits_ith(self.handle, row)  # pyright: ignore
        if not pointer:
            raise BatchError(f"Row {row} has no logits.")
        return np.ctypeslib.as_array(pointer, (self._vocab_size,)).copy()

    def drop(self, slot: int, start: int = 0) -> bool:
        """Free `slot`'s cells from position `start` on; False where the model cannot do so."""
        if self._memory is None:
            return True
        return bool(native.llama_memory_seq_rm(self._memory, slot, start, -1))

    def holds(self, slot: int, begin: int, stop: int) -> bool:
        """Whether sharing these positions of `slot` leaves no gap; see `engine.backend.Backend`.

        llama.cpp gives away cells that a sequence's sliding window has passed, with `swa_full` too.
        The positions that remain are contiguous.
        """
        first, _ = self.span(slot)
        return 0 <= first <= (begin or max(0, stop - self._window + 1))

    def share(self, source: int, target: int, begin: int, stop: int) -> None:
        """Give `target` the cells of `source` at positions `begin` to `stop` - 1, not copied."""
        if self._memory is not None:
            native.llama_memory_seq_cp(self._memory, source, target, begin, stop)

    def clear(self) -> None:
        """Forget all sequences."""
        if self._memory is not None:
            native.llama_memory_clear(self._memory, False)

    def span(self, slot: int) -> tuple[int, int]:
        """First and last position of `slot` in the cache; (-1, -1) where there is none."""
        if self._memory is None:
            return -1, -1
        return (
            native.llama_memory_seq_pos_min(self._memory, slot),
            native.llama_memory_seq_pos_max(self._memory, slot),
        )

    def close(self) -> None:
        """Free the context; safe to call again."""
        if self.handle:
            native.llama_free(self.handle)
            self.handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _wire(batch: Batch) -> native.llama_batch:
    """A native batch whose pointers lead into the numpy arrays of `batch`."""
    count = batch.capacity
    # Each row belongs to one sequence, so pointer i leads to element i of `slots`.
    step = batch.slots.itemsize
    base = batch.slots.ctypes.data
    pointers = np.arange(base, base + count * step, step, dtype=np.uintp)
    ones = np.ones(count, np.int32)
    int32, int8 = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int8)
    wired = native.llama_batch(
        0,
        batch.tokens.ctypes.data_as(int32),
        None,
        batch.positions.ctypes.data_as(int32),
        ones.ctypes.data_as(int32),
        pointers.ctypes.data_as(ctypes.POINTER(int32)),
        batch.outputs.ctypes.data_as(int8),
    )
    wired.kept = (pointers, ones)  # pyright: ignore[reportAttributeAccessIssue]
    return wired


def _observe(observer: Observer, names: frozenset[str]) -> Callable[..., bool]:
    lib = library.ggml()

    def evaluate(tensor: int, ask: bool, _user: object) -> bool:
        name = lib.ggml_get_name(tensor).decode(errors="replace")
        if name not in names:
            return not ask  # do not ask for it; afterwards True goes on computing
        if ask:
            return True
        rows, count = lib.ggml_nrows(tensor), lib.ggml_nelements(tensor)
        values = np.empty(count, np.float32)
        if lib.ggml_nbytes(tensor) == values.nbytes:  # float32 only
            lib.ggml_backend_tensor_get(tensor, values.ctypes.data, 0, values.nbytes)
            observer(name, values.reshape(rows, -1))
        return True

    return native.ggml_backend_sched_eval_callback(evaluate)

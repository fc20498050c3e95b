"""A context beside the model's, which guesses what the model will sample: a draft model's, a
drafter's that reads the model's hidden states, perhaps its cells too, or that of its own heads."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import numpy as np
from msgspec.structs import replace

from worker.errors import ModelLoadError
from worker.gguf.source import pin
from worker.gguf.splits import open_header
from worker.llama import hidden_states
from worker.llama.backend import LlamaBackend
from worker.llama.context import Context, ContextOptions, assistant_options, lender_options
from worker.llama.library import native
from worker.llama.weights import LoadOptions, Weights
from worker.memory.companions import (
    ASSISTANT_LENGTH,
    EAGLE_LENGTH,
    ENCODED_ROWS,
    HEAD_LENGTH,
    HEAD_OUTPUTS,
    block_rows,
    eagle_outputs,
)
from worker.model.config import ModelConfig
from worker.model.drafts import borrows


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
        self.batch.add_one(0, 1, 0)
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


class StateReader(Companion):
    """Implements `engine.drafts.heads.HeadBackend`: it guesses from the model's hidden states."""

    longest: int
    begins_blank: bool
    max_waiting: int
    fed: np.ndarray
    mask: int | None = None
    _width: int

    def hidden_state(self, row: int) -> np.ndarray:
        """The row's hidden state, float32 [width]; all rows of its batch have outputs."""
        return hidden_states.hidden_rows(self.context.handle, row + 1, self._width)[row]

    def model_hidden_state(self, rows: int) -> np.ndarray:
        """The model's hidden states in the rows that it computed last, float32 [rows, n]."""
        raise NotImplementedError

    def encode(self, states: np.ndarray) -> np.ndarray:
        """What is fed of these, float32 [rows, width]. Raises BatchError."""
        return states


class Heads(StateReader):
    """The model's own heads; their weights are a part of the model's."""

    longest = HEAD_LENGTH
    begins_blank = True

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

    def model_hidden_state(self, rows: int) -> np.ndarray:
        """What the model's last layer made in these rows, float32 [rows, width]."""
        return hidden_states.hidden_rows(self._beside.handle, rows, self._width)


class LayerReader(StateReader):
    """A drafter that was made for the model, with weights of its own: it reads what goes into some
    of the model's layers."""

    begins_blank = False

    def __init__(
        self,
        config: ModelConfig,
        load: LoadOptions,
        options: ContextOptions,
        backend: LlamaBackend,
    ) -> None:
        """Load it and allocate its cells. The backend's context gives the layers that it reads.

        Raises ModelLoadError, BackendError, DoesNotFitError.
        """
        _check_table(config)
        with contextlib.ExitStack() as stack:
            self.weights = stack.enter_context(Weights(Path(config.path), load))
            lender = None
            if borrows(config):
                lender = stack.enter_context(Context(backend.weights, lender_options(options)))
            context = stack.enter_context(Context(self.weights, options, other=lender))
            super().__init__(context, stack.pop_all())
        self.layers = self.weights.residency.layers
        taken = [each.residency for each in (context, lender) if each is not None]
        self.buffers = (
            *self.weights.residency.buffers,
            *(buffer for each in taken for buffer in (*each.kv_buffers, *each.compute_buffers)),
        )
        self.max_length = min(backend.max_length, context.num_cells)
        self.max_waiting = context.num_cells
        self.vocab_size = self.weights.vocab_size
        self._backend = backend

    def model_hidden_state(self, rows: int) -> np.ndarray:
        """What went into the model's layers that it reads, float32 [rows, layers x width]."""
        return self._backend.context.layer_rows(rows)


class Eagle(LayerReader):
    """One layer that reads what goes into three of the model's (EAGLE-3).

    The row of token p has position p - 1, that of the hidden state in it, as it was trained. So the
    first token of a sequence has no row.
    """

    longest = EAGLE_LENGTH

    def __init__(
        self,
        config: ModelConfig,
        load: LoadOptions,
        options: ContextOptions,
        backend: LlamaBackend,
    ) -> None:
        super().__init__(config, load, eagle_options(options), backend)
        self._width = native.llama_model_n_embd(self.weights.handle)
        self.fed = self.context.feed(self._width)

    def encode(self, states: np.ndarray) -> np.ndarray:
        """Three layers become one vector, float32 [rows, width]. Raises BatchError."""
        room = self.batch.max_outputs
        parts = [states[at : at + room] for at in range(0, len(states), room)]
        return np.concatenate([self.context.encode(part, self._width) for part in parts])

    def decode(self) -> None:
        positions = self.batch.positions[: self.batch.size]
        positions -= 1
        try:
            self.context.decode()
        finally:
            positions += 1

    def drop(self, slot: int, start: int = 0) -> bool:
        return self.context.drop(slot, max(0, start - 1))

    def holds(self, slot: int, begin: int, stop: int) -> bool:
        return self.context.holds(slot, max(0, begin - 1), stop - 1)

    def share(self, source: int, target: int, stop: int) -> bool:
        self.context.share(source, target, stop - 1)
        return True


class DFlash(LayerReader):
    """Layers that look at what they made of the model's hidden states, and guess a block at once
    (DFlash). A batch has hidden states in all of its rows, or tokens."""

    def __init__(
        self,
        config: ModelConfig,
        load: LoadOptions,
        options: ContextOptions,
        backend: LlamaBackend,
    ) -> None:
        super().__init__(config, load, block_options(config, options), backend)
        handle = self.weights.handle
        self.longest = config.block_size - 1
        self.max_waiting = ENCODED_ROWS * self.num_slots
        self.mask = config.tokenizer and config.tokenizer.mask_id
        self.fed = np.zeros(
            (self.batch.capacity, len(config.target_layers) * config.target_width), np.float32
        )
        causal = open_header(config.path).keys.get("dflash.attention.causal", False)
        native.llama_set_causal_attn(self.context.handle, bool(causal))
        self._window = self.weights.sliding_window
        self._has_planes = native.llama_model_rope_type(handle) == native.LLAMA_ROPE_TYPE_MROPE

    def decode(self) -> None:
        batch = self.batch
        if self._has_planes and batch.vectors is not None:
            batch.planes = np.zeros((4, batch.size), np.int32)
            batch.planes[:3] = batch.positions[: batch.size]
        self.context.decode()

    def holds(self, slot: int, begin: int, stop: int) -> bool:
        """A block that was dropped has pushed cells out of a sliding window; the others do."""
        if not self._window:
            return self.context.holds(slot, begin, stop)
        first, _ = self.context.span(slot)
        return 0 <= first <= max(begin, stop - self._window + self.longest + 2)


def open_layer_reader(
    config: ModelConfig, load: LoadOptions, options: ContextOptions, backend: LlamaBackend
) -> LayerReader:
    """The one that the file is. Raises ModelLoadError, BackendError, DoesNotFitError."""
    kind = DFlash if config.block_size else Eagle
    return kind(config, load, options, backend)


def block_options(config: ModelConfig, options: ContextOptions) -> ContextOptions:
    """Of a DFlash drafter's context for so many slots and cells, and for the blocks."""
    rows = block_rows(config, options.num_slots)
    return replace(
        options,
        num_cells=options.num_cells + rows,
        unified=True,
        chunk_outputs=rows - options.num_slots,
        batch_size=rows,
        ubatch_size=rows,
        purpose="drafts",
    )


class Assistant(Companion):
    """Implements `engine.drafts.assistant.AssistantBackend`: a drafter that was made for the model
    and looks at its cells (Gemma 4).

    It has no cells, so there is nothing to drop. llama.cpp looks for free ones nevertheless, and
    finds some whenever the model's next step does.
    """

    longest = ASSISTANT_LENGTH

    def __init__(self, config: ModelConfig, load: LoadOptions, backend: LlamaBackend) -> None:
        """Load it and make its context, before the backend's one holds anything.

        Raises ModelLoadError, BackendError, DoesNotFitError.
        """
        with contextlib.ExitStack() as stack:
            self.weights = stack.enter_context(Weights(Path(config.path), load))
            options = assistant_options(backend.context.options)
            context = Context(self.weights, options, other=backend.context)
            stack.enter_context(context)
            stack.callback(backend.context.attend, None)
            super().__init__(context, stack.pop_all())
        self.layers = self.weights.residency.layers
        self.buffers = (*self.weights.residency.buffers, *context.residency.compute_buffers)
        self.max_length = backend.max_length
        self.vocab_size = self.weights.vocab_size
        self._beside = backend.context
        self._width = native.llama_model_n_embd_out(self.weights.handle)
        self.fed = context.feed(self._width)

    def hidden_state(self, row: int) -> np.ndarray:
        """The row's hidden state, float32 [width]; all rows of its batch have outputs."""
        return hidden_states.hidden_rows(self.context.handle, row + 1, self._width)[row]

    def model_hidden_state(self, first: int, count: int) -> np.ndarray:
        """The model's hidden states in those of these rows of its last batch that have outputs,
        float32 [outputs, width], a copy."""
        outputs = self._beside.batch.outputs
        begin = int(np.count_nonzero(outputs[:first]))
        end = begin + int(np.count_nonzero(outputs[first : first + count]))
        return hidden_states.hidden_rows(self._beside.handle, end, self._width)[begin:].copy()

    def warm_up(self) -> None:
        """As any companion; the model's cells are empty yet."""
        self.batch.clear()
        self.batch.add_one(0, 0, 0)
        with ThreadPoolExecutor(1, thread_name_prefix="warm-up") as pool:
            pool.submit(self.decode).result()


def eagle_options(options: ContextOptions) -> ContextOptions:
    """Of an EAGLE-3 drafter's context for so many slots and cells."""
    outputs = eagle_outputs(options.num_slots) - options.num_slots
    return replace(options, unified=True, chunk_outputs=outputs, purpose="drafts")


def _check_table(config: ModelConfig) -> None:
    """Raise ModelLoadError for a drafter whose own vocabulary leads out of the model's, where ggml
    would write."""
    table = next((t for t in open_header(config.path).tensors if t.name == "d2t"), None)
    if table is None:
        return
    with pin(config.files) as paths:
        ids = np.fromfile(paths[table.file], "<i8", table.elements, offset=table.offset)
    if len(ids) != table.elements or ids.min() < 0 or ids.max() >= config.vocab_size:
        raise ModelLoadError(
            f"{Path(config.path).name}: its table d2t names tokens that are not in its vocabulary.",
            hint="Convert the drafter again.",
        )


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

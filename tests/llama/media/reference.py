"""What a model answers to media, by the bindings alone: row by row, one context, one text.

llama.cpp's own server counts the positions of a picture that is shown twice in another way, so it
is no reference here.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from worker.llama.library import native, start
from worker.llama.media.child import mtmd

_TEXT, _IMAGE = 0, 1
_CELLS = 1024


class MediaReference:
    """Use it through `media_reference`."""

    def __init__(self, model: Path, projector: Path) -> None:
        start()
        params = native.llama_model_default_params()
        self._model: Any = native.llama_model_load_from_file(os.fsencode(model), params)
        self._vocab: Any = native.llama_model_get_vocab(self._model)
        self._size = native.llama_vocab_n_tokens(self._vocab)
        self._width = native.llama_model_n_embd_inp(self._model)
        options = mtmd.mtmd_context_params_default()
        options.use_gpu, options.n_threads, options.print_timings = False, 1, False
        self._mtmd: Any = mtmd.mtmd_init_from_file(os.fsencode(projector), self._model, options)
        self._context: Any = None
        self._position = 0

    def answer(self, text: str, media: Sequence[bytes], count: int) -> list[tuple[bytes, float]]:
        """The likeliest tokens behind a text, with their log-probabilities. A NUL in the text
        stands for each medium."""
        params = native.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.swa_full = _CELLS, 512, 512, True
        self._context = native.llama_init_from_model(self._model, params)
        self._position = 0
        try:
            self._read(text, media)
            return [self._next() for _ in range(count)]
        finally:
            native.llama_free(self._context)

    def _read(self, text: str, media: Sequence[bytes]) -> None:
        marked = text.encode().replace(b"\0", mtmd.mtmd_get_marker(self._mtmd))
        given = mtmd.mtmd_input_text(marked, len(marked), True, True)
        options = mtmd.mtmd_helper_init_opt_default()
        bitmaps = (ctypes.c_void_p * len(media))()
        for place, data in enumerate(media):
            source = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
            bitmaps[place] = mtmd.mtmd_helper_bitmap_init_from_buf_wrapper(
                self._mtmd, source, len(data), False, options
            ).bitmap
        chunks = mtmd.mtmd_input_chunks_init()
        assert not mtmd.mtmd_tokenize(self._mtmd, chunks, ctypes.byref(given), bitmaps, len(media))
        for place in range(mtmd.mtmd_input_chunks_size(chunks)):
            self._read_chunk(mtmd.mtmd_input_chunks_get(chunks, place))
        mtmd.mtmd_input_chunks_free(chunks)
        for bitmap in bitmaps:
            mtmd.mtmd_bitmap_free(bitmap)

    def _read_chunk(self, chunk: Any) -> None:
        kind = mtmd.mtmd_input_chunk_get_type(chunk)
        if kind == _TEXT:
            size = ctypes.c_size_t()
            tokens = mtmd.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(size))
            for token in tokens[: size.value]:
                self._add(token)
            return
        assert not mtmd.mtmd_encode_chunk(self._mtmd, chunk)
        rows = mtmd.mtmd_input_chunk_get_n_tokens(chunk)
        found = mtmd.mtmd_get_output_embd(self._mtmd)
        vectors = np.ctypeslib.as_array(found, (rows, self._width)).copy()
        planes = self._planes(chunk, rows, kind)
        together = mtmd.mtmd_decode_use_non_causal(self._mtmd, chunk)
        step = rows if together else 1
        native.llama_set_causal_attn(self._context, not together)
        for begin in range(0, rows, step):
            some = np.ascontiguousarray(vectors[begin : begin + step])
            places = np.ascontiguousarray(planes[:, begin : begin + step])
            batch = native.llama_batch(
                step, None, some.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
                places.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)), None, None, None,
            )  # fmt: skip
            assert not native.llama_decode(self._context, batch)
        native.llama_set_causal_attn(self._context, True)
        self._position += mtmd.mtmd_input_chunk_get_n_pos(chunk)

    def _planes(self, chunk: Any, rows: int, kind: int) -> np.ndarray:
        """Positions, int32 [planes, rows]."""
        count = 4 if mtmd.mtmd_decode_use_mrope(self._mtmd) else 1
        planes = np.tile(np.arange(rows, dtype=np.int32) + self._position, (count, 1))
        if count == 1 or kind != _IMAGE:
            return planes
        tokens = mtmd.mtmd_input_chunk_get_tokens_image(chunk)
        for row in range(rows):
            at = mtmd.mtmd_image_tokens_get_decoder_pos(tokens, self._position, row)
            planes[:, row] = at.t, at.y, at.x, at.z
        return planes

    def _add(self, token: int) -> None:
        tokens = (ctypes.c_int32 * 1)(token)
        batch: Any = native.llama_batch_get_one(tokens, 1)
        batch.pos = (ctypes.c_int32 * 1)(self._position)
        assert not native.llama_decode(self._context, batch)
        self._position += 1

    def _next(self) -> tuple[bytes, float]:
        logits = np.ctypeslib.as_array(
            native.llama_get_logits_ith(self._context, -1), (self._size,)
        ).astype(np.float64)
        best = int(logits.argmax())
        logprob = -np.log(np.exp(logits - logits[best]).sum())
        room = ctypes.create_string_buffer(64)
        size = native.llama_token_to_piece(self._vocab, best, room, 64, 0, False)
        self._add(best)
        return room.raw[:size], float(logprob)

    def close(self) -> None:
        mtmd.mtmd_free(self._mtmd)
        native.llama_model_free(self._model)


@contextmanager
def media_reference(model: Path, projector: Path) -> Generator[MediaReference]:
    """One that is closed with the block."""
    reference = MediaReference(model, projector)
    try:
        yield reference
    finally:
        reference.close()

"""In which order the CPU keeps weights, as the loaded library tells.

A build takes AMX's tiles, rows that are interleaved, or others, by what it was compiled for and
what the CPU has. So the library is asked as its own loader asks (`select_weight_buft` in
`llama-model-loader.cpp`): the first type of buffer that can multiply with a matrix gets it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator

from worker.gguf.quant import ENCODINGS, NEVER_WEIGHTS
from worker.llama import library, signatures
from worker.machine import PackedEncoding

_P = ctypes.c_void_p
_F32 = 0
# Multiples of rows that kernels ask for. A matrix of the last satisfies each.
_ROWS = (1, 4, 8, 16, 32, 64)
_WIDTH = 1024  # whole blocks of each encoding


@functools.cache
def packed_encodings() -> tuple[PackedEncoding, ...]:
    """The encodings whose matrices the CPU keeps in another order than the file."""
    library.start()
    lib = library.ggml()
    signatures.declare(lib, signatures.PACKING)
    device = library.device_handles().get("CPU")
    types = list(_buffer_types(lib, device)) if device else []
    found: list[PackedEncoding] = []
    for number, encoding in ENCODINGS.items():
        if encoding.name in NEVER_WEIGHTS:
            continue
        sizes = {rows: _stored_bytes(lib, device, types, number, rows) for rows in _ROWS}
        if stored := sizes[_ROWS[-1]]:
            plain = _ROWS[-1] * _WIDTH // encoding.block * encoding.nbytes
            least = next(rows for rows in _ROWS if sizes[rows])
            found.append(PackedEncoding(encoding.name, stored / plain, least))
    return tuple(found)


def _buffer_types(lib: ctypes.CDLL, device: int) -> Iterator[int]:
    """The CPU's types of buffers besides the plain one, in the order in which they are tried."""
    registry = lib.ggml_backend_dev_backend_reg(device)
    address = lib.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
    if address:
        listing = ctypes.CFUNCTYPE(ctypes.POINTER(_P), _P)(address)(device)
        for kind in listing:  # NULL ends them
            if not kind:
                return
            yield kind


def _stored_bytes(
    lib: ctypes.CDLL, device: int | None, types: list[int], number: int, rows: int
) -> int:
    """Bytes that a matrix takes in the first type of buffer that can multiply with it; or 0."""
    for kind in types:
        context = lib.ggml_init(signatures.InitParams(1 << 16, None, True))
        matrix = lib.ggml_new_tensor_2d(context, number, _WIDTH, rows)
        size = lib.ggml_backend_buft_get_alloc_size(kind, matrix)
        buffer = lib.ggml_backend_buft_alloc_buffer(kind, size)
        try:
            lib.ggml_backend_tensor_alloc(buffer, matrix, lib.ggml_backend_buffer_get_base(buffer))
            batch = lib.ggml_new_tensor_2d(context, _F32, _WIDTH, 512)
            product = lib.ggml_mul_mat(context, matrix, batch)
            if lib.ggml_backend_dev_supports_op(device, product):
                return size
        finally:
            lib.ggml_backend_buffer_free(buffer)
            lib.ggml_free(context)
    return 0

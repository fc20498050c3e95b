"""Functions, structs and numbers of ggml's interface that we use and the bindings do not declare.

The installer holds them, and what the bindings declare, against the headers of a newer llama.cpp.
"""

from __future__ import annotations

import ctypes
from typing import Any

_P, _S, _C, _I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_int64

# Named as in C. Its pointers lead to what ggml owns.
AbortCallback = ctypes.CFUNCTYPE(None, _C)


class InitParams(ctypes.Structure):
    """struct ggml_init_params"""

    _fields_ = (("mem_size", _S), ("mem_buffer", _P), ("no_alloc", ctypes.c_bool))


class TensorPlace(ctypes.Structure):
    """struct llama_model_tensor_buft_override; an array of them ends with an empty one."""

    _fields_ = (("pattern", _C), ("buft", _P))


class GgmlTensor(ctypes.Structure):
    """struct ggml_tensor"""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", _P),
        ("ne", _I * 4),
        ("nb", _S * 4),
        ("op", ctypes.c_int),
        ("op_params", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("src", _P * 10),
        ("view_src", _P),
        ("view_offs", _S),
        ("data", _P),
        ("name", ctypes.c_char * 64),
        ("extra", _P),
        ("padding", ctypes.c_char * 8),
    )


class TypeTraits(ctypes.Structure):
    """struct ggml_type_traits"""

    _fields_ = (
        ("type_name", _C),
        ("blck_size", _I),
        ("blck_size_interleave", _I),
        ("type_size", _S),
        ("is_quantized", ctypes.c_bool),
        ("to_float", _P),
        ("from_float_ref", _P),
    )


# (name, result, arguments) of functions, by what needs them.
Signatures = tuple[tuple[str, Any, list[Any]], ...]
DEVICES: Signatures = (
    ("ggml_set_abort_callback", _P, [AbortCallback]),
    ("ggml_backend_load", _P, [_C]),
    ("ggml_backend_reg_count", _S, []),
    ("ggml_backend_reg_get", _P, [_S]),
    ("ggml_backend_reg_name", _C, [_P]),
    ("ggml_backend_dev_count", _S, []),
    ("ggml_backend_dev_get", _P, [_S]),
    ("ggml_backend_dev_name", _C, [_P]),
    ("ggml_backend_dev_description", _C, [_P]),
    ("ggml_backend_dev_memory", None, [_P, ctypes.POINTER(_S), ctypes.POINTER(_S)]),
    ("ggml_backend_dev_type", ctypes.c_int, [_P]),
    ("ggml_backend_dev_backend_reg", _P, [_P]),
    ("ggml_backend_dev_buffer_type", _P, [_P]),
    ("ggml_backend_buft_name", _C, [_P]),
)
PACKING: Signatures = (
    ("ggml_backend_reg_get_proc_address", _P, [_P, _C]),
    ("ggml_init", _P, [InitParams]),
    ("ggml_free", None, [_P]),
    ("ggml_new_tensor_2d", _P, [_P, ctypes.c_int, _I, _I]),
    ("ggml_mul_mat", _P, [_P, _P, _P]),
    ("ggml_backend_buft_alloc_buffer", _P, [_P, _S]),
    ("ggml_backend_buft_get_alloc_size", _S, [_P, _P]),
    ("ggml_backend_buffer_get_base", _P, [_P]),
    ("ggml_backend_buffer_free", None, [_P]),
    ("ggml_backend_tensor_alloc", ctypes.c_int, [_P, _P, _P]),
    ("ggml_backend_dev_supports_op", ctypes.c_bool, [_P, _P]),
)
RPC: Signatures = (
    ("ggml_backend_rpc_init", _P, [_C, ctypes.c_uint32]),
    ("ggml_backend_rpc_add_server", _P, [_C]),
    ("ggml_backend_rpc_start_server", None, [_C, _C, _S, _S, ctypes.POINTER(_P)]),
    ("ggml_backend_reg_dev_count", _S, [_P]),
    ("ggml_backend_reg_dev_get", _P, [_P, _S]),
    ("ggml_backend_device_register", None, [_P]),
)
GRAPH: Signatures = (
    ("ggml_backend_buffer_is_host", ctypes.c_bool, [_P]),
    ("ggml_backend_tensor_get", None, [_P, _P, _S, _S]),
    ("ggml_backend_tensor_set", None, [_P, _P, _S, _S]),
    ("ggml_nbytes", _S, [_P]),
)
ROUNDING: Signatures = (
    ("ggml_quantize_chunk", _S, [ctypes.c_int, _P, _P, _I, _I, _I, _P]),
    ("ggml_get_type_traits", ctypes.POINTER(TypeTraits), [ctypes.c_int]),
)
TABLES = (DEVICES, PACKING, RPC, GRAPH, ROUNDING)
STRUCTS = {
    "ggml_tensor": GgmlTensor,
    "ggml_type_traits": TypeTraits,
    "ggml_init_params": InitParams,
    "llama_model_tensor_buft_override": TensorPlace,
}
# What our modules write as numbers.
VALUES = {
    "GGML_OP_NONE": 0,
    "GGML_OP_MUL_MAT": 29,
    "GGML_OP_MUL_MAT_ID": 30,
    "GGML_LOG_LEVEL_DEBUG": 1,
    "GGML_LOG_LEVEL_INFO": 2,
    "GGML_LOG_LEVEL_WARN": 3,
    "GGML_LOG_LEVEL_ERROR": 4,
    "GGML_LOG_LEVEL_CONT": 5,
    "GGML_BACKEND_DEVICE_TYPE_CPU": 0,
    "GGML_BACKEND_DEVICE_TYPE_GPU": 1,
    "GGML_BACKEND_DEVICE_TYPE_IGPU": 2,
    "GGML_BACKEND_DEVICE_TYPE_ACCEL": 3,
    "GGML_BACKEND_DEVICE_TYPE_META": 4,
    "MTMD_INPUT_CHUNK_TYPE_TEXT": 0,
    "MTMD_INPUT_CHUNK_TYPE_IMAGE": 1,
    "RPC_PROTO_MAJOR_VERSION": 7,
}


def declare(lib: ctypes.CDLL, table: Signatures) -> None:
    """Set the results and arguments of functions that the library has."""
    for name, result, arguments in table:
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments

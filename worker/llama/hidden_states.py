"""llama.cpp's calls for hidden states, which are not a part of its public interface.

They are exported under C++ names, which another compiler spells in another way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np

from worker.llama import library
from worker.llama.library import bare_package, native

calls: Any = None
missing: str | None = None
missing_layers: str | None = None
try:
    with bare_package():
        import llama_cpp.llama_cpp_ext as calls
except (ImportError, AttributeError) as error:  # AttributeError: the library has no such symbol
    missing = str(error)
_CONTEXT = native.llama_context_p_ctypes
_FLOATS = ctypes.POINTER(ctypes.c_float)


_LIB = library.interface()


def _declare(names: tuple[str, ...], arguments: list[Any], result: Any) -> Any:
    """The function under one of its names: C, and C++ of GCC and Clang and of MSVC."""
    name = next((name for name in names if hasattr(_LIB, name)), None)
    if name is None:
        raise AttributeError(f"the library has no {names[0]}")
    function = getattr(_LIB, name)
    function.argtypes, function.restype = arguments, result
    return function


try:
    _set_layer = _declare(
        (
            "llama_set_embeddings_layer_inp",
            "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
            "?llama_set_embeddings_layer_inp@@YAXPEAUllama_context@@I_N@Z",
        ),
        [_CONTEXT, ctypes.c_uint32, ctypes.c_bool],
        None,
    )
    _get_layer = _declare(
        (
            "llama_get_embeddings_layer_inp",
            "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
            "?llama_get_embeddings_layer_inp@@YAPEAMPEAUllama_context@@I@Z",
        ),
        [_CONTEXT, ctypes.c_uint32],
        _FLOATS,
    )
except AttributeError as error:
    missing_layers = str(error)


def why_missing(*, layers: bool = False) -> str | None:
    """Why this build gives no hidden states, as a part of a sentence; None: it does.

    layers: those between layers too
    """
    why = missing or (missing_layers if layers else None)
    return None if why is None else f"this build of llama.cpp gives no hidden states: {why}"


def give_hidden(context: Any, *, outputs_only: bool) -> None:
    """Have the context keep the hidden states of all rows, or of those with outputs."""
    calls.llama_set_embeddings_nextn(context, True, outputs_only)


def hidden_rows(context: Any, rows: int, width: int) -> np.ndarray:
    """Hidden states of the last batch's first rows, float32 [rows, width], until the next one.

    A context that keeps those of outputs only has these.
    """
    return library.floats(calls.llama_get_embeddings_nextn(context), rows * width).reshape(
        rows, width
    )


def give_layers(context: Any, layers: Iterable[int], count: int) -> None:
    """Have the context keep what goes into these of its `count` layers, of all rows; `count` itself
    stands for what the last one makes."""
    for layer in layers:
        if layer == count:
            give_hidden(context, outputs_only=False)
        else:
            _set_layer(context, layer, True)


def layer_rows(context: Any, layers: Iterable[int], count: int, rows: int, width: int) -> Any:
    """What went into these layers in the last batch's first rows, float32 [rows, layers x width], a
    copy."""
    found = [
        hidden_rows(context, rows, width)
        if layer == count
        else library.floats(_get_layer(context, layer), rows * width).reshape(rows, width)
        for layer in layers
    ]
    return np.concatenate(found, axis=1)

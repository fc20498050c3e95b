"""The nodes of a graph as llama.cpp's evaluation callback shows them, one after the other.

Later nodes use a node's memory again: what is read here is read at once, and the addresses of
activations are never kept. Those of weights are: they live as long as the model.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.llama import library, signatures
from worker.llama.library import native
from worker.llama.signatures import VALUES, GgmlTensor

MUL_MAT, MUL_MAT_ID = VALUES["GGML_OP_MUL_MAT"], VALUES["GGML_OP_MUL_MAT_ID"]
_NONE = VALUES["GGML_OP_NONE"]
_OP = GgmlTensor.op.offset
F32 = 0  # enum ggml_type


@functools.cache
def _lib() -> ctypes.CDLL:
    lib = library.ggml()
    signatures.declare(lib, signatures.GRAPH)
    return lib


def op_of(node: int) -> int:
    """The operation of the node at this address."""
    return ctypes.c_int.from_address(node + _OP).value


def tensor_at(address: int) -> GgmlTensor:
    """A view of the struct; valid as long as the graph's node."""
    return GgmlTensor.from_address(address)


def name_of(tensor: GgmlTensor) -> str:
    """A weight's name, without the marks that a copy on a device has (`CUDA0#NAME#0`)."""
    name = tensor.name.decode("utf-8", "replace")
    return name.split("#")[1] if "#" in name else name


def values_of(address: int, kind: type[np.generic]) -> NDArray[Any]:
    """The numbers of a node, [ne3, ne2, ne1, ne0]; where it lies on the host, a view of them that
    is valid inside of the callback only."""
    lib, tensor = _lib(), tensor_at(address)
    size = lib.ggml_nbytes(address)
    if lib.ggml_backend_buffer_is_host(tensor.buffer):
        memory: Any = (ctypes.c_char * size).from_address(tensor.data)
    else:
        memory = ctypes.create_string_buffer(size)
        lib.ggml_backend_tensor_get(address, memory, 0, size)
    return np.ndarray(tuple(tensor.ne)[::-1], kind, memory, strides=tuple(tensor.nb)[::-1])


class Callback:
    """An evaluation callback. `native` goes into a context's parameters and must outlive it.

    wants  says of a node's address whether it must be computed now and be given to `take`
    An exception cannot cross native frames: `check` raises it after the computation.
    """

    def __init__(self, wants: Callable[[int], bool], take: Callable[[int], None]) -> None:
        self._wants, self._take = wants, take
        self._failure: BaseException | None = None
        self.native = native.ggml_backend_sched_eval_callback(self._see)

    def _see(self, node: int, ask: bool, _user: object) -> bool:
        if self._failure is not None:
            return False
        try:
            if ask:
                return self._wants(node)
            self._take(node)
        except BaseException as error:  # noqa: BLE001
            self._failure = error
            return False
        return True

    def check(self) -> None:
        """Raise what went wrong in the callback."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure


class WeightFinder:
    """Finds where a model's weights lie, while one batch is computed."""

    def __init__(self) -> None:
        self.places: dict[str, set[int]] = {}
        self._is_done = False
        self.callback = Callback(self._look, lambda _: None)

    def stop(self) -> None:
        """All that is computed from now on shows no more."""
        self._is_done = True

    def _look(self, node: int) -> bool:
        if not self._is_done:
            for source in tensor_at(node).src:
                if source and op_of(source) == _NONE:
                    name = name_of(tensor_at(source))
                    if name.endswith(".weight"):
                        self.places.setdefault(name, set()).add(source)
        return False

    def write(self, name: str, data: NDArray[np.uint8], offset: int) -> None:
        """Exchange bytes of a weight, in its own encoding."""
        for address in self.places[name]:
            _lib().ggml_backend_tensor_set(address, data.ctypes.data, offset, data.nbytes)

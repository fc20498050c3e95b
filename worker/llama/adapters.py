"""Adapters in native memory, and which of them a context computes with."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from worker.errors import DoesNotFitError
from worker.gguf.header import ModelFile
from worker.gguf.source import pin
from worker.llama import library
from worker.llama.library import native
from worker.model.control_vector import ControlVector

DIGEST_BYTES = 16
_ENTRY = struct.Struct(f"<{DIGEST_BYTES}sf")


def adapter_key(scales: Iterable[tuple[bytes, float]]) -> bytes:
    """The key of prompts that are computed with these adapters, each named by the digest of its
    file; one that is scaled by 0 is none. The same set has the same key in any worker."""
    entries = sorted(_ENTRY.pack(digest, scale) for digest, scale in scales)
    return b"".join(entry for entry in entries if _ENTRY.unpack(entry)[1])


def digests_in(key: bytes) -> set[bytes]:
    """Of the files of the adapters that `key` names."""
    return {digest for digest, _ in _ENTRY.iter_unpack(key)}


class Adapters:
    """The adapters of one model, which frees them.

    llama.cpp counts a model's adapters where it makes a graph, so what loads and frees them must be
    done by the thread that computes.
    """

    def __init__(self, model: Any, files: Mapping[bytes, ModelFile]) -> None:
        """Load them beside the weights, by digest. Raises as `load`."""
        self._model = model
        self._handles: dict[bytes, Any] = {}
        for digest, file in files.items():
            self.load(digest, file)

    def load(self, digest: bytes, file: ModelFile) -> None:
        """Load one more.

        Raises ModelLoadError with llama.cpp's reason, DoesNotFitError, ModelFileError (CHANGED).
        """
        self._handles[digest] = _load(self._model, file)

    def free(self, digest: bytes) -> None:
        """Free one that no context computes with."""
        native.llama_adapter_lora_free(self._handles.pop(digest))

    def use(self, context: Any, key: bytes) -> None:
        """Compute with those that `key` says, and with no others. Another set than before costs a
        worst-case graph at the next step."""
        entries = list(_ENTRY.iter_unpack(key))
        handles = (native.llama_adapter_lora_p_ctypes * len(entries))(
            *(self._handles[digest] for digest, _ in entries)
        )
        scales = (ctypes.c_float * len(entries))(*(scale for _, scale in entries))
        native.llama_set_adapters_lora(  # pyright: ignore[reportUnknownMemberType]
            context, handles, len(entries), scales
        )


def add_control_vector(context: Any, control: ControlVector) -> None:
    """Have a context add it from now on. Raises DoesNotFitError."""
    values = np.ascontiguousarray(control.values, np.float32)
    width = values.shape[1]
    failed = native.llama_set_adapter_cvec(
        context,
        values.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
        values.size,
        width,
        control.first,
        control.last,
    )
    if failed:
        raise DoesNotFitError("There is no memory for the control vector.")


def _load(model: Any, file: ModelFile) -> Any:
    with library.capture_log() as lines, pin((file,)) as (path,):
        handle = native.llama_adapter_lora_init(model, os.fsencode(path))
    if not handle:
        raise library.failure(
            f"llama.cpp could not load the adapter {os.path.basename(file.path)}",  # noqa: PTH119
            lines,
            hint="Check it with `worker check MODEL --lora FILE`.",
            smaller="Free memory, or load fewer adapters.",
        )
    return handle

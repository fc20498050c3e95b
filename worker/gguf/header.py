"""The header of a GGUF file as Python values: everything in front of the weights."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from worker.errors import ModelFileError
from worker.gguf.strings import StringArray

Value = bool | int | float | str | StringArray | NDArray[np.generic]

# GGUF value types, as the format numbers them.
TYPE_NAMES = tuple(
    "UINT8 INT8 UINT16 INT16 UINT32 INT32 FLOAT32 BOOL STRING ARRAY UINT64 INT64 FLOAT64".split()
)
TYPES = {name: number for number, name in enumerate(TYPE_NAMES)}

DAMAGED = "The file is damaged or cut short; get it again."
RECONVERT = "Convert the model again with a current llama.cpp."


class Identity(msgspec.Struct, frozen=True):
    """Tells one state of a file from another: it changes when the file is replaced or written."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Identity:
        """The identity that a `stat` shows."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class TensorInfo(msgspec.Struct, frozen=True):
    """One row of the tensor table. `shape` is in ggml's order: the length of a row comes first."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int  # from the begin of the file
    relative: int  # from the begin of the data section, as stored
    nbytes: int
    elements: int
    file: int = 0  # which file of a split model

    @property
    def is_matrix(self) -> bool:
        """Whether it has rows, and nothing has several of it, as layers have of experts."""
        return sum(length > 1 for length in self.shape) == 2 and self.shape[1] > 1


class ModelFile(msgspec.Struct, frozen=True):
    """One file of a model as it was when it was read."""

    path: str
    identity: Identity
    data_offset: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.identity.size


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """Everything in front of the weights.

    keys     name -> value; of a split model those of its first file
    types    name -> GGUF value type; ARRAY for an array, whatever its elements are
    offsets  name -> where the value begins in the first file, in bytes
    tensors  of all files
    """

    version: int
    alignment: int
    keys: dict[str, Value]
    types: dict[str, int]
    offsets: dict[str, int]
    tensors: tuple[TensorInfo, ...]
    files: tuple[ModelFile, ...]

    @property
    def path(self) -> str:
        """The first or only file."""
        return self.files[0].path

    @property
    def identity(self) -> Identity:
        """The first or only file's identity."""
        return self.files[0].identity


def refuse(code: str, message: str, *, at: int | None = None, field: str | None = None,
           got: Any = None, limit: Any = None, hint: str = DAMAGED) -> ModelFileError:  # fmt: skip
    """The error for a file that is refused. `at` is a byte offset."""
    return ModelFileError(code, message, offset=at, field=field, got=got, limit=limit, hint=hint)

"""Bytes of a sound GGUF file -> an editable `Gguf`. It shares no code with the worker's reader."""

from __future__ import annotations

import math
import struct
from typing import Any

from tests.support.models.ggufs import (
    ARR,
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STR,
    U8,
    U16,
    U32,
    U64,
    Gguf,
    Key,
    Tensor,
    pad,
)
from worker.gguf.quant import ENCODINGS

_LETTERS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B",
            U64: "Q", I64: "q", F64: "d"}  # fmt: skip


def parsed(data: bytes) -> Gguf:
    """The keys and tensors of a file that is known to be sound."""
    return _Cursor(data).gguf()


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def numbers(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values

    def text(self) -> str | bytes:
        (size,) = self.numbers("Q")
        raw = self.data[self.at : self.at + size]
        self.at += size
        try:
            return raw.decode()
        except UnicodeDecodeError:  # a token may be a part of a character
            return raw

    def key(self) -> Key:
        (kind,) = self.numbers("I")
        if kind == STR:
            return Key(STR, self.text())
        if kind != ARR:
            return Key(kind, self.numbers(_LETTERS[kind])[0])
        item, length = self.numbers("IQ")
        if item == STR:
            return Key(ARR, [self.text() for _ in range(length)], STR)
        return Key(ARR, list(self.numbers(f"{length}{_LETTERS[item]}")), item)

    def gguf(self) -> Gguf:
        self.at = 4
        version, n_tensors, n_keys = self.numbers("IQQ")
        out = Gguf(version=version)
        for _ in range(n_keys):
            name = self.text()
            out.keys[name] = self.key()
        alignment = out.keys.get("general.alignment")
        if isinstance(alignment, Key):
            out.alignment = alignment.value
        offsets: list[int] = []
        for _ in range(n_tensors):
            name = self.text()
            (n_dims,) = self.numbers("I")
            shape = self.numbers(f"{n_dims}Q")
            kind, offset = self.numbers("IQ")
            offsets.append(offset)
            out.tensors.append(Tensor(name, shape, kind, b""))
        base = pad(self.at, out.alignment)
        for tensor, offset in zip(out.tensors, offsets, strict=True):
            encoding = ENCODINGS[tensor.type]
            nbytes = math.prod(tensor.shape) // encoding.block * encoding.nbytes
            tensor.data = self.data[base + offset : base + offset + nbytes]
        return out

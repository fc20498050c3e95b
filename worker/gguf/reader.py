"""Bytes -> header, keys and tensor table of one GGUF file.

The file is read in one pass, without recursion. Every length is compared with the bytes that remain
and with the limits below before anything of that size is allocated. Sizes are Python ints, which do
not overflow.

Only the structure is checked here; `model/checks` judges what the values mean.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.errors import ModelFileError
from worker.gguf.foreign import check_magic
from worker.gguf.header import (
    DAMAGED,
    RECONVERT,
    TYPE_NAMES,
    TYPES,
    Header,
    ModelFile,
    TensorInfo,
    Value,
    refuse,
)
from worker.gguf.quant import ENCODINGS, REMOVED
from worker.gguf.source import Source, open_file
from worker.gguf.strings import PADDING, StringArray, scan

MAGIC = b"GGUF"
_FIXED = 24  # bytes of magic, version and counts
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 65_536
MAX_METADATA_BYTES = 256 << 20  # header, metadata and tensor table of one file
MAX_KEYS = MAX_TENSORS = 65_536
MAX_STRINGS, MAX_ELEMENTS = 2_000_000, 64 << 20  # of one array
MAX_STRING_BYTES, MAX_KEY_BYTES = 16 << 20, 65_535
MAX_DIMS = 4
MAX_TENSOR_NAME = 63  # GGML_MAX_NAME without its NUL
_UINT32, _BOOL, _STRING, _ARRAY, _UINT64 = (
    TYPES[name] for name in ("UINT32", "BOOL", "STRING", "ARRAY", "UINT64")
)
_FORMATS = {"UINT8": "<B", "INT8": "<b", "UINT16": "<H", "INT16": "<h", "UINT32": "<I",
            "INT32": "<i", "FLOAT32": "<f", "BOOL": "<B", "UINT64": "<Q", "INT64": "<q",
            "FLOAT64": "<d"}  # fmt: skip
_SCALARS = {TYPES[name]: struct.Struct(layout) for name, layout in _FORMATS.items()}
_DTYPES = {TYPES[name]: np.dtype(layout) for name, layout in _FORMATS.items()}
_PLAIN_KEY = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_ASCII_KEY = re.compile(r"[\x21-\x7e]+")
_TEMPLATE_KEY = re.compile(r"tokenizer\.chat_template\.\w+")  # templates may have any name


class Row(NamedTuple):
    """A row of the tensor table as it is stored. `at` is the row's own place in the file."""

    name: str
    shape: tuple[int, ...]
    type: int
    relative: int
    at: int


def align(offset: int, alignment: int) -> int:
    """The next multiple of `alignment`."""
    return -(-offset // alignment) * alignment


def place(
    rows: Iterable[Row], begin: int, alignment: int, file_size: int
) -> tuple[TensorInfo, ...]:
    """The tensors of a file whose data section begins at `begin`.

    Each must begin where the one before it ends, rounded up to the alignment. llama.cpp takes
    nothing else, and so there are no holes, no overlaps and no offsets that overflow.
    Raises ModelFileError.
    """
    tensors: dict[str, TensorInfo] = {}
    expected = 0
    for row in rows:
        name, shape, kind, relative, at = row
        if name in tensors:
            raise refuse(
                "DUPLICATE_TENSOR",
                f"The tensor {name} is there twice.",
                at=at,
                field=name,
                got=name,
                hint=RECONVERT,
            )
        elements, nbytes = _sizes(row)
        if relative != expected:
            raise refuse(
                "BAD_TENSOR_OFFSET",
                f"{name} does not begin where the tensor before it ends.",
                at=at,
                field=name,
                got=relative,
                limit=expected,
            )
        offset = begin + relative
        if offset + nbytes > file_size:
            raise refuse(
                "TRUNCATED",
                f"The file ends before the weights of {name} do.",
                at=offset,
                field=name,
                got=file_size,
                limit=offset + nbytes,
                hint="Download it again and compare its size or checksum.",
            )
        tensors[name] = TensorInfo(name, shape, kind, offset, relative, nbytes, elements)
        expected = align(relative + nbytes, alignment)
    return tuple(tensors.values())


def check_tail(tensors: tuple[TensorInfo, ...], begin: int, alignment: int, file_size: int) -> None:
    """Raise where more bytes follow the last tensor than one alignment."""
    end = align(max((t.offset + t.nbytes for t in tensors), default=begin), alignment)
    extra = file_size - end
    if extra > alignment:
        raise refuse(
            "TRAILING_BYTES",
            f"{extra} bytes follow the last tensor.",
            at=end,
            field="data",
            got=extra,
            limit=alignment,
            hint="Something is glued to the file; get it from its publisher.",
        )


def _sizes(row: Row) -> tuple[int, int]:
    """Elements and bytes of a tensor."""
    name, shape, kind, _, at = row
    encoding = ENCODINGS.get(kind)
    if encoding is None:
        old = REMOVED.get(kind)
        raise refuse(
            "BAD_TENSOR_TYPE",
            f"{name} is stored as {old}, which llama.cpp has dropped."
            if old
            else f"{name} has the unknown tensor type {kind}.",
            at=at,
            field=name,
            got=kind,
            limit=max(ENCODINGS),
            hint="Get a Q4_0 file, which is repacked while it is loaded."
            if old
            else "The file is damaged, or llama-cpp-python has to be updated.",
        )
    elements = 1
    for length in shape:
        elements *= length
    if not 0 < elements < 2**63:
        problem = f"has the impossible shape {list(shape)}"
    elif shape[0] % encoding.block:
        problem = f"has rows of {shape[0]} elements, which is no multiple of {encoding.block}"
    else:
        return elements, elements // encoding.block * encoding.nbytes
    raise refuse(
        "BAD_SHAPE", f"{name} {problem}.", at=at, field=name, got=list(shape), limit=encoding.block
    )


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read one file's header. Raises ModelFileError where it is no sound GGUF structure."""
    name = os.fspath(path)
    with open_file(name) as fd:
        return _Parser(Source(fd, name, MAX_METADATA_BYTES)).header()


class _Parser:
    """A cursor over a source; each method reads one thing and moves on."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.at: int = 0
        self.keys: dict[str, Value] = {}
        self.types: dict[str, int] = {}
        self.offsets: dict[str, int] = {}

    def header(self) -> Header:
        """The whole header; the cursor ends behind the tensor table."""
        source = self.source
        source.grow()
        check_magic(source.data[:4096], source.path, source.size)
        self.at = len(MAGIC)
        source.need(_FIXED, "its first 24 bytes", at=self.at)
        version = self._version()
        n_tensors = self._count("n_tensors", MAX_TENSORS, least=25)
        n_keys = self._count("n_kv", MAX_KEYS, least=14)
        for index in range(n_keys):
            self._key(index)
        alignment = self._alignment()
        rows = [self._row(index) for index in range(n_tensors)]
        data_offset = align(self.at, alignment) if rows else self.at
        tensors = place(rows, data_offset, alignment, source.size)
        check_tail(tensors, data_offset, alignment, source.size)
        return Header(
            version=version,
            alignment=alignment,
            keys=self.keys,
            types=self.types,
            offsets=self.offsets,
            tensors=tensors,
            files=(ModelFile(source.path, source.identity, data_offset),),
        )

    def _version(self) -> int:
        version = self._number(_UINT32, "version")
        if version == 3:
            return version
        if version and not version & 0xFFFF:
            code, what = "BIG_ENDIAN", "The file is a big-endian GGUF."
            hint = "Convert it with gguf-convert-endian, or get the little-endian file."
        else:
            code, what = "UNSUPPORTED_VERSION", f"GGUF version {version} is not read here."
            hint = RECONVERT if version < 3 else "Update llama-cpp-python, if the file is sound."
        raise refuse(code, what, at=4, field="version", got=version, limit=3, hint=hint)

    def _count(self, field: str, cap: int, *, least: int) -> int:
        """A number of entries of `least` bytes or more each."""
        at, count = self.at, self._number(_UINT64, field)
        limit = min(cap, (self.source.size - self.at) // least)
        if count > limit:
            raise refuse(
                "COUNT_TOO_LARGE",
                f"{field} is {count}, more than can be there.",
                at=at,
                field=field,
                got=count,
                limit=limit,
            )
        return count

    def _number(self, kind: int, field: str) -> int:
        """A scalar. It may be a float, although the hint says int; `types` tells which it is."""
        layout = _SCALARS[kind]
        self.source.need(self.at + layout.size, field, at=self.at)
        (value,) = layout.unpack_from(self.source.data, self.at)
        self.at += layout.size
        return value

    def _length(self, field: str, cap: int, size: int, code: str) -> int:
        """A number of elements of `size` bytes or more each, which are in the file."""
        at, length = self.at, self._number(_UINT64, field)
        remaining = (self.source.size - self.at) // size
        if length > cap:
            what, limit = "more than is accepted", cap
        elif length > remaining:
            code, what, limit = "TRUNCATED", "more than the file has left", remaining
        else:
            return length
        raise refuse(
            code,
            f"{field} says its length is {length}, {what}.",
            at=at,
            field=field,
            got=length,
            limit=limit,
        )

    def _text(self, field: str, cap: int, code: str) -> str:
        length = self._length(field, cap, 1, code)
        at, self.at = self.at, self.at + length
        self.source.need(self.at, field, at=at)
        raw = self.source.data[at : self.at]
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            bad = raw[error.start : error.end].hex()
            raise refuse(
                "BAD_UTF8", f"{field} is not UTF-8.", at=at + error.start, field=field, got=bad
            ) from error

    def _key(self, index: int) -> None:
        at, field = self.at, f"key {index}"
        key = self._text(field, MAX_KEY_BYTES, "BAD_KEY")
        plain = _PLAIN_KEY.fullmatch(key) or _TEMPLATE_KEY.fullmatch(key)
        if not _ASCII_KEY.fullmatch(key):
            code, what, hint = "BAD_KEY", f"Key {index} is empty or not printable ASCII", DAMAGED
        elif not plain:
            code, what = "KEY_STYLE", f"The key {key[:80]} has upper-case letters or an empty part"
            hint = RECONVERT
        elif key in self.keys:
            code, what, hint = "DUPLICATE_KEY", f"The key {key[:80]} is there twice", RECONVERT
        else:
            kind = self._number(_UINT32, key)
            self.types[key], self.offsets[key] = kind, self.at
            self.keys[key] = self._value(key, kind)
            return
        raise refuse(code, what + ".", at=at, field=field, got=key[:80], hint=hint)

    def _value(self, key: str, kind: int) -> Value:
        if kind == _STRING:
            return self._text(key, MAX_STRING_BYTES, "STRING_TOO_LONG")
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _SCALARS:
            raise self._unknown_type(key, kind)
        value = self._number(kind, key)
        if kind == _BOOL:
            if value > 1:
                raise _bad_bool(key, self.at - 1, value)
            return bool(value)
        return value

    def _array(self, key: str) -> Value:
        kind = self._number(_UINT32, key)
        if kind == _STRING:
            return self._strings(key)
        if kind not in _DTYPES:
            raise self._unknown_type(key, kind)
        dtype = _DTYPES[kind]
        length = self._length(key, MAX_ELEMENTS, dtype.itemsize, "ARRAY_TOO_LONG")
        at, self.at = self.at, self.at + length * dtype.itemsize
        self.source.need(self.at, key, at=at)
        values = np.frombuffer(self.source.data, dtype, length, at).copy()
        if kind == _BOOL:
            odd = np.flatnonzero(values > 1)
            if len(odd):
                raise _bad_bool(key, at + int(odd[0]), int(values[odd[0]]))
            return values.astype(np.bool_)
        return values

    def _strings(self, key: str) -> StringArray:
        left = self._length(key, MAX_STRINGS, 8, "ARRAY_TOO_LONG")
        begin, source = self.at, self.source
        source.need(begin + 8 * left, key, at=begin)
        pieces: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        while True:
            found, self.at = scan(source.data, self.at, left)
            pieces.append(found)
            left -= len(found)
            if not left:
                break
            # The next string ends behind the bytes read so far, or behind the end of the file.
            at = self.at
            size = self._length(key, MAX_STRING_BYTES, 1, "STRING_TOO_LONG")
            source.need(self.at + size, key, at=at)
            self.at = at
        starts = np.concatenate(pieces) - begin + 8
        data = b"".join((memoryview(source.data)[begin : self.at], bytes(PADDING)))
        return StringArray(data, starts)

    def _unknown_type(self, key: str, kind: int) -> ModelFileError:
        what = "arrays within an array" if kind == _ARRAY else f"the unknown value type {kind}"
        return refuse(
            "BAD_VALUE_TYPE",
            f"{key} holds {what}.",
            at=self.at - 4,
            field=key,
            got=kind,
            limit=len(TYPE_NAMES) - 1,
        )

    def _alignment(self) -> int:
        key = "general.alignment"
        value = self.keys.get(key, DEFAULT_ALIGNMENT)
        stored = self.types.get(key, _UINT32)
        if stored != _UINT32 or not isinstance(value, int) or value < 1 or value & (value - 1):
            problem = "must be a power of two, stored as UINT32"
        elif value > MAX_ALIGNMENT:
            problem = f"must not be above {MAX_ALIGNMENT}"
        elif value < DEFAULT_ALIGNMENT:
            problem = f"is below {DEFAULT_ALIGNMENT}: native code ends where mapped weights are so"
        else:
            return value
        raise refuse(
            "BAD_ALIGNMENT",
            f"{key} {problem}.",
            at=self.offsets[key],
            field=key,
            got=value,
            limit=MAX_ALIGNMENT,
            hint=RECONVERT,
        )

    def _row(self, index: int) -> Row:
        at, field = self.at, f"the name of tensor {index}"
        name = self._text(field, MAX_TENSOR_NAME, "BAD_TENSOR_NAME")
        if not name or not name.isprintable():
            raise refuse(
                "BAD_TENSOR_NAME",
                f"{field.capitalize()} is empty or not printable.",
                at=at,
                field=field,
                got=repr(name),
            )
        n_dims = self._number(_UINT32, name)
        if not 1 <= n_dims <= MAX_DIMS:
            raise refuse(
                "BAD_SHAPE",
                f"{name} has {n_dims} dimensions.",
                at=self.at - 4,
                field=name,
                got=n_dims,
                limit=MAX_DIMS,
            )
        shape = tuple(self._number(_UINT64, name) for _ in range(n_dims))
        return Row(name, shape, self._number(_UINT32, name), self._number(_UINT64, name), at)


def _bad_bool(key: str, at: int, value: int) -> ModelFileError:
    return refuse(
        "BAD_BOOL",
        f"{key} is a truth value that is neither 0 nor 1.",
        at=at,
        field=key,
        got=value,
        limit=1,
    )

"""A model in one file, or in files `NAME-00001-of-0000N.gguf` that lie side by side."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from worker.gguf.fields import Fields
from worker.gguf.header import TYPES, Header, TensorInfo, refuse
from worker.gguf.reader import read_header
from worker.gguf.split_name import SplitName

_COUNT, _NUMBER, _TENSORS = "split.count", "split.no", "split.tensors.count"
_ARCHITECTURE = "general.architecture"
MAX_SPLITS = 4096
_AGAIN = "Download all files of the model again into one folder."


def open_header(path: str | os.PathLike[str]) -> Header:
    """The header of a model. Of a split model it has the tensors of all files. Raises
    ModelFileError."""
    first = read_header(path)
    fields = Fields(first, "")
    count = _uint16(fields, _COUNT)
    number = _uint16(fields, _NUMBER) or 0
    if count is None:
        return first
    if not 1 <= count <= MAX_SPLITS:
        fields.bad(_COUNT, count, f"1 to {MAX_SPLITS}", "SPLIT_MISMATCH")
    location = Path(path)
    name = SplitName.parse(location.name)
    if number:
        start = name.siblings()[0] if name else "the first file"
        raise refuse(
            "NOT_FIRST_SPLIT",
            f"{location.name} is part {number + 1} of {count}.",
            at=first.offsets[_NUMBER],
            field=_NUMBER,
            got=number,
            limit=0,
            hint=f"Pass {location.with_name(start) if name else start}.",
        )
    if count == 1:
        return first
    if not name or not name.is_first or name.count != count:
        raise refuse(
            "SPLIT_NAME",
            f"{location.name} is the first of {count} files, but not named like it.",
            field="name",
            got=location.name,
            limit=str(SplitName("NAME", 1, count)),
            hint="Give the files the names that they were published under.",
        )
    siblings = [location.with_name(sibling) for sibling in name.siblings()[1:]]
    absent = [sibling.name for sibling in siblings if not sibling.exists()]
    if absent:
        raise refuse(
            "SPLIT_MISSING",
            f"{len(absent)} of {count} files are missing, {absent[0]} first.",
            field=_COUNT,
            got=count - len(absent),
            limit=count,
            hint=_AGAIN,
        )
    parts = [_part(sibling, first, number + 1, count) for number, sibling in enumerate(siblings)]
    return _merge(first, parts)


def _part(path: Path, first: Header, number: int, count: int) -> Header:
    """The header of a later file, checked against the first one's."""
    part = read_header(path)
    fields = Fields(part, "")
    if _uint16(fields, _NUMBER) != number:
        raise _mismatch(path, _NUMBER, part.keys.get(_NUMBER), number)
    if _uint16(fields, _COUNT) not in (count, None):
        raise _mismatch(path, _COUNT, part.keys.get(_COUNT), count)
    architecture = Fields(first, "").text(_ARCHITECTURE)
    if fields.text(_ARCHITECTURE) not in (architecture, None):
        raise _mismatch(path, _ARCHITECTURE, part.keys[_ARCHITECTURE], architecture)
    return part


def _merge(first: Header, parts: list[Header]) -> Header:
    tensors: dict[str, TensorInfo] = {}
    for number, part in enumerate((first, *parts)):
        for tensor in part.tensors:
            if tensor.name in tensors:
                raise refuse(
                    "DUPLICATE_TENSOR",
                    f"The tensor {tensor.name} is in two files.",
                    field=tensor.name,
                    got=number,
                    limit=tensors[tensor.name].file,
                    hint=_AGAIN,
                )
            tensors[tensor.name] = msgspec.structs.replace(tensor, file=number)
    fields = Fields(first, "")
    total = fields.count(_TENSORS)
    if total is None:
        fields.refuse_missing(_TENSORS)
    if first.types[_TENSORS] != TYPES["INT32"]:
        fields.wrong_type(_TENSORS, "INT32")
    if total != len(tensors):
        raise refuse(
            "SPLIT_MISMATCH",
            f"The files hold {len(tensors)} tensors, not {total}.",
            at=first.offsets[_TENSORS],
            field=_TENSORS,
            got=len(tensors),
            limit=total,
            hint=_AGAIN,
        )
    return msgspec.structs.replace(
        first,
        tensors=tuple(tensors.values()),
        files=tuple(file for header in (first, *parts) for file in header.files),
    )


def _uint16(fields: Fields, key: str) -> int | None:
    """A count. It must be UINT16: llama.cpp asserts on any other type."""
    if key not in fields:
        return None
    if fields.header.types[key] != TYPES["UINT16"]:
        fields.wrong_type(key, "UINT16")
    return fields.count(key)


def _mismatch(path: Path, key: str, got: object, limit: object) -> Exception:
    return refuse(
        "SPLIT_MISMATCH",
        f"{path.name} belongs to another model: its {key} is {got}, not {limit}.",
        field=key,
        got=got,
        limit=limit,
        hint=_AGAIN,
    )

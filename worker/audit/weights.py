"""All bytes of a model's files, read once: numbers that are no weights, and checksums.

The files are read with `preadv` into one buffer and not mapped. So when another process cuts a file
short, or the disk fails, that is an error here and not a SIGBUS; and memory stays the same however
large the model is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from worker.gguf.header import Header, ModelFile, TensorInfo, refuse
from worker.gguf.quant import MAX_WEIGHT, NumberField, Storage, fields_of
from worker.gguf.reader import read_header
from worker.gguf.source import pin
from worker.hub.checksum import Digest

_Bits = NDArray[np.unsignedinteger[Any]]
BytesRead = Callable[[int], object]
"""Is called with bytes that have been read since the call before."""
# Fits a processor's cache with what numpy makes of it: 5 to 8 GB a second; 8 MiB give 4 to 8.
_CHUNK = 1024 * 1024
_NAMED = 3


class _Form(NamedTuple):
    """How the bits are read; all of them but the sign's; those of infinity."""

    dtype: str
    magnitude: int
    infinity: int


_FORMS: dict[Storage, _Form] = {
    "F16": _Form("<u2", 0x7FFF, 0x7C00),
    "nibbles": _Form("<u2", 0x7FFF, 0x7C00),
    "BF16": _Form("<u2", 0x7FFF, 0x7F80),
    "F32": _Form("<u4", 0x7FFFFFFF, 0x7F800000),
    "F64": _Form("<u8", 0x7FFF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000),
    # Powers of two without a sign; its highest bits stand for NaN, and nothing for infinity.
    "E8M0": _Form("u1", 0xFF, 0xFF),
}


class OddNumber(NamedTuple):
    """Numbers of one piece that are no good. `first` is the block that has the first of them."""

    nan: int
    infinite: int
    large: int
    largest: float
    first: int


def odd_numbers(blocks: NDArray[np.uint8], field: NumberField) -> OddNumber | None:
    """What is wrong with `field` in blocks of shape (blocks, bytes of one); None: nothing.

    Only the bits are looked at. Without its sign a number of IEEE's kind that is larger has larger
    bits, infinity has larger ones than all numbers, and NaN has larger ones still. So one maximum
    tells whether a piece has anything to count.
    """
    form = _FORMS[field.kind]
    bits = _bits(blocks, field, form)
    limit = _limit(field, form)
    if int(bits.max(initial=0)) <= limit:
        return None
    odd = np.flatnonzero(bits > limit)
    found = bits[odd]
    finite = found[found < form.infinity]
    nan = int((found > form.infinity).sum())
    infinite = len(found) - nan - len(finite)
    if field.kind == "E8M0":
        nan, infinite = infinite, 0
    largest = _value(int(finite.max()), field.kind) * field.factor if len(finite) else 0.0
    return OddNumber(nan, infinite, len(finite), largest, int(odd[0]))


def _bits(blocks: NDArray[np.uint8], field: NumberField, form: _Form) -> _Bits:
    """The numbers' bits without their signs, one for each block."""
    if field.kind == "nibbles":
        words = blocks[:, field.at : field.at + 8].copy().view(np.uint16) >> np.uint16(12)
        shifts = np.array([0, 4, 8, 12], np.uint16)
        return np.bitwise_or.reduce(words << shifts, axis=1) & np.uint16(form.magnitude)
    if field.kind == "E8M0":
        return blocks[:, field.at]
    rows = np.ndarray((len(blocks),), form.dtype, blocks, field.at, (blocks.shape[1],))
    return rows & rows.dtype.type(form.magnitude)


def _limit(field: NumberField, form: _Form) -> int:
    """The largest bits that are good."""
    most = MAX_WEIGHT / field.factor
    match field.kind:
        case "F16" | "nibbles":
            return min(int(np.float16(most).view(np.uint16)), form.infinity - 1)
        case "BF16":
            return int(np.float32(most).view(np.uint32)) >> 16
        case "F32":
            return int(np.float32(most).view(np.uint32))
        case "F64":
            return int(np.float64(most).view(np.uint64))
        case "E8M0":
            return 127 + int(math.log2(most))


def _value(bits: int, kind: Storage) -> float:
    """The number that has these bits."""
    match kind:
        case "F16" | "nibbles":
            return float(np.uint16(bits).view(np.float16))
        case "BF16":
            return float(np.uint32(bits << 16).view(np.float32))
        case "F32":
            return float(np.uint32(bits).view(np.float32))
        case "F64":
            return float(np.uint64(bits).view(np.float64))
        case "E8M0":
            return 2.0 ** (bits - 127)


class OddTensor(msgspec.Struct, kw_only=True):
    """Numbers of a tensor that are no weights, or no scales of weights.

    nan, infinite, large  how many
    largest               the largest weight that they stand for, where it is finite
    offset                the first block that has one, in bytes from the begin of `file`
    """

    name: str
    encoding: str
    nan: int = 0
    infinite: int = 0
    large: int = 0
    largest: float = 0.0
    file: str
    offset: int


def read_weights(
    header: Header, digests: Sequence[Sequence[Digest]], *, numbers: bool, count: BytesRead
) -> list[OddTensor]:
    """The tensors that hold odd numbers, in the order of the file; nothing is looked at unless
    `numbers`.

    All bytes of file i are added to the digests in `digests[i]`. Raises ModelFileError: UNREADABLE,
    TRUNCATED, or CHANGED where a file was replaced or written meanwhile.
    """
    found: dict[str, OddTensor] = {}
    buffer = np.empty(_CHUNK, np.uint8)
    with pin(header.files) as paths:
        for index, (file, path) in enumerate(zip(header.files, paths, strict=True)):
            wanted = [each for each in header.tensors if each.file == index] if numbers else []
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                for tensor, begin, end in _pieces(file, wanted, whole=bool(digests[index])):
                    piece = buffer[: end - begin]
                    _fill(descriptor, piece, begin, file.path)
                    for digest in digests[index]:
                        digest.update(piece.data)
                    if tensor is not None:
                        _look(tensor, piece, begin, file.path, found)
                    count(len(piece))
            finally:
                os.close(descriptor)
    return list(found.values())


def check_file(path: str, digest: Digest) -> None:
    """Raise NOT_FINITE or WEIGHT_TOO_LARGE where the numbers in a file are no weights; all of its
    bytes are added to `digest`. Else raises what `read_weights` raises."""
    header = read_header(path)
    digests = [[digest] for _ in header.files]
    check_numbers(read_weights(header, digests, numbers=True, count=lambda _: None))


def check_numbers(odd: Sequence[OddTensor]) -> None:
    """Raise NOT_FINITE or TOO_LARGE where there are odd tensors; the first one gives the place."""
    endless = [tensor for tensor in odd if tensor.nan or tensor.infinite]
    if endless:
        code, what, limit = "NOT_FINITE", "numbers that are not finite", "finite"
        told = [f"{t.name} ({_counts(t)})" for t in endless]
    elif odd:
        code, limit = "WEIGHT_TOO_LARGE", f"{MAX_WEIGHT:g}"
        what = "weights that no model can have learnt"
        told = [f"{t.name} (up to {t.largest:.3g})" for t in odd]
    else:
        return
    first = (endless or odd)[0]
    more = f" and {len(told) - _NAMED} more" if len(told) > _NAMED else ""
    raise refuse(
        code, f"There are {what} in {', '.join(told[:_NAMED])}{more}.",
        at=first.offset, field=first.name, got=len(told), limit=limit,
        hint="The file is damaged, or was made from a damaged one; get it again.",
    )  # fmt: skip


def _counts(tensor: OddTensor) -> str:
    parts = [
        f"{tensor.nan:,} NaN" if tensor.nan else "",
        f"{tensor.infinite:,} infinite" if tensor.infinite else "",
    ]
    return f"{', '.join(filter(None, parts))}, {tensor.encoding}"


def _pieces(
    file: ModelFile, tensors: Sequence[TensorInfo], *, whole: bool
) -> Iterator[tuple[TensorInfo | None, int, int]]:
    """What to read next: a tensor's blocks, or with `whole` bytes between tensors; begin and end.

    Ascending. A tensor that has no numbers to look at counts as bytes between tensors.
    """
    at = 0
    for tensor in sorted(tensors, key=lambda each: each.offset):
        encoding, fields = fields_of(tensor.type)
        if not fields:
            continue
        if whole:
            yield from _cut(None, at, tensor.offset, 1)
        at = tensor.offset + tensor.nbytes
        yield from _cut(tensor, tensor.offset, at, encoding.nbytes)
    if whole:
        yield from _cut(None, at, file.size, 1)


def _cut(
    tensor: TensorInfo | None, begin: int, end: int, unit: int
) -> Iterator[tuple[TensorInfo | None, int, int]]:
    step = _CHUNK // unit * unit
    for at in range(begin, end, step):
        yield tensor, at, min(at + step, end)


def _fill(descriptor: int, piece: NDArray[np.uint8], begin: int, path: str) -> None:
    """Read as many bytes as `piece` has, from `begin`."""
    have, view = 0, piece.data
    while have < len(view):
        try:
            got = os.preadv(descriptor, [view[have:]], begin + have)
        except OSError as error:
            raise refuse(
                "UNREADABLE",
                f"Reading {path} failed at byte {begin + have}: {error.strerror}.",
                at=begin + have,
                hint="Check the disk or the network mount.",
            ) from error
        if not got:
            raise refuse(
                "TRUNCATED",
                f"{path} became shorter while it was read.",
                at=begin + have,
                hint="Wait until the download or copy is complete.",
            )
        have += got


def _look(
    tensor: TensorInfo, piece: NDArray[np.uint8], begin: int, path: str, found: dict[str, OddTensor]
) -> None:
    """Add to `found` what is odd in a piece of a tensor."""
    encoding, fields = fields_of(tensor.type)
    blocks = piece.reshape(-1, encoding.nbytes)
    for field in fields:
        odd = odd_numbers(blocks, field)
        if odd is None:
            continue
        at = begin + odd.first * encoding.nbytes
        known = found.setdefault(
            tensor.name, OddTensor(name=tensor.name, encoding=encoding.name, file=path, offset=at)
        )
        known.nan += odd.nan
        known.infinite += odd.infinite
        known.large += odd.large
        known.largest = max(known.largest, odd.largest)
        known.offset = min(known.offset, at)

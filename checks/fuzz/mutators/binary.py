"""Changes of a file's bytes, blind to what they mean."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

Bytes = Callable[[bytearray, Random], str]
_WORDS = (0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63,
          2**64 - 1, 2**40, 2**61)  # fmt: skip


def _place(data: bytearray, draw: Random) -> int:
    """Anywhere, but as often as not among the first bytes, where the header is."""
    return draw.randrange(min(len(data), draw.choice((64, 4096, len(data)))))


def cut(data: bytearray, draw: Random) -> str:
    """The file ends early."""
    at = _place(data, draw)
    del data[at:]
    return f"cut at {at}"


def extend(data: bytearray, draw: Random) -> str:
    """More bytes behind the end."""
    count = draw.choice((1, 7, 31, 32, 33, 4096))
    data += bytes(draw.randrange(256) for _ in range(count))
    return f"{count} bytes more"


def flip_bits(data: bytearray, draw: Random) -> str:
    """Some bits are the other way round."""
    places = [(_place(data, draw), draw.randrange(8)) for _ in range(draw.choice((1, 1, 2, 8)))]
    for place, bit in places:
        data[place] ^= 1 << bit
    return f"flip {places}"


def overwrite(data: bytearray, draw: Random) -> str:
    """A number at its limit where something else was."""
    at, value, size = _place(data, draw), draw.choice(_WORDS), draw.choice((1, 2, 4, 8))
    raw = (value % 2 ** (8 * size)).to_bytes(size, "little")
    data[at : at + size] = raw
    return f"write {raw.hex()} at {at}"


def float_bits(data: bytearray, draw: Random) -> str:
    """A float that is none."""
    at = _place(data, draw)
    value = draw.choice((float("nan"), float("inf"), float("-inf"), -0.0, 1e-45, 3.4e38))
    data[at : at + 4] = struct.pack("<f", value)
    return f"float {value} at {at}"


def copy(data: bytearray, draw: Random) -> str:
    """A piece of the file over another one."""
    source, target, size = _place(data, draw), _place(data, draw), draw.choice((1, 4, 8, 24, 200))
    piece = data[source : source + size]
    data[target : target + len(piece)] = piece
    return f"copy {size} bytes from {source} to {target}"


def insert(data: bytearray, draw: Random) -> str:
    """Bytes between others, so that all behind them are elsewhere."""
    at, size = _place(data, draw), draw.choice((1, 4, 8, 32))
    data[at:at] = bytes(draw.randrange(256) for _ in range(size))
    return f"insert {size} bytes at {at}"


def remove(data: bytearray, draw: Random) -> str:
    """Bytes are missing."""
    at, size = _place(data, draw), draw.choice((1, 4, 8, 32))
    del data[at : at + size]
    return f"remove {size} bytes at {at}"


def zero(data: bytearray, draw: Random) -> str:
    """A page that never reached the disk."""
    at, size = _place(data, draw), draw.choice((16, 512, 4096))
    data[at : at + size] = bytes(len(data[at : at + size]))
    return f"zero {size} bytes at {at}"


BINARY: dict[str, Bytes] = {
    "cut": cut, "extend": extend, "flip": flip_bits, "overwrite": overwrite,
    "float-bits": float_bits, "copy": copy, "insert": insert, "remove": remove, "zero": zero,
}  # fmt: skip

"""Arrays of length-prefixed strings, found in bulk and decoded on demand; and fingerprints of them.

A vocabulary is several hundred thousand strings, each a little-endian uint64 length and its bytes.
Walking them one by one in Python takes longer than everything else in a header. So `scan` finds the
lengths of short strings all at once: their upper seven bytes are zero, and text hardly ever holds
seven zero bytes in a row. A place that it finds counts only where the string before it ends exactly
there; all other strings are walked.

Equal strings have equal fingerprints. Different strings may have equal ones too, so callers compare
the strings themselves in the end. One pass over a vocabulary takes a few milliseconds; building a
set of its strings takes ten times as long.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

_ODD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_WORD = 8
PADDING = _WORD
_BLOCK = 1 << 15  # strings at a time, so that their arrays fit the processor's cache
# Keeps the first 0 to 8 bytes of a little-endian word.
_KEEP = np.append(
    (np.uint64(1) << (np.arange(8, dtype=np.uint64) * np.uint64(8))) - np.uint64(1),
    np.uint64(2**64 - 1),
)
_LENGTH = struct.Struct("<Q")
_PREFIX = _LENGTH.size
_WINDOW = 1 << 18
_FIRST_WALK = 64
_WORTHWHILE = 4096  # strings of one window; where it holds fewer, walking them is as fast


def fingerprints(
    data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """The fingerprints of `data[starts[i] : starts[i] + lengths[i]]`, shape (n,).

    `data` must have PADDING more bytes behind the last string.
    """
    words = np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))
    out = np.empty(len(starts), np.uint64)
    for begin in range(0, len(starts), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        out[block] = _block(words, starts[block], lengths[block])
    return out


def _block(
    words: NDArray[np.uint64], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    out = lengths.astype(np.uint64) * _ODD
    rows: NDArray[np.intp] | None = None
    while True:
        word = words[starts] & _KEEP[np.minimum(lengths, _WORD)]
        mixed = ((out if rows is None else out[rows]) ^ word) * _ODD
        mixed ^= mixed >> _SHIFT
        if rows is None:
            out = mixed
        else:
            out[rows] = mixed
        longer = np.flatnonzero(lengths > _WORD)
        if not len(longer):
            return out
        rows = longer if rows is None else rows[longer]
        starts, lengths = starts[longer] + _WORD, lengths[longer] - _WORD


def duplicates(prints: NDArray[np.uint64]) -> NDArray[np.intp]:
    """The indices of elements that occur more than once, ascending."""
    ranked = np.sort(prints)
    twice = ranked[1:][ranked[1:] == ranked[:-1]]
    return places_of(twice, prints)


def places_of(wanted: NDArray[np.uint64], prints: NDArray[np.uint64]) -> NDArray[np.intp]:
    """The indices of elements of `prints` that are in `wanted`, ascending.

    numpy.isin does the same, but imports masked arrays at its first use.
    """
    if not len(wanted):
        return np.empty(0, np.intp)
    known = np.sort(wanted)
    spots = np.searchsorted(known, prints)
    spots[spots == len(known)] = 0
    return np.flatnonzero(known[spots] == prints)


def is_missing(wanted: NDArray[np.uint64], present: NDArray[np.uint64]) -> bool:
    """Whether an element of `wanted` is not in `present`."""
    ranked = np.sort(wanted)
    if not len(ranked):
        return False
    first = np.empty(len(ranked), np.bool_)
    first[0] = True
    np.not_equal(ranked[1:], ranked[:-1], out=first[1:])
    different, known = ranked[first], np.sort(present)
    places = np.searchsorted(known, different)
    places[places == len(known)] = 0
    return not len(known) or bool((known[places] != different).any())


class StringArray:
    """An immutable array of byte strings, read as `str`.

    data     the strings with their length prefixes, one behind the other, then PADDING bytes
    starts   where text i begins in `data`, int64 of shape (n,)
    lengths  bytes of text i, int64 of shape (n,)
    """

    __slots__ = ("_prints", "data", "lengths", "starts")

    def __init__(self, data: bytes, starts: NDArray[np.int64]) -> None:
        last = len(data) - PADDING
        ends = np.append(starts[1:] - _PREFIX, last) if len(starts) else starts
        self.data = data
        self.starts = starts
        self.lengths = ends - starts
        self._prints: NDArray[np.uint64] | None = None

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> StringArray:
        """The array of `texts`, laid out as in a file."""
        data = b"".join(_LENGTH.pack(len(text)) + text for text in texts) + bytes(PADDING)
        lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        return cls(data, np.cumsum(lengths + _PREFIX) - lengths)

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """Text `index`; bytes that are no UTF-8 become U+FFFD."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.raw(index).decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        return (text.decode("utf-8", "replace") for text in self.raw_list())

    def __repr__(self) -> str:
        return f"<{len(self)} strings, {len(self.data) - PADDING} bytes>"

    def raw(self, index: int) -> bytes:
        """The bytes of text `index`."""
        start = int(self.starts[index])
        return self.data[start : start + int(self.lengths[index])]

    def has_nul(self) -> bool:
        """Whether a text holds a NUL byte."""
        blank = self.without_prefixes()
        return int(np.count_nonzero(blank)) != int(self.lengths.sum())

    def raw_list(self) -> list[bytes]:
        """All texts as bytes, in order."""
        blank = self.without_prefixes()
        if int(np.count_nonzero(blank)) == int(self.lengths.sum()):
            return blank[:-PADDING].tobytes().split(bytes(_PREFIX))[1:]
        return [self.raw(i) for i in range(len(self))]

    @property
    def fingerprints(self) -> NDArray[np.uint64]:
        """A fingerprint of each text, shape (n,)."""
        if self._prints is None:
            self._prints = fingerprints(self.data, self.starts, self.lengths)
        return self._prints

    def find(self, texts: Sequence[bytes]) -> dict[bytes, int]:
        """Text -> index of its first place, for those of `texts` that are in the array."""
        wanted, known = StringArray.of(texts).fingerprints, set(texts)
        found: dict[bytes, int] = {}
        for place in places_of(wanted, self.fingerprints):
            text = self.raw(int(place))
            if text in known:
                found.setdefault(text, int(place))
        return found

    def duplicate(self) -> int | None:
        """The index of a text that an earlier index has too, or None. Empty texts do not count."""
        seen: set[bytes] = set()
        for place in duplicates(self.fingerprints):
            text = self.raw(int(place))
            if text in seen:
                return int(place)
            if text:
                seen.add(text)
        return None

    def without_prefixes(self) -> NDArray[np.uint8]:
        """A copy of `data` in which the lengths are zero bytes."""
        blank = np.frombuffer(self.data, np.uint8).copy()
        longest = int(self.lengths.max(initial=0))
        for byte in range((longest.bit_length() + 7) // 8):
            blank[self.starts - _PREFIX + byte] = 0
        return blank


def scan(data: bytes, offset: int, count: int) -> tuple[NDArray[np.int64], int]:
    """Where up to `count` strings begin, the first at `offset`, and where the last of them ends.

    A string begins with its length prefix. Where `data` ends within a string, fewer than `count`
    are returned, and the end is the offset of that string. The caller checks the lengths against
    the file.
    """
    view = np.frombuffer(data, np.uint8)
    pieces: list[NDArray[np.int64]] = []
    walk = _FIRST_WALK
    while count:
        found, end = _leap(view, offset, count)
        poor = len(found) < min(count, _WORTHWHILE)
        if poor:
            # Long strings or NUL bytes are ahead. Each time that happens, more strings are walked.
            more, end = _walk(data, end, min(count - len(found), walk))
            found = np.concatenate((found, more))
            walk *= 2
        if not len(found):
            break
        pieces.append(found)
        count -= len(found)
        offset = end
    return (np.concatenate(pieces) if pieces else np.empty(0, np.int64)), offset


def _leap(view: NDArray[np.uint8], offset: int, count: int) -> tuple[NDArray[np.int64], int]:
    """The strings from `offset` on that are shorter than 256 bytes, within one window."""
    window = view[offset : offset + _WINDOW]
    zeros: NDArray[np.bool_] = window == 0
    for width in (1, 2, 3):  # runs of 2, of 4, of 7 zero bytes
        zeros = zeros[:-width] & zeros[width:]
    places: NDArray[Any] = np.flatnonzero(zeros[1:])
    if not len(places) or places[0] != 0:
        return np.empty(0, np.int64), offset
    ends = places + window[places] + _PREFIX
    chained = ends[:-1] == places[1:]
    take = len(chained) if chained.all() else int(chained.argmin())
    # The last prefix of a chain is right, because the string before it ends there. But its own text
    # may be cut off by the window.
    take = min(take + 1, count)
    if int(ends[take - 1]) > len(window):
        take -= 1
    if not take:
        return np.empty(0, np.int64), offset
    return places[:take] + offset, offset + int(ends[take - 1])


def _walk(data: bytes, offset: int, count: int) -> tuple[NDArray[np.int64], int]:
    """The same, one string after the other."""
    found: list[int] = []
    size = len(data)
    unpack = _LENGTH.unpack_from
    while len(found) < count and offset + _PREFIX <= size:
        end = offset + _PREFIX + unpack(data, offset)[0]
        if end > size:
            break
        found.append(offset)
        offset = end
    return np.array(found, dtype=np.int64), offset

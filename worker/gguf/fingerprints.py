"""64-bit fingerprints of many short strings at once.

Equal strings have equal fingerprints. Different strings may have equal ones too, so callers compare
the strings themselves in the end. One pass over a vocabulary takes a few milliseconds; building a
set of its strings takes ten times as long.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ODD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_WORD = 8
PADDING = _WORD
_BLOCK = 1 << 15  # strings at a time, so that their arrays fit the processor's cache
# Keeps the first 0 to 8 bytes of a little-endian word.
_KEEP = np.append((np.uint64(1) << (np.arange(8, dtype=np.uint64) * np.uint64(8))) - np.uint64(1),
                  np.uint64(2**64 - 1))  # fmt: skip


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


def repeated(prints: NDArray[np.uint64]) -> NDArray[np.intp]:
    """The indices of elements that occur more than once, ascending."""
    ranked = np.sort(prints)
    twice = ranked[1:][ranked[1:] == ranked[:-1]]
    return places_of(twice, prints)


def places_of(wanted: NDArray[np.uint64], prints: NDArray[np.uint64]) -> NDArray[np.intp]:
    """The indices of elements of `prints` that are in `wanted`, ascending.

    What numpy.isin does takes 20 ms more at its first use, to import masked arrays.
    """
    if not len(wanted):
        return np.empty(0, np.intp)
    known = np.sort(wanted)
    spots = np.searchsorted(known, prints)
    spots[spots == len(known)] = 0
    return np.flatnonzero(known[spots] == prints)


def missing(wanted: NDArray[np.uint64], present: NDArray[np.uint64]) -> bool:
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

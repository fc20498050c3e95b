"""Rows that nobody reads, where a step with them is faster than one without."""

from __future__ import annotations

import statistics
from collections import deque

import msgspec

from worker.engine.kv.slot import Slot

# Kernels compute rows in blocks of so many: Llama-1B Q4_K_M takes 114 ms for 3 rows and 95 for 4,
# 348 for 15 and 245 for 16, but 139 for 5 and 205 for 8 (2 slow cores, AVX-512).
ROW_BLOCK = 4
# Some kernels compute blocks of so many: 265 ms for 12 rows of that model.
_LARGE_BLOCK = 16
# Attention computes a prompt in tiles of so many rows: 125M shape, CPU ms of one prompt's rows, 52:
# 105, 56: 114, 60: 123, 63: 133, 64: 94; but 36: 75, 48: 95.
_TILE = 64
_FEWEST_OF_TILE = 49
# A longer piece of a prompt gains less than two steps differ by: 123 rows 188, 127: 192, 128: 185.
_MOST_OF_PROMPT = 2 * _TILE
# Pairs of steps, one without and one with such rows, before a verdict; then one pair now and then,
# because contexts grow and neighbours come and go.
_FIRST_PAIRS = 3
_STEPS_BETWEEN = 200
# The verdict is the median of so many: one pair that a neighbour disturbed changes nothing.
_LAST_PAIRS = 5
# What it must save before it is done: pairs of steps differ by a few percent anyway.
_WORTH = 0.97


class Fill(msgspec.Struct, frozen=True):
    """`count` rows that nobody reads, at `position` and behind it, in a slot that ends there."""

    slot: Slot
    position: int
    count: int


class Padding:
    """Learns which steps are faster when they are filled up to a whole block.

    It compares steps of the same kind: of so many streams, or of a prompt's piece of about so many
    rows and about so many tokens before it. Steps of streams follow each other, so that the depth
    of their contexts and the load of the machine are the same for both of a pair.
    """

    def __init__(self) -> None:
        self._lessons: dict[tuple[int, ...], _Lesson] = {}

    @staticmethod
    def missing(decode_rows: int) -> int:
        """Rows to the next whole block; 0 where they would more than double the step."""
        large = -decode_rows % _LARGE_BLOCK
        if decode_rows <= ROW_BLOCK // 2 or not large:
            return 0
        return large if large <= ROW_BLOCK else -decode_rows % ROW_BLOCK

    @staticmethod
    def missing_of_prompt(rows: int) -> int:
        """The same for a piece of one prompt; 0 where nothing is to be gained."""
        if _FEWEST_OF_TILE <= rows < _TILE:
            return _TILE - rows
        missing = -rows % _LARGE_BLOCK
        return missing if missing <= ROW_BLOCK and rows < _MOST_OF_PROMPT else 0

    def fills(self, decode_rows: int) -> bool:
        """Whether to fill a step of so many streams, where there is room."""
        return self._lesson((decode_rows,)).is_filled()

    def fills_prompt(self, rows: int, depth: int) -> bool:
        """Whether to fill a step that computes one prompt's rows after `depth` tokens."""
        return self._lesson(_prompt_kind(rows, depth)).is_filled()

    def observe(self, decode_rows: int, added: int, seconds: float) -> None:
        """A step of streams took so long, with `added` rows or without."""
        if self.missing(decode_rows):
            self._lesson((decode_rows,)).observe(added > 0, seconds)

    def observe_prompt(self, rows: int, depth: int, added: int, seconds: float) -> None:
        """The same of a step that computed rows of one prompt alone."""
        if self.missing_of_prompt(rows):
            self._lesson(_prompt_kind(rows, depth)).observe(added > 0, seconds / rows)

    def _lesson(self, kind: tuple[int, ...]) -> _Lesson:
        return self._lessons.setdefault(kind, _Lesson())


def _prompt_kind(rows: int, depth: int) -> tuple[int, int]:
    """Pieces that are compared with each other, a row of one with a row of the other."""
    return -(-rows // ROW_BLOCK), (depth // _TILE).bit_length()


class _Lesson:
    """What is known of one kind of step."""

    def __init__(self) -> None:
        self._ratios = deque[float](maxlen=_LAST_PAIRS)  # seconds with rows / seconds without
        self._wait = 0  # steps until the next pair
        self._without: float | None = None  # seconds of a pair's first step, or of its row

    def is_filled(self) -> bool:
        """Whether the coming step shall be filled."""
        if self._wait > 0:
            return statistics.median(self._ratios) < _WORTH
        return self._without is not None

    def observe(self, filled: bool, seconds: float) -> None:
        if self._wait > 0:
            self._wait -= 1
        elif not filled:
            self._without = seconds
        elif self._without is not None:
            # A clock may stand still.
            self._ratios.append(seconds / self._without if self._without else 1.0)
            self._without = None
            self._wait = 0 if len(self._ratios) < _FIRST_PAIRS else _STEPS_BETWEEN

"""Rows that nobody reads, where a step with them is faster than one without."""

from __future__ import annotations

# Kernels compute rows in blocks of so many: Llama-1B Q4_K_M takes 114 ms for 3 rows and 95 for 4,
# 348 for 15 and 245 for 16, but 139 for 5 and 205 for 8 (2 cores, AVX-512).
ROW_BLOCK = 4
# Pairs of steps, one without and one with such rows, before a verdict; then one pair now and then,
# because contexts grow and neighbours come and go.
_FIRST_PAIRS = 3
_STEPS_BETWEEN = 200
_NEW = 0.5
# What it must save before it is done: pairs of steps differ by a few percent anyway.
_WORTH = 0.97


class Padding:
    """Learns for which numbers of rows a step is faster when it is filled up to a whole block.

    It compares steps that follow each other, so that the depth of the contexts and the load of the
    machine are the same for both.
    """

    def __init__(self) -> None:
        self._lessons: dict[int, _Lesson] = {}

    @staticmethod
    def missing(decode_rows: int) -> int:
        """Rows to the next whole block; 0 where they would more than double the step."""
        return -decode_rows % ROW_BLOCK if decode_rows > ROW_BLOCK // 2 else 0

    def rows(self, decode_rows: int, room: int) -> int:
        """How many rows to add to a step of so many; at most `room`."""
        missing = self.missing(decode_rows)
        if not 0 < missing <= room:
            return 0
        lesson = self._lessons.setdefault(decode_rows, _Lesson())
        return missing if lesson.is_filled() else 0

    def observe(self, decode_rows: int, added: int, seconds: float) -> None:
        """A step took so long, with `added` rows or without."""
        lesson = self._lessons.get(decode_rows)
        if lesson is not None:
            lesson.observe(added > 0, seconds)


class _Lesson:
    """What is known for one number of rows."""

    def __init__(self) -> None:
        self._ratio = 1.0  # seconds with rows / seconds without
        self._pairs = 0
        self._wait = 0  # steps until the next pair
        self._without: float | None = None  # seconds of a pair's first step

    def is_filled(self) -> bool:
        """Whether the coming step shall be filled."""
        if self._wait > 0:
            return self._ratio < _WORTH
        return self._without is not None

    def observe(self, filled: bool, seconds: float) -> None:
        if self._wait > 0:
            self._wait -= 1
        elif not filled:
            self._without = seconds
        elif self._without is not None:
            ratio = seconds / self._without if self._without else 1.0  # a clock may stand still
            self._ratio = ratio if not self._pairs else self._ratio + _NEW * (ratio - self._ratio)
            self._pairs += 1
            self._without = None
            self._wait = 0 if self._pairs < _FIRST_PAIRS else _STEPS_BETWEEN

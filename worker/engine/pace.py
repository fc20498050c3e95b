"""How many prompt tokens a step may read without making the running streams wait too long."""

from __future__ import annotations

# Weight of the newest step in the running estimates.
_NEW = 0.3
_FIRST_CHUNK = 32
_SMALLEST_CHUNK = 8
# Kernels compute rows in blocks, and what does not fill one costs more than what does: on AVX-512,
# Q4_K, 16 rows of the Llama-1B shape take 87 ms, 15 take 120 and 12 take 102.
_ROW_BLOCK = 16


class Pace:
    """Fits seconds = base + slope x prompt rows to the steps that were run.

    `base` is what a step without prompt rows takes, `slope` what each prompt row adds. Both
    follow the machine: a deeper context or a busy neighbour shows within a few steps.
    """

    def __init__(self, max_stall: float, capacity: int) -> None:
        """max_stall: seconds that a step beside streams may take; capacity: rows of a batch."""
        self._max_stall = max_stall
        self._capacity = capacity
        self._base: float | None = None
        self._slope: float | None = None

    def observe(self, decode_rows: int, prompt_rows: int, seconds: float) -> None:
        """A step of so many rows took this long."""
        if not prompt_rows:
            self._base = _blend(self._base, seconds)
        elif decode_rows:
            slope = max(0.0, seconds - (self._base or 0.0)) / prompt_rows
            self._slope = _blend(self._slope, slope)

    def prompt_rows(self, decode_rows: int) -> int:
        """Prompt tokens that the next step may read beside `decode_rows` streams."""
        if not decode_rows:
            return self._capacity
        if not self._slope:
            return min(_FIRST_CHUNK, self._capacity)
        rows = int((self._max_stall - (self._base or 0.0)) / self._slope)
        rows = max(_SMALLEST_CHUNK, min(rows, self._capacity))
        beyond = (decode_rows + rows) % _ROW_BLOCK
        return min(rows if rows - beyond < _SMALLEST_CHUNK else rows - beyond, self._capacity)


def _blend(old: float | None, new: float) -> float:
    return new if old is None else (1 - _NEW) * old + _NEW * new

"""What a step costs, measured; how much of a prompt a step may read by it."""

from __future__ import annotations

from bisect import bisect_left

from worker.engine.backend import USUAL_KERNELS, Kernels

# Weight of the newest step in the running estimates.
_NEW_DECODE = 0.2
_NEW_PROMPT_ROW = 0.3
# A step that takes less than this share of what was known shows that something had come between.
_HICCUP = 0.5
# Beyond the largest number of rows that was measured, a row costs this share of its mean row.
_NEXT_ROW = 0.6
# A number of rows is drawn anew once so many steps had others: one slow step would else keep all
# later ones from trying that number again.
_OLD = 48
_FIRST_CHUNK = 32
_SMALLEST_CHUNK = 8


class StepCost:
    """Seconds that a step takes, from decoding to sampling, fitted to the steps that were run:

        seconds = decode(decode rows) + prompt_row x prompt rows

    A step of prompts alone, for which others wait, counts as if it had their rows: it reads the
    weights too.

    A decode row belongs to a sequence that waits for a token, or to a guess that is verified with
    it. `decode` is known for each number of rows that was run; prompt rows are too many for that.
    All estimates follow the machine: a deeper context or a busy neighbour shows in a few steps.

    prompt_row  seconds that a prompt row adds; None before a prompt was read beside streams
    """

    def __init__(self, kernels: Kernels = USUAL_KERNELS) -> None:
        self.kernels = kernels
        self.prompt_row: float | None = None
        self._decode: dict[int, float] = {}  # rows -> seconds
        self._seen: dict[int, int] = {}  # rows -> number of the newest such step
        self._steps = 0

    def observe(
        self, decode_rows: int, prompt_rows: int, seconds: float, *, num_waiting: int = 0
    ) -> None:
        """A step of so many rows took this long.

        num_waiting: sequences that wait for a token and have no row in it. A step of prompts that
        nobody waits for is large, and its rows are cheaper: they say nothing of the others.
        """
        if not decode_rows and not num_waiting:
            return
        if prompt_rows:
            added = max(0.0, seconds - self.decode(decode_rows or num_waiting)) / prompt_rows
            self.prompt_row = _blend(self.prompt_row, added, _NEW_PROMPT_ROW)
        # With prompts a step takes longer than without: if not, what was known is out of date.
        if not prompt_rows or seconds < self.decode(decode_rows):
            old = self._decode.get(decode_rows)
            if old is not None and seconds < old * _HICCUP:
                old = None
            self._decode[decode_rows] = _blend(old, seconds, _NEW_DECODE)
            self._seen[decode_rows] = self._steps = self._steps + 1
            if not self._steps % (_OLD // 3):
                self._forget()

    def _forget(self) -> None:
        """All that is old but the fewest rows, which could not be drawn between others."""
        _, *more = sorted(self._seen)
        for rows in more:
            if self._seen[rows] < self._steps - _OLD:
                del self._decode[rows], self._seen[rows]

    def decode(self, rows: int) -> float:
        """Seconds of a step of so many decode rows; 0 before any step was measured.

        A number of rows that was never run is drawn between its neighbours or beyond them.
        """
        known = self._decode.get(rows)
        if known is not None:
            return known
        numbers = sorted(self._decode)
        place = bisect_left(numbers, rows)
        above = numbers[place] if place < len(numbers) else None
        if not place:
            return self._decode[above] * rows / above if above else 0.0
        below = numbers[place - 1]
        low = self._decode[below]
        if above is None:
            return low + _NEXT_ROW * low / below * (rows - below)
        return low + (self._decode[above] - low) * (rows - below) / (above - below)


def chunk_rows(
    cost: StepCost, decode_rows: int, max_stall: float, capacity: int, *, alone: bool = False
) -> int:
    """Prompt rows with which those that wait for a token get it within `max_stall` seconds.

    decode_rows: rows of those that wait, at least one
    capacity: rows of a batch
    alone: whether the decode rows have a step of their own
    """
    tile, block = cost.kernels.tile, cost.kernels.block
    if not cost.prompt_row:
        return min(_FIRST_CHUNK, capacity)
    others = cost.decode(decode_rows) * (2 if alone else 1)
    # In a step of its own a smaller piece of a prompt takes as long as a whole block.
    least = block if alone else _SMALLEST_CHUNK
    rows = int(max(least, min((max_stall - others) / cost.prompt_row, capacity)))
    beyond = rows % (tile if rows >= tile else block) if alone else (decode_rows + rows) % block
    return min(rows if rows - beyond < least else rows - beyond, capacity)


def _blend(old: float | None, new: float, weight: float) -> float:
    return new if old is None else old + weight * (new - old)

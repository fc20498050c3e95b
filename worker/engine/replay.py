"""In which steps another worker computed what it wrote, so that its rows get the same bits here.

A row's bits depend on how many rows share its step: kernels for one row add in another order than
those for several.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered

from worker.engine.backend import Kernels

# What `Replay` is told of a token. A number: its logits came from the first row that was sampled in
# a step of so many rows, all of one sequence. None: others had rows in that step.
AMONG = 0  # from another row of the same step
AHEAD = -1  # it had to come, and none of this step's rows was computed from it


class Replay:
    """first: position of the first token that was written; steps: one entry a token, as above"""

    def __init__(self, first: int, steps: Ordered[int | None]) -> None:
        self._first = first
        self._steps = steps
        self._end = first + len(steps)

    def step_at(self, position: int, kernels: Kernels) -> tuple[int, int]:
        """The step whose first row is the one at `position`: its rows, and how many of them are
        those of tokens that were written. The others only make it as large as it was.

        Steps are joined where the kernels give the same bits in both.
        """
        few, lone = kernels.few, kernels.lone
        if position < lone:
            return min(few, lone - position), min(few, lone - position)
        rows, end = self._step(position)
        if rows == 1:
            return 1, 1
        if not lone and rows is not None:
            return max(rows, end - position), end - position
        while end < self._end:
            more, after = self._step(end)
            if more == 1 or (more and not lone) or after - position > few:
                break
            end = after
        count = min(end - position, few)
        return max(count, 2 if lone else 1), count

    def _step(self, position: int) -> tuple[int | None, int]:
        """Rows of the step that begins at `position`, None where others had some; and where the
        next one begins."""
        steps, last = self._steps, len(self._steps)
        place = begin = position + 1 - self._first
        while place < last and steps[place] == AHEAD:
            place += 1
        if place >= last:  # what this step gave was not told: it was as small as the one before
            is_lone = begin == last and bool(steps) and steps[-1] == 1
            return 1 if is_lone else None, self._end
        rows = steps[place]
        if rows:
            while place + 1 < last and steps[place + 1] == AMONG:
                place += 1
        return rows or None, self._first + place

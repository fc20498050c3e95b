"""Which way attention is computed: learned on real steps, because no way is always faster.

**Fused**: one kernel reads keys and values cell by cell, and writes no scores down.
**Plain**: two multiplications of matrices with the scores between them.

125M shape, two threads, AVX2, eight slots: how many times as long a step takes fused as plain

    tokens before              0     256     700   1,100
    one row                 0.83    1.12    1.23    1.43
    eight rows              0.79    0.94    1.26    1.37
    16 rows of a prompt     0.88    1.16    1.78    2.08
    128 rows of a prompt    0.90    0.90    0.94    0.96

(`python -m benchmarks.steps.attention MODEL`)
"""

from __future__ import annotations

from typing import NamedTuple

# Contexts are padded to a multiple of so many cells, so steps of one multiple cost the same.
_CELLS = 256
# Until both ways are known: this share of a step is hoped to be saved by plain attention, where so
# many multiples are passed.
_HOPE, _DEEP = 0.1, 2
_NEW = 0.2
# Steps after a change in which memory is touched for the first time.
_FIRST_STEPS = 3
# A change must be worth so many times what it costs; twice that after each change that did not
# stand, because machines become slower and faster while nothing else changes.
_WORTH, _MOST_WORTH = 3.0, 96.0


class StepKind(NamedTuple):
    """Steps that take the same time where attention is computed in the same way.

    rows     of as many sequences; of a prompt in blocks of 16
    depth    multiples of 256 cells before them
    """

    is_prompt: bool
    rows: int
    depth: int


class Attention:
    """Counts the time that the other way would have saved.

    lost_s  seconds, less those that this way saved
    worth   how many times a change's cost they must be
    """

    def __init__(self) -> None:
        self.lost_s = 0.0
        self.worth = _WORTH
        self._seconds: dict[bool, dict[StepKind, float]] = {True: {}, False: {}}  # fused -> known
        self._to_skip = 0

    def observe(
        self, *, fused: bool, rows: int, position: int, seconds: float, is_prompt: bool
    ) -> None:
        """A step took so long. `position`: the last one of its longest sequence."""
        if self._to_skip:
            self._to_skip -= 1
            return
        kind = StepKind(is_prompt, rows // 16 if is_prompt else rows, position // _CELLS)
        ours, theirs = self._seconds[fused], self._seconds[not fused]
        known = ours.get(kind, seconds)
        # One step that was held up must not count for many.
        ours[kind] = known + _NEW * (min(seconds, 2 * known) - known)
        ratio = self._ratio(kind, ours, theirs)
        if ratio is None:
            saved = _HOPE * ours[kind] if fused and kind.depth >= _DEEP else 0.0
        else:
            saved = (1 - ratio) * ours[kind]
        self.lost_s = max(0.0, self.lost_s + saved)

    def _ratio(
        self, kind: StepKind, ours: dict[StepKind, float], theirs: dict[StepKind, float]
    ) -> float | None:
        """What such a step takes the other way, of what it takes this way: where that is not known,
        the same as of steps that are most like it; None: of none."""
        if kind in theirs:
            return theirs[kind] / max(ours[kind], 1e-9)
        both = [k for k in ours if k in theirs and k.is_prompt == kind.is_prompt]
        if not both:
            return None
        near = min(both, key=lambda k: abs(k.depth - kind.depth) * 8 + abs(k.rows - kind.rows))
        return theirs[near] / max(ours[near], 1e-9)

    def changed(self, *, stands: bool) -> None:
        """The other way is taken now. It does not stand where it is a way back, or failed."""
        self.lost_s = 0.0
        self._to_skip = _FIRST_STEPS
        if not stands:
            self.worth = min(2 * self.worth, _MOST_WORTH)

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

import math
import statistics
from typing import NamedTuple

# Contexts are padded to a multiple of so many cells, so steps of one multiple cost the same.
_CELLS = 256
# Where nothing is known yet: this share of a step is hoped to be saved by plain attention from so
# many multiples on, and by fused attention before the first.
_HOPE, _DEEP = 0.1, 2
_NEW = 0.2
# Steps after a change in which memory is touched for the first time.
_FIRST_STEPS = 3
# The two ways are compared by steps that were at most so many seconds of steps before a change, or
# after it: a shared machine is three times as fast in one minute as in another. Of those after it
# the first few of a kind count. The median of the last changes holds.
_NEAR_S = 20.0
_ENOUGH, _FEW = 3, 12
_CHANGES = 5
# A change must be worth so many times what it costs; twice that after each change that did not
# stand. That is forgotten with the seconds of steps.
_WORTH, _MOST_WORTH, _FORGET_S = 3.0, 24.0, 60.0


class StepKind(NamedTuple):
    """Steps that take the same time where attention is computed in the same way.

    rows     of as many sequences; of a prompt in blocks of 16
    depth    multiples of 256 cells before them
    """

    is_prompt: bool
    rows: int
    depth: int


class Seen(NamedTuple):
    """What steps of one kind took lately, seconds; how many, and when the last one was."""

    seconds: float
    times: int
    at: float


class Attention:
    """Counts the time that the other way would have saved.

    lost_s  seconds, less those that this way saved
    worth   how many times a change's cost they must be
    """

    def __init__(self) -> None:
        self.lost_s = 0.0
        self.worth = _WORTH
        self._now = 0.0  # seconds of all steps
        self._changed_at = 0.0
        self._to_skip = 0
        self._seen: dict[StepKind, Seen] = {}  # this way, since the last change
        self._before: dict[StepKind, Seen] = {}  # the other way, right before it
        self._ratios: dict[StepKind, float] = {}  # of a plain step's seconds to a fused one's
        self._alike: dict[StepKind, float | None] = {}  # the same, of those most like it
        self._found: dict[StepKind, list[float]] = {}  # the same at each change, the newest last
        self._compared: set[StepKind] = set()  # at the newest change

    def observe(
        self, *, fused: bool, rows: int, position: int, seconds: float, is_prompt: bool
    ) -> None:
        """A step took so long. `position`: the last one of its longest sequence."""
        self._now += seconds
        self.worth = max(_WORTH, self.worth * math.exp(-seconds / _FORGET_S))
        if self._to_skip:
            self._to_skip -= 1
            return
        kind = StepKind(is_prompt, rows // 16 if is_prompt else rows, position // _CELLS)
        known, count, _ = self._seen.get(kind, (seconds, 0, 0.0))
        # One step that was held up must not count for many.
        usual = known + _NEW * (min(seconds, 2 * known) - known)
        self._seen[kind] = Seen(usual, count + 1, self._now)
        self._compare(kind, fused=fused)
        self.lost_s = max(0.0, self.lost_s + usual * self._share(kind, fused=fused))

    def _compare(self, kind: StepKind, *, fused: bool) -> None:
        """Learn from steps of one kind right before the last change and right after it."""
        ours, theirs = self._seen[kind], self._before.get(kind)
        if theirs is None or not _ENOUGH <= ours.times <= _FEW:
            return
        if self._now - self._changed_at > _NEAR_S:
            return
        ratio = max(ours.seconds, 1e-9) / max(theirs.seconds, 1e-9)
        found = self._found.setdefault(kind, [])
        if kind in self._compared:
            found.pop()
        self._compared.add(kind)
        found.append(1 / ratio if fused else ratio)
        del found[:-_CHANGES]
        self._ratios[kind] = statistics.median(found)
        self._alike.clear()

    def _share(self, kind: StepKind, *, fused: bool) -> float:
        """What the other way would save of a step; negative where this way does."""
        ratio = self._ratio(kind)
        if ratio is not None:
            return 1 - (ratio if fused else 1 / max(ratio, 1e-9))
        is_open = kind.depth >= _DEEP if fused else not kind.depth
        return _HOPE if is_open and not kind.is_prompt else 0.0

    def _ratio(self, kind: StepKind) -> float | None:
        """Of such a step, or of those most like it."""
        if kind in self._ratios:
            return self._ratios[kind]
        if kind not in self._alike:  # 15 us a look, with 48 kinds known
            self._alike[kind] = self._ratio_alike(kind)
        return self._alike[kind]

    def _ratio_alike(self, kind: StepKind) -> float | None:
        """Of steps of nearly the same depth, or of lesser depth where both are deep, because plain
        attention gains with each cell."""
        alike = [
            other
            for other in self._ratios
            if other.is_prompt == kind.is_prompt
            and (abs(other.depth - kind.depth) < 2 or _DEEP <= other.depth < kind.depth)
            and (not other.depth) == (not kind.depth)
        ]
        if not alike:
            return None
        near = min(alike, key=lambda k: (abs(k.depth - kind.depth), abs(k.rows - kind.rows)))
        return self._ratios[near]

    def failed(self) -> None:
        """The other way could not be taken: it must be worth more next time."""
        self.lost_s = 0.0
        self.worth = min(2 * self.worth, _MOST_WORTH)

    def changed(self, *, fused: bool) -> None:
        """The other way is taken now: plain, or fused again, where the last one did not stand."""
        self.lost_s = 0.0
        self._to_skip = _FIRST_STEPS
        lately = self._now - _NEAR_S
        self._before = {kind: seen for kind, seen in self._seen.items() if seen.at > lately}
        self._seen, self._changed_at = {}, self._now
        self._compared = set()
        if fused:
            self.worth = min(2 * self.worth, _MOST_WORTH)

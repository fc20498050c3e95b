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

import itertools
import math
import statistics
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

# Contexts are padded to a multiple of so many cells, so steps of one multiple cost the same.
_CELLS = 256
# Where nothing is known yet: this share of a step is hoped to be saved by plain attention from so
# many multiples on, and by fused attention before the first.
_HOPE, _DEEP = 0.2, 2
# Steps after a change in which memory is touched for the first time.
_FIRST_STEPS = 3
# A turn of a trial ends when so many steps were of a kind like those of the turns before, or after
# so many steps of any kind. Kinds of fewer than a few steps are not compared.
_MANY, _ENOUGH, _LONGEST_TURN = 12, 3, 200
# A shared machine is three times as fast in one minute as in another. Where both turns of the same
# way differ by more, a trial only says something if the other way was better than both, or worse.
_STEADY = 1.25
# Steps of some kind must take this share of their time, for a trial to have found something.
_BETTER = 0.97
# The median of the last trials holds, for so many seconds of steps.
_TRIALS, _HOLDS_S = 5, 1800.0
# A change must be worth so many times what it costs, a trial what one change costs; twice that
# after each trial that found nothing better. That is forgotten with the seconds of steps. What a
# trial found to be better is taken at once.
_WORTH, _TRIAL_WORTH, _MOST_WORTH, _FORGET_S = 5.0, 1.0, 24.0, 60.0


class StepKind(NamedTuple):
    """Steps that take the same time where attention is computed in the same way.

    rows     of as many sequences; of a prompt in blocks of 16
    depth    multiples of 256 cells before them
    """

    is_prompt: bool
    rows: int
    depth: int

    def alike(self, others: Iterable[StepKind]) -> list[StepKind]:
        """Those of as many rows and of nearly the same depth."""
        return [k for k in others if k[:2] == self[:2] and abs(k.depth - self.depth) < 2]

    def apart(self, pair: tuple[StepKind, StepKind]) -> int:
        """How far this depth is from the middle of two others, in halves of 256 cells."""
        return abs(pair[0].depth + pair[1].depth - 2 * self.depth)


UsualSeconds = dict[StepKind, float]  # of each kind of step, computed in one way


class Attention:
    """Counts the time that the other way would have saved, and tries it where nobody knows.

    A **trial** has three turns: this way, the other, and this way again. The other way is compared
    with both turns of this way: a neighbour that left between two turns would else look like the
    merit of one way.

    lost_s     seconds, less those that this way saved
    is_losing  whether the last step was one of those that lose: nothing is changed before others
    worth      how many times a change's cost they must be, for a trial
    """

    def __init__(self) -> None:
        self.lost_s = 0.0
        self.is_losing = False
        self.worth = _TRIAL_WORTH
        self._hoped_s = 0.0  # as much of them as is hope
        self._is_found = False  # the trial that has just ended found the other way to be faster
        self._now = 0.0  # seconds of all steps
        self._known_at = 0.0
        self._steps = 0  # since the last change
        self._seen: dict[StepKind, deque[float]] = {}  # what the newest of them took
        self._seen_at: dict[StepKind, int] = {}
        self._turns: list[UsualSeconds] = []  # of a trial, those that are over
        self._found: dict[StepKind, deque[float]] = {}  # plain seconds / fused ones, by trial
        self._ratios: dict[StepKind, float] = {}  # their median
        self._alike: dict[StepKind, float | None] = {}  # the same, of those most like it

    def wants_change(self, cost: float) -> bool:
        """Whether to take the other way now, where that costs so many seconds."""
        if self._turns:
            return len(self._turns) == 1 and self._is_turn_over()
        if self._is_found or not self.is_losing:
            return self._is_found and self.is_losing
        if not self._is_hope:
            return self.lost_s >= max(self.worth, _WORTH) * cost
        return self.lost_s >= self.worth * cost and any(map(self._is_usual, self._seen))

    @property
    def _is_hope(self) -> bool:
        return self._hoped_s > self.lost_s / 2

    def observe(
        self, *, fused: bool, rows: int, position: int, seconds: float, is_prompt: bool
    ) -> None:
        """A step took so long. `position`: the last one of its longest sequence."""
        self._now += seconds
        self.worth = max(_TRIAL_WORTH, self.worth * math.exp(-seconds / _FORGET_S))
        if self._now - self._known_at > _HOLDS_S:
            self._forget()
        self._steps += 1
        if self._steps <= _FIRST_STEPS:
            return
        kind = StepKind(is_prompt, rows // 16 if is_prompt else rows, position // _CELLS)
        if kind not in self._seen:
            self._seen[kind] = deque(maxlen=_MANY)
        seen = self._seen[kind]
        seen.append(seconds)
        self._seen_at[kind] = self._steps
        if len(self._turns) == 2 and self._is_turn_over():
            self._conclude(fused=fused)
        # One step that was held up must not count for many.
        usual = min(seconds, 2 * sorted(seen)[len(seen) // 2])
        ratio = self._ratio(kind)
        saved = usual * _saved(kind, ratio, fused=fused)
        self.lost_s = max(0.0, self.lost_s + saved)
        self._hoped_s = min(self.lost_s, self._hoped_s + (saved if ratio is None else 0.0))
        self._is_found &= self.lost_s > 0
        self.is_losing = saved > 0

    def _is_turn_over(self) -> bool:
        """Whether the running turn of a trial has steps enough, or none to wait for."""
        if self._steps > _LONGEST_TURN:
            return True
        return any(
            len(seen) == _MANY and all(kind.alike(turn) for turn in self._turns)
            for kind, seen in self._seen.items()
        )

    def _turn(self) -> UsualSeconds:
        """What the last steps took, since the last change."""
        return {k: statistics.median(seen) for k, seen in self._seen.items() if self._is_usual(k)}

    def _is_usual(self, kind: StepKind) -> bool:
        """Whether enough of the last steps were of this kind."""
        lately = self._steps - _LONGEST_TURN
        return len(self._seen[kind]) >= _ENOUGH and self._seen_at[kind] > lately

    def _conclude(self, *, fused: bool) -> None:
        """The end of a trial: learn of the kinds of steps that all turns have.

        Contexts grow with each step. The first turn and the third are then as much shorter and
        deeper than the second one, and their mean is what it is compared with.
        """
        first, other = self._turns
        again = self._turn()
        self._turns = []
        is_better = False
        for kind, seconds in other.items():
            pairs = itertools.product(kind.alike(first), kind.alike(again))
            pair = min(pairs, key=kind.apart, default=None)
            if pair is None or kind.apart(pair) > 1:
                continue
            usual = _compared_with(seconds, first[pair[0]], again[pair[1]])
            if usual is None:
                continue
            ratio = max(seconds, 1e-9) / usual
            is_better |= ratio < _BETTER
            found = self._found.setdefault(kind, deque(maxlen=_TRIALS))
            found.append(ratio if fused else 1 / ratio)
            self._ratios[kind] = statistics.median(found)
            self._known_at = self._now
        self._alike.clear()
        if not is_better:
            self._not_worth_it()
        ratios = {kind: self._ratio(kind) for kind in self._seen}
        known = {kind: sum(self._seen[kind]) for kind, ratio in ratios.items() if ratio is not None}
        saved = sum(took * _saved(kind, ratios[kind], fused=fused) for kind, took in known.items())
        self._is_found = is_better and saved > (1 - _BETTER) * sum(known.values())

    def _forget(self) -> None:
        """Neighbours come and go, and threads with them: what was found long ago is tried again."""
        self._known_at = self._now
        for known in (self._found, self._ratios, self._alike):
            known.clear()

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
        self._turns = []
        self.lost_s = self._hoped_s = 0.0
        self._is_found = False
        self._not_worth_it()

    def changed(self) -> None:
        """The other way is taken now."""
        if len(self._turns) == 2:  # the layout asked for it
            self._turns = []
        elif self._turns or (self._is_hope and not self._is_found):
            self._turns.append(self._turn())
        self.lost_s = self._hoped_s = 0.0
        self._is_found = False
        self._seen, self._seen_at, self._steps = {}, {}, 0

    def _not_worth_it(self) -> None:
        self.worth = min(2 * self.worth, _MOST_WORTH)


def _compared_with(seconds: float, first: float, again: float) -> float | None:
    """What steps of this way took while the other way's took `seconds`; None: nobody knows.

    first, again: what they took before and after
    """
    low, high = sorted((max(first, 1e-9), max(again, 1e-9)))
    if high <= _STEADY * low:
        return math.sqrt(low * high)
    if low <= seconds <= high:
        return None
    return low if seconds < low else high  # better, or worse, than both


def _saved(kind: StepKind, ratio: float | None, *, fused: bool) -> float:
    """What share of a step the other way would save; negative where this way does.

    ratio: of a plain step's seconds to a fused one's
    """
    if ratio is not None:
        return 1 - (ratio if fused else 1 / ratio)
    is_open = kind.depth >= _DEEP if fused else not kind.depth
    return _HOPE if is_open and not kind.is_prompt else 0.0

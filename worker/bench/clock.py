"""How much of a run is done, and how long the rest will take."""

from __future__ import annotations

import time

_TRUST_S = 20.0


class Clock:
    """Stages with the seconds that each was expected to take."""

    def __init__(self) -> None:
        self._expected: dict[tuple[str | None, str], float] = {}
        self._now: tuple[str | None, str] | None = None
        self._began = 0.0
        self._spent = 0.0  # seconds, in stages that ended
        self._earned = 0.0  # seconds that those were expected to take
        self._skipped = 0.0

    def expect(self, level: str | None, stage: str, seconds: float) -> None:
        """Plan a stage."""
        self._expected[level, stage] = seconds

    def begin(self, level: str | None, stage: str) -> None:
        """A stage begins."""
        self._now = (level, stage)
        self._expected.setdefault(self._now, 1.0)
        self._began = time.monotonic()

    def end(self, *, measured: bool = True) -> None:
        """It has ended; without `measured` its result came from elsewhere."""
        assert self._now is not None
        expected = self._expected.pop(self._now)
        if measured:
            self._spent += time.monotonic() - self._began
            self._earned += expected
        else:
            self._skipped += expected
        self._now = None

    def drop(self, level: str | None) -> None:
        """Nothing more will come of a level."""
        for key in [key for key in self._expected if key[0] == level and key != self._now]:
            self._skipped += self._expected.pop(key)

    def left(self, share: float) -> tuple[float, float | None]:
        """The share of the run that is done, and the seconds left, with `share` of the stage."""
        here = self._expected.get(self._now, 0.0) if self._now else 0.0
        ahead = sum(self._expected.values()) - here * share
        behind = self._earned + self._skipped + here * share
        done = behind / (behind + ahead) if behind + ahead else 1.0
        if not self._expected:
            return done, None
        # What was expected counts as if seen for a while, so that a first odd stage decides little.
        pace = (self._spent + _TRUST_S) / (self._earned + _TRUST_S)
        return done, ahead * pace

"""When what does not pay is tried again: texts change, machines change, and one bad measurement
must not count for ever."""

from __future__ import annotations

_FIRST_STEPS, _STEPS = 4, 2
# Steps between two trials: twice as many after each one that did not pay.
_PAUSE, _LONGEST_PAUSE = 64, 1024


class Trial:
    """A few steps at the start, then a few after each pause."""

    def __init__(self) -> None:
        self._left = _FIRST_STEPS
        self._pause = _PAUSE
        self._wait = 0  # steps until the next trial

    def is_due(self) -> bool:
        """Whether the coming step, which has nothing that pays, shall try."""
        if not self._left:
            self._wait -= 1
            if self._wait <= 0:
                self._left = _STEPS
        return self._left > 0

    def made(self) -> None:
        """A step tried."""
        self._left -= 1
        if not self._left:
            self._wait = self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def paid(self) -> None:
        """No trial is needed now: the step has what pays. What is left of one comes later."""
        self._wait = self._pause = _PAUSE

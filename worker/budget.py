"""How long the work for one request may take: an argument of all that may take long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from worker.errors import LeftError

# Work that others do not wait behind: a constraint that takes long, media that are not known, many
# questions.
SlowWork = Literal["long", "media", "questions"]


def _has_left() -> bool:
    return False


def _make_way(_work: SlowWork) -> None:
    pass


class Budget(msgspec.Struct, frozen=True):
    """Without arguments: somebody waits as long as it takes, and nobody behind them.

    has_left  whether nobody waits any more
    make_way  called in the thread before slow work: returns once that work's turn has come, and
              others have the place that this one had. Raises LeftError, and QueueFullError where
              too many wait for such a turn
    """

    has_left: Callable[[], bool] = _has_left
    make_way: Callable[[SlowWork], None] = _make_way

    def check(self) -> None:
        """Raise LeftError where nobody waits any more."""
        if self.has_left():
            raise LeftError("The client left.")


UNBOUNDED = Budget()

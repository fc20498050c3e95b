"""A thread that follows a worker, and what it saw last."""

from __future__ import annotations

import threading
import time

import msgspec

from worker.cli.top.activity import Activity, activity_of
from worker.cli.top.address import Address, WatchError, events

_AGAIN_S = 0.5


class Sight(msgspec.Struct, frozen=True):
    """What was seen last.

    error  why the worker cannot be seen now; None: it can, or was not asked yet
    since  when that began, by the monotonic clock
    """

    activity: Activity | None = None
    error: WatchError | None = None
    since: float = 0.0

    @property
    def is_hopeless(self) -> bool:
        """Whether there was never anything to see, and asking again will not help."""
        return self.activity is None and self.error is not None and self.error.lasting


class Feed:
    """Follows the worker at `address` until the process ends, also through its restarts."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.sight = Sight()  # replaced as a whole, so a reader needs no lock
        # A daemon: who leaves must not wait for a worker that hangs.
        threading.Thread(target=self._follow, name="feed", daemon=True).start()

    def _follow(self) -> None:
        while True:
            try:
                self._look()
            except WatchError as error:
                last = self.sight
                since = time.monotonic() if last.error is None else last.since
                self.sight = Sight(last.activity, error, since)
            time.sleep(_AGAIN_S)

    def _look(self) -> None:
        """Until the events end, as they do while a worker drains. Raises WatchError."""
        before = self.sight
        for said in events(self._address):
            self.sight = Sight(activity_of(said))
        if self.sight is before:
            raise WatchError(f"{self._address} ends the connection without an event.")

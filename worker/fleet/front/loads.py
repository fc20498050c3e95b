"""How much each replica has to do, as far as this gateway knows, and who failed lately."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

# A replica that could not be reached is asked last for so long; by then Ray knows what it is.
AVOIDED_S = 5.0


class Loads:
    """Requests that are under way, by replica; for the event loop's thread."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._failed: dict[str, float] = {}

    @contextmanager
    def taken(self, replica: str) -> Generator[None]:
        """Inside, the replica has one request more."""
        self.counts[replica] += 1
        try:
            yield
        finally:
            self.counts[replica] -= 1
            if not self.counts[replica]:
                del self.counts[replica]

    def note_failure(self, replica: str) -> None:
        """It could not be reached just now."""
        self._failed[replica] = time.monotonic() + AVOIDED_S

    def avoided(self) -> set[str]:
        """Replicas that failed lately."""
        now = time.monotonic()
        self._failed = {name: until for name, until in self._failed.items() if until > now}
        return set(self._failed)

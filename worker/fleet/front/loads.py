"""How much each replica has to do, as far as this gateway knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager


class Loads:
    """Requests that are under way, by replica; for the event loop's thread.

    counts  those that this gateway has sent
    others  those of other gateways
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.others: dict[str, int] = {}

    @property
    def all(self) -> Mapping[str, int]:
        """Both together."""
        return self.counts + Counter(self.others) if self.others else self.counts

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

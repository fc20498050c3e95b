"""Whom requests belong to."""

from __future__ import annotations

import msgspec


class Account(msgspec.Struct, frozen=True):
    """The name of a key, and what its requests may take; all keys without a name share one.

    weight    its share, compared with those of the others
    rpm, tpm  requests and tokens a minute; None: as many as it likes
    running   requests that run at once at most; others wait. None: as many as there are slots
    priority  the lowest number, which is the highest priority, that its requests may have; None:
              any
    is_admin  whether it may read what others used
    is_batch  these are lines of batches: behind all others, and counted apart from its other
              requests, which never wait for them
    """

    name: str = ""
    weight: float = 1.0
    rpm: int | None = None
    tpm: int | None = None
    running: int | None = None
    priority: int | None = None
    is_admin: bool = False
    is_batch: bool = False

    @property
    def line(self) -> str:
        """Where its requests queue up: its name, or a place apart for lines of batches."""
        return f"{self.name}/batch" if self.is_batch else self.name


NOBODY = Account()

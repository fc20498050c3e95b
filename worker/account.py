"""Whom requests belong to."""

from __future__ import annotations

import hashlib

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
    user      of those without a name, whose requests share: a slash and a digest. Empty: all share
              as one
    """

    name: str = ""
    weight: float = 1.0
    rpm: int | None = None
    tpm: int | None = None
    running: int | None = None
    priority: int | None = None
    is_admin: bool = False
    is_batch: bool = False
    user: str = ""

    @property
    def line(self) -> str:
        """Where its requests queue up: its name or its user, or a place apart for lines of
        batches."""
        return f"{self.name}/batch" if self.is_batch else self.name or self.user

    @property
    def can_split(self) -> bool:
        """Whether its requests may be those of several users."""
        return not (self.name or self.user or self.is_batch)


NOBODY = Account()


def account_for(user: str) -> Account:
    """Of somebody without a key of a name. Text of a client is neither kept nor told."""
    text = user.encode(errors="surrogatepass")
    return Account(user=f"/{hashlib.blake2b(text, digest_size=12).hexdigest()}")

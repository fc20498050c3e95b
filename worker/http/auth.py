"""The bearer keys: who may ask for anything but health."""

from __future__ import annotations

import hashlib
import hmac

from worker import log
from worker.errors import NotAuthenticatedError
from worker.http import paths
from worker.keys import KeyFile, keys_of

_Headers = list[tuple[bytes, bytes]]


class Auth:
    """Compares what a request carries with all keys, in a time that tells nothing of them."""

    def __init__(self, key: str | None, file: KeyFile | None) -> None:
        self._key, self._file = key, file
        self._digests = _digests(keys_of(key, file))

    def read_again(self) -> None:
        """Take what the key file holds now. One that cannot be used changes nothing.

        Requests that were let in go on.
        """
        if self._file is None:
            return
        try:
            file = self._file.again()
        except ValueError as error:
            reason = f"{self._file.path} {error}"
            log.get("auth").warning(
                "the keys stay as they were", reason=reason, count=self.num_keys
            )
            return
        self._digests = _digests(keys_of(self._key, file))
        log.get("auth").info("the keys were read again", count=self.num_keys)

    @property
    def num_keys(self) -> int:
        """Keys that count; 0: everybody may."""
        return len(self._digests)

    def check(self, path: str, headers: _Headers) -> None:
        """Raise NotAuthenticatedError; only headers are looked at, so no body needs to be read."""
        if not self._digests or path in paths.HEALTH:
            return
        given = _key_in(headers)
        if not given:
            raise NotAuthenticatedError(
                "This worker asks for an API key.",
                hint="Send it as `Authorization: Bearer KEY`.",
                code="MISSING_API_KEY",
            )
        digest = _digest(given)
        # Each key is compared, also behind the one that fits: time does not tell which it was.
        if not sum([hmac.compare_digest(digest, known) for known in self._digests]):
            raise NotAuthenticatedError("The API key is wrong.")


def _digests(keys: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple({_digest(key.encode()): None for key in keys})


def _digest(key: bytes) -> bytes:
    # A comparison of digests does not tell how long the key is.
    return hashlib.sha256(key).digest()


def _key_in(headers: _Headers) -> bytes:
    """The first key that there is; x-api-key is where some clients put it."""
    for name, value in headers:
        key = b""
        if name == b"x-api-key":
            key = value
        elif name == b"authorization":
            scheme, _, rest = value.strip().partition(b" ")
            key = rest if scheme.lower() == b"bearer" else b""
        if key.strip():
            return key.strip()
    return b""

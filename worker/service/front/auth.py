"""The bearer key: who may ask for anything but health."""

from __future__ import annotations

import hashlib
import hmac

from worker.errors import NotAuthenticatedError
from worker.service.front import paths

_Headers = list[tuple[bytes, bytes]]


class Auth:
    """Compares what a request carries with the one key, in constant time."""

    def __init__(self, key: str | None) -> None:
        """`key` None: everybody may."""
        self._digest = None if key is None else _digest(key.encode())

    def check(self, path: str, headers: _Headers) -> None:
        """Raise NotAuthenticatedError; only headers are looked at, so no body needs to be read."""
        if self._digest is None or path in paths.HEALTH:
            return
        given = _key_in(headers)
        if not given:
            raise NotAuthenticatedError(
                "This worker asks for an API key.",
                hint="Send it as `Authorization: Bearer KEY`.",
                code="MISSING_API_KEY",
            )
        if not hmac.compare_digest(_digest(given), self._digest):
            raise NotAuthenticatedError("The API key is wrong.")


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

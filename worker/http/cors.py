"""Which pages of other origins may read answers (Fetch standard, 3.2): none that is not named.

Litestar could do it for its routes; the gate's own answers (401, 429, 503) need it as well.
"""

from __future__ import annotations

import re
from typing import Any

from worker.values import ANY_ORIGIN, LOCAL_ORIGINS

_Fields = list[tuple[bytes, bytes]]

_METHODS = b"GET, HEAD, POST, DELETE"
# What scripts may read besides the few that they always may.
_EXPOSED = b"x-request-id, x-correlation-id, request-id, retry-after, www-authenticate"
_MAX_AGE_S = b"600"
_LOCAL = re.compile(rb"https?://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?")


class Cors:
    """Adds to answers what tells a browser to hand them to a page.

    Credentials, that is cookies and passwords which a browser would add by itself, are never
    allowed: a page has to know the key.
    """

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)
        self._any = ANY_ORIGIN in origins
        self._local = LOCAL_ORIGINS in origins

    def _names(self, origin: bytes) -> bool:
        return bool(origin) and (
            self._any
            or origin in self._origins
            or (self._local and _LOCAL.fullmatch(origin) is not None)
        )

    def fields(self, scope: Any) -> _Fields:
        """What any answer to this request gets; nothing where no origin is named at all."""
        if not self._origins:
            return []
        fields = [(b"vary", b"origin")]
        if self._names(origin := _value(scope, b"origin")):
            fields += [
                (b"access-control-allow-origin", origin),
                (b"access-control-expose-headers", _EXPOSED),
            ]
        return fields

    def preflight(self, scope: Any) -> _Fields | None:
        """More of the answer to a browser that asks whether it may ask; None for other requests.

        It does so without the key, which the request itself then has. Programs for browsers send
        many headers of their own, so a named origin may send any; another one hears nothing.
        """
        origin = _value(scope, b"origin")
        asks = scope["method"] == "OPTIONS" and _value(scope, b"access-control-request-method")
        if not asks or not origin:
            return None
        if not self._names(origin):
            return []
        fields = [
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-max-age", _MAX_AGE_S),
            (b"vary", b"access-control-request-headers"),
        ]
        if asked := _value(scope, b"access-control-request-headers"):
            fields.append((b"access-control-allow-headers", asked))
        return fields


def _value(scope: Any, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")

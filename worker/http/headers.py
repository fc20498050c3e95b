"""What the gate reads of headers: ids, the client's own or ours; the bearer keys; and which pages
of other origins may read answers (Fetch standard, 3.2): none that is not named.

Litestar could do the last for its routes; the gate's own answers (401, 429, 503) need it as well.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import uuid
from typing import Any

import msgspec

from worker import log
from worker.account import NOBODY, Account
from worker.errors import NotAuthenticatedError, RequestError
from worker.http import paths
from worker.keys import KeyFile, account_of, accounts_of
from worker.limits import REQUEST_ID
from worker.values import ANY_ORIGIN, LOCAL_ORIGINS

_Fields = list[tuple[bytes, bytes]]
# What follows a key on its line of a key file.
ACCOUNT = b"x-account"


def ids_of(headers: _Fields) -> dict[str, str]:
    """The client's own ids where it sent printable ones, and a request id in any case."""
    found: dict[str, str] = {}
    for name in ("x-request-id", "x-correlation-id"):
        for key, value in headers:
            text = value.decode("latin-1")
            if key == name.encode() and 0 < len(text) <= REQUEST_ID.most and text.isprintable():
                found[name] = text
                break
    found.setdefault("x-request-id", f"req-{uuid.uuid4().hex}")
    return found


class Auth:
    """Compares what a request carries with all keys, in a time that tells nothing of them.

    num_keys  keys that count; 0: everybody may
    """

    def __init__(self, key: str | None, file: KeyFile | None, *, trusts: bool = False) -> None:
        """trusts: keys without a name are a relay's, which says whose the request is"""
        self._key, self._file, self._trusts = key, file, trusts
        self._take(accounts_of(key, file))

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
        self._take(accounts_of(self._key, file))
        log.get("auth").info("the keys were read again", count=self.num_keys)

    def _take(self, accounts: dict[str, Account]) -> None:
        self._digests = {_digest(key.encode()): account for key, account in accounts.items()}
        self.num_keys = len(self._digests)

    def check(self, path: str, headers: _Fields) -> Account:
        """Whose key it is. Raises NotAuthenticatedError, and RequestError for an account that a
        relay describes wrongly; only headers are looked at, so no body needs to be read."""
        if not self._digests or path in paths.HEALTH:
            return NOBODY
        given = key_in(headers)
        if not given:
            raise NotAuthenticatedError(
                "This worker asks for an API key.",
                hint="Send it as `Authorization: Bearer KEY`.",
                code="MISSING_API_KEY",
            )
        digest = _digest(given)
        # Each key is compared, also behind the one that fits: time does not tell which it was.
        fits = [hmac.compare_digest(digest, known) for known in self._digests]
        if not sum(fits):
            raise NotAuthenticatedError("The API key is wrong.")
        account = list(self._digests.values())[fits.index(True)]
        return _account_in(headers) if self._trusts and not account.name else account

    def owner(self, headers: _Fields, account: Account) -> str:
        """Whose what is kept is: a key's name, or a digest of a key without one; one for all where
        there are no keys. A name has no slash."""
        if not self._digests or account.name:
            return account.name
        told = _owner_in(headers) if self._trusts else ""
        return f"/{told or _digest(key_in(headers)).hex()[:32]}"


def _account_in(headers: _Fields) -> Account:
    """The account that a relay describes, never an admin's; NOBODY: it describes none."""
    words = [] if _owner_in(headers) else _account_text(headers).split()
    try:
        return msgspec.structs.replace(account_of(words), is_admin=False)
    except ValueError as error:
        raise RequestError(f"X-Account: {error}.", param="X-Account") from None


def _account_text(headers: _Fields) -> str:
    return next((value.decode("latin-1") for name, value in headers if name == ACCOUNT), "")


def _owner_in(headers: _Fields) -> str:
    """The key without a name that a relay was sent, told apart from others by its digest."""
    field, _, digest = _account_text(headers).partition("=")
    return digest if field == "owner" else ""


def _digest(key: bytes) -> bytes:
    # A comparison of digests does not tell how long the key is.
    return hashlib.sha256(key).digest()


def key_in(headers: _Fields) -> bytes:
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


def user_in(headers: _Fields) -> str | None:
    """Who asks, as a program in front of the worker says: in UTF-8, as bodies are, else latin-1."""
    for name, value in headers:
        if name == b"x-user":
            try:
                return value.decode()
            except UnicodeDecodeError:
                return value.decode("latin-1")
    return None


_METHODS = b"GET, HEAD, POST, DELETE"
# What scripts may read besides the few that they always may.
_EXPOSED = (
    b"x-request-id, x-correlation-id, request-id, x-typesafe-request-id, retry-after, "
    b"www-authenticate, x-stream-id, "
    b"x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    b"x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)
_MAX_AGE_S = b"600"
_LOCAL = re.compile(rb"https?://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?")


class Cors:
    """Adds to answers what tells a browser to hand them to a page.

    Credentials, that is cookies and passwords which a browser would add by itself, are never
    allowed: a page has to know the key.

    has_origins  whether any is named; else answers get nothing
    """

    def __init__(self, origins: tuple[str, ...]) -> None:
        self.has_origins = bool(origins)
        self._origins = frozenset(origin.encode() for origin in origins)
        self._any = ANY_ORIGIN in origins
        self._local = LOCAL_ORIGINS in origins

    def names(self, origin: bytes) -> bool:
        """Whether pages of this origin may read answers."""
        return bool(origin) and (
            self._any
            or origin in self._origins
            or (self._local and _LOCAL.fullmatch(origin) is not None)
        )

    def fields(self, scope: Any) -> _Fields:
        """What any answer to this request gets, if an origin is named."""
        fields = [(b"vary", b"origin")]
        if self.names(origin := _value(scope, b"origin")):
            fields += [
                (b"access-control-allow-origin", origin),
                (b"access-control-expose-headers", _EXPOSED),
            ]
        return fields

    def preflight(self, scope: Any) -> _Fields | None:
        """More of the answer to OPTIONS of a browser that asks whether it may ask; else None.

        It does so without the key, which the request itself then has. Programs for browsers send
        many headers of their own, so a named origin may send any; another one hears nothing.
        """
        origin = _value(scope, b"origin")
        if not origin or not _value(scope, b"access-control-request-method"):
            return None
        if not self.names(origin):
            return []
        fields = [
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-max-age", _MAX_AGE_S),
            (b"vary", b"access-control-request-headers"),
        ]
        if asked := _value(scope, b"access-control-request-headers"):
            fields.append((b"access-control-allow-headers", asked))
        # Chromium asks before a public page may ask this machine or its network.
        if _value(scope, b"access-control-request-private-network") == b"true":
            fields.append((b"access-control-allow-private-network", b"true"))
        return fields


def _value(scope: Any, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")

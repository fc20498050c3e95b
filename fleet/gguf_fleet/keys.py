"""Bearer keys of the endpoint: the file that holds them, and who sends one of them."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import msgspec

from gguf_fleet.errors import RefusedError

_MAX_FILE = 1 << 16


class KeyFile(msgspec.Struct, frozen=True):
    """A file of keys: one on each line; empty lines and those that start with # say nothing."""

    path: str
    keys: tuple[str, ...]

    def __repr__(self) -> str:
        return f"KeyFile({self.path!r}, {len(self.keys)} keys)"


def key_file(path: str) -> KeyFile:
    """The keys in that file, each once, at least one. Raises ValueError."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MAX_FILE).decode()
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("is not a text file") from None
    lines = (line.strip() for line in text.splitlines())
    found = tuple(dict.fromkeys(line for line in lines if line and not line.startswith("#")))
    if not found:
        raise ValueError("must name a file with a key, this one holds none")
    if any(not key.isascii() or not key.isprintable() or " " in key for key in found):
        raise ValueError("must be printable ASCII without spaces")
    return KeyFile(path, found)


class Auth:
    """Compares what a request carries with all keys, in a time that tells nothing of them."""

    def __init__(self, file: KeyFile | None) -> None:
        """None: everybody may ask."""
        self._digests = [_digest(key) for key in file.keys] if file is not None else []

    def check(self, key: str | None, authorization: str | None) -> None:
        """Raise RefusedError. key: of the header x-api-key, where some clients put it"""
        if not self._digests:
            return
        scheme, _, rest = (authorization or "").strip().partition(" ")
        given = (key or "").strip() or (rest.strip() if scheme.lower() == "bearer" else "")
        if not given:
            raise RefusedError(
                401,
                "This fleet asks for an API key.",
                hint="Send it as `Authorization: Bearer KEY`.",
                code="MISSING_API_KEY",
            )
        digest = _digest(given)
        # Each key is compared, also behind the one that fits: time does not tell which it was.
        if not sum([hmac.compare_digest(digest, known) for known in self._digests]):
            raise RefusedError(401, "The API key is wrong.")


def _digest(key: str) -> bytes:
    # A comparison of digests does not tell how long the key is.
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()

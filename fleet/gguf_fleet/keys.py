"""Bearer keys of the endpoint: the file that holds them, and who sends one of them."""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path

import msgspec

from gguf_fleet.errors import RefusedError

_MAX_FILE = 1 << 16


class KeyFile(msgspec.Struct, frozen=True):
    """A file of keys: one on each line; empty lines and those that start with # say nothing.

    accounts  what follows each key, as workers read it: `name=anna weight=2`; mostly nothing
    """

    path: str
    keys: tuple[str, ...]
    accounts: tuple[str, ...] = ()

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
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        key, *words = line.split() or [""]
        if not key or key.startswith("#"):
            continue
        if not key.isascii() or not key.isprintable():
            raise ValueError(f"cannot be used: line {number}: a key must be printable ASCII")
        if wrong := _wrong_in(words):
            raise ValueError(f"cannot be used: line {number}: {wrong}")
        if found.setdefault(key, " ".join(words)) != " ".join(words):
            raise ValueError(f"cannot be used: line {number}: the key has other fields before")
    if not found:
        raise ValueError("must name a file with a key, this one holds none")
    return KeyFile(path, tuple(found), tuple(found.values()))


def _is_name(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text) is not None


def _is_weight(text: str) -> bool:
    return re.fullmatch(r"\d{1,3}(\.\d+)?", text) is not None and 0.01 <= float(text) <= 100


def _is_priority(text: str) -> bool:
    return re.fullmatch(r"-?\d{1,3}", text) is not None and abs(int(text)) <= 100


# What may follow a key, as in a worker's key file: what workers have to know of whose it is. Other
# fields count requests or tokens, which several workers would count each for itself.
_FIELDS = {"name": _is_name, "weight": _is_weight, "priority": _is_priority}


def _wrong_in(words: list[str]) -> str | None:
    """What is wrong with a line's fields; None: nothing. It tells no word, which may be a part of a
    key."""
    given = {name: value for name, _, value in (word.partition("=") for word in words)}
    if len(given) < len(words) or given.keys() - _FIELDS.keys():
        return f"behind a key stand {', '.join(_FIELDS)}, each once"
    if given and "name" not in given:
        return "name is missing, to which the other fields belong"
    wrong = [field for field, value in given.items() if not _FIELDS[field](value)]
    return f"{wrong[0]} is not one that a worker takes" if wrong else None


class Auth:
    """Compares what a request carries with all keys, in a time that tells nothing of them."""

    def __init__(self, file: KeyFile | None) -> None:
        """None: everybody may ask."""
        self._digests = [_digest(key) for key in file.keys] if file is not None else []
        self._accounts = file.accounts if file is not None else ()

    def check(self, key: str | None, authorization: str | None) -> str:
        """What workers are told of whose key it is. Raises RefusedError.

        key: of the header x-api-key, where some clients put it
        """
        if not self._digests:
            return ""
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
        fits = [hmac.compare_digest(digest, known) for known in self._digests]
        if not sum(fits):
            raise RefusedError(401, "The API key is wrong.")
        account = self._accounts[fits.index(True)] if self._accounts else ""
        # Of a key without a name workers are told which one it is, but not the key.
        return account or f"owner={digest.hex()[:32]}"


def _digest(key: str) -> bytes:
    # A comparison of digests does not tell how long the key is.
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()

"""Bearer keys: what one may be, whose it is, and the file that holds some."""

from __future__ import annotations

import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from worker.account import NOBODY, Account
from worker.errors import did_you_mean
from worker.limits import PRIORITY
from worker.values import integer, number, text_in

_MAX_FILE = 1 << 16
_LONGEST_NAME = 64


def keys(text: str) -> str:
    """Bearer keys, separated by commas as llama-server takes them."""
    for part in text.split(","):
        key(part)
    return text


def key(text: str) -> str:
    """A bearer key: characters that a header can carry. Raises ValueError."""
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be printable ASCII without spaces")
    return text


class KeyFile(msgspec.Struct, frozen=True):
    """A file of bearer keys: one on each line; empty lines and those that start with # say nothing.

    keys      what it held when it was read, each once, at least one
    accounts  whose each of them is
    """

    path: str
    keys: tuple[str, ...]
    accounts: tuple[Account, ...]

    def again(self) -> KeyFile:
        """The file as it is now. Raises ValueError where it cannot be used."""
        try:
            if not stat.S_ISREG(Path(self.path).stat().st_mode):  # a pipe would be waited for
                raise ValueError("is no regular file, which alone can be read again")
        except OSError as error:
            raise ValueError(f"cannot be read: {error.strerror}") from None
        return key_file(self.path)

    def __repr__(self) -> str:
        return f"KeyFile({self.path!r}, {len(self.keys)} keys)"


def accounts_of(alone: str | None, file: KeyFile | None) -> dict[str, Account]:
    """Each key, of those that were given by themselves and of a file -> whose it is; none:
    everybody may ask.

    alone  separated by commas
    """
    found = {} if alone is None else dict.fromkeys(alone.split(","), NOBODY)
    return found if file is None else found | dict(zip(file.keys, file.accounts, strict=True))


def keys_of(alone: str | None, file: KeyFile | None) -> tuple[str, ...]:
    """The keys of `accounts_of`."""
    return tuple(accounts_of(alone, file))


def key_file(text: str) -> KeyFile:
    """The keys in the file of that name, which may be a pipe. Raises ValueError."""
    found: dict[str, Account] = {}
    named: dict[str, Account] = {}
    for place, line in enumerate(text_in(text, _MAX_FILE).split("\n"), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            if words[0].startswith(tuple(f"{field}=" for field in _FIELDS)):
                raise ValueError("the key is missing, which stands before its fields")
            account = account_of(words[1:])
            if account.name and named.setdefault(account.name, account) != account:
                raise ValueError(f"name {account.name} has other fields on an earlier line")
            if found.setdefault(key(words[0]), account) != account:
                raise ValueError("the key has other fields on an earlier line")
        except ValueError as error:
            raise ValueError(f"cannot be used: line {place}: {error}") from None
    if not found:
        raise ValueError("must name a file with a key, this one holds none")
    return KeyFile(text, tuple(found), tuple(found.values()))


def account_of(words: Sequence[str]) -> Account:
    """Whose key it is, by what follows it on its line. Raises ValueError that names the field."""
    given: dict[str, Any] = {}
    for word in words:
        field, sign, value = word.partition("=")
        if word == "admin":
            field, given["is_admin"] = word, True
        elif field not in _FIELDS or not sign:
            # The word may be a part of a key, so it is not told.
            known = f"Fields are {', '.join(_FIELDS)} and admin"
            raise ValueError(f"a field is not known. {did_you_mean(field, _FIELDS)}{known}")
        elif field in given:
            raise ValueError(f"{field} is there twice")
        else:
            try:
                given[field] = _FIELDS[field](value)
            except ValueError as error:
                raise ValueError(f"{field} {error}") from None
    if given.keys() - {"name", "is_admin"} and "name" not in given:
        raise ValueError("name is missing, to which the other fields belong")
    if "name" in given:
        given.setdefault("priority", 0)
    return Account(**given)


def _name(text: str) -> str:
    is_plain = text.isascii() and text.replace("-", "").replace("_", "").replace(".", "").isalnum()
    if not is_plain or len(text) > _LONGEST_NAME:
        raise ValueError(f"must be 1 to {_LONGEST_NAME} letters, digits, '.', '-' and '_'")
    return text


_MOST = 10**9
_FIELDS: dict[str, Callable[[str], Any]] = {
    "name": _name,
    "weight": number(0.01, 100),
    "rpm": integer(1, _MOST),
    "tpm": integer(1, _MOST),
    "running": integer(1, _MOST),
    "priority": integer(-PRIORITY.most, PRIORITY.most),
}

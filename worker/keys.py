"""Bearer keys: what one may be, and the file that holds some."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec

from worker.values import text_in

_MAX_FILE = 1 << 16


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

    keys: what it held when it was read, each once, at least one
    """

    path: str
    keys: tuple[str, ...]

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


def keys_of(alone: str | None, file: KeyFile | None) -> tuple[str, ...]:
    """Keys that were given by themselves, and those of a file; none: everybody may ask.

    alone  separated by commas
    """
    return (*(() if alone is None else alone.split(",")), *(() if file is None else file.keys))


def key_file(text: str) -> KeyFile:
    """The keys in the file of that name, which may be a pipe. Raises ValueError."""
    lines = [line.strip() for line in text_in(text, _MAX_FILE).splitlines()]
    keys = dict.fromkeys(key(line) for line in lines if line and not line.startswith("#"))
    if not keys:
        raise ValueError("must name a file with a key, this one holds none")
    return KeyFile(text, tuple(keys))

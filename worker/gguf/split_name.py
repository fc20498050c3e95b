"""Names of the files of a split model: `NAME-00001-of-00003.gguf` and so on."""

from __future__ import annotations

import re
from typing import Self

import msgspec

_NAME = re.compile(
    r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})(?P<suffix>\.gguf)",
    re.IGNORECASE | re.DOTALL,
)


class SplitName(msgspec.Struct, frozen=True):
    """The name of file `number` of `count`, counted from 1; `stem` may begin with folders.

    suffix  .gguf as it is written there
    """

    stem: str
    number: int
    count: int
    suffix: str = ".gguf"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """What `name` says, or None where it is no such name."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        found = cls(match["stem"], int(match["number"]), int(match["count"]), match["suffix"])
        return found if 1 <= found.number <= found.count else None

    def __str__(self) -> str:
        return f"{self.stem}-{self.number:05d}-of-{self.count:05d}{self.suffix}"

    @property
    def is_first(self) -> bool:
        """Whether this is the file to pass; it holds the model's keys."""
        return self.number == 1

    def siblings(self) -> tuple[str, ...]:
        """The names of all files of the model, this one among them, in order."""
        numbers = range(1, self.count + 1)
        return tuple(str(msgspec.structs.replace(self, number=number)) for number in numbers)


def is_gguf(name: str) -> bool:
    """Whether a file's name ends as those of GGUF files do, in any case of letters."""
    return name.lower().endswith(".gguf")


def all_files(first: str) -> tuple[str, ...]:
    """Names of all files of the model whose first or only file is `first`."""
    name = SplitName.parse(first)
    return name.siblings() if name and name.is_first else (first,)

"""The text behind --model: it names a file, a model of the catalogue, or a model on the Hub.

PATH                              a file: it exists, ends in .gguf, or begins with / . or ~
file:PATH                         a file
NAME[:QUANT]                      an entry of models.toml
ORG/REPO[@REV][:QUANT]            a repository on the Hub
hf:ORG/REPO[@REV][:QUANT]         the same
hf:ORG/REPO[@REV]::file=PATH      one file of it (a split model's first)
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import msgspec

from worker.errors import UsageError
from worker.gguf.split_name import is_gguf

_NAME = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)(?::(?P<quant>[A-Za-z0-9][\w-]*))?")
_REPO = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w./-]+))?"
    r"(?:::file=(?P<file>[^:]+\.(?i:gguf))|:(?P<quant>[A-Za-z0-9][\w-]*))?"
)
_DEFAULT_REVISION = "main"


class Named(msgspec.Struct, frozen=True):
    """A model of the catalogue. `quant` None: any encoding of it."""

    name: str
    quant: str | None


class Remote(msgspec.Struct, frozen=True):
    """A model on the Hub, by its file or its encoding. Both None: any encoding."""

    repo: str
    revision: str
    quant: str | None
    file: str | None


Reference = Path | Named | Remote


def parse(text: str) -> Reference:
    """Read a reference. Where a file of that name exists, the text means that file.

    Raises UsageError where it is empty or no such reference.
    """
    if text in ("", "file:"):
        raise UsageError("The model's name is empty.", hint="Name a file or a model.")
    if text.startswith("file:"):
        return Path(text.removeprefix("file:"))
    if text.startswith("hf:"):
        match = _REPO.fullmatch(text.removeprefix("hf:"))
        if not match or not _stays_inside(match["revision"], match["file"]):
            raise UsageError(
                f"{text!r} is no reference to a model on the Hub.",
                hint="Write hf:ORGANIZATION/REPOSITORY@REVISION::file=NAME.gguf, or "
                "hf:ORGANIZATION/REPOSITORY:Q4_K_M.",
            )
        return _remote(match)
    path = Path(text)
    if _exists(path) or is_gguf(text) or text.startswith(("/", ".", "~")):
        return path
    match = _REPO.fullmatch(text)
    if match and _stays_inside(match["revision"], match["file"]):
        return _remote(match)
    if match := _NAME.fullmatch(text):
        return Named(match["name"], _upper(match["quant"]))
    return path


def _remote(match: re.Match[str]) -> Remote:
    revision = match["revision"] or _DEFAULT_REVISION
    return Remote(match["repo"], revision, _upper(match["quant"]), match["file"])


def _stays_inside(*names: str | None) -> bool:
    """Whether the names lead to no place outside of the cache's folder."""
    paths = [PurePosixPath(name) for name in names if name]
    return not any(path.is_absolute() or ".." in path.parts for path in paths)


def _upper(quant: str | None) -> str | None:
    return quant.upper() if quant else None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long for a path, or with a NUL
        return False

"""models.toml: names for models on the Hub. The first lines of that file explain its form."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from worker.errors import UsageError, did_you_mean
from worker.gguf.split_name import all_files, is_gguf

_PACKAGE = Path(__file__).parent.parent
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_QUANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_BYTES = 1 << 20


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model: where it is published and in which encodings."""

    repo: str
    license: str
    parameters: int
    context: int
    revision: str = "main"
    quants: tuple[str, ...] = ()
    file: str | None = None
    files: dict[str, str] = {}
    mmproj: str | None = None
    sha256: dict[str, str] = {}

    def first_file(self, quant: str) -> str:
        """The only or first file of an encoding that the entry has."""
        if quant in self.files:
            return self.files[quant]
        return (self.file or "").replace("{QUANT}", quant).replace("{quant}", quant.lower())

    def check_has(self, quant: str, name: str) -> None:
        """Raise UsageError unless the entry, called `name`, has that encoding."""
        if quant not in self.labels:
            raise UsageError(
                f"The catalogue has {name} as {', '.join(self.labels)}, not as {quant}.",
                hint=f"{did_you_mean(quant, self.labels)}Name one of them, or another file of "
                f"{self.repo}: hf:{self.repo}::file=NAME.gguf",
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """Its encodings, in the order of the entry."""
        return tuple(dict.fromkeys((*self.quants, *self.files)))


class Catalog(msgspec.Struct, frozen=True):
    entries: dict[str, Entry]

    def find(self, name: str) -> Entry:
        """The entry of that name, in any case of letters. Raises UsageError where there is none."""
        entry = self.entries.get(name.lower())
        if entry is not None:
            return entry
        raise UsageError(
            f"There is no file and no catalogue model named {name!r}.",
            hint=f"{did_you_mean(name.lower(), self.entries)}"
            "`worker pull --list` shows the catalogue.",
            code="UNKNOWN_MODEL",
        )


def load_catalog(extra: str | None = None) -> Catalog:
    """The packaged list and the user's own at the path `extra`, whose entries replace those of the
    same name.

    Raises UsageError that names the file and the entry that is wrong.
    """
    entries = _read(_packaged_list())
    if extra:
        entries |= _read(Path(os.path.expanduser(extra)))  # noqa: PTH111  (a Path's raises without a home)
    return Catalog(entries)


def _packaged_list() -> Path:
    """The list that comes with us: inside of an installed package, beside it in a checkout."""
    inside = _PACKAGE / "models.toml"
    return inside if inside.exists() else _PACKAGE.parent / "models.toml"


def _read(path: Path) -> dict[str, Entry]:
    hint = f"Correct {path}; the packaged models.toml tells the form in its first lines."
    try:
        data = path.read_bytes()
        if len(data) > _MAX_BYTES:
            raise UsageError(f"The catalogue {path} is larger than {_MAX_BYTES} bytes.")
        tables = tomllib.loads(data.decode())
    except OSError as error:
        raise UsageError(
            f"The catalogue {path} cannot be read: {error.strerror}.",
            hint="Name a file like the packaged models.toml.",
        ) from error
    except UnicodeDecodeError:
        raise UsageError(f"The catalogue {path} is no text in UTF-8.", hint=hint) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"The catalogue {path} is no TOML: {error}.", hint=hint) from None
    except RecursionError:
        raise UsageError(f"The catalogue {path} is nested too deep.", hint=hint) from None
    entries: dict[str, Entry] = {}
    for name, table in tables.items():
        try:
            entries[name] = _entry(name, table)
        except ValueError as error:
            raise UsageError(f"{path}, entry {name!r}: {error}.", hint=hint) from None
    return entries


def _entry(name: str, table: Any) -> Entry:
    """The entry that `table` describes. Raises ValueError; msgspec's errors are ValueErrors."""
    if not _NAME.fullmatch(name):
        raise ValueError("the name must be lower-case letters, digits, '.', '_' and '-'")
    entry = msgspec.convert(table, Entry)
    if not _REPO.fullmatch(entry.repo):
        raise ValueError(f"repo must be ORGANIZATION/NAME, not {entry.repo!r}")
    if not entry.revision:
        raise ValueError("revision must not be empty")
    if entry.revision.startswith("/") or ".." in entry.revision.split("/"):
        raise ValueError("revision must be a branch, a tag or a commit")
    if entry.parameters < 1 or entry.context < 1:
        raise ValueError("parameters and context must be at least 1")
    if not entry.labels:
        raise ValueError("there must be quants or files")
    if entry.quants and "{quant}" not in (entry.file or "").lower():
        raise ValueError("quants need a file with {QUANT} or {quant} in its name")
    upper = {
        "quants": tuple(label.upper() for label in entry.quants),
        "files": {label.upper(): file for label, file in entry.files.items()},
    }
    entry = msgspec.structs.replace(entry, **upper)
    known: set[str] = set()
    for label in entry.labels:
        if not _QUANT.fullmatch(label):
            raise ValueError(f"{label!r} is no name of an encoding")
        file = entry.first_file(label)
        if not is_inside(file):
            raise ValueError(f"{file!r} is no .gguf file inside a repository")
        known.update(all_files(file))
    if entry.mmproj is not None:
        if not is_inside(entry.mmproj):
            raise ValueError(f"{entry.mmproj!r} is no .gguf file inside a repository")
        known.add(entry.mmproj)
    _check_sums(entry.sha256, known)
    return entry


def is_inside(file: str) -> bool:
    """Whether `file` names a .gguf file and leads to no place outside of a repository."""
    path = PurePosixPath(file)
    return is_gguf(file) and not path.is_absolute() and ".." not in path.parts


def _check_sums(sums: Mapping[str, str], known: set[str]) -> None:
    for file, digest in sums.items():
        if file not in known:
            raise ValueError(f"sha256 names {file!r}, which is no file of it")
        if not _SHA256.fullmatch(digest):
            raise ValueError(f"the sha256 of {file!r} must be 64 lower-case hexadecimal digits")

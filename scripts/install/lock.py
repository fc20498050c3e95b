"""`requirements.lock`: the versions and hashes of all that a locked install takes from an index."""

import re
from pathlib import Path

from scripts.install.commands import ROOT
from scripts.install.source import NAME
from scripts.install.talk import InstallError

LOCK = ROOT / "requirements.lock"
# What the lock is made for: the worker and these extras.
EXTRAS = {"otel"}
_ENTRY = re.compile(r"^(?=\w)", re.MULTILINE)
_NAME = re.compile(r"[\w.-]+")


def entries(text: str) -> dict[str, str]:
    """Name of a package -> its lines: the version, where it is for, the hashes of its files."""
    found: dict[str, str] = {}
    for block in _ENTRY.split(text):
        if name := _NAME.match(block):
            found[name[0]] = found.get(name[0], "") + block
    return found


def locked_text(name: str) -> str:
    """The lock's lines of one package; nothing where it has none."""
    return entries(LOCK.read_text()).get(name, "") if LOCK.exists() else ""


def write_requirements(folder: Path, *, library: bool) -> Path:
    """Write a file for pip with the lock's lines of the library, or of all else, and return it.

    Raises InstallError where there is no lock.
    """
    if not LOCK.exists():
        raise InstallError(f"There is no {LOCK.name}; `make requirements.lock` writes it.")
    lines = [text for name, text in entries(LOCK.read_text()).items() if (name == NAME) == library]
    path = folder / f"{'library' if library else 'packages'}.lock"
    path.write_text("".join(lines))
    return path


def check_extras(extras: list[str]) -> None:
    """Raise InstallError for extras that the lock does not have."""
    if others := sorted(set(extras) - EXTRAS):
        raise InstallError(
            f"The lock has no packages of the extra {others[0]}. Take another folder for a locked "
            "install, or install this one with LOCKED=0."
        )

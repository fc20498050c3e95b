"""What happens to a folder of blocks: a full disk, writers that die, bytes that change."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from unittest import mock

from worker.cache import block_file
from worker.files import atomic_write

Damage = Callable[[bytearray, int], bytes]


def flipped(data: bytearray, at: int) -> bytes:
    """The same with one bit changed."""
    if data:
        data[at % len(data)] ^= 1 << at % 8
    return bytes(data)


def cut(data: bytearray, at: int) -> bytes:
    """The first bytes only."""
    return bytes(data[: at % (len(data) or 1)])


def zeroed(data: bytearray, at: int) -> bytes:
    """As long as before, with zeros where the last bytes did not arrive."""
    return cut(data, at).ljust(len(data), b"\0")


def block_files(place: Path) -> list[Path]:
    """All blocks below a folder, of any model."""
    return sorted(path for path in place.glob("*/*") if path.suffix in (".rows", ".rest"))


def damage(place: Path, number: int, how: Damage) -> None:
    """Change the bytes of one file."""
    files = block_files(place)
    if files:
        path = files[number % len(files)]
        with contextlib.suppress(FileNotFoundError):  # a worker has removed it
            path.write_bytes(how(bytearray(path.read_bytes()), number))


def remove_some(place: Path, number: int) -> None:
    """Every third file is gone."""
    for path in block_files(place)[number % 3 :: 3]:
        path.unlink(missing_ok=True)


def remove_folders(place: Path) -> None:
    """All of it is gone."""
    for path in place.iterdir():
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def full_disk(after: int) -> Generator[None]:
    """The disk takes `after` files more, and then half of one."""

    @contextlib.contextmanager
    def written(target: Path) -> Generator[Path]:
        nonlocal after
        after -= 1
        with atomic_write(target) as partial:
            yield partial
            if after < 0:
                os.truncate(partial, partial.stat().st_size // 2)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with mock.patch.object(block_file, "atomic_write", written):
        yield


@contextlib.contextmanager
def dying_writer(after: int, how: Damage, number: int, *, named: bool) -> Generator[None]:
    """Who writes in this block writes `after` files more and dies while it writes the next one.

    What it leaves behind is what `how` makes of the file.
    named: the file has its name already, as after a power cut; nobody waited for its bytes
    """

    @contextlib.contextmanager
    def written(target: Path) -> Generator[Path]:
        nonlocal after
        after -= 1
        if after >= 0:
            with atomic_write(target) as partial:
                yield partial
            return
        partial = target.with_name(f".{target.name}.{number:08x}.partial")
        yield partial
        partial.write_bytes(how(bytearray(partial.read_bytes()), number))
        if named:
            partial.replace(target)
        raise OSError(errno.EIO, "its writer is dead")  # it writes nothing more

    with mock.patch.object(block_file, "atomic_write", written):
        yield

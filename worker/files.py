"""Files that this process writes: their room, their folder, and that nobody sees them half done."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any, BinaryIO

from worker.errors import DiskSpaceError, UsageError
from worker.machine import human_bytes

# What a file system says of calls that it does not have: network and FUSE file systems lack some.
_UNKNOWN = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
_LOCK = "lock"
_MAX_NAME_BYTES = 255  # of a file's name, on all usual disks


def free_bytes(folder: Path) -> int:
    """Bytes that this user can still write below `folder`. The folder need not exist yet."""
    found = _file_system(folder)
    return found.f_bavail * found.f_frsize


def _file_system(folder: Path) -> os.statvfs_result:
    """Of the folder, or of the nearest one above that exists. Raises OSError."""
    place = folder.absolute()
    while True:
        try:
            return os.statvfs(place)
        except (FileNotFoundError, NotADirectoryError):
            if place == place.parent:
                raise
            place = place.parent


def check_room(folder: Path, nbytes: int, what: str) -> None:
    """Raise DiskSpaceError unless `nbytes` more bytes fit into `folder`; `what` names them.

    Raises OSError where no room that is made would help: the file system is read-only.
    """
    free = free_bytes(folder)
    if nbytes > free:
        if _file_system(folder).f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(folder))
        raise DiskSpaceError(
            f"{what} needs {human_bytes(nbytes)} in {folder}, {human_bytes(free)} are free.",
            hint="Free some room, or take another disk.",
        )


def check_writable(folder: Path) -> None:
    """Raise UsageError unless files can be made in `folder`, whatever its rights say."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = f"{folder} cannot be written to: {error.strerror}."
        raise UsageError(reason, hint="Name another folder.") from None


def is_device(path: Path) -> bool:
    """Whether there is something that is neither a file nor a folder, such as a pipe."""
    try:
        mode = path.stat().st_mode  # once: the next moment another process may have removed it
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def entries(folder: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    """What a folder holds, in any order: nothing where there is none or it cannot be read."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read it. A folder or a device, for which a reader may have to wait, counts as
    none: FileNotFoundError. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "rb")  # noqa: PTH123
    os.close(descriptor)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def cache_folder(purpose: str) -> Path:
    """The folder for what can be made again: `$XDG_CACHE_HOME/gguf-worker/PURPOSE`.

    Without that variable it is below `~/.cache`. The folder need not exist.
    Raises UsageError where the user has no home folder.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(base) if base else Path.home() / ".cache"
    except RuntimeError:
        raise UsageError(
            "There is no home folder to keep files in.",
            hint="Set XDG_CACHE_HOME to a folder that can be written to.",
        ) from None
    return folder / "gguf-worker" / purpose


def private_folder(folder: Path) -> Path:
    """Make a folder that only this user can read and write, and return it.

    It may exist already: then other users lose their rights in it. Raises UsageError where it
    belongs to somebody else (a link counts as such: another user of /tmp may have put it there),
    or cannot be made or written to.
    """
    tries = 3
    while True:
        tries -= 1
        try:
            _make_private(folder)
        except OSError as error:
            # Another process may have removed it meanwhile.
            if tries and isinstance(error, (FileNotFoundError, FileExistsError)):
                continue
            raise UsageError(
                f"{folder} cannot be written to: {error.strerror}.", hint="Name another place."
            ) from error
        return folder


def _make_private(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise UsageError(
            f"{folder} is no folder of this user.", hint="Remove it, or name another place."
        )
    if stat.S_IMODE(status.st_mode) != 0o700:
        folder.chmod(0o700)
    with tempfile.TemporaryFile(dir=folder):
        pass  # it can be written to


@contextlib.contextmanager
def scratch_folder(other: Path) -> Generator[Path]:
    """A folder for links and small files, removed afterwards: where temporary files lie, or in
    `other` where they have no place, as in a container whose root is read-only."""
    try:
        place = Path(tempfile.gettempdir())
    except FileNotFoundError:
        place = other
    with tempfile.TemporaryDirectory(prefix="gguf-worker-", dir=place) as folder:
        yield Path(folder)


@contextlib.contextmanager
def working_folder(parent: Path, prefix: str) -> Generator[Path]:
    """A folder in `parent` for large files, removed afterwards. Those that killed processes left
    there are removed before, if the file system has locks."""
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as folder:
        own = Path(folder) / _LOCK
        with own.open("wb") as held:
            lock(held)
            with own.open("rb") as other:
                has_locks = not lock(other)
            if has_locks:
                for left in parent.glob(f"{prefix}*/{_LOCK}"):
                    with contextlib.suppress(OSError), left.open("rb") as file:
                        if lock(file):
                            shutil.rmtree(left.parent, ignore_errors=True)
            yield Path(folder)


@contextlib.contextmanager
def atomic_write(target: Path, *, durable: bool = False) -> Generator[Path]:
    """Write a file so that a reader finds all of it under its name, or nothing.

        with written_whole(folder / "report.json") as partial:
            partial.write_text(text)

    The block writes to `partial`, a name in the target's folder that nobody else uses. When the
    block ends well, the file takes the target's name in one step and replaces a file of that
    name. When the block raises, `partial` is removed and the target stays as it was.

    The new file has the mode that the block gives it; `open` gives the process's usual one. The
    folder must exist. A device or pipe of that name is a FileExistsError before the block begins.

    durable: wait until the bytes and the name are on the disk, so that the file also survives a
    power cut. It is for what takes long to make again; it costs some milliseconds.
    """
    if is_device(target):
        raise FileExistsError(errno.EEXIST, "It is a device or a pipe", str(target))
    suffix = f".{secrets.token_hex(4)}.partial"
    room = _MAX_NAME_BYTES - len(suffix) - 1
    partial = target.with_name(f".{os.fsdecode(os.fsencode(target.name)[:room])}{suffix}")
    try:
        yield partial
        take_name(partial, target, durable=durable)
    finally:
        partial.unlink(missing_ok=True)


def take_name(partial: Path, target: Path, *, durable: bool) -> None:
    """Give a whole file its name, which another one may have. durable: as above

    On a file system that does not rename over a file, that one is removed first. Raises OSError.
    """
    if durable:
        _sync(partial)
    try:
        partial.replace(target)
    except OSError as error:
        if error.errno not in _UNKNOWN | {errno.EEXIST, errno.EPERM} or not target.is_file():
            raise
        target.unlink()
        partial.rename(target)
    if durable:
        _sync(target.parent)


def lock(file: IO[Any]) -> bool:
    """Whether nobody else has locked this file. A file system without locks lets all have it.

    Raises OSError.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
    return True


def _sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk, if the file system can."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise

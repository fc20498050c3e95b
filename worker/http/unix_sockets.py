"""A listening socket that is a file: `--host unix:PATH`."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Generator
from pathlib import Path

from worker.errors import BindError, UsageError
from worker.values import UNIX

_BACKLOG = 1024
_ANSWER_S = 1.0
_TURNS, _TURN_S = 20, 0.05


class UnixSocket(socket.socket):
    """Listens, and removes its file once it is closed for good."""

    def __init__(self, path: str) -> None:
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM)
        self._path = path
        self._file: tuple[int, int] | None = None

    def listen_at(self, mode: int) -> None:
        """Make the file, with this mode before anybody can connect. Raises OSError."""
        self.bind(self._path)
        found = Path(self._path).lstat()
        self._file = found.st_dev, found.st_ino
        Path(self._path).chmod(mode)
        self.listen(_BACKLOG)

    def remove(self) -> None:
        """Close, and remove the file unless another process has put its own there."""
        with contextlib.suppress(OSError):
            found = Path(self._path).lstat()
            if (found.st_dev, found.st_ino) == self._file:
                Path(self._path).unlink()
        self.close()


def bind_unix(path: str, mode: int) -> UnixSocket:
    """A listening socket at this path. One that a process left behind is replaced; one on which a
    process listens, and a file that is no socket, are not. Raises BindError, UsageError."""
    sock = UnixSocket(path)
    try:
        with _turn(Path(path).parent):
            _clear(path)
            sock.listen_at(mode)
    except OSError as error:
        sock.remove()
        # What Python checks itself, such as the length of a path, has no number.
        why = os.strerror(error.errno) if error.errno else str(error)
        hint = f"Choose another --host {UNIX}PATH, in a folder that you may write to."
        if error.errno == errno.EADDRINUSE:
            hint = "Choose another path, or stop the process that listens there."
        raise BindError(f"Cannot listen on {UNIX}{path}: {why}.", hint=hint) from None
    except BaseException:
        sock.close()
        raise
    sock.set_inheritable(False)
    return sock


def _clear(path: str) -> None:
    """Remove a socket that nobody listens on. Raises OSError, UsageError."""
    try:
        found = Path(path).lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise UsageError(
            f"--host {UNIX}{path} names a file that is no socket.",
            hint="Choose another path; the worker never removes such a file.",
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        asked.settimeout(_ANSWER_S)
        try:
            asked.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
            return
        except TimeoutError:  # its queue is full: somebody is there
            pass
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


@contextlib.contextmanager
def _turn(folder: Path) -> Generator[None]:
    """Of two workers that start at the same moment, neither takes the other's socket for one that
    was left behind. Whoever holds the folder for longer is not waited for. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for _ in range(_TURNS):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(_TURN_S)
        yield
    finally:
        os.close(handle)

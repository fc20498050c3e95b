"""Whose turn it is to have a port on this machine, of several gateways that could.

The turn is a lock on a file, which ends with the process that has it, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

from gguf_fleet.errors import BindError


class Turn:
    """One process's part in it."""

    def __init__(self, host: str, port: int) -> None:
        name = f"worker-fleet-{os.getuid()}-{host}-{port}.lock"
        self._path = Path(tempfile.gettempdir()) / name
        self._file: int | None = None

    def take(self) -> bool:
        """Whether it is this one's from now on. Raises BindError where nobody could have it."""
        if self._file is not None:
            return True
        try:
            file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BindError(f"{self._path} cannot be opened: {error.strerror}.") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return False
        self._file = file
        return True

    def leave(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

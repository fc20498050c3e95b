"""The one SQLite file of `--state-dir`, and the one thread that may use it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from worker import log
from worker.database.schema import SCHEMA, VERSION
from worker.errors import StorageFullError, UnavailableError, UsageError
from worker.files import private_folder

NAME = "state.db"
FILES = "files"  # the folder of uploaded files
# Bytes of a file that is checked whole at the start; a larger one is checked without its indexes,
# which takes a tenth of the time.
_CHECKED_WHOLE = 256 << 20
# Where SQLite writes its user_version: the number of a schema.
_VERSION_AT = 60
_CACHE_KIB = 8_192
# What SQLite says of a disk that takes nothing more: some file systems fail without a reason.
_FULL = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC})
_log = log.get("database")

T = TypeVar("T")


class Database:
    """One for a process, which alone holds the folder. A transaction for each piece of work.

    folder  with state.db, and with files/ for what was uploaded
    """

    def __init__(self, folder: str) -> None:
        """Take the folder, and begin to open the file. Raises UsageError where another worker has
        the folder, or a newer one wrote it."""
        try:
            self.folder = private_folder(Path(folder).absolute())
            private_folder(self.folder / FILES)
            self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            reason = f"--state-dir {folder} cannot be used: {error.strerror}."
            raise UsageError(reason, hint="Name another folder.") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise UsageError(
                f"Another worker uses --state-dir {folder}.",
                hint="Give each worker a folder of its own.",
            ) from None
        if (version := _version_in(self.folder / NAME)) > VERSION:
            os.close(self._lock)
            raise UsageError(
                f"A newer worker wrote --state-dir {folder}: it has format {version}, this one "
                f"reads formats up to {VERSION}.",
                hint="Update this worker, or name another folder.",
            )
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="database")
        self._connection: sqlite3.Connection | None = None
        self._failure = ""
        self._threads.submit(self._open)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, in one transaction that is on the disk then, or not at all.

        Raises what it raises; StorageFullError where the disk is full; UnavailableError where the
        file cannot be used, or the process leaves.
        """
        try:
            job = self._threads.submit(self._do, work)
        except RuntimeError:
            raise UnavailableError("The worker stopped.", code="draining") from None
        return await asyncio.wrap_future(job)

    def begin(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """The same, for a caller that is not in the event loop."""
        return self._threads.submit(self._do, work)

    def close(self) -> None:
        """Once what was begun is done; blocks. Safe to call again."""
        with contextlib.suppress(RuntimeError):
            self._threads.submit(self._close)
        self._threads.shutdown(wait=True)

    def _open(self) -> None:
        began = time.monotonic()
        try:
            self._connection = self._open_file()
        except (sqlite3.Error, OSError) as error:
            self._failure = f"The file of --state-dir cannot be opened: {error}."
            _log.error("the state cannot be read", reason=self._failure)
            return
        _log.debug("the state is open", seconds=round(time.monotonic() - began, 3))

    def _open_file(self) -> sqlite3.Connection:
        """The file's connection. A damaged one is put aside, and a new one made."""
        connection = _connect(self.folder / NAME)
        try:
            _set_up(connection)
            if (reason := _damage_in(connection, self.folder / NAME)) is None:
                _migrate(connection)
                return connection
        except sqlite3.Error as error:
            if not _is_damage(error):
                connection.close()
                raise
            reason = str(error)
        connection.close()
        place = self._put_aside()
        _log.warning(
            "the state is damaged",
            console=f"The file of --state-dir is damaged ({reason}). It is kept as {place}; "
            "batches, files and usage begin anew.",
            reason=reason,
            kept=str(place),
        )
        connection = _connect(self.folder / NAME)
        _set_up(connection)
        _migrate(connection)
        return connection

    def _put_aside(self) -> Path:
        """Move all that belongs to a damaged file to where nobody looks for it."""
        place = self.folder / time.strftime("damaged-%Y%m%d-%H%M%S")
        number = 0
        while place.exists():
            number += 1
            place = place.with_suffix(f".{number}")
        place.mkdir(mode=0o700)
        for name in (NAME, f"{NAME}-wal", f"{NAME}-shm", FILES):
            with contextlib.suppress(FileNotFoundError):
                shutil.move(self.folder / name, place / name)
        private_folder(self.folder / FILES)
        return place

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection
        if connection is None:
            raise UnavailableError(self._failure, hint="The log of its start tells more.")
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                found = work(connection)
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # a full disk has ended it already
                    connection.execute("ROLLBACK")
                raise
            try:
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            return found
        except sqlite3.Error as error:
            if _is_full(error):
                raise full_disk() from error
            raise UnavailableError(
                f"The file of --state-dir failed: {error}.", hint="Start the worker again."
            ) from error

    def _close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
            self._failure = "The worker stopped."
        with contextlib.suppress(OSError):
            os.close(self._lock)


def full_disk() -> StorageFullError:
    """The disk of the state has no room."""
    return StorageFullError(
        "The disk of --state-dir is full.", hint="Free some room: batches go on by themselves."
    )


def _connect(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=True)
    file.chmod(0o600)
    return connection


def _set_up(connection: sqlite3.Connection) -> None:
    for pragma in (
        "auto_vacuum = INCREMENTAL",
        "journal_mode = WAL",
        "synchronous = FULL",
        f"cache_size = -{_CACHE_KIB}",
        "temp_store = MEMORY",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()


def _damage_in(connection: sqlite3.Connection, file: Path) -> str | None:
    """What is wrong with the file; None: nothing."""
    whole = file.stat().st_size <= _CHECKED_WHOLE
    found = connection.execute(f"PRAGMA {'integrity_check' if whole else 'quick_check'}(1)")
    told = str(found.fetchone()[0])
    return None if told == "ok" else told


def _migrate(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number, script in enumerate(SCHEMA, start=1):
        if number > version:
            connection.executescript(f"BEGIN;{script};PRAGMA user_version = {number};COMMIT;")


def _version_in(file: Path) -> int:
    """The number of its schema; 0 where it has none."""
    try:
        with file.open("rb") as data:
            head = data.read(_VERSION_AT + 4)
    except OSError:
        return 0
    return int.from_bytes(head[_VERSION_AT:], "big") if head.startswith(b"SQLite format 3") else 0


def _is_full(error: sqlite3.Error) -> bool:
    return _code_of(error) in _FULL


def _is_damage(error: sqlite3.Error) -> bool:
    return _code_of(error) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _code_of(error: sqlite3.Error) -> int:
    code: Any = getattr(error, "sqlite_errorcode", None)
    return code if isinstance(code, int) else 0

"""Files that clients uploaded, and those that batches make of their answers."""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from worker.database.database import FILES, Database
from worker.files import entries, open_regular

# Rows that are read at once of a batch's answers.
_ROWS = 64
_PIECE = 1 << 20
_NEWEST = """
select * from files where owner = :owner and (expires_at is null or expires_at > :now)
and (:purpose is null or purpose = :purpose)

and (:after is null or rowid < (select rowid from files where id = :after))
order by rowid desc limit :limit
"""
_OLDEST = """
select * from files where owner = :owner and (expires_at is null or expires_at > :now)
and (:purpose is null or purpose = :purpose)

and (:after is null or rowid > (select rowid from files where id = :after))
order by rowid limit :limit
"""
# A batch reads its input to the end, however long it waits.
_EXPIRED = """
select * from files where expires_at <= ? and id not in (
select json_extract(cast(record as text), '$.input_file_id') from batches where not is_over)
"""


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file's row. Times are seconds since 1970.

    owner       whose key made it
    batch       whose answers it has; None: it was uploaded, and its bytes are in the folder
    has_errors  of the batch's answers those that are errors
    """

    id: str
    owner: str
    purpose: str
    name: str
    bytes: int
    created_at: int
    expires_at: int | None = None
    batch: str | None = None
    has_errors: bool = False


def new_id(kind: str) -> str:
    """Of a file or a batch; kind: what it begins with"""
    return f"{kind}{secrets.token_hex(12)}"


class StoredFiles:
    """All of them, over the database. An expired one is gone."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.folder = database.folder / FILES

    def place_of(self, file_id: str) -> Path:
        """Of an uploaded one. file_id: of a row, never a client's text"""
        return self.folder / file_id

    def open(self, file_id: str) -> BinaryIO:
        """To read an uploaded one. Raises OSError."""
        return open_regular(self.place_of(file_id))

    async def add(self, file: StoredFile) -> None:
        """Its bytes are there already."""
        await self.database.run(lambda connection: insert_file(connection, file))

    async def get(self, owner: str, file_id: str) -> StoredFile | None:
        """The owner's file of that id."""
        return await self.database.run(lambda connection: file_of(connection, owner, file_id))

    async def list(
        self, owner: str, *, purpose: str | None, after: str | None, limit: int, newest: bool
    ) -> list[StoredFile]:
        """At most `limit` of the owner's, behind that one, in the order of their making.

        newest: the newest first
        """
        values = {"owner": owner, "now": _now(), "purpose": purpose, "after": after, "limit": limit}

        def read(connection: sqlite3.Connection) -> list[StoredFile]:
            return list(map(_file, connection.execute(_NEWEST if newest else _OLDEST, values)))

        return await self.database.run(read)

    async def count(self, owner: str) -> int:
        """How many the owner uploaded."""

        def read(connection: sqlite3.Connection) -> int:
            rows = connection.execute(
                "select count(*) from files where owner = ? and batch is null", (owner,)
            )
            return rows.fetchone()[0]

        return await self.database.run(read)

    async def delete(self, file: StoredFile) -> None:
        await self.database.run(lambda connection: self._delete(connection, file))

    async def holds(self, file: StoredFile) -> bool:
        """Whether its bytes are where they were uploaded to; those of answers always are."""
        place = self.place_of(file.id)
        return file.batch is not None or await self.database.run(lambda _: place.is_file())

    async def content(self, file: StoredFile) -> AsyncIterator[bytes]:
        """Its bytes, in pieces."""
        at = 0
        while True:
            read = partial(_read, self.place_of(file.id), file, at)
            at, data = await self.database.run(read)
            if not data:
                return
            yield data

    async def sweep(self) -> int:
        """Remove what has expired, and what an upload left that did not end; how many files."""

        def remove(connection: sqlite3.Connection) -> int:
            rows = connection.execute(_EXPIRED, (_now(),))
            old = [_file(row) for row in rows.fetchall()]
            for file in old:
                self._delete(connection, file)
            rows = connection.execute("select id from files where batch is null")
            known = {row[0] for row in rows}
            hour_ago = time.time() - 3600  # younger ones may still be on their way
            for place in entries(self.folder):
                with contextlib.suppress(OSError):  # a folder is not ours
                    if place.name not in known and place.stat().st_mtime < hour_ago:
                        Path(place).unlink()
            return len(old)

        count = await self.database.run(remove)
        if count:
            await self.database.run(shrink)
        return count

    def _delete(self, connection: sqlite3.Connection, file: StoredFile) -> None:
        connection.execute("delete from files where id = ?", (file.id,))
        if file.batch is None:
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                self.place_of(file.id).unlink()
        else:
            connection.execute(
                "delete from answers where batch = ? and is_error = ?",
                (file.batch, file.has_errors),
            )


def shrink(connection: sqlite3.Connection) -> None:
    """Give back what rows held that are gone."""
    connection.execute("PRAGMA incremental_vacuum").fetchall()


def insert_file(connection: sqlite3.Connection, file: StoredFile) -> None:
    values = msgspec.structs.astuple(file)
    connection.execute("insert into files values (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)


def file_of(connection: sqlite3.Connection, owner: str, file_id: str) -> StoredFile | None:
    """The owner's file of that id, if it has not expired."""
    row = connection.execute(
        "select * from files where id = ? and owner = ?", (file_id, owner)
    ).fetchone()
    file = None if row is None else _file(row)
    is_old = file is not None and file.expires_at is not None and file.expires_at <= _now()
    return None if is_old else file


def _file(row: tuple[Any, ...]) -> StoredFile:
    return StoredFile(**dict(zip(StoredFile.__struct_fields__, row, strict=True)))


def _read(
    place: Path, file: StoredFile, at: int, connection: sqlite3.Connection
) -> tuple[int, bytes]:
    """What stands behind that byte or, of a batch, behind that line; and where it ends."""
    if file.batch is None:
        try:
            with open_regular(place) as data:
                data.seek(at)
                piece = data.read(_PIECE)
        except FileNotFoundError:  # it was deleted meanwhile
            piece = b""
        return at + len(piece), piece
    rows = connection.execute(
        "select number, line from answers where batch = ? and is_error = ? and number > ?"
        " order by number limit ?",
        (file.batch, file.has_errors, at, _ROWS),
    ).fetchall()
    return (rows[-1][0] if rows else at), b"".join(line for _, line in rows)


def _now() -> int:
    return int(time.time())

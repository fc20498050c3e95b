"""Files that clients uploaded, and those that batches make of their answers."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from worker.database.database import FILES, Database

# Rows that are read at once of a batch's answers.
_ROWS = 64
_PIECE = 1 << 20
_FIELDS = "id, owner, purpose, name, bytes, created_at, expires_at, batch, has_errors"


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
        order, sign = ("DESC", "<") if newest else ("ASC", ">")

        def read(connection: sqlite3.Connection) -> list[StoredFile]:
            where, values = "owner = ? AND (expires_at IS NULL OR expires_at > ?)", [owner, _now()]
            if purpose is not None:
                where, values = f"{where} AND purpose = ?", [*values, purpose]
            if after is not None:
                where += f" AND (created_at, id) {sign} (SELECT created_at, id FROM files"
                where, values = f"{where} WHERE id = ? AND owner = ?)", [*values, after, owner]
            rows = connection.execute(
                f"SELECT {_FIELDS} FROM files WHERE {where}"
                f" ORDER BY created_at {order}, id {order} LIMIT ?",
                [*values, limit],
            )
            return [_file(row) for row in rows]

        return await self.database.run(read)

    async def count(self, owner: str) -> int:
        """How many the owner uploaded."""

        def read(connection: sqlite3.Connection) -> int:
            rows = connection.execute(
                "SELECT COUNT(*) FROM files WHERE owner = ? AND batch IS NULL", (owner,)
            )
            return rows.fetchone()[0]

        return await self.database.run(read)

    async def delete(self, file: StoredFile) -> None:
        await self.database.run(lambda connection: self._delete(connection, file))

    async def content(self, file: StoredFile) -> AsyncIterator[bytes]:
        """Its bytes, in pieces."""
        if file.batch is None:
            place, at = self.place_of(file.id), 0
            while piece := await self.database.run(lambda _: _read(place, at)):
                at += len(piece)
                yield piece
            return
        last = 0
        while rows := await self.database.run(lambda connection: _answers(connection, file, last)):
            last = rows[-1][0]
            yield b"".join(line + b"\n" for _, line in rows)

    async def sweep(self) -> int:
        """Remove what has expired, and what an upload left that did not end; how many files."""

        def remove(connection: sqlite3.Connection) -> int:
            rows = connection.execute(f"SELECT {_FIELDS} FROM files WHERE expires_at <= ?", (_now(),))
            old = [_file(row) for row in rows.fetchall()]
            for file in old:
                self._delete(connection, file)
            known = {row[0] for row in connection.execute("SELECT id FROM files WHERE batch IS NULL")}
            hour_ago = time.time() - 3600  # younger ones may still be on their way
            for entry in os.scandir(self.folder):
                with contextlib.suppress(FileNotFoundError):
                    if entry.name not in known and entry.stat().st_mtime < hour_ago:
                        os.unlink(entry.path)
            return len(old)

        count = await self.database.run(remove)
        if count:
            await self.database.run(shrink)
        return count

    def _delete(self, connection: sqlite3.Connection, file: StoredFile) -> None:
        connection.execute("DELETE FROM files WHERE id = ?", (file.id,))
        if file.batch is None:
            with contextlib.suppress(FileNotFoundError):
                self.place_of(file.id).unlink()
        else:
            connection.execute(
                "DELETE FROM answers WHERE batch = ? AND is_error = ?", (file.batch, file.has_errors)
            )


def shrink(connection: sqlite3.Connection) -> None:
    """Give back what rows held that are gone."""
    connection.execute("PRAGMA incremental_vacuum").fetchall()


def insert_file(connection: sqlite3.Connection, file: StoredFile) -> None:
    values = msgspec.structs.astuple(file)
    connection.execute(f"INSERT INTO files ({_FIELDS}) VALUES ({', '.join('?' * 9)})", values)


def file_of(connection: sqlite3.Connection, owner: str, file_id: str) -> StoredFile | None:
    """The owner's file of that id, if it has not expired."""
    row = connection.execute(
        f"SELECT {_FIELDS} FROM files WHERE id = ? AND owner = ?", (file_id, owner)
    ).fetchone()
    file = None if row is None else _file(row)
    is_old = file is not None and file.expires_at is not None and file.expires_at <= _now()
    return None if is_old else file


def _file(row: tuple[Any, ...]) -> StoredFile:
    return msgspec.convert(dict(zip(_FIELDS.split(", "), row, strict=True)), StoredFile, strict=False)


def _answers(
    connection: sqlite3.Connection, file: StoredFile, last: int
) -> list[tuple[int, bytes]]:
    rows = connection.execute(
        "SELECT number, line FROM answers WHERE batch = ? AND is_error = ? AND number > ?"
        " ORDER BY number LIMIT ?",
        (file.batch, file.has_errors, last, _ROWS),
    )
    return rows.fetchall()


def _read(place: Path, at: int) -> bytes:
    try:
        with place.open("rb") as data:
            data.seek(at)
            return data.read(_PIECE)
    except FileNotFoundError:  # it was deleted meanwhile
        return b""


def _now() -> int:
    return int(time.time())

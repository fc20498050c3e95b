"""Responses that go on without their client, so that they also do after a restart."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from worker.database.database import Database


class SavedResponse(NamedTuple):
    """A response's row.

    name     of its id
    owner    whose it is
    account  name of the key it was asked for with
    body     the request's, with all items that it refers to
    items    JSON of its own input
    before   the response that it goes on from
    begun    JSON of it as it was at first
    reply    JSON, once it has ended; None: it has not
    """

    name: str
    owner: str
    account: str
    created_at: int
    body: bytes
    items: bytes
    before: str | None
    begun: bytes
    reply: bytes | None = None


class SavedPart(NamedTuple):
    """Events of a response from `number` on, and JSON of the tokens that they hold."""

    number: int
    events: bytes
    tokens: bytes


class SavedResponses:
    """All of them, over the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, response: SavedResponse) -> None:
        def insert(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR IGNORE INTO responses VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", response
            )

        await self._database.run(insert)

    async def add_part(self, name: str, part: SavedPart) -> None:
        """Nothing happens where it was deleted, or has ended."""

        def insert(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR REPLACE INTO response_parts SELECT name, ?, ?, ? FROM responses"
                " WHERE name = ? AND reply IS NULL",
                (*part, name),
            )

        await self._database.run(insert)

    async def end(self, name: str, reply: bytes) -> None:
        """It has ended: its events are not needed any more."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE responses SET reply = ? WHERE name = ?", (reply, name))
            connection.execute("DELETE FROM response_parts WHERE name = ?", (name,))

        await self._database.run(write)

    async def drop(self, name: str) -> None:
        def delete(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM responses WHERE name = ?", (name,))
            connection.execute("DELETE FROM response_parts WHERE name = ?", (name,))

        await self._database.run(delete)

    async def recent(self, most: int, before: int) -> list[SavedResponse]:
        """The newest, the oldest of these first; others, and those asked for before that time,
        are deleted."""

        def read(connection: sqlite3.Connection) -> list[SavedResponse]:
            connection.execute(
                "DELETE FROM responses WHERE created_at < ? OR rowid NOT IN"
                " (SELECT rowid FROM responses ORDER BY rowid DESC LIMIT ?)",
                (before, most),
            )
            connection.execute(
                "DELETE FROM response_parts WHERE name NOT IN (SELECT name FROM responses)"
            )
            rows = connection.execute("SELECT * FROM responses ORDER BY rowid")
            return [SavedResponse(*row) for row in rows]

        return await self._database.run(read)

    async def parts(self, name: str) -> list[SavedPart]:
        """In their order."""

        def read(connection: sqlite3.Connection) -> list[SavedPart]:
            rows = connection.execute(
                "SELECT number, events, tokens FROM response_parts WHERE name = ? ORDER BY number",
                (name,),
            )
            return [SavedPart(*row) for row in rows]

        return await self._database.run(read)

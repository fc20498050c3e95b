"""What requests of each key used, over all starts of a worker."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

import msgspec

from worker.database.database import Database

Counts = dict[str, int]


class StoredUsage:
    """Name of a key -> sums by their names."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self) -> dict[str, Counts]:
        """All. Raises as the database."""

        def read(connection: sqlite3.Connection) -> dict[str, Counts]:
            rows = connection.execute("SELECT name, counts FROM usage").fetchall()
            return {name: msgspec.json.decode(counts, type=Counts) for name, counts in rows}

        return await self._database.run(read)

    async def write(self, usage: Mapping[str, Counts]) -> None:
        """The sums of these names from now on. Raises as the database."""
        rows = [(name, msgspec.json.encode(counts)) for name, counts in usage.items()]

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT OR REPLACE INTO usage VALUES (?, ?)", rows)

        await self._database.run(write)

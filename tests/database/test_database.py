"""The file of --state-dir: who may use it, what is wrong with it, and when its disk is full."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from worker.database.database import NAME, Database
from worker.database.schema import VERSION
from worker.errors import StorageFullError, UnavailableError, UsageError


def run(folder: Path, *works: Callable[[Database], Awaitable[object]]) -> list[object]:
    """What comes of these, one after the other, of a database that is closed then."""

    async def run_all() -> list[object]:
        database = Database(str(folder))
        try:
            return [await work(database) for work in works]
        finally:
            await asyncio.to_thread(database.close)

    return asyncio.run(run_all())


async def write(database: Database) -> None:
    """One row."""
    await database.run(
        lambda connection: connection.execute(
            "INSERT INTO files VALUES ('f', 'o', 'batch', 'n', 1, 1, NULL, NULL, 0)"
        )
    )


async def count(database: Database) -> int:
    """Its rows."""
    return await database.run(
        lambda connection: connection.execute("SELECT COUNT(*) FROM files").fetchone()[0]
    )


def test_it_stays(tmp_path: Path) -> None:
    """What was written is there for the next process, which alone may read the folder."""
    assert run(tmp_path, write, count) == [None, 1]
    assert run(tmp_path, count) == [1]
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_one_worker_has_the_folder(tmp_path: Path) -> None:
    """A second one is told so, until the first one leaves."""

    async def open_again(_: Database) -> None:
        with pytest.raises(UsageError, match="Another worker uses --state-dir"):
            Database(str(tmp_path))

    run(tmp_path, open_again)
    run(tmp_path, write)


@pytest.mark.parametrize("damage", ["no database", "a page is overwritten"])
def test_a_damaged_file_is_put_aside(tmp_path: Path, damage: str) -> None:
    """It is kept with what belongs to it, and a new one is made."""
    run(tmp_path, write)
    file, data = tmp_path / NAME, (tmp_path / NAME).read_bytes()
    broken = b"x" * 4096 if damage == "no database" else data[:4096] + b"\xff" * (len(data) - 4096)
    file.write_bytes(broken)
    (tmp_path / "files" / "file-1").write_text("uploaded")
    assert run(tmp_path, count, write, count) == [0, None, 1]
    (kept,) = tmp_path.glob("damaged-*")
    assert (kept / NAME).read_bytes()[4096:] == broken[4096:]
    assert (kept / "files" / "file-1").read_text() == "uploaded"


def test_of_a_newer_worker(tmp_path: Path) -> None:
    """A file in a format that is not known is left alone."""
    run(tmp_path, write)
    with sqlite3.connect(tmp_path / NAME) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    before = (tmp_path / NAME).read_bytes()
    with pytest.raises(UsageError, match=f"format {VERSION + 1}"):
        Database(str(tmp_path))
    assert (tmp_path / NAME).read_bytes() == before


def test_a_full_disk(tmp_path: Path) -> None:
    """Nothing of a piece of work is written, its caller is told, and later work goes on."""

    async def fill(database: Database) -> None:
        await database.run(_hold_size)

        def write_much(connection: sqlite3.Connection) -> None:
            values = [(f"f{n}", "o", "batch", "n" * 4000, 1, 1, None, None, 0) for n in range(40)]
            mark = ", ".join("?" * 9)
            connection.executemany(f"INSERT INTO files VALUES ({mark})", values)

        with pytest.raises(StorageFullError, match=r"full\. Free some room"):
            await database.run(write_much)
        assert await count(database) == 0
        await database.run(
            lambda connection: connection.execute("PRAGMA max_page_count = 100000").fetchone()
        )
        await database.run(write_much)

    assert run(tmp_path, fill, count) == [None, 40]


def _hold_size(connection: sqlite3.Connection) -> None:
    """The file may have two pages more."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}").fetchone()


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    """A file that is a folder stops no start: who asks is told why."""
    (tmp_path / NAME).mkdir(parents=True)

    async def ask(database: Database) -> None:
        with pytest.raises(UnavailableError, match="cannot be opened"):
            await count(database)

    run(tmp_path, ask)


def test_after_the_end(tmp_path: Path) -> None:
    """A closed database takes no work, and closing it again does nothing."""

    async def close(database: Database) -> None:
        await asyncio.to_thread(database.close)
        await asyncio.to_thread(database.close)
        with pytest.raises(UnavailableError, match="stopped"):
            await count(database)

    run(tmp_path, close)

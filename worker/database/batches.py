"""Batches: what was asked of each line, and what was answered."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from worker.batches.line import LineProblem, with_failure, write_line
from worker.database.database import Database
from worker.database.files import StoredFile, file_of, insert_file, new_id, shrink
from worker.files import open_regular

# Lines of a file that are read ahead, and their bytes: one more may stand behind these.
_LINES, _BYTES = 64, 4 << 20
# Of deleted batches: lines that are deleted in one transaction.
_DELETED = 5_000


class BatchRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is known of a batch. Times are seconds since 1970; None: it has not come to that.

    output_seconds  for which its files are kept
    errors          why it could not begin
    """

    id: str
    owner: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: str
    created_at: int
    expires_at: int
    output_seconds: int
    metadata: dict[str, str] | None = None
    errors: list[LineProblem] = []
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0

    @property
    def is_over(self) -> bool:
        return self.status in OVER


OVER = frozenset({"completed", "failed", "expired", "cancelled"})


class LinePlace(NamedTuple):
    """Where a line of the input is.

    number   counted from 1, as the file has them
    place    its turn, counted from 1
    """

    number: int
    place: int
    custom_id: str
    start: int
    length: int


class AskedLine(NamedTuple):
    """A line that has no answer yet, with its bytes."""

    number: int
    place: int
    custom_id: str
    data: bytes


class StoredAnswer(NamedTuple):
    """A line of the output or, if it is an error, of the errors."""

    batch: str
    number: int
    is_error: bool
    line: bytes


class StoredBatches:
    """All of them, over the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, record: BatchRecord) -> None:
        def insert(connection: sqlite3.Connection) -> None:
            connection.execute(
                "insert into batches values (?, ?, ?, ?, ?)",
                (record.id, record.owner, record.created_at, False, msgspec.json.encode(record)),
            )

        await self._database.run(insert)

    async def get(self, owner: str, batch_id: str) -> BatchRecord | None:
        def read(connection: sqlite3.Connection) -> BatchRecord | None:
            record = _record(connection, batch_id)
            return record if record is not None and record.owner == owner else None

        return await self._database.run(read)

    async def list(self, owner: str, *, after: str | None, limit: int) -> list[BatchRecord]:
        """At most `limit` of the owner's, the newest first, behind that one."""

        def read(connection: sqlite3.Connection) -> list[BatchRecord]:
            rows = connection.execute(
                "select record from batches where owner = :owner and (:after is null or"
                " rowid < (select rowid from batches where id = :after))"
                " order by rowid desc limit :limit",
                {"owner": owner, "after": after, "limit": limit},
            )
            return [_decode(row[0]) for row in rows]

        return await self._database.run(read)

    async def open_batches(self) -> list[BatchRecord]:
        """Those that are not over, the oldest first."""

        def read(connection: sqlite3.Connection) -> list[BatchRecord]:
            rows = connection.execute("select record from batches where not is_over order by rowid")
            return [_decode(row[0]) for row in rows]

        return await self._database.run(read)

    async def uses(self, file_id: str) -> str | None:
        """The id of a batch that still reads this file."""

        def read(connection: sqlite3.Connection) -> str | None:
            rows = connection.execute("select record from batches where not is_over")
            users = (_decode(row[0]) for row in rows)
            return next((each.id for each in users if each.input_file_id == file_id), None)

        return await self._database.run(read)

    async def change(
        self, batch_id: str, change: Callable[[BatchRecord], object]
    ) -> BatchRecord | None:
        """The record, once `change` has written to it; None: it is gone."""

        def write(connection: sqlite3.Connection) -> BatchRecord | None:
            record = _record(connection, batch_id)
            if record is not None:
                change(record)
                _save(connection, record)
            return record

        return await self._database.run(write)

    async def add_lines(self, batch_id: str, lines: Iterable[LinePlace]) -> None:
        """Of its input; those that a start before this one has noted are replaced."""

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "insert or replace into lines (batch, number, place, custom_id, start, length)"
                " values (?, ?, ?, ?, ?, ?)",
                ((batch_id, *line) for line in lines),
            )

        await self._database.run(write)

    async def next_lines(self, batch_id: str, after: int, file: Path) -> list[AskedLine]:
        """The next lines behind that place which have no answer; none: these were all."""

        def read(connection: sqlite3.Connection) -> list[AskedLine]:
            rows = connection.execute(
                "select number, place, custom_id, start, length from lines where batch = ?"
                " and place > ? and not exists (select 1 from answers"
                " where answers.batch = lines.batch and answers.number = lines.number)"
                " order by place limit ?",
                (batch_id, after, _LINES),
            )
            found: list[AskedLine] = []
            room = _BYTES
            with open_regular(file) as data:
                for number, place, custom_id, start, length in rows:
                    if room < 0:
                        break
                    data.seek(start)
                    found.append(AskedLine(number, place, custom_id, data.read(length)))
                    room -= length
            return found

        return await self._database.run(read)

    async def answer(self, answers: list[StoredAnswer]) -> None:
        """These are there from now on, all or none; one that was there stays as it was."""

        def write(connection: sqlite3.Connection) -> None:
            counts: dict[str, list[int]] = {}
            for batch, number, is_error, line in answers:
                row = connection.execute(
                    "insert or ignore into answers values (?, ?, ?, ?)",
                    (batch, number, is_error, line),
                )
                counts.setdefault(batch, [0, 0])[is_error] += row.rowcount
            for batch, (completed, failed) in counts.items():
                record = _record(connection, batch)
                if record is not None:
                    record.completed += completed
                    record.failed += failed
                    _save(connection, record)

        await self._database.run(write)

    async def end(self, batch_id: str, status: str, code: str = "", message: str = "") -> None:
        """Its answers become files, and it is over.

        code, message: of an error for each line that has no answer, and of a failed batch; none:
        they are left out
        """

        def write(connection: sqlite3.Connection) -> None:
            record = _record(connection, batch_id)
            if record is None or record.is_over:
                return
            if code:
                record.failed += _fail_rest(connection, batch_id, code, message)
            now = int(time.time())
            for has_errors in (False, True):
                count, size = connection.execute(
                    "select count(*), coalesce(sum(length(line)), 0) from answers"
                    " where batch = ? and is_error = ?",
                    (batch_id, has_errors),
                ).fetchone()
                if not count:
                    continue
                kind = "error" if has_errors else "output"
                file = StoredFile(
                    id=new_id("file-"),
                    owner=record.owner,
                    purpose="batch_output",
                    name=f"{batch_id}_{kind}.jsonl",
                    bytes=size,
                    created_at=now,
                    expires_at=now + record.output_seconds,
                    batch=batch_id,
                    has_errors=has_errors,
                )
                insert_file(connection, file)
                setattr(record, f"{kind}_file_id", file.id)
            record.status = status
            if status == "failed":
                record.errors = [LineProblem(code, message, 0)]
            record.finalizing_at = record.finalizing_at or now
            setattr(record, f"{status}_at", now)
            _save(connection, record)
            connection.execute("delete from lines where batch = ?", (batch_id,))

        await self._database.run(write)

    async def fail(self, batch_id: str, errors: list[LineProblem]) -> None:
        """It cannot begin."""

        def fail(record: BatchRecord) -> None:
            record.status, record.errors = "failed", errors
            record.failed_at = int(time.time())

        await self.change(batch_id, fail)
        await self._database.run(
            lambda connection: connection.execute("delete from lines where batch = ?", (batch_id,))
        )

    async def sweep(self, before: int) -> None:
        """Forget batches that were over before that time, with their answers."""

        def remove(connection: sqlite3.Connection) -> bool:
            row = connection.execute(
                "select id from batches where is_over and created_at < :before and coalesce("
                "json_extract(cast(record as text), '$.finalizing_at'),"
                " json_extract(cast(record as text), '$.failed_at')) < :before limit 1",
                {"before": before},
            ).fetchone()
            if row is None:
                return False
            gone = connection.execute(
                "delete from answers where rowid in"
                " (select rowid from answers where batch = ? limit ?)",
                (row[0], _DELETED),
            )
            if gone.rowcount < _DELETED:
                connection.execute("delete from files where batch = ?", row)
                connection.execute("delete from batches where id = ?", row)
            shrink(connection)
            return True

        while await self._database.run(remove):
            pass

    async def input_of(self, owner: str, file_id: str) -> StoredFile | None:
        """The owner's uploaded file of that id."""
        file = await self._database.run(lambda connection: file_of(connection, owner, file_id))
        return file if file is not None and file.batch is None else None


def _fail_rest(connection: sqlite3.Connection, batch: str, code: str, message: str) -> int:
    """An error for each line that has no answer; how many there were."""
    rows = connection.execute(
        "select number, custom_id from lines where batch = ? and not exists (select 1 from answers"
        " where answers.batch = lines.batch and answers.number = lines.number)",
        (batch,),
    ).fetchall()
    for number, custom_id in rows:
        line = write_line(with_failure(custom_id, code, message))
        connection.execute("insert into answers values (?, ?, ?, ?)", (batch, number, True, line))
    return len(rows)


def _record(connection: sqlite3.Connection, batch_id: str) -> BatchRecord | None:
    row: Any = connection.execute("select record from batches where id = ?", (batch_id,)).fetchone()
    return None if row is None else _decode(row[0])


def _decode(data: bytes) -> BatchRecord:
    return msgspec.json.decode(data, type=BatchRecord)


def _save(connection: sqlite3.Connection, record: BatchRecord) -> None:
    connection.execute(
        "update batches set record = ?, is_over = ? where id = ?",
        (msgspec.json.encode(record), record.is_over, record.id),
    )

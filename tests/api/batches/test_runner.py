"""Batches at work, over a database and a client that answers at once."""

from __future__ import annotations

import asyncio
import itertools
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from worker.account import Account
from worker.api.batches import runner as module
from worker.api.batches.runner import BatchLimits, BatchRunner, LineReply
from worker.database.batches import BatchRecord, StoredBatches
from worker.database.database import Database
from worker.database.files import StoredFile, StoredFiles, new_id

URL = "/v1/completions"


def line(number: int, prompt: str = "", **more: Any) -> dict[str, Any]:
    """Of an input."""
    body = {"prompt": prompt or f"{number}"}
    return {"custom_id": f"c{number}", "method": "POST", "url": URL, "body": body, **more}


class Client:
    """Answers with the prompt. `meanwhile` is awaited before; statuses: of the next answers"""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.accounts: list[Account] = []
        self.statuses: list[int] = []
        self.meanwhile: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0)
        self.most = self.num_running = 0

    async def post(
        self, path: str, body: bytes, account: Account, owner: str, gone: asyncio.Event
    ) -> LineReply | None:
        assert path == URL
        prompt = msgspec.json.decode(body)["prompt"]
        self.asked.append(prompt)
        self.accounts.append(account)
        self.num_running += 1
        self.most = max(self.most, self.num_running)
        await self.meanwhile()
        self.num_running -= 1
        if gone.is_set():
            return None
        status = self.statuses.pop(0) if self.statuses else 200
        return LineReply(status, "req-1", msgspec.json.encode({"said": prompt}))


class Desk:
    """A runner with its tables; `client` answers."""

    def __init__(self, folder: Path, most_lines: int = 1000) -> None:
        self.database = Database(str(folder))
        self.files, self.batches = StoredFiles(self.database), StoredBatches(self.database)
        self.client = Client()
        self.runner = BatchRunner(
            self.files, self.batches, BatchLimits(most_lines, 1 << 20, 30), Account
        )
        self.runner.client = self.client

    async def create(self, *lines: object, owner: str = "o", seconds: int = 3600) -> str:
        """A batch over an input of these lines."""
        data = b"".join(
            (each if isinstance(each, bytes) else msgspec.json.encode(each)) + b"\n"
            for each in lines
        )
        now, file_id = int(time.time()), new_id("file-")
        self.files.place_of(file_id).write_bytes(data)
        await self.files.add(
            StoredFile(
                id=file_id,
                owner=owner,
                purpose="batch",
                name="in",
                bytes=len(data),
                created_at=now,
                expires_at=now + 9000,
            )
        )
        record = BatchRecord(
            id=new_id("batch_"), owner=owner, endpoint=URL, input_file_id=file_id,
            completion_window="1h", status="validating", created_at=now,
            expires_at=now + seconds, output_seconds=3600,
        )  # fmt: skip
        await self.batches.add(record)
        self.runner.begin(record)
        return record.id

    async def record(self, batch: str, owner: str = "o") -> BatchRecord:
        found = await self.batches.get(owner, batch)
        assert found is not None
        return found

    async def end(self, batch: str, owner: str = "o") -> BatchRecord:
        """The record, once it is over."""
        async with asyncio.timeout(30):
            while not (record := await self.record(batch, owner)).is_over:
                await asyncio.sleep(0.005)
        return record

    async def content(self, file_id: str | None, owner: str = "o") -> list[dict[str, Any]]:
        assert file_id is not None
        file = await self.files.get(owner, file_id)
        assert file is not None
        data = b"".join([piece async for piece in self.files.content(file)])
        assert len(data) == file.bytes
        return [msgspec.json.decode(each) for each in data.splitlines()]


def run(folder: Path, work: Callable[[Desk], Awaitable[object]], **more: Any) -> None:
    """With a desk whose runner answers three lines at once, and that is closed then."""

    async def run_it() -> None:
        desk = Desk(folder, **more)
        desk.runner.start(3)
        try:
            await work(desk)
        finally:
            await desk.runner.stop()
            await asyncio.to_thread(desk.database.close)

    asyncio.run(run_it())


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for what is tried again."""
    for name in ("_AGAIN_S", "_FULL_S", "_GATHER_S"):
        monkeypatch.setattr(module, name, 0.001)


def test_all_lines_are_answered(tmp_path: Path) -> None:
    """Each once, a bounded number at once, in the output in the order of the input."""

    async def work(desk: Desk) -> None:
        desk.client.meanwhile = lambda: asyncio.sleep(0.001)
        record = await desk.end(await desk.create(*map(line, range(150))))
        assert (record.status, record.total, record.completed, record.failed) == (
            "completed", 150, 150, 0,
        )  # fmt: skip
        assert record.error_file_id is None
        found = await desk.content(record.output_file_id)
        assert [each["custom_id"] for each in found] == [f"c{n}" for n in range(150)]
        assert found[7]["response"] == {
            "status_code": 200, "request_id": "req-1", "body": {"said": "7"},
        }  # fmt: skip
        assert sorted(desk.client.asked) == sorted(map(str, range(150)))
        assert desk.client.most == 3
        assert all(account.is_batch and account.running is None for account in desk.client.accounts)
        assert (desk.runner.num_waiting, desk.runner.num_running) == (0, 0)
        assert desk.runner.outcomes == {"completed": 150}

    run(tmp_path, work)


def test_the_last_answer_waits_for_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers gather only as long as others may come."""
    monkeypatch.setattr(module, "_GATHER_S", 3600.0)

    async def work(desk: Desk) -> None:
        assert (await desk.end(await desk.create(line(1)))).completed == 1

    run(tmp_path, work)


def test_shared_beginnings_follow_each_other(tmp_path: Path) -> None:
    """Lines are asked in the order of their prompts."""

    async def work(desk: Desk) -> None:
        lines = [line(n, f"{'abc'[n % 3]} {n:03}") for n in range(30)]
        await desk.end(await desk.create(*lines))
        assert desk.client.asked == sorted(desk.client.asked)

    run(tmp_path, work)


def test_errors_have_their_own_file(tmp_path: Path) -> None:
    """What the API refuses is answered too; what only finds no place is asked again."""

    async def work(desk: Desk) -> None:
        desk.client.statuses = [200, 400, 429, 503]
        record = await desk.end(await desk.create(*map(line, range(5))))
        assert (record.completed, record.failed) == (4, 1)
        (wrong,) = await desk.content(record.error_file_id)
        assert wrong["response"]["status_code"] == 400
        assert wrong["error"] is None
        assert len(await desk.content(record.output_file_id)) == 4
        assert len(desk.client.asked) == 7

    run(tmp_path, work)


@pytest.mark.parametrize(
    ("lines", "code", "number"),
    [
        ([line(1), b"{no"], "invalid_json_line", 2),
        ([line(1), b"", line(1)], "duplicate_custom_id", 3),
        ([line(1, url="/v1/embeddings")], "url_mismatch", 1),
        ([line(n) for n in range(12)], "too_many_lines", 0),
        ([b""], "empty_file", 0),
    ],
)
def test_a_wrong_input(tmp_path: Path, lines: list[object], code: str, number: int) -> None:
    """No line of it is asked, and the batch says what is wrong where."""

    async def work(desk: Desk) -> None:
        record = await desk.end(await desk.create(*lines))
        assert record.status == "failed"
        assert record.failed_at is not None
        assert [(each.code, each.line) for each in record.errors] == [(code, number)]
        assert desk.client.asked == []

    run(tmp_path, work, most_lines=10)


def test_cancelling_keeps_answers(tmp_path: Path) -> None:
    """Lines that were answered are in the output, those at work are left."""

    async def work(desk: Desk) -> None:
        stop, seen = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            if len(desk.client.asked) > 10:
                seen.set()
                await stop.wait()

        desk.client.meanwhile = wait
        batch = await desk.create(*map(line, range(50)))
        await seen.wait()
        await desk.batches.change(batch, lambda record: setattr(record, "status", "cancelling"))
        desk.runner.cancel(batch)
        stop.set()
        record = await desk.end(batch)
        assert record.status == "cancelled"
        assert record.cancelled_at is not None
        assert len(await desk.content(record.output_file_id)) == record.completed >= 8
        assert len(desk.client.asked) <= 14

    run(tmp_path, work)


def test_the_window_ends(tmp_path: Path) -> None:
    """What has no answer then is an error of its line."""

    async def late(desk: Desk) -> None:
        record = await desk.end(await desk.create(*map(line, range(9)), seconds=-1))
        assert (record.status, record.completed) == ("expired", 0)
        assert desk.client.asked == []

    run(tmp_path, late)


def test_it_goes_on_after_a_stop(tmp_path: Path) -> None:
    """Another process answers what is missing, and nothing twice."""
    asked: list[str] = []
    batch = ""

    async def begin(desk: Desk) -> None:
        nonlocal batch
        batch = await desk.create(*map(line, range(200)))
        while len(desk.client.asked) < 60:
            await asyncio.sleep(0.001)
        await desk.runner.stop()
        record = await desk.record(batch)
        assert record.status == "in_progress"
        assert 0 < record.completed < 200
        asked.extend(desk.client.asked[: record.completed])

    async def go_on(desk: Desk) -> None:
        record = await desk.end(batch)
        assert (record.status, record.completed) == ("completed", 200)
        found = await desk.content(record.output_file_id)
        assert [each["custom_id"] for each in found] == [f"c{n}" for n in range(200)]
        assert len(desk.client.asked) == 200 - len(asked)

    run(tmp_path, begin)
    run(tmp_path, go_on)


def test_a_full_disk_pauses(tmp_path: Path) -> None:
    """Nothing is asked while there is no room, the reason is told, and then all is answered."""

    async def work(desk: Desk) -> None:
        def limit(pages: int) -> Callable[[sqlite3.Connection], object]:
            return lambda c: c.execute(f"PRAGMA max_page_count = {pages}").fetchone()

        desk.client.meanwhile = lambda: asyncio.sleep(0.001)
        batch = await desk.create(*(line(n, "x" * 900 + str(n)) for n in range(100)))
        while not (await desk.record(batch)).completed:
            await asyncio.sleep(0.001)
        await desk.database.run(limit(1))
        async with asyncio.timeout(30):
            while not desk.runner.paused:
                await asyncio.sleep(0.001)
        assert "full" in desk.runner.paused
        while desk.client.num_running:
            await asyncio.sleep(0.001)
        count = len(desk.client.asked)
        await asyncio.sleep(0.02)
        assert len(desk.client.asked) == count < 100
        await desk.database.run(limit(1 << 20))
        record = await desk.end(batch)
        assert (record.status, record.completed) == ("completed", 100)
        assert len(await desk.content(record.output_file_id)) == len(desk.client.asked) == 100
        assert not desk.runner.paused

    run(tmp_path, work)


def test_owners_take_turns(tmp_path: Path) -> None:
    """A batch of one key waits for no whole batch of another; those of one take turns."""

    async def work(desk: Desk) -> None:
        are_created = asyncio.Event()
        desk.client.meanwhile = are_created.wait
        first = await desk.create(*(line(n, f"a{n}") for n in range(60)))
        second = await desk.create(*(line(n, f"c{n}") for n in range(5)))
        third = await desk.create(*(line(n, f"b{n}") for n in range(20)), owner="p")
        async with asyncio.timeout(30):
            while desk.runner.num_waiting < 60 + 20 - 3:  # `second` waits for its turn
                await asyncio.sleep(0.001)
        desk.client.meanwhile = lambda: asyncio.sleep(0.001)
        are_created.set()
        await desk.end(second)
        await desk.end(third, "p")
        order = "".join(prompt[0] for prompt in desk.client.asked)
        assert order.rindex("b") < order.rindex("a") < order.index("c")
        assert (await desk.record(first)).status == "completed"

    run(tmp_path, work)


def test_old_ones_are_forgotten(tmp_path: Path) -> None:
    """Expired files are deleted, and batches that ended before the days for which they are kept."""

    async def work(desk: Desk) -> None:
        batch = await desk.create(line(1))
        record = await desk.end(batch)
        place = desk.files.place_of(record.input_file_id)
        assert place.exists()
        await desk.database.run(lambda c: c.execute("UPDATE files SET expires_at = 1"))
        assert await desk.files.get("o", record.input_file_id) is None
        (place.parent / "folder").mkdir()
        os.utime(place.parent / "folder", (1, 1))
        assert await desk.files.sweep() == 2
        assert [each.name for each in place.parent.iterdir()] == ["folder"]
        ended = record.finalizing_at or 0
        await desk.batches.sweep(ended)
        assert await desk.batches.get("o", batch) is not None
        await desk.batches.sweep(ended + 1)
        assert await desk.batches.get("o", batch) is None

    run(tmp_path, work)


def test_a_long_batch_is_kept_from_its_end_on(tmp_path: Path) -> None:
    """A window longer than the days for which batches are kept costs no answers."""

    async def work(desk: Desk) -> None:
        batch = await desk.create(line(1))
        await desk.end(batch)
        await desk.batches.change(batch, lambda record: setattr(record, "created_at", 1))
        await desk.database.run(lambda c: c.execute("UPDATE batches SET created_at = 1"))
        await desk.batches.sweep(int(time.time()) - 60)
        record = await desk.record(batch)
        assert len(await desk.content(record.output_file_id)) == 1

    run(tmp_path, work)


def test_an_input_outlives_its_batch(tmp_path: Path) -> None:
    """A file that expires while a batch reads it is deleted once that has ended."""

    async def work(desk: Desk) -> None:
        stop = asyncio.Event()
        desk.client.meanwhile = stop.wait
        batch = await desk.create(*map(line, range(200)))
        place = desk.files.place_of((await desk.record(batch)).input_file_id)
        await desk.database.run(lambda c: c.execute("UPDATE files SET expires_at = 1"))
        assert await desk.files.sweep() == 0
        assert place.exists()
        stop.set()
        assert (await desk.end(batch)).completed == 200
        await desk.files.sweep()
        assert not place.exists()

    run(tmp_path, work)


def leave(place: Path) -> None:
    """Nothing is there."""
    assert not place.exists()


@pytest.mark.parametrize(
    ("is_begun", "replace"), [(False, leave), (True, leave), (False, Path.mkdir), (True, os.mkfifo)]
)
def test_a_lost_input_fails_its_batch(
    tmp_path: Path, is_begun: bool, replace: Callable[[Path], None]
) -> None:
    """The batch says so, keeps the answers that it has, and holds up no other."""

    async def work(desk: Desk) -> None:
        stop, seen, asked = asyncio.Event(), asyncio.Event(), itertools.count(1)

        async def wait() -> None:
            if next(asked) == 2:  # one of them is the other batch's
                seen.set()
            await stop.wait()

        desk.client.meanwhile = wait
        owner = "p" if is_begun else "o"  # batches of one owner follow each other
        first = await desk.create(line(1), owner=owner)
        batch = await desk.create(*map(line, range(200)))
        if is_begun:
            await seen.wait()
        place = desk.files.place_of((await desk.record(batch)).input_file_id)
        place.unlink()
        replace(place)
        stop.set()
        record = await desk.end(batch)
        assert record.status == "failed"
        assert [each.code for each in record.errors] == ["input_file_missing"]
        if is_begun:
            assert record.completed + record.failed == 200
            assert len(await desk.content(record.output_file_id)) == record.completed > 0
        assert (await desk.end(first, owner)).status == "completed"
        assert not desk.runner.paused

    run(tmp_path, work)

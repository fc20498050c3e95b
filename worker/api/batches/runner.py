"""Batches at work: their lines are asked a few at a time, and answers are kept in groups."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from worker import log
from worker.account import Account
from worker.api.batches.input import BatchInput
from worker.batches.line import with_response, write_line
from worker.database.batches import AskedLine, BatchRecord, LinePlace, StoredAnswer, StoredBatches
from worker.database.files import StoredFiles
from worker.errors import NotSupportedError, StorageFullError

# Seconds in which answers gather that become one transaction.
_GATHER_S = 0.1
# Seconds after which a line is asked again that found no place, or a model that could not be woken;
# and after which a full disk is tried again.
_AGAIN_S, _FULL_S = 1.0, 2.0
_SWEEP_S = 3600.0
# Answers of the API that say nothing of the line: it is asked again.
_LATER = frozenset({429, 503})
_EXPIRED = (
    "batch_expired",
    "This request was not answered before the completion window ended.",
)
_INPUT_GONE = (
    "input_file_missing",
    "The input file is no longer in --state-dir: upload it again.",
)
_STOP_S = 0.7
_log = log.get("batches")

T = TypeVar("T")


class LineReply(NamedTuple):
    status: int
    request_id: str
    body: bytes


class LineClient(Protocol):
    """Who answers a request as its route does."""

    async def post(
        self, path: str, body: bytes, account: Account, owner: str, gone: asyncio.Event
    ) -> LineReply | None:
        """The answer to the owner; None: `gone` was set before."""
        ...


class _LineBody(msgspec.Struct):
    body: msgspec.Raw


class _RunningBatch:
    """end: it goes no further, because of `status`; without one the worker stops."""

    def __init__(self, record: BatchRecord) -> None:
        self.record = record
        self.end = asyncio.Event()
        self.status = ""
        self.num_left = record.total - record.completed - record.failed

    def stop(self, status: str) -> None:
        """The first one counts."""
        if not self.end.is_set():
            self.status = status
            self.end.set()


class BatchLimits(NamedTuple):
    """lines of a batch, bytes of a line, days for which ended batches are kept"""

    lines: int
    line_bytes: int
    days: int


class BatchRunner:
    """On the event loop. Each owner has one batch at work at a time; owners take turns by line.

    paused       why nothing goes on at the moment; empty: it does
    num_running  lines that are being answered
    client       who answers them; set before `start`
    outcomes     lines that were answered since the start, completed and failed ones
    """

    def __init__(
        self,
        files: StoredFiles,
        batches: StoredBatches,
        limits: BatchLimits,
        account_of: Callable[[str], Account],
    ) -> None:
        """account_of: of an owner, with its weight"""
        self.client: LineClient | None = None
        self.paused = ""
        self.num_running = 0
        self.outcomes: Counter[str] = Counter()
        self._files, self._batches = files, batches
        self._account_of, self._limits = account_of, limits
        self._places = asyncio.Semaphore(1)
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._runs: dict[str, _RunningBatch] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers: list[StoredAnswer] = []
        self._has_answers, self._is_saved = asyncio.Event(), asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_saved.set()
        self._has_room.set()
        self._is_stopping = self._has_started = False

    @property
    def num_waiting(self) -> int:
        """Lines of all batches that are not being answered yet."""
        return max(0, sum(run.num_left for run in self._runs.values()) - self.num_running)

    def start(self, width: int) -> None:
        """Go on where the last process was. width: lines that are answered at once"""
        self._places = asyncio.Semaphore(width)
        self._has_started = True
        self._spawn(self._resume())
        self._spawn(self._save())
        self._spawn(self._sweep())

    def begin(self, record: BatchRecord) -> None:
        """A batch was created."""
        if self._has_started and not self._is_stopping and record.id not in self._runs:
            run = self._runs[record.id] = _RunningBatch(record)
            self._spawn(self._serve(run))

    def cancel(self, batch_id: str) -> None:
        """Its record says `cancelling` already."""
        if (run := self._runs.get(batch_id)) is not None:
            run.stop("cancelled")

    async def stop(self) -> None:
        """Leave all lines as they are; what was answered is kept. Takes less than a second."""
        self._is_stopping = True
        for run in self._runs.values():
            run.stop("")
        if self._tasks:
            tasks = [asyncio.ensure_future(self._is_saved.wait())]
            lines = [task for task in self._tasks if task.get_name().startswith("batch")]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_S):
                    await asyncio.gather(*lines, return_exceptions=True)
                    await asyncio.gather(*tasks)
            for task in (*self._tasks, *tasks):
                task.cancel()

    def _spawn(self, work: Coroutine[None, None, None], name: str = "") -> asyncio.Task[None]:
        # Not that of the request which created the batch.
        task = asyncio.create_task(work, name=name or "runner", context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._on_end)
        return task

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._is_stopping:
            self._pause(str(error))
            _log.error("a batch stands still", exc_info=error)

    async def _resume(self) -> None:
        for record in await self._persist(self._batches.open_batches):
            self.begin(record)

    async def _sweep(self) -> None:
        while True:
            before = int(time.time()) - self._limits.days * 86_400
            await self._persist(self._files.sweep)
            await self._persist(partial(self._batches.sweep, before))
            await asyncio.sleep(_SWEEP_S)

    async def _serve(self, run: _RunningBatch) -> None:
        record, loop = run.record, asyncio.get_running_loop()
        seconds = max(0.0, record.expires_at - time.time())
        timer = loop.call_later(seconds, run.stop, "expired")
        turn = self._turns.setdefault(record.owner, asyncio.Semaphore(1))
        if record.status == "cancelling":
            run.stop("cancelled")
        has_turn = await self._before_end(run, turn.acquire())
        try:
            is_new = record.status == "validating" and not run.end.is_set()
            if is_new and not await self._validate(run):
                return
            await self._feed(run)
            if self._is_stopping:
                return
            await self._is_saved.wait()
            status = run.status or "completed"
            errors = {"expired": _EXPIRED, "failed": _INPUT_GONE}.get(status, ())
            await self._persist(partial(self._batches.end, record.id, status, *errors))
            _log.info("batch", batch=record.id, status=status, lines=run.record.total)
        finally:
            timer.cancel()
            if has_turn:
                turn.release()
            del self._runs[record.id]

    async def _validate(self, run: _RunningBatch) -> bool:
        """Whether its lines can be asked, which are noted then; else the batch has failed."""
        record, found = run.record, BatchInput()
        opened, limits = partial(self._files.open, record.input_file_id), self._limits
        groups = found.read(opened, record.endpoint, limits.lines, limits.line_bytes)
        try:
            while lines := await asyncio.to_thread(next, groups, list[LinePlace]()):
                if run.end.is_set():
                    return True
                await self._persist(lambda: self._batches.add_lines(record.id, lines))
        except FileNotFoundError:
            run.stop("failed")
            return True
        if found.problems:
            await self._persist(partial(self._batches.fail, record.id, found.problems))
            return False

        def begin(record: BatchRecord) -> None:
            if record.status == "validating":  # it may have been cancelled meanwhile
                record.status = "in_progress"
            record.total, record.in_progress_at = found.num_lines, int(time.time())

        changed = await self._persist(partial(self._batches.change, record.id, begin))
        run.record = changed or record
        run.num_left = found.num_lines
        return True

    async def _feed(self, run: _RunningBatch) -> None:
        """Have its lines answered, until all are or it ends."""
        record, after = run.record, 0
        file = self._files.place_of(record.input_file_id)
        account = msgspec.structs.replace(
            self._account_of(record.owner), priority=None, running=None, is_batch=True
        )
        tasks: set[asyncio.Task[None]] = set()
        while not run.end.is_set():
            read = partial(self._batches.next_lines, record.id, after, file)
            try:
                lines = await self._persist(read)
            except FileNotFoundError:
                run.stop("failed")
                break
            if not lines:
                break
            for line in lines:
                after = line.place
                has_place = await self._before_end(run, self._places.acquire())
                await self._before_end(run, self._has_room.wait())
                if run.end.is_set():
                    if has_place:
                        self._places.release()
                    break
                task = self._spawn(self._answer(run, account, line), "batch line")
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        while tasks:
            await asyncio.wait(tasks)

    async def _answer(self, run: _RunningBatch, account: Account, line: AskedLine) -> None:
        """Have one line answered, which has a place."""
        assert self.client is not None
        self.num_running += 1
        try:
            body = bytes(msgspec.json.decode(line.data, type=_LineBody).body)
            while True:
                reply = await self.client.post(
                    run.record.endpoint, body, account, run.record.owner, run.end
                )
                if reply is None or reply.status not in _LATER:
                    break
                if not await self._before_end(run, asyncio.sleep(_AGAIN_S)):
                    return
            if reply is None:
                return
            written = with_response(line.custom_id, *reply)
            answer = StoredAnswer(
                run.record.id, line.number, not written.is_ok, write_line(written)
            )
            self._answers.append(answer)
            self._is_saved.clear()
            self._has_answers.set()
            run.num_left -= 1
            self.outcomes["completed" if written.is_ok else "failed"] += 1
        finally:
            self.num_running -= 1
            self._places.release()

    async def _save(self) -> None:
        """Write answers as they come, those of a moment together."""
        while True:
            await self._has_answers.wait()
            is_last = not any(run.num_left for run in self._runs.values())
            if not (is_last or self._is_stopping):
                await asyncio.sleep(_GATHER_S)
            group, self._answers = self._answers, []
            self._has_answers.clear()
            await self._persist(partial(self._batches.answer, group))
            if not self._answers:
                self._is_saved.set()

    async def _persist(self, write: Callable[[], Awaitable[T]]) -> T:
        """What comes of it. While the disk is full nothing goes on, and it is tried again."""
        while True:
            try:
                found = await write()
            except StorageFullError as error:
                if self._has_room.is_set():
                    _log.warning("batches pause", console=str(error), reason=str(error))
                self._pause(str(error))
                await asyncio.sleep(_FULL_S)
                continue
            if not self._has_room.is_set():
                self._has_room.set()
                self.paused = ""
                _log.info("batches go on")
            return found

    def _pause(self, reason: str) -> None:
        self.paused = reason
        self._has_room.clear()

    async def _before_end(self, run: _RunningBatch, wait: Awaitable[object]) -> bool:
        """Wait for it, unless the batch ends before; whether it came."""
        waiting = asyncio.ensure_future(wait)
        ended = asyncio.ensure_future(run.end.wait())
        try:
            await asyncio.wait({waiting, ended}, return_when=asyncio.FIRST_COMPLETED)
            return waiting.done()
        finally:
            ended.cancel()
            if not waiting.done():
                waiting.cancel()


def unavailable() -> NotSupportedError:
    """There is no folder to keep batches in."""
    return NotSupportedError(
        "This worker keeps no batches.", hint="Start it with --state-dir DIR.", code="no_state_dir"
    )

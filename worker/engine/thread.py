"""The one thread that steps the engine, and its bridge to asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from worker import log
from worker.account import NOBODY, Account
from worker.engine.engine import Engine
from worker.engine.request import Request
from worker.engine.sequence import Delta, SequenceStatus
from worker.engine.stats import EngineSnapshot
from worker.engine.stream import Stream
from worker.errors import QueueFullError, RequestError, UnavailableError, WorkerError

# Seconds in which new requests may be made ready before the next step: a bias for each token of a
# large vocabulary takes 100 ms for each of a request's copies.
_READY_S = 0.05
# Between two times that the event loop is woken for what is written. To wake it for a token takes
# 0.2 ms of CPU time from the step beside it, which for a small model is 5 % of the step. A token
# that comes sooner goes with those that follow it in this time.
_PAUSE_S = 0.01
# Seconds in which what ended last is copied when the thread ends. Who waits for its end has 0.9 s,
# of which some are for the disk.
_LEAVE_S = 0.3

T = TypeVar("T")

ItemT = TypeVar("ItemT")
# Writes bytes to a file descriptor; how many. It may raise OSError, or say -1.
Write = Callable[[int, bytes], int]
# Items that wait together at most; waking the loop for each costs it a tenth of a millisecond.
PATIENCE = 16


class Outbox(Generic[ItemT]):
    """What one thread puts in and the event loop takes out, in the same order.

    A byte in a pipe wakes the loop, and no second one is written before it was read: the pipe
    never fills, whoever puts never waits, and a loop that is late wakes once.
    `loop.call_soon_threadsafe` would do, but its `send` gives Python's lock away, and the loop
    keeps it while the engine wants to begin the next step.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, take: Callable[[list[ItemT]], object], write: Write
    ) -> None:
        """On the event loop. `take` gets all that waits there, in its order."""
        self._loop, self._take, self._write = loop, take, write
        self._items: deque[ItemT] = deque()
        self._is_rung = False
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        loop.add_reader(self._read_fd, self._on_ring)

    def put(self, item: ItemT, *, rings: bool = True) -> None:
        """In any one thread, until `close`; nobody is told once the loop has ended.

        rings: False where nobody waits for it; it goes with the next that rings, or with the
        PATIENCE-th that waits
        """
        self._items.append(item)
        if rings or len(self._items) >= PATIENCE:
            self.ring()

    def ring(self) -> None:
        """Let the loop take out what waits, if there is something; where `put` may be called.

        The loop is woken in its own way if the pipe does not take the byte.
        """
        if not self._items or self._is_rung:
            return
        self._is_rung = True
        with contextlib.suppress(OSError):
            if self._write(self._write_fd, b"\0") == 1:
                return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._on_wake)

    def _on_ring(self) -> None:
        with contextlib.suppress(OSError):  # the byte is still there, and rings again
            os.read(self._read_fd, 1)
        self._on_wake()

    def _on_wake(self) -> None:
        # First this, then the items: what is put in between rings once more.
        self._is_rung = False
        self.empty()

    def empty(self) -> None:
        """On the event loop: take out all that is there."""
        while self._items:
            # What is put in meanwhile comes in the next round: `len` is asked once.
            self._take([self._items.popleft() for _ in range(len(self._items))])

    def close(self) -> None:
        """Take out the rest and let go of the pipe, once nobody puts any more.

        On the event loop, or anywhere when that is closed. Before, the number of a closed
        descriptor could be somebody's connection when the next byte is written.
        """
        if not self._loop.is_closed():
            self._loop.remove_reader(self._read_fd)
            self.empty()
        os.close(self._read_fd)
        os.close(self._write_fd)


class EngineThread:
    """Owns the engine. All public methods are for the event loop's thread.

    max_streams  requests that can run and wait at most
    tick         time.monotonic() of the last sign of life of the engine's thread
    """

    def __init__(
        self,
        engine: Engine,
        queue_size: int,
        on_failure: Callable[[WorkerError], None],
        write: Write = os.write,
        begin: Callable[[], object] = lambda: None,
    ) -> None:
        """write: wakes the event loop; best one that keeps Python's lock
        begin: what the thread does before anything else
        """
        self.engine = engine
        self.max_streams = engine.max_running + queue_size
        self.tick = time.monotonic()
        self._on_failure = on_failure
        self._begin = begin
        self._inbox: queue.SimpleQueue[Request | str | Callable[[], None] | None]
        self._inbox = queue.SimpleQueue()
        self._jobs: set[Future[Any]] = set()
        self._has_ended = False
        self._streams: dict[str, Stream] = {}
        self._num_prepared = 0  # requests that are made ready
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox(self._loop, self._deliver, write)
        self._closed: WorkerError | None = None
        self._closing: WorkerError | None = None  # for what has no place yet
        self._cpu_clock: int | None = None
        self._woken = 0.0  # by the clock of `tick`
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def snapshot(self) -> EngineSnapshot:
        """The engine's counters; never waits for the engine's thread."""
        return self.engine.snapshot

    @property
    def cpu_seconds(self) -> float | None:
        """CPU time that the thread has used; None before it runs and where no system tells."""
        if self._cpu_clock is None:
            return None
        try:
            return time.clock_gettime(self._cpu_clock)
        except OSError:  # the thread has ended
            return None

    def status_of(self, request_id: str) -> SequenceStatus | None:
        """How a request stands; None: it waits to be taken in, or has ended."""
        return self.engine.status_of(request_id)

    @property
    def max_length(self) -> int:
        """Tokens of the longest sequence."""
        return self.engine.backend.max_length

    @property
    def num_streams(self) -> int:
        """Requests that were accepted or are made ready, and have not ended."""
        return len(self._streams) + self._num_prepared

    @property
    def keys(self) -> set[bytes]:
        """Of the prompts of all requests that were accepted and have not ended."""
        return {stream.key for stream in self._streams.values()}

    async def between_steps(self, function: Callable[[], T]) -> T:
        """What the engine's thread computes by `function`, after all that was submitted and aborted
        before. Raises what it raises; UnavailableError where the thread ends before."""
        future: Future[T] = Future()

        def job() -> None:
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001  (it is raised where it is awaited)
                future.set_exception(error)

        if self._has_ended:
            raise _stop_error()
        self._jobs.add(future)
        self._inbox.put(job)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        finally:
            self._jobs.discard(future)

    async def cut(self, name: str, account: str) -> bool | None:
        """End the thoughts of answers, see `Engine.cut`: whether there was one; None: nothing with
        this name runs for this account.

        name: what the ids of a stream's requests begin with, without its last dash
        """
        streams = {id(stream): stream for stream in self._streams.values()}
        ids = [
            each
            for stream in streams.values()
            if stream.account.name == account and stream.ids[0].rpartition("-")[0] == name
            for each in stream.ids
        ]
        if not ids:
            return None
        return any(await self.between_steps(lambda: [self.engine.cut(each) for each in ids]))

    def check_place(self, besides: int = 0, account: Account = NOBODY) -> None:
        """Raise QueueFullError or UnavailableError where no request can be accepted now.

        besides: requests that will take a place before this one does
        account: whose it is, see `_check_share`
        """
        if self._closing is not None:
            raise self._closing
        if account.line:
            self._check_share(account, 1)
        if self._num_taken(besides) >= self.max_streams:
            raise QueueFullError(
                f"{self.max_streams} requests run or wait already.", hint="Try again shortly."
            )

    def _num_taken(self, more: int) -> int:
        """Places that are taken once so many more are: lines of batches take none from others."""
        taken = self.num_streams + more
        if taken < self.max_streams:
            return taken
        return taken - sum(stream.account.is_batch for stream in self._streams.values())

    def _check_share(self, account: Account, count: int) -> None:
        """Raise QueueFullError where an account of somebody would have more than half of the
        places: others come to the queue that it fills."""
        if self.num_streams < self.max_streams // 2 - count:
            return
        held = sum(stream.account.line == account.line for stream in self._streams.values())
        if held + count > max(self.engine.max_running, self.max_streams // 2):
            raise QueueFullError(
                f"{account.name or 'This client'} has {held} requests that run or wait already.",
                hint="Try again shortly.",
            )

    @contextlib.contextmanager
    def place(self) -> Generator[None]:
        """Keeps a place for a request that is made ready. Raises as `check_place` does."""
        self.check_place()
        self._num_prepared += 1
        try:
            yield
        finally:
            self._num_prepared -= 1

    def submit(self, requests: Sequence[Request], *, param: str = "n") -> Stream:
        """Accept all of `requests` or none.

        param: the client's field that makes them several, to name in errors

        Raises RequestError, QueueFullError or UnavailableError at once.
        """
        if self._closed is not None:
            raise self._closed
        for request in requests:
            self.engine.check(request)
        if len(requests) > self.max_streams:
            raise RequestError(
                f"{len(requests)} sequences were asked for, {self.max_streams} can run and wait.",
                param=param,
            )
        if self._num_taken(len(requests)) > self.max_streams:
            raise QueueFullError(
                f"{self.num_streams} requests run or wait already.", hint="Try again shortly."
            )
        account = requests[0].account
        if account.line and not account.is_batch:  # which takes no places from others
            self._check_share(account, len(requests))
        ids, key = [request.id for request in requests], requests[0].prompt.key
        stream = Stream(ids, self.abort, self._outbox.empty, key)
        stream.account = account
        for request in requests:
            self._streams[request.id] = stream
            self._inbox.put(request)
        return stream

    def abort(self, request_id: str) -> None:
        """Stop a request within a step; safe to call again and for ids that have ended."""
        if self._streams.pop(request_id, None) is not None:
            self._inbox.put(request_id)

    def close(self, error: WorkerError) -> None:
        """Accept nothing more; what runs goes on."""
        self._closed = self._closed or error

    async def drain(self, seconds: float) -> int:
        """Wait until all requests have ended, at most `seconds`; then end the rest with an error.

        What had a place when this began is still accepted. Returns how many had to be ended.
        """
        self._closing = UnavailableError("The worker is shutting down.", code="draining")
        deadline = time.monotonic() + seconds
        while self.num_streams and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        self.close(self._closing)
        left = dict(self._streams)
        for stream in left.values():
            stream.fail(_stop_error())
        return len(left)

    def stop(self, seconds: float) -> bool:
        """End the thread after its current step; False when it did not end in time."""
        self._inbox.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        if hasattr(time, "pthread_getcpuclockid"):  # not on macOS
            self._cpu_clock = time.pthread_getcpuclockid(threading.get_ident())
        failure = None
        try:
            self._begin()
            while self._read_inbox():
                self._send(self.engine.step())
            self.engine.keep_ended(_LEAVE_S)
        except BaseException as error:  # noqa: BLE001  (the thread's last words must be heard)
            log.get("engine").exception("the engine failed")
            failure = (
                error
                if isinstance(error, WorkerError)
                else WorkerError(f"The engine failed: {error!r}.", code="ENGINE_FAILED")
            )
        try:
            self._loop.call_soon_threadsafe(self._end, failure)
        except RuntimeError:  # the loop is closed; nobody is left to tell
            self._outbox.close()

    def _read_inbox(self) -> bool:
        """Take in messages; wait for one when idle. False when it is time to leave.

        What is left when the time is over comes after a step, so that streams go on.
        """
        started = time.monotonic()
        while True:
            self.tick = time.monotonic()
            idle = self.engine.is_idle
            if not idle and (self._inbox.empty() or self.tick - started > _READY_S):
                return True
            try:
                message = self._inbox.get(timeout=1.0)
            except queue.Empty:
                self.engine.backend.rest()
                continue
            if idle:
                started = time.monotonic()
            if message is None:
                return False
            if isinstance(message, str):
                self.engine.abort(message)
                continue
            if callable(message):
                message()
                continue
            self._outbox.ring()  # the next step is longer than those that others wait for
            try:
                self.engine.add(message)
            except RequestError as error:
                self._send([Delta(message.id, error=error)])

    def _send(self, deltas: list[Delta]) -> None:
        if not deltas:
            return
        is_soon = self.engine.scheduler.only_writes and self.tick - self._woken < _PAUSE_S
        awaited = self._is_awaited if not is_soon else _is_last
        rings = any(map(awaited, deltas))
        if rings:
            self._woken = self.tick
        self._outbox.put(deltas, rings=rings)

    def _is_awaited(self, delta: Delta) -> bool:
        stream = self._streams.get(delta.id)
        return delta.is_last or (stream is not None and not stream.wants_all)

    def _end(self, failure: WorkerError | None) -> None:
        """On the event loop, when the thread has ended: nothing more comes.

        After a failure, end every stream and tell the owner.
        """
        self._outbox.close()
        self._has_ended = True
        for job in self._jobs:
            if not job.done():
                job.set_exception(_stop_error())
        if failure is not None:
            self.close(failure)
            self._deliver([[Delta(request_id, error=failure) for request_id in self._streams]])
            self._on_failure(failure)

    def _deliver(self, steps: Iterable[list[Delta]]) -> None:
        """On the event loop: hand what came in these steps to its streams, to each all at once."""
        found: dict[Stream, list[Delta]] = {}
        for delta in itertools.chain.from_iterable(steps):
            stream = self._streams.get(delta.id)
            if stream is None:
                continue  # left meanwhile
            if delta.is_last:
                del self._streams[delta.id]
            found.setdefault(stream, []).append(delta)
        for stream, deltas in found.items():
            stream.put(*deltas)


def _stop_error() -> UnavailableError:
    return UnavailableError("The worker stopped.", code="draining")


def _is_last(delta: Delta) -> bool:
    return delta.is_last

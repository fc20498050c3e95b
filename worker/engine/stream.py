"""What an asker reads: the deltas of its requests, on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from worker.account import NOBODY, Account
from worker.engine.request import Request
from worker.engine.sequence import Delta, SequenceStatus
from worker.errors import WorkerError


class Watcher(Protocol):
    """Follows how the requests of a stream end, and nothing of what they say before."""

    def end(self, delta: Delta) -> None:
        """One has; its last delta."""

    def leave(self) -> None:
        """Those that still run are about to be aborted, because nobody reads on."""


class Lane(Protocol):
    """The way to the engine, on the event loop; see `thread.EngineThread`."""

    @property
    def max_length(self) -> int: ...
    def check_place(self, besides: int = 0, account: Account = NOBODY) -> None: ...
    def place(self) -> AbstractContextManager[None]: ...
    def submit(self, requests: Sequence[Request], *, param: str = "n") -> Stream: ...
    def status_of(self, request_id: str) -> SequenceStatus | None: ...
    async def cut(self, name: str, account: str) -> bool | None: ...


class Stream:
    """The deltas of one or more requests, read on the event loop.

    Reading late never makes the engine wait. Leave it with `close()` (or use it in a `with`), as
    often as you like: it aborts what is still running.

    wants_all: the reader does nothing before the end, so it is not woken for each delta
    direct: gets deltas that are not the last, at once, while the reader waits for one. Says whether
        it took them; what it raises the reader gets
    watcher: who wants to know how its requests end
    ids: of its requests, in order
    key: of their prompts
    account: whose they are
    """

    def __init__(
        self,
        ids: Iterable[str],
        abort: Callable[[str], None],
        catch_up: Callable[[], object] = lambda: None,
        key: bytes = b"",
    ) -> None:
        """catch_up: puts in what has been said and is not here yet"""
        self.wants_all = False
        self.account = NOBODY
        self.direct: Callable[[Sequence[Delta]], bool] | None = None
        self.ids = tuple(ids)
        self.key = key
        self._running: set[str] = set(self.ids)
        self._abort = abort
        self._catch_up = catch_up
        self._deltas: list[Delta] = []
        self._reader: asyncio.Future[None] | None = None  # waits for the next delta
        self.watcher: Watcher | None = None

    @property
    def is_running(self) -> bool:
        """Whether a delta can still come that is not the last of its request."""
        return bool(self._running or self._deltas)

    def put(self, *deltas: Delta) -> None:
        """Append; for the bridge, and for who ends a request with an error. On the event loop."""
        if self.direct is not None and self._go_past(self.direct, deltas):
            return
        self._deltas += deltas
        for delta in deltas:
            if delta.is_last:
                self._running.discard(delta.id)
                if self.watcher is not None:
                    self.watcher.end(delta)
        # An asyncio.Event would keep a list of readers; there is one.
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _go_past(self, direct: Callable[[Sequence[Delta]], bool], deltas: Sequence[Delta]) -> bool:
        """Whether the reader, who waits, need not be woken for these."""
        reader = self._reader
        if reader is None or reader.done():
            return False
        for delta in deltas:
            if delta.is_last:
                return False
        try:
            return direct(deltas)
        except Exception as error:  # noqa: BLE001  (it is not the bridge's, but the reader's)
            reader.set_exception(error)
            return True

    async def take(self) -> list[Delta]:
        """All deltas since the last call, at least one. Raises the error that a request ended in.

        Only while `is_running`; otherwise it would wait for ever.
        """
        if not self._deltas:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        deltas, self._deltas = self._deltas, []
        failed = [place for place, delta in enumerate(deltas) if delta.error is not None]
        if not failed:
            return deltas
        if failed[0]:  # what came before the error is still worth having
            for delta in deltas[failed[0] :]:
                self.put(delta)
            return deltas[: failed[0]]
        error = deltas[0].error
        assert error is not None
        try:
            raise error
        finally:
            del error, deltas  # its traceback holds this frame

    def fail(self, error: WorkerError) -> None:
        """End what still runs: its reader gets the error after all that was said so far."""
        self._catch_up()
        for request_id in tuple(self._running):
            self.put(Delta(request_id, error=error))
            self._abort(request_id)

    def close(self) -> None:
        """Stop generating for this stream, if anything still does."""
        running, self._running = self._running, set()
        if running and self.watcher is not None:
            self.watcher.leave()
        for request_id in running:
            self._abort(request_id)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""Background responses in the folder of `--state-dir`: written down while they are made, and gone
on with by the next process.

A response is its own relay: the marks behind its events tell the tokens that they hold, and what is
on the disk is what its client may have.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from worker import log
from worker.account import Account
from worker.api.answer.kept_stream import KeptStream, KeptStreams
from worker.api.intake.delivery import RELAY, WRITTEN, ToldBefore
from worker.api.responses.chat_input import InputItem
from worker.api.responses.exchange import ResponseExchange
from worker.api.responses.schemas import ResponseRequest
from worker.api.responses.store import ResponseStore
from worker.database.responses import SavedPart, SavedResponse, SavedResponses
from worker.errors import WorkerError
from worker.limits import STORED

# Seconds between two writes of one response: what is lost with a process that is killed.
_PERIOD_S = 0.5
# After which one is asked for again that found no place.
_AGAIN_S = 1.0
_LATER = frozenset({429, 503})
_PATH = "/v1/responses"
_log = log.get("responses")


class ResponseAsker(Protocol):
    """Asks this worker's own routes."""

    async def post(
        self,
        path: str,
        body: bytes,
        account: Account,
        owner: str,
        gone: asyncio.Event,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> Any: ...


class Recorder:
    """Of all background responses; for the event loop's thread.

    asker  set before `resume`
    """

    def __init__(
        self, saved: SavedResponses, stored: ResponseStore, account_of: Callable[[str], Account],
        days: int,
    ) -> None:  # fmt: skip
        """account_of: the account of that name; days: for which they are kept"""
        self.asker: ResponseAsker | None = None
        self._saved, self._stored, self._days = saved, stored, days
        self._account_of = account_of
        self._told: dict[str, list[SavedPart]] = {}  # of those that are gone on with
        self._has_resumed = asyncio.Event()
        self._recordings: dict[str, _Recording] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def keep(
        self,
        exchange: ResponseExchange,
        streams: KeptStreams,
        body: ResponseRequest,
        own: list[InputItem],
        account: Account,
    ) -> KeptStream:
        """Its stream, of which all is written down from now on. body: with all that it refers to"""
        name = exchange.name
        asked = msgspec.structs.replace(body, previous_response_id=None, stream=None)
        response = SavedResponse(
            name,
            exchange.delivery.owner,
            account.name,
            exchange.created,
            msgspec.json.encode(asked),
            msgspec.json.encode(own),
            exchange.reply.previous_response_id,
            msgspec.json.encode(exchange.reply),
        )
        await self._saved.add(response)
        kept = exchange.keep(streams, outlives=True, run=partial(self._run, exchange))
        kept.put_before(*(part.events for part in self._told.pop(name, [])))
        recording = self._recordings[name] = _Recording(self._saved, kept, self._spawn)
        kept.on_mark = recording.note
        return kept

    async def drop(self, name: str) -> None:
        """It was deleted."""
        await self._saved.drop(name)

    def resume(self) -> None:
        """Take up what the last process has left."""
        self._spawn(self._resume())

    async def _resume(self) -> None:
        before = int(time.time()) - self._days * 86_400
        try:
            for response in await self._saved.recent(STORED.most, before):
                name, reply = f"resp_{response.name}", response.reply or response.begun
                self._stored.put(name, reply, response.items, response.before, response.owner)
                if response.reply is None:
                    self._spawn(self._go_on(response))
        finally:
            self._has_resumed.set()

    async def wait(self) -> None:
        """Until what the last process has left is there."""
        await self._has_resumed.wait()

    async def _go_on(self, response: SavedResponse) -> None:
        assert self.asker is not None
        parts = await self._saved.parts(response.name)
        tokens: list[int] = []
        places: dict[int, tuple[float, ...]] = {}
        steps: list[int | None] = []
        for part in parts:
            for _, token, *more in msgspec.json.decode(part.tokens):
                tokens.append(token)
                places |= {0: more[0]} if more else {}
                steps.append(more[1] if len(more) > 1 else None)
        count = parts[-1].number + parts[-1].events.count(b"\n\n") if parts else 0
        told = ToldBefore(count, {0: tuple(tokens)}, places, {0: tuple(steps)})
        written = msgspec.json.encode(told)
        self._told[response.name] = parts
        headers = (
            (RELAY.encode(), f"{response.name} {response.created_at}".encode()),
            (WRITTEN.encode(), str(len(written)).encode()),
        )
        account = self._account_of(response.account)
        body = written + response.body
        gone = asyncio.Event()
        reply = await self.asker.post(_PATH, body, account, response.owner, gone, headers)
        while reply is not None and reply.status in _LATER:
            await asyncio.sleep(_AGAIN_S)
            reply = await self.asker.post(_PATH, body, account, response.owner, gone, headers)
        if reply is None or reply.status >= 400:
            _log.warning("a response cannot go on", response=response.name)
            await self._saved.drop(response.name)
        else:
            _log.info("a response goes on", response=response.name, tokens=len(tokens))

    async def _run(self, exchange: ResponseExchange, scope: Any, receive: Any, send: Any) -> None:
        try:
            await exchange.run(scope, receive, send)
        finally:
            self._recordings.pop(exchange.name).write()
            reply = self._stored.reply_of_ended(f"resp_{exchange.name}")
            if reply is not None:
                self._spawn(self._saved.end(exchange.name, reply))

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, WorkerError):
            _log.warning("a response is not written down", why=str(error))
        elif error is not None:
            _log.error("a response is not written down", exc_info=error)


class _Recording:
    """What of one response is not written yet."""

    def __init__(
        self, saved: SavedResponses, kept: KeptStream, spawn: Callable[[Any], None]
    ) -> None:
        self._saved, self._kept, self._spawn = saved, kept, spawn
        self._begin = self._stop = kept.stop
        self._tokens: list[Any] = []
        self._timer: asyncio.TimerHandle | None = None

    def note(self, mark: bytes) -> None:
        """The events so far hold this token, too."""
        if told := msgspec.json.decode(mark):
            self._tokens.append(told)
        self._stop = self._kept.stop
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PERIOD_S, self.write)

    def write(self) -> None:
        """All that is known, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stop == self._begin and not self._tokens:
            return
        begin = max(self._begin, self._kept.first)
        events = self._kept.since(begin)[: self._stop - begin]
        part = SavedPart(begin, b"".join(events), msgspec.json.encode(self._tokens))
        self._begin, self._tokens = self._stop, []
        self._spawn(self._saved.add_part(self._kept.id, part))

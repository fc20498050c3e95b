"""One connection to a worker: a request out, its answer back in parts, as they come.

The parts go from the socket's callback to whoever takes them. No task wakes up for a token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from httptools import HttpParserError, HttpResponseParser

HeaderList = list[tuple[bytes, bytes]]
Sink = Callable[[bytes], None]


class LostError(Exception):
    """The worker cannot be reached, or went away before it had answered."""


class WorkerConnection(asyncio.Protocol):
    """HTTP/1.1 by httptools, one request at a time.

    status, headers  of the answer, once `ask` has returned
    is_whole         its end is here
    heard            when something came last, by the event loop's clock; 0: nothing did
    is_given_up      it was closed because its worker says nothing
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._parser: Any = None
        self._waiting: asyncio.Future[None] | None = None
        self._sink: Sink | None = None
        self._parts: list[bytes] = []
        self._is_head = False
        self._lost: str | None = None
        self.status = 0
        self.headers: HeaderList = []
        self.is_whole = True
        self.is_given_up = False
        self.heard = 0.0

    async def ask(self, request: bytes, *, is_head: bool) -> None:
        """Send a request and wait until its answer has begun: all of its head is here, and the
        first part of its body or its end. Raises LostError.

        is_head: the answer has no body, whatever its head says of one
        """
        self.status, self.headers, self.is_whole = 0, [], False
        self._is_head = is_head
        self._parser = HttpResponseParser(self)
        self._transport.write(request)
        while not (self._parts or self.is_whole):
            await self._news()

    async def pass_to(self, sink: Sink) -> None:
        """Give all parts of the answer's body to `sink`. Raises LostError."""
        self._sink = sink
        self._deliver()
        while not self.is_whole:
            await self._news()

    async def _news(self) -> None:
        """Wait until the answer has begun, or is whole. Raises LostError."""
        if self._lost is not None:
            raise LostError(self._lost)
        self._waiting = self._loop.create_future()
        await self._waiting

    @property
    def can_be_used(self) -> bool:
        """For another request."""
        return self.is_whole and self._lost is None and not self._transport.is_closing()

    def rest(self) -> None:
        """Nothing is asked at the moment."""
        self._sink = self._parser = None
        self._transport.resume_reading()

    def close(self, why: str = "closed") -> None:
        """At once."""
        self._lost = self._lost or why
        self._transport.abort()

    def give_up(self) -> None:
        """Its worker says nothing."""
        self.is_given_up = True
        self.close("the worker says nothing")

    def pause_reading(self) -> None:
        """Let nothing come for now."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Let it come again."""
        self._transport.resume_reading()

    def connection_made(self, transport: Any) -> None:
        """It is open."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Parse, and pass on what is of the body."""
        self.heard = self._loop.time()
        if self._parser is None:
            self.close("the worker speaks unasked")
            return
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self.close(f"the worker speaks no HTTP: {error}")
        self._deliver()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self._lost = self._lost or str(exc or "the worker has closed the connection")
        waiting = self._waiting
        if waiting is not None and not waiting.done():
            waiting.set_exception(LostError(self._lost))

    def _deliver(self) -> None:
        parts = self._parts
        if parts and self._sink is not None:
            self._sink(parts[0] if len(parts) == 1 else b"".join(parts))
            parts.clear()
        waiting = self._waiting
        # Who waits without a sink waits for the beginning.
        if (self.is_whole or (parts and self._sink is None)) and waiting and not waiting.done():
            waiting.set_result(None)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header of the answer."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head has ended; another one follows a status such as 100."""
        self.status = self._parser.get_status_code()
        if self.status < 200:
            self.headers = []
        elif self._is_head:
            self.is_whole = True
            self._parser = None  # it would wait for the body: this connection has had its day

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """The body has ended."""
        if self.status >= 200:
            self.is_whole = True

"""HTTP/1.1 as uvicorn speaks it by httptools, with the limits that uvicorn leaves open.

The only module that knows private parts of uvicorn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from socket import AF_UNIX
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from worker import log
from worker.http.connections import GUEST, WIRE, Connection, Connections
from worker.http.replies import AtOnce, WholeAnswer
from worker.limits import DROPPED, HEADERS, PATH, PIPELINED

# What a client must take in its time; less is as good as nothing.
_TAKEN = 16_384
# The peer of a socket that is a file, which has no address.
_HERE = ("127.0.0.1", 0)


class Wire:
    """The body of an answer, written straight to its connection: the parts between ASGI's
    `http.response.start` and a last, empty message.

    An ASGI message for each part wakes up the task that sends it. Who has the parts in a callback
    already writes them from there: a stream's exchange.
    """

    def __init__(self, cycle: RequestResponseCycle) -> None:
        """cycle: uvicorn's request and answer"""
        self._cycle = cycle

    @property
    def is_clear(self) -> bool:
        """Whether the client takes what is written."""
        return not self._cycle.flow.write_paused

    def write(self, data: bytes) -> None:
        """Send a part, which is not empty; nothing happens where the client has gone."""
        cycle = self._cycle
        if cycle.disconnected or cycle.scope["method"] == "HEAD":
            return
        if cycle.chunked_encoding:
            cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
            return
        # To HTTP/1.0 what has no length ends with the connection.
        cycle.expected_content_length = max(0, cycle.expected_content_length - len(data))
        cycle.transport.write(data)

    def cut(self) -> None:
        """End an answer that failed with its connection, so that nobody takes it for whole."""
        self._cycle.disconnected = True
        self._cycle.transport.close()


class _Outlet:
    """What an answer needs of a transport.

    Its head goes with what follows in the same turn of the event loop, in one call of the system.

    answer       whose head is to come
    close_whole  closes once the rest of the request has come
    """

    __slots__ = ("_head", "_loop", "_write", "answer", "close_whole", "is_closing")

    def __init__(self, transport: asyncio.Transport, close_whole: Callable[[], None]) -> None:
        self._write = transport.write
        self._loop = asyncio.get_running_loop()
        self.answer: RequestResponseCycle | None = None
        self._head = b""
        self.is_closing = transport.is_closing
        self.close_whole = close_whole

    def write(self, data: bytes) -> None:
        answer = self.answer
        if answer is None or not answer.response_started:  # that is `100 Continue`
            self._write(self._head + data)
            self._head = b""
            return
        self.answer = None
        if answer.scope["method"] == "HEAD":  # nothing follows
            self._write(data)
        else:
            self._head = data
            self._loop.call_soon(self._release)

    def _release(self) -> None:
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self._release()
        self.close_whole()


class Protocol(HttpToolsProtocol, Connection):
    """A connection. One that says nothing, too slowly or too much before its request is closed.

    An answer may come before its request is whole, such as a 401. The rest is read and dropped, up
    to `DROPPED`: the system resets a connection that is closed with bytes unread, and its client
    loses the answer.

    h11, uvicorn's parser in Python, takes a sixth more of the event loop's time for each token.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        connections: Connections,
        *,
        is_guest: bool,
        at_once: AtOnce | None = None,
    ) -> None:
        """at_once: answers requests before the application is asked"""
        super().__init__(config, state, {})
        self.is_guest = is_guest
        self._at_once = at_once
        self._others = connections
        self._header_bytes = 0
        self._unread = 0  # bytes since the parser last made something of them
        self._is_open = False
        self._has_head = False  # of a request that is not answered
        self._is_ending = False  # the last answer is written; the rest of its request may come
        self._dropped = 0  # bytes of a request that was answered before it was whole
        self._answering: RequestResponseCycle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if getattr(transport.get_extra_info("socket"), "family", None) == AF_UNIX:
            self.client = _HERE
        self._outlet: Any = _Outlet(transport, self._end)
        self._is_open = True
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._others.on_loss(self)
        # Of several requests uvicorn tells the last one only, and the first is being answered.
        answering = self._answering
        if answering is not None and not answering.response_complete:
            answering.disconnected = True
            answering.message_event.set()
        self.pipeline.clear()
        # A cycle through `_end` would keep both until they are collected.
        self._outlet.close_whole = self.transport.close
        # Timers would hold on to 8 kB for each connection until then.
        self._cancel_deadline()
        self._cancel_patience()

    def drop(self) -> bool:
        """Close it at once, unless its client still has to take what was written: whether so."""
        if not self._is_open or self.transport.get_write_buffer_size():
            return False
        self.transport.abort()
        return True

    def pause_writing(self) -> None:
        """Much waits for the reader, who has some time to take a part of it.

        To close is not enough: that waits until all is taken, for ever.
        """
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """The reader took most of it."""
        super().resume_writing()
        self._cancel_patience()

    def data_received(self, data: bytes) -> None:
        """Parse; refuse a header whose end does not come."""
        self._unread += len(data)
        self._unset_keepalive_if_required()
        if self._is_answered_early:
            self._dropped += len(data)
            if self._dropped > DROPPED.most << 20:
                self.transport.abort()
                return
        try:
            self._feed(data)
        except HttpParserError:
            self._refuse("Invalid HTTP request received.")
            return
        if self._unread > HEADERS.most and not self.transport.is_closing():
            self._refuse("The request's headers are too large.")
        elif not self._has_head and self._deadline is None:
            self._wait_for_head()

    def _refuse(self, why: str) -> None:
        """400, but neither into the midst of an answer nor behind the last one."""
        if self._is_ending:
            return
        answering = self._answering
        if answering and answering.response_started and not answering.response_complete:
            self.transport.abort()
            return
        fields = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(why)),
            (b"connection", b"close"),
        ]
        self.transport.write(_pack(WholeAnswer(400, fields, why.encode())))
        self._await_rest()

    @property
    def _is_answered_early(self) -> bool:
        """Whether what comes belongs to a request that has its answer."""
        answered = self._answering
        return self._is_ending or (
            answered is not None and answered.response_complete and answered.more_body
        )

    def _end(self) -> None:
        """Close, at once where the request is whole."""
        if self._answering is not None and self._answering.more_body:
            self._await_rest()
        else:
            self.transport.close()

    def _await_rest(self) -> None:
        """Say that this was all, and close once the rest has come or the client closes. It gets the
        time of a body."""
        if self._is_ending or self.transport.is_closing():
            return
        self._is_ending = True
        try:
            if self.transport.can_write_eof():  # TLS closes both ways at once
                self.transport.write_eof()
        except OSError:  # the client has gone
            self.transport.abort()
            return
        self.flow.resume_reading()
        self._cancel_deadline()
        self._deadline = self.loop.call_later(self._others.receive_s, self._close_if_silent)

    def _feed(self, data: bytes) -> None:
        """Parse. Who asks for another protocol, such as HTTP/2, is answered in this one.

        The parser takes what follows such a request's headers for that protocol's, so it gets the
        request again without the wish.
        """
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            method = self.parser.get_method()
            if method == b"CONNECT":
                raise HttpParserError("this is no proxy") from None
            lines = [method + b" " + self.url + b" HTTP/1.1"]
            lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
            self.parser = HttpRequestParser(self)
            self.parser.feed_data(b"\r\n".join([*lines, b"", b""]))
            self._feed(data[upgrade.args[0] :])

    def on_message_begin(self) -> None:
        self._header_bytes = self._unread = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Raises ValueError: the parser answers 400 and closes."""
        self._count(url)
        if self._header_bytes > PATH.most:
            raise ValueError("too long a path")  # the parser answers 400 and closes
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or one after a body in chunks."""
        self._count(name + value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Raises ValueError, as `on_url`."""
        self._unread = 0
        if self.parser.should_upgrade() or self._is_ending:
            return  # it comes again, see `_feed`; or nobody answers it
        if len(self.pipeline) >= PIPELINED.most:
            raise ValueError("too many requests before an answer")
        self._has_head = True
        self._cancel_deadline()
        self._others.sends(self)
        if self.is_guest:
            self.scope[GUEST] = True  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0":
            self.cycle.__class__ = _UnframedCycle
        elif self.expect_100_continue:
            self.cycle.__class__ = _ExpectingCycle

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread = 0
        if self.parser.should_upgrade():
            return
        if self._is_ending:
            self.transport.close()
        elif self._answering is not None and self._is_answered_early:
            self._answering.more_body = False
            self._dropped = 0
            self._cancel_deadline()
        else:
            self._others.waits(self)
            super().on_message_complete()

    def shutdown(self) -> None:
        """The server stops: close once the last answer is written."""
        if self._is_answered_early:
            self._await_rest()
        else:
            super().shutdown()

    def on_response_complete(self) -> None:
        self._has_head = bool(self.pipeline)
        if not self._has_head:
            self._others.rests(self)
        super().on_response_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        cycle.transport = self._outlet
        self._outlet.answer = cycle
        if self.is_guest:
            cycle.keep_alive = False
        cycle.scope[WIRE] = Wire(cycle)  # type: ignore[typeddict-unknown-key]
        # Of its own: a request in a pipeline begins where the one before it ends.
        copy_context().run(self._begin, cycle, app)

    def _begin(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Answer at once, or let a task do it; it also waits for a reader who takes nothing."""
        answer = None
        if self._at_once is not None and not self.flow.write_paused:
            answer = self._at_once(cycle.scope)
        if answer is None:
            super()._start_asgi_task(cycle, app)
        else:
            self._write(cycle, answer)

    def _write(self, cycle: RequestResponseCycle, answer: WholeAnswer) -> None:
        """All of an answer, in one call of the system."""
        fields = [*cycle.default_headers, *answer.fields]
        if cycle.waiting_for_100_continue:  # see `_ExpectingCycle`
            cycle.keep_alive = False
        if not cycle.keep_alive:
            fields.append((b"connection", b"close"))
        body = b"" if cycle.scope["method"] == "HEAD" else answer.body
        cycle.response_started = cycle.response_complete = True
        self.transport.write(_pack(WholeAnswer(answer.status, fields, body)))
        if not cycle.keep_alive:
            self._end()
        cycle.on_response()

    def _count(self, data: bytes) -> None:
        self._unread = 0
        self._header_bytes += len(data)
        if self._header_bytes > HEADERS.most:
            raise ValueError("too many header bytes")  # the parser answers 400 and closes

    def _wait_for_reader(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._patience = self.loop.call_later(self._others.send_s, self._drop_reader, left)

    def _drop_reader(self, left: int) -> None:
        if self.transport.get_write_buffer_size() <= left - _TAKEN:
            self._wait_for_reader()
        else:
            log.get("service").info("a reader stopped reading; its connection was closed")
            self.transport.abort()

    def _cancel_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _wait_for_head(self) -> None:
        self._deadline = self.loop.call_later(self._others.receive_s, self._close_if_silent)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close_if_silent(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


class _UnframedCycle(RequestResponseCycle):
    """An answer to HTTP/1.0, which knows no chunks: where no length is known, its end is the
    connection's."""

    async def send(self, message: Any) -> None:  # type: ignore[override]
        """Pass on what has a length; write the rest as it comes."""
        if message["type"] == "http.response.start":
            if not any(name.lower() == b"content-length" for name, _ in message["headers"]):
                self.chunked_encoding = False
        elif not self.expected_content_length:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


class _ExpectingCycle(RequestResponseCycle):
    """An answer to who sends the body once it is asked for (`Expect: 100-continue`). Where the
    answer comes first nobody can tell whether the body still will, so it is the last one
    (RFC 9110, 10.1.1)."""

    async def send(self, message: Any) -> None:  # type: ignore[override]
        if self.waiting_for_100_continue:
            self.keep_alive = False
        await super().send(message)


def _pack(answer: WholeAnswer) -> bytes:
    lines = [name + b": " + value + b"\r\n" for name, value in answer.fields]
    return b"".join([STATUS_LINE[answer.status], *lines, b"\r\n", answer.body])

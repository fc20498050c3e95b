"""HTTP/1.1 as uvicorn speaks it by httptools, with the limits that uvicorn leaves open."""

from __future__ import annotations

import asyncio
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

# A first request's headers must be here by then.
HEADER_TIMEOUT_S = 30.0
# Headers of one request, their names, values and the path; as with uvicorn's other parser.
MAX_HEADER_BYTES = 65_536
# Who takes nothing for so long of what waits for it is gone.
WRITE_TIMEOUT_S = 60.0


class Protocol(HttpToolsProtocol):
    """A connection. One that says nothing, too slowly or too much before its request is closed.

    h11, uvicorn's parser in Python, takes a sixth more of the event loop's time for each token.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._has_asked = False
        self._header_bytes = 0
        self._unread = 0  # bytes since the parser last made something of them
        self._deadline = self.loop.call_later(HEADER_TIMEOUT_S, self._close_if_silent)
        self._patience: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._deadline.cancel()  # it would hold on to 8 kB for each connection until then
        self._cancel_patience()

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
        try:
            self._feed(data)
        except HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
            return
        if self._unread > MAX_HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response("The request's headers are too large.")

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
        """A request begins."""
        self._header_bytes = self._unread = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A piece of the path."""
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or one after a body in chunks."""
        self._count(name + value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The request can be answered."""
        self._unread = 0
        if self.parser.should_upgrade():
            return  # it comes again, see `_feed`
        self._has_asked = True
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0":
            self.cycle.__class__ = _UnframedCycle

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The body has ended."""
        self._unread = 0
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _count(self, data: bytes) -> None:
        self._unread = 0
        self._header_bytes += len(data)
        if self._header_bytes > MAX_HEADER_BYTES:
            raise ValueError("too many header bytes")  # the parser answers 400 and closes

    def _wait_for_reader(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._patience = self.loop.call_later(WRITE_TIMEOUT_S, self._drop_reader, left)

    def _drop_reader(self, left: int) -> None:
        if self.transport.get_write_buffer_size() < left:
            self._wait_for_reader()
        else:
            self.transport.abort()

    def _cancel_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _close_if_silent(self) -> None:
        if not (self._has_asked or self.transport.is_closing()):
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

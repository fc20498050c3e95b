"""One request of a client: what it asks for, its body, and whether the client is still there."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from worker.api.common.body import SlowBodyError
from worker.api.common.shapes.by_path import shaped
from worker.errors import LeftError, TooLargeError, WorkerError
from worker.fleet.front.asked import BodyHead, asked_of
from worker.fleet.front.connection import HeaderList
from worker.http import paths, sse
from worker.http.connections import WIRE
from worker.http.ids import ids_of
from worker.http.replies import reply_of_ours
from worker.http.wire import Wire
from worker.limits import BODY, RECEIVE


class ClientCall:
    """An ASGI request and its way back.

    path     decoded, for comparisons; `target` is path and query as the client wrote them
    status   of the answer, once one has begun
    ids      of the request: its client's own, or ours
    wire     for the parts of an answer that somebody else makes
    is_last  the connection is closed after the answer
    is_waiting  a stream was opened to say that there is nothing to say yet
    """

    def __init__(self, scope: Any, receive: Any, send: Any) -> None:
        self._receive = receive
        self._send = send
        self.wire: Wire = scope.pop(WIRE)  # it holds the scope: neither would be freed at once
        self.is_last = False
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        raw = scope.get("raw_path") or scope["path"].encode()
        query: bytes = scope.get("query_string", b"")
        self._raw = raw.decode("latin-1")
        self._query = f"?{query.decode('latin-1')}" if query else ""
        self.headers: HeaderList = list(scope["headers"])
        self.ids = ids_of(self.headers)
        self._id = (_ID, self.ids["x-request-id"].encode("latin-1"))
        # One id, whichever replica is asked.
        self.headers = [*(field for field in self.headers if field[0] != _ID), self._id]
        self.body = b""
        self.asked = BodyHead()
        self.status: int | None = None
        self.is_waiting = False

    @property
    def target(self) -> str:
        """What a worker is asked for."""
        return self._raw + self._query

    def strip(self, parts: int) -> None:
        """Forget the first `parts` parts of the path: they have chosen the replica."""
        for _ in range(parts):
            self.path = "/" + self.path[1:].partition("/")[2]
            self._raw = "/" + self._raw[1:].partition("/")[2]

    def header(self, name: bytes) -> str | None:
        """The first header of that name, or None."""
        return next((value.decode("latin-1") for key, value in self.headers if key == name), None)

    async def read(self) -> None:
        """Read the body. Raises TooLargeError, SlowBodyError, LeftError."""
        body = self.wire.whole_body()
        self.body = await self._received() if body is None else body
        _check_size(self.body)
        self.asked = asked_of(self.body) if self.body else BodyHead()

    async def _received(self) -> bytes:
        """A body that is on its way."""
        data = bytearray()
        try:
            async with asyncio.timeout(RECEIVE.most):
                more = True
                while more:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise LeftError("The client left before its body was whole.")
                    data += message.get("body", b"")
                    more = message.get("more_body", False)
                    _check_size(data)
        except TimeoutError:
            raise SlowBodyError(f"The body did not arrive in {RECEIVE.most} s.") from None
        return bytes(data)

    async def left(self) -> None:
        """Return once the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def begin(self, status: int, headers: HeaderList) -> None:
        """Send the answer's head, unless the client has got one while it waited."""
        if self.is_waiting:
            self.is_waiting = False
            return
        self.status = status
        if self.is_last:
            headers = [*headers, (b"connection", b"close")]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def say(self, data: bytes, *, more: bool = True) -> None:
        """Send a part of its body."""
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def answer(self, status: int, body: bytes, headers: HeaderList) -> None:
        """Send an answer at once; into a stream that waits it goes as the last event, an error."""
        if self.is_waiting:
            name = "error" if self.path.startswith(paths.MESSAGES) else ""
            await self.say(sse.frame(msgspec.Raw(body), name=name), more=False)
            return
        fields = [field for field in headers if field[0] != b"content-length"]
        if not any(name == _ID for name, _ in fields):
            fields.append(self._id)
        await self.begin(status, [*fields, (b"content-length", str(len(body)).encode())])
        await self.say(b"" if self.method == "HEAD" else body, more=False)

    async def say_waiting(self) -> None:
        """Tell the client of a stream of events that its answer takes time; no other is told."""
        if self.asked.stream is not True or self.path.startswith(paths.OLLAMA):
            return
        if self.status is None:
            await self.begin(
                200,
                [(b"content-type", sse.CONTENT_TYPE), (b"cache-control", b"no-cache"), self._id],
            )
            self.is_waiting = True
        await self.say(sse.COMMENT)

    async def answer_json(self, value: object, status: int = 200) -> None:
        """The same for a value."""
        await self.answer(status, msgspec.json.encode(value), [_JSON])

    async def refuse(self, error: WorkerError) -> None:
        """Send an error in the shape of the API that was asked."""
        status, reply, headers = reply_of_ours(error)
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]
        body = msgspec.json.encode(shaped(self.path, status, reply))
        await self.answer(status, body, [*fields, _JSON])


def _check_size(body: bytes | bytearray) -> None:
    if len(body) > BODY.most << 20:
        raise TooLargeError(f"The body is larger than {BODY.most} MiB.")


_ID = b"x-request-id"
_JSON = (b"content-type", b"application/json")

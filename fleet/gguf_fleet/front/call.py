"""One request of a client: what it asks for, its body, and the way back."""

from __future__ import annotations

import asyncio
import uuid

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from gguf_fleet.errors import RefusedError
from gguf_fleet.front.asked import BodyHead, head_of, unpack
from gguf_fleet.front.partial import HEADER, WRITTEN, PartialAnswer, is_streamed
from gguf_fleet.front.refusals import MESSAGES, OLLAMA, headers_of, refusal_reply

# What a worker reads at most, and how long it waits for it.
BODY_BYTES = 16 << 20
_BODY_S = 30.0
_MOST_ID = 256
_ID = "x-request-id"
_CORRELATION = "x-correlation-id"
EVENTS = "text/event-stream"
_COMMENT = b":\n\n"  # readers of events skip it


class ClientCall:
    """A request and its answer.

    path     decoded, for comparisons; `target` is path and query as the client wrote them
    status   of the answer, once one has begun
    ids      of the request: its client's own, or ours
    is_waiting  a stream was opened to say that there is nothing to say yet
    plain_body, partial
                of a stream that can go on at another replica: its body unpacked, and what the
                client has of it
    """

    def __init__(self, request: web.Request, *, is_last: bool = False) -> None:
        """is_last: the connection is closed after the answer"""
        self._request = request
        self._is_last = is_last
        self._out: web.StreamResponse | None = None
        self.method = request.method
        self.path = request.path
        self._raw, mark, query = request.raw_path.partition("?")
        self._query = mark + query
        self.headers = request.headers.copy()
        for name in (HEADER, WRITTEN):  # the relay's own
            self.headers.popall(name, None)
        self.ids = _ids_of(self.headers)
        # One id, whichever replica is asked.
        self.headers[_ID] = self.ids["request_id"]
        self.body = b""
        self.plain_body = b""
        self.asked = BodyHead()
        self.is_waiting = False
        self.partial: PartialAnswer | None = None

    @property
    def status(self) -> int | None:
        return None if self._out is None else self._out.status

    @property
    def target(self) -> str:
        return self._raw + self._query

    @property
    def out(self) -> web.StreamResponse:
        assert self._out is not None
        return self._out

    def strip(self, parts: int) -> None:
        """Forget the first `parts` parts of the path: they have chosen the replica."""
        for _ in range(parts):
            self.path = "/" + self.path[1:].partition("/")[2]
            self._raw = "/" + self._raw[1:].partition("/")[2]

    async def read(self) -> None:
        """Read the body. Raises RefusedError."""
        try:
            async with asyncio.timeout(_BODY_S):
                self.body = await self._request.read()
        except TimeoutError:
            raise RefusedError(408, f"The body did not arrive in {_BODY_S:.0f} s.") from None
        except web.HTTPRequestEntityTooLarge:
            raise RefusedError(413, f"The body is larger than {BODY_BYTES >> 20} MiB.") from None
        if self.body:
            plain = unpack(self.body, self.headers.get("content-encoding", ""), BODY_BYTES)
            self.asked = head_of(plain, self.headers.get("content-type", ""))
            if plain and is_streamed(self.method, self.path, self.asked.stream):
                self.plain_body, self.partial = plain, PartialAnswer()
        else:
            self.asked = BodyHead()

    async def begin(self, status: int, headers: CIMultiDict[str]) -> None:
        """Send the answer's head, unless the client has got one already."""
        if self.is_waiting or self._out is not None:
            self.is_waiting = False
            return
        out = web.StreamResponse(status=status, headers=headers)
        if self._is_last:
            out.force_close()
        await out.prepare(self._request)
        self._out = out

    def cut(self) -> None:
        """End the connection in the middle of the answer: it will not be whole."""
        if self._request.transport is not None:
            self._request.transport.close()

    async def answer(self, status: int, body: bytes, headers: CIMultiDict[str]) -> None:
        """Send an answer at once; into a stream that waits it goes as the last event, an error."""
        if self.is_waiting:
            self.is_waiting = False
            await self.out.write_eof(event_of(self.path, body))
            return
        if self._out is not None:  # blanks of an answer that another replica did not give
            await self.out.write(body)
            self.cut()
            return
        headers = headers.copy()
        headers.setdefault(_ID, self.ids["request_id"])
        headers["content-length"] = str(len(body))
        await self.begin(status, headers)
        await self.out.write_eof(b"" if self.method == "HEAD" else body)

    async def say_waiting(self) -> None:
        """Tell the client of a stream of events that its answer takes time; no other is told."""
        if self.asked.stream is not True or self.path.startswith(OLLAMA):
            return
        if self._out is None:
            kind = f"{EVENTS}; charset=utf-8"
            head = {"content-type": kind, "cache-control": "no-cache", _ID: self.ids["request_id"]}
            await self.begin(200, CIMultiDict(head))
            self.is_waiting = True
        await self.say(_COMMENT)

    async def say(self, comment: bytes) -> None:
        """Write a comment into a stream of events that has begun."""
        if self.asked.stream is True and not self.path.startswith(OLLAMA):
            await self.out.write(comment)

    async def answer_json(self, value: object, status: int = 200) -> None:
        await self.answer(status, msgspec.json.encode(value), CIMultiDict(_JSON))

    async def refuse(self, error: RefusedError) -> None:
        """Send an error in the shape of the API that was asked."""
        body = msgspec.json.encode(refusal_reply(self.path, error, self.ids))
        await self.answer(error.status, body, CIMultiDict({**headers_of(error), **_JSON}))


def event_of(path: str, body: bytes) -> bytes:
    """An error as the last event of a stream; only some readers want a name."""
    name = b"event: error\n" if path.startswith(MESSAGES) else b""
    return b"%bdata: %b\n\n" % (name, body)


def _ids_of(headers: CIMultiDict[str]) -> dict[str, str]:
    """The client's own ids where it sent printable ones, and a request id in any case."""
    found = {"request_id": f"req-{uuid.uuid4().hex}"}
    for field, name in (("request_id", _ID), ("correlation_id", _CORRELATION)):
        text = headers.get(name, "")
        if 0 < len(text) <= _MOST_ID and text.isprintable():
            found[field] = text
    return found


_JSON = {"content-type": "application/json"}

"""One request's way back: an ASGI application that notices when its client leaves."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import msgspec

from worker import log
from worker.engine.stream import Stream
from worker.service import sse
from worker.service.errors import reply_of
from worker.service.front.replies import ErrorReply

# A reader that takes nothing for this long, or up to twice as long, is gone; its connection is not
# held for ever.
WRITE_TIMEOUT_S = 60.0


class Exchange(ABC):
    """Answers with JSON or with server-sent events, from the deltas of one Stream.

    Litestar does not cancel a plain handler when its client leaves, and what a cancelled
    generator does after its first `await` never runs. So this watches `receive` itself, and the
    engine owns the slot: leaving early is one synchronous, idempotent `Stream.close()`.
    """

    closing: ClassVar[bytes] = sse.DONE  # what ends every stream of events

    def __init__(self, stream: Stream, *, streaming: bool) -> None:
        self.stream = stream
        self.streaming = streaming
        self._num_parts = 0  # begun to write
        self._is_writing = False

    @abstractmethod
    def frames(self) -> AsyncIterator[bytes]:
        """The events of a streamed answer, without what closes it."""

    @abstractmethod
    async def body(self) -> object:
        """The whole answer at once."""

    def error_reply(self, error: Exception) -> tuple[int, ErrorReply, dict[str, str]]:
        """(status, body, headers) of an error before the first event."""
        return reply_of(error)

    def failure(self, error: Exception) -> bytes:
        """The event that tells of an error after the first event."""
        return sse.frame(self.error_reply(error)[1])

    async def __call__(self, _scope: Any, receive: Any, send: Any) -> None:
        """Answer, or stop as soon as the client has left."""
        answer = asyncio.ensure_future(self._answer(send))
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            seen = -1
            while not (answer.done() or gone.done()):
                if self._is_stuck_since(seen):
                    log.get("service").info("a reader stopped reading; its stream was closed")
                    break
                seen = self._num_parts
                await asyncio.wait(
                    {answer, gone}, timeout=WRITE_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            self.stream.close()
            for task in (answer, gone):
                if not task.done():
                    task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await answer

    def _is_stuck_since(self, num_parts: int) -> bool:
        """Whether the part that was being written when there were so many still is."""
        return self._is_writing and self._num_parts == num_parts

    async def _answer(self, send: Any) -> None:
        started = False
        try:
            if not self.streaming:
                await self._send_json(send, 200, msgspec.json.encode(await self.body()), {})
                return
            async for frame in self.frames():
                if not started:  # the status waits for the first token: errors keep theirs
                    started = True
                    await send(_START_SSE)
                await self._send_part(send, frame)
            if not started:  # an answer without any text
                started = True
                await send(_START_SSE)
            await self._send_part(send, self.closing, more=False)
        except Exception as error:  # noqa: BLE001  (whatever it is, the client must be told)
            status, reply, headers = self.error_reply(error)
            if status == 500:
                log.get("service").exception("an answer failed", exc_info=error)
            if started:
                await self._send_part(send, self.failure(error) + self.closing, more=False)
            else:
                await self._send_json(send, status, msgspec.json.encode(reply), headers)

    async def _send_part(self, send: Any, body: bytes, *, more: bool = True) -> None:
        # A timer for each part would cost as much as the part.
        self._num_parts += 1
        self._is_writing = True
        await send({"type": "http.response.body", "body": body, "more_body": more})
        self._is_writing = False

    async def _send_json(
        self, send: Any, status: int, body: bytes, headers: dict[str, str]
    ) -> None:
        fields = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *((name.encode(), value.encode()) for name, value in headers.items()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await self._send_part(send, body, more=False)


_START_SSE = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", sse.CONTENT_TYPE),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ],
}


async def _until_gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

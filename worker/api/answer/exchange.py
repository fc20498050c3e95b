"""One request's way back: an ASGI application that notices when its client leaves."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

import msgspec

from worker import log
from worker.api.answer.errors import reply_of
from worker.api.answer.kept_stream import (
    MARKED,
    ExchangeRun,
    KeptStream,
    KeptStreams,
    StreamReading,
)
from worker.api.answer.marks import Marks
from worker.api.intake.body import until_gone
from worker.api.intake.delivery import DIRECT, Delivery
from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.errors import CancelledError
from worker.http import sse
from worker.http.connections import WIRE
from worker.http.protocol import Wire
from worker.http.replies import ErrorReply
from worker.requests.record import current, note

# Browsers and agents give up on a stream that says nothing, while a CPU reads a long prompt.
PULSE_S = 1.0
# Gateways give up on an answer that does not begin in 60 s, Node in 300.
WHOLE_S = 45.0
# Codes of errors at which a relay asks another worker.
_ELSEWHERE = frozenset({"draining", "ENGINE_FAILED"})


class Exchange(ABC):
    """Answers with JSON or with server-sent events, from the deltas of one Stream.

    Litestar does not cancel a plain handler when its client leaves, and what a cancelled
    generator does after its first `await` never runs. So this watches `receive` itself, and the
    engine owns the slot: leaving early is one synchronous, idempotent `Stream.close()`.
    """

    content_type: ClassVar[bytes] = sse.CONTENT_TYPE  # of a stream
    closing: ClassVar[bytes] = sse.DONE  # what ends every stream of events
    more_fields: tuple[tuple[bytes, bytes], ...] = ()  # of the head of a stream
    whole_type = b"application/json"  # of a whole answer
    _wire: Wire | None = None
    _pulse: asyncio.Task[None] | None = None

    def __init__(self, stream: Stream, *, streaming: bool) -> None:
        self.stream = stream
        self.streaming = streaming
        record = current()
        if record is not None:
            record.streaming = streaming
        stream.wants_all = not streaming
        self._has_started = False  # the status was sent
        self._has_ended = False  # the last part was
        self._num_parts = 0  # begun to write
        self._num_writing = 0

    def pulse(self) -> bytes:
        """What a stream says each second while it has no event."""
        return sse.COMMENT

    @abstractmethod
    def frames(self) -> AsyncIterator[bytes]:
        """The events of a streamed answer, without what closes it."""

    @abstractmethod
    async def body(self) -> object:
        """The whole answer at once."""

    def pack(self, body: object) -> bytes:
        """The bytes of a whole answer."""
        return msgspec.json.encode(body)

    def error_reply(self, error: Exception) -> tuple[int, ErrorReply, dict[str, str]]:
        """(status, body, headers) of an error before the first event."""
        return reply_of(error)

    def error_body(self, _status: int, reply: ErrorReply) -> msgspec.Struct:
        """An error's body in the shape that the API has for it."""
        return reply

    def breaks_off(self, _error: Exception) -> bool:
        """Whether a stream that has begun just ends at this error: others go on with it."""
        return False

    def failure(self, error: Exception) -> bytes:
        """The event that tells of an error after the first event."""
        status, reply, _ = self.error_reply(error)
        return sse.frame(self.error_body(status, reply))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer, or stop as soon as the client has left."""
        self._wire = scope.get(WIRE)
        task = asyncio.current_task()
        assert task is not None
        is_left = is_over = False

        def leave(_: object) -> None:
            nonlocal is_left
            if not is_over:
                is_left = True
                task.cancel()

        gone = asyncio.ensure_future(until_gone(receive))
        gone.add_done_callback(leave)
        first_s = PULSE_S / 2 if self.streaming else WHOLE_S  # the first within a second
        self._timer = asyncio.get_running_loop().call_later(first_s, self._keep_alive, send, 0)
        try:
            await self._answer(send)
        except asyncio.CancelledError:
            if not is_left or task.uncancel():  # somebody else cancels it
                raise
        finally:
            is_over = True
            self.stream.close()
            self._timer.cancel()
            if self._pulse is not None:
                self._pulse.cancel()
            gone.cancel()
            self._wire = None

    def _keep_alive(self, send: Any, seen: int) -> None:
        """Say so each second while there is no event. Whoever stops reading is let go below.

        Before a whole answer, which is JSON, there may be blanks.

        seen  parts that there were a second ago
        """
        if seen == self._num_parts and not self._num_writing:
            # A task: nobody waits for a reader that stopped.
            self._pulse = asyncio.ensure_future(self._say_something(send))
        self._timer = asyncio.get_running_loop().call_later(
            PULSE_S, self._keep_alive, send, self._num_parts
        )

    async def _say_something(self, send: Any) -> None:
        if not self._num_writing and not self._has_ended:
            await self._send_event(send, self.pulse() if self.streaming else b" ")

    async def _answer(self, send: Any) -> None:
        try:
            if not self.streaming:
                await self._send_json(send, 200, self.pack(await self.body()), {})
                return
            async for frame in self.frames():
                await self._send_event(send, frame)
            await self._send_event(send, self.closing, more=False)
        except Exception as error:  # noqa: BLE001  (whatever it is, the client must be told)
            status, reply, headers = self.error_reply(error)
            note(error)
            if status == 500:
                log.get("service").exception("an answer failed", exc_info=error)
            if self._has_started and self.breaks_off(error) and self._wire is not None:
                self._wire.cut()
            elif self._has_started and self.streaming:
                await self._send_event(send, self.failure(error) + self.closing, more=False)
            else:
                body = msgspec.json.encode(self.error_body(status, reply))
                await self._send_json(send, status, body, headers)

    async def _send_event(self, send: Any, event: bytes, *, more: bool = True) -> None:
        # The status waits for the first event or pulse: errors before that keep theirs.
        if not self._has_started:
            self._has_started = True
            fields = [
                (b"content-type", self.content_type if self.streaming else self.whole_type),
                (b"cache-control", b"no-cache"),
                (b"x-accel-buffering", b"no"),
                *self.more_fields,
            ]
            await send({"type": "http.response.start", "status": 200, "headers": fields})
        await self._send_part(send, event, more=more)

    async def _send_part(self, send: Any, body: bytes, *, more: bool = True) -> None:
        # A timer for each part would cost as much as the part.
        self._num_parts += 1
        self._num_writing += 1
        self._has_ended = not more
        await send({"type": "http.response.body", "body": body, "more_body": more})
        self._num_writing -= 1

    async def _send_json(
        self, send: Any, status: int, body: bytes, headers: dict[str, str]
    ) -> None:
        if self._has_started:  # with 200
            if status == 200 or self._wire is None:
                await self._send_part(send, body, more=False)
            else:
                await self._send_part(send, body)
                self._wire.cut()
            return
        self._has_started = True
        fields = [
            (b"content-type", self.whole_type if status == 200 else b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *((name.encode(), value.encode()) for name, value in headers.items()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await self._send_part(send, body, more=False)


class DeltaExchange(Exchange):
    """An exchange whose events are those of each delta, and some behind the last one.

    Deltas in the midst of a stream are told as they come, past the task that answers: waking
    it, and what wraps what it sends, would take most of the event loop's time for a token.
    """

    def __init__(self, stream: Stream, *, streaming: bool, delivery: Delivery = DIRECT) -> None:
        super().__init__(stream, streaming=streaming)
        self.delivery = delivery
        self._marks: Marks | None = None
        if streaming and delivery.relay is not None:
            border = sse.BORDERS[self.content_type]
            self._marks = Marks(delivery.relay, stream.ids, border)
            self.more_fields = ((MARKED, b"on"),)

    @property
    def name(self) -> str:
        """Of the answer, for its id."""
        relay = self.delivery.relay
        return self.stream.ids[0].rpartition("-")[0] if relay is None else relay.name

    @property
    def created(self) -> int:
        """When it was asked for, in seconds since the epoch."""
        relay = self.delivery.relay
        return int(time.time()) if relay is None else relay.created

    def _events_of(self, delta: Delta) -> list[bytes]:
        if self._marks is None:
            return self.frames_of(delta)
        return self._marks.events_of(delta, self.frames_of, self.catch_up)

    def catch_up(self, num_told: int) -> None:
        """Another worker has told so many events, with all tokens that were taken so far."""

    def breaks_off(self, error: Exception) -> bool:
        """What leaves or fails as a whole has another worker to go on."""
        return self._marks is not None and getattr(error, "code", None) in _ELSEWHERE

    @abstractmethod
    def frames_of(self, delta: Delta) -> list[bytes]:
        """The events of one delta of a streamed answer."""

    def last_frames(self) -> list[bytes]:
        """The events behind those of the last delta."""
        return []

    @abstractmethod
    def take(self, delta: Delta) -> object:
        """Note a delta; what it adds."""

    @abstractmethod
    def whole(self) -> object:
        """The whole answer, once all deltas were taken."""

    async def body(self) -> Any:
        while self.stream.is_running:
            for delta in await self.stream.take():
                self.take(delta)
                if delta.prompt_logprobs:
                    await asyncio.sleep(0)  # a long prompt's take milliseconds
        return self.whole()

    async def frames(self) -> AsyncIterator[bytes]:
        while self.stream.is_running:
            for delta in await self.stream.take():
                for event in self._events_of(delta):
                    yield event
        for event in self.last_frames():
            yield event

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.streaming and self.delivery.resumes:
            streams: KeptStreams = scope["litestar_app"].state["streams"]
            kept = self.keep(streams)
            await StreamReading(streams, kept, kept.first)(scope, receive, send)
        else:
            await self.run(scope, receive, send)

    def keep(
        self, streams: KeptStreams, *, outlives: bool = False, run: ExchangeRun | None = None
    ) -> KeptStream:
        """Its events, which it tells from now on.

        outlives  whoever reads them
        run       instead of its own
        """
        relay = self.delivery.relay
        return streams.open(
            self.name,
            self.delivery.owner,
            run or self.run,
            lambda: self.stream.fail(CancelledError("The stream was cancelled.")),
            outlives=outlives,
            first=0 if relay is None else relay.told.events,
        )

    async def run(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer this client."""
        if self.streaming and WIRE in scope:
            self.stream.direct = self._tell_at_once
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.stream.direct = None

    async def _say_something(self, send: Any) -> None:
        if self._marks is None:
            await super()._say_something(send)
        elif not self._num_writing and not self._has_ended:
            await self._send_event(send, self.pulse() + self._marks.empty)

    def _tell_at_once(self, deltas: Sequence[Delta]) -> bool:
        """False where the status was not sent yet, or a slow reader is to be waited for."""
        wire = self._wire
        if wire is None or not self._has_started or not wire.is_clear:
            return False
        events: list[bytes] = []
        try:
            for delta in deltas:
                events += self._events_of(delta)
        finally:  # what was told before one that cannot be is not lost
            if events:
                self._num_parts += 1
                wire.write(b"".join(events))
        return True

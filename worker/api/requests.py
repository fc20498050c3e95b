"""GET /v1/requests and POST /v1/requests/{id}/cancel: the worker at work, and who is to stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any
from urllib.parse import unquote

import msgspec
from litestar import Response, get, post
from msgspec import Meta

from worker import log
from worker.api.answer.errors import event_stream, json_response
from worker.api.described import EVENTS, JSON, Api, Described
from worker.api.intake.body import HttpRequest
from worker.api.intake.origins import Asker
from worker.errors import RequestError
from worker.http import paths
from worker.http.sse import in_one_line
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.state import State
from worker.lifecycle.worker import Worker
from worker.requests.journal import Journal, sums_of
from worker.requests.views import (
    LiveCached,
    LiveCells,
    LiveMemory,
    LiveReply,
    LiveTotals,
    LiveWorker,
    RequestCancelled,
)

MIN_INTERVAL_S, MAX_INTERVAL_S = 0.1, 60.0


class RequestView:
    """Made when somebody looks, and then for all who look at about the same time."""

    def __init__(self, worker: Worker, journal: Journal) -> None:
        self._worker, self._journal = worker, journal
        self._made_at = float("-inf")
        self._made = b""

    def latest(self, max_age: float) -> bytes:
        """The view as JSON, not older than `max_age` seconds. Raises UnavailableError."""
        now = time.monotonic()
        if now - self._made_at > max_age:
            self._made = msgspec.json.encode(self.view(now))
            self._made_at = now
        return self._made

    async def events(self, interval: float) -> AsyncIterator[bytes]:
        """One view now, one at each multiple of `interval` seconds, the last when it drains.

        So all who watch at the same interval wake at the same time, and share one view.
        """
        closing, loop = self._journal.closing, asyncio.get_running_loop()
        yield _event(self.latest(MIN_INTERVAL_S))
        while self._is_open:
            pause = interval - loop.time() % interval
            try:
                async with asyncio.timeout(pause if pause > 0.1 * interval else pause + interval):
                    await closing.wait()
            except TimeoutError:
                yield _event(self.latest(interval / 2))
            else:
                yield _event(self.latest(0))

    @property
    def _is_open(self) -> bool:
        return self._worker.state is State.READY and not self._journal.closing.is_set()

    def view(self, now: float) -> LiveReply:
        """All of it. Counters only: the engine's thread is not waited for."""
        journal, model = self._journal, self._journal.model
        live = [record.live(now, model) for record in journal.live]
        return LiveReply(
            at=round(time.time(), 3),
            worker=self._worker_now(self._worker.loaded, now),
            speeds=list(journal.speeds.points),
            data=[request for request in live if request is not None],
            recent=list(journal.recent),
            log=log.recent(),
        )

    def _worker_now(self, loaded: Loaded, now: float) -> LiveWorker:
        journal, worker = self._journal, self._worker
        engine = loaded.engine.snapshot
        kept, num_running = engine.kept, engine.num_running
        read, written = sums_of(engine)
        state = "failed" if worker.state is State.FAILED else "draining"
        return LiveWorker(
            state="ready" if self._is_open else state,
            model=journal.model,
            uptime_s=round(now - worker.started_at, 1),
            slots=engine.max_running,
            running=num_running,
            # What the engine has not taken in yet waits, too.
            waiting=max(0, loaded.engine.num_streams - num_running),
            memory=LiveMemory(loaded.memory_bytes, loaded.plan.total_bytes),
            cells=LiveCells(
                engine.num_cells, engine.live_cells, engine.cached_cells, engine.free_cells
            ),
            kept=LiveCached(kept.memory_bytes, kept.memory_limit, kept.disk_bytes, kept.disk_limit),
            totals=LiveTotals(
                read, engine.stats.cached_tokens, written, journal.num_ended, journal.num_errors
            ),
            is_sleeping=worker.is_sleeping,
        )


def _event(data: bytes) -> bytes:
    return b"data: " + in_one_line(data) + b"\n\n"


_INTERVAL_S = 0.5


@get(paths.REQUESTS, summary="Running and recent requests")
async def live_requests(
    request: HttpRequest, lookout: RequestView, stream: str = "", interval: str | None = None
) -> Response[Any]:
    """All at once, or as events again and again."""
    seconds = _seconds_of(interval)
    accepted = request.headers.get("accept", "")
    if stream.lower() in ("1", "true") or (not stream and "text/event-stream" in accepted):
        lookout.latest(MIN_INTERVAL_S)  # what it raises comes before the stream begins
        return event_stream(lookout.events(seconds))
    return Response(lookout.latest(0), media_type="application/json")


@post(paths.REQUESTS + "/{request_id:str}/cancel", status_code=200, summary="Cancel a request")
async def cancel_request(request_id: str, journal: Journal) -> Response[bytes]:
    """Whatever it does: waiting, reading or writing."""
    name = unquote(request_id)  # the gate leaves it as it was sent: an id may hold a slash
    return json_response(RequestCancelled(name, True, journal.cancel(name)))


def _seconds_of(text: str | None) -> float:
    try:
        seconds = _INTERVAL_S if text is None else float(text)
    except ValueError:
        seconds = 0.0
    if not MIN_INTERVAL_S <= seconds <= MAX_INTERVAL_S:
        raise RequestError(
            f"interval must be from {MIN_INTERVAL_S:g} to {MAX_INTERVAL_S:g} seconds.",
            param="interval",
        )
    return seconds


API = Api(
    name="Requests",
    text="Running and recent requests, and how to cancel one.",
    routes=(
        Described(
            handler=live_requests,
            gives={JSON: LiveReply, EVENTS: LiveReply},
            queries={
                "stream": "`1` or `true`: events; another text: all at once. Not given: "
                "what `Accept` asks for.",
                "interval": Annotated[
                    float,
                    Meta(
                        ge=MIN_INTERVAL_S,
                        le=MAX_INTERVAL_S,
                        description="Seconds from one event to the next.",
                        extra_json_schema={"default": 0.5},
                    ),
                ],
            },
            done=False,
            notes="Events end when the worker is about to leave.",
        ),
        Described(
            handler=cancel_request,
            asker=Asker.OWN,
            gives={JSON: RequestCancelled},
            params={"request_id": "Its `x-request-id`, percent-encoded."},
            notes="Its client gets an error: status 499, or in a stream the last event.",
        ),
    ),
)

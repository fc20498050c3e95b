"""All requests that generate, the last ones that ended, and a line in the log for each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from worker.errors import NotFoundError
from worker.http import paths
from worker.requests.lines import Lines
from worker.requests.outcomes import Outcomes
from worker.requests.record import RequestRecord, enter
from worker.requests.speeds import Speeds
from worker.requests.views import EndedRequest

if TYPE_CHECKING:  # only with --otel
    from worker.requests.spans import Spans

MAX_RECENT = 20
_MAX_PATH = 200
# W3C Trace Context
_TRACE = frozenset({b"traceparent", b"tracestate"})
_POLLS = frozenset({*paths.HEALTH, paths.METRICS, paths.PROGRESS, paths.REQUESTS})


class Journal:
    """On the event loop.

    recent      the last requests that ended, newest first
    num_ended, num_errors  since the start; refused ones are among them
    lines       of the log
    outcomes    how all requests were answered
    spans       gets each request that ended and was work or refused; None: without --otel
    closing     set when the process begins to leave: who watches is told so
    """

    def __init__(self, model: str) -> None:
        """model: its id, as clients see it"""
        self.model = model
        self.recent: deque[EndedRequest] = deque(maxlen=MAX_RECENT)
        self.speeds = Speeds()
        self.num_ended = self.num_errors = 0
        self.outcomes = Outcomes()
        self.lines = Lines()
        self.spans: Spans | None = None
        self.closing = asyncio.Event()
        self._live: dict[RequestRecord, None] = {}  # in the order of their coming

    def open(
        self,
        request_id: str,
        correlation_id: str | None,
        method: str,
        path: str,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> RequestRecord:
        """A record for the request at hand; `current()` has it from now on."""
        if not path.isprintable() or len(path) > _MAX_PATH:
            path = ascii(path[:_MAX_PATH])[1:-1]
        record = RequestRecord(self, request_id, correlation_id, f"{method} {path}")
        record.is_poll = method in ("GET", "HEAD") and path in _POLLS
        if self.spans is not None:
            record.trace = {
                name.decode(): value.decode("latin-1") for name, value in headers if name in _TRACE
            }
        enter(record)
        return record

    @property
    def live(self) -> list[RequestRecord]:
        """Those of which something runs or waits, the oldest first."""
        return list(self._live)

    def begin(self, record: RequestRecord) -> None:
        self._live[record] = None

    def leave(self, record: RequestRecord) -> None:
        """Nothing of it runs any more; its answer may still be on its way."""
        self._live.pop(record, None)

    def end(self, record: RequestRecord) -> None:
        """It is over; a line tells of it, unless it was no work and nothing went wrong."""
        self.leave(record)
        self.outcomes.note(record.pattern, record.status, record.code)
        if not record.is_told:
            return
        ended = record.ended(self.model)
        self.recent.appendleft(ended)
        self.num_ended += 1
        self.num_errors += ended.outcome == "error"
        if self.spans is not None and record.is_spanned:
            self.spans.note(record, ended)
        self.lines.tell(ended, record.num_sequences, early=record.is_early)

    def cancel(self, request_id: str) -> int:
        """End all requests of this id, which clients may give twice; how many there were.

        Raises NotFoundError.
        """
        found = [record for record in self._live if record.id == request_id]
        if not found:
            raise NotFoundError(
                "No request of this id runs or waits.",
                hint="GET /v1/requests lists them.",
                code="request_not_found",
            )
        for record in found:
            record.cancel()
        return len(found)

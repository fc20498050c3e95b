"""One request, from its coming to its end."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from worker.account import NOBODY
from worker.errors import CancelledError, LeftError
from worker.http import paths
from worker.requests.quota import Quota
from worker.requests.views import EndedRequest, LiveRequest, Outcome

if TYPE_CHECKING:  # the gate answers before there is an engine
    from worker.requests.work import RequestWork

# Statuses of who is not refused for anything that he sent.
_FAILED = frozenset({500, 504})
_LONGEST_PARAM = 200


class RecordKeeper(Protocol):
    """Who keeps records: the journal."""

    def begin(self, record: RequestRecord) -> None: ...

    def leave(self, record: RequestRecord) -> None:
        """Nothing of it runs any more."""
        ...

    def end(self, record: RequestRecord) -> None: ...


class RequestRecord:
    """Has ended once its answer is sent and nothing of its work runs: a job may outlive the
    answer that names it, and an answer ends after its work.

    work       what the engine does for it; None: nothing yet, or it was refused
    status     of its answer; None: it has not begun
    streaming  whether its answer is events
    is_early   it was answered before its body was read
    is_poll    it is asked so often that no line tells of it where it is refused
    pattern    method and pattern of its path, where it is a route: POST /v1/jobs/{id}/cancel
    unknown    fields of its body that are not known and would change the answer
    trace      headers that name the span in which its client asks
    account    whose key it has
    owner      whose what is kept of it is, see `Auth.owner`
    quota      what that may ask in a minute; None: as much as it likes
    priority   of its work, if that has none of its own
    """

    __slots__ = (
        "_answered",
        "_began",
        "_error",
        "_has_left",
        "_journal",
        "_preparing",
        "account",
        "correlation_id",
        "id",
        "is_early",
        "is_poll",
        "owner",
        "pattern",
        "priority",
        "quota",
        "route",
        "status",
        "streaming",
        "trace",
        "unknown",
        "work",
    )

    def __init__(
        self, journal: RecordKeeper, request_id: str, correlation_id: str | None, route: str
    ) -> None:
        self.id, self.correlation_id, self.route = request_id, correlation_id, route
        self.streaming = self.is_early = self.is_poll = False
        self._has_left = self._answered = False
        self.work: RequestWork | None = None
        self.pattern: str | None = None
        self.trace: dict[str, str] = {}
        self.unknown: tuple[str, ...] = ()
        self.account = NOBODY
        self.owner = ""
        self.quota: Quota | None = None
        self.priority = 0
        self._journal = journal
        self._began = time.monotonic()
        self.status: int | None = None
        self._error: Exception | None = None
        self._preparing: asyncio.Future[None] | None = None

    @property
    def is_told(self) -> bool:
        """Whether a line tells of it: it was to be work, or it was refused."""
        refused = self.status is not None and self.status >= 400
        return self.work is not None or self._has_left or (refused and not self.is_poll)

    @property
    def is_spanned(self) -> bool:
        """Whether a span tells of it: it was work, or wanted to be."""
        posted = self.pattern is not None and self.pattern.startswith("POST ")
        return self.work is not None or posted

    @property
    def is_used(self) -> bool:
        """Whether it counts as its key's usage: it was work, or was refused where that is asked
        for."""
        method, _, path = (self.pattern or "").partition(" ")
        return self.work is not None or (method == "POST" and path in paths.COMPUTING)

    @property
    def num_sequences(self) -> int:
        return 0 if self.work is None else self.work.num_sequences

    @property
    def code(self) -> str | None:
        """Of the error that its client was told; None: there was none."""
        error = self._error or (self.work and self.work.error)
        return getattr(error, "code", "internal") if error else None

    @property
    def param(self) -> str | None:
        """The field that its client was told is wrong; it may be named by a client."""
        param = getattr(self._error or (self.work and self.work.error), "param", None)
        return param and param[:_LONGEST_PARAM]

    def prepare(self, end: asyncio.Future[None]) -> None:
        """It is made ready for the engine, until `end` is cancelled or `on_prepared` is called."""
        self._preparing = end
        self._journal.begin(self)

    def on_prepared(self) -> None:
        """It is ready, or never will be."""
        self._preparing = None
        self._journal.leave(self)

    def follow(self, work: RequestWork) -> None:
        self.work = work
        work.on_end = self._on_end
        self._journal.begin(self)

    def on_failure(self, error: Exception) -> None:
        """Its client is told of this error; the first one counts."""
        self._error = self._error or error

    def on_answer(self, status: int | None) -> None:
        """Its answer has ended; None: before it began."""
        if isinstance(self._error, LeftError):
            self._has_left, self._error, status = True, None, None
        self._answered, self.status = True, status
        self._on_end()

    def cancel(self) -> None:
        """End its work, or what makes it ready; its client is told."""
        if self._preparing is not None:
            self._preparing.cancel()
        elif self.work is not None:
            self.work.cancel(CancelledError("The request was cancelled."))

    def live(self, now: float, model: str) -> LiveRequest | None:
        """How far it is; None where nothing of it runs or waits."""
        work, age = self.work, round(now - self._began, 3)
        if self._preparing is not None:
            return LiveRequest(
                self.id, self.correlation_id, self.route, model, stream=self.streaming,
                age_s=age, wait_s=age,
            )  # fmt: skip
        if work is None or work.is_over:
            return None
        sums = work.sums(now)
        busy = "writing" if sums.first_token is not None else "reading"
        speed = work.speed(sums, now)
        return LiveRequest(
            id=self.id,
            correlation_id=self.correlation_id,
            route=self.route,
            model=model,
            state=busy if sums.num_running else "waiting",
            sequences=work.num_sequences,
            stream=self.streaming,
            age_s=age,
            wait_s=round(sums.wait_s, 3),
            prompt_tokens=work.prompt_tokens,
            read_tokens=sums.read_tokens,
            cached_tokens=sums.cached_tokens,
            generated_tokens=sums.generated_tokens,
            max_tokens=work.max_tokens,
            tokens_per_second=None if speed is None else round(speed, 2),
        )

    def _on_end(self) -> None:
        if self._answered and (self.work is None or self.work.is_over):
            self._journal.end(self)
            # Both lead back to this record, and keep what its client sent.
            self.work = self._error = None
        elif self.work is not None and self.work.is_over:
            self._journal.leave(self)

    def summary(self, model: str) -> EndedRequest:
        work, now = self.work, time.monotonic()
        sums = None if work is None else work.sums(now)
        first = None if sums is None else sums.first_token
        speed = None if work is None or sums is None else work.whole_speed(sums)
        trace = None if work is None or work.tracer is None else work.tracer.trace
        return EndedRequest(
            id=self.id,
            correlation_id=self.correlation_id,
            route=self.route,
            model=model,
            status=self.status,
            outcome=self._outcome(),
            code=self.code,
            ended_at=round(time.time(), 3),
            duration_s=round(now - self._began, 4),
            wait_s=0.0 if sums is None else round(sums.wait_s, 4),
            first_token_s=None if first is None else round(first - self._began, 4),
            prompt_tokens=0 if work is None else work.prompt_tokens,
            cached_tokens=0 if sums is None else sums.cached_tokens,
            generated_tokens=0 if sums is None else sums.generated_tokens,
            tokens_per_second=None if speed is None else round(speed, 2),
            cache_reason=None if trace is None else trace.reason,
        )

    def _outcome(self) -> Outcome:
        work = self.work
        if self._has_left:
            return "left"
        error = self._error or (work and work.error)
        if isinstance(error, CancelledError):
            return "cancelled"
        if work is None:
            return "error" if self.status in _FAILED else "refused"
        if error is not None:  # the engine refuses a grammar that leaves no token
            return "refused" if getattr(error, "http_status", 500) < 500 else "error"
        if work.was_left:
            return "left"
        return "length" if work.was_cut else "stop"


_current: ContextVar[RequestRecord | None] = ContextVar("record", default=None)
current = _current.get
enter = _current.set


def current_owner() -> str:
    """Whose request is at hand, see `Auth.owner`; empty for all where there are no keys."""
    record = current()
    return "" if record is None else record.owner


def note(error: Exception) -> None:
    """The client of the request at hand is told of this error."""
    record = current()
    if record is not None:
        record.on_failure(error)

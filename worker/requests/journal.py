"""All requests that generate, the last ones that ended, a line in the log for each, how they were
answered, counted, and how fast prompts were read and tokens written over the last minutes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextvars import Context
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from worker import log
from worker.errors import NotFoundError
from worker.http import paths
from worker.requests.quota import Quotas
from worker.requests.record import RequestRecord, enter
from worker.requests.views import AccountUsage, EndedRequest, Speed

if TYPE_CHECKING:  # the gate answers before there is an engine
    from worker.engine.stats import EngineSnapshot
    from worker.engine.thread import EngineThread
    from worker.requests.spans import Spans

PERIOD_S = 5.0
MAX_POINTS = 120  # ten minutes


class Speeds:
    """Two sums of the engine, read each PERIOD_S. points: oldest first"""

    def __init__(self) -> None:
        self.points: deque[Speed] = deque(maxlen=MAX_POINTS)
        self._last = (0.0, 0, 0)

    def start(self, engine: EngineThread) -> None:
        """Begin; on the event loop, for as long as it runs."""
        loop = asyncio.get_running_loop()

        def again() -> None:
            self.note(time.monotonic(), engine.snapshot)
            loop.call_later(PERIOD_S, again)

        self._last = (time.monotonic(), *sums_of(engine.snapshot))
        loop.call_later(PERIOD_S, again)

    def note(self, now: float, snapshot: EngineSnapshot) -> None:
        then, *before = self._last
        after = sums_of(snapshot)
        span = now - then
        read, written = (max(0, b - a) / span for a, b in zip(before, after, strict=True))
        self.points.append((int(time.time()), round(read, 1), round(written, 1)))
        self._last = (now, *after)


def sums_of(snapshot: EngineSnapshot) -> tuple[int, int]:
    """Prompt tokens computed and tokens sampled since the start, also for those that run."""
    return snapshot.stats.computed_tokens, snapshot.stats.sampled_tokens


# Of codes. There are fewer; a label never grows beyond it all the same.
_MOST = 100
OTHER = "other"


class LineSums(Protocol):
    """Lines of batches, and what answers them.

    outcomes  lines since the start: `completed` and `failed`
    """

    num_running: int
    outcomes: Counter[str]

    @property
    def num_waiting(self) -> int: ...

    def start(self, width: int) -> None: ...

    async def stop(self) -> None: ...


class Outcomes:
    """Sums since the start; they only grow.

    by_route  (route, status) -> answers; `other` are paths that are no route
    errors    (code, status) -> answers that told of an error, also in the middle of a stream
    usage     name of a key -> what its requests used, once they have ended
    reasons   (word,) -> requests of whose prompt the cache gave no more for this reason
    batches   lines of batches that wait, run and were answered; None: there are none
    """

    def __init__(self) -> None:
        self.by_route: Counter[tuple[str, str]] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self.usage: dict[str, AccountUsage] = {}
        self.reasons: Counter[tuple[str]] = Counter()
        self.batches: LineSums | None = None

    def note(self, route: str | None, status: int | None, code: str | None) -> None:
        """One has ended.

        route: its method and the path's pattern; None: there is none
        status: None: its client left before
        code: of the error that was told; None: none, or Litestar's own
        """
        shown = "none" if status is None else str(status)
        self.by_route[route or OTHER, shown] += 1
        if code is None and status is not None and status >= 400:
            code = HTTPStatus(status).name.lower()
        if code is not None:
            known = (code, shown) in self.errors or len(self.errors) < _MOST
            self.errors[code if known else OTHER, shown] += 1

    def note_usage(self, name: str, ended: EndedRequest) -> None:
        """A request with a key of that name has ended."""
        usage = self.usage.setdefault(name, AccountUsage())
        usage.requests += 1
        usage.refused += ended.outcome == "refused"
        usage.prompt_tokens += ended.prompt_tokens
        usage.cached_tokens += ended.cached_tokens
        usage.generated_tokens += ended.generated_tokens


# Of those that are refused before their body is read: lines in a second. Hundreds may come at
# the same moment, and each would wait for the lines of those before it.
_MOST_EARLY = 10
_PERIOD_S = 1.0


class Lines:
    """A line for each request; where very many are refused early, one for what they have in common.

    On the event loop.
    """

    def __init__(self) -> None:
        self._num_early = 0  # in the second at hand
        self._untold: Counter[tuple[int | None, str | None]] = Counter()

    def tell(
        self, ended: EndedRequest, num_sequences: int, *, param: str | None, early: bool
    ) -> None:
        """It has ended.

        param  the field that it was refused for
        early  it was refused before its body was read
        """
        if early:
            self._num_early += 1
            if self._num_early == 1:
                asyncio.get_running_loop().call_later(_PERIOD_S, self.close)
            if self._num_early > _MOST_EARLY:
                self._untold[ended.status, ended.code] += 1
                return
        # The request at hand may be another one, such as that which cancelled this one.
        Context().run(_tell, ended, num_sequences, param)

    def close(self) -> None:
        """A second is over, or all of them: tell how many had no line."""
        untold, self._untold, self._num_early = self._untold, Counter(), 0
        for (status, code), count in untold.items():
            Context().run(_tell_count, status, code, count)


def _tell_count(status: int | None, code: str | None, count: int) -> None:
    log.get("service").info("requests", outcome="refused", status=status, code=code, count=count)


def _tell(ended: EndedRequest, num_sequences: int, param: str | None) -> None:
    fields = {
        "route": ended.route,
        "model": ended.model,
        "status": ended.status,
        "outcome": ended.outcome,
        "duration_s": ended.duration_s,
        "x_request_id": ended.id,
    }
    if num_sequences:
        fields |= {
            "sequences": num_sequences,
            "prompt_tokens": ended.prompt_tokens,
            "cached_tokens": ended.cached_tokens,
            "generated_tokens": ended.generated_tokens,
            "wait_s": ended.wait_s,
            "first_token_s": ended.first_token_s,
            "tokens_per_second": ended.tokens_per_second,
        }
    if ended.code is not None:
        fields["code"] = ended.code
    if param is not None:
        fields["param"] = param
    if ended.correlation_id is not None:
        fields["x_correlation_id"] = ended.correlation_id
    log.get("service").info("request", console=_sentence(ended, num_sequences, param), **fields)


def _tell_reason(ended: EndedRequest) -> None:
    log.get("cache").debug(
        "prompt",
        reason=ended.cache_reason,
        prompt_tokens=ended.prompt_tokens,
        cached_tokens=ended.cached_tokens,
        x_request_id=ended.id,
    )


def _sentence(ended: EndedRequest, num_sequences: int, param: str | None) -> str:
    """The same for people."""
    status = "client left" if ended.status is None else str(ended.status)
    said = f"{ended.route} {status} in {ended.duration_s:.2f} s"
    if num_sequences:
        said += (
            f": {ended.prompt_tokens:,} prompt tokens ({ended.cached_tokens:,} cached), "
            f"{ended.generated_tokens:,} generated"
        )
        if ended.tokens_per_second is not None:
            said += f" at {ended.tokens_per_second:.1f}/s"
    about = " ".join(filter(None, (ended.code, param)))
    return log.harmless(f"{said} ({about})" if about else said)


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
    quotas      what keys may ask in a minute
    on_ready    goes on with what the last process has left, once there is a model
    spans       gets each request that ended and was work or refused; None: without --otel
    closing     set when the process begins to leave: who watches is told so
    """

    def __init__(self, model: str, *, lines: bool = True) -> None:
        """
        model  its id, as clients see it
        lines  whether the log has a line for each request
        """
        self.model = model
        self.recent: deque[EndedRequest] = deque(maxlen=MAX_RECENT)
        self.speeds = Speeds()
        self.num_ended = self.num_errors = 0
        self.outcomes = Outcomes()
        self.quotas = Quotas()
        self.lines = Lines() if lines else None
        self.spans: Spans | None = None
        self.on_ready: Callable[[], None] | None = None
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
        ended = record.summary(self.model)
        if record.quota is not None:
            record.quota.take_tokens(ended.prompt_tokens + ended.generated_tokens)
        if record.account.name and record.is_used:
            self.outcomes.note_usage(record.account.name, ended)
        if ended.cache_reason is not None:
            self.outcomes.reasons[(ended.cache_reason,)] += 1
            Context().run(_tell_reason, ended)
        self.recent.appendleft(ended)
        self.num_ended += 1
        self.num_errors += ended.outcome == "error"
        if self.spans is not None and record.is_spanned:
            self.spans.note(record, ended)
        if self.lines is not None:
            param = None if ended.code is None else record.param
            self.lines.tell(ended, record.num_sequences, param=param, early=record.is_early)

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

"""A request is made ready for the engine in a thread, while its client stays."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec

from worker import log
from worker.account import NOBODY
from worker.api.intake.adapters import choice_of, with_adapters
from worker.api.intake.body import HttpRequest, field_warnings, hold_body, read_json, until_gone
from worker.api.intake.constraints import ConstraintFields
from worker.api.intake.facts import ModelFacts
from worker.api.intake.generation import Generation
from worker.api.intake.priority import priority_of
from worker.budget import UNBOUNDED, Budget, SlowWork
from worker.engine.request import Request
from worker.engine.stream import Lane, Stream
from worker.errors import CancelledError, LeftError, QueueFullError, UnavailableError
from worker.limits import LONG
from worker.requests.record import RequestRecord, current
from worker.requests.work import RequestWork

# Fields of a body that hold its answer to a form.
_FORMS = (*ConstraintFields.__struct_fields__, "tools")

# Of a body whose texts become tokens in the event loop, which then waits for 0.1 ms.
_FEW_BYTES = 1024

_Pool = Literal["plain", "formed"] | SlowWork
# How many are made ready in each pool at once; of media some wait for a fetch.
_PLACES: dict[_Pool, int] = {
    "plain": min(32, (os.cpu_count() or 1) + 4),
    "formed": 2,
    "long": 1,
    "media": 4,
}
# One for each request in a place, and for each whose slow work waits for its turn: places of the
# queue bound them.
_MOST_THREADS = 1024

_log = log.get("service")

Body = TypeVar("Body", bound=msgspec.Struct)
Made = TypeVar("Made")
T = TypeVar("T")


class _Pools:
    """The places of all pools. In the loop's thread."""

    def __init__(self) -> None:
        self.places = {pool: asyncio.Semaphore(count) for pool, count in _PLACES.items()}
        self.num_long = 0  # in that pool, or waiting for it


class _Turn:
    """The one place that a request has; in the loop's thread."""

    def __init__(self, pools: _Pools) -> None:
        self._pools = pools
        self.pool: _Pool | None = None

    async def take(self, pool: _Pool) -> None:
        """Give the place back, and wait for one of that pool. Raises QueueFullError."""
        self.leave()
        if pool == "long" and self._pools.num_long >= LONG.most:
            raise QueueFullError(
                "Too many constraints that take long wait already.", hint="Try again shortly."
            )
        self._pools.num_long += pool == "long"
        try:
            await self._pools.places[pool].acquire()
        except BaseException:
            self._pools.num_long -= pool == "long"
            raise
        self.pool = pool

    def leave(self) -> None:
        """Give the place back, if there is one."""
        if self.pool is not None:
            self._pools.places[self.pool].release()
            self._pools.num_long -= self.pool == "long"
            self.pool = None


class Preparing:
    """Reads bodies and makes something of them. One for an application, in the loop's thread.

    A request has a place in a pool, and changes the pool when its work turns out to be slow: so
    others wait neither for a form that takes long nor for media.
    """

    def __init__(self, lane: Callable[[], Lane]) -> None:
        """lane: where requests wait for the engine, once it is there"""
        self._lane = lane
        self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="prepare")
        self._threads.submit(int)  # the first request does not wait for the first thread
        self._pools = _Pools()
        self._moves: set[Future[None]] = set()  # that threads wait for
        self._is_closed = False
        self._given_up: list[Future[Any]] = []  # nobody waits for them, but they may run

    @property
    def is_idle(self) -> bool:
        """Whether no thread works for a request that nobody waits for any more."""
        return all(each.done() for each in self._given_up)

    def close(self) -> None:
        """Begin nothing more: what waits is cancelled."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for each in tuple(self._moves):
            each.cancel()

    async def body(self, request: HttpRequest, shape: type[Body]) -> Body:
        """The body, not read where no place is left. Raises RequestError, QueueFullError,
        RateLimitError."""
        self._lane().check_place()
        if (record := current()) is not None and record.quota is not None:
            record.quota.take_request()
        return await read_json(request, shape)

    async def make(
        self,
        request: HttpRequest,
        body: msgspec.Struct,
        facts: ModelFacts,
        function: Callable[..., Made],
        *arguments: Any,
    ) -> Made:
        """What is to be generated, with the adapters that the body chooses, in a place of the
        queue's. Raises QueueFullError too.

        Meanwhile the request is one of those that wait, and can be cancelled.
        """
        choice = choice_of(body, facts.adapters)
        record = current()
        account = NOBODY if record is None else record.account
        priority = priority_of(body, request, account)
        with self._lane().place(), hold_body(request):
            made = await self._aside(request, body, partial(function, *arguments), record)
        made = with_adapters(made, choice)
        path = request.scope["path"] if record is None else record.route
        warnings = () if record is None else field_warnings(record.unknown, path)
        if not isinstance(made, Generation):
            return made
        if made.left_out:
            _log.warning("media are left out of a prompt", why=" ".join(made.left_out), path=path)
        if warnings or made.left_out:
            warnings = (*made.warnings, *warnings, *made.left_out)
            made = msgspec.structs.replace(made, warnings=warnings)
        if priority or account is not NOBODY:
            made = msgspec.structs.replace(made, priority=priority, account=account)
        return made

    async def texts(
        self,
        request: HttpRequest,
        body: msgspec.Struct,
        facts: ModelFacts,
        function: Callable[..., Made],
        *arguments: Any,
    ) -> Made:
        """The same of a request whose texts have only to become tokens. Few are made here: to a
        thread and back takes three times as long."""
        if _length_of(request) > _FEW_BYTES:
            return await self.make(request, body, facts, function, *arguments)
        choice = choice_of(body, facts.adapters)
        self._lane().check_place()
        made = with_adapters(function(*arguments, UNBOUNDED), choice)
        if (record := current()) is not None:
            field_warnings(record.unknown, record.route)
        return made

    def run(self, generation: Generation, facts: ModelFacts) -> Stream:
        """Hand it to the engine, and tell the record of the request at hand.

        Raises RequestError, QueueFullError or UnavailableError. The stream's ids are those of the
        continuations of the first prompt, of the second, ...
        """
        requests = generation.requests()
        facts.adapters.check_key(requests[0].prompt.key)
        return self.submit(requests, generation.multiplied_by, generation.copies)

    def submit(self, requests: Sequence[Request], param: str, copies: int = 1) -> Stream:
        """Those of a prompt side by side, `copies` of each. Raises as `run`; param: that an error
        names"""
        lane = self._lane()
        stream = lane.submit(requests, param=param)
        record = current()
        if record is not None:
            record.follow(RequestWork(stream, requests, copies, lane))
        return stream

    async def aside(
        self,
        request: HttpRequest,
        body: msgspec.Struct,
        function: Callable[..., Made],
        *arguments: Any,
    ) -> Made:
        """What `function` makes of the arguments and a Budget, which comes last. Raises what it
        raises, and QueueFullError.

        Where the client leaves: LeftError; where the request is cancelled: CancelledError. What
        runs in a thread then goes on there, for nobody.
        """
        with hold_body(request):
            return await self._aside(request, body, partial(function, *arguments), None)

    async def look(
        self, request: HttpRequest, shape: type[Body], function: Callable[..., Made], *more: Any
    ) -> Made:
        """What `function` makes of the body and more, also of a prompt that the context does not
        hold. Raises as `aside`."""
        body = await read_json(request, shape)
        return await self.aside(request, body, partial(function, must_fit=False), body, *more)

    async def _aside(
        self,
        request: HttpRequest,
        body: msgspec.Struct,
        work: Callable[[Budget], Made],
        record: RequestRecord | None,
    ) -> Made:
        left = asyncio.ensure_future(until_gone(request.receive))
        if record is not None:
            record.prepare(left)
        places = (body, getattr(body, "options", None))
        formed = any(getattr(place, name, None) for place in places for name in _FORMS)
        try:
            return await self._run("formed" if formed else "plain", work, left)
        finally:
            left.cancel()
            if record is not None:
                record.on_prepared()

    async def _run(
        self, pool: _Pool, work: Callable[[Budget], Made], left: asyncio.Future[None]
    ) -> Made:
        turn, loop = _Turn(self._pools), asyncio.get_running_loop()
        if self._pools.places[pool].locked():
            await _unless(left, turn.take(pool))
        else:
            await turn.take(pool)

        def make_way(slow: SlowWork) -> None:
            if turn.pool == slow:
                return
            move = asyncio.run_coroutine_threadsafe(_unless(left, turn.take(slow)), loop)
            self._moves.add(move)
            if self._is_closed:
                move.cancel()
            try:
                move.result()
            except concurrent.futures.CancelledError:
                raise UnavailableError("The worker stopped.", code="draining") from None
            finally:
                self._moves.discard(move)

        try:
            job = self._threads.submit(work, Budget(left.done, make_way))
        except RuntimeError:
            turn.leave()
            raise UnavailableError("The worker stopped.", code="draining") from None
        made = asyncio.wrap_future(job)
        await asyncio.wait({made, left}, return_when=asyncio.FIRST_COMPLETED)
        if made.done():
            turn.leave()
            try:
                return made.result()
            finally:
                del made, job  # an error's traceback holds this frame
        job.add_done_callback(lambda _: loop.call_soon_threadsafe(turn.leave))
        made.cancel()
        self._given_up = [*(each for each in self._given_up if not each.done()), job]
        raise _wait_gone(left)


async def _unless(left: asyncio.Future[None], waits: Awaitable[T]) -> T:
    """What comes, if the client stays for it. Raises LeftError, CancelledError too."""
    task = asyncio.ensure_future(waits)
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise _wait_gone(left)
    finally:
        task.cancel()


def _wait_gone(left: asyncio.Future[None]) -> LeftError | CancelledError:
    if left.cancelled():
        return CancelledError("The request was cancelled.")
    return LeftError("The client left.")


def _length_of(request: HttpRequest) -> float:
    """Bytes of its body, as its headers say; of one in chunks infinite."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else math.inf

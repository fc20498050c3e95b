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
from worker.api.intake.adapters import choice_of
from worker.api.intake.body import HttpRequest, decode_json, hold_body, read_body, until_gone
from worker.api.intake.constraints import ConstraintFields
from worker.api.intake.delivery import DIRECT, RELAY, RESUME, Delivery, delivery_of
from worker.api.intake.facts import ModelFacts
from worker.api.intake.generation import Generation
from worker.api.intake.priority import named_priority, priority_of
from worker.budget import UNBOUNDED, Budget, SlowWork
from worker.engine.request import GenerationParams, Request
from worker.engine.stream import Lane, Stream
from worker.errors import (
    CancelledError,
    LeftError,
    QueueFullError,
    RequestError,
    UnavailableError,
)
from worker.limits import LONG
from worker.requests.prompts import RecentPrompts
from worker.requests.record import RequestRecord, current
from worker.requests.tracer import PromptTracer
from worker.requests.work import RequestWork

# Fields of a body that hold its answer to a form.
_FORMS = (*ConstraintFields.__struct_fields__, "tools")

_EXPLAIN, _YES = "x-explain-cache", frozenset({"on", "true", "1", "yes"})

# Of a body whose texts become tokens in the event loop, which then waits for 0.1 ms.
_FEW_BYTES = 1024

_Pool = Literal["plain", "formed"] | SlowWork
# How many are made ready in each pool at once; of media some wait for a fetch.
_PLACES: dict[_Pool, int] = {
    "plain": min(32, (os.cpu_count() or 1) + 4),
    "formed": 2,
    "long": 1,
    "media": 4,
    "questions": 2,
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
    others wait neither for a form that takes long, nor for media, nor for hundreds of questions.
    """

    def __init__(self, lane: Callable[[], Lane]) -> None:
        """lane: where requests wait for the engine, once it is there"""
        self._lane = lane
        self._recent = RecentPrompts()
        self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="prepare")
        self._threads.submit(int)  # the first request does not wait for the first thread
        self._pools = _Pools()
        self._moves: set[Future[None]] = set()  # that threads wait for
        self._is_closed = False
        self._given_up: list[Future[Any]] = []  # nobody waits for them, but they may run

    async def cut(self, name: str) -> bool | None:
        """End what an answer of the asker's key thinks, see `EngineThread.cut`."""
        record = current()
        return await self._lane().cut(name, "" if record is None else record.account.name)

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
        return await self.body_by(request, shape, partial(decode_json, shape=shape))

    async def body_by(
        self, request: HttpRequest, shape: type[msgspec.Struct], decode: Callable[[bytearray], Made]
    ) -> Made:
        """The same as `decode` reads it. shape: whose limits it has"""
        self._lane().check_place()
        if (record := current()) is not None and record.quota is not None:
            record.quota.take_request()
        return await read_body(request, shape, decode)

    async def run(
        self,
        request: HttpRequest,
        body: msgspec.Struct,
        facts: ModelFacts,
        make: Callable[[Budget], Generation],
    ) -> tuple[Generation, Stream]:
        """What the body asks for, with the adapters that it chooses, and what the engine makes of
        it: the continuations of the first prompt, of the second, ...

        Until the engine has it the request is one of those that wait, and can be cancelled. Raises
        as `aside`, and RequestError or UnavailableError.
        """
        choice, record = choice_of(body, facts.adapters), current()
        priority = priority_of(body, request)
        background = bool(getattr(body, "background", None))
        owner = "" if record is None else record.owner
        delivery = Delivery(owner=owner) if owner else DIRECT
        if background or RESUME in request.headers or RELAY in request.headers:
            delivery = delivery_of(request, facts.settings, background=background)
        made = await self.make(request, body, make)
        if made.left_out:
            path = request.scope["path"] if record is None else record.route
            _log.warning("media are left out of a prompt", why=" ".join(made.left_out), path=path)
        names = () if record is None else record.unknown
        params, warnings = made.params, made.warnings
        if names:
            warnings += tuple(f"{name} is not known here and was left out." for name in names)
        if delivery.relay is not None:
            params = _with_place(params)
        generation = msgspec.structs.replace(
            made,
            prompts=tuple(map(choice.of, made.prompts)) if choice.key else made.prompts,
            model=choice.model,
            priority=priority,
            params=params,
            delivery=delivery,
            warnings=warnings + made.left_out,
        )
        requests = generation.requests()
        if choice.key:
            facts.adapters.check_key(requests[0].prompt.key)
        stream = self.submit(requests, generation.multiplied_by, generation.copies)
        if record is not None and record.work is not None:
            record.work.tracer = tracer = PromptTracer(
                self._recent, record.owner, requests, generation.copies, made.parts,
                facts.vocab.spelled,
            )  # fmt: skip
            if _wants_trace(body, request):
                generation = msgspec.structs.replace(generation, tracer=tracer)
        return generation, stream

    async def texts(
        self,
        request: HttpRequest,
        body: msgspec.Struct,
        facts: ModelFacts,
        make: Callable[[Budget], Made],
        *,
        blocks: bool = False,
    ) -> Made:
        """What is made of texts that have only to become tokens. Few are made here: to a thread
        and back takes three times as long. Raises as `aside`, and RequestError for an adapter.

        blocks  what makes it waits for others, as for images
        """
        choice, record = choice_of(body, facts.adapters), current()
        if record is not None:
            record.priority = priority_of(body, request)
        if blocks or _length_of(request) > _FEW_BYTES:
            made = await self.make(request, body, make)
        else:
            self._lane().check_place()
            made = make(UNBOUNDED)
        if choice.is_named:
            raise RequestError("Vectors are computed without adapters.", param="model")
        return made

    async def make(
        self, request: HttpRequest, body: msgspec.Struct, make: Callable[[Budget], Made]
    ) -> Made:
        """What `make` makes in a thread, in a place of the queue. Raises as `aside`."""
        with self._lane().place():
            return await self.aside(request, body, make, current())

    def submit(self, requests: Sequence[Request], param: str, copies: int = 1) -> Stream:
        """Hand them to the engine, and tell the record of the request at hand. Those of a prompt
        stand side by side, `copies` of each; param: that an error names. Raises RequestError,
        QueueFullError, UnavailableError."""
        lane, record = self._lane(), current()
        if record is not None and (record.account.line or record.priority):
            whose, first = record.account, record.priority
            requests = [
                msgspec.structs.replace(each, account=whose, priority=each.priority or first)
                for each in requests
            ]
        stream = lane.submit(requests, param=param)
        if record is not None:
            record.follow(RequestWork(stream, requests, copies, lane))
        return stream

    async def aside(
        self,
        request: HttpRequest,
        body: msgspec.Struct,
        make: Callable[[Budget], Made],
        record: RequestRecord | None = None,
    ) -> Made:
        """What `make` makes in a thread. Raises what it raises, and QueueFullError.

        record: of a request that generates, which is told of the thread and can be cancelled
        Where the client leaves: LeftError; where the request is cancelled: CancelledError. What
        runs in a thread then goes on there, for nobody.
        """
        if record is None:
            named_priority(body)  # a wrong one, though only tokens are counted
        left = asyncio.ensure_future(until_gone(request.receive))
        if record is not None:
            record.prepare(left)
        try:
            with hold_body(request):
                return await self._run(_pool_of(body), make, left)
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


def _pool_of(body: msgspec.Struct) -> _Pool:
    """Where it begins."""
    for fields in (body, getattr(body, "options", None)):
        for name in _FORMS:
            if getattr(fields, name, None):
                return "formed"
    return "plain"


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


def _wants_trace(body: msgspec.Struct, request: HttpRequest) -> bool:
    """Whether a client wants to know why its prompt was read again: by the field, or by the header
    where the body does not say."""
    asked = getattr(body, "return_cache_trace", None)
    if asked is None:
        asked = request.headers.get(_EXPLAIN, "").strip().lower() in _YES
    return bool(asked)


def _with_place(params: GenerationParams) -> GenerationParams:
    """A relay must know where the draws of a seed are, and how a greedy text was computed."""
    sampling = params.sampling
    if sampling.is_greedy:
        return msgspec.structs.replace(params, tells_steps=True)
    return msgspec.structs.replace(params, tells_place=sampling.seed is not None)


def _wait_gone(left: asyncio.Future[None]) -> LeftError | CancelledError:
    if left.cancelled():
        return CancelledError("The request was cancelled.")
    return LeftError("The client left.")


def _length_of(request: HttpRequest) -> float:
    """Bytes of its body, as its headers say; of one in chunks infinite."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else math.inf

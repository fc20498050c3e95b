"""A request is made ready for the engine in a thread, while its client stays."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import msgspec
from litestar import Request

from worker.errors import CancelledError, QueueFullError, UnavailableError
from worker.grammar.patience import HAS_LEFT, IS_PATIENT, ImpatientError
from worker.lifecycle.loaded import Loaded
from worker.limits import LONG
from worker.service.body import read_json
from worker.service.constraints import ConstraintFields

HttpRequest = Request[Any, Any, Any]
# Fields of a body that hold its answer to a form.
_FORMS = (*ConstraintFields.__struct_fields__, "tools", "text", "output_config", "format")

Body = TypeVar("Body", bound=msgspec.Struct)
Made = TypeVar("Made")


class Preparing:
    """Reads bodies and makes something of them. One for an application, in the loop's thread.

    What holds its answer to a form has two threads of its own, and what takes long there goes on in
    a last one: others wait for neither.
    """

    def __init__(self) -> None:
        self._plain = ThreadPoolExecutor(thread_name_prefix="plain")
        self._formed = ThreadPoolExecutor(2, thread_name_prefix="formed")
        self._long = ThreadPoolExecutor(1, thread_name_prefix="long")
        self._num_long = 0

    def close(self) -> None:
        """Begin nothing more: what waits is cancelled."""
        for pool in (self._plain, self._formed, self._long):
            pool.shutdown(wait=False, cancel_futures=True)

    async def body(self, request: HttpRequest, shape: type[Body], loaded: Loaded) -> Body:
        """The body, not read where no place is left. Raises RequestError, QueueFullError."""
        loaded.engine.check_place()
        return await read_json(request, shape)

    async def make(
        self,
        request: HttpRequest,
        body: msgspec.Struct,
        loaded: Loaded,
        function: Callable[..., Made],
        *arguments: Any,
    ) -> Made:
        """What is to be generated, in a place of the queue's. Raises QueueFullError too."""
        with loaded.engine.place():
            return await self.aside(request, body, function, *arguments)

    async def aside(
        self,
        request: HttpRequest,
        body: msgspec.Struct,
        function: Callable[..., Made],
        *arguments: Any,
    ) -> Made:
        """What `function` makes of the arguments. Raises what it raises, and QueueFullError.

        Where the client leaves it is not begun: CancelledError.
        """
        left = asyncio.ensure_future(_left(request))
        work = partial(function, *arguments)
        formed = any(getattr(body, name, None) for name in _FORMS)
        pool = self._formed if formed else self._plain
        try:
            return await _run(pool, work, left, patient=False)
        except ImpatientError:
            return await self._with_patience(work, left)
        finally:
            left.cancel()

    async def _with_patience(self, work: Callable[[], Made], left: asyncio.Future[None]) -> Made:
        if self._num_long >= LONG.most:
            raise QueueFullError(
                "Too many constraints that take long wait already.", hint="Try again shortly."
            )
        self._num_long += 1
        try:
            return await _run(self._long, work, left, patient=True)
        finally:
            self._num_long -= 1


async def _run(
    pool: Executor, work: Callable[[], Made], left: asyncio.Future[None], *, patient: bool
) -> Made:
    context = contextvars.copy_context()
    context.run(IS_PATIENT.set, patient)
    context.run(HAS_LEFT.set, left.done)
    try:
        job = pool.submit(context.run, work)
    except RuntimeError:
        raise UnavailableError("The worker stopped.", code="draining") from None
    made = asyncio.wrap_future(job)
    await asyncio.wait({made, left}, return_when=asyncio.FIRST_COMPLETED)
    if not made.done() and job.cancel():
        raise CancelledError("The client left.")
    return await made


async def _left(request: HttpRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass

"""A request is made ready for the engine in a thread, while its client stays."""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import msgspec

from worker import log
from worker.api.intake.adapters import choice_of, chosen
from worker.api.intake.body import HttpRequest, held_body, read_json, told, until_gone
from worker.api.intake.constraints import ConstraintFields
from worker.api.intake.generation import Generation
from worker.api.intake.media_inputs import GALLERY, Gallery, UnreadMediaError
from worker.errors import CancelledError, LeftError, QueueFullError, UnavailableError
from worker.grammar.constraint import HAS_LEFT, IS_PATIENT, ImpatientError
from worker.lifecycle.loaded import Loaded
from worker.limits import LONG
from worker.requests.record import RequestRecord, current

# Fields of a body that hold its answer to a form.
_FORMS = (*ConstraintFields.__struct_fields__, "tools")

# Of a body whose texts become tokens in the event loop, which then waits for 0.1 ms.
_FEW_BYTES = 1024

_log = log.get("service")

Body = TypeVar("Body", bound=msgspec.Struct)
Made = TypeVar("Made")


class Preparing:
    """Reads bodies and makes something of them. One for an application, in the loop's thread.

    What holds its answer to a form has two threads of its own, and what takes long there goes on in
    another one, as what shows pictures does in some more: others wait for neither.
    """

    def __init__(self) -> None:
        self._plain = ThreadPoolExecutor(thread_name_prefix="plain")
        self._plain.submit(int)  # the first request does not wait for the first thread
        self._formed = ThreadPoolExecutor(2, thread_name_prefix="formed")
        self._long = ThreadPoolExecutor(1, thread_name_prefix="long")
        self._media = ThreadPoolExecutor(4, thread_name_prefix="media")  # some wait for a fetch
        self._num_long = 0
        self._given_up: list[Future[Any]] = []  # nobody waits for them, but they may run

    @property
    def is_idle(self) -> bool:
        """Whether no thread works for a request that nobody waits for any more."""
        return all(each.done() for each in self._given_up)

    def close(self) -> None:
        """Begin nothing more: what waits is cancelled."""
        for pool in (self._plain, self._formed, self._long, self._media):
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
        """What is to be generated, with the adapters that the body chooses, in a place of the
        queue's. Raises QueueFullError too.

        Meanwhile the request is one of those that wait, and can be cancelled.
        """
        choice = choice_of(body, loaded)
        record = current()
        with loaded.engine.place(), held_body(request):
            gallery = Gallery(loaded.media)
            work = _showing(gallery, partial(function, *arguments))
            made = await self._aside(request, body, work, record)
        made = chosen(made, choice)
        path = request.scope["path"] if record is None else record.route
        warnings = () if record is None else told(record.unknown, path)
        warnings += _told(gallery, path)
        if warnings and isinstance(made, Generation):
            return msgspec.structs.replace(made, warnings=(*made.warnings, *warnings))
        return made

    async def texts(
        self,
        request: HttpRequest,
        body: msgspec.Struct,
        loaded: Loaded,
        function: Callable[..., Made],
        *arguments: Any,
    ) -> Made:
        """The same of a request whose texts have only to become tokens. Few are made here: to a
        thread and back takes three times as long."""
        if _length_of(request) > _FEW_BYTES:
            return await self.make(request, body, loaded, function, *arguments)
        choice = choice_of(body, loaded)
        loaded.engine.check_place()
        made = chosen(function(*arguments), choice)
        if (record := current()) is not None:
            told(record.unknown, record.route)
        return made

    async def aside(
        self,
        request: HttpRequest,
        body: msgspec.Struct,
        function: Callable[..., Made],
        *arguments: Any,
    ) -> Made:
        """What `function` makes of the arguments. Raises what it raises, and QueueFullError.

        Where the client leaves: LeftError; where the request is cancelled: CancelledError. What
        runs in a thread then goes on there, for nobody.
        """
        reader = next((each.media for each in arguments if isinstance(each, Loaded)), None)
        work = _showing(Gallery(reader), partial(function, *arguments))
        with held_body(request):
            return await self._aside(request, body, work, None)

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
        work: Callable[[], Made],
        record: RequestRecord | None,
    ) -> Made:
        left = asyncio.ensure_future(until_gone(request.receive))
        if record is not None:
            record.prepare(left)
        places = (body, getattr(body, "options", None))
        formed = any(getattr(place, name, None) for place in places for name in _FORMS)
        pool = self._formed if formed else self._plain
        try:
            return await self._run(pool, work, left, patient=False)
        except UnreadMediaError:  # as many wait as the queue has places
            return await self._run(self._media, work, left, patient=True)
        except ImpatientError:
            return await self._with_patience(work, left)
        finally:
            left.cancel()
            if record is not None:
                record.prepared()

    async def _with_patience(self, work: Callable[[], Made], left: asyncio.Future[None]) -> Made:
        if self._num_long >= LONG.most:
            raise QueueFullError(
                "Too many constraints that take long wait already.", hint="Try again shortly."
            )
        self._num_long += 1
        try:
            return await self._run(self._long, work, left, patient=True)
        finally:
            self._num_long -= 1

    async def _run(
        self, pool: Executor, work: Callable[[], Made], left: asyncio.Future[None], *, patient: bool
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
        if made.done():
            try:
                return made.result()
            finally:
                del made, job  # an error's traceback holds this frame
        made.cancel()
        self._given_up = [*(each for each in self._given_up if not each.done()), job]
        if left.cancelled():
            raise CancelledError("The request was cancelled.")
        raise LeftError("The client left.")


def _length_of(request: HttpRequest) -> float:
    """Bytes of its body, as its headers say; of one in chunks infinite."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else math.inf


def _showing(gallery: Gallery, work: Callable[[], Made]) -> Callable[[], Made]:
    """The same, for a request whose pictures and sounds the gallery holds."""

    def showing() -> Made:
        GALLERY.set(gallery)
        return work()

    return showing


def _told(gallery: Gallery, path: str) -> tuple[str, ...]:
    """What the answer says of media that the model does not get; the log has it too."""
    warnings = gallery.warnings
    if warnings:
        _log.warning("media are left out of a prompt", why=" ".join(warnings), path=path)
    return warnings

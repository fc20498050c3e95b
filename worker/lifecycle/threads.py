"""A thread for one thing, and who waits for it: the event loop, or another thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

_T = TypeVar("_T")


async def in_thread(name: str, function: Callable[[], _T]) -> _T:
    """Await what a thread of its own computes; a worker that leaves does not wait for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def settle(result: Callable[[], None]) -> None:
        if not future.done():
            result()

    def run() -> None:
        try:
            result = partial(future.set_result, function())
        except BaseException as error:  # noqa: BLE001  (it is raised where it is awaited)
            result = partial(future.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future


def in_background(name: str, function: Callable[[], _T]) -> Callable[[], _T]:
    """Begin it in a thread of its own. What is returned waits for it, and has its result or raises
    its error."""
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001  (it is raised where it is awaited)
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future.result

"""A thread for one thing, and the event loop that waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
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

"""Binding, running and leaving: the one place that runs uvicorn."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import resource
import signal
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from worker import log
from worker.errors import BindError, UsageError
from worker.lifecycle.worker import Worker
from worker.service.app import create_app
from worker.settings import Settings

_BACKLOG = 1024
# A first request's headers must be here by then.
HEADER_TIMEOUT_S = 30.0


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: it would raise the signal again, and exit 143."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Protocol(H11Protocol):
    """uvicorn's HTTP/1.1, but a connection that says nothing, or too slowly, is closed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(HEADER_TIMEOUT_S, self._close_if_silent)

    def _close_if_silent(self) -> None:
        started = getattr(self, "cycle", None) is not None  # None before the first request
        if not started and not self.transport.is_closing():
            self.transport.close()


def bind(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises BindError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        raise UsageError(f"--host {host} is not an address of this machine.") from None
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise BindError(
            f"Cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}.",
            hint="Choose another --port (0 takes a free one) or stop what uses it.",
        ) from None
    sock.set_inheritable(False)
    return sock


async def serve(settings: Settings, model_path: Path) -> None:
    """The whole life of a serving process.

    1. The socket is bound before anything slow happens.
    2. Every path answers 503 while the model loads in a thread.
    3. Ready, until SIGTERM or SIGINT, or until something fails.
    4. New work gets 503, running requests get the drain time, the model is freed.

    Returns when it was asked to stop; raises the WorkerError that ended it otherwise.
    A second signal leaves at once.
    """
    stop = asyncio.Event()
    _on_signals(stop)
    asyncio.get_running_loop().set_exception_handler(_LoopErrors())
    _raise_file_limit()
    sock = bind(settings.host, settings.port)
    worker = Worker(settings, model_path)
    host, port = sock.getsockname()[:2]
    log.get("service").info("listening", url=f"http://{host}:{port}", pid=os.getpid())
    server = _Server(
        uvicorn.Config(
            create_app(worker),
            log_config=None,
            access_log=False,
            lifespan="off",
            http=_Protocol,
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=1,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    loading = asyncio.create_task(worker.load())
    ends = [asyncio.create_task(stop.wait()), asyncio.create_task(worker.failed.wait())]
    try:
        await asyncio.wait([serving, *ends], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await worker.drain()
        server.should_exit = True
        await asyncio.gather(serving, loading)
        if not await asyncio.to_thread(worker.close):
            # The interpreter's own clean-up would crash beside a step that still runs.
            atexit.register(os._exit, worker.error.exit_code if worker.error else 0)
        for task in ends:
            task.cancel()
    if worker.error is not None:
        raise worker.error


class _LoopErrors:
    """asyncio's complaints in our log, one a second: out of files it repeats itself for ever."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if loop.time() - self._last > 1:
            self._last = loop.time()
            error = context.get("exception")
            log.get("service").warning("event loop", what=context["message"], error=repr(error))


def _raise_file_limit() -> None:
    """As many open files as the system grants: each connection is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS refuses what its kernel does not hold
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def on_signal(name: str) -> None:
        if stop.is_set():
            os._exit(0)
        stop.set()
        log.get("service").info("stopping", signal=name)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal, number.name)

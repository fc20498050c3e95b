"""Binding, running and leaving: the one place that runs uvicorn."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import socket
from collections.abc import Generator
from pathlib import Path

import uvicorn

from worker import log
from worker.errors import BindError, UsageError
from worker.lifecycle.worker import Worker
from worker.service.app import create_app
from worker.settings import Settings

_BACKLOG = 1024


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: it would raise the signal again, and exit 143."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def bind(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises BindError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror:
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


def _on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def on_signal(name: str) -> None:
        if stop.is_set():
            os._exit(0)
        stop.set()
        log.get("service").info("stopping", signal=name)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number.name)

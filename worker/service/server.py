"""Binding, running and leaving."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker import log
from worker.errors import UsageError, WorkerError
from worker.http.connections import Connections
from worker.http.http import server_of
from worker.http.sockets import listen, url_of
from worker.lifecycle import parent
from worker.lifecycle.leave import stop_signals
from worker.lifecycle.state import State
from worker.lifecycle.threads import in_thread
from worker.lifecycle.worker import Worker
from worker.requests.journal import Journal
from worker.service.gate import Gate
from worker.settings import Settings

if TYPE_CHECKING:
    from worker.database.database import Database
    from worker.service.kept_usage import KeptUsage

# The routes are imported then, though the weights may still not be reached: a disk may be slow, and
# who follows the load or stops it needs a route.
_ROUTES_AFTER_S = 2.0
# For the last bytes of answers, and for the load or the step that is under way, after the drain;
# with the drain time of 4 seconds it makes less than 5.
LAST_BYTES_S = 0.8
# For the last spans: at least, and at most where the drain has left so much of its time.
_SPANS_S = (0.2, 2.0)
# Seconds after which a thread gives Python's lock away to one that waits for it. While modules are
# imported llama.cpp calls for each tensor and each line of its log; usually it would wait for 5 ms.
_SHORT_INTERVAL_S = 0.0002
_OTEL = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


async def serve(
    settings: Settings, model_path: Path, on_progress: Callable[[float], object] | None = None
) -> None:
    """The whole life of a serving process.

    1. The socket is bound before anything slow happens.
    2. Every path answers 503 while the model loads in a thread.
    3. Ready: /health answers 200, and then the manager is told.
    4. SIGTERM, SIGINT, POST /shutdown or the parent's death, or something fails.
    5. New work gets 503, running requests get the drain time, the model is freed.

    `on_progress` gets the share of the model that is loaded, in another thread.
    Returns when it was asked to stop; raises the WorkerError that ended it otherwise.
    A second signal leaves at once. A thread may still run then: see `lifecycle/leave.py`.
    """
    worker = Worker(settings, model_path, on_progress)
    threads = _own_threads()
    _on_signals(worker)
    if settings.die_with_parent != "off":
        _on_parents_death(worker)
    asyncio.get_running_loop().set_exception_handler(_LoopErrors())
    if settings.otel:
        _check_spans()
    _raise_file_limit()
    database = _open_database(settings)
    sockets = listen(settings.host, settings.port)
    host, port = sockets[0].getsockname()[:2]
    worker.url = url_of(host, port)
    log.get("service").info(
        "listening",
        console=f"Loading {worker.model_id}.",
        url=worker.url,
        pid=os.getpid(),
        id=worker.id,
    )
    journal = Journal(worker.model_id, lines=settings.access_log)
    gate = Gate(worker, journal)
    if settings.api_key_file is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, gate.auth.read_again)
    connections = Connections(settings.connections, settings.receive_timeout, settings.send_timeout)
    server = server_of(gate, connections, gate.at_once)
    serving = asyncio.create_task(server.serve(sockets=sockets))
    await asyncio.sleep(0)  # it listens before anything else is imported
    routes = asyncio.create_task(_open(gate, worker, journal, database))
    usage = None if database is None else _kept_usage(database, journal)
    keeping = [] if usage is None else [asyncio.create_task(usage.keep())]
    beside = asyncio.create_task(_look_at_templates(worker, routes))
    loading = asyncio.create_task(_become_ready(worker, journal, beside, host, port))
    ends = [
        asyncio.create_task(worker.stop_requested.wait()),
        asyncio.create_task(worker.failed.wait()),
    ]
    try:
        await asyncio.wait([serving, *ends], return_when=asyncio.FIRST_COMPLETED)
        if serving.done() and (error := serving.exception()):
            worker.fail(WorkerError(f"The server failed: {error!r}."))
    finally:
        began = time.monotonic()
        journal.closing.set()
        if journal.outcomes.batches is not None:
            await journal.outcomes.batches.stop()
        await worker.drain()
        server.should_exit = True
        await asyncio.wait([serving, loading], timeout=LAST_BYTES_S)
        server.force_exit = True
        # Prompts that wait to be read there are not: the queue may be long.
        threads.shutdown(wait=False, cancel_futures=True)
        _own_threads()
        if routes.done() and not routes.cancelled() and routes.exception() is None:
            routes.result().state.preparing.close()
        left = settings.drain_timeout + LAST_BYTES_S - (time.monotonic() - began)
        # An answer that is still under way may use the model, and what was given up as well.
        closing = asyncio.to_thread(worker.close, free=serving.done() and worker.is_quiet())
        await asyncio.gather(closing, _send_spans(journal, left))
        if usage is not None:
            await usage.write()
        if database is not None:
            await in_thread("database", database.close)
        if journal.lines is not None:
            journal.lines.close()
        for task in (*ends, *keeping, serving, loading, beside, routes):
            task.cancel()
    if worker.error is not None:
        raise worker.error


def _check_spans() -> None:
    """Raise UsageError where what --otel needs is not installed."""
    found = False
    with contextlib.suppress(ModuleNotFoundError):
        found = all(importlib.util.find_spec(name) for name in _OTEL)
    if not found:
        raise UsageError(
            "--otel needs packages that are not installed.",
            hint="Install the worker with its extra: gguf-worker[otel].",
        )


async def _send_spans(journal: Journal, seconds: float) -> None:
    """Send what was not sent yet; a collector that does not answer is not waited for long."""
    if journal.spans is not None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(_SPANS_S[0], min(seconds, _SPANS_S[1]))):
                await in_thread("spans", journal.spans.close)


def _own_threads() -> ThreadPoolExecutor:
    """Threads for `asyncio.to_thread`; at its end the loop waits for those it was given last."""
    threads = ThreadPoolExecutor()
    asyncio.get_running_loop().set_default_executor(threads)
    return threads


def _open_database(settings: Settings) -> Database | None:
    """What --state-dir keeps. SQLite is imported for who wants it, which takes 4 ms."""
    if settings.state_dir is None:
        return None
    from worker.database.database import Database

    return Database(settings.state_dir)


def _kept_usage(database: Database, journal: Journal) -> KeptUsage:
    from worker.service.kept_usage import KeptUsage

    return KeptUsage(database, journal.outcomes)


async def _open(gate: Gate, worker: Worker, journal: Journal, database: Database | None) -> Any:
    """Import and make the application behind the gate, while native code loads the weights."""

    def make() -> Any:
        worker.at_weights.wait(_ROUTES_AFTER_S)
        # First what the model needs once its weights are there, then what comes after it.
        with worker.time_part("routes"):
            import_module("worker.lifecycle.compose")
            import_module("worker.lifecycle.manager")
            from worker.service.app import create_app

            app = create_app(worker, journal, database)
        if worker.settings.otel:
            with worker.time_part("spans"):
                from worker.requests.spans import Spans

                journal.spans = Spans(worker.id)
        return app

    app = await in_thread("routes", make)
    gate.open(app)
    return app


async def _look_at_templates(worker: Worker, routes: asyncio.Task[Any]) -> None:
    """Once there are routes, say what no chat can be rendered by, while weights are loaded."""

    def look() -> None:
        from worker.api.intake.chat.templates import log_template_failures

        worker.at_weights.wait()
        if worker.prepared is not None and not worker.prepared.config.only_embeds:
            with worker.time_part("templates"):
                log_template_failures(worker.prepared.config.tokenizer, worker.settings)

    await routes
    await in_thread("templates", look)


async def _become_ready(
    worker: Worker,
    journal: Journal,
    beside: asyncio.Task[None],
    host: str,
    port: int,
) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SHORT_INTERVAL_S)
    try:
        await worker.load(beside=beside)
    finally:
        gc.freeze()  # to look through all that was imported would stop streams for 40 ms and more
        sys.setswitchinterval(interval)
    if worker.state is State.READY:
        from worker.lifecycle.manager import Manager

        journal.speeds.start(worker.loaded.engine)
        if journal.on_ready is not None:
            journal.on_ready()
        if journal.outcomes.batches is not None:
            # As many again are made ready while those of the slots run.
            journal.outcomes.batches.start(2 * worker.loaded.plan.num_slots)
        Manager(worker, worker.loaded, host, port).start()


class _LoopErrors:
    """asyncio's complaints in our log, one a second."""

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


def _on_signals(worker: Worker) -> None:
    """The first signal drains, a second one leaves at once.

    A signal after POST /shutdown is the first: what stops services sends both.
    """
    loop = asyncio.get_running_loop()
    seen: list[str] = []

    def on_signal(name: str) -> None:
        log.get("service").info("signal", console="", name=name)
        if seen:
            os._exit(worker.error.exit_code if worker.error else 0)
        seen.append(name)
        worker.request_stop(name)

    for number in stop_signals():
        loop.add_signal_handler(number, on_signal, number.name)


def _on_parents_death(worker: Worker) -> None:
    """Streams end at once, with their error event: who would wait for the drain is gone."""
    loop = asyncio.get_running_loop()

    def on_death() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(partial(worker.request_stop, "the parent is gone", now=True))

    parent.watch(worker.settings.die_with_parent, on_death)

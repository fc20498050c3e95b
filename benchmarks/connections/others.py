"""Clients that behave well, and how long they wait."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time

import numpy as np

from benchmarks.connections.held import HeldWorker

_BODY = {"prompt": "the rain in the hills ", "max_tokens": 64, "stream": True, "ignore_eos": True}
_TIMEOUT_S = 60.0

Waits = dict[str, list[float]]


def p95(waits: list[float]) -> float:
    """The 95th of a hundred."""
    return float(np.percentile(waits, 95))


def waits_of(worker: HeldWorker, seconds: float, streams: int) -> Waits:
    """Seconds that people waited: "health", "first token", "next token".

    `streams` of them ask for one answer after the other; one asks for health 50 times a second.
    """
    stopping = threading.Event()
    found: list[Waits] = []

    def run(ask: type[_Asker]) -> None:
        waits: Waits = {}
        found.append(waits)
        with contextlib.closing(
            http.client.HTTPConnection(worker.host, worker.port, timeout=_TIMEOUT_S)
        ) as connection:
            while not stopping.is_set():
                ask.once(connection, waits)

    threads = [threading.Thread(target=run, args=(_Talk,)) for _ in range(streams)]
    threads.append(threading.Thread(target=run, args=(_Probe,)))
    for thread in threads:
        thread.start()
    stopping.wait(seconds)
    stopping.set()
    for thread in threads:
        thread.join()
    names = {name for waits in found for name in waits}
    return {name: [wait for waits in found for wait in waits.get(name, [])] for name in names}


class _Asker:
    @staticmethod
    def once(connection: http.client.HTTPConnection, waits: Waits) -> None:
        """Ask, and note how long it took."""
        raise NotImplementedError


class _Talk(_Asker):
    @staticmethod
    def once(connection: http.client.HTTPConnection, waits: Waits) -> None:
        last, name = time.perf_counter(), "first token"
        connection.request("POST", "/v1/completions", json.dumps(_BODY))
        answer = connection.getresponse()
        for line in answer:
            if line.startswith(b"data: {"):
                now = time.perf_counter()
                waits.setdefault(name, []).append(now - last)
                last, name = now, "next token"


class _Probe(_Asker):
    @staticmethod
    def once(connection: http.client.HTTPConnection, waits: Waits) -> None:
        time.sleep(0.02)
        begun = time.perf_counter()
        connection.request("GET", "/health")
        connection.getresponse().read()
        waits.setdefault("health", []).append(time.perf_counter() - begun)

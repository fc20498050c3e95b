"""How long a worker goes on for a client that left."""

from __future__ import annotations

import json
import random
import socket
import time

from benchmarks.connections.held import HeldWorker

_TIMEOUT_S = 60.0


def _asked(worker: HeldWorker, words: int) -> socket.socket:
    prompt = "".join(random.choices(("rain ", "hill ", "seven ", "note "), k=words))
    body = json.dumps(
        {"prompt": prompt, "max_tokens": 1000, "stream": True, "ignore_eos": True}
    ).encode()
    peer = socket.create_connection((worker.host, worker.port), timeout=_TIMEOUT_S)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    peer.sendall(head + body)
    return peer


def while_writing(worker: HeldWorker, count: int) -> list[float]:
    """Seconds from closing the connection to an idle worker, some tokens after the first."""
    waits: list[float] = []
    for _ in range(count):
        with _asked(worker, 3) as peer:
            peer.recv(65_536)
            time.sleep(random.random() * 0.05)
        waits.append(_until_idle(worker))
    return waits


def while_reading(worker: HeldWorker, count: int, words: int) -> tuple[list[float], float]:
    """The same at any moment of reading a prompt; and the mean seconds of a chunk of it."""
    names = ('worker_step_seconds_total{kind="prompts"', "worker_steps_total")
    before = [worker.metric(name) for name in names]
    begun = time.monotonic()
    with _asked(worker, words) as peer:
        while b"data: " not in peer.recv(65_536):
            pass
        whole = time.monotonic() - begun
    _until_idle(worker)
    seconds, steps = (worker.metric(name) - old for name, old in zip(names, before, strict=True))
    waits: list[float] = []
    for _ in range(count):
        with _asked(worker, words):
            time.sleep(random.random() * whole * 0.8)
        waits.append(_until_idle(worker))
    return waits, seconds / max(1.0, steps)


def _until_idle(worker: HeldWorker) -> float:
    begun = time.perf_counter()
    worker.wait_until_idle()
    return time.perf_counter() - begun

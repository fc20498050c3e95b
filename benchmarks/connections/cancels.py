"""How long a worker goes on for a client that left."""

from __future__ import annotations

import json
import random
import socket
import time
from typing import NamedTuple

from benchmarks.connections.held import HeldWorker

_TIMEOUT_S = 60.0
_CHUNK = 512  # rows of a step, by default


class Wait(NamedTuple):
    """How long something took, and the worker's CPU time meanwhile."""

    seconds: float
    cpu_s: float


def _asked(worker: HeldWorker, words: int) -> socket.socket:
    prompt = "".join(random.choices(("rain ", "hill ", "seven ", "note "), k=words))
    body = json.dumps(
        {"prompt": prompt, "max_tokens": 1000, "stream": True, "ignore_eos": True}
    ).encode()
    peer = socket.create_connection((worker.host, worker.port), timeout=_TIMEOUT_S)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(
        body
    )
    peer.sendall(head + body)
    return peer


def while_writing(worker: HeldWorker, count: int) -> list[Wait]:
    """From closing the connection to an idle worker, some tokens after the first."""
    waits: list[Wait] = []
    for _ in range(count):
        with _asked(worker, 3) as peer:
            peer.recv(65_536)
            time.sleep(random.random() * 0.05)
        waits.append(_until_idle(worker))
    return waits


def while_reading(worker: HeldWorker, count: int, words: int) -> tuple[list[Wait], Wait]:
    """The same at any moment of reading a prompt; and what a whole chunk of it takes."""
    name = "worker_prompt_tokens_computed_total"
    tokens, cpu, begun = worker.metric(name), worker.cpu_s, time.monotonic()
    with _asked(worker, words) as peer:
        while b"data: " not in peer.recv(65_536):
            pass
        whole = Wait(time.monotonic() - begun, worker.cpu_s - cpu)
    _until_idle(worker)
    chunk = min(1.0, _CHUNK / (worker.metric(name) - tokens))
    waits: list[Wait] = []
    for _ in range(count):
        with _asked(worker, words):
            time.sleep(random.random() * whole.seconds * 0.8)
        waits.append(_until_idle(worker))
    return waits, Wait(whole.seconds * chunk, whole.cpu_s * chunk)


def _until_idle(worker: HeldWorker) -> Wait:
    cpu, begun = worker.cpu_s, time.perf_counter()
    worker.wait_until_idle()
    return Wait(time.perf_counter() - begun, worker.cpu_s - cpu)

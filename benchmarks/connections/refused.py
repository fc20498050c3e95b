"""Many clients at the same moment where all places are taken, and how soon each is told so."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

from benchmarks.connections.held import HeldWorker

_TIMEOUT_S = 60.0
_PROMPT = "Once upon a time " * 60
_SETTLE_S = 0.5
_PATIENCE_S = 1.0
# Until all places are taken; they stay so for longer.
_TAKEN_S = 5.0
# Sent between two looks at what has come.
_BURST = 16


class Refusals(NamedTuple):
    """waits    seconds from the request that was sent to the 429 that was read, of each refused one
    statuses  of all answers that came
    loop_s    CPU time of the worker's event loop meanwhile
    client_s  CPU time of the clients, which share the machine
    """

    waits: list[float]
    statuses: Counter[int]
    loop_s: float
    client_s: float


def _request(tokens: int) -> bytes:
    body = json.dumps({"prompt": _PROMPT, "max_tokens": tokens, "ignore_eos": True}).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body), body,
    )  # fmt: skip


def _loop_s(worker: HeldWorker) -> float:
    """The event loop is the first thread of its process."""
    text = Path(f"/proc/{worker.pid}/task/{worker.pid}/schedstat").read_text()
    return int(text.split()[0]) / 1e9


@contextlib.contextmanager
def taken(worker: HeldWorker, places: int) -> Generator[None]:
    """All places of a worker are taken, by answers that do not end.

    Raises TimeoutError where they do not become so. Those of clients that have just left are free
    a little after /health says that nothing waits: they were still on their way into the queue.
    """
    time.sleep(_SETTLE_S)
    with contextlib.ExitStack() as held:
        for _ in range(places):
            peer = socket.create_connection((worker.host, worker.port), timeout=_TIMEOUT_S)
            held.enter_context(peer).sendall(_request(1500))
        deadline = time.monotonic() + _TAKEN_S
        while (health := worker.health())["slots_processing"] + health["queue_depth"] < places:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the worker's {places} places are not taken: {health}")
            time.sleep(0.05)
        time.sleep(_SETTLE_S)
        yield
    worker.wait_until_idle()


def come_at_once(worker: HeldWorker, count: int, most: int, *, connected: bool) -> Refusals:
    """So many clients ask at the same moment, until `most` are refused, or no more are.

    connected  whether they were before; their connections count too where not
    """
    address, request = (worker.host, worker.port), _request(40)
    sent: dict[socket.socket, float] = {}
    waits: list[float] = []
    statuses: Counter[int] = Counter()
    with contextlib.ExitStack() as stack, selectors.EpollSelector() as answers:

        def connection() -> socket.socket:
            return stack.enter_context(socket.create_connection(address, timeout=_TIMEOUT_S))

        def look(patience_s: float) -> None:
            for key, _ in answers.select(patience_s):
                peer: socket.socket = key.fileobj  # type: ignore[assignment]
                status = int(peer.recv(65_536)[9:12])
                answers.unregister(peer)
                statuses[status] += 1
                if status == 429:
                    waits.append(time.perf_counter() - sent[peer])

        peers = [connection() for _ in range(count)] if connected else []
        time.sleep(_SETTLE_S)
        loop_s, client_s = _loop_s(worker), time.process_time()
        for number in range(count):
            begun = time.perf_counter()
            peer = peers[number] if connected else connection()
            sent[peer] = time.perf_counter() if connected else begun
            peer.sendall(request)
            answers.register(peer, selectors.EVENT_READ)
            if number % _BURST == _BURST - 1:
                look(0)
        last, seen = time.monotonic(), len(waits)
        while len(waits) < most and time.monotonic() - last < _PATIENCE_S:
            look(_PATIENCE_S)
            if len(waits) > seen:
                last, seen = time.monotonic(), len(waits)
        loop_s, client_s = _loop_s(worker) - loop_s, time.process_time() - client_s
    return Refusals(waits, statuses, loop_s, client_s)

"""Clients that leave at random moments."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
import threading
import time
from collections import Counter

MOMENTS = (
    "before the head", "in the head", "in the body", "waiting", "reading the prompt", "writing",
    "before the end",
)  # fmt: skip
_TIMEOUT_S = 60.0
_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset
_WORDS = ("rain ", "hill ", "seven ", "a ", "note ", "of ", "sea ")


def leave(host: str, port: int, draw: random.Random, *, tokens: int, words: int) -> str:
    """Ask for something and leave; the moment.

    tokens  of an answer
    words   of a long prompt
    """
    moment = draw.choice(MOMENTS)
    streams = moment in ("writing", "before the end") or draw.random() < 0.5
    count = words if moment == "reading the prompt" else draw.randrange(1, 20)
    body = json.dumps({
        "prompt": "".join(draw.choices(_WORDS, k=count)), "max_tokens": tokens,
        "stream": streams, "ignore_eos": True,
    }).encode()  # fmt: skip
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(
        body
    )
    sent = {
        "before the head": 0,
        "in the head": draw.randrange(1, len(head)),
        "in the body": len(head) + draw.randrange(len(body)),
    }.get(moment, len(head) + len(body))
    with socket.create_connection((host, port), timeout=_TIMEOUT_S) as peer:
        if draw.random() < 0.5:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        with contextlib.suppress(ConnectionError):
            peer.sendall((head + body)[:sent])
            if moment == "writing":
                _read(peer, draw.randrange(1, max(2, tokens - 1)))
            elif moment == "before the end":
                _read(peer, tokens - 1)
            else:
                time.sleep(draw.random() * 0.02)
    return moment


def _read(peer: socket.socket, events: int) -> None:
    """So many events of a stream, or its end."""
    seen = b""
    while seen.count(b"data: ") < events and (data := peer.recv(65_536)):
        seen += data


def leave_all(
    host: str, port: int, count: int, *, seed: int, tokens: int, words: int, at_once: int = 16
) -> Counter[str]:
    """So many clients, some at the same time; how many left at each moment."""
    left: Counter[str] = Counter()
    numbers = iter(range(count))
    lock = threading.Lock()

    def run() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            moment = leave(host, port, random.Random(seed + number), tokens=tokens, words=words)
            with lock:
                left[moment] += 1

    threads = [threading.Thread(target=run) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return left

"""Streamed completions as a client sees them: when each event arrived.

Clients share the machine with the server, so nothing is parsed while an answer is under way.
"""

from __future__ import annotations

import http.client
import itertools
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec

from worker.bench.corpus import random_tokens
from worker.bench.plan import Sizes
from worker.bench.server import Server
from worker.bench.speed import Requests, requests_of
from worker.errors import BackendError

_TIMEOUT_S = 600.0
_READ = 1 << 16


class _Choice(msgspec.Struct):
    text: str = ""
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    completion_tokens: int = 0


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: msgspec.Raw | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One streamed answer; moments are `time.perf_counter`'s.

    moments  of the events that brought text; a token may bring none of its own, because bytes of
             a character wait for each other
    tokens   as the server counted them
    """

    sent: float
    moments: tuple[float, ...]
    tokens: int


class Client:
    """Sends prompts of token ids that no earlier request had, so that no prefix is shared."""

    def __init__(self, server: Server, vocab_size: int, seed: int) -> None:
        self._server, self._vocab_size, self._seed = server, vocab_size, seed

    def measure(self, sizes: Sizes, streams: int) -> Requests:
        """`streams` clients, each sending its next request when the one before has ended.

        The first request of each is not counted.
        """
        with ThreadPoolExecutor(streams) as pool:
            rounds = [
                list(pool.map(self._ask, self._seeds(streams), [sizes] * streams))
                for _ in range(sizes.requests + 1)
            ][1:]
        answers = list(itertools.chain.from_iterable(rounds))
        gaps = [
            later - earlier
            for answer in answers
            for earlier, later in itertools.pairwise(answer.moments)
        ]
        first = [answer.moments[0] - answer.sent for answer in answers if answer.moments]
        speeds = [_speed(round_) for round_ in rounds]
        return requests_of(streams, sizes, first, gaps, speeds)

    def _seeds(self, count: int) -> range:
        first, self._seed = self._seed, self._seed + count
        return range(first, first + count)

    def _ask(self, seed: int, sizes: Sizes) -> Answer:
        prompt = random_tokens(seed, sizes.prompt, self._vocab_size).tolist()
        body = msgspec.json.encode(
            {
                "prompt": prompt,
                "max_tokens": sizes.decode,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
        return ask(self._server, body)


def ask(server: Server, body: bytes) -> Answer:
    """Send one request and read its answer to the end. Raises BackendError where it failed."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=_TIMEOUT_S)
    reads: list[tuple[float, bytes]] = []
    try:
        sent = time.perf_counter()
        headers = {"Content-Type": "application/json", "Connection": "close"}
        connection.request("POST", "/v1/completions", body, headers)
        response = connection.getresponse()
        while data := response.read1(_READ):
            reads.append((time.perf_counter(), data))
    except (OSError, http.client.HTTPException) as error:
        raise BackendError(f"The server did not answer to the end: {error!r}.") from None
    finally:
        connection.close()
    if response.status != 200:
        text = b"".join(data for _, data in reads)[:200].decode(errors="replace")
        raise BackendError(f"The server answered {response.status}: {text}.")
    return _answer(sent, reads)


def _answer(sent: float, reads: list[tuple[float, bytes]]) -> Answer:
    """An event counts when the read that completed its line came."""
    moments: list[float] = []
    tokens, rest = 0, b""
    for moment, data in reads:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            body = line.removeprefix(b"data:").strip()
            if not line.startswith(b"data:") or body == b"[DONE]":
                continue
            event = msgspec.json.decode(body, type=_Event)
            if event.error is not None:
                raise BackendError(f"The server failed: {bytes(event.error)[:200]!r}.")
            if event.choices:
                moments.append(moment)
            if event.usage is not None:
                tokens = event.usage.completion_tokens
    return Answer(sent=sent, moments=tuple(moments), tokens=tokens)


def _speed(answers: list[Answer]) -> float:
    """Tokens a second of all streams together: the sum of each one's own."""
    return sum(
        (answer.tokens - 1) / (answer.moments[-1] - answer.moments[0])
        for answer in answers
        if len(answer.moments) > 1
    )

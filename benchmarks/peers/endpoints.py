"""A running peer: over HTTP, or a process that answers lines."""

from __future__ import annotations

import http.client
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import msgspec

from benchmarks.peers.answers import TextRequest, Work
from benchmarks.peers.processes import PeerError, last_lines
from worker.bench.measure.client import StreamedAnswer, StreamedRequest

HOST = "127.0.0.1"
_CERTAIN = 100  # added to a token's logit: no other token comes near


class ChatTurn(msgspec.Struct, frozen=True):
    """One message of a chat; `role` is system, user or assistant."""

    role: str
    content: str


class ChatReply(msgspec.Struct, frozen=True):
    """What a chat's answer cost. `seconds` from sending the request to the end of its answer."""

    prompt_tokens: int
    cached_tokens: int
    seconds: float


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    prompt_tokens_details: _PromptDetails | None = None


class _ChatBody(msgspec.Struct):
    usage: _Usage


class Endpoint(Protocol):
    """A running peer."""

    def answer_all(self, work: Work) -> list[StreamedAnswer]:
        """One answer for each request, in their order."""
        ...


class HttpPeer:
    """An OpenAI server on the loopback interface; each request has a connection of its own."""

    def __init__(self, port: int, model: str) -> None:
        self._port, self._model = port, model

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self._port}"

    def status(self, path: str) -> int:
        """The status of a GET; 0 where nothing answers."""
        connection = http.client.HTTPConnection(HOST, self._port, timeout=1)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def request(self, asked: TextRequest, limit_s: float) -> StreamedRequest:
        """A request that is cut off `limit_s` seconds from now."""
        bias = {} if asked.always is None else {"logit_bias": {str(asked.always): _CERTAIN}}
        return StreamedRequest(
            asked.prompt, asked.max_tokens, model=self._model, limit_s=limit_s,
            fields=bias | {**asked.fields},
        )  # fmt: skip

    def run(self, request: StreamedRequest) -> StreamedAnswer:
        """Send one request and read its answer to the end."""
        return request.run(HOST, self._port)

    def chat(
        self, messages: Sequence[ChatTurn], max_tokens: int, limit_s: float = 60.0
    ) -> ChatReply:
        """A greedy answer of exactly `max_tokens` tokens. Raises PeerError where there is none."""
        body = msgspec.json.encode(
            {
                "model": self._model, "messages": messages, "max_tokens": max_tokens,
                "temperature": 0, "ignore_eos": True,
            }
        )  # fmt: skip
        sent = time.monotonic()
        connection = http.client.HTTPConnection(HOST, self._port, timeout=limit_s)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/chat/completions", body, headers)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise PeerError(f"failed a chat: {type(error).__name__}: {error}") from None
        finally:
            connection.close()
        if response.status != 200:
            raise PeerError(f"failed a chat: HTTP {response.status}: {content[:200]!r}")
        usage = msgspec.json.decode(content, type=_ChatBody).usage
        details = usage.prompt_tokens_details
        cached = (details.cached_tokens or 0) if details else 0
        return ChatReply(usage.prompt_tokens, cached, time.monotonic() - sent)

    def answer_all(self, work: Work) -> list[StreamedAnswer]:
        """Closed loop: each client sends its next request when the one before has ended."""
        requests = [self.request(asked, work.limit_s) for asked in work.requests]
        with ThreadPoolExecutor(work.clients) as pool:
            return list(pool.map(self.run, requests))


class BareProcess:
    """`bare_loop` in a process of its own, spoken to in lines."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def answer_all(self, work: Work) -> list[StreamedAnswer]:
        """Compute all requests; `clients` is the size of a wave."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(work) + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise PeerError(f"has ended:\n{last_lines(self._log)}") from None
        return msgspec.json.decode(self.read_line(), type=list[StreamedAnswer])

    def read_line(self) -> bytes:
        """The next line of its stdout."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"has ended:\n{last_lines(self._log)}")
        return line


def warm_up(endpoint: Endpoint, limit_s: float = 60.0) -> None:
    """Ask once. Raises PeerError where the answer is an error."""
    answer = endpoint.answer_all(Work([TextRequest("warm up", 8)], 1, limit_s))[0]
    if answer.error:
        raise PeerError(f"failed its first request: {answer.error}")


def wait_until_ready(
    peer: HttpPeer, path: str, process: subprocess.Popen[bytes], log: Path, limit_s: float
) -> None:
    """Poll until a GET of `path` gives 200. Raises PeerError where the process ends first."""
    deadline = time.monotonic() + limit_s
    while peer.status(path) != 200:
        if process.poll() is not None or time.monotonic() > deadline:
            raise PeerError(f"did not start:\n{last_lines(log)}")
        time.sleep(0.05)

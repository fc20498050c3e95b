"""What the tests of leaving share: clients that are there meanwhile, and what must be left."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Generator, Iterator
from typing import Any

import httpx

from tests.support import http
from tests.support.programs.processes import PATIENCE_S, Server

#: 1,800 tokens, in steps of 16 tokens each: a prompt that is read for long.
PROMPT = [5, 9, 17, 33] * 450
SMALL_STEPS = ("-b", "16", "-ub", "16", "-np", "2", "-t", "1", "-c", "2048")
STREAM = {"prompt": "Hello", "max_tokens": 1_900, "ignore_eos": True, "stream": True}


@contextlib.contextmanager
def streaming(server: Server) -> Generator[Iterator[str]]:
    """The lines of a stream that has begun and would go on for long."""
    url = server.url + "/v1/completions"
    with http.stream("POST", url, json=STREAM) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        yield lines


class Post(threading.Thread):
    """A request without streaming, under way."""

    def __init__(self, server: Server, body: object, path: str = "/v1/completions") -> None:
        super().__init__(daemon=True)
        self._server, self._body, self._path = server, body, path
        self.answer: httpx.Response | None = None
        self.start()

    def run(self) -> None:
        with contextlib.suppress(httpx.HTTPError):
            self.answer = self._server.post(self._body, self._path)

    def result(self) -> tuple[int, dict[str, Any]]:
        """Status and body; fails when the connection was cut."""
        self.join(PATIENCE_S)
        assert self.answer is not None, "no answer"
        return self.answer.status_code, self.answer.json()


def is_free(url: str) -> bool:
    """Whether another worker could listen there."""
    host, port = url.removeprefix("http://").split(":")
    with contextlib.suppress(OSError):
        socket.create_server((host, int(port))).close()
        return True
    return False


def left_with(server: Server, code: int) -> None:
    """The process has ended so, without a word of trouble, and its port is free."""
    assert server.wait() == code, server.lines
    assert is_free(server.url)
    assert not [line for line in server.lines if "Traceback" in line or "error:" in line]

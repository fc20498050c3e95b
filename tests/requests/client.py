"""Asks a worker what it does, and waits until it does something."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx

from tests.support import http
from tests.support.programs.processes import PATIENCE_S, Server

PATH = "/v1/requests"


def address(server: Server) -> tuple[str, int]:
    """Where a socket connects to."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    return host, int(port)


def look(server: Server) -> dict[str, Any]:
    """The whole view."""
    answer = http.get(server.url + PATH)
    assert answer.status_code == 200, answer.text
    return answer.json()


def once(
    server: Server, name: str, part: str, true: Callable[[dict[str, Any]], bool] = bool
) -> dict[str, Any]:
    """The request of this id in `data` or `recent`, once it is there and `true`."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        view = look(server)
        for request in view[part]:
            if request["id"] == name and true(request):
                return request
        assert time.monotonic() < deadline, f"{name} is not so in {part}: {view}"
        time.sleep(0.02)


def is_(state: str) -> Callable[[dict[str, Any]], bool]:
    """Whether a request is in this state."""
    return lambda request: request["state"] == state


def cancel(server: Server, name: str, **headers: str) -> httpx.Response:
    """POST its cancellation."""
    return http.post(f"{server.url}{PATH}/{name}/cancel", headers=headers)

"""Workers that have stopped, or whose machine has gone, as a gateway notices them."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from aiohttp import web

from gguf_fleet.front import pulse
from tests.support import http
from tests.support.gateways import Impostor, gateway, listening, member
from tests.support.programs import until

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices":[{"text":"a"}]}\n\n'


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds takes less."""
    monkeypatch.setattr(pulse, "_LOOK_S", 0.02)
    monkeypatch.setattr(pulse, "QUIET_S", 0.1)
    monkeypatch.setattr(pulse, "SILENCE_S", 0.5)


@contextmanager
def stopped(first: bytes = b"") -> Generator[tuple[str, list[bytes]]]:
    """The URL of a worker that takes connections and says nothing, but `first` to a POST; and what
    it was asked."""
    asked: list[bytes] = []
    done = threading.Event()

    class Stopped(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            data = self.request.recv(1 << 16)
            asked.append(data)
            if data.startswith(b"POST "):
                self.request.sendall(first)
            done.wait()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Stopped) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        done.set()
        server.shutdown()


def post(url: str, **more: Any) -> Any:
    """A completion."""
    return http.post(url + "/v1/completions", json={"prompt": "Once", **more}, timeout=60)


def posts(asked: list[bytes]) -> int:
    """How many requests for completions there were."""
    return sum(each.startswith(b"POST ") for each in asked)


def test_what_it_has_not_answered_goes_to_another() -> None:
    """Of two requests at once one goes to each replica. Both are answered, and the next ones do not
    wait."""
    with ExitStack() as stack:
        url, asked = stack.enter_context(stopped())
        app = Impostor(b'{"choices":[]}')
        good = stack.enter_context(listening(app))
        members = [member("bad", url), member("good", good)]
        fleet = stack.enter_context(gateway({"m": members}, affinity="none"))
        threads = stack.enter_context(ThreadPoolExecutor(8))
        until(lambda: threads.submit(post, fleet).result().status_code == 200 and posts(asked) == 1)
        answers = [threads.submit(post, fleet) for _ in range(8)]
        assert [each.result().status_code for each in answers] == [200] * 8
        assert posts(asked) == 1


def test_its_streams_are_told() -> None:
    """By an error event, as when it had died."""
    part = HEAD + b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
    with stopped(part) as (url, asked), gateway({"m": [member("a", url)]}) as fleet:
        said = post(fleet, stream=True).text
        assert said.startswith(EVENT.decode())
        error = json.loads(said.removeprefix(EVENT.decode()).removeprefix("data: "))
        assert error["error"]["code"] == "replica_lost"
        assert any(b"GET /health " in each for each in asked)


def test_who_takes_long_is_not_given_up() -> None:
    """A whole answer may take its time: the worker's health is good meanwhile."""
    release = threading.Event()
    slow, health = Impostor(b'{"choices":', b"[]}", waits=release), Impostor(b"{}")

    async def app(request: web.Request) -> web.StreamResponse:
        return await (health if request.path == "/health" else slow)(request)

    with (
        listening(app) as url,
        gateway({"m": [member("a", url)]}) as fleet,
        ThreadPoolExecutor(1) as threads,
    ):
        waiting = threads.submit(post, fleet)
        # The last look comes after it would have been given up.
        until(lambda: len(health.asked) > 6)
        assert not waiting.done()
        release.set()
        assert waiting.result().json() == {"choices": []}

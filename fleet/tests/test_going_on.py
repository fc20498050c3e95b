"""Streams whose replica is lost go on at another one; over impostors and over real workers."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import httpx
import pytest

from gguf_fleet.front.partial import PartialAnswer, is_streamed
from gguf_fleet.roster import Roster
from tests.support import http
from tests.support.gateways import KEY, Impostor, gateway, gateway_over, listening, member
from tests.support.programs import Server, serving

EVENTS = "text/event-stream; charset=utf-8"
ASKED: dict[str, Any] = {"model": "demo", "prompt": "Once upon", "stream": True}
OPTIONS = ("--alias", "demo", "-t", "1", "-c", "4096", "-np", "4", "--no-page", "--relayed")
# KILLS=50 STREAMS=60 takes four minutes, with `-o faulthandler_timeout=0`.
NUM_STREAMS, NUM_KILLS = int(os.environ.get("STREAMS", "6")), int(os.environ.get("KILLS", "2"))


@pytest.fixture
def stack() -> Generator[ExitStack]:
    """What a test opens."""
    with ExitStack() as opened:
        yield opened


def marked(*parts: bytes, **more: Any) -> Impostor:
    """Poses as a worker that marks what it tells."""
    return Impostor(*parts, kind=EVENTS, marks=True, **more)


def over(stack: ExitStack, *apps: Impostor) -> str:
    """A gateway that asks them in this order."""
    urls = [stack.enter_context(listening(app)) for app in apps]
    members = [member(f"r{n}", url, slots=1000 - 900 * n) for n, url in enumerate(urls)]
    return stack.enter_context(gateway({"demo": members}))


def test_what_its_client_has(stack: ExitStack) -> None:
    """The next replica is told the tokens behind which the client is, and the same name; what was
    not marked is not passed on. A comment tells of the pause."""
    lost = marked(
        b'data: "a"\n\n:w [0,7]\n\n', b'data: "b"\n\n:w [0,8,[3.0]]\n\n:\n\n:w []\n\ndata: "c"\n\n',
        breaks=True,
    )  # fmt: skip
    good = marked(b'data: "c"\n\n:w [0,9]\n\n', b"data: [DONE]\n\n")
    done = http.post(over(stack, lost, good) + "/v1/completions", json=ASKED)
    comment = ": another replica goes on\n\n"
    assert done.text == f'data: "a"\n\ndata: "b"\n\n:\n\n{comment}data: "c"\n\ndata: [DONE]\n\n'
    assert "x-relay-marks" not in done.headers
    (first, _, body), (again, _, longer) = lost.asked[0], good.asked[0]
    assert first["x-relay"] == again["x-relay"]
    count = int(again["x-relay-written"])
    assert json.loads(longer[:count]) == {
        "events": 2, "tokens": {"0": [7, 8]}, "places": {"0": [3.0]},
        "steps": {"0": [None, None]},
    }  # fmt: skip
    assert json.loads(longer[count:]) == json.loads(body) == ASKED


def test_where_nothing_can_go_on(stack: ExitStack) -> None:
    """One replica after the other is lost at the same token: it may be what ends them."""
    lost = [marked(b"data: 1\n\n:w [0,7]\n\n", breaks=True)]
    lost += [marked(b":\n\n:w []\n\n", breaks=True) for _ in range(4)]
    told = http.post(over(stack, *lost) + "/v1/completions", json=ASKED).text
    assert told.startswith("data: 1\n\n: another replica goes on\n\n")
    assert json.loads(told.rpartition("data: ")[2])["error"]["code"] == "replica_lost"
    asked = [target for each in lost for _, target, _ in each.asked if target != "/health"]
    assert len(asked) == 4


def test_whole_answers_begin_anew(stack: ExitStack) -> None:
    """While only blanks were sent; the answer may have begun otherwise, so it ends."""
    blank, good = Impostor(b" ", b"  ", breaks=True), Impostor(b'{"a": 1}')
    body = {**ASKED, "stream": False}
    assert http.post(over(stack, blank, good) + "/v1/completions", json=body).json() == {"a": 1}
    begun = Impostor(b'{"a"', breaks=True)
    with pytest.raises(httpx.RemoteProtocolError):
        http.post(over(stack, begun, good) + "/v1/completions", json=body)


def test_clients_are_no_relays(stack: ExitStack) -> None:
    """What only a relay may say is not passed on for them."""
    app = Impostor(b"{}")
    headers = {"x-relay": "mine", "x-relay-written": "3"}
    http.post(over(stack, app) + "/tokenize", json={"model": "demo"}, headers=headers)
    assert not {"x-relay", "x-relay-written"} & {name.lower() for name in app.asked[0][0]}


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_marks_in_parts(size: int) -> None:
    """However the bytes come, the client gets whole events, and none of an unmarked group."""
    data = b"data: a\n\ndata: b\n\n:w [0,1]\n\n:\n\n:w []\n\ndata: c\n\n:w [1,2]\n\ndata: d\n\n"
    partial = PartialAnswer()
    partial.begin("text/event-stream")
    parts = [data[begin : begin + size] for begin in range(0, len(data), size)]
    told = b"".join(map(partial.take, parts))
    assert told == b"data: a\n\ndata: b\n\n:\n\ndata: c\n\n"
    assert json.loads(partial.state()) == {
        "events": 3, "tokens": {"0": [1], "1": [2]}, "places": {},
        "steps": {"0": [None], "1": [None]},
    }  # fmt: skip
    assert partial.end() == b"data: d\n\n"


@pytest.mark.parametrize(
    ("path", "stream", "expected"),
    [
        ("/v1/completions", True, True), ("/v1/completions", None, False),
        ("/api/chat", None, True), ("/api/chat", False, False), ("/v1/embeddings", True, False),
    ],
)  # fmt: skip
def test_which_are_streams(path: str, stream: object, expected: bool) -> None:
    """Where the body says so, and Ollama's where it does not deny it."""
    assert is_streamed("POST", path, stream) is expected
    assert not is_streamed("GET", path, stream)


class Replicas:
    """Two slow workers; one that was killed is started again at another address."""

    def __init__(self, stack: ExitStack, step_seconds: float) -> None:
        self._stack, self._step_seconds = stack, step_seconds
        self.roster = Roster({"demo": "none"})
        self.servers = [self._start(), self._start()]
        self.publish()

    def _start(self) -> Server:
        env = {"LLAMA_API_KEY": KEY}
        opened = serving(*OPTIONS, env=env, step_seconds=self._step_seconds)
        return self._stack.enter_context(opened)

    def publish(self) -> None:
        """The gateway asks those that run."""
        members = [member(f"p{each.pid}", each.url) for each in self.servers]
        self.roster.publish("demo", members)

    def replace(self, number: int) -> None:
        """Kill one, and start another."""
        self.servers[number].process.kill()
        self.servers[number].wait()
        self.servers[number] = self._start()
        self.publish()


def text_of(url: str, number: int, begun: threading.Semaphore | None = None) -> str:
    """A stream's text, or what its last event is instead of the end."""
    body = {**ASKED, "prompt": f"Once upon a time {number}", "max_tokens": 80, "temperature": 0,
            "ignore_eos": True}  # fmt: skip
    said, last = "", ""
    with http.stream("POST", url + "/v1/completions", json=body) as answer:
        for line in answer.iter_lines():
            if not line.startswith("data: "):
                continue
            last = line
            if line.startswith('data: {"id"'):
                said += json.loads(line[6:])["choices"][0]["text"]
                if begun is not None:
                    begun.release()
                    begun = None
    return said if last == "data: [DONE]" else last


def test_workers_are_killed(stack: ExitStack) -> None:
    """Under streams: each ends whole, with the text of an undisturbed run."""
    replicas = Replicas(stack, 0.01)
    url = stack.enter_context(gateway_over(replicas.roster))
    with ThreadPoolExecutor(NUM_STREAMS) as pool:
        expected = list(pool.map(partial(text_of, url), range(NUM_STREAMS)))
        assert len({*expected}) > 1
        for kill in range(NUM_KILLS):
            begun = threading.Semaphore(0)
            found = [pool.submit(text_of, url, n, begun) for n in range(NUM_STREAMS)]
            for _ in found:
                assert begun.acquire(timeout=60)
            replicas.replace(kill % 2)
            assert [each.result() for each in found] == expected
    metrics = http.get(url + "/metrics").text
    assert re.search(r'fleet_continued_total\{model="demo"\} [1-9]', metrics)

"""Requests for a model that has no replica: they wait, wake it, and are told so."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from gguf_fleet.cli.main import main
from gguf_fleet.front import overview
from gguf_fleet.roster import Roster
from gguf_fleet.scale import waiting
from tests.support import http
from tests.support.gateways import Impostor, gateway_over, listening, member
from tests.support.programs import until

EVENT = b'data: {"choices": []}\n\n'
STREAM = "text/event-stream; charset=utf-8"


class Sleeper:
    """A model `m` without a replica.

    woken  somebody waits for it
    """

    def __init__(self, stack: ExitStack, app: Impostor) -> None:
        self.woken = threading.Event()
        self.roster = Roster({"m": "none"}, {"m": self.woken.set}, lambda: {"m": 1})
        self.url = stack.enter_context(gateway_over(self.roster))
        self._member = member("a", stack.enter_context(listening(app)))

    def come(self) -> None:
        """Its first replica is there."""
        self.roster.publish("m", [self._member])


@pytest.fixture
def stack() -> Generator[ExitStack]:
    """What a test opens."""
    with ExitStack() as opened:
        yield opened


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pulse does not take a second."""
    monkeypatch.setattr(waiting, "PULSE_S", 0.1)


def told(sleeper: Sleeper, path: str = "/v1/completions", **body: Any) -> tuple[int, bytes]:
    """A stream whose replica comes after the first comment; its status and bytes."""
    parts: list[bytes] = []
    content = {"prompt": "Once", "stream": True, **body}
    with http.stream("POST", sleeper.url + path, json=content) as answer:
        for part in answer.iter_raw():
            parts.append(part)
            sleeper.come()
    return answer.status_code, b"".join(parts)


def test_a_stream_is_told_and_then_answered(stack: ExitStack) -> None:
    """Comments, then the worker's own bytes."""
    app = Impostor(EVENT, b"data: [DONE]\n\n", kind=STREAM)
    sleeper = Sleeper(stack, app)
    status, said = told(sleeper)
    assert status == 200
    assert said.startswith(b":\n\n")
    assert said.replace(b":\n\n", b"") == EVENT + b"data: [DONE]\n\n"
    assert sleeper.woken.is_set()


@pytest.mark.parametrize(
    ("path", "start"), [("/v1/completions", b"data: "), ("/v1/messages", b"event: error\ndata: ")]
)
def test_a_refusal_after_comments_is_an_event(stack: ExitStack, path: str, start: bytes) -> None:
    """The status is sent already; the worker's own words are the last event."""
    sleeper = Sleeper(stack, Impostor(b'{"error": {"code": "bad"}}', status=400))
    status, said = told(sleeper, path)
    assert status == 200
    assert said.replace(b":\n\n", b"") == start + b'{"error": {"code": "bad"}}\n\n'


def test_others_wait_in_silence(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole answer and Ollama's lines have no comments; their bytes are the worker's."""
    app = Impostor(b"{}\n")
    for path, body in (("/v1/completions", {}), ("/api/chat", {"stream": True})):
        sleeper = Sleeper(stack, app)
        answers: list[httpx.Response] = []

        def ask(url: str, content: Any = body, into: list[httpx.Response] = answers) -> None:
            into.append(http.post(url, json={"prompt": "Once", **content}))

        thread = threading.Thread(target=ask, args=(sleeper.url + path,))
        thread.start()
        assert sleeper.woken.wait(30)
        monkeypatch.setattr(waiting, "PULSE_S", 0.0)
        sleeper.come()
        thread.join(30)
        assert [(each.status_code, each.content) for each in answers] == [(200, b"{}\n")]


def test_patience_ends(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 with Retry-After; a stream that was told gets it as an event."""
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.3)
    sleeper = Sleeper(stack, Impostor(b"{}"))
    answer = http.post(sleeper.url + "/v1/completions", json={"prompt": "Once"})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["code"] == "loading_replicas"
    stream = http.post(sleeper.url + "/v1/completions", json={"prompt": "Once", "stream": True})
    assert stream.status_code == 200
    event = stream.text.replace(":\n\n", "")
    assert json.loads(event.removeprefix("data: "))["error"]["code"] == "loading_replicas"


def test_the_room_is_bounded(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """429 with Retry-After for who comes when it is full."""
    monkeypatch.setattr(waiting, "ROOM", 1)
    sleeper = Sleeper(stack, Impostor(b"{}"))
    url = sleeper.url + "/v1/completions"
    first = threading.Thread(target=http.post, args=(url,), kwargs={"json": {"prompt": "Once"}})
    first.start()
    assert sleeper.woken.wait(30)
    refused = http.post(url, json={"prompt": "Once"})
    sleeper.come()
    first.join(30)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")


def test_who_leaves_waits_no_more(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place in the room is free again, while there is still no replica."""
    monkeypatch.setattr(waiting, "ROOM", 1)
    sleeper = Sleeper(stack, Impostor(b"{}"))

    def ask() -> int:
        body = {"prompt": "Once", "stream": True}
        with http.stream("POST", sleeper.url + "/v1/completions", json=body) as answer:
            return answer.status_code

    assert ask() == 200
    until(lambda: ask() == 200)


@pytest.mark.parametrize(("wanted", "said"), [(0, "sleeps"), (2, "2 more to come")])
def test_status(
    stack: ExitStack, wanted: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`worker fleet status` says what Ray is about to do."""
    roster = Roster({"m": "none"}, {"m": lambda: None}, lambda: {"m": wanted})
    assert main(["status", stack.enter_context(gateway_over(roster))]) == 0
    assert said in capsys.readouterr().out


def test_fleet_answers_while_ray_does_not(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it wants is then not known."""
    monkeypatch.setattr(overview, "_WANTED_S", 0.05)
    hangs = threading.Event()
    stack.callback(hangs.set)
    roster = Roster({"m": "none"}, wanted=lambda: {"m": int(hangs.wait(60))})
    url = stack.enter_context(gateway_over(roster))
    assert http.get(url + "/fleet").json()["models"]["m"]["wanted"] is None
    hangs.set()


def test_what_sleeps_is_served(stack: ExitStack) -> None:
    """It is well, is listed, and /fleet says how many are to come."""
    sleeper = Sleeper(stack, Impostor(b"{}"))
    assert http.get(sleeper.url + "/health").status_code == 200
    assert [each["id"] for each in http.get(sleeper.url + "/v1/models").json()["data"]] == ["m"]
    assert [each["name"] for each in http.get(sleeper.url + "/api/tags").json()["models"]] == ["m"]
    assert http.get(sleeper.url + "/api/ps").json() == {"models": []}
    view = http.get(sleeper.url + "/fleet").json()["models"]["m"]
    assert (view["replicas"], view["wanted"]) == ([], 1)
    assert not sleeper.woken.is_set()


def test_a_model_that_nothing_wakes(stack: ExitStack) -> None:
    """Its requests are refused at once."""
    url = stack.enter_context(gateway_over(Roster({"m": "none"})))
    answer = http.post(url + "/v1/completions", json={"prompt": "Once"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")

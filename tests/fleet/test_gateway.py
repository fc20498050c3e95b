"""The endpoint over programs that pose as workers: who is asked, and what is passed on."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.fleet.gateways import KEY, Impostor, gateway, hanging_up, listening, member
from tests.support import http
from worker.fleet.routing import Member

STREAM = "text/event-stream; charset=utf-8"


@pytest.fixture
def stack() -> Generator[ExitStack]:
    """What a test opens."""
    with ExitStack() as opened:
        yield opened


def replica(stack: ExitStack, id: str, app: Impostor, limit: int = 68) -> Member:  # noqa: A002
    """An impostor as a replica."""
    return member(id, stack.enter_context(listening(app)), limit=limit)


def nobody(id: str = "gone") -> Member:  # noqa: A002
    """A replica that cannot be reached."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return member(id, f"http://127.0.0.1:{sock.getsockname()[1]}")


def post(url: str, path: str = "/v1/completions", **body: Any) -> httpx.Response:
    """POST JSON."""
    return http.post(url + path, json={"prompt": "Once", **body})


def test_bytes_pass_as_they_are(stack: ExitStack) -> None:
    """Any bytes, the query, the escapes of the path, the worker's own headers, both ways."""
    said = bytes(range(256)) + b"\r\n\r\n\xff\x00"
    app = Impostor(said, b"", said[::-1], kind="application/octet-stream")
    url = stack.enter_context(gateway({"m": [replica(stack, "a", app)]}))
    body = b'{"model": "m" ,\n "prompt":"\xc3\xa9"}'
    headers = {"x-mine": "2", "authorization": "Bearer nobody's", "x-api-key": "nobody's"}
    done = http.post(f"{url}/any/%2Fpath?q=%20a&b", content=body, headers=headers)
    assert done.content == said + said[::-1]
    assert done.headers["x-theirs"] == "1"
    ((fields, target, heard),) = app.asked
    assert heard == body
    assert target == "/any/%2Fpath?q=%20a&b"
    assert fields[b"x-mine"] == b"2"
    assert fields[b"authorization"] == f"Bearer {KEY}".encode()
    assert b"x-api-key" not in fields


def test_statuses_pass(stack: ExitStack) -> None:
    """An error of the worker's is its own, whatever it is."""
    for status in (400, 401, 404, 413, 500, 501):
        app = Impostor(b'{"error": 1}', status=status)
        with gateway({"m": [replica(stack, "a", app)]}) as url:
            done = post(url)
        assert (done.status_code, done.content) == (status, b'{"error": 1}')


def test_the_name_chooses(stack: ExitStack) -> None:
    """In the body or in the path; where there is one model no name is needed."""
    apps = {name: Impostor(name.encode()) for name in ("a", "b:q4")}
    models = {name: [replica(stack, name[:1], app)] for name, app in apps.items()}
    url = stack.enter_context(gateway(models))
    for name in apps:
        assert post(url, model=name).text == name
        assert post(url, f"/models/{name}/tokenize").text == name
        assert http.get(f"{url}/models/{name}/props").text == name
        assert http.get(f"{url}/v1/models/{name}").text == name
        assert http.get(f"{url}/replicas/{name[:1]}/slots?a=1").text == name
    assert [target for _, target, _ in apps["a"].asked] == [
        "/v1/completions", "/tokenize", "/props", "/v1/models/a", "/slots?a=1",
    ]  # fmt: skip
    single = stack.enter_context(gateway({"a": models["a"]}))
    assert post(single).text == "a"
    assert http.get(single + "/props").text == "a"


def test_names_that_nobody_has(stack: ExitStack) -> None:
    """404 with the name, in the shape of the API; 400 where a name is needed and missing."""
    models = {name: [replica(stack, name, Impostor(b"{}"))] for name in "ab"}
    url = stack.enter_context(gateway(models))
    missing = post(url, model="c")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"
    assert missing.json()["error"]["param"] == "model"
    message = "The model 'c' is not served here. This fleet serves a, b."
    assert missing.json()["error"]["message"] == message
    assert post(url, "/v1/messages", model="c").json()["error"]["type"] == "not_found_error"
    assert post(url, "/api/chat", model="c").json() == {"error": message}
    for path in ("/models/c/props", "/v1/models/c", "/replicas/c/props"):
        assert http.get(url + path).status_code == 404
    unnamed = post(url)
    assert unnamed.status_code == 400
    assert unnamed.json()["error"]["message"].startswith("model is missing.")
    assert http.post(url + "/v1/completions", content=b"{").status_code == 400


def test_the_key_at_the_edge(stack: ExitStack) -> None:
    """All but health asks for it; nobody may stop a worker."""
    app = Impostor(b"{}")
    models = {"m": [replica(stack, "a", app)]}
    url = stack.enter_context(gateway(models, key="edge"))
    assert post(url).status_code == 401
    assert http.get(url + "/fleet").status_code == 401
    assert http.get(url + "/health").json() == {"status": "ok", "replicas": {"m": 1}}
    assert app.asked == []
    headers = {"authorization": "Bearer edge"}
    assert http.post(url + "/tokenize", json={}, headers=headers).status_code == 200
    for path in ("/shutdown", "/models/m/v1/shutdown", "/replicas/a/v1/admin/shutdown"):
        assert http.post(url + path, headers=headers).status_code == 403
    assert len(app.asked) == 1


def test_a_conversation_stays(stack: ExitStack) -> None:
    """Its turns go to one replica; the sessions of clients too, where that is asked for."""
    names = ("r1", "r2", "r3", "r4")
    members = [replica(stack, name, Impostor(name.encode())) for name in names]
    url = stack.enter_context(gateway({"m": members}))
    begun = [{"role": "user", "content": "Hello"}]
    grown = [*begun, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "?"}]
    homes = {post(url, "/v1/chat/completions", messages=turns).text for turns in (begun, grown)}
    assert len(homes) == 1
    assert len({post(url, prompt=f"{n}").text for n in range(32)}) > 1
    url = stack.enter_context(gateway({"m": members}, affinity="session"))
    assert len({post(url, prompt=f"{n}", prompt_cache_key="s").text for n in range(16)}) == 1
    named = [http.post(url + "/tokenize", headers={"x-session-id": "s"}).text for _ in range(8)]
    assert len(set(named)) == 1
    assert len({post(url).text for _ in range(64)}) == 4


@pytest.mark.parametrize("status", [429, 503])
def test_a_refusal_is_tried_elsewhere(stack: ExitStack, status: int) -> None:
    """Full, loading or leaving replicas are passed over; where all refuse, so does the fleet."""
    full, good = Impostor(b'{"error":{}}', status=status), Impostor(b"good")
    members = [replica(stack, "full", full), replica(stack, "good", good)]
    url = stack.enter_context(gateway({"m": members}, affinity="none"))
    assert {post(url).text for _ in range(12)} == {"good"}
    assert full.asked
    only = stack.enter_context(gateway({"m": members[:1]}))
    assert (post(only).status_code, post(only).text) == (status, '{"error":{}}')


def test_a_dead_replica_is_passed_over(stack: ExitStack) -> None:
    """One that cannot be reached, or breaks off before its first byte; it is asked last then."""
    silent = member("silent", stack.enter_context(hanging_up()))
    members = [nobody(), silent, replica(stack, "good", Impostor(b"good"))]
    url = stack.enter_context(gateway({"m": members}, affinity="none"))
    assert {post(url).text for _ in range(12)} == {"good"}
    assert post(stack.enter_context(gateway({"m": [silent]}))).status_code == 503
    alone = stack.enter_context(gateway({"m": [nobody()]}))
    assert post(alone).status_code == 503
    assert post(alone).headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("path", "kind", "end"),
    [
        ("/v1/completions", STREAM, "\n\ndata: {"),
        ("/v1/messages", STREAM, "\n\nevent: error\ndata: {"),
        ("/api/chat", "application/x-ndjson", '\n{"error":"'),
    ],
)
def test_a_stream_that_breaks_off_says_so(stack: ExitStack, path: str, kind: str, end: str) -> None:
    """After the first byte no other replica is asked; the error is an event of its own."""
    said = "data: 1\n\nda"
    broken, good = Impostor(said.encode(), kind=kind, breaks=True), Impostor(b"good")
    members = [replica(stack, "broken", broken), replica(stack, "good", good, limit=0)]
    url = stack.enter_context(gateway({"m": members}))
    told = post(url, path).text
    assert told.startswith(said + end)
    assert "The replica that generated this is gone." in told
    assert good.asked == []


def test_an_answer_that_breaks_off_is_no_answer(stack: ExitStack) -> None:
    """Without events there is no place for an error: the connection ends early."""
    broken = Impostor(b'{"text": ', breaks=True)
    url = stack.enter_context(gateway({"m": [replica(stack, "a", broken)]}))
    with pytest.raises(httpx.RemoteProtocolError):
        post(url)


def test_no_replica_is_ready() -> None:
    """503 until one is; health says which model waits."""
    with gateway({"m": []}) as url:
        assert post(url).status_code == 503
        assert http.get(url + "/health").status_code == 503
        assert http.get(url + "/health").json() == {"status": "starting", "replicas": {"m": 0}}
        assert http.get(url + "/fleet").json()["models"]["m"]["replicas"] == []


def test_large_bodies_are_refused(stack: ExitStack) -> None:
    """At the edge, with the worker's own limit."""
    app = Impostor(b"{}")
    url = stack.enter_context(gateway({"m": [replica(stack, "a", app)]}))
    assert http.post(url + "/tokenize", content=b" " * (2**24 + 1)).status_code == 413
    assert app.asked == []
    large = json.dumps({"prompt": "a" * 2**22}).encode()
    assert http.post(url + "/v1/completions", content=large).status_code == 200
    assert app.asked[0][2] == large

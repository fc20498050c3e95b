"""The endpoint over programs that pose as workers: who is asked, and what is passed on."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from gguf_fleet.front.asked import zstd
from gguf_fleet.keys import key_file
from gguf_fleet.roster import Roster
from gguf_fleet.routing import Member
from tests.support import http
from tests.support.gateways import (
    KEY,
    Impostor,
    OpenGateway,
    gateway,
    gateway_over,
    hanging_up,
    listening,
    member,
)
from tests.support.programs import until

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
    headers = {
        "x-mine": "2",
        "x-priority": "-3",
        "authorization": "Bearer nobody's",
        "x-api-key": "nobody's",
    }
    done = http.post(f"{url}/any/%2Fpath?q=%20a&b", content=body, headers=headers)
    assert done.content == said + said[::-1]
    assert done.headers["x-theirs"] == "1"
    ((fields, target, heard),) = app.asked
    assert heard == body
    assert target == "/any/%2Fpath?q=%20a&b"
    assert (fields["x-mine"], fields["x-priority"]) == ("2", "-3")
    assert fields["authorization"] == f"Bearer {KEY}"
    assert "x-api-key" not in fields


def test_whose_key_it_is(stack: ExitStack, tmp_path: Path) -> None:
    """Workers are told what follows the key in its file, or which one without a name it is, and
    nothing that a client says itself."""
    file = tmp_path / "keys"
    file.write_text("# of clients\nk1 name=anna weight=2 priority=-10\n\nk2\n")
    app = Impostor(b"{}")
    roster = Roster({"m": "prefix"})
    roster.publish("m", [replica(stack, "a", app)])
    url = stack.enter_context(gateway_over(roster, keys=key_file(str(file))))
    for key in ("k1", "k2"):
        headers = {"authorization": f"Bearer {key}", "x-account": "name=boss admin"}
        assert http.post(url + "/tokenize", json={}, headers=headers).status_code == 200
    open_url = stack.enter_context(gateway_over(roster))
    for path in ("/tokenize", "/"):
        http.post(open_url + path, json={}, headers={"x-account": "name=boss"})
    told = [fields.get("x-account") for fields, _, _ in app.asked]
    nameless = f"owner={hashlib.sha256(b'k2').hexdigest()[:32]}"
    assert told == ["name=anna weight=2 priority=-10", nameless, None, None]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("k rpm=3", "line 1: behind a key stand name, weight, priority, each once"),
        ("k name=a name=b", "each once"),
        ("k weight=2", "name is missing"),
        ("k name=a/b", "name is not one that a worker takes"),
        ("k name=a weight=0", "weight is not one"),
        ("k name=a weight=101", "weight is not one"),
        ("k name=a priority=-101", "priority is not one"),
        ("k name=a\nk name=b", "line 2: the key has other fields before"),
        ("# none", "holds none"),
    ],
)
def test_fields_that_are_wrong(tmp_path: Path, line: str, said: str) -> None:
    """A key file that workers could not follow is refused."""
    (tmp_path / "keys").write_text(line)
    with pytest.raises(ValueError, match=re.escape(said)):
        key_file(str(tmp_path / "keys"))


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
    assert post(url, "/api/chat", model="c").json()["error"] == message
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


def test_batches_belong_to_a_replica(stack: ExitStack) -> None:
    """A fleet has no files of its own: one replica is asked by its id, which the refusal says."""
    app = Impostor(b"{}")
    url = stack.enter_context(gateway({"m": [replica(stack, "a", app)]}))
    for path in ("/v1/files", "/v1/batches/b", "/models/m/v1/batches"):
        answer = http.get(url + path)
        assert answer.status_code == 501
        assert "/replicas/ID/v1/batches" in answer.json()["error"]["message"]
    assert app.asked == []
    assert http.get(url + "/replicas/a/v1/batches").status_code == 200


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
        ("/v1/completions", STREAM, "data: {"),
        ("/v1/messages", STREAM, "event: error\ndata: {"),
        ("/api/chat", "application/x-ndjson", '{"error":"'),
    ],
)
def test_a_stream_that_breaks_off_says_so(stack: ExitStack, path: str, kind: str, end: str) -> None:
    """After the first byte no other replica is asked; the error is an event of its own, and half
    an event is not passed on."""
    said = "data: 1\n\n"
    broken = Impostor(f"{said}da".encode(), b"ta", kind=kind, breaks=True)
    good = Impostor(b"good")
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


def test_a_replica_that_is_not_ready_is_left_alone(stack: ExitStack) -> None:
    """Until its health is good again, no request has to find out."""
    starting, good = Impostor(b"back", status=503), Impostor(b"good")
    members = [replica(stack, "starting", starting), replica(stack, "good", good)]
    url = stack.enter_context(gateway({"m": members}, affinity="none"))
    until(lambda: post(url).text == "good" and bool(starting.asked))
    assert {post(url).text for _ in range(12)} == {"good"}
    work = [target for _, target, _ in starting.asked if target != "/health"]
    assert work == ["/v1/completions"]
    starting.status = 200
    until(lambda: post(url).text == "back")


def test_what_other_gateways_have_sent_counts(stack: ExitStack) -> None:
    """As the workers themselves say: one that is full is asked last."""
    full = Impostor(b'{"slots_processing": 4, "queue_depth": 1}')
    idle = Impostor(b'{"slots_processing": 0, "queue_depth": 0}')
    roster = Roster({"m": "none"})
    roster.publish("m", [replica(stack, "full", full), replica(stack, "idle", idle)])
    made = OpenGateway(roster, None, shares=True)
    post(made.url)
    until(lambda: {"/health"} <= {target for _, target, _ in full.asked})
    until(lambda: {post(made.url).content for _ in range(16)} == set(idle.parts))
    made.leave()
    made.stop()


def test_who_does_not_read_holds_up_the_replica(stack: ExitStack) -> None:
    """The gateway does not hold what its client does not take; nothing of it is lost."""
    size = 1 << 20
    app = Impostor(*[bytes([n]) * size for n in range(64)], kind="application/octet-stream")
    url = stack.enter_context(gateway({"m": [replica(stack, "a", app)]}))
    with http.stream("POST", url + "/v1/completions", json={}) as answer:
        seen = [-1]
        while app.said != seen[-1] or len(seen) < 20:
            seen = [*seen, app.said] if app.said == seen[-1] else [app.said]
            time.sleep(0.01)
        assert app.said < 64
        data = answer.read()
    assert data == b"".join(bytes([n]) * size for n in range(64))


def test_http_1_0(stack: ExitStack) -> None:
    """It knows no chunks: the end of a stream is that of the connection."""
    said = b"data: 1\n\ndata: 2\n\n"
    app = Impostor(said[:9], said[9:], kind=STREAM)
    host, port = stack.enter_context(gateway({"m": [replica(stack, "a", app)]}))[7:].split(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"GET /props HTTP/1.0\r\n\r\n")
        head, _, body = client.makefile("rb").read().partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert body == said


def test_a_gateway_leaves_the_port_to_the_next(stack: ExitStack) -> None:
    """What it has begun it ends; whoever comes is answered by the other."""
    release = threading.Event()
    roster = Roster({"m": "none"})
    roster.publish("m", [replica(stack, "a", Impostor(b"one", b"two", waits=release))])
    old = OpenGateway(roster, None)
    url = old.url
    with http.stream("POST", url + "/v1/completions", json={}) as answer:
        parts = answer.iter_raw()
        assert next(parts) == b"one"
        roster.publish("m", [replica(stack, "b", Impostor(b"new"))])
        new = OpenGateway(roster, None, int(url.rpartition(":")[2]))
        leaving = threading.Thread(target=old.leave)
        leaving.start()
        until(lambda: not old.listens)
        assert [post(url).text for _ in range(16)] == ["new"] * 16
        release.set()
        assert b"".join(parts) == b"two"
    leaving.join(10)
    assert not leaving.is_alive()
    old.stop()
    new.leave()
    new.stop()


def test_a_gateway_waits_for_the_port(stack: ExitStack) -> None:
    """Of two one listens. When it is gone the other does, on the same port."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    roster = Roster({"m": "none"})
    roster.publish("m", [replica(stack, "a", Impostor(b"good"))])
    first, second = OpenGateway(roster, None, port), OpenGateway(roster, None, port)
    assert (first.listens, second.listens) == (True, False)
    assert post(first.url).text == "good"
    first.leave()
    until(lambda: second.listens)
    assert post(first.url).text == "good"
    for each in (first, second):
        each.leave()
        each.stop()


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


def test_packed_bodies(stack: ExitStack) -> None:
    """They pass as they are, and choose as plain ones do."""
    apps = [Impostor(b"{}") for _ in range(2)]
    members = [replica(stack, id, app) for id, app in zip("ab", apps, strict=True)]  # noqa: A001
    url = stack.enter_context(gateway({"m": members, "n": [nobody()]})) + "/v1/systemone"
    body = json.dumps({"model": "m", "state": "Once", "questions": {}}).encode()
    bodies = {"": body, "gzip": gzip.compress(body), "zstd": zstd.compress(body)}
    for coding, data in bodies.items():
        headers = {"content-encoding": coding} if coding else {}
        assert http.post(url, content=data, headers=headers).status_code == 200
    (asked,) = [app.asked for app in apps if app.asked]
    assert [heard for _, _, heard in asked] == [body] * 3  # impostors unpack
    assert [fields.get("content-encoding", "") for fields, _, _ in asked] == list(bodies)

"""The original worker's job API over a real socket."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Generator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.info.test_metrics import scrape
from tests.service.test_bad_requests import BAD_BODIES, BIG
from tests.support.processes import Server, serving, until

LONG: dict[str, Any] = {"prompt": "Hello", "max_tokens": 1_900, "ignore_eos": True}
GREEDY: dict[str, Any] = {
    "prompt": "Hello",
    "max_tokens": 12,
    "temperature": 0,
    "ignore_eos": True,
}


@pytest.fixture(scope="module")
def strict(tiny: Path) -> Generator[Server]:
    """A server whose jobs have little time."""
    with serving("--model", tiny, "-c", "2048", "--inference-timeout-sec", "0.1") as server:
        yield server


def parse(text: str) -> list[tuple[str, Any]]:
    """(event name or "", data) of each event; [DONE] as text."""
    frames = text.split("\n\n")
    assert frames.pop() == ""
    found: list[tuple[str, Any]] = []
    for frame in frames:
        *head, data = frame.split("\n")
        assert data.startswith("data: ")
        data = data.removeprefix("data: ")
        name = head[0].removeprefix("event: ") if head else ""
        found.append((name, data if data == "[DONE]" else json.loads(data)))
    return found


def types(events: list[tuple[str, Any]]) -> list[str]:
    """Types without repetitions: started, token, end."""
    names = [data if data == "[DONE]" else data["type"] for _, data in events]
    return [name for index, name in enumerate(names) if name != names[index - 1] or not index]


def text_of(events: list[tuple[str, Any]]) -> str:
    tokens = [data for _, data in events if data != "[DONE]" and data["type"] == "token"]
    assert [token["i"] for token in tokens] == list(range(len(tokens)))
    return "".join(token["t"] for token in tokens)


def execute(server: Server, **fields: Any) -> list[tuple[str, Any]]:
    answer = server.post({**GREEDY, **fields}, "/execute")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return parse(answer.text)


def create(server: Server, path: str = "/v1/jobs", **fields: Any) -> str:
    """Accept a job; where its events are."""
    answer = server.post({**GREEDY, **fields}, path)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["sse_url"])


def read(server: Server, url: str) -> list[tuple[str, Any]]:
    answer = httpx.get(server.url + url, timeout=60)
    assert answer.status_code == 200, answer.text
    return parse(answer.text)


def error_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


def streamed(answer: httpx.Response) -> Iterator[str]:
    """Lines with data; keep it: a closed iterator closes the connection."""
    return (line for line in answer.iter_lines() if line.startswith("data: "))


def test_execute(server: Server) -> None:
    """started, tokens in order, one end; named events without [DONE]; the text is the engine's."""
    events = execute(server, job_id="e-1")
    assert types(events) == ["started", "token", "end"]
    assert all(name == data["type"] for name, data in events)
    started, end = events[0][1], events[-1][1]
    assert (started["job_id"], started["model"]) == ("e-1", "org/tiny")
    assert datetime.fromisoformat(started["started_at"]).tzinfo is not None
    assert (end["tokens_out"], end["stop_reason"]) == (12, "MAX_TOKENS")
    assert isinstance(end["decode_time_ms"], int)
    assert text_of(events) == server.post(GREEDY).json()["choices"][0]["text"]


def test_stop_reasons(server: Server) -> None:
    """The end says whether the model or a stop string ended the text."""
    events = execute(server, ignore_eos=False, logit_bias={"2": 100})
    assert events[-1][1]["stop_reason"] == "EOS"
    text = text_of(execute(server))
    events = execute(server, stop=[text[4:6]])
    assert events[-1][1]["stop_reason"] == "STOP_SEQUENCE"
    assert text_of(events) == text[: text.index(text[4:6])]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/inference"])
@pytest.mark.parametrize(
    "tag",
    [{}, {"operation": "infer", "hive_id": "localhost", "model": "m", "stream": True}],
    ids=["bare", "tagged"],
)
def test_accepted_then_read(server: Server, path: str, tag: dict[str, Any]) -> None:
    """A job is accepted with an address, and its events there are data lines up to [DONE]."""
    answer = server.post({**GREEDY, **tag}, path).json()
    assert answer["sse_url"] == f"{path}/{answer['job_id']}/stream"
    events = read(server, answer["sse_url"])
    assert types(events) == ["started", "token", "end", "[DONE]"]
    assert all(name == "" for name, _ in events)
    assert events[0][1]["job_id"] == answer["job_id"]
    assert text_of(events) == text_of(execute(server))


def test_either_address_reads(server: Server) -> None:
    """Both families of paths know the same jobs."""
    url = create(server, "/v1/inference")
    assert types(read(server, url.replace("inference", "jobs")))[-1] == "[DONE]"


def test_read_once(server: Server) -> None:
    """A second reader gets 409 while the first reads, and 404 afterwards; HEAD reads nothing."""
    url = create(server, **LONG)
    assert httpx.head(server.url + url).status_code == 405
    with httpx.stream("GET", server.url + url, timeout=30) as answer:
        lines = streamed(answer)
        assert '"started"' in next(lines)
        error = error_of(httpx.get(server.url + url), 409)
        assert (error["code"], error["retriable"]) == ("JOB_IS_READ", False)
    server.wait_until(seconds=5, slots_processing=0)
    assert error_of(httpx.get(server.url + url), 404)["code"] == "JOB_NOT_FOUND"
    assert error_of(httpx.get(server.url + "/v1/jobs/nobody/stream"), 404)["param"] == "job_id"


def test_cancelled_before_it_is_read(server: Server) -> None:
    """A cancelled job stops generating; its reader gets what there was, then CANCELLED."""
    url = create(server, job_id="c-1", **LONG)
    for _ in range(2):
        answer = server.post({"job_id": "c-1"}, "/cancel")
        assert (answer.status_code, answer.json()["cancelled"]) == (202, True)
    server.wait_until(seconds=5, slots_processing=0, queue_depth=0)
    events = read(server, url)
    assert types(events)[0] == "started"
    assert types(events)[-2:] == ["error", "[DONE]"]
    error = events[-2][1]
    assert (error["code"], error["retriable"]) == ("CANCELLED", False)


@pytest.mark.parametrize("how", ["execute", "jobs"])
def test_cancelled_while_it_is_read(server: Server, how: str) -> None:
    """Its stream ends with exactly one terminal event, the error CANCELLED."""
    if how == "execute":
        args = {"method": "POST", "url": server.url + "/execute", "json": {"job_id": "c-2", **LONG}}
    else:
        args = {"method": "GET", "url": server.url + create(server, job_id="c-2", **LONG)}
    with httpx.stream(**args, timeout=30) as answer:  # type: ignore[arg-type]
        lines = streamed(answer)
        while '"token"' not in next(lines):
            pass
        assert server.post({"job_id": "c-2"}, "/cancel").json() == {
            "job_id": "c-2",
            "cancelled": True,
        }
        rest = [json.loads(line[6:]) for line in lines if "[DONE]" not in line]
    terminal = [event for event in rest if event["type"] in ("end", "error")]
    assert [event.get("code") for event in terminal] == ["CANCELLED"]
    assert rest[-1] is terminal[0]
    server.wait_until(seconds=5, slots_processing=0)


def test_cancelled_after_its_end(server: Server) -> None:
    """A job that ended before it was cancelled is read to its end, the one terminal event."""
    before = scrape(server)["worker_requests_totallength"]
    url = create(server, job_id="c-4")
    deadline = time.monotonic() + 10
    while scrape(server)["worker_requests_totallength"] == before:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert server.post({"job_id": "c-4"}, "/cancel").status_code == 202
    assert types(read(server, url)) == ["started", "token", "end", "[DONE]"]


def test_cancel_is_idempotent(server: Server) -> None:
    """Cancelling what ended or never was is 202; the id is free again."""
    execute(server, job_id="c-3")
    for name in ("c-3", "never"):
        answer = server.post({"job_id": name}, "/cancel")
        assert (answer.status_code, answer.json()["cancelled"]) == (202, False)
    assert types(execute(server, job_id="c-3"))[-1] == "end"


@pytest.mark.parametrize("body", [{}, {"job_id": None}, {"job_id": 5}, []])
def test_cancel_without_an_id(server: Server, body: object) -> None:
    """/cancel needs to be told what."""
    assert error_of(server.post(body, "/cancel"), 400)["code"] == "INVALID_REQUEST"


def test_taken_id(server: Server) -> None:
    """Two jobs cannot have one name at a time."""
    url = create(server, job_id="same", **LONG)
    for path in ("/execute", "/v1/jobs"):
        error = error_of(server.post({"job_id": "same", **GREEDY}, path), 409)
        assert error["code"] == "JOB_EXISTS"
    server.post({"job_id": "same"}, "/cancel")
    assert types(read(server, url))[-2:] == ["error", "[DONE]"]


@pytest.mark.parametrize("how", ["execute", "jobs"])
def test_reader_gone(server: Server, how: str) -> None:
    """A reader that leaves frees the slot, and the job with it."""
    if how == "execute":
        args = {"method": "POST", "url": server.url + "/execute", "json": {"job_id": "g", **LONG}}
    else:
        args = {"method": "GET", "url": server.url + create(server, job_id="g", **LONG)}
    with httpx.stream(**args, timeout=30) as answer:  # type: ignore[arg-type]
        lines = streamed(answer)
        next(lines)
    server.wait_until(seconds=5, slots_processing=0, queue_depth=0)
    assert types(execute(server, job_id="g"))[-1] == "end"


def test_reset_right_after_the_request(server: Server) -> None:
    """Connections that are reset right after their request leave neither slot nor name taken."""
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps({"job_id": "reset", **LONG}).encode()
    head = b"POST /execute HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    for _ in range(30):
        peer = socket.create_connection((host, int(port)), timeout=10)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.sendall(head + body)
        peer.close()
    server.wait_until(seconds=10, slots_processing=0, queue_depth=0)
    assert types(execute(server, job_id="reset"))[-1] == "end"


@pytest.mark.parametrize("name", ["%2e%2e%2fx", "a" * 5_000, "%00", "%ff", "a%0d%0ab"])
def test_odd_names(server: Server, name: str) -> None:
    """A name that no job can have is a 404."""
    assert httpx.get(f"{server.url}/v1/jobs/{name}/stream").status_code == 404


def test_infer(server: Server) -> None:
    """/v1/infer answers with the text and its cost, or streams bare tokens."""
    answer = server.post(GREEDY, "/v1/infer").json()
    assert answer["text"] == text_of(execute(server))
    assert answer["tokens_generated"] == 12
    assert answer["duration_ms"] >= 0
    events = parse(server.post({**GREEDY, "stream": True}, "/v1/infer").text)
    assert events.pop() == ("", "[DONE]")
    assert "".join(data["token"] for _, data in events) == answer["text"]


def test_seed_of_64_bits(server: Server) -> None:
    """Every seed of the original's range repeats, and its upper half matters."""

    def text(seed: int) -> str:
        return text_of(execute(server, seed=seed, temperature=1, max_tokens=40))

    assert text(2**64 - 1) == text(2**64 - 1)
    assert len({text(7 + (part << 32)) for part in range(4)}) > 1
    assert (
        text(7)
        == server.post({**GREEDY, "seed": 7, "temperature": 1, "max_tokens": 40}).json()["choices"][
            0
        ]["text"]
    )


def test_job_with_nothing_left(server: Server) -> None:
    """What only the engine finds is an error event, the one terminal event."""
    events = execute(server, grammar='root ::= "x"')
    assert types(events)[-1] == "error"
    assert events[-1][1]["code"] == "INVALID_REQUEST"
    assert types(execute(server))[-1] == "end"


BAD_FIELDS: list[tuple[str, object]] = [
    ("prompt", None),
    ("prompt", ""),
    ("prompt", ["a"]),
    ("prompt", "a" * 32_769),
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_tokens", 2_049),
    ("max_tokens", BIG),
    ("max_tokens", "5"),
    ("temperature", -0.1),
    ("temperature", 2.1),
    ("top_p", 1.1),
    ("top_k", -2),
    ("min_p", -1),
    ("repetition_penalty", 2.1),
    ("repetition_penalty", 0),
    ("seed", 2**64),
    ("seed", -2),
    ("stop", ["a"] * 5),
    ("stop", [""]),
    ("stop", ""),
    ("stop", ["a" * 101]),
    ("stop", {}),
    ("job_id", ""),
    ("job_id", "a" * 129),
    ("job_id", "../x"),
    ("job_id", "a\nb"),
    ("job_id", 5),
    ("operation", "model_download"),
    ("operation", 1),
    ("stream", "yes"),
    ("grammar", "root ::= ("),
]


@pytest.mark.parametrize(("field", "value"), BAD_FIELDS, ids=lambda v: str(v)[:30])
@pytest.mark.parametrize("path", ["/execute", "/v1/jobs", "/v1/infer"])
def test_bad_field(server: Server, path: str, field: str, value: object) -> None:
    """A request outside the original's limits is INVALID_REQUEST, and the field is named."""
    error = error_of(server.post({**GREEDY, field: value}, path), 400)
    assert (error["code"], error["param"], error["retriable"]) == ("INVALID_REQUEST", field, False)
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "a" * 700, "max_tokens": 1},
        {"temperature": 2, "top_k": 2**31 - 1, "top_p": 1, "min_p": 0, "seed": 0},
        {"stop": ["a" * 100] * 4, "repetition_penalty": 2, "seed": -1},
        {"temperature": None, "top_p": None, "stop": None, "job_id": None, "seed": None},
        {"unknown": {"x": [1]}, "worker_id": "w", "device": "CPU-0"},
    ],
)
def test_limits_are_inclusive(server: Server, fields: dict[str, Any]) -> None:
    """What the original accepts is accepted; null and unknown fields are not given."""
    assert types(execute(server, **fields))[-1] == "end"


@pytest.mark.parametrize("path", ["/execute", "/cancel"])
@pytest.mark.parametrize("name", BAD_BODIES)
def test_bad_body(server: Server, path: str, name: str) -> None:
    """A body that is not the JSON we read is INVALID_REQUEST."""
    body = BAD_BODIES[name].replace(b'"prompt"', b'"job_id"' if path == "/cancel" else b'"prompt"')
    answer = httpx.post(server.url + path, content=body, timeout=30)
    if path == "/cancel" and answer.status_code == 202:
        return  # fields that /cancel does not know
    assert error_of(answer, 400)["code"] == "INVALID_REQUEST"


def test_longer_than_the_context(tiny: Path) -> None:
    """A prompt within the original's limit that the context does not hold is named as that."""
    with serving("--model", tiny, "-c", "512") as server:
        error = error_of(server.post({"prompt": "a b c d " * 500}, "/execute"), 400)
        assert (error["code"], error["param"]) == ("INVALID_REQUEST", "prompt")
        assert "512" in error["message"]


def test_timeout(strict: Server) -> None:
    """A job that takes too long ends with INFERENCE_TIMEOUT, which may be tried again."""
    events = execute(strict, **LONG)
    assert types(events)[-1] == "error"
    assert events[-1][1]["code"] == "INFERENCE_TIMEOUT"
    assert events[-1][1]["retriable"] is True
    error = error_of(strict.post(LONG, "/v1/infer"), 504)
    assert error["code"] == "INFERENCE_TIMEOUT"
    strict.wait_until(seconds=5, slots_processing=0)


def test_unread_jobs_are_bounded(strict: Server) -> None:
    """More unread jobs than are kept get 429 with Retry-After; reading one makes room."""
    urls: list[str] = []
    with httpx.Client(base_url=strict.url, timeout=30) as client:

        def accepted() -> bool:  # we may ask faster than the engine works, and its queue is short
            answer = client.post("/v1/jobs", json={**GREEDY, "max_tokens": 1})
            if answer.is_success:
                urls.append(answer.json()["sse_url"])
            return answer.is_success

        for _ in range(128):
            until(accepted)
    answer = strict.post(GREEDY, "/v1/jobs")
    error = error_of(answer, 429)
    assert (error["code"], error["retriable"]) == ("QUEUE_FULL", True)
    assert int(answer.headers["retry-after"]) >= 1
    assert types(execute(strict, max_tokens=1))[-1] == "end"  # it is its own reader
    read(strict, urls[0])
    assert types(read(strict, create(strict, max_tokens=1)))[-1] == "[DONE]"


def test_accepted_before_the_drain(tiny: Path) -> None:
    """While the worker drains, what it accepted is read to its end and can be cancelled."""
    with serving("--model", tiny, "-c", "2048", "--drain-timeout", "30") as server:
        held = create(server, job_id="held", **LONG)
        url = create(server)
        with httpx.stream("GET", server.url + held, timeout=30) as answer:
            lines = streamed(answer)
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            server.wait_for("stopping")
            assert server.post(GREEDY, "/execute").status_code == 503
            assert types(read(server, url))[-2:] == ["end", "[DONE]"]
            assert server.post({"job_id": "held"}, "/cancel").status_code == 202
            assert any("CANCELLED" in line for line in lines)
        assert server.wait() == 0

"""Requests of all APIs are seen while they run, are cancelled, and are told of when they end."""

from __future__ import annotations

import json
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.requests.client import PATH, cancel, is_, look, once
from tests.support import http
from tests.support.programs.processes import Server, serving

HELLO = [{"role": "user", "content": "hello"}]
ENDLESS = {"max_tokens": 1_900, "ignore_eos": True}
COMPLETION = {"prompt": "Hello", **ENDLESS}
LONG_PROMPT = [7, 8, 9, 10] * 400

# Each API: path, the body of an endless stream, what the cancelled client reads last.
APIS: dict[str, tuple[str, dict[str, Any], str]] = {
    "completions": ("/v1/completions", {**COMPLETION, "stream": True}, '"code":"cancelled"'),
    "chat": (
        "/v1/chat/completions", {"messages": HELLO, "stream": True, **ENDLESS},
        '"code":"cancelled"',
    ),
    "responses": (
        "/v1/responses",
        {"input": "hello", "stream": True, "max_output_tokens": 1_900, "ignore_eos": True},
        '"type":"response.failed"',
    ),
    "messages": ("/v1/messages", {"messages": HELLO, "stream": True, **ENDLESS}, "was cancelled"),
    "ollama chat": (
        "/api/chat", {"messages": HELLO, "options": {"num_predict": 1_900, "ignore_eos": True}},
        "was cancelled",
    ),
    "ollama generate": (
        "/api/generate",
        {"prompt": "hello", "raw": True, "options": {"num_predict": 1_900, "ignore_eos": True}},
        "was cancelled",
    ),
    "execute": ("/execute", COMPLETION, '"code":"CANCELLED"'),
    "infer": ("/v1/infer", {**COMPLETION, "stream": True}, '"code":"CANCELLED"'),
}  # fmt: skip


@pytest.fixture(scope="module")
def narrow(tiny: Path) -> Generator[Server]:
    """One slot; a prompt is read 64 tokens a step, and a step takes 50 ms."""
    options = ("-c", "2048", "-np", "1", "-ub", "64", "-b", "64", "-t", "1")
    with serving("--model", tiny, *options, step_seconds=0.05) as server:
        yield server


@pytest.mark.parametrize("api", APIS)
def test_each_api(slow_server: Server, api: str) -> None:
    """Its stream is listed under its ids while it writes; cancelled, it ends with its error."""
    path, body, last = APIS[api]
    name = f"seen-{api.replace(' ', '-')}"
    ids = {"x-request-id": name, "x-correlation-id": f"of-{name}"}
    with http.stream("POST", slow_server.url + path, json=body, headers=ids) as answer:
        assert answer.status_code == 200
        seen = once(slow_server, name, "data", is_("writing"))
        answered = cancel(slow_server, name)
        lines = [line for line in answer.iter_lines() if line and line != "data: [DONE]"]
    assert answered.json() == {"id": name, "cancelled": True, "requests": 1}
    assert seen["route"] == f"POST {path}"
    assert (seen["correlation_id"], seen["model"]) == (f"of-{name}", "org/tiny")
    assert (seen["stream"], seen["sequences"]) == (True, 1)
    assert seen["read_tokens"] == seen["prompt_tokens"] > 0
    assert 0 < seen["generated_tokens"] < seen["max_tokens"] == 1_900
    assert last in lines[-1]
    told = next(line for line in reversed(lines) if '"request_id"' in line)
    assert f'"request_id":"{name}"' in told
    assert f'"correlation_id":"of-{name}"' in told
    ended = once(slow_server, name, "recent")
    assert (ended["status"], ended["outcome"]) == (200, "cancelled")
    assert ended["code"] == "cancelled"
    assert ended["generated_tokens"] >= seen["generated_tokens"]
    assert ended["first_token_s"] > 0
    slow_server.wait_until(slots_processing=0)


def test_a_job_that_nobody_reads(slow_server: Server) -> None:
    """It is the request that made it, until it ends; its reader then gets the error."""
    ids = {"x-request-id": "maker"}
    url = slow_server.url + "/v1/jobs"
    path = http.post(url, json=COMPLETION, headers=ids).json()["sse_url"]
    assert once(slow_server, "maker", "data", is_("writing"))["route"] == "POST /v1/jobs"
    cancel(slow_server, "maker")
    ended = once(slow_server, "maker", "recent")
    assert (ended["status"], ended["outcome"]) == (200, "cancelled")
    *_, error, _ = http.get(slow_server.url + path).text.split("\n\n")[:-1]
    assert json.loads(error.removeprefix("data: "))["code"] == "CANCELLED"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", COMPLETION),
        ("/v1/messages", {"messages": HELLO, **ENDLESS}),
        ("/v1/infer", COMPLETION),
    ],
)
def test_a_whole_answer(slow_server: Server, path: str, body: dict[str, Any]) -> None:
    """Nothing was sent yet: a status of its own, which clients do not take for worth a retry."""
    name = f"whole{path.replace('/', '-')}"
    with ThreadPoolExecutor(1) as pool:
        ids = {"x-request-id": name}
        asked = pool.submit(http.post, slow_server.url + path, json=body, headers=ids)
        assert once(slow_server, name, "data", is_("writing"))["stream"] is False
        cancel(slow_server, name)
        answer = asked.result()
    assert answer.status_code == 499
    assert answer.json()["error"]["message"] == "The request was cancelled."
    assert once(slow_server, name, "recent")["status"] == 499


def test_waiting_and_reading(narrow: Server) -> None:
    """One reads its prompt, one waits; each can be cancelled there, and the slot is free again."""
    body = {"prompt": LONG_PROMPT, "max_tokens": 400, "stream": True}

    def ask(name: str) -> str:
        return http.post(
            narrow.url + "/v1/completions", json=body, headers={"x-request-id": name}
        ).text

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, "reads")
        reads = once(narrow, "reads", "data", lambda r: r["read_tokens"] > 0)
        second = pool.submit(ask, "waits")
        waits = once(narrow, "waits", "data")
        view = look(narrow)
        cancel(narrow, "waits")
        cancel(narrow, "reads")
        texts = [first.result(), second.result()]
    assert reads["state"] == "reading"
    assert 0 < reads["read_tokens"] < reads["prompt_tokens"] == len(LONG_PROMPT)
    assert reads["read_tokens"] % 64 == reads["generated_tokens"] == 0
    assert (waits["state"], waits["read_tokens"]) == ("waiting", 0)
    assert waits["wait_s"] <= waits["age_s"] <= view["data"][1]["age_s"]
    assert [request["id"] for request in view["data"]] == ["reads", "waits"]
    assert (view["worker"]["running"], view["worker"]["waiting"]) == (1, 1)
    assert all('"code":"cancelled"' in text for text in texts)
    ended = once(narrow, "waits", "recent")
    assert (ended["generated_tokens"], ended["first_token_s"]) == (0, None)
    narrow.wait_until(slots_processing=0, queue_depth=0)
    cells = look(narrow)["worker"]["cells"]
    assert cells["live"] == 0
    assert cells["cached"] + cells["free"] == cells["total"]


def test_several_sequences(slow_server: Server) -> None:
    """They are one request, and a prompt counts once for all its copies."""
    body = {**COMPLETION, "prompt": [[5, 6, 7], [8, 9]], "n": 2, "max_tokens": 300, "stream": True}
    ids = {"x-request-id": "many"}
    url = slow_server.url + "/v1/completions"
    with http.stream("POST", url, json=body, headers=ids) as answer:
        seen = once(slow_server, "many", "data", lambda r: r["generated_tokens"] >= 8)
        cancel(slow_server, "many")
        rest = answer.read().decode()
    assert (seen["sequences"], seen["prompt_tokens"], seen["read_tokens"]) == (4, 5, 5)
    assert seen["max_tokens"] == 4 * 300
    assert rest.count('"code":"cancelled"') == 1


def test_one_id_twice(slow_server: Server) -> None:
    """Both are listed, and both are cancelled."""
    ids = {"x-request-id": "twin"}
    asked: dict[str, Any] = {
        "method": "POST", "url": slow_server.url + "/v1/completions",
        "json": {**COMPLETION, "stream": True}, "headers": ids,
    }  # fmt: skip
    with http.stream(**asked) as one, http.stream(**asked) as other:
        names = [request["id"] for request in look(slow_server)["data"]]
        answer = cancel(slow_server, "twin")
        texts = [one.read().decode(), other.read().decode()]
    assert names.count("twin") == 2
    assert answer.json()["requests"] == 2
    assert all('"code":"cancelled"' in text for text in texts)


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("a/b//c", "a%2Fb%2F%2Fc"),
        ("per cent%2F?", "per%20cent%252F%3F"),
        ("caf\u00e9", "caf%C3%A9"),
    ],
)
def test_any_id(slow_server: Server, name: str, encoded: str) -> None:
    """What the gate takes for an id can be cancelled."""
    ids = {b"x-request-id": name.encode("latin-1")}
    body = {**COMPLETION, "stream": True}
    url = slow_server.url + "/v1/completions"
    with http.stream("POST", url, json=body, headers=ids) as answer:
        assert cancel(slow_server, encoded).json()["id"] == name
        assert '"code":"cancelled"' in answer.read().decode()


def test_nobody_to_cancel(server: Server) -> None:
    """404 that says where to look, for what never was and for what has ended."""
    server.post({"prompt": "a", "max_tokens": 1})
    for name in ("never", look(server)["recent"][0]["id"], "a%2Fb"):
        error = cancel(server, name)
        assert error.status_code == 404
        assert error.json()["error"]["code"] == "request_not_found"
    assert http.get(f"{server.url}{PATH}/x/cancel").status_code == 405
    assert http.post(f"{server.url}{PATH}/x").status_code == 404


def test_pages_of_other_origins(server: Server) -> None:
    """They cancel nothing; the worker's own page and this machine's may."""
    for origin in ("https://example.com", "null", "http://[::1"):
        assert cancel(server, "x", origin=origin).status_code == 403
    for origin in (server.url, "http://localhost:3000"):
        assert cancel(server, "x", origin=origin).status_code == 404
    own = {"origin": "https://worker.localhost", "host": "worker.localhost"}
    assert cancel(server, "x", **own).status_code == 404


def test_ended(server: Server) -> None:
    """What ended last stands first, with its tokens and times; at most 20."""
    done = server.post({"prompt": [5, 6, 7], "max_tokens": 4, "ignore_eos": True})
    ended = look(server)["recent"][0]
    assert ended["id"] == done.headers["x-request-id"]
    assert (ended["outcome"], ended["status"], ended["code"]) == ("length", 200, None)
    assert (ended["prompt_tokens"], ended["generated_tokens"]) == (3, 4)
    assert 0 <= ended["wait_s"] <= ended["first_token_s"] <= ended["duration_s"]
    assert ended["tokens_per_second"] > 0
    for _ in range(21):
        server.post({"prompt": "x", "temperature": "warm"})
    view = look(server)
    assert [request["outcome"] for request in view["recent"]] == ["refused"] * 20
    assert view["recent"][0]["code"] == "invalid_request"


def test_totals(server: Server) -> None:
    """They count what was computed and sampled."""
    before = look(server)["worker"]["totals"]
    prompt = [33, 34, 35, 36] * 50
    server.post({"prompt": prompt, "max_tokens": 5, "ignore_eos": True})
    server.post({"prompt": "x", "stop": 1})
    after = look(server)["worker"]["totals"]
    assert after["prompt_tokens"] - before["prompt_tokens"] == len(prompt)
    assert after["generated_tokens"] - before["generated_tokens"] == 5
    assert after["requests"] - before["requests"] == 2
    assert after["errors"] == before["errors"]


def test_the_key(tiny: Path) -> None:
    """Who has none sees and cancels nothing; with it, pages of other origins may."""
    with serving("--model", tiny, "-t", "1", "--api-key", "secret") as server:
        url = server.url + PATH
        assert http.get(url).status_code == http.get(url + "?stream=1").status_code == 401
        assert cancel(server, "x").status_code == 401
        right = {"authorization": "Bearer secret", "origin": "https://panel.example.com"}
        assert cancel(server, "x", **right).status_code == 404
        view = http.get(url, headers=right)
        assert view.json()["worker"]["state"] == "ready"
        assert "secret" not in view.text

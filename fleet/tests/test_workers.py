"""The endpoint over real workers: every API through it, slots, jobs, a full fleet."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support import http
from tests.support.gateways import KEY, gateway, member
from tests.support.official import answered
from tests.support.programs import Server, serving, until

# What differs from one answer to the next of the same worker.
_VARIES = re.compile(
    rb'"(?:id|item_id|created|created_at|completed_at|total_duration|load_duration|\w+_duration'
    rb"|\w+_ms|\w+_per_second|cache_n|prompt_n|cached_tokens|request_id|started_at|job_id"
    rb'|cache_read_input_tokens|input_tokens|tokens_cached|duration_ms|sequence_number)":'
    rb'(?:"[^"]*"|[\d.e+-]+)'
)
MESSAGES = [{"role": "user", "content": "What is 3 plus 4?"}]
COLD = {"temperature": 0, "max_tokens": 12}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": "Once upon", **COLD}),
    ("/v1/chat/completions", {"messages": MESSAGES, **COLD}),
    ("/v1/responses", {"input": "What is 3 plus 4?", "temperature": 0, "max_output_tokens": 16}),
    ("/v1/messages", {"messages": MESSAGES, **COLD}),
    ("/api/chat", {"messages": MESSAGES, "options": {"temperature": 0, "num_predict": 12}}),
    ("/api/generate", {"prompt": "Once", "options": {"temperature": 0, "num_predict": 12}}),
    ("/v1/infer", {"prompt": "Once upon", **COLD}),
    ("/v1/embeddings", {"input": ["Once upon", "a time"]}),
]


@pytest.fixture(scope="module")
def workers() -> Generator[list[Server]]:
    """Two workers of the demo model, each with its own key."""
    options = ("--alias", "demo", "-t", "1", "-c", "2048", "--cache-ram", "0", "--no-page",
               "--pooling", "mean")  # fmt: skip
    with (
        serving(*options, "-np", "2", env={"LLAMA_API_KEY": KEY}) as one,
        serving(*options, "-np", "2", env={"LLAMA_API_KEY": KEY}) as two,
    ):
        yield [one, two]


@pytest.fixture(scope="module")
def fleet(workers: list[Server]) -> Generator[str]:
    """The endpoint over both."""
    members = [member(f"r{n}", each.url, slots=2, limit=66) for n, each in enumerate(workers)]
    with gateway({"demo": members}) as url:
        yield url


def ask(url: str, path: str, body: dict[str, Any], key: str | None = None) -> httpx.Response:
    """POST, with a worker's key where it is one."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return http.post(url + path, json={"model": "demo", **body}, headers=headers)


def plain(data: bytes) -> bytes:
    """Bytes without what varies."""
    return _VARIES.sub(b"", data)


@pytest.mark.parametrize(("path", "body"), CASES, ids=[path for path, _ in CASES])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_every_api_answers_as_its_worker(
    fleet: str, workers: list[Server], path: str, body: dict[str, Any], stream: bool
) -> None:
    """The same bytes but for ids and times, the same kind, in events and at once."""
    asked = {**body, "stream": stream, "seed": 1}  # nothing is guessed, so figures are the same
    own, through = ask(workers[0].url, path, asked, KEY), ask(fleet, path, asked)
    assert own.status_code == through.status_code == 200
    assert plain(own.content) == plain(through.content)
    assert own.headers["content-type"] == through.headers["content-type"]


@pytest.mark.parametrize("path", ["/props", "/version", "/tokenizer_info", "/openapi.json"])
def test_what_is_asked_without_a_body(fleet: str, workers: list[Server], path: str) -> None:
    """Descriptions and properties are one worker's, its own address among them."""
    own = http.get(workers[0].url + path, headers={"authorization": f"Bearer {KEY}"})
    through = http.get(fleet + path).content
    for url in (fleet, workers[1].url):
        through = through.replace(url.encode(), workers[0].url.encode())
    assert plain(through) == plain(own.content)
    assert http.head(fleet + path).status_code == 200


def test_official_clients(fleet: str) -> None:
    """openai reads answers, streams, models and errors."""
    client = answered(fleet, MESSAGES)
    assert client.models.retrieve("demo").id == "demo"
    with pytest.raises(openai.NotFoundError, match="not served here"):
        client.completions.create(model="none", prompt="Once")


def test_what_the_fleet_says_of_itself(fleet: str, workers: list[Server]) -> None:
    """Both workers' metrics as one text that Prometheus reads, and each replica's load."""
    ask(fleet, "/v1/completions", {"prompt": "Once", **COLD})
    families = {
        each.name: each
        for each in text_string_to_metric_families(http.get(fleet + "/metrics").text)
    }
    slots = {each.labels["replica"]: each.value for each in families["worker_slots"].samples}
    assert slots == {"r0": 2, "r1": 2}
    (count,) = families["fleet_replicas"].samples
    assert (count.labels, count.value) == ({"model": "demo"}, 2)
    assert families["fleet_requests"].samples
    view = http.get(fleet + "/fleet").json()
    assert view["status"] == "ok"
    replicas = view["models"]["demo"]["replicas"]
    assert [(each["id"], each["well"], each["slots"]) for each in replicas] == [
        ("r0", True, 2), ("r1", True, 2),
    ]  # fmt: skip
    assert all(each["memory_bytes"] > 0 for each in replicas)
    assert len(http.get(fleet + "/api/tags").json()["models"]) == 1
    workers[0].wait_until(status="ok")


def test_jobs_find_their_replica(fleet: str) -> None:
    """By their id, which tells it; and by asking all, where the client has named them."""
    for _ in range(4):
        job = ask(fleet, "/v1/jobs", {"prompt": "Once upon", **COLD}).json()
        assert job["job_id"].partition(".")[0] in ("r0", "r1")
        events = http.get(fleet + job["sse_url"]).text
        assert '"type":"started"' in events
        assert '"type":"end"' in events
    for name in ("mine", "mine-too"):
        job = ask(fleet, "/v1/jobs", {"prompt": "Once", "job_id": name, **COLD}).json()
        assert job["job_id"] == name
        assert '"type":"end"' in http.get(fleet + job["sse_url"]).text
    for name in ("nobody's", "r0.nobodys", "nobodys"):
        assert http.get(f"{fleet}/v1/jobs/{name}/stream").status_code == 404


def test_jobs_are_cancelled_where_they_are(fleet: str) -> None:
    """Whoever has named them; an unknown one is cancelled too, as a worker does it."""
    long = {"prompt": "Once upon a time", "max_tokens": 2000, "temperature": 1}
    for own in ({}, {"job_id": "mine-to-cancel"}):
        name = ask(fleet, "/v1/jobs", {**long, **own}).json()["job_id"]
        done = ask(fleet, "/cancel", {"job_id": name})
        assert (done.status_code, done.json()["job_id"]) == (202, name)
    assert ask(fleet, "/cancel", {"job_id": "nobodys"}).json()["cancelled"] is False


@pytest.fixture(scope="module")
def slow() -> Generator[Server]:
    """A worker of two slots whose tokens take 20 ms: what is begun still runs when a test looks."""
    options = ("--alias", "demo", "-t", "1", "-c", "2048", "-np", "2", "--queue-size", "1")
    with serving(*options, step_seconds=0.02) as server:
        yield server


LONG = {"model": "demo", "prompt": "Once", "max_tokens": 900, "ignore_eos": True}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_who_leaves_frees_the_slot(slow: Server, stream: bool) -> None:
    """The connection to the worker is closed with the client's, also before the first byte."""
    with gateway({"demo": [member("r0", slow.url)]}) as url:
        host, port = url.removeprefix("http://").split(":")
        body = json.dumps({**LONG, "stream": stream}).encode()
        start = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n"
        head = f"{start}content-length: {len(body)}\r\n\r\n"
        with socket.create_connection((host, int(port))) as client:
            client.sendall(head.encode() + body)
            slow.wait_until(slots_processing=1)
            if stream:
                assert client.recv(4096)
        slow.wait_until(slots_processing=0)
        until(lambda: load_of(url) == 0)


def load_of(url: str) -> int:
    """Requests that the gateway has under way."""
    (replica,) = http.get(url + "/fleet").json()["models"]["demo"]["replicas"]
    return replica["requests"]


def test_a_full_fleet_refuses_at_once(slow: Server) -> None:
    """What it has accepted goes on; the next is told to come back."""
    with gateway({"demo": [member("r0", slow.url, slots=2, limit=2)]}) as url:
        body = {**LONG, "stream": True}
        asked = [
            http.client.build_request("POST", url + "/v1/completions", json=body) for _ in "ab"
        ]
        streams = [http.client.send(each, stream=True) for each in asked]
        refused = http.post(url + "/v1/completions", json=LONG)
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["message"] == "All 1 replicas of demo are full."
        for each in streams:
            each.close()
        slow.wait_until(slots_processing=0)
        assert http.post(url + "/v1/completions", json={**LONG, "max_tokens": 1}).status_code == 200


def test_two_streams_do_not_mix(fleet: str) -> None:
    """Many at once, each with its own text to the end."""
    prompts = [f"Once upon a time {n}" for n in range(8)]

    def text(prompt: str) -> str:
        said = ""
        body = {"model": "demo", "prompt": prompt, "stream": True, **COLD, "max_tokens": 40}
        with http.stream("POST", fleet + "/v1/completions", json=body) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    said += json.loads(line[6:])["choices"][0]["text"]
        return said

    alone = [text(prompt) for prompt in prompts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(text, prompts)) == alone

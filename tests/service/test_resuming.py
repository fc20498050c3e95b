"""Streams that are picked up again: by whom, from where, for how long."""

from __future__ import annotations

import json
import signal
from collections.abc import Generator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support import http
from tests.support.programs.processes import Server, serving, until
from tests.support.resuming import id_of, numbered_events, read_in_parts

STORY: dict[str, Any] = {"prompt": "Once", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
LONG: dict[str, Any] = {**STORY, "max_tokens": 1_500, "stream": True}
TALK = [{"role": "user", "content": "Tell me of the king."}]
APIS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", STORY),
    ("/v1/chat/completions", {"messages": TALK, "max_tokens": 60, "temperature": 0}),
    ("/v1/responses", {"input": "Tell me.", "max_output_tokens": 60, "temperature": 0}),
    ("/v1/messages", {"messages": TALK, "max_tokens": 60, "temperature": 0}),
]
ON = {"x-resume": "on"}


@pytest.fixture(scope="module")
def kept(tiny: Path) -> Generator[Server]:
    """Streams are kept for an hour, a token takes 5 ms; there are two keys."""
    options = ("--model", tiny, "--ctx-size", "4096", "-t", "1", "--resume-seconds", "3600",
               "--api-key", "one,two")  # fmt: skip
    with serving(*options, step_seconds=0.005) as running:
        yield running


def key(name: str = "one", **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}", **more}


def rest(server: Server, name: str, query: str = "", whose: str = "one", **more: str) -> Any:
    url = f"{server.url}/v1/streams/{name}{query}"
    return http.get(url, headers=key(whose, **more))


def respond(server: Server, body: dict[str, Any], path: str = "") -> Any:
    """POST to /v1/responses, or below."""
    return http.post(f"{server.url}/v1/responses{path}", json=body, headers=key()).json()


def running(server: Server) -> list[Any]:
    """Requests at work."""
    return http.get(server.url + "/v1/requests", headers=key()).json()["data"]


@pytest.mark.parametrize(("path", "body"), APIS, ids=[path for path, _ in APIS])
def test_no_gap_and_no_double(kept: Server, path: str, body: dict[str, Any]) -> None:
    """Whoever leaves at random places, and comes back while it is written, reads the same bytes as
    who reads it whole; the ids count the events."""
    body = {**body, "stream": True}
    found, num_left, name = read_in_parts(kept.url, path, body, Random(path), most=5, **key())
    assert num_left == 5
    assert [id_of(event) for event in found] == list(range(len(found)))
    whole = rest(kept, name)
    assert numbered_events(whole.content) == found
    assert whole.headers["content-type"] == "text/event-stream; charset=utf-8"
    by_header = rest(kept, name, **{"last-event-id": "3"})
    assert numbered_events(by_header.content) == found[4:]


def test_lines_of_json_are_counted(kept: Server) -> None:
    """Ollama's clients read each line as JSON, so no line has an id."""
    body = {"prompt": "Once", "raw": True, "options": {"num_predict": 30, "temperature": 0}}
    url = kept.url + "/api/generate"
    answer = http.post(url, json=body, headers=key(**ON))
    lines = answer.content.splitlines()
    assert json.loads(lines[-1])["done"]
    found = rest(kept, answer.headers["x-stream-id"], "?after=7").content.splitlines()
    assert found == lines[8:]


def test_whose_it_is(kept: Server) -> None:
    """Of another key it is no stream, nor is one that never was; a wrong place is refused."""
    answer = http.post(
        kept.url + "/v1/completions", json={**STORY, "stream": True}, headers=key(**ON)
    )
    name = answer.headers["x-stream-id"]
    for status, found in (
        (404, rest(kept, name, whose="two")),
        (404, rest(kept, "0" * 32)),
        (400, rest(kept, name, "?after=first")),
        (401, http.get(f"{kept.url}/v1/streams/{name}")),
        (404, http.client.delete(f"{kept.url}/v1/streams/{name}", headers=key("two"))),
    ):
        assert found.status_code == status, found.text
    beyond = rest(kept, name, "?after=5000")
    assert (beyond.status_code, beyond.content) == (200, b"")


def test_several_readers_and_one_who_ends_it(kept: Server) -> None:
    """Each gets all that comes, also who waits for what is not there yet; DELETE tells all."""
    with http.stream("POST", kept.url + "/v1/completions", json=LONG, headers=key(**ON)) as first:
        name = first.headers["x-stream-id"]
        url = f"{kept.url}/v1/streams/{name}"
        with (
            http.stream("GET", url, headers=key()) as second,
            http.stream("GET", url + "?after=40", headers=key()) as late,
        ):
            assert next(late.iter_lines()) == "id: 41"
            assert [each["route"] for each in running(kept)] == ["POST /v1/completions"]
            assert http.client.delete(url, headers=key()).json()["deleted"]
            one, two = first.read(), second.read()
    assert one == two
    assert b'"code":"cancelled"' in one
    assert one.endswith(b"data: [DONE]\n\n")
    assert rest(kept, name).status_code == 404
    until(lambda: not running(kept))


def test_background_goes_on(kept: Server) -> None:
    """Its client need not read at all; its state, its events are asked for by its id."""
    body = {"input": "Tell me.", "max_output_tokens": 300, "temperature": 0, "background": True}
    begun = respond(kept, body)
    assert (begun["status"], begun["background"]) == ("in_progress", True)
    url = f"{kept.url}/v1/responses/{begun['id']}"
    events = numbered_events(http.get(url + "?stream=true&starting_after=4", headers=key()).content)
    data = [json.loads(event.partition(b"\ndata: ")[2]) for event in events]
    assert [each["sequence_number"] for each in data] == list(range(5, 5 + len(data)))
    assert list(map(id_of, events)) == [each["sequence_number"] for each in data]
    until(lambda: http.get(url, headers=key()).json()["status"] != "in_progress")
    assert http.get(url, headers=key()).json()["output"] == data[-1]["response"]["output"]
    long = {**body, "max_output_tokens": 2_000}
    begun = respond(kept, long)
    cancelled = respond(kept, {}, f"/{begun['id']}/cancel")
    assert cancelled["status"] == "cancelled"
    until(lambda: not running(kept))
    refused = respond(kept, {**body, "store": False})
    assert refused["error"]["param"] == "store"


def test_a_response_without_events(kept: Server) -> None:
    """One that is there says how to get it, and another one that it is not stored."""
    url, sentences = f"{kept.url}/v1/responses/", list[str]()
    body = {"input": "Tell me.", "max_output_tokens": 3}
    for name in (respond(kept, body)["id"], "resp_none"):
        found = http.get(f"{url}{name}?stream=true", headers=key())
        assert found.status_code == 404
        sentences.append(found.json()["error"]["message"])
    assert "Leave out `stream`" in sentences[0]
    assert "'resp_none' is not stored" in sentences[1]


def test_off_by_default(slow_server: Server) -> None:
    """Nothing tells of an id, and who leaves ends its request."""
    with http.stream("POST", slow_server.url + "/v1/completions", json=LONG, headers=ON) as answer:
        assert "x-stream-id" not in answer.headers
        assert next(answer.iter_lines()).startswith("data: ")
    slow_server.wait_until(slots_processing=0)


def test_nobody_comes_back(tiny: Path) -> None:
    """It ends after its seconds without a reader; a worker that is told to stop waits for one that
    still runs, as long as its drain time allows, and gives its rest."""
    options = ("--model", tiny, "--ctx-size", "4096", "-t", "1", "--resume-seconds", "0.3")
    with serving(*options, "--drain-timeout", "30", step_seconds=0.01) as server:

        def leave(tokens: int) -> str:
            body = {**LONG, "max_tokens": tokens}
            url = server.url + "/v1/completions"
            with http.stream("POST", url, json=body, headers=ON) as answer:
                return answer.headers["x-stream-id"]

        name = leave(1_500)
        server.wait_until(slots_processing=0)
        assert http.get(f"{server.url}/v1/streams/{name}").status_code == 404
        url = server.url + "/v1/completions"
        with http.stream("POST", url, json={**LONG, "max_tokens": 200}, headers=ON) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "id: 0"
            server.process.send_signal(signal.SIGTERM)
            url = f"{server.url}/v1/streams/{answer.headers['x-stream-id']}"
            whole = http.get(url).content
            assert whole.endswith(b"data: [DONE]\n\n")
            assert b'"finish_reason":"length"' in whole
        assert server.wait() == 0

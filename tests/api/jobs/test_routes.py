"""Jobs over a real socket: accepted, run and read."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.api.jobs.client import (
    GREEDY,
    LONG,
    create,
    error_of,
    execute,
    parse,
    read,
    streamed,
    text_of,
    types,
)
from tests.support import http
from tests.support.programs.processes import Server, until


def test_execute(server: Server) -> None:
    """A job's named events are started, its tokens in order, one end, and no [DONE]."""
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
    """A job accepted under /v1/inference can be read under /v1/jobs."""
    url = create(server, "/v1/inference")
    assert types(read(server, url.replace("inference", "jobs")))[-1] == "[DONE]"


def test_read_once(slow_server: Server) -> None:
    """A second reader gets 409 while the first reads, and 404 afterwards; HEAD reads nothing."""
    url = slow_server.url + create(slow_server, **LONG)
    assert http.head(url).status_code == 405
    with http.stream("GET", url) as answer:
        lines = streamed(answer)
        assert '"started"' in next(lines)
        error = error_of(http.get(url), 409)
        assert (error["code"], error["retriable"]) == ("JOB_IS_READ", False)
    until(lambda: http.get(url).status_code != 409)
    assert error_of(http.get(url), 404)["code"] == "JOB_NOT_FOUND"
    nobodys = http.get(slow_server.url + "/v1/jobs/nobody/stream")
    assert error_of(nobodys, 404)["param"] == "job_id"
    slow_server.wait_until(slots_processing=0)


@pytest.mark.parametrize("name", ["%2e%2e%2fx", "a" * 5_000, "%00", "%ff", "a%0d%0ab"])
def test_odd_names(server: Server, name: str) -> None:
    """A name that no job can have is a 404."""
    assert http.get(f"{server.url}/v1/jobs/{name}/stream").status_code == 404


def test_infer(server: Server) -> None:
    """/v1/infer answers with the text and its cost, or streams bare tokens."""
    answer = server.post(GREEDY, "/v1/infer").json()
    assert answer["text"] == text_of(execute(server))
    assert answer["tokens_generated"] == 12
    assert answer["duration_ms"] >= 0
    events = parse(server.post({**GREEDY, "stream": True}, "/v1/infer").text)
    assert events.pop() == ("", "[DONE]")
    assert "".join(data["token"] for _, data in events) == answer["text"]


def test_infer_without_text(server: Server) -> None:
    """An answer that has no text at all is a stream all the same, closed as others are."""
    body = {**GREEDY, "stream": True, "grammar": 'root ::= ""', "ignore_eos": False}
    answer = server.post(body, "/v1/infer")
    assert answer.status_code == 200
    assert parse(answer.text) == [("", "[DONE]")]


def test_seed_of_64_bits(server: Server) -> None:
    """Every seed of the original's range repeats its text, and its upper half matters."""
    # Roundings depend on what the cache held; a toss between two tokens is not decided by them.
    tossed = {"temperature": 1, "max_tokens": 40, "logit_bias": {"72": 100, "73": 100}}

    def text(seed: int) -> str:
        return text_of(execute(server, seed=seed, **tossed))

    assert text(2**64 - 1) == text(2**64 - 1)
    assert len({text(7 + (part << 32)) for part in range(4)}) > 1
    completion = server.post({**GREEDY, **tossed, "seed": 7}).json()
    assert text(7) == completion["choices"][0]["text"]


def test_job_with_nothing_left(server: Server) -> None:
    """A text that is whole ends the job, also where its end is banned."""
    events = execute(server, grammar='root ::= "x"')
    assert types(events).count("end") == 1
    assert types(events)[-1] == "end"
    assert "".join(event["t"] for kind, event in events if kind == "token") == "x"

"""A client of the job API: asks for jobs and reads their events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx

from tests.support import http
from tests.support.programs.processes import Server

#: One event: its name, or "", and its data. The closing [DONE] is a text.
Event = tuple[str, Any]

LONG: dict[str, Any] = {"prompt": "Hello", "max_tokens": 1_900, "ignore_eos": True}
GREEDY: dict[str, Any] = {
    "prompt": "Hello",
    "max_tokens": 12,
    "temperature": 0,
    "ignore_eos": True,
}


def parse(text: str) -> list[Event]:
    """The events of a whole answer."""
    frames = text.split("\n\n")
    assert frames.pop() == ""
    found: list[Event] = []
    for frame in frames:
        if frame == ":":  # a pulse, where the machine is busy
            continue
        *head, data = frame.split("\n")
        assert data.startswith("data: ")
        data = data.removeprefix("data: ")
        name = head[0].removeprefix("event: ") if head else ""
        found.append((name, data if data == "[DONE]" else json.loads(data)))
    return found


def types(events: list[Event]) -> list[str]:
    """Types without repetitions: started, token, end."""
    names = [data if data == "[DONE]" else data["type"] for _, data in events]
    return [name for index, name in enumerate(names) if name != names[index - 1] or not index]


def text_of(events: list[Event]) -> str:
    """The text of all tokens, which are numbered from 0 without a gap."""
    tokens = [data for _, data in events if data != "[DONE]" and data["type"] == "token"]
    assert [token["i"] for token in tokens] == list(range(len(tokens)))
    return "".join(token["t"] for token in tokens)


def execute(server: Server, **fields: Any) -> list[Event]:
    """Run a job; its events."""
    answer = server.post({**GREEDY, **fields}, "/execute")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return parse(answer.text)


def create(server: Server, path: str = "/v1/jobs", **fields: Any) -> str:
    """Have a job accepted; the path of its events."""
    answer = server.post({**GREEDY, **fields}, path)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["sse_url"])


def read(server: Server, path: str) -> list[Event]:
    """All events of an accepted job."""
    answer = http.get(server.url + path)
    assert answer.status_code == 200, answer.text
    return parse(answer.text)


def begin(server: Server, how: str, **fields: Any) -> dict[str, Any]:
    """How a job's events are asked for: at once by /execute, or of an accepted job."""
    if how == "execute":
        return {"method": "POST", "url": server.url + "/execute", "json": fields}
    return {"method": "GET", "url": server.url + create(server, **fields)}


def streamed(answer: httpx.Response) -> Iterator[str]:
    """Lines with data; keep it: a closed iterator closes the connection."""
    return (line for line in answer.iter_lines() if line.startswith("data: "))


def error_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The error of an answer that must have this status."""
    assert answer.status_code == status, answer.text
    return answer.json()["error"]

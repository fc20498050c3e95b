"""An answer goes on behind what another worker has told of it, wherever that was lost."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Any

import pytest

from tests.support import http
from tests.support.models.speaking import FAMILIES
from tests.support.programs.processes import Server, serving

NAME = "0123456789abcdef" * 2
RELAY = {"x-relay": f"{NAME} 1700000000"}
CALLED, ASKED = "Where is the king?", "Tell me of the king."
ARGUMENTS = {"at": "Rome", "days": [1, 2, 3]}
TOOL = {
    "name": "sky",
    "description": "The weather",
    "parameters": {
        "type": "object",
        "properties": {
            "at": {"type": "string"},
            "days": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["at"],
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"king": {"type": "string", "maxLength": 12}, "old": {"type": "boolean"}},
    "required": ["king", "old"],
}
# What differs from one run of a worker to the next.
VARIES = re.compile(
    rb'"(?:created_at|\w+_ms|\w+_per_second|cache_n|prompt_n|cached_tokens|cache_read_input_tokens'
    rb"|input_tokens|completed_at|\w+_duration|draft_n|draft_n_accepted"
    rb'|predicted_n|id)":(?:"[^"]*"|[\d.e+-]+)'
)


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


LONG: dict[str, Any] = {"max_tokens": 24, "ignore_eos": True}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "greedy text": ("/v1/completions", {"prompt": "Once", **LONG, "temperature": 0}),
    "several, scored and stopped": (
        "/v1/completions",
        {"prompt": ["Once", "The king"], "n": 2, "max_tokens": 12, "seed": 3, "logprobs": 2,
         "echo": True, "stop": ["e k", "zz"], "return_token_ids": True,
         "ignore_eos": True},
    ),
    "seed": (
        "/v1/completions",
        {"prompt": "Once", **LONG, "seed": 5, "temperature": 1.5, "top_p": 0.8},
    ),
    "seed, top-k": (
        "/v1/completions",
        {"prompt": "Once", **LONG, "seed": 5, "top_k": 50, "presence_penalty": 1},
    ),
    "schema": (
        "/v1/chat/completions",
        {"messages": user(ASKED), "seed": 4, "temperature": 1.2, "json_schema": SCHEMA},
    ),
    "thought and text": (
        "/v1/chat/completions",
        {"messages": user(ASKED), "temperature": 0, "logprobs": True, "top_logprobs": 2,
         "stream_options": {"include_usage": True}},
    ),
    "budget of thoughts": (
        "/v1/chat/completions",
        {"messages": user(ASKED), "temperature": 0, "reasoning_budget_tokens": 5,
         "max_tokens": 40},
    ),
    "call": (
        "/v1/chat/completions",
        {"messages": user(CALLED), "temperature": 0,
         "tools": [{"type": "function", "function": TOOL}]},
    ),
    "items": (
        "/v1/responses",
        {"input": CALLED, "temperature": 0, "tools": [{"type": "function", **TOOL}],
         "include": ["message.output_text.logprobs"], "return_progress": True},
    ),
    "blocks": (
        "/v1/messages",
        {"messages": user(CALLED), "temperature": 0, "max_tokens": 200,
         "tools": [{"name": "sky", "input_schema": TOOL["parameters"]}]},
    ),
    "lines": (
        "/api/chat",
        {"messages": user(CALLED), "tools": [{"type": "function", "function": TOOL}],
         "options": {"temperature": 0}},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """A model that thinks, answers and calls as it has learned to."""
    family = FAMILIES["qwen3"]
    lines = {
        ASKED: family.answer("They ask of kings.", "Once there was a king."),
        CALLED: family.answer("I look.", "", [("sky", ARGUMENTS)]),
    }
    recitals = [family.recital(text, cue, n) for n, (cue, text) in enumerate(lines.items())]
    path = family.write_model(tmp_path_factory.mktemp("relayed") / "reciting.gguf", recitals)
    options = ("--model", path, "--ctx-size", "8192", "-np", "4", "--resume-seconds", "60")
    with serving(*options, "--relayed") as running:
        yield running


class Parts:
    """What a worker tells a relay: events, each part with its mark."""

    def __init__(self, data: bytes, border: bytes) -> None:
        self.events: list[bytes] = [b""]
        self.marks: list[Any] = []
        for block in data.split(border)[:-1]:
            if block.startswith(b":w "):
                self.marks.append(json.loads(block[3:]))
                self.events.append(b"")
            elif not block.startswith(b":"):
                self.events[-1] += block + border
        self._border = border

    def told(self, count: int) -> dict[str, Any]:
        """What a client has that got so many parts."""
        tokens, places = dict[int, list[int]](), dict[int, Any]()
        for mark in self.marks[:count]:
            if mark:
                tokens.setdefault(mark[0], []).append(mark[1])
                places.update({mark[0]: mark[2]} if len(mark) > 2 else {})
        number = sum(part.count(self._border) for part in self.events[:count])
        return {"events": number, "tokens": tokens, "places": places}

    def text(self, begin: int = 0, stop: int | None = None) -> bytes:
        return b"".join(self.events[begin:stop])


def in_order(data: bytes) -> list[bytes]:
    """The events, those of each choice by themselves: steps may have others of several."""
    return sorted(data.splitlines(), key=lambda line: re.findall(rb'"index":\d+,"logp', line))


@pytest.mark.parametrize("name", CASES)
def test_wherever_it_is_lost(relayed: Server, name: str) -> None:
    """What comes before and behind is one stream: texts, thoughts, calls, scores and counts."""
    path, body = CASES[name]
    border = b"\n" if path.startswith("/api") else b"\n\n"
    data = json.dumps({**body, "stream": True}).encode()

    def ask(told: dict[str, Any] | None = None) -> Parts:
        written = b"" if told is None else json.dumps(told).encode()
        headers = {**RELAY, "x-relay-written": str(len(written))}
        answer = http.post(relayed.url + path, content=written + data, headers=headers)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-relay-marks"] == "on"
        return Parts(answer.content, border)

    whole = ask()
    expected = VARIES.sub(b"", whole.text())
    count = len(whole.marks)
    assert count > 5
    for cut in (*range(0, count, max(1, count // 7)), count - 1, count):
        rest = ask(whole.told(cut))
        found = VARIES.sub(b"", whole.text(0, cut) + rest.text())
        assert in_order(found) == in_order(expected), cut


@pytest.mark.parametrize(
    ("more", "headers"), [({}, {"x-resume": "on"}), ({"background": True}, {})], ids=str
)
def test_what_is_kept_has_no_marks(
    relayed: Server, more: dict[str, Any], headers: dict[str, str]
) -> None:
    """Its readers come and go, and not each of them is a relay."""
    body = {"input": ASKED, "stream": True, **more}
    answer = http.post(relayed.url + "/v1/responses", json=body, headers={**RELAY, **headers})
    assert answer.headers["x-stream-id"]
    assert "x-relay-marks" not in answer.headers
    assert b":w " not in answer.content


def test_only_behind_a_relay(server: Server) -> None:
    """Others are told no marks, and what they say was written is a part of their body."""
    body = {"prompt": "Once", "max_tokens": 4, "stream": True}
    answer = http.post(
        server.url + "/v1/completions", json=body, headers={**RELAY, "x-relay-written": "7"}
    )
    assert answer.status_code == 200
    assert b":w" not in answer.content
    assert NAME.encode() not in answer.content


@pytest.mark.parametrize(
    ("relay", "written"),
    [("a name", b"{}"), (RELAY["x-relay"], b"{"), (RELAY["x-relay"], b'{"tokens":{"0":[-1]}}')],
)
def test_what_cannot_be_gone_on_with(relayed: Server, relay: str, written: bytes) -> None:
    """400, and the next one is served."""
    body = written + b'{"prompt": "Once", "max_tokens": 4, "stream": true}'
    headers = {"x-relay": relay, "x-relay-written": str(len(written))}
    answer = http.post(relayed.url + "/v1/completions", content=body, headers=headers)
    assert answer.status_code == 400
    assert relayed.post({"prompt": "Once", "max_tokens": 1}).status_code == 200

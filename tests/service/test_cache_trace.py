"""The answer says why its prompt was read again, in every API that generates text."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Generator
from typing import Any

import pytest

from tests.requests.client import once
from tests.support import http
from tests.support.models.architectures import write_granitehybrid
from tests.support.programs.processes import Server, serving

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
GREEDY = {"max_tokens": 4, "temperature": 0, "ignore_eos": True}
# path -> what makes its prompt of a text, and how long the answer may be
APIS: dict[str, Callable[[str], dict[str, Any]]] = {
    CHAT: lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 4},
    COMPLETIONS: lambda text: {"prompt": text, "max_tokens": 4},
    "/v1/responses": lambda text: {"input": text, "max_output_tokens": 4},
    "/v1/messages": lambda text: {
        "messages": [{"role": "user", "content": text}], "max_tokens": 4,
    },
    "/api/chat": lambda text: {
        "messages": [{"role": "user", "content": text}], "options": {"num_predict": 4},
        "stream": False,
    },
    "/api/generate": lambda text: {
        "prompt": text, "raw": True, "options": {"num_predict": 4}, "stream": False,
    },
    "/completion": lambda text: {"prompt": text, "n_predict": 4},
    "/v1/infer": lambda text: {"prompt": text, "max_tokens": 4},
    "/execute": lambda text: {"operation": "infer", "prompt": text, "max_tokens": 4},
}  # fmt: skip


def unheard() -> str:
    """A text of which nobody sent a part before."""
    return " ".join(uuid.uuid4().hex for _ in range(8))


def traces_in(text: str) -> list[dict[str, Any]]:
    """Of all events, lines or the one reply that a text holds; also inside of a response."""
    lines = [line.removeprefix("data: ") for line in text.splitlines()]
    parts: list[dict[str, Any]] = [json.loads(line) for line in lines if line.startswith("{")]
    whole = [part.get("response") for part in parts]
    nested: list[dict[str, Any]] = [
        each if isinstance(each, dict) else part for each, part in zip(whole, parts, strict=True)
    ]
    return [part["cache_trace"] for part in nested if "cache_trace" in part]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("path", APIS)
def test_every_api(server: Server, path: str, streams: bool) -> None:
    """It stands once in the answer, beside what the answer cost, and only where it was asked for:
    by the field or by the header."""
    if path == "/v1/infer":
        streams = False  # its events are tokens alone
    body = APIS[path](unheard()) | {"stream": streams}
    plain = http.post(server.url + path, json=body)
    assert plain.status_code == 200, plain.text
    assert traces_in(plain.text) == []
    wanted = {**body, "return_cache_trace": True}
    (found,) = traces_in(http.post(server.url + path, json=wanted).text)
    assert found["reason"] in ("complete", "whole_pieces"), found
    assert found["cached_tokens"] <= found["known_tokens"] <= found["prompt_tokens"]
    headers = {"X-Explain-Cache": "on"}
    (again,) = traces_in(http.post(server.url + path, json=body, headers=headers).text)
    assert again["reason"] == found["reason"]
    off = {**body, "return_cache_trace": False}
    assert traces_in(http.post(server.url + path, json=off, headers=headers).text) == []


def asked(server: Server, body: dict[str, Any], path: str = CHAT, key: str = "") -> dict[str, Any]:
    """The trace of an answer."""
    headers = {"X-Explain-Cache": "on", **({"Authorization": f"Bearer {key}"} if key else {})}
    answer = http.post(server.url + path, json={**body, **GREEDY}, headers=headers)
    assert answer.status_code == 200, answer.text
    (found,) = traces_in(answer.text)
    return found


def test_a_chat_with_a_clock(server: Server) -> None:
    """The system prompt's date is named, with both texts and its message."""
    said, rest = unheard(), "You answer in one sentence, and never guess. " * 6
    traces: list[dict[str, Any]] = []
    for clock in ("2026-11-28 10:15", "2026-11-28 10:16"):
        messages = [
            {"role": "system", "content": f"{said} Now it is {clock}. {rest}"},
            {"role": "user", "content": "What is the sea?"},
        ]
        traces.append(asked(server, {"messages": messages}))
    found = traces[1]
    assert found["reason"] == "date_changed", found
    assert found["difference"]["message"] == 0
    assert found["difference"]["role"] == "system"
    assert "10:15" in found["difference"]["earlier"]
    assert "10:16" in found["difference"]["now"]
    assert "message 0 (system)" in found["why"]


def test_a_conversation_that_goes_on(server: Server) -> None:
    """A stream's last event beside the usage has it; what follows the known text is new."""
    prompt = unheard()
    first = server.post({"prompt": prompt, **GREEDY}, COMPLETIONS).json()
    more = prompt + first["choices"][0]["text"] + unheard() * 2
    body = {"prompt": more, "stream": True, "stream_options": {"include_usage": True}}
    headers = {"X-Explain-Cache": "on"}
    answer = http.post(server.url + COMPLETIONS, json={**body, **GREEDY}, headers=headers)
    events = [json.loads(each[6:]) for each in answer.text.split("\n\n")[:-2]]
    assert ["cache_trace" in each for each in events].index(True) == len(events) - 1
    cached = events[-1]["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert events[-1]["cache_trace"]["cached_tokens"] == cached
    assert events[-1]["cache_trace"]["reason"] == "new_text"


def test_several_prompts(server: Server) -> None:
    """The one that cost most is told, by its number."""
    known = unheard()
    asked(server, {"prompt": known}, COMPLETIONS)
    found = asked(server, {"prompt": [known, unheard() * 2], "n": 2}, COMPLETIONS)
    assert found["prompt"] == 1
    assert found["reason"] == "first_time"


def test_views(server: Server) -> None:
    """GET /v1/requests and the metrics have the word, of each request, asked for or not."""

    def count() -> float:
        name = 'worker_cache_reasons_total{model_name="org/tiny",reason="first_time"}'
        lines = http.get(server.url + "/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    before, name = count(), uuid.uuid4().hex
    headers = {"x-request-id": name}
    http.post(server.url + COMPLETIONS, json={"prompt": unheard(), **GREEDY}, headers=headers)
    assert once(server, name, "recent")["cache_reason"] == "first_time"
    assert count() == before + 1


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """A hybrid model, for two keys."""
    folder = tmp_path_factory.mktemp("hybrid")
    model = write_granitehybrid(folder / "hybrid.gguf")
    with serving("--model", model, "-t", "1", "--api-key", "ann-k,bob-k") as server:
        yield server


def test_a_hybrid_model(hybrid: Server) -> None:
    """It goes on from a checkpoint, and says after how many tokens that was."""
    known = [3 + place * 7 % 50 for place in range(300)]
    asked(hybrid, {"prompt": known}, COMPLETIONS, "ann-k")
    found = asked(hybrid, {"prompt": [*known[:250], 60, 61]}, COMPLETIONS, "ann-k")
    assert found["reason"] == "checkpoint_only_at", found
    assert found["known_tokens"] == 250
    assert f"after {found['cached_tokens']} tokens" in found["why"]


def test_keys_without_names_are_apart(hybrid: Server) -> None:
    """Of a prompt of another key nothing is told beyond what usage tells."""
    known = [4 + place * 11 % 50 for place in range(300)]
    asked(hybrid, {"prompt": known}, COMPLETIONS, "ann-k")
    found = asked(hybrid, {"prompt": [*known[:250], 60, 61]}, COMPLETIONS, "bob-k")
    assert found["known_tokens"] == found["cached_tokens"]
    assert found["reason"] in ("first_time", "new_text")
    difference: dict[str, Any] = found["difference"] or {}
    assert difference.get("earlier") is None
    assert difference.get("now") is None

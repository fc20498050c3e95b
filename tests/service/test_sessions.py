"""Sessions in each API: an error in between changes nothing, and what is not done is said."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.support import http
from tests.support.programs.processes import Server

SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
FUNCTION = {"name": "get weather/now", "parameters": SCHEMA}
CHAT_TOOLS: list[Any] = [{"type": "function", "function": FUNCTION}, {"type": "browser"}]
FLAT_TOOLS: list[Any] = [{"type": "function", **FUNCTION}, {"type": "web_search"}]
OWN_TOOLS: list[Any] = [
    {"name": FUNCTION["name"], "input_schema": SCHEMA},
    {"type": "bash_20250124", "name": "bash"},
]
# API -> its path, the field of its messages, what else it needs, its tools.
APIS: dict[str, tuple[str, str, dict[str, Any], list[Any]]] = {
    "chat": ("/v1/chat/completions", "messages", {"temperature": 0, "max_tokens": 8}, CHAT_TOOLS),
    "responses": ("/v1/responses", "input", {"temperature": 0, "max_output_tokens": 8}, FLAT_TOOLS),
    "anthropic": ("/v1/messages", "messages", {"temperature": 0, "max_tokens": 8}, OWN_TOOLS),
    "ollama": (
        "/api/chat", "messages",
        {"stream": False, "options": {"temperature": 0, "num_predict": 8}}, CHAT_TOOLS,
    ),
}  # fmt: skip
LONG = {"role": "user", "content": "word " * 5000}
WRONG: dict[str, dict[str, Any]] = {
    "too long": {"LAST": LONG},
    "a role that is none": {"LAST": {"role": 7, "content": "x"}},
    "a picture": {"LAST": {"role": "user", "content": [{"type": "image", "source": {}}]}},
    "tools that are none": {"tools": 7},
    "a number that is none": {"temperature": "warm", "options": {"temperature": "warm"}},
}
SAID = [
    {"role": "user", "content": "Where is it warm?"},
    {"role": "assistant", "content": "In Rome."},
    {"role": "user", "content": "And cold?"},
]


def answer(server: Server, api: str, messages: list[Any], **more: Any) -> httpx.Response:
    path, field, given, _ = APIS[api]
    return http.post(server.url + path, json={**given, field: messages, **more})


def words(reply: httpx.Response) -> str:
    """What was answered: all that does not change by itself."""
    assert reply.status_code == 200, reply.text
    found = reply.json()
    said = [found.get(name) for name in ("choices", "output", "content", "message")]
    text = json.dumps(said)
    for name in ("id",):
        for part in found.get("output") or ():
            text = text.replace(str(part.get(name)), "")
    return text


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("api", APIS)
def test_an_error_changes_nothing(server: Server, api: str, wrong: str) -> None:
    """The next turn is answered as if it had not been, and so is the same turn, mended."""
    first, both = words(answer(server, api, SAID[:1])), words(answer(server, api, SAID))
    more = dict(WRONG[wrong])
    last = more.pop("LAST", SAID[2])
    for streams in (False, True):
        refused = answer(server, api, [*SAID[:2], last], **more, stream=streams)
        assert 400 <= refused.status_code < 500, refused.text
        assert refused.json()["error"]
        assert words(answer(server, api, SAID)) == both
    assert words(answer(server, api, SAID[:1])) == first


@pytest.mark.parametrize("api", APIS)
def test_who_leaves_changes_nothing(server: Server, api: str) -> None:
    """Also in the middle of an answer."""
    both = words(answer(server, api, SAID))
    path, field, given, _ = APIS[api]
    body = {**given, field: SAID, "stream": True}
    with http.stream("POST", server.url + path, json=body) as left:
        next(left.iter_bytes(1))
    assert words(answer(server, api, SAID)) == both


@pytest.mark.parametrize("api", APIS)
def test_what_is_left_out_is_said(server: Server, api: str) -> None:
    """Tools that nobody here runs, in the reply and in the stream; the others are used."""
    tools = APIS[api][3]
    kind = tools[1]["type"]
    whole = answer(server, api, SAID, tools=tools)
    assert whole.status_code == 200, whole.text
    assert whole.json()["warnings"] == [f"Tools of the type {kind} are left out."]
    assert "warnings" not in answer(server, api, SAID, tools=tools[:1]).json()
    streamed = answer(server, api, SAID, tools=tools, stream=True)
    assert streamed.text.count(f"Tools of the type {kind} are left out.") >= 1


def test_what_is_not_held_is_said(server: Server) -> None:
    """Parts of a schema that no grammar can hold, where the client did not say strict."""
    schema = {"type": "array", "items": {"type": "integer"}, "maxItems": 2, "uniqueItems": True}
    said = "response_format: uniqueItems of the schema is not held."
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert answer(server, "chat", SAID, response_format=form).json()["warnings"] == [said]
    body = {"prompt": "x", "max_tokens": 4, "response_format": form}
    assert server.post(body).json()["warnings"] == [said]


def test_results_without_ids_are_those_of_calls_in_order(server: Server) -> None:
    """A session whose client forgot an id goes on."""
    use = {"type": "tool_use", "id": None, "name": "sky", "input": {"at": "Rome"}}
    said = [
        SAID[0],
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "content": "blue"}]},
    ]
    assert answer(server, "anthropic", said).status_code == 200

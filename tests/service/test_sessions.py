"""Sessions in each API: an error in between changes nothing, and what is not done is said."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.support import http
from tests.support.cases import for_each
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


@for_each("wrong", WRONG)
@for_each("api", APIS)
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


@pytest.mark.parametrize("api", ["chat", "ollama"])
def test_a_refused_picture_ends_no_session(server: Server, api: str) -> None:
    """Where the client keeps it, the next question is answered; so is what a tool shows."""
    shown = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    assert answer(server, api, [shown]).status_code == 400
    assert answer(server, api, [shown, SAID[0]]).status_code == 200
    result = {"role": "tool", "tool_call_id": "1", "content": "a screenshot"}
    call = {"id": "1", "type": "function", "function": {"name": "sky", "arguments": "{}"}}
    called = {"role": "assistant", "tool_calls": [call]}
    assert answer(server, api, [SAID[0], called, result, shown]).status_code == 200


@pytest.mark.parametrize("depth", [150, 400, 900])
@pytest.mark.parametrize("api", APIS)
def test_deep_content(server: Server, api: str, depth: int) -> None:
    """It is read as far as it can be."""
    body = '{"content":' * depth + '"deep"' + "}" * depth
    field = APIS[api][1]
    content = json.dumps({**APIS[api][2], field: [{"role": "user", "content": "HERE"}]})
    content = content.replace('"HERE"', body)
    reply = http.post(server.url + APIS[api][0], content=content)
    assert reply.status_code in (200, 400), reply.text


DEEP = {
    "choices": ('{"anyOf":[', "]}"),
    "lists": ('{"type":"array","items":', "}"),
    "objects": ('{"type":"object","properties":{"a":', "}}"),
}


@pytest.mark.parametrize("depth", [100, 400, 490, 700])
@pytest.mark.parametrize("kind", DEEP)
@pytest.mark.parametrize("api", APIS)
def test_deep_tools(server: Server, api: str, kind: str, depth: int) -> None:
    """One that can be read is shown, and held as far as it can be; else the field is named."""
    path, field, given, _ = APIS[api]
    body = json.dumps({**given, field: SAID, "tools": [{**CHAT_TOOLS[0], **FLAT_TOOLS[0], **SKY}]})
    opens, closes = DEEP[kind]
    schema = json.dumps(SCHEMA)
    body = body.replace(schema, opens * depth + schema + closes * depth)
    for end in ("", "/count_tokens") if api == "anthropic" else ("",):
        reply = http.post(server.url + path + end, content=body)
        if reply.status_code != 200:
            assert reply.status_code == 400, reply.text
            assert "prompt is too long" in reply.text or "tools holds too many" in reply.text
    words(answer(server, api, SAID))


def test_results_that_are_objects(server: Server) -> None:
    """They stay whole; only parts of a known kind become texts."""
    call = {"id": "1", "type": "function", "function": {"name": "sky", "arguments": "{}"}}
    for result in (
        [{"id": 7, "name": "bob", "status": "open"}],
        {"text": "hello", "score": 5},
        [{"type": "note", "status": "s", "data": "d"}],
    ):
        said = [
            SAID[0],
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": result},
        ]
        shown = http.post(server.url + "/apply-template", json={"messages": said}).json()["prompt"]
        assert json.dumps(result, separators=(",", ":")) in shown


SKY = {"name": "sky", "parameters": SCHEMA}
# What clients declare that is no tool, or that another API writes: the sentence on it, if any.
ODD_TOOLS: dict[str, tuple[Any, str | None]] = {
    "nothing": (None, None),
    "no name": ({"type": "function"}, "tools[1] has no name and is left out."),
    "an empty name": (
        {"type": "function", "function": {"name": ""}}, "tools[1] has no name and is left out.",
    ),
    "a long name": (
        {"name": "x" * 300}, "tools[1] has a name of more than 256 characters and is left out.",
    ),
    "the same again": ({"type": "function", "function": SKY}, None),
    "one of that name": (
        {"name": "sky", "description": "another"},
        "tools[1] has the name of a tool before it and is left out.",
    ),
    "as Responses have it": ({"type": "function", "name": "sea", "parameters": SCHEMA}, None),
    "as chats have it": ({"type": "function", "function": {**SKY, "name": "sea"}}, None),
    "as Anthropic has it": ({"name": "sea", "input_schema": SCHEMA}, None),
    "an empty list for a schema": ({"name": "sea", "parameters": [], "input_schema": []}, None),
    "an empty list of properties": (
        {"name": "sea", "parameters": {"type": "object", "properties": []}}, None,
    ),
}  # fmt: skip


@for_each("odd", ODD_TOOLS)
@for_each("api", APIS)
def test_one_tool_refuses_no_request(server: Server, api: str, odd: str) -> None:
    """It is read, or left out with a word."""
    tool, said = ODD_TOOLS[odd]
    first = {"type": "function", "function": SKY}
    reply = answer(server, api, SAID, tools=[first, tool])
    assert reply.status_code == 200, reply.text
    assert reply.json().get("warnings", []) == ([] if said is None else [said])


@for_each("content", [5, 1.5, True, [["deep"], None, 7], {"text": "x"}])
@for_each("api", APIS)
def test_content_that_is_no_text(server: Server, api: str, content: Any) -> None:
    """It becomes one."""
    said = [SAID[0], {"role": "assistant", "content": content}, SAID[2]]
    assert answer(server, api, said).status_code == 200


@pytest.mark.parametrize(
    "called",
    [
        {"tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "sky", "input": "x"}}]},
        {"tool_calls": [{"id": "1", "name": "sky", "arguments": {"at": "Rome"}}, None]},
        {"tool_calls": [{"id": "1", "function": {"name": None}}]},
        {"function_call": {"name": "sky", "arguments": "{}"}},
    ],
)
@pytest.mark.parametrize("api", ["chat", "ollama"])
def test_calls_in_other_forms(server: Server, api: str, called: Any) -> None:
    """Of custom tools, flat, without a name, and the one of before 2024."""
    role = "function" if "function_call" in called and api == "chat" else "tool"
    said = [
        SAID[0],
        {"role": "assistant", "content": None, **called},
        {"role": role, "name": "sky", "tool_call_id": "1", "content": "blue"},
        SAID[2],
    ]
    assert answer(server, api, said).status_code == 200


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

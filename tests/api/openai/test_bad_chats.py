"""Conversations that cannot be: 4xx in OpenAI's shape by both APIs, and the next one is served."""

from __future__ import annotations

import json
from typing import Any

from tests.support import http
from tests.support.cases import for_each
from tests.support.programs.processes import Server

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
PATHS = {"/v1/chat/completions": "messages", "/v1/responses": "input"}


def tool(name: Any, **more: Any) -> dict[str, Any]:
    """In both APIs' forms at once."""
    function = {"name": name, **more}
    return {"type": "function", "function": function, **function}


def called(arguments: str) -> dict[str, Any]:
    """A conversation with a call."""
    function = {"name": "a", "arguments": arguments}
    call = {"role": "assistant", "tool_calls": [{"id": "1", "function": function}]}
    return {
        "messages": [*HELLO, call],
        "input": [*HELLO, {"type": "function_call", **function}],
    }


RECURSIVE: dict[str, Any] = {
    "type": "object", "properties": {"a": {"$ref": "#"}}, "patternProperties": {"^a": {"$ref": "#"}}
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "two thousand tools": {"tools": [tool(f"t{n}") for n in range(2000)]},
    "a thousand tools with much to say": {
        "tools": [tool(f"t{n}", description="word " * 90) for n in range(1000)]
    },
    "choice of nothing": {"tools": [tool("a")], "tool_choice": tool("b")},
    "choice is a number": {"tools": [tool("a")], "tool_choice": 5},
    "required without tools": {"tool_choice": "required"},
    "megabytes of arguments": called('{"a": "' + "x" * (15 * 2**20) + '"}'),
    "more than a body may have": called("x" * (17 * 2**20)),
    "deep arguments": called('{"a":' * 5000),
    "a schema that recurses": {
        "response_format": {"type": "json_schema", "json_schema": {"schema": RECURSIVE}},
        "text": {"format": {"type": "json_schema", "name": "x", "schema": RECURSIVE}},
    },
    "role is a number": {"messages": [{"role": 5, "content": "x"}],
                         "input": [{"role": 5, "content": "x"}]},
    "an image": {"messages": [{"role": "user", "content": [{"type": "image_url"}]}],
                 "input": [{"role": "user", "content": [{"type": "input_image"}]}]},
}  # fmt: skip
# What the tiny model's template leaves out.
SERVED = {"deep arguments", "a thousand tools with much to say"}


@for_each("streaming", [False, True])
@for_each("path", PATHS)
@for_each("case", CASES)
def test_bad_conversations(server: Server, path: str, case: str, streaming: bool) -> None:
    """It is told before the stream; what was generated is not touched."""
    limits = {"max_tokens": 2, "max_output_tokens": 2, "stream": streaming}
    body = {PATHS[path]: HELLO, **limits, **CASES[case]}
    answer = http.post(server.url + path, content=json.dumps(body))
    if case not in SERVED:
        assert answer.status_code in (400, 413), answer.text[:300]
        error = answer.json()["error"]
        assert {"message", "type", "param", "code"} <= set(error)
        assert len(error["message"]) < 1000
    good = http.post(server.url + path, json={PATHS[path]: HELLO, "max_tokens": 2} | limits)
    assert good.status_code == 200

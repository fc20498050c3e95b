"""Conversations that cannot be, in each chat API's own words: 4xx in its own shape, and the next
one is served. The template is a real one, which writes tools and calls out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any

import httpx
import pytest

from tests.support import http
from tests.support.models.speaking import FAMILIES
from tests.support.programs.processes import Server, serving

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
RECURSIVE: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"$ref": "#"}},
    "patternProperties": {"^a": {"$ref": "#"}},
}
LONG = "x" * 16 * 2**20
Body = dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """A model that says hello."""
    qwen = FAMILIES["qwen3"]
    path = tmp_path_factory.mktemp("polite") / "polite.gguf"
    qwen.write_model(path, [qwen.recital("Hello there.")])
    with serving("--model", path, "--ctx-size", "4096", "-np", "2") as running:
        yield running


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """The same with a template that refuses critics."""
    mistral = FAMILIES["mistral-names"]
    path = tmp_path_factory.mktemp("refusing") / "refusing.gguf"
    mistral.write_model(path, [mistral.recital("Hello there.")])
    template = (
        "{% for m in messages %}{% if 'critic' in m.content %}{{ raise_exception('No critics') }}"
        "{% endif %}{{ m.content }}{% endfor %}"
    )
    with serving("--model", path, "--chat-template", template, "-np", "2") as running:
        yield running


def openai_tool(name: Any, schema: Any) -> Body:
    function = {"name": name, "description": "x", "parameters": schema}
    return {"type": "function", "function": {k: v for k, v in function.items() if v is not None}}


def anthropic_tool(name: Any, schema: Any) -> Body:
    tool = {"name": name, "description": "x", "input_schema": schema or {"type": "object"}}
    return {k: v for k, v in tool.items() if v is not None}


def responses_tool(name: Any, schema: Any) -> Body:
    return {"type": "function", **openai_tool(name, schema)["function"]}


def openai_call(arguments: str) -> list[Any]:
    call = {"id": "1", "type": "function", "function": {"name": "a", "arguments": arguments}}
    return [*HELLO, {"role": "assistant", "tool_calls": [call]}]


def responses_call(arguments: str) -> list[Any]:
    return [*HELLO, {"type": "function_call", "call_id": "1", "name": "a", "arguments": arguments}]


def anthropic_call(arguments: str) -> list[Any]:
    block = {"type": "tool_use", "id": "1", "name": "a", "input": {"a": arguments}}
    return [*HELLO, {"role": "assistant", "content": [block]}]


def ollama_call(arguments: str) -> list[Any]:
    call = {"function": {"name": "a", "arguments": {"a": arguments}}}
    return [*HELLO, {"role": "assistant", "tool_calls": [call]}]


def is_openai(error: Any) -> bool:
    return {"message", "type", "param", "code"} <= set(error["error"])


def is_anthropic(error: Any) -> bool:
    return error["type"] == "error" and {"type", "message"} <= set(error["error"])


def is_ollama(error: Any) -> bool:
    return isinstance(error["error"], str)


# Path -> (field of the messages, a tool, a conversation with a call, the shape of errors).
APIS: dict[str, tuple[str, Callable[..., Body], Callable[[str], list[Any]], Any]] = {
    "/v1/chat/completions": ("messages", openai_tool, openai_call, is_openai),
    "/v1/responses": ("input", responses_tool, responses_call, is_openai),
    "/v1/messages": ("messages", anthropic_tool, anthropic_call, is_anthropic),
    "/api/chat": ("messages", openai_tool, ollama_call, is_ollama),
}
LIMITS = {"model": "m", "max_tokens": 8, "max_output_tokens": 16, "stream": False}


def bad_bodies(path: str) -> dict[str, Body]:
    """What the API cannot serve."""
    field, tool, call, _ = APIS[path]
    bodies: dict[str, Body] = {
        "no messages": {field: []},
        "role is a number": {field: [{"role": 5, "content": "x"}]},
        "tools that are no list": {"tools": tool("a", None)},
        "a thousand tools": {"tools": [tool(f"t{n}", {"type": "object"}) for n in range(1000)]},
        "16 MiB of arguments": {field: call(LONG)},
        "15 MiB of arguments": {field: call(LONG[: -(2**20)])},
    }
    if path == "/api/chat":
        del bodies["no messages"]  # there it asks for the model to be loaded
    return bodies


def post(server: Server, path: str, body: Body) -> httpx.Response:
    field = APIS[path][0]
    return http.post(server.url + path, content=json.dumps({field: HELLO, **LIMITS, **body}))


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("path", APIS)
def test_bad_talks(server: Server, path: str, streaming: bool) -> None:
    """Each is refused, and a good one has its answer."""
    *_, has_shape = APIS[path]
    for case, body in bad_bodies(path).items():
        if streaming and "MiB" in case:
            continue  # refused by its size, before anyone reads that it streams
        answer = post(server, path, {**body, "stream": streaming})
        assert answer.status_code in (400, 413), (case, answer.status_code, answer.text[:300])
        assert has_shape(answer.json()), (case, answer.text[:300])
        assert len(answer.content) < 2000, case
        good = post(server, path, {})
        assert good.status_code == 200, (case, good.text[:300])
        assert "Hello there." in good.text


@pytest.mark.parametrize("path", APIS)
def test_a_tool_whose_schema_recurses(server: Server, path: str) -> None:
    """It is held as far as it can be: a tool may be there that nobody can hold."""
    tool = APIS[path][1]
    answer = post(server, path, {"tools": [tool("a", RECURSIVE)]})
    assert answer.status_code in (200, 400), answer.text[:300]
    assert post(server, path, {}).status_code == 200


@pytest.mark.parametrize(
    ("path", "field"), [("/v1/chat/completions", "messages"), ("/v1/responses", "input")]
)
def test_what_the_template_refuses_has_the_client_s_name(
    refusing: Server, path: str, field: str
) -> None:
    """It is in the client's own field."""
    body = {field: [{"role": "user", "content": "I am a critic."}]}
    answer = refusing.post(body, path)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field

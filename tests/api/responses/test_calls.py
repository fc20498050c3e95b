"""A loop of tool calls by the official client's `responses`, with a model that thinks and calls."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from tests.api.responses import oracle
from tests.support import http
from tests.support.models.speaking import FAMILIES, Arguments
from tests.support.programs.processes import Server, serving

SKY: Arguments = {"at": 'Zürich ☂ "old"', "days": [1, 2]}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": name, "parameters": {"type": "object"}, "strict": False}
    for name in ("sky", "sea")
]
# What it says: at first, and after each result.
TURNS: list[tuple[str, str, list[tuple[str, Arguments]]]] = [
    ("Rain?", "I look.", [("sky", SKY), ("sea", {})]),
    ("Where?", "", [("sky", {"at": "Rome"})]),
    ("", "It rains.", []),
]
RESULTS = ["result one", "result two"]


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """A model of the Qwen family that says the TURNS."""
    speaker = FAMILIES["qwen3"]
    recitals = [
        speaker.recital(speaker.answer(*turn), cue)
        for turn, cue in zip(TURNS, ["the weather", *RESULTS], strict=True)
    ]
    recitals.append(speaker.recital(speaker.answer("", "", [("crm__sky", SKY)]), "the customer"))
    model = speaker.write_model(tmp_path_factory.mktemp("calls") / "model.gguf", recitals)
    with serving("--model", model, "--ctx-size", "8192", "-np", "2") as running:
        yield running


@pytest.fixture(scope="module")
def client(qwen: Server) -> Generator[openai.OpenAI]:
    with openai.OpenAI(base_url=qwen.url + "/v1", api_key="unused", max_retries=0) as client:
        yield client


def parts(response: Response) -> tuple[str, str, list[tuple[str, Any]]]:
    """What it thought, said and called."""
    thought, calls = "", list[tuple[str, Any]]()
    for item in response.output:
        if item.type == "reasoning":
            thought += "".join(part.text for part in item.content or ())
        elif item.type == "function_call":
            calls.append((item.name, json.loads(item.arguments)))
    return thought, response.output_text, calls


@pytest.mark.parametrize("streaming", [False, True])
def test_a_loop_of_calls(client: openai.OpenAI, streaming: bool) -> None:
    """Calls go out, their results come back with all that was said before, three times."""
    items: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    for turn, expected in enumerate(TURNS):
        asked: Any = {"model": "any", "input": items, "tools": TOOLS, "temperature": 0}
        if streaming:
            with client.responses.stream(**asked) as stream:
                response: Response = stream.get_final_response()
        else:
            send: Any = client.responses.create
            response = send(**asked)
        assert response.status == "completed"
        assert parts(response) == expected
        assert response.usage is not None
        thought = response.usage.output_tokens_details.reasoning_tokens
        assert (thought > 0) == bool(expected[0])
        items += [item.model_dump(exclude_none=True) for item in response.output]
        calls = [item for item in response.output if item.type == "function_call"]
        for call in calls:
            result = [{"type": "input_text", "text": RESULTS[turn]}]
            items.append(
                {"type": "function_call_output", "call_id": call.call_id, "output": result}
            )


def test_events_of_calls(qwen: Server) -> None:
    """All events parse; arguments come in pieces, as they are written."""
    body = {"input": "How is the weather?", "tools": TOOLS, "stream": True}
    events = oracle.events(http.post(qwen.url + "/v1/responses", json=body).text)
    opened = [e.item.type for e in events if e.type == "response.output_item.added"]
    assert opened == ["reasoning", "message", "function_call", "function_call"]
    told = [e for e in events if e.type == "response.function_call_arguments.delta"]
    assert len([e for e in told if e.output_index == 2]) > 3
    assert json.loads("".join(e.delta for e in told if e.output_index == 2)) == SKY
    assert events[-1].type == "response.completed"


@pytest.mark.parametrize("count", range(3, 40, 6))
def test_cut_anywhere(qwen: Server, count: int) -> None:
    """A response that is cut is incomplete; a call that never ended is never told as done."""
    body: dict[str, Any] = {
        "input": "How is the weather?", "tools": TOOLS, "max_output_tokens": count
    }  # fmt: skip
    complete = oracle.response(http.post(qwen.url + "/v1/responses", json=body).content)
    answer = http.post(qwen.url + "/v1/responses", json={**body, "stream": True})
    events = oracle.events(answer.text)
    last = events[-1].response
    for response in (complete, last):
        assert response.status == "incomplete"
        assert response.usage is not None
        assert response.usage.output_tokens == count
    for event in events:
        if event.type == "response.output_item.done" and event.item.type == "function_call":
            assert isinstance(json.loads(event.item.arguments), dict)
    for item in complete.output:
        if item.type == "function_call":
            assert item.status == "completed"
    calls = [item for item in last.output if item.type == "function_call"]
    assert all(call.status == "completed" for call in calls[:-1])
    assert last.output_text == complete.output_text


def test_a_call_in_a_namespace(qwen: Server) -> None:
    """Coding agents find their MCP tools by the namespace, which comes back beside the name."""
    space = {"type": "namespace", "name": "crm", "description": "Customers", "tools": TOOLS}
    body: dict[str, Any] = {"input": "Who is the customer?", "tools": [space]}
    whole = oracle.response(http.post(qwen.url + "/v1/responses", json=body).content)
    answer = http.post(qwen.url + "/v1/responses", json={**body, "stream": True})
    events = oracle.events(answer.text)
    responses: list[Any] = [whole, events[-1].response]
    for found in responses:
        (call,) = found.output
        assert (call.namespace, call.name, json.loads(call.arguments)) == ("crm", "sky", SKY)
        assert [tool.name for tool in found.tools[0].tools] == ["sky", "sea"]


def test_no_calls(qwen: Server) -> None:
    """With `none` a call is text."""
    body = {"input": "How is the weather?", "tools": TOOLS, "tool_choice": "none"}
    found = oracle.response(http.post(qwen.url + "/v1/responses", json=body).content)
    assert {item.type for item in found.output} == {"reasoning", "message"}
    assert "<tool_call>" in found.output_text


def test_a_coding_agents_request(qwen: Server) -> None:
    """What agents send besides: several system parts, other tools, fields of a store."""
    body: dict[str, Any] = {
        "model": "gpt-5-codex", "instructions": "You are an agent.", "store": False,
        "stream": True, "tool_choice": "auto", "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"}, "prompt_cache_key": "k",
        "include": ["reasoning.encrypted_content"], "service_tier": None,
        "text": {"verbosity": "medium"}, "client_metadata": {"a": "b"},
        "input": [
            {"type": "message", "role": "developer",
             "content": [{"type": "input_text", "text": "<permissions>none</permissions>"}]},
            {"type": "message", "role": "user",
             "content": [{"type": "input_text", "text": "How is the weather?"}]},
        ],
        "tools": [
            *TOOLS, {"type": "web_search", "external_web_access": False}, {"type": "local_shell"},
            {"type": "custom", "name": "apply_patch",
             "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}},
            {"type": "namespace", "name": "mcp__x", "description": "d", "tools": TOOLS},
        ],
    }  # fmt: skip
    events = oracle.events(http.post(qwen.url + "/v1/responses", json=body).text)
    response = events[-1].response
    thought, message, call = response.output
    assert (response.status, call.name) == ("completed", "sky")
    assert (thought.summary[0].text, message.content[0].text) == ("Rain?", "I look.")
    again: dict[str, Any] = {**body, "input": [*body["input"], {
        "type": "reasoning", "summary": [], "encrypted_content": thought.encrypted_content,
    }, call.model_dump(exclude_none=True), {
        "type": "function_call_output", "call_id": call.call_id, "output": RESULTS[0],
    }]}  # fmt: skip
    events = oracle.events(http.post(qwen.url + "/v1/responses", json=again).text)
    assert [item.type for item in events[-1].response.output] == ["reasoning", "function_call"]
    prompt = http.post(qwen.url + "/v1/responses", json={**body, "stream": False}).json()
    assert prompt["usage"]["input_tokens_details"]["cached_tokens"] > 0

"""Wrong requests over all APIs: each answer says what failed, where, and what would do."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support import http
from tests.support.programs.processes import Server

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SOURCE = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
HI = [{"role": "user", "content": "Hi"}]
LONG = "word " * 20_000


def text(**fields: Any) -> dict[str, Any]:
    """A completion with these fields."""
    return {"prompt": "Hi", "max_tokens": 4, **fields}


def talk(**fields: Any) -> dict[str, Any]:
    """A chat with these fields."""
    return {"messages": HI, "max_tokens": 4, **fields}


def shown(part: dict[str, Any]) -> dict[str, Any]:
    """A chat about an image or a sound."""
    return talk(messages=[{"role": "user", "content": [part]}])


# path, body, status, the field that is named in `param`, what failed and what would do
WRONG: list[tuple[str, Any, int, str | None, str]] = [
    (COMPLETIONS, b"", 400, None, "The body is empty. Send a JSON object."),
    (COMPLETIONS, b"{bad", 400, None, "The body is not valid JSON: .*line 1, column 2"),
    (COMPLETIONS, b"[1]", 400, None, "The body must be an object, not a list."),
    (COMPLETIONS, text(prompt=None), 400, "prompt", "prompt is missing. Send a text."),
    (COMPLETIONS, text(prompt=[10**6]), 400, "prompt", "prompt holds token ids outside 0 to "),
    (COMPLETIONS, text(prompt=LONG), 400, "prompt", "prompt is too long: .* 2048 .* Shorten it"),
    (COMPLETIONS, text(max_tokens="5"), 400, "max_tokens",
     "max_tokens must be a whole number or null, not a text."),
    (COMPLETIONS, text(temperature="hot"), 400, "temperature",
     "temperature must be a number or null, not a text."),
    (COMPLETIONS, text(temperature=200), 400, "temperature", "must be from 0 to 100."),
    (COMPLETIONS, text(stream=1), 400, "stream", "stream must be true, false or null, not a whole"),
    (COMPLETIONS, text(n=0), 400, "n", "n must be from 1 to 128."),
    (COMPLETIONS, text(n=100_000), 400, "n", "n must be from 1 to 128."),
    (COMPLETIONS, text(best_of=5_000), 400, "best_of", "best_of must be from n to 128."),
    (COMPLETIONS, text(stop=["a" * 10_000]), 400, "stop", "at most 256 texts of at most 1024 char"),
    (COMPLETIONS, text(stop=["a"] * 300), 400, "stop", "at most 256 texts"),
    (COMPLETIONS, text(logprobs=1000), 400, "logprobs", "logprobs must be from 0 to 100."),
    (COMPLETIONS, text(logit_bias={"999999": 1}), 400, "logit_bias", "vocabulary has 0 to "),
    (COMPLETIONS, text(logit_bias=[["a", 1]] * 10_000), 400, "logit_bias", "more entries than"),
    (COMPLETIONS, text(suffix="x"), 400, "suffix", "infill tokens.* Leave it out"),
    (COMPLETIONS, text(grammar="root ::= ("), 400, "grammar", "ends too early, in line 1"),
    (COMPLETIONS, text(grammar="root : x"), 400, "grammar", "does not parse at line 1: ': x'"),
    (COMPLETIONS, text(json_schema={"$ref": "#/no"}), 400, "json_schema", "does not have"),
    (COMPLETIONS, text(guided_regex="("), 400, "guided_regex", "unclosed group"),
    (COMPLETIONS, text(samplers=["nope"]), 400, "samplers", "top_k.*not 'nope'"),
    (COMPLETIONS, text(lora=[{"id": 7, "scale": 1}]), 404, "lora", "There is no adapter 7"),
    (CHAT, {}, 400, "messages", "messages is missing. Send one message."),
    (CHAT, talk(messages="Hi"), 400, "messages", "must be a list or null, not a text."),
    (CHAT, talk(messages=[{"role": "user", "content": LONG}]), 400, "messages", "too long"),
    (CHAT, shown(IMAGE), 400, "messages", "content.0. is of type image_url: .*--mmproj"),
    (CHAT, shown(SOUND), 400, "messages", "content.0. is of type input_audio: .*--mmproj"),
    (CHAT, talk(tool_choice="sometimes"), 400, "tool_choice", "auto, none, required, or"),
    (CHAT, talk(tool_choice="required"), 400, "tool_choice", "no tools. Send tools, or leave"),
    (CHAT, talk(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "g"}}), 400,
     "tool_choice", "'g', which is no tool. Name one of f."),
    (CHAT, talk(tools="x"), 400, "tools", "tools must be a list or null, not a text."),
    (CHAT, talk(response_format={"type": "xml"}), 400, "response_format", "json_schema with a sc"),
    (CHAT, talk(response_format={"type": "json_schema"}), 400, "response_format",
     "has no schema. It belongs in response_format.json_schema.schema."),
    (CHAT, talk(top_logprobs=5), 400, "top_logprobs", "needs logprobs. Set logprobs to true."),
    (CHAT, talk(stream_options={"include_usage": "yes"}), 400, "stream_options",
     "stream_options.include_usage must be true, false or null, not a text."),
    (CHAT, talk(max_completion_tokens=-5), 400, "max_completion_tokens", "or -1 for no limit"),
    ("/v1/responses", {}, 400, "input", "input is missing. Send one message."),
    ("/v1/responses", {"input": "a", "previous_response_id": "none"}, 404,
     "previous_response_id", "is not stored.* Send the whole conversation"),
    ("/v1/messages", {"messages": HI}, 400, None, "max_tokens is missing. Send the most tokens"),
    ("/v1/messages", {"max_tokens": 4, "messages": []}, 400, None, "messages is missing. Send"),
    ("/v1/messages", {"max_tokens": 4, "messages": HI, "thinking": {"type": "maybe"}}, 400, None,
     "thinking.type must be one of enabled, disabled"),
    ("/v1/messages", {"max_tokens": 4, "messages": [
        {"role": "user", "content": [{"type": "image", "source": SOURCE}]}]}, 400, None,
     "content.0. is of type image: .*--mmproj"),
    ("/api/chat", {"messages": "no"}, 400, None, "messages must be a list or null, not a text."),
    ("/api/generate", {"prompt": "a", "options": {"temperature": "hot"}}, 400, None,
     "options.temperature must be a number or null, not a text."),
    ("/api/generate", {"prompt": "a", "format": "yaml"}, 400, None, "json_schema with a schema"),
    ("/api/embed", {"input": "a"}, 400, None, "writes text. Start the worker with --pooling mean"),
    ("/api/pull", {"model": "x"}, 501, None, "keeps no store of models. Get files with `worker"),
    ("/v1/embeddings", {"input": "a"}, 400, None, "Start the worker with --pooling mean"),
    ("/v1/rerank", {"query": "a", "documents": ["b"]}, 400, None, "Serve a reranker"),
    ("/tokenize", {}, 400, "prompt", "Send content or prompt, one of them."),
    ("/detokenize", {"tokens": ["a"]}, 400, "tokens", "tokens.0. must be a whole number, not a t"),
    ("/infill", {"input_prefix": "a", "input_suffix": "b"}, 501, None, "Serve a model for code"),
    ("/slots/99?action=save", {"filename": "a"}, 400, "id", "no slot 99. Name one from 0 to 3."),
    ("/slots/0?action=nope", {}, 400, "action", "must be one of save, restore, erase."),
    ("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "b"}, 404, None,
     "Start it with --lora-dir DIR."),
    ("/execute", {}, 400, "prompt", "prompt is missing. Send a text."),
    ("/v1/nope", {}, 404, None, "no such path; see /openapi.json"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body", "status", "param", "told"), WRONG, ids=[f"{w[0]} {w[4][:30]}" for w in WRONG]
)
def test_a_wrong_request(
    server: Server, path: str, body: Any, status: int, param: str | None, told: str
) -> None:
    """Its status, its field under `param` if the API has one, and a sentence with what would do."""
    given: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body}
    answer = http.post(server.url + path, **given)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    if isinstance(error, str):  # Ollama's
        error = {"message": error}
    assert re.search(told, error["message"]), error["message"]
    assert error["message"].endswith((".", "`"))
    assert error.get("param") == param


def test_models_that_are_not_served(server: Server) -> None:
    """What is asked about another model names those that are there."""
    answer = http.get(server.url + "/v1/models/other")
    assert answer.status_code == 404
    assert "org/tiny" in answer.json()["error"]["message"]

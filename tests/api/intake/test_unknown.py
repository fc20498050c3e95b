"""Fields that this worker does not know: told where they would change the answer, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import http
from tests.support.cases import for_each
from tests.support.programs.processes import Server, serving
from worker.api.intake.body import unknown_fields
from worker.api.intake.chat.chat_request import ChatRequest
from worker.errors import RequestError

STORY: dict[str, Any] = {"prompt": "Once", "max_tokens": 3, "temperature": 0}
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}
ASKED: dict[str, dict[str, Any]] = {
    "/v1/completions": STORY, "/v1/chat/completions": HELLO, "/v1/messages": HELLO,
    "/v1/responses": {"input": "Hello", "max_output_tokens": 3}, "/completion": STORY,
    "/api/chat": {"messages": HELLO["messages"], "stream": False, "options": {"num_predict": 3}},
    "/api/generate": {"prompt": "Once", "stream": False, "options": {"num_predict": 3}},
}  # fmt: skip


def names(**fields: Any) -> tuple[str, ...]:
    return unknown_fields(bytearray(json.dumps(fields).encode()), ChatRequest)


def test_what_is_told() -> None:
    """What says something, and is not known to change nothing."""
    assert names(messages=[], user="me", top_a=0, verbosity="low", stop_token_ids=[]) == (
        "verbosity",
    )
    assert names(client_metadata={"turn": "1"}) == ()
    assert names(skip_special_tokens=True, length_penalty=1.0, bad_words=None) == ()
    assert names(skip_special_tokens=False, bad_words=["x" * 99]) == (
        "bad_words", "skip_special_tokens",
    )  # fmt: skip
    assert len(names(**{f"f{place}": 1 for place in range(99)})) == 16
    assert names(**{"x" * 999: 1}) == ("x" * 64,)
    assert unknown_fields(bytearray(b'{"a": "\\ud83d"}'), ChatRequest) in ((), ("a",))
    inside = {"stream_options": {"include_usage": True, "every": 2, "include_obfuscation": True}}
    assert names(**inside, structured_outputs={"structural_tag": "x"}) == (
        "stream_options.every", "structured_outputs.structural_tag",
    )  # fmt: skip
    assert names(normalize=True) == ()
    assert names(normalize=False, truncate=True) == ("normalize", "truncate")
    assert names(reasoning={"effort": "low"}, tool_choice="auto", thinking=None) == ()


@for_each("path", ASKED)
def test_every_api_tells(server: Server, path: str) -> None:
    """The answer comes, with a warning; not without the field."""
    answer = server.post({**ASKED[path], "verbosity": "low"}, path)
    assert answer.json()["warnings"] == ["verbosity is not known here and was left out."]
    assert answer.headers["x-unknown-fields"] == '["verbosity"]'
    plain = server.post(ASKED[path], path)
    assert "warnings" not in plain.json()
    assert "x-unknown-fields" not in plain.headers


def test_headers_tell(tiny: Path) -> None:
    """What has no place for warnings, and what stands in Ollama's options."""
    asked: list[tuple[str, dict[str, Any], str]] = [
        ("/v1/infer", {"prompt": "a", "max_tokens": 3, "verbosity": 1}, "verbosity"),
        ("/execute", {"prompt": "a", "max_tokens": 3, "verbosity": 1}, "verbosity"),
        ("/v1/embeddings", {"input": "a", "task": "query"}, "task"),
        ("/embedding", {"content": "a", "user": "me", "frob": 1}, "frob"),
        ("/pooling", {"input": "a", "frob": 1}, "frob"),
        ("/rerank", {"query": "a", "documents": ["b"], "frob": 1}, "frob"),
        ("/score", {"text_1": "a", "text_2": "b", "frob": 1}, "frob"),
        ("/api/embed", {"input": "a", "options": {"num_thread": 1, "rope": 1}}, "options.rope"),
        ("/tokenize", {"content": "a", "truncate": True}, "truncate"),
        ("/detokenize", {"tokens": [5], "skip": True}, "skip"),
        ("/api/generate", {"prompt": "", "options": {"num_ctx": 9, "rope": 1}}, "options.rope"),
    ]
    with serving("--model", tiny, "--pooling", "mean", "-c", "512", "-t", "1") as server:
        for path, body, name in asked:
            answer = server.post(body, path)
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-unknown-fields"] == f'["{name}"]'


@for_each("path", ASKED)
def test_one_bound_for_all(server: Server, path: str) -> None:
    """`n_predict` where no name of the API's own says how long; n_indent is no unknown field."""
    body = {name: value for name, value in ASKED[path].items() if not name.startswith("max_")}
    body.pop("options", None)
    answer = server.post({**body, "n_predict": 2, "n_indent": 1, "ignore_eos": True}, path)
    told = answer.json()
    usage = told.get("usage", told)
    counts = ("completion_tokens", "output_tokens", "tokens_predicted", "eval_count")
    assert [usage[name] for name in counts if name in usage] == [2], told
    assert "warnings" not in told


REFUSED: list[dict[str, Any]] = [
    {"use_beam_search": True}, {"truncate_prompt_tokens": 5},
]  # fmt: skip


@for_each("field", REFUSED)
def test_refused(server: Server, field: dict[str, Any]) -> None:
    """In one sentence that names the field, and says what to do."""
    (name,) = field
    with pytest.raises(RequestError, match=name):
        names(**field)
    error = server.post({**STORY, **field}, "/v1/completions").json()["error"]
    assert (error["param"], error["code"]) == (name, "invalid_request")
    assert server.post({**STORY, name: None}, "/v1/completions").status_code == 200


def test_ids(server: Server) -> None:
    """vLLM's fields: the ids of prompt and answer, and tokens of logprobs by their ids."""
    ids: dict[str, Any] = {"return_token_ids": True, "return_tokens_as_token_ids": True}
    (told,) = server.post({**STORY, **ids, "logprobs": 1}, "/v1/completions").json()["choices"]
    text = http.post(server.url + "/detokenize", json={"tokens": told["token_ids"]}).json()
    assert text["content"] == told["text"]
    assert len(told["prompt_token_ids"]) > 1
    assert told["logprobs"]["tokens"] == [f"token_id:{token}" for token in told["token_ids"]]
    chat = server.post({**HELLO, **ids, "temperature": 0, "logprobs": True}, "/v1/chat/completions")
    (choice,) = chat.json()["choices"]
    scored = [each["token"] for each in choice["logprobs"]["content"]]
    assert scored == [f"token_id:{token}" for token in choice["token_ids"]]
    assert len(chat.json()["prompt_token_ids"]) > 1
    streamed = server.post({**STORY, "return_token_ids": True, "stream": True}, "/v1/completions")
    events = [json.loads(line[6:]) for line in streamed.text.split("\n\n") if '"choices"' in line]
    found = [token for event in events for token in event["choices"][0]["token_ids"]]
    assert found == told["token_ids"]
    first = [event["choices"][0].get("prompt_token_ids") for event in events]
    assert first == [told["prompt_token_ids"], *[None] * (len(events) - 1)]

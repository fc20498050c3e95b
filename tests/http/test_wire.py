"""What programs write in bodies, and what they read line by line, in every API."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import http
from tests.support.cases import for_each
from tests.support.programs.processes import Server, serving
from worker.chat.thinking import effort_of
from worker.demo import MODEL_PATH
from worker.http.sse import encode
from worker.limits import COUNTED

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
ONE: dict[str, Any] = {"temperature": 0, "max_tokens": 1, "max_output_tokens": 1, "n_predict": 1}
# Path -> what is asked, with the text in the place of it.
APIS: dict[str, Callable[[str], Any]] = {
    "/v1/completions": lambda text: {**ONE, "prompt": text},
    "/v1/chat/completions": lambda text: {**ONE, "messages": [{"role": "user", "content": text}]},
    "/v1/responses": lambda text: {**ONE, "input": text},
    "/v1/messages": lambda text: {**ONE, "messages": [{"role": "user", "content": text}]},
    "/api/chat": lambda text: {
        "messages": [{"role": "user", "content": text}],
        "options": {"num_predict": 1},
        "stream": False,
    },
    "/api/generate": lambda text: {
        "prompt": text, "options": {"num_predict": 1}, "stream": False,
    },
    "/completion": lambda text: {**ONE, "prompt": text},
    "/v1/infer": lambda text: {**ONE, "prompt": text},
}  # fmt: skip
CHATS = ("/v1/chat/completions", "/v1/messages", "/api/chat")


@pytest.fixture(scope="module")
def demo() -> Any:
    """The demo model."""
    with serving("--model", MODEL_PATH, "-t", "1", "--ctx-size", "1024") as server:
        yield server


def post(server: Server, path: str, body: Any) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return http.post(server.url + path, content=content)


@pytest.mark.parametrize("path", [path for path in APIS if path != "/v1/infer"])
def test_overflow_is_said_in_words_that_clients_know(demo: Server, path: str) -> None:
    """Both sentences with the counted tokens, and both numbers; the next one is answered."""
    answer = post(demo, path, APIS[path]("one two " * 2000))
    assert answer.status_code == 400, answer.text
    body: Any = answer.json()
    told: Any = body if isinstance(body["error"], str) else body["error"]
    message: str = body["error"] if told is body else told["message"]
    count, most = told["n_prompt_tokens"], told["n_ctx"]
    assert count > 4000
    assert most == 1024
    assert f"prompt is too long: {count} tokens > {most} maximum" in message
    assert f"exceeds the available context size ({most} tokens)" in message
    assert told.get("code", "context_length_exceeded") == "context_length_exceeded"
    assert post(demo, path, APIS[path]("Hi")).status_code == 200


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/messages/count_tokens", "/v1/messages"),
        ("/v1/responses/input_tokens", "/v1/responses"),
        ("/v1/chat/completions/input_tokens", "/v1/chat/completions"),
    ],
)
def test_tokens_are_counted_beyond_the_context(demo: Server, path: str, asked: str) -> None:
    """As many as the refusal names."""
    body = APIS[asked]("one two " * 2000)
    counted = post(demo, path, body).json()["input_tokens"]
    assert counted == post(demo, asked, body).json()["error"]["n_prompt_tokens"]


def test_what_no_context_holds_is_reckoned(demo: Server) -> None:
    """From its first characters, where to count all of it would take seconds."""
    error = post(demo, "/v1/completions", APIS["/v1/completions"]("one two " * 2**19)).json()[
        "error"
    ]
    assert 2**20 <= error["n_prompt_tokens"] < 2**22
    assert len("one two " * 2**19) > COUNTED.most


@pytest.mark.parametrize("path", APIS)
def test_bodies_as_programs_write_them(demo: Server, path: str) -> None:
    """Half an emoji is U+FFFD, a byte order mark is skipped, and what is no JSON has its place."""
    body = json.dumps(APIS[path]("Hi \ud83d")).encode()
    assert b"\\ud83d" in body
    whole, half = post(demo, path, APIS[path]("Hi \ufffd")), post(demo, path, body)
    assert half.status_code == whole.status_code == 200, half.text
    assert post(demo, path, b"\xef\xbb\xbf" + body).status_code == 200
    for broken, place in ((body[:-1], len(body) - 1), (b'{"a": tru}', 6), (b"nul", 0)):
        text = post(demo, path, broken).text
        assert "not valid JSON" in text
        assert f"at byte {place}" in text
        assert "truncated" not in text


@for_each("path", APIS)
@for_each(
    "fields",
    [
        {"seed": -(2**63)}, {"seed": 2**63 - 1}, {"seed": 7.0}, {"top_k": -5}, {"top_k": 40.0},
        {"top_p": 1.5}, {"temperature": -1}, {"logit_bias": {"5": False, " the": -3}},
        {"logit_bias": [["Hi", -1.5], [5, False]]}, {"presence_penalty": 3},
        {"frequency_penalty": -3}, {"stop": [None, "zzz"]},
    ],
)  # fmt: skip
def test_numbers_as_programs_write_them(demo: Server, path: str, fields: dict[str, Any]) -> None:
    """They are read as what they mean, not refused."""
    if path == "/v1/infer" and "temperature" in fields:
        return  # the original worker's own limit
    body = APIS[path]("Hi")
    place = body.get("options", body)
    place |= (
        {"stop_sequences": fields["stop"]}
        if path == "/v1/messages" and "stop" in fields
        else fields
    )
    answer = post(demo, path, body)
    assert answer.status_code == 200, answer.text


def _prompt_tokens(usage: Any) -> int:
    """Of the whole prompt, under whatever name."""
    if isinstance(usage, int):
        return usage
    named = ("prompt_tokens", "input_tokens", "cache_read_input_tokens")
    return sum(usage.get(name, 0) for name in named)


@pytest.mark.parametrize("path", CHATS)
def test_content_that_is_not_there(demo: Server, path: str) -> None:
    """null, nothing, [] and "" are the same, in every role; empty answers are passed over."""
    for role in ("system", "user", "assistant"):
        found: list[Any] = []
        contents: list[Any] = [{"content": None}, {}, {"content": []}, {"content": ""}]
        for content in contents:
            body = APIS[path]("Hi")
            body["messages"] = [*HELLO, {"role": role, **content}, *HELLO]
            answer = post(demo, path, body)
            assert answer.status_code == 200, (role, content, answer.text)
            told = answer.json()
            found.append(told.get("usage", told.get("prompt_eval_count")))
        counts = {_prompt_tokens(use) for use in found}
        assert len(counts) == 1, (role, counts)


@pytest.mark.parametrize("path", CHATS)
@pytest.mark.parametrize(
    "kind", ["image", "image_url", "input_audio", "server_tool_use", "tool_reference", "never_seen"]
)
def test_parts_that_are_no_text(demo: Server, path: str, kind: str) -> None:
    """They are a note in the history; only a picture in the newest question is refused."""
    body = APIS[path]("Hi")
    odd = {"role": "user", "content": [{"type": kind, "name": "x"}, {"type": "text", "text": "a"}]}
    body["messages"] = [odd, {"role": "assistant", "content": "b"}, *HELLO]
    assert post(demo, path, body).status_code == 200
    body["messages"] = [*HELLO, odd]
    is_medium = any(word in kind for word in ("image", "audio"))
    answer = post(demo, path, body)
    assert answer.status_code == (400 if is_medium else 200), answer.text
    if is_medium:
        assert "messages[1].content[0]" in answer.text


def test_items_that_are_no_messages(demo: Server) -> None:
    """Calls of other tools and their outputs are calls and results; others are notes."""
    items: list[Any] = [
        {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "a", "output": {"done": True}},
        {"type": "local_shell_call", "call_id": "b", "action": {"command": ["ls"]}},
        {"type": "local_shell_call_output", "call_id": "b", "output": "x"},
        {"type": "web_search_call", "action": {"query": "x"}},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": [1]},
        {"type": "function_call_output", "call_id": "c", "output": None},
    ]
    for item in items:
        body = {**ONE, "input": [*HELLO, item, *HELLO]}
        answer = post(demo, "/v1/responses", body)
        assert answer.status_code == 200, (item, answer.text)


@pytest.mark.parametrize("word", ["false", "OFF", "F", "0", "None", "disabled", False, 0])
def test_a_word_for_no_means_no(word: Any) -> None:
    """In any case of letters, also as a number."""
    assert effort_of(word)[0] is False


def test_lines_stay_lines() -> None:
    """No kind of line end stands in what is written line by line, and it is the same JSON."""
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1dh\x1ei\r\nj"
    line = encode({"text": text})
    assert len(line.decode().splitlines()) == 1
    assert json.loads(line) == {"text": text}

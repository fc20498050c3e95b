"""POST /v1/chat/completions and /apply-template over a real socket."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.support import http
from tests.support.models import ggufs
from tests.support.programs.processes import Server, serving

HELLO = [{"role": "user", "content": "hello"}]
PROMPT = "<|user|>hello<|assistant|>"


def post(server: Server, path: str = "/v1/chat/completions", **fields: Any) -> httpx.Response:
    body = {"messages": HELLO, **fields}
    if path.endswith("completions"):
        body = {"max_tokens": 6, "ignore_eos": True, **body}
    return http.post(server.url + path, json=body)


def chat(server: Server, **fields: Any) -> dict[str, Any]:
    answer = post(server, **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refusal(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]


@pytest.fixture(scope="module")
def client(server: Server) -> Generator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0) as client:
        yield client


def test_same_as_the_completion_of_its_prompt(server: Server) -> None:
    """A chat answers as the completion of the prompt that its template makes."""
    answer = chat(server, temperature=0)
    plain = server.post(
        {"prompt": PROMPT, "max_tokens": 6, "ignore_eos": True, "temperature": 0}
    ).json()
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": plain["choices"][0]["text"]}
    assert choice["finish_reason"] == "length"
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    assert [answer["usage"][name] for name in counts] == [plain["usage"][name] for name in counts]
    assert answer["timings"]["predicted_n"] == 6


def test_official_client(client: openai.OpenAI) -> None:
    """Whole and streamed answers of the official client agree; the role comes with a token."""
    asked: Any = {"model": "any", "messages": HELLO, "temperature": 0, "seed": 1,
                  "max_completion_tokens": 12, "extra_body": {"ignore_eos": True}}  # fmt: skip
    create: Any = client.chat.completions.create
    whole = create(**asked)
    chunks = list(create(stream=True, stream_options={"include_usage": True}, **asked))
    last = chunks.pop()
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 12
    assert [chunk.choices[0].delta.role for chunk in chunks] == ["assistant"] + [None] * 11
    assert chunks[-1].choices[0].finish_reason == "length"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content


def test_logprobs(client: openai.OpenAI) -> None:
    """logprobs has one entry a token, the likeliest first; their bytes add up to the text."""
    answer = client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": "hello"}], temperature=0, logprobs=True,
        top_logprobs=3, max_tokens=5, extra_body={"ignore_eos": True},
    )  # fmt: skip
    (choice,) = answer.choices
    assert choice.logprobs is not None
    scores = choice.logprobs.content or []
    assert len(scores) == 5
    for score in scores:
        assert score.logprob == score.top_logprobs[0].logprob
        assert len(score.top_logprobs) == 3
    told = b"".join(bytes(score.bytes or []) for score in scores).decode("utf-8", "replace")
    assert told.strip() == (choice.message.content or "").strip()


def test_several_answers(server: Server) -> None:
    """n answers to one prompt carry their indices, streamed too."""
    answer = chat(server, n=3, seed=4)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert answer["usage"]["completion_tokens"] == 18
    body = {"messages": HELLO, "n": 2, "max_tokens": 3, "ignore_eos": True, "stream": True}
    url = server.url + "/v1/chat/completions"
    lines = http.post(url, json=body).text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    roles = [event["choices"][0]["index"] for event in events
             if event["choices"][0]["delta"].get("role")]  # fmt: skip
    assert sorted(roles) == [0, 1]
    assert {event["object"] for event in events} == {"chat.completion.chunk"}


def test_until_the_context_ends(server: Server) -> None:
    """An answer without max_tokens may fill the context."""
    answer = chat(server, max_tokens=None)
    assert answer["usage"]["total_tokens"] == 2048
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({}, PROMPT),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
                                                    {"type": "text", "text": "b"}]}]},
         "<|user|>a\nb<|assistant|>"),
        ({"add_generation_prompt": False}, "<|user|>hello"),
        ({"messages": [*HELLO, {"role": "assistant", "content": "I am"}],
          "continue_final_message": True}, "<|user|>hello<|assistant|>I am"),
        ({"tools": [], "chat_template_kwargs": {"think": False, "messages": 1, "self": 1}}, PROMPT),
    ],
)  # fmt: skip
def test_apply_template(server: Server, fields: dict[str, Any], prompt: str) -> None:
    """/apply-template answers with the text of the prompt."""
    answer = post(server, "/apply-template", **fields)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"prompt": prompt}


BAD: list[tuple[dict[str, Any], str | None, str]] = [
    ({"messages": None}, "messages", "missing"),
    ({"messages": []}, "messages", "missing"),
    ({"messages": [*HELLO, {}]}, "messages", "says nothing"),
    ({"add_generation_prompt": True, "continue_final_message": True}, "add_generation_prompt",
     "goes on"),
    ({"messages": HELLO * 5000}, "messages", "at most 4096"),
    ({"messages": [{"role": 5, "content": "x"}]}, "messages", "role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages",
     "is of type image_url"),
    ({"messages": [{"role": "user", "content": "x" * 10**7}]}, "messages", "available context"),
    ({"messages": [{"role": "user", "content": "é" * 3000}]}, "messages", "context"),
    ({"chat_template": "{{ 1 }}"}, "chat_template", "not accepted"),
    ({"top_logprobs": 2}, "top_logprobs", "needs logprobs"),
    ({"logprobs": True, "top_logprobs": 101}, "top_logprobs", "from 0 to 100"),
    ({"n": 0}, "n", "n must be"),
    ({"max_tokens": -3}, "max_tokens", "0 or more, or -1"),
    ({"temperature": 101}, "temperature", "temperature"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "words"), BAD)
def test_refused(server: Server, fields: dict[str, Any], param: str | None, words: str) -> None:
    """A bad field is named, and the next request is served."""
    body = {"messages": HELLO, "max_tokens": 4, **fields}
    raw = json.dumps(body)  # a lone surrogate passes json, not httpx
    answer = http.post(server.url + "/v1/chat/completions", content=raw)
    error = refusal(answer)
    assert error["param"] == param
    assert re.search(words, error["message"]), error
    assert chat(server)["choices"]


@pytest.fixture(scope="module")
def untrusted(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """A model whose template loops for ever when told so, with a BOS of its own."""
    source = (
        "{{ bos_token }}{% for m in messages %}{{ m.content }}{% if m.content == 'loop' %}"
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"
        "{% endif %}{% endfor %}"
    )
    path = tmp_path_factory.mktemp("chat") / "untrusted.gguf"
    with serving("--model", ggufs.write_llama(path, chat_template=source)) as running:
        yield running


def test_a_template_that_loops(untrusted: Server) -> None:
    """A template that does not end is a 400, and others are served meanwhile."""
    looping = [{"role": "user", "content": "loop"}]
    error = refusal(post(untrusted, messages=looping))
    assert "does not come to an end" in error["message"]
    assert chat(untrusted)["choices"]


def test_bos_is_there_once(untrusted: Server) -> None:
    """A template that spells out BOS gives the same prompt as a text without."""
    plain = untrusted.post({"prompt": "hello", "max_tokens": 1}).json()
    assert chat(untrusted)["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]


def test_without_a_template(tmp_path: Path) -> None:
    """A model without a template refuses chat and names /v1/completions."""
    path = ggufs.write_llama(tmp_path / "plain.gguf", chat_template=None)
    with serving("--model", path) as server:
        for route in ("/v1/chat/completions", "/apply-template"):
            error = refusal(post(server, route))
            assert error["code"] == "no_chat_template"
            assert "Use /v1/completions" in error["message"]


def test_a_broken_template(tmp_path: Path) -> None:
    """A model with a broken template serves completions; chat says what is wrong."""
    path = ggufs.write_llama(tmp_path / "broken.gguf", chat_template="{% for %}")
    with serving("--model", path) as server:
        assert "cannot be read" in refusal(post(server))["message"]
        assert server.post({"prompt": "hello", "max_tokens": 1}).status_code == 200

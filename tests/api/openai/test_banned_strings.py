"""`banned_strings`: phrases that no answer has, over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import http
from tests.support.programs.processes import Server

PATHS = ("/v1/completions", "/v1/chat/completions")
COUNT = 40


def _body(path: str, **fields: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {"prompt": "Hello"}
    if "chat" in path:
        asked = {"messages": [{"role": "user", "content": "Hello"}]}
    return {**asked, "max_tokens": COUNT, "ignore_eos": True, "temperature": 0, **fields}


def _text(choice: dict[str, Any]) -> str:
    return choice["text"] if "text" in choice else choice["message"]["content"]


def _whole(server: Server, path: str, **fields: Any) -> dict[str, Any]:
    answer = server.post(_body(path, **fields), path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def _streamed(server: Server, path: str, **fields: Any) -> list[dict[str, Any]]:
    body = _body(path, stream=True, **fields)
    with http.stream("POST", server.url + path, json=body) as answer:
        data = [line[6:] for line in answer.iter_lines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return [choice for each in data[:-1] for choice in json.loads(each)["choices"]]


@pytest.mark.parametrize("path", PATHS)
def test_no_phrase_is_told(server: Server, path: str) -> None:
    """What the model would write is banned in another case: the text goes on otherwise, with as
    many tokens, and a stream adds up to the whole answer, its logprobs and ids too."""
    free = _text(_whole(server, path)["choices"][0])
    phrases = [free[3:6].upper(), free[10:12].upper(), free[1:2]]
    more = {"banned_strings": phrases, "logprobs": True, "return_token_ids": True}
    told = _whole(server, path, **more)
    (choice,) = told["choices"]
    text = _text(choice)
    assert text != free
    assert not any(phrase.lower() in text.lower() for phrase in phrases)
    assert told["usage"]["completion_tokens"] == COUNT == len(choice["token_ids"])
    events = _streamed(server, path, **more)
    parts = [e["text"] if "text" in e else e["delta"].get("content") or "" for e in events]
    assert "".join(parts) == text
    ids = [token for event in events for token in event.get("token_ids", ())]
    assert ids == choice["token_ids"]
    scores = choice["logprobs"].get("content") or choice["logprobs"]["tokens"]
    assert len(scores) == COUNT


def test_a_seed_gives_one_text(server: Server) -> None:
    """The same seed and phrases give the same text."""
    fields = {"temperature": 1.5, "seed": 5, "banned_strings": ["a", "e", "th"]}
    first, again = (_text(_whole(server, PATHS[0], **fields)["choices"][0]) for _ in range(2))
    assert first == again
    assert not {*"ae"} & {*first.lower()}


def test_what_must_come_comes(server: Server) -> None:
    """A constraint that leaves nothing else is no error: the phrase is allowed then."""
    form = {"enum": ["banana"]}
    told = _whole(server, PATHS[0], json_schema=form, banned_strings="Nan", ignore_eos=False)
    assert json.loads(_text(told["choices"][0])) == "banana"
    form = {"enum": ["banana", "cherry"]}
    told = _whole(server, PATHS[0], json_schema=form, banned_strings="Nan", ignore_eos=False)
    assert json.loads(_text(told["choices"][0])) in form["enum"]


@pytest.mark.parametrize(
    "value", [[str(n) for n in range(257)], "x" * 129, [1], 5], ids=["many", "long", "no", "n"]
)
def test_refused(server: Server, value: Any) -> None:
    """Too many, too long and what is no text: 400 with the field; what is empty says nothing."""
    for path in PATHS:
        answer = server.post(_body(path, banned_strings=value), path)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"].startswith("banned_strings")
        assert _whole(server, path, banned_strings=[])["choices"]

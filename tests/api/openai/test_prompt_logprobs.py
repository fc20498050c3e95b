"""`prompt_logprobs`: the prompt's scores in vLLM's form."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.programs.processes import Server

PROMPT = "Hello, hello"
CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2, "temperature": 0}


def _complete(server: Server, **fields: Any) -> dict[str, Any]:
    answer = server.post({"prompt": PROMPT, "max_tokens": 2, "temperature": 0, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def test_as_echo_has_them(server: Server) -> None:
    """Null, then one entry a token with its rank; its logprob is echo's, also beside echo with
    another number of alternatives."""
    told = _complete(server, prompt_logprobs=2, echo=True, logprobs=1, return_token_ids=True)
    entries = told["prompt_logprobs"]
    assert entries[0] is None
    assert len(entries) == len(told["prompt_token_ids"])
    echoed = told["logprobs"]["token_logprobs"][1:-2]  # without what begins the prompt
    first = len(entries) - len(echoed)
    for token, entry, logprob in zip(
        told["prompt_token_ids"][first:], entries[first:], echoed, strict=True
    ):
        own = entry[str(token)]
        assert own["logprob"] == logprob
        others = [each for name, each in entry.items() if name != str(token)]
        assert len(others) in (1, 2)
        assert [each["rank"] for each in entry.values() if each["rank"] <= 2].count(1) == 1
        assert all((each["logprob"] > logprob) == (each["rank"] < own["rank"]) for each in others)
    assert all(len(top) <= 2 for top in told["logprobs"]["top_logprobs"] if top)
    text = "".join(entry[str(t)]["decoded_token"] for t, entry in
                   zip(told["prompt_token_ids"][1:], entries[1:], strict=True))  # fmt: skip
    assert f" {PROMPT}".endswith(text)  # the tokenizer may add the space


def test_zero_is_the_token_alone(server: Server) -> None:
    """0 tells each token alone; without the field nothing is told, nor computed."""
    entries = _complete(server, prompt_logprobs=0)["prompt_logprobs"]
    assert {len(entry) for entry in entries[1:]} == {1}
    assert "prompt_logprobs" not in _complete(server)


def test_in_chats(server: Server) -> None:
    """They stand beside the choices, with what the template wrote; `n` answers share them."""
    body = {**CHAT, "prompt_logprobs": 1, "return_token_ids": True, "n": 2}
    told = server.post(body, "/v1/chat/completions").json()
    ids, entries = told["prompt_token_ids"], told["prompt_logprobs"]
    assert entries[0] is None
    assert all(str(token) in entry for token, entry in zip(ids[1:], entries[1:], strict=True))
    assert "prompt_logprobs" not in server.post(CHAT, "/v1/chat/completions").json()


@pytest.mark.parametrize(
    "fields", [{"prompt_logprobs": 1, "stream": True}, {"prompt_logprobs": 10**6},
               {"prompt_logprobs": -1}, {"prompt_logprobs": "x"}],
)  # fmt: skip
def test_refused(server: Server, fields: dict[str, Any]) -> None:
    """A stream, too many and what is no number, by both APIs with the field's name."""
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", CHAT)):
        answer = server.post({**body, **fields}, path)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "prompt_logprobs"

"""The official client against a real worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import ollama
import pytest

from tests.support import http
from tests.support.models import ggufs
from tests.support.programs.processes import Server, serving, starting

HELLO = [{"role": "user", "content": "hello"}]
GREEDY = {"temperature": 0, "ignore_eos": True}
OPTIONS: Any = {**GREEDY, "num_predict": 6}
ID = "org/tiny"


@pytest.fixture(scope="module")
def client(server: Server) -> Any:
    return ollama.Client(host=server.url)


@pytest.fixture(scope="module")
def said(server: Server) -> str:
    """What the model says to HELLO in six tokens."""
    chat = {"messages": HELLO, "max_tokens": 6, **GREEDY}
    answer = server.post(chat, "/v1/chat/completions").json()
    return answer["choices"][0]["message"]["content"]


def test_chat(client: Any, said: str) -> None:
    """Whole and streamed say what a chat says."""
    whole = client.chat(model="any", messages=HELLO, options=OPTIONS)
    assert whole.message.content == said
    assert (whole.model, whole.done, whole.done_reason) == (ID, True, "length")
    assert whole.eval_count == 6
    assert (whole.total_duration or 0) >= (whole.eval_duration or 0) > 0
    parts = list(client.chat(model="any", messages=HELLO, options=OPTIONS, stream=True))
    assert "".join(part.message.content or "" for part in parts) == said
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].prompt_eval_count == whole.prompt_eval_count


def test_logprobs(client: Any) -> None:
    """One entry a token, streamed and whole."""
    asked: Any = {"model": "any", "messages": HELLO, "options": OPTIONS, "logprobs": True}
    whole = client.chat(**asked, top_logprobs=2)
    assert len(whole.logprobs or ()) == 6
    parts = client.chat(**asked, top_logprobs=2, stream=True)
    assert [score for part in parts for score in part.logprobs or ()] == list(whole.logprobs or ())


def test_generate(client: Any, said: str) -> None:
    """A prompt is a question; a raw one is continued as it is."""
    answer = client.generate(model="any", prompt="hello", options=OPTIONS)
    assert answer.response == said
    raw = client.generate(
        model="any", prompt="<|user|>hello<|assistant|>", raw=True, options=OPTIONS
    )
    assert raw.response == said
    parts = list(client.generate(model="any", prompt="hello", options=OPTIONS, stream=True))
    assert "".join(part.response or "" for part in parts) == said


def test_format(client: Any) -> None:
    """A schema is held."""
    answer = client.generate(model="any", prompt="colour", format={"enum": ["red", "green"]})
    assert answer.response in ('"red"', '"green"')


def test_load(client: Any) -> None:
    """Who asks nothing is told that the model is loaded."""
    assert client.generate(model="any", prompt="").done_reason == "load"
    assert client.chat(model="any", messages=[]).done_reason == "load"


def test_load_with_a_wrong_field(server: Server) -> None:
    """A field that no answer can have is refused there, too."""
    for path in ("/api/chat", "/api/generate"):
        for wrong in ({"top_logprobs": 101}, {"options": {"temperature": 101}}, {"format": "xml"}):
            assert server.post(wrong, path).status_code == 400


def test_the_model(client: Any, server: Server) -> None:
    """Its name, size, template, and what it can do."""
    (model,) = client.list().models
    (running,) = client.ps().models
    assert model.model == running.model == ID
    assert model.digest == running.digest
    assert (model.size or 0) > 1000
    assert model.details is not None
    assert (model.details.format, model.details.family) == ("gguf", "llama")
    assert running.context_length == 2048
    shown = client.show(ID)
    assert shown.template == ggufs.CHAT_TEMPLATE
    assert shown.modelinfo is not None
    assert shown.modelinfo["llama.context_length"] == 2048
    assert shown.capabilities == ["completion"]
    assert http.get(server.url + "/api/version").json()["version"]


def test_not_here(client: Any) -> None:
    """What needs a store of models is 501."""
    for ask in (
        lambda: client.pull("x"),
        lambda: client.push("x"),
        lambda: client.create("x", from_="y"),
        lambda: client.copy("x", "y"),
        lambda: client.delete("x"),
    ):
        with pytest.raises(ollama.ResponseError) as caught:
            ask()
        assert caught.value.status_code == 501
        assert "This worker" in caught.value.error


BAD: list[tuple[str, Any, int]] = [
    ("chat", {"messages": "x"}, 400),
    ("chat", {"messages": [{"role": 5, "content": "x"}]}, 400),
    ("chat", {"messages": HELLO, "options": {"temperature": "warm"}}, 400),
    ("chat", {"messages": [{"role": "user", "content": "x" * 10**6}]}, 400),
    ("chat", {"messages": [{"role": "user"}] * 300_000}, 413),
    ("generate", {"prompt": 5}, 400),
    ("generate", {"prompt": "x", "suffix": "y"}, 400),
    ("generate", {"prompt": "x", "images": ["y"]}, 400),
    ("generate", {"prompt": "x", "format": "xml"}, 400),
    ("nothing", {}, 404),
]


@pytest.mark.parametrize(("path", "body", "status"), BAD)
def test_refused(server: Server, path: str, body: Any, status: int) -> None:
    """What cannot be done is refused in Ollama's shape; the next request is served."""
    answer: httpx.Response = server.post(body, f"/api/{path}")
    assert answer.status_code == status, answer.text
    assert list(answer.json())[:2] == ["error", "request_id"]
    after = server.post({"messages": HELLO, "options": OPTIONS}, "/api/chat")
    assert after.status_code == 200


def test_without_a_template(tmp_path: Path) -> None:
    """A prompt is continued as it is; a conversation is refused."""
    path = ggufs.write_llama(tmp_path / "plain.gguf", context=512, chat_template=None)
    with serving("--model", path, "--api-key", "k3y") as plain:
        client: Any = ollama.Client(host=plain.url, headers={"authorization": "Bearer k3y"})
        told = client.generate(model="any", prompt="hello", options=OPTIONS)
        raw = client.generate(model="any", prompt="hello", raw=True, options=OPTIONS)
        assert told.response == raw.response
        with pytest.raises(ollama.ResponseError, match="no chat template"):
            client.chat(model="any", messages=HELLO)
        locked = http.get(plain.url + "/api/tags")
        assert (locked.status_code, list(locked.json())) == (401, ["error", "request_id"])


def test_while_loading(tiny: Path, tmp_path: Path) -> None:
    """A worker that loads says so in Ollama's shape."""
    env = {"LOADED": str(tmp_path / "never")}
    with starting("--model", tiny, env=env, step_seconds=0.02) as server:
        answer = http.get(server.url + "/api/tags")
        assert (answer.status_code, answer.json()) == (503, {"error": "Loading model"})

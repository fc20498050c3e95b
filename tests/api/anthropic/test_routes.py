"""The official client against a real worker; what it cannot send goes by plain HTTP."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest
from anthropic.types import Message

from tests.api.anthropic import oracle
from tests.support import http
from tests.support.programs.processes import Server, serving, starting

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
GREEDY = {"temperature": 0, "ignore_eos": True}
KEY = "s3cret-k3y"
PATH = "/v1/messages"


@pytest.fixture(scope="module")
def client(server: Server) -> Generator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="unused", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def said(server: Server) -> str:
    """What the model says to HELLO in six tokens."""
    chat = {"messages": HELLO, "max_tokens": 6, **GREEDY}
    answer = server.post(chat, "/v1/chat/completions").json()
    return answer["choices"][0]["message"]["content"]


def post(server: Server, **fields: Any) -> httpx.Response:
    return server.post({"messages": HELLO, "max_tokens": 6, **GREEDY, **fields}, PATH)


def test_create(client: anthropic.Anthropic, said: str) -> None:
    """A message says what a chat says."""
    message = client.messages.create(model="any", max_tokens=6, messages=HELLO, extra_body=GREEDY)
    (block,) = message.content
    assert block.type == "text"
    assert block.text == said
    assert (message.stop_reason, message.stop_sequence) == ("max_tokens", None)
    usage = message.usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) > 0
    assert usage.output_tokens == 6
    assert message._request_id  # pyright: ignore[reportPrivateUsage]


def test_stream(client: anthropic.Anthropic, said: str) -> None:
    """A stream builds the same message."""
    with client.messages.stream(
        model="any", max_tokens=6, messages=HELLO, extra_body=GREEDY
    ) as stream:
        assert "".join(stream.text_stream) == said
        message = stream.get_final_message()
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 6
    assert (message.usage.cache_read_input_tokens or 0) > 0


@pytest.mark.parametrize("streaming", [False, True])
def test_strict(server: Server, streaming: bool) -> None:
    """Every byte is in the official package's types; `?beta=true` changes nothing."""
    body = {"messages": HELLO, "max_tokens": 6, "temperature": 0, "stream": streaming}
    answer = http.post(server.url + PATH + "?beta=true", json=body)
    assert answer.status_code == 200
    assert answer.headers["request-id"] == answer.headers["x-request-id"]
    if streaming:
        assert len(oracle.events(answer.text)) > 4
    else:
        assert oracle.message(answer.text).role == "assistant"


def test_models(server: Server) -> None:
    """The official package lists them, and takes no field of another type."""
    with anthropic.Anthropic(
        base_url=server.url, api_key="unused", _strict_response_validation=True
    ) as strict:
        (found,) = strict.models.list()
        assert found == strict.models.retrieve(found.id)
        assert (found.type, found.display_name) == ("model", found.id)


def test_stop_sequence(client: anthropic.Anthropic, said: str) -> None:
    """The message ends before a stop sequence and says which."""
    stop = said[len(said) // 2 :][:3]
    message = client.messages.create(
        model="any",
        max_tokens=6,
        messages=HELLO,
        stop_sequences=["nowhere", stop],
        extra_body=GREEDY,
    )
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)
    text = "".join(block.text for block in message.content if block.type == "text")
    assert text == said[: said.index(stop)]


def test_prefill(client: anthropic.Anthropic, server: Server) -> None:
    """A last message of the assistant's is gone on with."""
    begun: Any = [*HELLO, {"role": "assistant", "content": "I am"}]
    message = client.messages.create(model="any", max_tokens=4, messages=begun, extra_body=GREEDY)
    plain = {"prompt": "<|user|>hello<|assistant|>I am", "max_tokens": 4, **GREEDY}
    (block,) = message.content
    assert block.type == "text"
    assert block.text == server.post(plain).json()["choices"][0]["text"]


def test_count_tokens(client: anthropic.Anthropic) -> None:
    """As many as the message then has."""
    asked: Any = {"model": "any", "messages": HELLO, "system": "be kind"}
    count = client.messages.count_tokens(**asked)
    create: Any = client.messages.create
    message: Message = create(max_tokens=1, **asked)
    usage = message.usage
    assert count.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_read_only(client: anthropic.Anthropic) -> None:
    """max_tokens 0 fills the cache and says nothing."""
    fresh: list[Any] = [{"role": "user", "content": "a prompt that nobody has sent"}]
    message = client.messages.create(model="any", max_tokens=0, messages=fresh)
    assert (message.content, message.stop_reason) == ([], "max_tokens")
    again = client.messages.create(model="any", max_tokens=1, messages=fresh)
    assert (again.usage.cache_read_input_tokens or 0) > 0
    assert again.usage.input_tokens == 1


def test_threads(client: anthropic.Anthropic) -> None:
    """The official package's tool runner asks for a thread, is refused, and goes on without."""
    runner = client.beta.messages.tool_runner(
        model="any", max_tokens=4, tools=[], messages=HELLO, temperature=0
    )
    assert runner.until_done().stop_reason == "max_tokens"
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.beta.messages.create(
            model="any", max_tokens=4, messages=HELLO, thread={"type": "create"}
        )
    details = caught.value.response.json()["error"]["details"]
    assert details == {"error_code": "thread_unsupported_request"}


def test_changing_header(client: anthropic.Anthropic) -> None:
    """What Claude Code writes anew into each system text does not spoil the cache."""
    usages = [
        client.beta.messages.create(
            model="any",
            max_tokens=1,
            messages=HELLO,
            system=[
                {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2; cch={n};"},
                {"type": "text", "text": "Answer as a sailor would. " * 60},
            ],
        ).usage
        for n in range(2)
    ]
    first, second = ((usage.input_tokens, usage.cache_read_input_tokens or 0) for usage in usages)
    assert sum(first) == sum(second)
    assert second[1] >= 128


def test_structured(client: anthropic.Anthropic) -> None:
    """The text is what the schema wants."""
    schema = {"enum": ["red", "green"]}
    config: Any = {"format": {"type": "json_schema", "schema": schema}}
    message = client.messages.create(
        model="any", max_tokens=40, messages=HELLO, output_config=config
    )
    (block,) = message.content
    assert block.type == "text"
    assert block.text in ('"red"', '"green"')


BAD: list[tuple[dict[str, Any], str]] = [
        ({"max_tokens": None}, "max_tokens is missing"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"messages": [{"role": 5, "content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": "x" * 10**6}]}, "available context size"),
        ({"messages": [{"role": "user", "content": "x " * 3000}]}, "context"),
        ({"messages": [*HELLO, *HELLO] * 3000, "system": "x"}, "context"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"$ref": "#/no"}}}}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "words"), BAD)
def test_refused(server: Server, fields: dict[str, Any], words: str) -> None:
    """A 400 in Anthropic's shape, streamed or not; the next request is served."""
    for streaming in (False, True):
        answer = post(server, stream=streaming, **fields)
        assert answer.status_code == 400, answer.text
        error = oracle.error(answer.text)
        assert error.error.type == "invalid_request_error"
        assert words in error.error.message
        assert error.request_id == answer.headers["request-id"]
    assert post(server).status_code == 200


def test_other_statuses(server: Server) -> None:
    """A wrong method, a wrong path, a body that is too large or none."""
    url = server.url + PATH
    for answer, status, kind in (
        (http.get(url), 405, "invalid_request_error"),
        (http.post(url + "/batches", json={}), 404, "not_found_error"),
        (http.post(url, content=b"{"), 400, "invalid_request_error"),
    ):
        assert answer.status_code == status
        assert oracle.error(answer.text).error.type == kind
    deep = b'{"messages": ' + b"[" * 100_000
    assert http.post(url, content=deep).json()["type"] == "error"
    many = [{"role": "user", "content": [{"type": "text", "text": "a"}] * 200_000}]
    answer = post(server, messages=many)
    assert (answer.status_code, answer.json()["error"]["type"]) == (413, "request_too_large")


def test_key(tiny: Path) -> None:
    """The key comes as x-api-key or as a bearer's; without it 401 in Anthropic's shape."""
    with serving("--model", tiny, "--ctx-size", "512", "--api-key", KEY) as locked:
        keys: Any = ({"api_key": KEY}, {"auth_token": KEY})
        for key in keys:
            with anthropic.Anthropic(base_url=locked.url, max_retries=0, **key) as client:
                assert client.messages.count_tokens(model="any", messages=HELLO).input_tokens > 0
        with (
            anthropic.Anthropic(base_url=locked.url, api_key="wrong", max_retries=0) as client,
            pytest.raises(anthropic.AuthenticationError) as caught,
        ):
            client.messages.count_tokens(model="any", messages=HELLO)
        assert oracle.error(caught.value.response.text).error.type == "authentication_error"
        assert caught.value.request_id


def test_while_loading(tiny: Path, tmp_path: Path) -> None:
    """A worker that loads says that it is overloaded, and when to come back."""
    env = {"LOADED": str(tmp_path / "never")}
    with starting("--model", tiny, env=env, step_seconds=0.02) as server:
        answer = post(server)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert oracle.error(answer.text).error.type == "overloaded_error"

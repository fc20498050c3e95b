"""A stream that has nothing to tell says so each second, and tells how far a prompt is read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import closing
from functools import partial
from typing import Any

import ollama
import openai
import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from tests.support import http
from tests.support.models import ggufs
from tests.support.programs.processes import Server, serving
from worker.api.answer import exchange as exchanges
from worker.api.answer.exchange import Exchange
from worker.engine.sequence import Delta
from worker.engine.stream import Stream
from worker.errors import BackendError
from worker.http import sse
from worker.http.connections import Connections
from worker.http.http import Listener
from worker.http.protocol import Protocol
from worker.http.sockets import bind

Messages = list[dict[str, Any]]


class Echo(Exchange):
    """Each delta's text is an event."""

    async def frames(self) -> AsyncIterator[bytes]:
        while self.stream.is_running:
            for delta in await self.stream.take():
                yield sse.frame(delta.text)

    async def body(self) -> object:
        return [delta.text for delta in await self.stream.take()]


def answer(
    delta: Delta, *, streaming: bool, until: Callable[[Messages], bool]
) -> tuple[Messages, Stream]:
    """What was sent; the engine says `delta` once what was sent is enough for `until`."""
    sent: Messages = []
    stream = Stream(["x"], lambda _: None)

    async def run() -> None:
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        async def say() -> None:
            while not until(sent):
                await asyncio.sleep(0)
            stream.put(delta)

        saying = asyncio.ensure_future(say())
        await Echo(stream, streaming=streaming)({}, receive, send)
        await saying

    asyncio.run(run())
    return sent, stream


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second is short here."""
    monkeypatch.setattr(exchanges, "PULSE_S", 0.005)


def bodies(sent: Messages) -> list[bytes]:
    return [message["body"] for message in sent if message["type"] == "http.response.body"]


def test_a_silent_stream_says_so() -> None:
    """Comments come until the first event; the status is sent once, before them."""
    end = Delta("x", "hello", 1, finish_reason="stop")
    sent, _ = answer(end, streaming=True, until=lambda sent: len(sent) > 3)
    assert [message["type"] for message in sent].count("http.response.start") == 1
    assert sent[0]["status"] == 200
    *comments, event, closing = bodies(sent)
    assert len(comments) >= 3
    assert set(comments) == {b":\n\n"}
    assert event == b'data: "hello"\n\n'
    assert closing == sse.DONE


def test_an_error_after_a_comment_is_an_event() -> None:
    """The status was sent; the error is the last event."""
    end = Delta("x", error=BackendError("It broke."))
    sent, _ = answer(end, streaming=True, until=lambda sent: len(sent) > 2)
    assert sent[0]["status"] == 200
    error, _, done = bodies(sent)[-1].partition(b"\n\n")
    assert json.loads(error.removeprefix(b"data: "))["error"]["message"] == "It broke."
    assert done == sse.DONE


def test_an_error_before_keeps_its_status() -> None:
    """Nothing was sent yet."""
    end = Delta("x", error=BackendError("It broke."))
    sent, _ = answer(end, streaming=True, until=lambda _: True)
    assert [message.get("status") for message in sent] == [500, None]


def test_a_whole_answer_is_never_a_comment() -> None:
    """JSON stays JSON, however long it takes."""
    turns = iter(range(200))
    end = Delta("x", "hello", 1, finish_reason="stop")
    sent, _ = answer(end, streaming=False, until=lambda _: next(turns, None) is None)
    assert b"".join(bodies(sent)) == b'["hello"]'


def test_a_whole_answer_that_takes_long_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blanks, which JSON may begin with: gateways and Node give up on what does not begin."""
    monkeypatch.setattr(exchanges, "WHOLE_S", 0.005)
    end = Delta("x", "hello", 1, finish_reason="stop")
    sent, _ = answer(end, streaming=False, until=lambda sent: len(sent) > 3)
    assert sent[0]["status"] == 200
    assert dict(sent[0]["headers"])[b"content-type"] == b"application/json"
    assert b"content-length" not in dict(sent[0]["headers"])
    *blanks, body = bodies(sent)
    assert set(blanks) == {b" "}
    assert json.loads(b"".join([*blanks, body])) == ["hello"]
    assert not sent[-1]["more_body"]


def test_a_whole_answer_that_has_begun_and_fails_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its status was sent: nobody may take the error for the answer."""
    monkeypatch.setattr(exchanges, "WHOLE_S", 0.005)
    stream = Stream(["x"], lambda _: None)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await Echo(stream, streaming=False)(scope, receive, send)

    async def run() -> bytes:
        state, connections = ServerState(), Connections(10, 60, 60)
        config = Config(app, log_config=None, access_log=False, lifespan="off")
        config.load()
        listening = bind("127.0.0.1", 0)
        server = Listener(listening, connections, partial(Protocol, config, state, connections))
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        with listening, closing(server):
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            begun = await reader.readuntil(b"1\r\n \r\n")
            stream.put(Delta("x", error=BackendError("It broke.")))
            told = begun + await reader.read()
        writer.close()
        return told

    told = asyncio.run(asyncio.wait_for(run(), http.TIMEOUT_S))
    assert told.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b'"message":"It broke."' in told
    assert not told.endswith(b"0\r\n\r\n")  # the last chunk


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """A worker whose steps take 0.3 s and read 64 tokens each."""
    path = ggufs.write_llama(tmp_path_factory.mktemp("slow") / "slow.gguf")
    arguments = ("--model", path, "--ubatch-size", "64", "--batch-size", "64")
    with serving(*arguments, step_seconds=0.3) as server:
        yield server


PROMPT = [7, 8, 9, 10] * 100  # 400 tokens


def test_over_a_socket(slow: Server) -> None:
    """A prompt that is read for seconds: comments, then the answer as without them."""
    body = {"prompt": PROMPT, "max_tokens": 2, "ignore_eos": True, "stream": True}
    url = slow.url + "/v1/completions"
    with http.stream("POST", url, json=body) as reply:
        assert reply.status_code == 200
        lines = [line for line in reply.iter_lines() if line]
    assert lines.index(":") < next(i for i, line in enumerate(lines) if line.startswith("data:"))
    assert lines[-1] == "data: [DONE]"


def test_ollama_s_clients_hear_something(slow: Server) -> None:
    """The first line comes while the prompt is read, and the text is the same."""
    client = ollama.Client(slow.url)
    few: Any = {"num_predict": 2, "temperature": 0}
    asked: dict[str, Any] = {"prompt": "tell me all of it " * 30, "options": few}
    first, *rest = list(client.generate("any", raw=True, stream=True, **asked))
    assert (first.response, first.done) == ("", False)
    whole = slow.post({**asked, "raw": True, "stream": False}, "/api/generate").json()
    assert "".join(line.response or "" for line in rest) == whole["response"]
    assert (rest[-1].eval_count, rest[-1].prompt_eval_count) == (2, whole["prompt_eval_count"])


def events_of(url: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    with http.stream("POST", url, json=body) as reply:
        data = [line[6:] for line in reply.iter_lines() if line.startswith("data: ")]
    assert data.pop() == "[DONE]"
    return [json.loads(line) for line in data]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_progress(slow: Server, path: str) -> None:
    """`return_progress` tells what the cache gave, then how far each step is, to the total."""
    body: dict[str, Any] = {"max_tokens": 2, "ignore_eos": True, "stream": True}
    if path.endswith("chat/completions"):
        body["messages"] = [{"role": "user", "content": "tell me all of it " * 30}]
    else:
        body["prompt"] = PROMPT[::-1]
    events = events_of(slow.url + path, {**body, "return_progress": True})
    told = [event["prompt_progress"] for event in events if "prompt_progress" in event]
    assert len(told) > 2
    assert told[-1]["processed"] == told[-1]["total"]
    steps = [progress["processed"] for progress in told]
    assert steps == sorted(set(steps))
    assert steps[0] == told[0]["cache"]
    assert all(p["time_ms"] >= 0 for p in told)
    quiet = events_of(slow.url + path, body)
    assert not any("prompt_progress" in event for event in quiet)


def test_the_official_client_skips_both(slow: Server) -> None:
    """Comments and progress change nothing for who does not know them."""
    with openai.OpenAI(base_url=slow.url + "/v1", api_key="none", max_retries=0) as client:
        chunks = client.completions.create(
            model="any",
            prompt=[11, 12, 13, 14] * 100,
            max_tokens=2,
            stream=True,
            extra_body={"return_progress": True, "ignore_eos": True},
        )
        assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "length"

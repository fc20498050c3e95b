"""The official client's `responses` against the real process, with the embedded demo model."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Literal

import openai
import pydantic
import pytest
from openai.types.responses import Response

from tests.api.responses import oracle
from tests.support import http
from tests.support.programs.processes import Server, serving

ASKED: Any = {"model": "any", "input": "What is 3 plus 4?", "temperature": 0}


class Pet(pydantic.BaseModel):
    """A structured answer."""

    animal: Literal["cat", "duck"]
    old: bool


@pytest.fixture(scope="module")
def demo() -> Generator[Server]:
    """The server that `make serve` starts, but on a free port."""
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def client(demo: Server) -> Generator[openai.OpenAI]:
    with openai.OpenAI(base_url=demo.url + "/v1", api_key="unused", max_retries=0) as client:
        yield client


def create(client: openai.OpenAI, **fields: Any) -> Response:
    """A response, whose type the client's overloads do not tell."""
    send: Any = client.responses.create
    return send(**ASKED, **fields)


def test_create(client: openai.OpenAI) -> None:
    """A response is what the chat answers."""
    found = create(client)
    (choice,) = client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": ASKED["input"]}], temperature=0
    ).choices
    assert found.output_text == choice.message.content == "3 plus 4 is 7."
    assert (found.status, found.model) == ("completed", "demo-5m-f16")
    assert found.usage is not None
    assert found.usage.total_tokens == found.usage.input_tokens + found.usage.output_tokens


def test_stream(client: openai.OpenAI) -> None:
    """The client puts the events together to the same text."""
    with client.responses.stream(**ASKED) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == "3 plus 4 is 7."
    told = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(told) == final.output_text
    assert len(told) > 3


def test_parse(client: openai.OpenAI) -> None:
    """A structured answer keeps to its schema, streamed too."""
    found = client.responses.parse(**ASKED, text_format=Pet)
    assert isinstance(found.output_parsed, Pet)
    with client.responses.stream(**ASKED, text_format=Pet) as stream:
        assert isinstance(stream.get_final_response().output_parsed, Pet)


def test_a_cut_stream_ends(demo: Server) -> None:
    """The stream ends with `response.incomplete` and nothing behind it; all of it parses."""
    body = {"input": "Hello", "stream": True, "max_output_tokens": 3, "ignore_eos": True}
    answer = http.post(demo.url + "/v1/responses", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = oracle.events(answer.text)
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.usage.output_tokens == 3


def test_errors_are_typed(client: openai.OpenAI) -> None:
    """A bad request is BadRequestError with the field, and the next one is served."""
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, conversation="conv_1")
    assert caught.value.param == "conversation"
    assert "Send previous_response_id" in caught.value.message
    schema: Any = {
        "type": "json_schema", "name": "x", "schema": {"type": "object", "$ref": "#/nowhere"}
    }  # fmt: skip
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, text={"format": schema})
    assert caught.value.param == "text.format"
    assert create(client).output_text == "3 plus 4 is 7."


def test_resume(client: openai.OpenAI) -> None:
    """A background response whose client left after some events: the client reads the rest."""
    send: Any = client.responses.create
    begun, events = send(**ASKED, background=True, stream=True), list[Any]()
    for event in begun:
        events.append(event)
        if len(events) == 5:
            break
    begun.close()
    name: Any = events[0].response.id
    after = events[-1].sequence_number
    events += client.responses.retrieve(name, stream=True, starting_after=after)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == client.responses.retrieve(name).output_text == "3 plus 4 is 7."
